use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::pods::{is_active, is_ready, is_terminating, name};
use super::{Counts, WorkloadModel, Workloads};
use crate::Cluster;
use crate::object::text;
use clock::{Clock, VirtualClock};

mod changes;

/// A cluster with workload controllers that run in the background, in virtual time.
struct World {
    cluster: Cluster,
    workloads: Arc<Workloads>,
    clock: Arc<VirtualClock>,
    stop: CancellationToken,
}

impl World {
    fn start() -> Self {
        Self::with_seed(0)
    }

    fn with_seed(seed: u64) -> Self {
        let clock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().expect("time")));
        let cluster = Cluster::new(clock.clone());
        let workloads = Arc::new(Workloads::new(cluster.clone(), clock.clone()).with_seed(seed));
        let stop = CancellationToken::new();
        let (running, token) = (Arc::clone(&workloads), stop.clone());
        tokio::spawn(async move { running.run(token).await });
        create(&cluster, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
        Self { cluster, workloads, clock, stop }
    }

    fn pods(&self) -> Vec<Value> {
        self.cluster.list("pods", Some("shop"))
    }

    fn scale(&self, resource: &str, workload: &str, replicas: u32) {
        let mut object = self.get(resource, workload);
        object["spec"]["replicas"] = replicas.into();
        self.cluster.update(object).expect("update");
    }

    fn get(&self, resource: &str, workload: &str) -> Value {
        self.cluster.get(resource, "shop", workload).expect("object")
    }

    /// Returns the numbers of pending pods, running but unready pods, and ready pods. Terminating pods are excluded.
    fn phases(&self) -> (usize, usize, usize) {
        let pods = self.pods();
        let count = |phase: &str, ready: bool| {
            let counts = |pod: &&Value| {
                text(pod, &["status", "phase"]) == phase && is_ready(pod) == ready && is_active(pod)
            };
            pods.iter().filter(counts).count()
        };
        (count("Pending", false), count("Running", false), count("Running", true))
    }

    fn ready(&self) -> usize {
        self.phases().2
    }

    fn ending(&self) -> usize {
        self.pods().iter().filter(|pod| is_terminating(pod)).count()
    }

    fn names(&self) -> Vec<String> {
        self.pods().iter().map(|pod| name(pod).to_owned()).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn create(cluster: &Cluster, object: Value) -> Value {
    cluster.create(object).expect("create")
}

async fn after(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

fn workload(api_version: &str, kind: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "replicas": replicas,
            "serviceName": "web",
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "app", "image": "web:1", "resources": {"requests": {"cpu": "100m"}}}]},
            },
        },
    })
}

fn deployment(replicas: u32) -> Value {
    workload("apps/v1", "Deployment", replicas)
}

