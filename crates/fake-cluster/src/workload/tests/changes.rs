//! Startup, failures and termination of pods, and rollouts.

use std::time::Duration;

use serde_json::{Value, json};

use super::{World, after, create, deployment, workload};
use crate::object::text;
use crate::workload::pods::is_active;
use crate::workload::{Distribution, Failure, ImagePull, Span, WorkloadModel};

#[tokio::test(start_paused = true)]
async fn timings_can_be_set_per_workload() {
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
async fn first_pod_on_a_node_pulls_the_image_and_others_wait() {
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
    assert_eq!(world.phases(), (0, 6, 6), "the image is cached");
}

#[tokio::test(start_paused = true)]
async fn slow_pull_delays_every_pod_created_in_its_period() {
    let world = World::start();
    let created = Span::new(Duration::from_secs(10), Duration::from_secs(10));
    let failures = vec![Failure::SlowPull { created, pull: Duration::from_mins(1).into() }];
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
async fn unschedulable_pod_is_pending_until_a_node_is_free() {
    let world = World::start();
    let created = Span::since(Duration::from_secs(10));
    let failures = vec![Failure::Unschedulable { created, wait: Duration::from_mins(1).into() }];
    world.workloads.set_model("shop", "web", WorkloadModel { failures, ..WorkloadModel::default() });
    create(&world.cluster, deployment(1));
    after(12_000).await;
    world.scale("apps/deployments", "web", 2);
    after(50_000).await;
    assert_eq!(world.phases(), (1, 0, 1));
    let reasons = || {
        let pods = world.pods();
        let of = |pod: &Value| pod["status"]["conditions"][3]["reason"].clone();
        pods.iter().filter(|pod| of(pod) == "Unschedulable").count()
    };
    assert_eq!(reasons(), 1);
    after(15_000).await;
    assert_eq!((world.phases(), reasons()), ((0, 0, 2), 0));
}

#[tokio::test(start_paused = true)]
async fn crashing_pod_backs_off_and_reports_it() {
    let world = World::start();
    let during = Span::new(Duration::from_mins(1), Duration::from_mins(10));
    let failures = vec![Failure::CrashLoop { during, fraction: 1.0, runs_for: Duration::from_secs(1) }];
    world.workloads.set_model("shop", "web", WorkloadModel { failures, ..WorkloadModel::default() });
    create(&world.cluster, deployment(1));
    after(59_000).await;
    assert_eq!(world.phases(), (0, 0, 1));
    // The container crashes at 60 s and 61 s, restarts at 71 s and crashes at 72 s.
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
async fn start_up_times_differ_by_pod_and_repeat_for_a_seed() {
    let mut runs = Vec::new();
    for seed in [1, 1, 2] {
        let world = World::with_seed(seed);
        let start_up = Distribution::Uniform { from: Duration::from_secs(5), to: Duration::from_mins(1) };
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
async fn warm_up_makes_pods_ready_and_caches_images() {
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

/// Returns the maximum number of pods and the minimum number of ready pods, sampled every 100 ms until the end of the
/// rollout.
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
    panic!("rollout did not complete: {}", world.get("apps/deployments", "web"));
}

fn with_strategy(mut deployment: Value, strategy: Value) -> Value {
    deployment["spec"]["strategy"] = strategy;
    deployment
}

#[tokio::test(start_paused = true)]
async fn changed_template_replaces_pods_when_new_ones_are_ready() {
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
async fn rollout_respects_surge_and_unavailability() {
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
async fn recreate_removes_all_old_pods_before_it_creates_new_ones() {
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
async fn rollout_to_unready_pods_stalls_until_the_next_rollout() {
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
async fn scaling_during_a_rollout_resizes_both_replica_sets() {
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
async fn min_ready_seconds_delay_availability() {
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
async fn old_replica_sets_are_retained_up_to_the_limit() {
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
async fn stateful_set_updates_from_the_highest_pod_to_the_partition() {
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
