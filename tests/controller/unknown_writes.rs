//! Writes with an unknown outcome.

use std::time::Duration;

use controller::options::Options;
use fake_cluster::{FaultAction, FaultRule, Status};
use flags::Config;

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

/// An HPA with 3 replicas and a demand of 5.
fn stage() -> Fixture {
    let stage = Fixture::new();
    stage.target("web", 3);
    stage.external("queue", "50");
    stage.create(hpa("web", &[external("queue", "10")]));
    stage
}

/// Injects a fault into the first PUT of `subresource`.
fn first_put(stage: &Fixture, subresource: &str, action: FaultAction) {
    stage.cluster.faults().add(FaultRule::new(action).verb("update").subresource(subresource).times(1));
}

/// A fault that affects only watches of HPAs.
fn watches(action: FaultAction) -> FaultRule {
    FaultRule::new(action).verb("watch").path_suffix("/horizontalpodautoscalers")
}

fn answered(rig: &Harness, verb: &str, suffix: &str, code: u16) -> usize {
    rig.cluster
        .requests()
        .count(|request| request.verb == verb && request.path.ends_with(suffix) && request.code == Some(code))
}

fn config_with_stale_guard() -> Config {
    Config::from(Options { stale_consistency: true, ..Options::default() })
}

#[tokio::test(start_paused = true)]
async fn applied_scale_write_without_a_response_counts_as_success() {
    for lost in
        [FaultAction::CloseAfterApplying, FaultAction::SilenceAfterApplying, FaultAction::Truncate(20)]
    {
        let stage = stage();
        first_put(&stage, "scale", lost.clone());
        let rig = Harness::start(stage);
        rig.until("the condition reports the result", 32.0, |stage| {
            stage.condition("web", "AbleToScale").starts_with("True SucceededRescale")
        })
        .await;
        assert!(rig.hpa("web")["status"]["lastScaleTime"].is_string(), "{lost:?}");
        rig.pass(20.0).await;
        assert_eq!(rig.replicas("web"), 5, "{lost:?}");
        assert_eq!(rig.count("update", "/web/scale"), 1, "{lost:?}");
        assert_eq!(
            rig.events("web"),
            ["SuccessfulRescale New size: 5; reason: external metric queue(nil) above target"],
            "{lost:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn unapplied_scale_write_fails_and_is_repeated_in_the_next_period() {
    let gateway = FaultAction::Text { code: 504, body: String::new() };
    let etcd = FaultAction::Status(Status::new(500, "InternalError", "etcdserver: request timed out"));
    for lost in [FaultAction::Close, gateway, etcd, FaultAction::Silence, FaultAction::Body("{}".to_owned())]
    {
        let stage = stage();
        first_put(&stage, "scale", lost.clone());
        let rig = Harness::start(stage);
        rig.until("the condition reports the result", 32.0, |stage| {
            stage.condition("web", "AbleToScale").starts_with("False FailedUpdateScale")
        })
        .await;
        assert_eq!(rig.count("update", "/web/scale"), 1, "{lost:?}");
        assert_eq!(rig.syncs("web").len(), 2, "one read and one read-back: {lost:?}");
        assert_eq!(rig.replicas("web"), 3, "{lost:?}");
        assert!(rig.events("web").iter().any(|event| event.starts_with("FailedRescale New size: 5")));
        rig.until("the write is repeated", 16.0, |stage| stage.replicas("web") == 5).await;
        assert_eq!(rig.count("update", "/web/scale"), 2, "{lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_write_is_not_read_back() {
    let stage = stage();
    let refused = FaultAction::Status(Status::new(403, "Forbidden", "no"));
    first_put(&stage, "scale", refused);
    let rig = Harness::start(stage);
    rig.pass(5.0).await;
    assert_eq!(rig.syncs("web").len(), 1, "no read-back");
    assert_eq!(rig.replicas("web"), 3);
}

#[tokio::test(start_paused = true)]
async fn conflict_is_reported_when_the_scale_cannot_be_read_again() {
    let stage = stage();
    let conflict = FaultAction::Status(Status::conflict("apps", "deployments", "web"));
    stage.cluster.faults().add(FaultRule::new(conflict).verb("update").subresource("scale").times(5));
    let broken = FaultRule::new(FaultAction::Text { code: 500, body: "boom".to_owned() });
    stage.cluster.faults().add(broken.verb("get").path_suffix("/web/scale").after(1).times(4));
    let rig = Harness::start(stage);
    rig.pass(5.0).await;
    assert_eq!(rig.count("update", "/web/scale"), 5);
    let condition = rig.condition("web", "AbleToScale");
    assert!(condition.contains("Operation cannot be fulfilled on deployments.apps"), "{condition}");
    rig.until("the next period writes the count", 16.0, |stage| stage.replicas("web") == 5).await;
}

#[tokio::test(start_paused = true)]
async fn count_is_written_once_when_the_read_back_fails_too() {
    let stage = stage();
    first_put(&stage, "scale", FaultAction::CloseAfterApplying);
    let silent = FaultRule::new(FaultAction::Silence).verb("get").path_suffix("/web/scale");
    stage.cluster.faults().add(silent.after(1).times(1));
    let rig = Harness::start(stage);
    rig.pass(4.9).await;
    assert_eq!(rig.condition("web", "AbleToScale"), "", "the read-back is in flight");
    rig.until("the read-back times out", 0.5, |stage| {
        stage.condition("web", "AbleToScale").starts_with("False FailedUpdateScale")
    })
    .await;
    rig.until("the next sync reads the count", 16.0, |stage| {
        stage.condition("web", "AbleToScale").starts_with("True")
    })
    .await;
    rig.pass(60.0).await;
    assert_eq!((rig.replicas("web"), rig.count("update", "/web/scale")), (5, 1));
}

#[tokio::test(start_paused = true)]
async fn replaced_target_does_not_count_as_scaled() {
    let stage = Fixture::new();
    stage.external("queue", "50");
    let deployment = |stage: &Fixture, replicas| {
        stage.create(crate::support::objects::deployment("web", replicas));
        let mut deployment = stage.cluster.get("apps/deployments", "shop", "web").unwrap();
        deployment["status"]["replicas"] = replicas.into();
        stage.cluster.update_status(deployment).unwrap();
    };
    deployment(&stage, 3);
    stage.create(hpa("web", &[external("queue", "10")]));
    let slow = FaultRule::new(FaultAction::Delay(Duration::from_secs(1))).verb("update").subresource("scale");
    stage.cluster.faults().add(slow.times(1));
    first_put(&stage, "scale", FaultAction::Close);
    let rig = Harness::start(stage);
    rig.pass(0.5).await;
    rig.cluster.delete_now("apps/deployments", "shop", "web").unwrap();
    deployment(&rig, 5);
    rig.until("the condition reports the result", 2.0, |stage| {
        stage.condition("web", "AbleToScale").starts_with("False FailedUpdateScale")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn status_write_without_a_response_is_read_before_the_watch_event() {
    let stage = stage();
    first_put(&stage, "status", FaultAction::CloseAfterApplying);
    let rig = Harness::with(stage, &config_with_stale_guard());
    rig.cluster.faults().add(watches(FaultAction::WatchDelay(Duration::from_hours(1))));
    rig.external("queue", "70");
    rig.pass(16.0).await;
    assert_eq!(rig.count("update", "/web/status"), 2, "the next sync writes its status");
    assert_eq!(answered(&rig, "update", "/web/status", 409), 0);
    assert_eq!(rig.hpa("web")["status"]["desiredReplicas"], 7);
}

#[tokio::test(start_paused = true)]
async fn change_with_a_lost_watch_event_is_found_by_its_conflict() {
    let rig = Harness::with(stage(), &config_with_stale_guard());
    rig.until("the HPA is stable", 5.0, |stage| stage.hpa("web")["status"]["desiredReplicas"] == 5).await;
    rig.pass(16.0).await;
    rig.cluster.faults().add(watches(FaultAction::WatchDrop).times(1));
    rig.edit("web", |hpa| hpa["spec"]["maxReplicas"] = 6.into());
    rig.external("queue", "90");
    rig.until("the second sync uses the change", 16.0, |stage| stage.replicas("web") == 6).await;
    assert_eq!(answered(&rig, "update", "/web/status", 409), 1);
    rig.pass(120.0).await;
    assert_eq!(rig.replicas("web"), 6);
    assert_eq!(answered(&rig, "update", "/web/status", 409), 1);
    let reads = rig.count("list", "/namespaces/shop/horizontalpodautoscalers");
    assert_eq!(reads, 1, "one conflict causes one read");
}

#[tokio::test(start_paused = true)]
async fn hpa_with_an_unobserved_deletion_causes_few_requests() {
    let rig = Harness::with(stage(), &config_with_stale_guard());
    rig.pass(20.0).await;
    rig.cluster.faults().add(watches(FaultAction::WatchDrop).times(1));
    rig.cluster.delete_now("autoscaling/horizontalpodautoscalers", "shop", "web").unwrap();
    rig.external("queue", "60");
    let before = rig.cluster.requests().entries().len();
    rig.pass(60.0).await;
    let requests = rig.cluster.requests().entries().len() - before;
    assert!(requests <= 4 * 6, "{requests} requests in four periods");
}

#[tokio::test(start_paused = true)]
async fn event_without_a_response_is_created_once() {
    for lost in
        [FaultAction::CloseAfterApplying, FaultAction::Truncate(20), FaultAction::SilenceAfterApplying]
    {
        let stage = stage();
        stage
            .cluster
            .faults()
            .add(FaultRule::new(lost.clone()).verb("create").path_suffix("/events").times(1));
        let rig = Harness::start(stage);
        rig.until("the event is sent again", 60.0, |stage| stage.count("create", "/events") == 2).await;
        rig.pass(1.0).await;
        assert_eq!(rig.events("web").len(), 1, "{lost:?}");
        let event = &rig.cluster.list("events", None)[0];
        assert_eq!(event["count"], 1, "{lost:?}");
    }
}
