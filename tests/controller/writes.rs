//! Conflicts of writes.

use fake_cluster::{FaultAction, FaultRule, Status};

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

const CHANGED: &str = "Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; \
                       please apply your changes to the latest version and try again";

/// An HPA with a demand of 5 replicas. The first `times` PUTs of `subresource` fail with a conflict.
fn conflicts(subresource: &str, times: u64) -> Fixture {
    let stage = Fixture::new();
    stage.target("web", 3);
    stage.external("queue", "50");
    stage.create(hpa("web", &[external("queue", "10")]));
    let conflict = FaultAction::Status(Status::new(409, "Conflict", CHANGED));
    stage.cluster.faults().add(FaultRule::new(conflict).verb("update").subresource(subresource).times(times));
    stage
}

#[tokio::test(start_paused = true)]
async fn scale_is_written_within_five_attempts() {
    let rig = Harness::start(conflicts("scale", 4));
    rig.until("the count is written", 1.0, |stage| stage.replicas("web") == 5).await;
    assert_eq!(rig.count("update", "/web/scale"), 5);
    rig.pass(1.0).await;
    assert_eq!(
        rig.events("web"),
        ["SuccessfulRescale New size: 5; reason: external metric queue(nil) above target"]
    );
}

#[tokio::test(start_paused = true)]
async fn rescale_fails_after_five_conflicts_and_retries_next_period() {
    let rig = Harness::start(conflicts("scale", 5));
    rig.pass(5.0).await;
    assert_eq!(rig.count("update", "/web/scale"), 5);
    assert_eq!(rig.replicas("web"), 3);
    assert_eq!(
        rig.condition("web", "AbleToScale"),
        format!(
            "False FailedUpdateScale the HPA controller was unable to update the target scale: {CHANGED}"
        )
    );
    let reason = "external metric queue(nil) above target";
    assert_eq!(rig.events("web"), [format!("FailedRescale New size: 5; reason: {reason}; error: {CHANGED}")]);
    assert_eq!(rig.reconciliations("none", "internal"), 1.0);
    rig.until("the next period succeeds", 11.0, |stage| stage.replicas("web") == 5).await;
}

#[tokio::test(start_paused = true)]
async fn concurrently_changed_scale_is_read_again_before_the_write() {
    let stage = Fixture::new();
    stage.external("queue", "50");
    stage.create(crate::support::objects::deployment("web", 3));
    let mut deployment = stage.cluster.get("apps/deployments", "shop", "web").unwrap();
    deployment["status"]["replicas"] = 3.into();
    stage.cluster.update_status(deployment).unwrap();
    stage.create(hpa("web", &[external("queue", "10")]));
    let slow = FaultAction::Delay(std::time::Duration::from_secs(1));
    stage.cluster.faults().add(FaultRule::new(slow).verb("update").subresource("scale").times(1));
    let rig = Harness::start(stage);
    rig.pass(0.5).await;
    let mut changed = rig.cluster.get("apps/deployments", "shop", "web").unwrap();
    changed["metadata"]["annotations"] = serde_json::json!({"touched": "yes"});
    rig.cluster.update(changed).unwrap();
    rig.pass(1.0).await;
    let after = rig.cluster.get("apps/deployments", "shop", "web").unwrap();
    assert_eq!(
        (&after["spec"]["replicas"], &after["metadata"]["annotations"]["touched"]),
        (&5.into(), &"yes".into())
    );
    assert_eq!(rig.count("update", "/web/scale"), 2);
}

#[tokio::test(start_paused = true)]
async fn conflicting_status_write_is_retried_in_the_next_period() {
    let rig = Harness::start(conflicts("status", 1));
    rig.pass(5.0).await;
    assert_eq!(rig.replicas("web"), 5);
    assert_eq!(rig.count("update", "/web/status"), 1);
    assert!(rig.events("web").contains(&format!("FailedUpdateStatus {CHANGED}")), "{:?}", rig.events("web"));
    rig.until("the status is written", 11.0, |stage| stage.hpa("web")["status"]["currentReplicas"] == 5)
        .await;
}

#[tokio::test(start_paused = true)]
async fn conflicts_cost_one_status_and_five_scale_writes_a_period() {
    let stage = conflicts("scale", u64::MAX);
    let conflict = FaultAction::Status(Status::new(409, "Conflict", CHANGED));
    stage.cluster.faults().add(FaultRule::new(conflict).verb("update").subresource("status"));
    let rig = Harness::start(stage);
    rig.pass(151.0).await;
    assert_eq!(rig.syncs("web").len(), 11 * 5);
    assert_eq!(rig.count("update", "/web/scale"), 11 * 5);
    assert_eq!(rig.count("update", "/web/status"), 11);
    rig.cluster.faults().clear();
    rig.until("the target scales", 15.1, |stage| stage.replicas("web") == 5).await;
}
