//! Takeover from another controller of the same HPAs. The other controller is a second Concertina that uses the name of
//! the built-in controller. The tests start and stop it.

use std::time::Duration;

use fake_cluster::{FaultAction, FaultRule, LoggedRequest, Status};
use flags::Config;
use flags::config::TakeOver;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::handover::rig::{BuiltIn, OTHER};
use crate::handover::{NAMES, stage};
use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Process, logs};

const PERIOD: f64 = 15.0;

fn ours(stage: &Fixture) -> Process {
    Process::start(stage, "ours", Config::default())
}

/// Three HPAs, and a process that acts after `seconds` of changing metrics.
async fn acting_after(seconds: u32) -> (Fixture, Process) {
    let stage = stage(&NAMES);
    let process = ours(&stage);
    move_for(&stage, seconds).await;
    assert_eq!(state(&process), "acting");
    (stage, process)
}

/// Advances the time while the metrics change every five seconds.
async fn move_for(stage: &Fixture, seconds: u32) {
    for step in 0..seconds / 5 {
        for (offset, name) in (0..).zip(NAMES) {
            stage.external(name, &(21 + (step * 17 + offset * 11) % 60).to_string());
        }
        stage.pass(5.0).await;
    }
}

fn is_write(request: &LoggedRequest) -> bool {
    !matches!(request.verb, "get" | "list" | "watch")
}

/// Times of the Scale and status writes of the client with `user_agent`.
fn writes(stage: &Fixture, user_agent: &str) -> Vec<Duration> {
    stage.times(|request| {
        let is_autoscaling = request.path.ends_with("/scale") || request.path.ends_with("/status");
        is_write(request) && is_autoscaling && request.user_agent.starts_with(user_agent)
    })
}

fn our_writes(stage: &Fixture) -> Vec<Duration> {
    writes(stage, "concertina")
}

#[track_caller]
fn none(writes: &[Duration]) {
    assert!(writes.is_empty(), "{writes:?}");
}

fn last_foreign_write(stage: &Fixture) -> Duration {
    *writes(stage, OTHER).last().unwrap()
}

fn state(process: &Process) -> String {
    let text = process.telemetry.render();
    let line =
        text.lines().find(|line| line.starts_with("concertina_takeover_state") && line.ends_with(" 1"));
    line.unwrap_or_default().split('"').nth(1).unwrap_or_default().to_owned()
}

