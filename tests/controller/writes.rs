//! Conflicts of writes, fields that a status write must not change, and the guard against decisions about a stale HPA.

use std::time::Duration;

use controller::options::Options;
use fake_cluster::{FaultAction, FaultRule, Status};
use flags::Config;
use serde_json::{Value, json};

use crate::support::objects::{external, hpa, pod};
use crate::support::{Fixture, HPAS, Harness, logs};

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

/// Metadata of an HPA without the fields that a status write changes.
fn user_metadata(hpa: &Value) -> Value {
    let mut meta = hpa["metadata"].clone();
    let fields = meta.as_object_mut().unwrap();
    fields.remove("resourceVersion");
    fields.remove("managedFields");
    meta
}

#[tokio::test(start_paused = true)]
async fn metadata_and_spec_are_unchanged_after_a_hundred_status_writes() {
    let stage = Fixture::new();
    stage.target("web", 2);
    let mut object = hpa("web", &[external("queue", "10")]);
    object["metadata"]["labels"] = json!({"team": "shop", "tier": ""});
    object["metadata"]["annotations"] =
        json!({"note": "\u{e4} \"quoted\" \\ \u{1f697}\n", "autoscaling.alpha.kubernetes.io/x": "{}"});
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "u-1", "controller": true,
    }]);
    stage.create(object);
    // Add fields of a newer API server.
    let mut stored = stage.hpa("web");
    stored["spec"]["futureField"] = json!({"deep": [1, 2.50, null]});
    stored["metadata"]["futureField"] = json!("kept");
    stage.cluster.put_raw(stored);
    let before = stage.cluster.get(HPAS, "shop", "web").unwrap();

    let rig = Harness::with(
        stage,
        &Config::from(Options { sync_period: Duration::from_secs(1), ..Options::default() }),
    );
    for round in 0..210 {
        rig.external("queue", if round % 2 == 0 { "20" } else { "21" });
        rig.pass(1.0).await;
    }
    let writes = rig.count("update", "/web/status");
    assert!(writes > 100, "{writes}");
    let after = rig.hpa("web");
    assert_eq!(user_metadata(&after), user_metadata(&before));
    assert_eq!(after["spec"], before["spec"]);
}

const SKIPS: &str = "horizontal_pod_autoscaler_controller_stale_sync_skips_total\
                     {group=\"autoscaling\",resource=\"horizontalpodautoscalers\"}";

/// A controller after the first status write of its one HPA. Its watch of HPAs is 20 s behind.
async fn lagging(config: &Config) -> Harness {
    let stage = Fixture::new();
    stage.target("web", 2);
    stage.external("queue", "20");
    stage.create(hpa("web", &[external("queue", "10")]));
    let delay = FaultAction::WatchDelay(Duration::from_secs(20));
    stage.cluster.faults().add(FaultRule::new(delay).path_suffix("/horizontalpodautoscalers"));
    let rig = Harness::with(stage, config);
    rig.until("the status is written", 1.0, |stage| stage.count("update", "/status") == 1).await;
    rig
}

#[tokio::test(start_paused = true)]
async fn sync_of_a_stale_hpa_is_skipped_and_retried_a_period_later() {
    let rig = lagging(&Config::default()).await;
    rig.pass(14.0).await;
    assert_eq!((rig.syncs("web").len(), rig.series(SKIPS)), (1, 0.0));
    rig.pass(5.0).await;
    assert_eq!((rig.syncs("web").len(), rig.series(SKIPS)), (1, 1.0));
    rig.pass(10.0).await;
    assert_eq!((rig.syncs("web").len(), rig.series(SKIPS)), (1, 1.0));
    rig.pass(3.0).await;
    assert_eq!((rig.syncs("web").len(), rig.series(SKIPS)), (2, 1.0));
}

#[tokio::test(start_paused = true)]
async fn hpa_is_synced_although_the_watch_never_delivers_its_last_status() {
    let stage = Fixture::new();
    stage.target("web", 2);
    stage.target("other", 2);
    stage.external("queue", "20");
    stage.create(hpa("web", &[external("queue", "10")]));
    stage.create(hpa("other", &[external("queue", "10")]));
    let rig = Harness::start(stage);
    rig.pass(20.0).await;
    let lost = FaultRule::new(FaultAction::WatchDrop).path_suffix("/horizontalpodautoscalers");
    rig.cluster.faults().add(lost);
    rig.external("queue", "30");
    rig.until("the status is written", 16.0, |stage| stage.replicas("web") == 3).await;
    rig.pass(1.0).await;
    rig.cluster.faults().clear();
    rig.external("queue", "40");
    // The watch stays active, because other objects change.
    for _ in 0..50 {
        rig.pass(1.0).await;
        rig.edit("other", |hpa| hpa["spec"]["maxReplicas"] = (50 + rig.now().as_secs()).into());
    }
    assert_eq!(rig.replicas("web"), 4);
}

#[tokio::test(start_paused = true)]
async fn stale_hpa_is_synced_without_the_guard() {
    let rig = lagging(&Config::from(Options { stale_consistency: false, ..Options::default() })).await;
    rig.pass(31.0).await;
    assert_eq!((rig.syncs("web").len(), rig.series(SKIPS)), (3, 0.0));
}

#[tokio::test(start_paused = true)]
async fn hpa_is_synced_after_a_restore_of_etcd() {
    check_restore(100.0).await;
}

#[tokio::test(start_paused = true)]
async fn hpa_is_synced_after_a_restore_before_the_first_bookmark() {
    // The backup is newer than the second status write, and the restore precedes the first bookmark.
    check_restore(20.0).await;
}

/// Restores etcd to its state `backup_at` seconds after the start. At least 1000 resourceVersions are lost.
async fn check_restore(backup_at: f64) {
    let stage = Fixture::new();
    stage.target("web", 2);
    stage.external("queue", "20");
    stage.create(hpa("web", &[external("queue", "10")]));
    let rig = Harness::start(stage);
    rig.pass(backup_at).await;
    let backup = rig.cluster.resource_version();
    for _ in 0..1000 {
        rig.cluster.put_raw(pod("other", 0));
    }
    rig.external("queue", "40");
    rig.pass(20.0).await;
    assert_eq!(rig.replicas("web"), 4);
    rig.cluster.restore(backup);
    // The watches resume at resourceVersions that the server has lost, and stay silent. Two silent watches in a row
    // cause a list. Before the first bookmark, one silent watch is enough.
    rig.pass(200.0).await;
    rig.external("queue", "60");
    rig.until("the target grows", 15.1, |stage| stage.replicas("web") == 6).await;
    rig.pass(15.0).await;
    assert_eq!(rig.hpa("web")["status"]["currentReplicas"], 6);
    assert!(rig.cluster.resource_version() < backup + 1000, "the versions have not caught up");
    assert_eq!(rig.series(SKIPS), 0.0);
    let logged = logs::with("the API server has lost the last status write");
    assert_eq!(logged.len(), 1, "{logged:?}");
}
