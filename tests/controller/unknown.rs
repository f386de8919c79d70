//! Writes of which nobody knows whether they were applied.

use std::time::Duration;

use concertina::cli::Config;
use concertina::embedded::{FaultAction, FaultRule, Status};

use crate::support::objects::{external, hpa};
use crate::support::{Rig, Stage};

/// An HPA that wants 5 replicas, and has 3.
fn stage() -> Stage {
    let stage = Stage::new();
    stage.target("web", 3);
    stage.external("queue", "50");
    stage.create(hpa("web", &[external("queue", "10")]));
    stage
}

/// The first PUT of this subresource meets this.
fn first_put(stage: &Stage, subresource: &str, action: FaultAction) {
    stage.cluster.faults().add(FaultRule::new(action).verb("update").subresource(subresource).times(1));
}

/// What watches of HPAs meet.
fn watches(action: FaultAction) -> FaultRule {
    FaultRule::new(action).verb("watch").path_suffix("/horizontalpodautoscalers")
}

fn answered(rig: &Rig, verb: &str, suffix: &str, code: u16) -> usize {
    rig.cluster
        .requests()
        .count(|request| request.verb == verb && request.path.ends_with(suffix) && request.code == Some(code))
}

fn guarded() -> Config {
    Config { stale_consistency: true, ..Config::default() }
}

#[tokio::test(start_paused = true)]
async fn a_scale_write_that_was_applied_although_its_answer_was_lost_has_succeeded() {
    for lost in
        [FaultAction::CloseAfterApplying, FaultAction::SilenceAfterApplying, FaultAction::Truncate(20)]
    {
        let stage = stage();
        first_put(&stage, "scale", lost.clone());
        let rig = Rig::start(stage);
        rig.until("it is told", 32.0, |stage| {
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
async fn a_scale_write_that_was_not_applied_has_failed_and_is_made_in_the_next_period() {
    let gateway = FaultAction::Text { code: 504, body: String::new() };
    let etcd = FaultAction::Status(Status::new(500, "InternalError", "etcdserver: request timed out"));
    for lost in [FaultAction::Close, gateway, etcd, FaultAction::Silence, FaultAction::Body("{}".to_owned())]
    {
        let stage = stage();
        first_put(&stage, "scale", lost.clone());
        let rig = Rig::start(stage);
        rig.until("it is told", 32.0, |stage| {
            stage.condition("web", "AbleToScale").starts_with("False FailedUpdateScale")
        })
        .await;
        assert_eq!(rig.count("update", "/web/scale"), 1, "{lost:?}");
        assert_eq!(rig.syncs("web").len(), 2, "read once, and read back once: {lost:?}");
        assert_eq!(rig.replicas("web"), 3, "{lost:?}");
        assert!(rig.events("web").iter().any(|event| event.starts_with("FailedRescale New size: 5")));
        rig.until("it is made", 16.0, |stage| stage.replicas("web") == 5).await;
        assert_eq!(rig.count("update", "/web/scale"), 2, "{lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_refused_is_not_read_back() {
    let stage = stage();
    let refused = FaultAction::Status(Status::new(403, "Forbidden", "no"));
    first_put(&stage, "scale", refused);
    let rig = Rig::start(stage);
    rig.pass(5.0).await;
    assert_eq!(rig.syncs("web").len(), 1, "nothing to read back");
    assert_eq!(rig.replicas("web"), 3);
}

#[tokio::test(start_paused = true)]
async fn where_reading_back_fails_too_the_next_sync_finds_the_count_and_writes_no_second_time() {
    let stage = stage();
    first_put(&stage, "scale", FaultAction::CloseAfterApplying);
    let silent = FaultRule::new(FaultAction::Silence).verb("get").path_suffix("/web/scale");
    stage.cluster.faults().add(silent.after(1).times(1));
    let rig = Rig::start(stage);
    rig.pass(4.9).await;
    assert_eq!(rig.condition("web", "AbleToScale"), "", "still reading back");
    rig.until("it is given up", 0.5, |stage| {
        stage.condition("web", "AbleToScale").starts_with("False FailedUpdateScale")
    })
    .await;
    rig.until("it is seen", 16.0, |stage| stage.condition("web", "AbleToScale").starts_with("True")).await;
    rig.pass(60.0).await;
    assert_eq!((rig.replicas("web"), rig.count("update", "/web/scale")), (5, 1));
}

#[tokio::test(start_paused = true)]
async fn a_target_that_was_replaced_meanwhile_was_not_scaled_by_us() {
    let stage = Stage::new();
    stage.external("queue", "50");
    let deployment = |stage: &Stage, replicas| {
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
    let rig = Rig::start(stage);
    rig.pass(0.5).await;
    rig.cluster.delete_now("apps/deployments", "shop", "web").unwrap();
    deployment(&rig, 5);
    rig.until("it is told", 2.0, |stage| {
        stage.condition("web", "AbleToScale").starts_with("False FailedUpdateScale")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_status_write_whose_answer_was_lost_is_known_before_the_watch_tells() {
    let stage = stage();
    first_put(&stage, "status", FaultAction::CloseAfterApplying);
    let rig = Rig::with(stage, &guarded());
    rig.cluster.faults().add(watches(FaultAction::WatchDelay(Duration::from_hours(1))));
    rig.external("queue", "70");
    rig.pass(16.0).await;
    assert_eq!(rig.count("update", "/web/status"), 2, "the next sync tells of its own");
    assert_eq!(answered(&rig, "update", "/web/status", 409), 0);
    assert_eq!(rig.hpa("web")["status"]["desiredReplicas"], 7);
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_watch_event_is_lost_is_found_by_the_conflict_that_it_causes() {
    let rig = Rig::with(stage(), &guarded());
    rig.until("it is at rest", 5.0, |stage| stage.hpa("web")["status"]["desiredReplicas"] == 5).await;
    rig.pass(16.0).await;
    rig.cluster.faults().add(watches(FaultAction::WatchDrop).times(1));
    rig.edit("web", |hpa| hpa["spec"]["maxReplicas"] = 6.into());
    rig.external("queue", "90");
    rig.until("the next sync but one knows", 16.0, |stage| stage.replicas("web") == 6).await;
    assert_eq!(answered(&rig, "update", "/web/status", 409), 1);
    rig.pass(120.0).await;
    assert_eq!(rig.replicas("web"), 6);
    assert_eq!(answered(&rig, "update", "/web/status", 409), 1);
    let looks = rig.count("list", "/namespaces/shop/horizontalpodautoscalers");
    assert_eq!(looks, 1, "one conflict, one look");
}

#[tokio::test(start_paused = true)]
async fn an_hpa_whose_deletion_was_not_seen_is_left_alone() {
    let rig = Rig::with(stage(), &guarded());
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
async fn an_event_whose_answer_was_lost_is_one_event() {
    for lost in
        [FaultAction::CloseAfterApplying, FaultAction::Truncate(20), FaultAction::SilenceAfterApplying]
    {
        let stage = stage();
        stage
            .cluster
            .faults()
            .add(FaultRule::new(lost.clone()).verb("create").path_suffix("/events").times(1));
        let rig = Rig::start(stage);
        rig.until("it is sent again", 60.0, |stage| stage.count("create", "/events") == 2).await;
        rig.pass(1.0).await;
        assert_eq!(rig.events("web").len(), 1, "{lost:?}");
        let event = &rig.cluster.list("events", None)[0];
        assert_eq!(event["count"], 1, "{lost:?}");
    }
}