fn notices(stage: &Fixture) -> usize {
    let events = stage.cluster.list("events", None);
    events.iter().filter(|event| event["reason"] == "AnotherController").count()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_another_controller_is_active() {
    let stage = stage(&NAMES);
    let other = BuiltIn::behind(&stage, None);
    stage.pass(20.0).await;
    let process = ours(&stage);
    move_for(&stage, 3500).await;
    none(&our_writes(&stage));
    assert_eq!(state(&process), "holding");
    assert_eq!(notices(&stage), 1);
    assert!(writes(&stage, OTHER).len() > 300);
    let warned = logs::with("another controller writes statuses of HPAs");
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("manager=\"kube-controller-manager\"") && warned[0].contains("hpa=shop/"));
    // Decisions are still computed.
    let computed = "horizontal_pod_autoscaler_controller_reconciliations_total";
    assert!(process.telemetry.render().contains(computed));
    let counted = process.telemetry.render();
    assert!(!counted.contains("concertina_foreign_writes_total 0\n"), "{counted}");
    drop(other);
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn writes_start_two_periods_after_the_last_foreign_write() {
    for offset in 0..8_u32 {
        let stage = stage(&NAMES);
        let other = BuiltIn::behind(&stage, None);
        stage.pass(20.0).await;
        let process = ours(&stage);
        move_for(&stage, 100 + offset * 5).await;
        drop(other);
        move_for(&stage, 60).await;
        let (last, first) = (last_foreign_write(&stage), our_writes(&stage)[0]);
        let waited = first.checked_sub(last).unwrap().as_secs_f64();
        assert!((2.0 * PERIOD..2.0 * PERIOD + 1.0).contains(&waited), "{waited}");
        assert_eq!(state(&process), "acting");
        process.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn writes_stop_within_a_second_when_the_other_controller_restarts() {
    let (stage, process) = acting_after(200).await;
    let restarted = stage.now();
    let other = BuiltIn::behind(&stage, None);
    move_for(&stage, 300).await;
    assert_eq!(state(&process), "holding");
    let first = *writes(&stage, OTHER).iter().find(|at| **at >= restarted).unwrap();
    let ours_after: Vec<_> =
        our_writes(&stage).into_iter().filter(|at| *at > first + Duration::from_millis(10)).collect();
    none(&ours_after);
    // The other controller stops again.
    drop(other);
    move_for(&stage, 60).await;
    assert_eq!(state(&process), "acting");
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn first_change_in_a_steady_cluster_is_left_to_the_other_controller() {
    let stage = stage(&NAMES);
    let other = BuiltIn::behind(&stage, None);
    stage.pass(60.0).await;
    let process = ours(&stage);
    for quiet in [31.0, 100.0, 600.0] {
        stage.pass(quiet).await;
        assert_eq!((our_writes(&stage), state(&process).as_str()), (vec![], "observing"));
        stage.external("b", &format!("{}", 30.0 + quiet / 10.0));
        stage.pass(16.0).await;
        assert_eq!((our_writes(&stage), state(&process).as_str()), (vec![], "holding"));
    }
    // The other controller stops while nothing changes. The next unhandled change proves the stop.
    stage.pass(60.0).await;
    drop(other);
    stage.pass(200.0).await;
    none(&our_writes(&stage));
    stage.external("c", "80");
    let waited = stage.until("the process acts", 50.0, |stage| stage.replicas("c") == 8).await;
    assert!(waited >= Duration::from_secs(30), "{waited:?}");
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn unmanaged_hpas_are_scaled_after_two_periods() {
    let stage = stage(&NAMES);
    stage.external("a", "80");
    let process = ours(&stage);
    let waited = stage.until("the process acts", 40.0, |stage| stage.replicas("a") == 8).await;
    assert!((30..32).contains(&waited.as_secs()), "{waited:?}");
    // The events report the written rescale and no rescale that was withheld before.
    stage.pass(1.0).await;
    let events = stage.events("a");
    assert_eq!(events, ["SuccessfulRescale New size: 8; reason: external metric a(nil) above target"]);
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn successor_of_an_acting_replica_writes_at_once() {
    let (stage, first) = acting_after(100).await;
    // First a standby takes over, then a new process.
    let standby = Process::start(&stage, "standby", Config::default());
    move_for(&stage, 10).await;
    stage.external("a", "90");
    let before = our_writes(&stage).len();
    first.end().await;
    stage.until("the standby writes", 2.0, |stage| our_writes(stage).len() > before).await;
    stage.external("a", "80");
    let before = our_writes(&stage).len();
    standby.end().await;
    let new = ours(&stage);
    stage.until("the new process writes", 2.0, |stage| our_writes(stage).len() > before).await;
    new.end().await;
}

#[tokio::test(start_paused = true)]
async fn successor_after_a_long_gap_observes_first() {
    let (stage, first) = acting_after(100).await;
    first.end().await;
    stage.pass(200.0).await;
    let before = our_writes(&stage).len();
    stage.external("a", "90");
    let new = ours(&stage);
    stage.pass(20.0).await;
    assert_eq!((our_writes(&stage).len(), state(&new).as_str()), (before, "observing"));
    new.end().await;
}

#[tokio::test(start_paused = true)]
async fn successor_of_a_holding_replica_reports_the_other_controller_too() {
    let stage = stage(&NAMES);
    let _other = BuiltIn::behind(&stage, None);
    stage.pass(20.0).await;
    let first = ours(&stage);
    let standby = Process::start(&stage, "standby", Config::default());
    move_for(&stage, 60).await;
    assert_eq!(notices(&stage), 1);
    first.end().await;
    move_for(&stage, 60).await;
    assert_eq!(notices(&stage), 2);
    standby.end().await;
}

#[tokio::test(start_paused = true)]
async fn count_that_another_controller_failed_to_write_is_a_proof() {
    let stage = stage(&NAMES);
    let other = BuiltIn::behind(&stage, None);
    stage.pass(20.0).await;
    let process = ours(&stage);
    let refused = FaultAction::Status(Status::new(403, "Forbidden", "not permitted"));
    let rule = FaultRule::new(refused).verb("update").path_suffix("/a/scale").user_agent(OTHER);
    stage.cluster.faults().add(rule);
    // The other controller writes the metric to the status, but fails to write the count.
    stage.external("a", "80");
    stage.pass(40.0).await;
    assert_eq!(stage.hpa("a")["status"]["currentMetrics"][0]["external"]["current"]["averageValue"], "20");
    drop(other);
    stage.pass(200.0).await;
    none(&our_writes(&stage));
    stage.until("the process acts", 120.0, |stage| stage.replicas("a") == 8).await;
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn hpa_restored_from_a_backup_is_no_foreign_write() {
    let (stage, process) = acting_after(100).await;
    stage.target("restored", 4);
    stage.external("restored", "40");
    let mut restored = hpa("restored", &[external("restored", "10")]);
    restored["metadata"]["creationTimestamp"] = json!(stage.cluster.now().to_string());
    restored["status"] = json!({"currentReplicas": 4, "desiredReplicas": 4});
    let written = stage.cluster.now() - SignedDuration::from_mins(1);
    restored["metadata"]["managedFields"] = json!([{
        "manager": OTHER, "operation": "Update", "subresource": "status", "time": written.to_string(),
        "apiVersion": "autoscaling/v2", "fieldsType": "FieldsV1", "fieldsV1": {},
    }]);
    stage.cluster.put_raw(restored);
    stage.pass(5.0).await;
    assert_eq!(state(&process), "acting");
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn successor_of_a_holding_replica_holds() {
    let stage = stage(&NAMES);
    let _other = BuiltIn::behind(&stage, None);
    stage.pass(20.0).await;
    let first = ours(&stage);
    move_for(&stage, 50).await;
    // After the wait, the last foreign write is too long ago to count.
    stage.pass(120.0).await;
    first.end().await;
    let new = ours(&stage);
    stage.pass(200.0).await;
    move_for(&stage, 200).await;
    none(&our_writes(&stage));
    new.end().await;
}

#[tokio::test(start_paused = true)]
async fn rescales_of_the_other_controller_count_against_the_policies() {
    let stage = Fixture::new();
    stage.target("web", 4);
    stage.external("web", "40");
    let mut object = hpa("web", &[external("web", "10")]);
    let policy = json!([{"type": "Pods", "value": 2, "periodSeconds": 300}]);
    object["spec"]["behavior"] = json!({"scaleUp": {"policies": policy}});
    stage.create(object);
    let other = BuiltIn::behind(&stage, None);
    stage.pass(20.0).await;
    let process = ours(&stage);
    stage.pass(60.0).await;
    stage.external("web", "90");
    stage.until("the other controller scales", 16.0, |stage| stage.replicas("web") == 6).await;
    let scaled = stage.now();
    drop(other);
    for step in 0..20 {
        stage.external("web", &(91 + step % 2).to_string());
        stage.pass(5.0).await;
    }
    assert_eq!(state(&process), "acting");
    assert_eq!(stage.replicas("web"), 6);
    stage.until("the policy allows more", 260.0, |stage| stage.replicas("web") == 8).await;
    let waited = stage.now().checked_sub(scaled).unwrap();
    assert!((300..=316).contains(&waited.as_secs()), "{waited:?}");
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn takeover_warn_writes_and_reports_the_other_controller() {
    let stage = stage(&NAMES);
    let _other = BuiltIn::behind(&stage, None);
    stage.pass(20.0).await;
    let process = Process::start(&stage, "ours", Config { takeover: TakeOver::Warn, ..Config::default() });
    move_for(&stage, 100).await;
    assert!(!our_writes(&stage).is_empty());
    assert_eq!((state(&process).as_str(), notices(&stage)), ("acting", 1));
    assert_eq!(logs::with("both controllers act (--takeover=warn)").len(), 1);
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn client_that_keeps_undoing_a_count_is_logged() {
    let stage = stage(&NAMES);
    let process = ours(&stage);
    move_for(&stage, 100).await;
    let reads = || {
        let is_read = |request: &LoggedRequest| request.query.contains("fieldSelector=metadata.name%3Da");
        stage.cluster.requests().count(is_read)
    };
    let before = reads();
    stage.external("a", "80");
    stage.until("the target scales", 20.0, |stage| stage.replicas("a") == 8).await;
    for _ in 0..4 {
        stage.target("a", 4);
        stage.until("the target scales again", 20.0, |stage| stage.replicas("a") == 8).await;
    }
    assert_eq!(state(&process), "acting");
    assert_eq!(logs::with("another client repeatedly reverts the replica count").len(), 1);
    assert_eq!(reads(), before + 1, "the writers of the HPA are checked");
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn conflicting_status_write_triggers_reads_of_the_hpa() {
    let stage = stage(&NAMES);
    let process = ours(&stage);
    move_for(&stage, 100).await;
    let reads = |stage: &Fixture| {
        let is_read = |request: &LoggedRequest| request.query.contains("fieldSelector=metadata.name%3Da");
        stage.cluster.requests().count(is_read)
    };
    let before = reads(&stage);
    let conflict = Status::new(409, "Conflict", "the object has been modified");
    let fault = FaultRule::new(FaultAction::Status(conflict));
    stage.cluster.faults().add(fault.verb("update").path_suffix("/a/status").times(1));
    move_for(&stage, 30).await;
    // The takeover check reads the managers of the HPA, and the sync reads the change that the watch has not
    // delivered.
    assert_eq!(reads(&stage), before + 2);
    assert_eq!(state(&process), "acting");
    process.end().await;
}

/// Adds an entry for a foreign status write to an HPA. Every client with permission to update the HPA can do so.
/// `previous` replaces the existing entries.
fn forge(stage: &Fixture, name: &str, time: &str, previous: Option<Value>) {
    let mut hpa = stage.hpa(name);
    let entries = &mut hpa["metadata"]["managedFields"];
    if let Some(previous) = previous {
        *entries = previous;
    }
    entries.as_array_mut().unwrap().push(json!({
        "manager": "another", "operation": "Update", "subresource": "status", "time": time,
        "apiVersion": "autoscaling/v2", "fieldsType": "FieldsV1", "fieldsV1": {},
    }));
    stage.cluster.put_raw(hpa);
}

#[tokio::test(start_paused = true)]
async fn forged_entry_merged_with_our_write_does_not_stop_writes() {
    for restores_our_entry in [false, true] {
        let (stage, process) = acting_after(100).await;
        // The watch misses our write and the forged entry, and the resourceVersion of the watch expires.
        let of_hpas = |action| FaultRule::new(action).path_suffix("/horizontalpodautoscalers");
        let silence = stage.cluster.faults().add(of_hpas(FaultAction::WatchSilence));
        let entries = stage.hpa("a")["metadata"]["managedFields"].clone();
        stage.external("a", "90");
        stage.until("our write", 16.0, |stage| stage.hpa("a")["status"]["desiredReplicas"] == 9).await;
        let time = stage.cluster.now().to_string();
        forge(&stage, "a", &time, restores_our_entry.then_some(entries));
        stage.cluster.compact();
        let expired = Status::expired("too old resource version: 1 (2)");
        stage.cluster.faults().add(of_hpas(FaultAction::WatchError(expired)).times(1));
        stage.cluster.faults().remove(silence);
        stage.pass(5.0).await;
        assert_eq!(state(&process), "acting", "our entry restored: {restores_our_entry}");
        let counted = process.telemetry.render();
        assert!(counted.contains("concertina_foreign_writes_total 0\n"), "{counted}");
        stage.external("a", "100");
        stage.until("the process writes", 16.0, |stage| stage.replicas("a") == 10).await;
        process.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn forged_entry_of_a_distant_future_does_not_delay_a_handover() {
    let (stage, first) = acting_after(100).await;
    forge(&stage, "b", "9999-01-01T00:00:00Z", None);
    stage.pass(1.0).await;
    let standby = Process::start(&stage, "standby", Config::default());
    move_for(&stage, 10).await;
    stage.external("a", "90");
    let before = our_writes(&stage).len();
    first.end().await;
    stage.until("the standby writes", 2.0, |stage| our_writes(stage).len() > before).await;
    assert_eq!(state(&standby), "acting");
    standby.end().await;
}
