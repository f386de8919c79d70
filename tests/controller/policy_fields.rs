//! Fields of scaling policies that depend on earlier syncs, on the target, or on its pods.

use fake_cluster::{FaultAction, Status};
use flags::Config;
use serde_json::{Value, json};

use crate::checkpoint::{checkpointed, create_maps};
use crate::policies::{active, annotated, demanding};
use crate::support::objects::{SHOP, cpu, deployment, external, hpa, pod};
use crate::support::{Fixture, Harness, Process};

fn fail_metrics(stage: &Fixture) {
    stage.metrics.set_external(Value::default());
}

fn replicas(stage: &Fixture, kind: &str) -> i64 {
    stage.cluster.get(kind, SHOP, "web").unwrap()["spec"]["replicas"].as_i64().unwrap()
}

const AFTER_TWO_MINUTES: &str = "fallback: [{when: Error, failureDurationSeconds: 120, action: Replicas, replicas: 6}, \
     {when: Empty, failureDurationSeconds: 120, action: Replicas, replicas: 6}]";

#[tokio::test(start_paused = true)]
async fn fallback_starts_exactly_after_its_duration() {
    let stage = demanding(AFTER_TWO_MINUTES);
    fail_metrics(&stage);
    let rig = Harness::start(stage);
    rig.pass(119.0).await;
    assert_eq!(rig.replicas("web"), 4);
    rig.until("the fallback", 3.0, |stage| stage.replicas("web") == 6).await;
    rig.pass(1.0).await;
    assert!(active(&rig).starts_with("True FallbackActive queue has"), "{}", active(&rig));
    rig.external("queue", "80");
    rig.until("the metric", 16.0, |stage| stage.replicas("web") == 8).await;
}

#[tokio::test(start_paused = true)]
async fn failure_is_remembered_over_a_restart() {
    let stage = demanding(AFTER_TWO_MINUTES);
    fail_metrics(&stage);
    stage
        .cluster
        .put_raw(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}));
    create_maps(&stage);
    let first = Process::start(&stage, "first", checkpointed());
    stage.pass(80.0).await;
    first.end().await;
    let second = Process::start(&stage, "second", checkpointed());
    stage.pass(35.0).await;
    assert_eq!(stage.replicas("web"), 4);
    stage.until("the fallback", 12.0, |stage| stage.replicas("web") == 6).await;
    second.end().await;
}

#[tokio::test(start_paused = true)]
async fn failure_is_remembered_over_a_failover() {
    let stage = demanding(AFTER_TWO_MINUTES);
    fail_metrics(&stage);
    create_maps(&stage);
    let leader = Process::start(&stage, "first", checkpointed());
    stage.pass(20.0).await;
    let standby = Process::start(&stage, "second", checkpointed());
    stage.pass(60.0).await;
    leader.end().await;
    stage.pass(35.0).await;
    assert_eq!(stage.replicas("web"), 4);
    stage.until("the fallback", 12.0, |stage| stage.replicas("web") == 6).await;
    standby.end().await;
}

#[tokio::test(start_paused = true)]
async fn last_value_repeats_the_last_proposal() {
    let rig = Harness::start(demanding(
        "fallback: [{when: Error, failureDurationSeconds: 0, action: LastValue}, \
         {when: Empty, failureDurationSeconds: 0, action: LastValue}]",
    ));
    rig.until("the demand", 2.0, |stage| stage.replicas("web") == 8).await;
    fail_metrics(&rig);
    rig.target("web", 5);
    rig.until("the last proposal", 16.0, |stage| stage.replicas("web") == 8).await;
    rig.pass(1.0).await;
    assert!(active(&rig).contains("so it proposes 8 as before"), "{}", active(&rig));
}

#[tokio::test(start_paused = true)]
async fn strategy_relates_the_fallback_to_the_current_count() {
    for (strategy, replicas, expected) in
        [("Static", 2, 2), ("AtLeast", 2, 4), ("AtMost", 9, 4), ("AtLeast", 9, 9)]
    {
        let entry = |when: &str| {
            format!(
                "{{when: {when}, failureDurationSeconds: 0, action: Replicas, replicas: {replicas}, strategy: {strategy}}}"
            )
        };
        let policy = format!(
            "{{downscaleStabilizationSeconds: 0, fallback: [{}, {}]}}",
            entry("Error"),
            entry("Empty")
        );
        let stage = demanding(&policy);
        fail_metrics(&stage);
        let rig = Harness::start(stage);
        rig.pass(20.0).await;
        assert_eq!(rig.replicas("web"), expected, "{strategy} {replicas}");
    }
}

/// A workload `web` of the given kind, with 4 replicas and a guard for rollouts. Its metric requests 8 replicas.
fn rolling(kind: &str, guard: &str, status: Value) -> Fixture {
    let stage = Fixture::new();
    let mut object = deployment("web", 4);
    object["kind"] = json!(kind);
    object["status"] = status;
    stage.cluster.put_raw(object);
    stage.external("queue", "80");
    let mut web = annotated(hpa("web", &[external("queue", "10")]), &format!("guards: {{rollout: {guard}}}"));
    web["spec"]["scaleTargetRef"]["kind"] = json!(kind);
    stage.create(web);
    stage
}

