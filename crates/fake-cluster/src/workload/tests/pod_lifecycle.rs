//! Startup, failures and termination of pods.

use std::time::Duration;

use serde_json::{Value, json};

use super::{World, after, create, deployment};
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
        let of = |pod: &serde_json::Value| pod["status"]["conditions"][3]["reason"].clone();
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
