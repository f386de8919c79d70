//! Rollouts: the replacement of old pods by new ones.

use std::time::Duration;

use serde_json::{Value, json};

use super::{World, after, create, deployment, workload};
use crate::object::text;
use crate::workload::pods::is_active;
use crate::workload::{Failure, Span, WorkloadModel};

/// Returns the maximum number of pods and the minimum number of ready pods, sampled every 100 ms until the
/// end of the rollout.
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
