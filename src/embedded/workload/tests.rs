use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::objects::{is_terminating, name};
use super::pods::{is_active, is_ready};
use super::{Counts, Distribution, Failure, ImagePull, Span, WorkloadModel, Workloads};
use crate::clock::{Clock, VirtualClock};
use crate::embedded::Cluster;
use crate::embedded::object::text;

/// A cluster whose workload side runs in the background, in virtual time.
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

    /// How many pods are pending, how many run without being ready, and how many are ready; those that are ending left
    /// out.
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
async fn pods_of_a_deployment_run_for_the_start_up_time_and_then_are_ready() {
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
async fn pods_are_owned_by_the_replica_set_of_their_template_and_named_after_it() {
    let world = World::start();
    create(&world.cluster, deployment(1));
    after(1_000).await;
    let sets = world.cluster.list("apps/replicasets", Some("shop"));
    let [set] = sets.as_slice() else { panic!("expected one ReplicaSet: {sets:?}") };
    let pod = &world.pods()[0];
    assert_eq!(set["metadata"]["ownerReferences"][0]["name"], "web");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
    assert_eq!(pod["metadata"]["ownerReferences"][0]["controller"], true);
    let suffix = name(pod).strip_prefix(&format!("{}-", name(set))).expect("the name of its owner");
    assert_eq!(suffix.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn two_runs_give_the_same_names() {
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
async fn scaling_down_ends_the_youngest_pods_after_their_grace_period() {
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
async fn pods_that_are_not_ready_are_ended_before_ready_ones() {
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
async fn a_workload_scaled_to_zero_and_back_gets_new_pods() {
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
async fn a_deployments_status_follows_its_pods() {
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
async fn nothing_is_written_when_nothing_changes() {
    let world = World::start();
    create(&world.cluster, deployment(2));
    after(5_000).await;
    let before = (world.pods(), world.get("apps/deployments", "web"));
    after(60_000).await;
    assert_eq!(before, (world.pods(), world.get("apps/deployments", "web")));
}

#[tokio::test(start_paused = true)]
async fn timings_can_be_set_for_each_workload() {
    let world = World::start();
    let (start_up, grace) = (Duration::from_secs(10).into(), Duration::from_secs(20));
    world.workloads.set_model("shop", "web", WorkloadModel { start_up, grace, ..WorkloadModel::default() });
    create(&world.cluster, deployment(1));
    after(9_000).await;
    assert_eq!(world.phases(), (0, 1, 0));
    after(1_500).await;
    assert_eq!(world.ready(), 1);
    world.scale("apps/deployments", "web", 0);
    after(19_000).await;
    assert_eq!(world.ending(), 1);
    after(2_000).await;
    assert_eq!(world.pods().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stateful_sets_pods_come_one_after_the_other_and_go_from_the_highest_on() {
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
async fn a_replica_set_of_its_own_has_pods_and_a_status() {
    let world = World::start();
    create(&world.cluster, workload("apps/v1", "ReplicaSet", 2));
    after(5_000).await;
    assert_eq!(world.ready(), 2);
    assert_eq!(world.get("apps/replicasets", "web")["status"]["availableReplicas"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_widget_shows_its_count_and_a_selector_that_its_pods_match() {
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
async fn a_changed_template_replaces_the_pods_when_the_new_ones_are_ready() {
    let world = World::start();
    create(&world.cluster, deployment(2));
    after(5_000).await;
    let old = world.names();
    let mut changed = world.get("apps/deployments", "web");
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2".into();
    world.cluster.update(changed).expect("update");
    after(2_000).await;
    assert_eq!(world.phases(), (0, 1, 2));
    after(8_000).await;
    assert_eq!(world.ready(), 2);
    assert!(world.names().iter().all(|name| !old.contains(name)));
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_deleted_deployment_go_too() {
    let world = World::start();
    create(&world.cluster, deployment(2));
    after(5_000).await;
    world.cluster.delete("apps/deployments", "shop", "web").expect("delete");
    after(5_000).await;
    assert_eq!(world.pods().len(), 0);
    assert_eq!(world.cluster.list("apps/replicasets", Some("shop")).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_an_owner_starts_too() {
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

/// The highest number of pods that were there at once and the lowest number of ready ones, sampled each 100 ms until the
/// Deployment has rolled out.
async fn rolled_out(world: &World) -> (usize, usize) {
    let (mut most, mut fewest) = (0, usize::MAX);
    for _ in 0..3_000 {
        after(100).await;
        let active = world.pods().iter().filter(|pod| is_active(pod)).count();
        most = most.max(active);
        fewest = fewest.min(world.ready());
        let deployment = world.get("apps/deployments", "web");
        let status = &deployment["status"];
        if status["observedGeneration"] == deployment["metadata"]["generation"]
            && status["conditions"][1]["reason"] == "NewReplicaSetAvailable"
        {
            return (most, fewest);
        }
    }
    panic!("the rollout does not end: {}", world.get("apps/deployments", "web"));
}

fn with_strategy(mut deployment: Value, strategy: Value) -> Value {
    deployment["spec"]["strategy"] = strategy;
    deployment
}

#[tokio::test(start_paused = true)]
async fn a_rollout_keeps_to_surge_and_unavailability() {
    for (surge, unavailable, expected) in [
        (json!("25%"), json!("25%"), (13, 8)),
        (json!(1), json!(0), (11, 10)),
        (json!(0), json!(3), (10, 7)),
        (json!("100%"), json!(0), (20, 10)),
    ] {
        let world = World::start();
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
        create(&world.cluster, with_strategy(deployment(10), rolling));
        after(10_000).await;
        let old = world.names();
        world.workloads.restart("apps/deployments", "shop", "web").expect("restart");
        assert_eq!(rolled_out(&world).await, expected, "{surge} {unavailable}");
        after(5_000).await;
        assert!(world.pods().len() == 10 && world.names().iter().all(|name| !old.contains(name)));
    }
}

#[tokio::test(start_paused = true)]
async fn recreate_lets_all_old_pods_go_before_the_first_new_one_comes() {
    let world = World::start();
    create(&world.cluster, with_strategy(deployment(3), json!({"type": "Recreate"})));
    after(5_000).await;
    let old = world.names();
    world.workloads.restart("apps/deployments", "shop", "web").expect("restart");
    after(1_000).await;
    assert_eq!((world.names(), world.ending()), (old, 3));
    after(1_500).await;
    assert_eq!((world.phases(), world.ending()), ((0, 3, 0), 0));
}

#[tokio::test(start_paused = true)]
async fn a_rollout_to_pods_that_are_never_ready_stops_half_way_and_a_further_one_repairs_it() {
    let world = World::start();
    create(&world.cluster, deployment(8));
    after(5_000).await;
    let failures = vec![Failure::NeverReady { created: Span::since(Duration::ZERO), fraction: 1.0 }];
    world.workloads.set_model("shop", "web", WorkloadModel { failures, ..WorkloadModel::default() });
    world.workloads.restart("apps/deployments", "shop", "web").expect("restart");
    after(600_000).await;
    assert_eq!(world.phases(), (0, 4, 6));
    world.workloads.set_model("shop", "web", WorkloadModel::default());
    world.workloads.restart("apps/deployments", "shop", "web").expect("restart");
    rolled_out(&world).await;
    assert_eq!(world.phases(), (0, 0, 8));
}

#[tokio::test(start_paused = true)]
async fn scaled_during_a_rollout_both_sets_follow() {
    let world = World::start();
    create(&world.cluster, deployment(10));
    after(5_000).await;
    world.workloads.restart("apps/deployments", "shop", "web").expect("restart");
    after(500).await;
    world.scale("apps/deployments", "web", 20);
    after(500).await;
    let sizes: Vec<_> = world
        .cluster
        .list("apps/replicasets", Some("shop"))
        .iter()
        .map(|set| set["spec"]["replicas"].as_u64().expect("replicas"))
        .collect();
    assert_eq!(sizes.iter().sum::<u64>(), 25);
    assert!(sizes.iter().all(|size| *size > 8), "{sizes:?}");
    rolled_out(&world).await;
    assert_eq!(world.ready(), 20);
}

#[tokio::test(start_paused = true)]
async fn min_ready_seconds_hold_a_rollout_back() {
    let world = World::start();
    let mut patient = deployment(2);
    patient["spec"]["minReadySeconds"] = json!(30);
    create(&world.cluster, patient);
    after(5_000).await;
    let status = world.get("apps/deployments", "web")["status"].clone();
    assert_eq!((&status["readyReplicas"], &status["availableReplicas"]), (&json!(2), &Value::Null));
    after(29_000).await;
    assert_eq!(world.get("apps/deployments", "web")["status"]["availableReplicas"], 2);
}

#[tokio::test(start_paused = true)]
async fn old_replica_sets_are_kept_up_to_the_limit() {
    let world = World::start();
    let mut short = deployment(1);
    short["spec"]["revisionHistoryLimit"] = json!(2);
    create(&world.cluster, short);
    for _ in 0..5 {
        after(10_000).await;
        world.workloads.restart("apps/deployments", "shop", "web").expect("restart");
    }
    after(10_000).await;
    assert_eq!(world.cluster.count("apps/replicasets"), 3);
    assert_eq!(world.ready(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_is_updated_from_the_highest_pod_down_to_the_partition() {
    let world = World::start();
    let mut set = workload("apps/v1", "StatefulSet", 3);
    set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    create(&world.cluster, set);
    after(10_000).await;
    let uids =
        || world.pods().iter().map(|pod| text(pod, &["metadata", "uid"]).to_owned()).collect::<Vec<_>>();
    let old = uids();
    world.workloads.restart("apps/statefulsets", "shop", "web").expect("restart");
    for _ in 0..200 {
        after(100).await;
        assert!(world.ready() >= 2, "one at a time");
    }
    let new = uids();
    assert_eq!((new[0] == old[0], new[1] == old[1], new[2] == old[2]), (true, false, false));
    assert_eq!(world.get("apps/statefulsets", "web")["status"]["updatedReplicas"], 2);
}

#[tokio::test(start_paused = true)]
async fn the_first_pod_on_a_node_pulls_the_image_and_others_on_it_wait_for_it() {
    let world = World::start();
    let image_pull = ImagePull::FirstOnNode(Duration::from_secs(20).into());
    world.workloads.set_model("shop", "web", WorkloadModel { image_pull, ..WorkloadModel::default() });
    create(&world.cluster, deployment(6));
    after(19_000).await;
    assert_eq!(world.phases(), (6, 0, 0));
    let state = &world.pods()[0]["status"]["containerStatuses"][0]["state"];
    assert_eq!(state["waiting"]["reason"], "ContainerCreating");
    after(1_500).await;
    assert_eq!(world.phases(), (0, 6, 0));
    assert_eq!(
        world.pods()[0]["status"]["containerStatuses"][0]["state"]["running"]["startedAt"],
        "2030-01-01T00:00:20Z"
    );
    after(3_000).await;
    assert_eq!(world.phases(), (0, 0, 6));
    assert_eq!(world.pods()[0]["status"]["startTime"], "2030-01-01T00:00:00Z");
    world.scale("apps/deployments", "web", 12);
    after(1_000).await;
    assert_eq!(world.phases(), (0, 6, 6), "the image is there");
}

#[tokio::test(start_paused = true)]
async fn in_a_slow_time_every_pod_waits_for_its_image() {
    let world = World::start();
    let created = Span::new(Duration::from_secs(10), Duration::from_secs(10));
    let failures = vec![Failure::SlowPull { created, pull: Duration::from_secs(60).into() }];
    world.workloads.set_model("shop", "web", WorkloadModel { failures, ..WorkloadModel::default() });
    create(&world.cluster, deployment(1));
    after(12_000).await;
    world.scale("apps/deployments", "web", 2);
    after(50_000).await;
    assert_eq!(world.phases(), (1, 0, 1));
    world.scale("apps/deployments", "web", 3);
    after(5_000).await;
    assert_eq!(world.phases(), (1, 0, 2));
    after(10_000).await;
    assert_eq!(world.phases(), (0, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_crashes_backs_off_and_says_so() {
    let world = World::start();
    let during = Span::new(Duration::from_secs(60), Duration::from_mins(10));
    let failures = vec![Failure::CrashLoop { during, fraction: 1.0, runs_for: Duration::from_secs(1) }];
    world.workloads.set_model("shop", "web", WorkloadModel { failures, ..WorkloadModel::default() });
    create(&world.cluster, deployment(1));
    after(59_000).await;
    assert_eq!(world.phases(), (0, 0, 1));
    // Crashed at 60 and 61, it restarts at 71 and crashes at 72.
    after(6_000).await;
    let status = world.pods()[0]["status"].clone();
    let container = &status["containerStatuses"][0];
    assert_eq!(
        (&status["phase"], &container["ready"], &container["restartCount"]),
        (&json!("Running"), &json!(false), &json!(1))
    );
    assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
    assert_eq!(container["lastState"]["terminated"]["finishedAt"], "2030-01-01T00:01:01Z");
    let ready = status["conditions"].as_array().expect("conditions").iter().find(|it| it["type"] == "Ready");
    let ready = ready.expect("ready");
    assert_eq!(
        (&ready["status"], &ready["lastTransitionTime"]),
        (&json!("False"), &json!("2030-01-01T00:01:00Z"))
    );
    assert_eq!(world.get("apps/deployments", "web")["status"]["readyReplicas"], Value::Null);
    after(1_200_000).await;
    assert_eq!(world.phases(), (0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn start_up_times_are_drawn_by_pod_and_the_same_for_the_same_seed() {
    let mut runs = Vec::new();
    for seed in [1, 1, 2] {
        let world = World::with_seed(seed);
        let start_up = Distribution::Uniform { from: Duration::from_secs(5), to: Duration::from_secs(60) };
        world.workloads.set_model("shop", "web", WorkloadModel { start_up, ..WorkloadModel::default() });
        create(&world.cluster, deployment(20));
        let mut ready = Vec::new();
        for _ in 0..70 {
            after(1_000).await;
            ready.push(world.ready());
        }
        runs.push((ready, world.pods()));
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0].0, runs[2].0);
    assert_eq!((runs[0].0[3], runs[0].0[69]), (0, 20));
    assert!((5..15).contains(&runs[0].0[32]), "{:?}", runs[0].0);
}

#[tokio::test(start_paused = true)]
async fn warmed_up_workloads_are_ready_at_once_and_have_their_images() {
    let world = World::start();
    let image_pull = ImagePull::FirstOnNode(Duration::from_secs(20).into());
    world.workloads.set_model("shop", "web", WorkloadModel { image_pull, ..WorkloadModel::default() });
    create(&world.cluster, deployment(4));
    world.workloads.warm_up();
    assert_eq!(world.phases(), (0, 0, 4));
    assert_eq!(world.get("apps/deployments", "web")["status"]["readyReplicas"], 4);
    world.scale("apps/deployments", "web", 5);
    after(1_000).await;
    assert_eq!(world.phases(), (0, 1, 4));
}

#[tokio::test(start_paused = true)]
async fn pods_are_counted_by_workload() {
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
async fn what_is_due_is_known_and_nothing_else_wakes_anybody() {
    let world = World::start();
    world.stop.cancel();
    create(&world.cluster, deployment(2));
    let begin = tokio::time::Instant::now();
    let due = world.workloads.step().expect("a pod becomes ready");
    assert_eq!(due - begin, Duration::from_secs(3));
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(world.workloads.step(), None);
}