#[tokio::test(start_paused = true)]
async fn workloads_follow_the_cluster_after_a_restore() {
    let world = World::start();
    create(&world.cluster, deployment(2));
    after(20_000).await;
    let backup = world.cluster.resource_version();
    world.scale("apps/deployments", "web", 5);
    after(20_000).await;
    assert_eq!(world.phases(), (0, 0, 5));
    world.cluster.restore(backup);
    assert_eq!(world.phases(), (0, 0, 2));
    world.scale("apps/deployments", "web", 3);
    after(20_000).await;
    assert_eq!(world.phases(), (0, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn pods_that_were_not_ready_in_a_backup_become_ready_after_its_restore() {
    let world = World::start();
    create(&world.cluster, deployment(2));
    after(20_000).await;
    world.scale("apps/deployments", "web", 5);
    while world.phases().1 == 0 {
        after(100).await;
    }
    let backup = world.cluster.resource_version();
    assert!(world.ready() < 5);
    after(20_000).await;
    world.cluster.restore(backup);
    after(20_000).await;
    assert_eq!(world.phases(), (0, 0, 5));
}

#[tokio::test(start_paused = true)]
async fn deployment_pods_become_ready_after_their_start_up() {
    let world = World::start();
    create(&world.cluster, deployment(3));
    after(500).await;
    assert_eq!(world.phases(), (0, 3, 0));
    let conditions = world.pods()[0]["status"]["conditions"].clone();
    let ready = conditions.as_array().expect("conditions").iter().find(|it| it["type"] == "Ready").cloned();
    let ready = ready.expect("ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("ContainersNotReady")));
    assert_eq!(ready["lastTransitionTime"], "2030-01-01T00:00:00Z");
    after(2_000).await;
    assert_eq!(world.phases(), (0, 3, 0));
    after(1_000).await;
    assert_eq!(world.phases(), (0, 0, 3));

    let pod = &world.pods()[0];
    assert_eq!(pod["status"]["startTime"], "2030-01-01T00:00:00Z");
    assert_eq!(pod["status"]["containerStatuses"][0]["ready"], true);
    assert!(text(pod, &["status", "podIP"]).starts_with("10.244.0."));
    assert_eq!(pod["metadata"]["labels"]["app"], "web");
    let ready =
        pod["status"]["conditions"].as_array().expect("conditions").iter().find(|it| it["type"] == "Ready");
    assert_eq!(ready.expect("ready")["lastTransitionTime"], "2030-01-01T00:00:03Z");
}

#[tokio::test(start_paused = true)]
async fn deployment_pods_are_owned_by_and_named_after_their_replica_set() {
    let world = World::start();
    create(&world.cluster, deployment(1));
    after(1_000).await;
    let sets = world.cluster.list("apps/replicasets", Some("shop"));
    let [set] = sets.as_slice() else { panic!("expected one ReplicaSet: {sets:?}") };
    let pod = &world.pods()[0];
    assert_eq!(set["metadata"]["ownerReferences"][0]["name"], "web");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
    assert_eq!(pod["metadata"]["ownerReferences"][0]["controller"], true);
    let suffix = name(pod).strip_prefix(&format!("{}-", name(set))).expect("pod name has no owner prefix");
    assert_eq!(suffix.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn equal_runs_produce_equal_pod_names() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let world = World::start();
        create(&world.cluster, deployment(5));
        after(1_000).await;
        world.scale("apps/deployments", "web", 8);
        after(1_000).await;
        runs.push(world.names());
    }
    assert_eq!(runs[0].len(), 8);
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test(start_paused = true)]
async fn scale_down_removes_the_youngest_pods_after_their_grace_period() {
    let world = World::start();
    create(&world.cluster, deployment(2));
    after(5_000).await;
    let old = world.names();
    world.scale("apps/deployments", "web", 5);
    after(5_000).await;
    assert_eq!(world.ready(), 5);
    world.scale("apps/deployments", "web", 2);
    after(500).await;
    assert_eq!((world.ready(), world.ending()), (2, 3));
    assert_eq!(world.get("apps/deployments", "web")["status"]["replicas"], 2);
    after(1_000).await;
    assert_eq!(world.ending(), 3);
    after(1_000).await;
    assert_eq!(world.names(), old);
}

#[tokio::test(start_paused = true)]
async fn scale_down_removes_unready_pods_first() {
    let world = World::start();
    create(&world.cluster, deployment(2));
    after(5_000).await;
    world.scale("apps/deployments", "web", 4);
    after(1_000).await;
    world.scale("apps/deployments", "web", 3);
    after(500).await;
    assert_eq!((world.phases(), world.ending()), ((0, 1, 2), 1));
}

#[tokio::test(start_paused = true)]
async fn workload_scaled_to_zero_and_back_gets_new_pods() {
    let world = World::start();
    create(&world.cluster, deployment(1));
    after(5_000).await;
    let before = world.names();
    world.scale("apps/deployments", "web", 0);
    after(5_000).await;
    assert_eq!(world.pods().len(), 0);
    world.scale("apps/deployments", "web", 1);
    after(5_000).await;
    assert_eq!(world.ready(), 1);
    assert_ne!(world.names(), before);
}

#[tokio::test(start_paused = true)]
async fn deployment_status_reflects_its_pods() {
    let world = World::start();
    create(&world.cluster, deployment(4));
    after(1_000).await;
    let status = world.get("apps/deployments", "web")["status"].clone();
    assert_eq!((&status["replicas"], &status["unavailableReplicas"]), (&json!(4), &json!(4)));
    assert_eq!(status["readyReplicas"], Value::Null);
    assert_eq!(status["conditions"][0]["reason"], "MinimumReplicasUnavailable");
    after(4_000).await;
    let status = world.get("apps/deployments", "web")["status"].clone();
    for field in ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas"] {
        assert_eq!(status[field], 4, "{field}");
    }
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["conditions"][0]["status"], "True");
    assert_eq!(status["conditions"][1]["reason"], "NewReplicaSetAvailable");
    assert_eq!(status["conditions"][1]["lastTransitionTime"], "2030-01-01T00:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn controllers_write_nothing_when_nothing_changes() {
    let world = World::start();
    create(&world.cluster, deployment(2));
    after(5_000).await;
    let before = (world.pods(), world.get("apps/deployments", "web"));
    after(60_000).await;
    assert_eq!(before, (world.pods(), world.get("apps/deployments", "web")));
}

#[tokio::test(start_paused = true)]
async fn stateful_set_adds_pods_in_order_and_removes_the_highest_first() {
    let world = World::start();
    create(&world.cluster, workload("apps/v1", "StatefulSet", 3));
    after(1_000).await;
    assert_eq!(world.names(), ["web-0"]);
    after(3_000).await;
    assert_eq!(world.names(), ["web-0", "web-1"]);
    after(10_000).await;
    assert_eq!(world.names(), ["web-0", "web-1", "web-2"]);
    assert_eq!(world.get("apps/statefulsets", "web")["status"]["readyReplicas"], 3);
    world.scale("apps/statefulsets", "web", 1);
    after(5_000).await;
    assert_eq!(world.names(), ["web-0"]);
}

#[tokio::test(start_paused = true)]
async fn replica_set_without_a_deployment_has_pods_and_a_status() {
    let world = World::start();
    create(&world.cluster, workload("apps/v1", "ReplicaSet", 2));
    after(5_000).await;
    assert_eq!(world.ready(), 2);
    assert_eq!(world.get("apps/replicasets", "web")["status"]["availableReplicas"], 2);
}

#[tokio::test(start_paused = true)]
async fn widget_status_has_a_count_and_a_selector_of_its_pods() {
    let world = World::start();
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"namespace": "shop", "name": "gear"}, "spec": {"replicas": 2},
    });
    create(&world.cluster, widget);
    after(5_000).await;
    let status = world.get("example.com/widgets", "gear")["status"].clone();
    assert_eq!((&status["replicas"], &status["selector"]), (&json!(2), &json!("widget=gear")));
    assert!(world.pods().iter().all(|pod| pod["metadata"]["labels"]["widget"] == "gear"));
}