#[tokio::test(start_paused = true)]
async fn rollout_holds_the_directions_of_its_guard() {
    let deployment = json!({"replicas": 4, "updatedReplicas": 1});
    let set = json!({"replicas": 4, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b"});
    for (kind, resource, status) in
        [("Deployment", "apps/deployments", deployment), ("StatefulSet", "apps/statefulsets", set)]
    {
        for (guard, held) in [("Hold", 4), ("HoldScaleUp", 4), ("HoldScaleDown", 8), ("Ignore", 8)] {
            let rig = Harness::start(rolling(kind, guard, status.clone()));
            rig.pass(20.0).await;
            assert_eq!(replicas(&rig, resource), held, "{kind} {guard}: {}", active(&rig));
            if held == 8 {
                continue;
            }
            assert!(
                active(&rig)
                    .starts_with("True RolloutInProgress the target rolls out, 1 of 4 pods are updated"),
                "{}",
                active(&rig)
            );
            let mut object = rig.cluster.get(resource, SHOP, "web").unwrap();
            object["status"] = json!({"replicas": 4, "updatedReplicas": 4});
            rig.cluster.put_raw(object);
            rig.until("the end of the rollout", 16.0, |stage| replicas(stage, resource) == 8).await;
        }
    }
}

fn lists(stage: &Fixture, field: &str) -> usize {
    stage.cluster.requests().count(|r| r.verb == "list" && r.query.contains(field))
}

#[tokio::test(start_paused = true)]
async fn target_and_pods_are_read_for_guards_only() {
    let rig = Harness::start(rolling("Deployment", "Ignore", json!({"replicas": 4, "updatedReplicas": 1})));
    rig.pass(60.0).await;
    assert_eq!((lists(&rig, "metadata.name"), lists(&rig, "labelSelector")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn guard_without_permission_is_reported_and_has_no_effect() {
    let stage = rolling("Deployment", "Hold", json!({"replicas": 4, "updatedReplicas": 1}));
    let rig = Harness::start(stage);
    rig.pass(2.0).await;
    assert_eq!(replicas(&rig, "apps/deployments"), 4);
    rig.fault("/deployments", FaultAction::Status(Status::new(403, "Forbidden", "no such right")));
    rig.until("no guard", 16.0, |stage| replicas(stage, "apps/deployments") == 8).await;
    rig.pass(1.0).await;
    let expected = "guards.rollout: failed to list deployments.apps: no such right; the guard has no effect";
    assert!(active(&rig).contains(expected), "{}", active(&rig));
}

fn owned(mut object: Value, api_version: &str, kind: &str, name: &str) -> Value {
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": true}]);
    object
}

#[tokio::test(start_paused = true)]
async fn pods_of_other_owners_do_not_count() {
    for (policy, expected) in [("{}", 4), ("guards: {ownedPodsOnly: true}", 2)] {
        let stage = Fixture::new();
        let mut web = deployment("web", 2);
        web["status"] = json!({"replicas": 2});
        stage.cluster.put_raw(web);
        let mut set = deployment("web-1", 2);
        set["kind"] = json!("ReplicaSet");
        set["metadata"]["labels"] = json!({"app": "web"});
        stage.cluster.put_raw(owned(set, "apps/v1", "Deployment", "web"));
        for index in 0..4 {
            let (api_version, kind, name) =
                if index < 2 { ("apps/v1", "ReplicaSet", "web-1") } else { ("batch/v1", "Job", "migration") };
            stage.cluster.put_raw(owned(pod("web", index), api_version, kind, name));
        }
        stage.cpu("web", &[50, 50, 100, 100]);
        stage.create(annotated(hpa("web", &[cpu(50)]), policy));
        let rig = Harness::start(stage);
        rig.pass(2.0).await;
        assert_eq!(replicas(&rig, "apps/deployments"), expected, "{policy}: {}", active(&rig));
        if expected == 2 {
            assert_eq!(
                active(&rig),
                "True OwnedPodsOnly 2 of 4 pods belong to other owners and do not count"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_unschedulable_pods_hold_a_scale_up() {
    for (reason, expected) in [("SchedulingGated", 8), ("Unschedulable", 4)] {
        let stage = demanding("guards: {pendingPods: {maximum: 0, unschedulableOnly: true}}");
        let mut waiting = pod("web", 0);
        waiting["status"] = json!({
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": reason}],
        });
        stage.cluster.put_raw(waiting);
        let rig = Harness::start(stage);
        rig.pass(20.0).await;
        assert_eq!(rig.replicas("web"), expected, "{reason}");
        if expected == 4 {
            assert!(
                active(&rig).starts_with("True PendingPods 1 pods are unschedulable"),
                "{}",
                active(&rig)
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_that_drop_to_zero_at_once_hold_the_count() {
    let rig = Harness::start(demanding("{downscaleStabilizationSeconds: 0, guards: {zeroMetrics: Hold}}"));
    rig.until("the demand", 2.0, |stage| stage.replicas("web") == 8).await;
    rig.external("queue", "0");
    rig.pass(300.0).await;
    assert_eq!(rig.replicas("web"), 8);
    assert!(
        active(&rig).starts_with("True ZeroMetrics all metrics dropped to 0 at once"),
        "{}",
        active(&rig)
    );
    rig.external("queue", "20");
    rig.until("the metrics", 16.0, |stage| stage.replicas("web") == 2).await;
}

#[tokio::test(start_paused = true)]
async fn each_field_of_max_step_bounds_one_sync() {
    for (step, load, expected) in [
        ("up: 1", "80", 5),
        ("up: 50%", "80", 6),
        ("{up: 100%, maximumPodsUp: 3}", "80", 7),
        ("maximumPodsUp: 2", "80", 6),
        ("down: 1", "10", 3),
        ("down: 50%", "10", 2),
        ("{down: 100%, maximumPodsDown: 1}", "10", 3),
        ("down: 0", "10", 4),
    ] {
        let step = step.trim_matches(['{', '}']);
        let policy = format!("{{downscaleStabilizationSeconds: 0, guards: {{maxStep: {{{step}}}}}}}");
        let stage = demanding(&policy);
        stage.external("queue", load);
        let rig = Harness::start(stage);
        // The first sync keeps the count, because the window starts with this sync.
        rig.pass(if step.contains("own") { 17.0 } else { 2.0 }).await;
        assert_eq!(rig.replicas("web"), expected, "{step}: {}", active(&rig));
    }
}

#[tokio::test(start_paused = true)]
async fn containers_without_request_do_not_fail_the_metric() {
    for (policy, expected) in [("{}", 2), ("corrections: {ignoreContainersWithoutRequest: [proxy]}", 4)] {
        let stage = Fixture::new();
        stage.target("web", 2);
        for index in 0..2 {
            let mut pod = pod("web", index);
            pod["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "proxy"}));
            stage.cluster.put_raw(pod);
        }
        stage.cpu("web", &[100, 100]);
        stage.create(annotated(hpa("web", &[cpu(50)]), policy));
        let rig = Harness::start(stage);
        rig.pass(2.0).await;
        assert_eq!(rig.replicas("web"), expected, "{policy}: {}", active(&rig));
        if expected == 4 {
            assert_eq!(
                active(&rig),
                "True Corrected container proxy requests no cpu and does not count in 2 pods"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn average_within_tolerance_keeps_the_count_of_the_spec() {
    for (policy, expected) in [("{}", 8), ("corrections: {averageValueWithinTolerance: true}", 4)] {
        let stage = Fixture::new();
        let mut web = deployment("web", 4);
        web["status"] = json!({"replicas": 8});
        stage.cluster.put_raw(web);
        stage.external("queue", "80");
        stage.create(annotated(hpa("web", &[external("queue", "10")]), policy));
        let rig = Harness::start(stage);
        rig.pass(2.0).await;
        assert_eq!(replicas(&rig, "apps/deployments"), expected, "{policy}: {}", active(&rig));
    }
}

#[tokio::test(start_paused = true)]
async fn limits_of_the_platform_bound_the_policy_of_a_tenant() {
    let stage = demanding(
        "{mode: Paused, syncPeriodSeconds: 1, schedules: [{name: sale, from: 2029-01-01T00:00:00Z, \
         to: 2031-01-01T00:00:00Z, minReplicas: 10}]}",
    );
    stage.create(json!({
        "apiVersion": "autoscaling.concertina.dev/v1alpha1", "kind": "ClusterScalingPolicy",
        "metadata": {"name": "platform"},
        "spec": {"limits": {
            "allowedModes": ["ScaleUpOnly"], "shortestSyncPeriodSeconds": 30, "highestFloor": 9, "highestCeiling": 9,
        }},
    }));
    let mut config = Config::default();
    config.controller.watch_scaling_policies = true;
    let rig = Harness::with(stage, &config);
    rig.until("the floor", 35.0, |stage| stage.replicas("web") == 9).await;
    rig.pass(2.0).await;
    let before = rig.syncs("web").len();
    rig.pass(60.0).await;
    assert!(rig.syncs("web").len() - before <= 3);
    for part in [
        "mode: exceeds allowedModes of ClusterScalingPolicy platform; the field is ignored",
        "syncPeriodSeconds: exceeds shortestSyncPeriodSeconds 30 of ClusterScalingPolicy platform; 30 applies",
        "schedules.sale.minReplicas: exceeds highestFloor 9 of ClusterScalingPolicy platform; 9 applies",
    ] {
        assert!(active(&rig).contains(part), "{part}: {}", active(&rig));
    }
}