#[tokio::test(start_paused = true)]
async fn deployment_deletion_removes_its_pods() {
    let world = World::start();
    create(&world.cluster, deployment(2));
    after(5_000).await;
    world.cluster.delete("apps/deployments", "shop", "web").expect("delete");
    after(5_000).await;
    assert_eq!(world.pods().len(), 0);
    assert_eq!(world.cluster.list("apps/replicasets", Some("shop")).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn pod_without_an_owner_starts() {
    let world = World::start();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "alone"},
        "spec": {"containers": [{"name": "app", "image": "web:1"}]},
    });
    create(&world.cluster, pod);
    after(5_000).await;
    assert_eq!(world.ready(), 1);
    assert_eq!(world.clock.now().to_string(), "2030-01-01T00:00:05Z");
}

#[tokio::test(start_paused = true)]
async fn peak_is_the_largest_number_of_pods_since_its_record() {
    let world = World::start();
    world.workloads.set_model("shop", "web", WorkloadModel::default());
    create(&world.cluster, deployment(6));
    after(5_000).await;
    world.scale("apps/deployments", "web", 3);
    after(5_000).await;
    assert_eq!(world.workloads.peak("shop", "web"), None);
    world.workloads.record_peaks();
    assert_eq!(world.workloads.peak("shop", "web"), Some(3));
    world.scale("apps/deployments", "web", 5);
    after(1_000).await;
    world.scale("apps/deployments", "web", 2);
    after(1_000).await;
    assert_eq!(world.workloads.peak("shop", "web"), Some(5));
}

#[tokio::test(start_paused = true)]
async fn counts_cover_the_pods_of_a_workload() {
    let world = World::start();
    create(&world.cluster, deployment(3));
    after(5_000).await;
    world.scale("apps/deployments", "web", 5);
    after(1_000).await;
    let counts = world.workloads.counts("shop", "web");
    assert_eq!(counts, Some(Counts { wanted: 5, active: 5, pending: 0, ready: 3, available: 3, ending: 0 }));
    world.scale("apps/deployments", "web", 2);
    after(1_000).await;
    let counts = world.workloads.counts("shop", "web");
    assert_eq!(counts, Some(Counts { wanted: 2, active: 2, pending: 0, ready: 2, available: 2, ending: 3 }));
    assert_eq!(world.workloads.counts("shop", "other"), None);
}

#[tokio::test(start_paused = true)]
async fn step_returns_the_time_of_the_next_work() {
    let world = World::start();
    world.stop.cancel();
    create(&world.cluster, deployment(2));
    let start = tokio::time::Instant::now();
    let due = world.workloads.step().expect("a pod becomes ready");
    assert_eq!(due - start, Duration::from_secs(3));
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(world.workloads.step(), None);
}
