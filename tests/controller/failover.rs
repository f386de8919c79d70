//! What a change of the leader loses of the histories, with the checkpoint of the defaults: a planned handover, a crash
//! of the leader, a restart of all replicas, and a lost ConfigMap.

use std::sync::Arc;
use std::time::Duration;

use autoscaling::Plan;
use autoscaling::history::History;
use engine::reconcile::{ConcludedSync, Observer};
use fake_cluster::{FaultAction, FaultRule, Status};
use journal::history::checkpoint::{Entry, Shard};
use journal::history::codec;
use parking_lot::Mutex;
use serde_json::json;

use crate::checkpoint::{checkpointed, create_maps, plain};
use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Process};

/// Period of the rate policies and length of the scale-down window, in seconds.
const PERIOD: f64 = 300.0;
/// The sync period, and the interval of the checkpoint, in seconds.
const SYNC: f64 = 15.0;
/// The time limit of a planned handover, in seconds.
const HANDOVER: f64 = 2.0;
/// The time until a standby acts after a crash: the Lease expires, and the standby tries every 2 s.
const FAILOVER: f64 = 17.0;

/// One HPA with windows and rate policies in both directions: two pods up in five minutes, one pod down.
fn stage() -> Fixture {
    let stage = Fixture::new();
    stage.target("web", 4);
    stage.external("queue", "40");
    let mut web = hpa("web", &[external("queue", "10")]);
    web["spec"]["behavior"] = json!({
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 2, "periodSeconds": 300}],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 300,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
        },
    });
    stage.create(web);
    create_maps(&stage);
    stage
}

/// Starts a process without takeover checks, so that only the checkpoint carries state to the next replica.
fn start(stage: &Fixture, identity: &str) -> Process {
    Process::start(stage, identity, checkpointed())
}

/// The way in which the first leader stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaderExit {
    Never,
    /// SIGTERM, and a standby takes over.
    InOrder,
    /// The leader loses its network, and a standby takes over.
    CutOff,
    /// SIGTERM to the only replica, which starts again.
    Restart,
    /// The same, and the ConfigMaps are deleted before the next start.
    LostMaps,
}

/// Runs two replicas while the load rises and falls. The leader stops at `at` seconds, if at all. Returns the counts of
/// the target with the time of each change.
async fn counts_over_time(end: LeaderExit, at: f64) -> Vec<(i64, f64)> {
    let stage = stage();
    let mut leader = Some(start(&stage, "a"));
    stage.until("a leads", 5.0, |stage| stage.hpa("web")["status"]["desiredReplicas"] == 4).await;
    let standby = start(&stage, "b");
    let mut counts = vec![(4, 0.0)];
    let mut ended = None;
    while stage.now() < Duration::from_mins(40) {
        let now = stage.now().as_secs_f64();
        stage.external("queue", if (60.0..800.0).contains(&now) { "90" } else { "20" });
        if now >= at
            && end != LeaderExit::Never
            && let Some(leader) = leader.take()
        {
            ended = Some(tokio::spawn(async move {
                if end == LeaderExit::InOrder {
                    assert!(leader.end().await <= Duration::from_secs(2));
                } else {
                    leader.cut_off();
                    leader.wait_for_failure().await;
                }
            }));
        }
        let count = stage.replicas("web");
        if counts.last().is_none_or(|(last, _)| *last != count) {
            counts.push((count, now));
        }
        stage.pass(1.0).await;
    }
    if let Some(ended) = ended {
        ended.await.unwrap();
    }
    for process in leader.into_iter().chain([standby]) {
        process.end().await;
    }
    counts
}

/// Checks that the pods added and removed within any five minutes do not exceed the policies.
fn check_rates(counts: &[(i64, f64)]) -> Result<(), String> {
    let steps: Vec<_> = counts.windows(2).map(|pair| (pair[1].0 - pair[0].0, pair[1].1)).collect();
    for (_, from) in &steps {
        let within = steps.iter().filter(|(_, at)| at >= from && *at < from + PERIOD - 1.0);
        let (mut up, mut down) = (0, 0);
        for (step, _) in within {
            up += (*step).max(0);
            down += (-*step).max(0);
        }
        if up > 2 || down > 1 {
            return Err(format!("{up} up and {down} down within five minutes from {from}: {counts:?}"));
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn next_leader_decides_as_if_no_handover_had_happened() {
    let undisturbed = counts_over_time(LeaderExit::Never, 0.0).await;
    check_rates(&undisturbed).unwrap();
    let values = |counts: &[(i64, f64)]| counts.iter().map(|(count, _)| *count).collect::<Vec<_>>();
    assert_eq!(values(&undisturbed), [4, 6, 8, 9, 8, 7, 6, 5, 4]);
    // The leader stops while the HPA waits for its rate policy, while it waits for its window, and between two steps
    // down.
    for at in [90.0, 810.0, 1250.0] {
        for (end, gap) in [(LeaderExit::InOrder, HANDOVER), (LeaderExit::CutOff, FAILOVER)] {
            let disturbed = counts_over_time(end, at).await;
            check_rates(&disturbed).unwrap();
            assert_eq!(values(&disturbed), values(&undisturbed), "{end:?} at {at}: {disturbed:?}");
            for ((_, one), (_, other)) in undisturbed.iter().zip(&disturbed) {
                assert!(
                    (one - other).abs() <= SYNC + gap + 1.0,
                    "{end:?} at {at}: {undisturbed:?}, {disturbed:?}"
                );
            }
        }
    }
}

/// Runs a high load until the leader stops after `seconds`, and a low load from then on. Returns the time from the end
/// of the window after the last high recommendation until the first pod is removed, in seconds. It is negative if the
/// pod is removed too early. `is_written` is false if the API server refuses every write of the checkpoint.
async fn scale_down_after_the_window(end: LeaderExit, seconds: f64, is_written: bool) -> f64 {
    let stage = stage();
    if !is_written {
        let refuses = FaultAction::Status(Status::new(403, "Forbidden", "no such right"));
        stage.cluster.faults().add(FaultRule::new(refuses).verb("update").path_contains("/configmaps"));
    }
    let leader = start(&stage, "a");
    stage.until("a leads", 5.0, |stage| stage.hpa("web")["status"]["desiredReplicas"] == 4).await;
    let has_standby = matches!(end, LeaderExit::InOrder | LeaderExit::CutOff);
    let standby = has_standby.then(|| start(&stage, "b"));
    stage.pass(seconds).await;
    let last_high = stage.syncs("web").last().unwrap().as_secs_f64();
    stage.external("queue", "20");
    let failing = if end == LeaderExit::CutOff {
        leader.cut_off();
        Some(tokio::spawn(leader.wait_for_failure()))
    } else {
        assert!(leader.end().await <= Duration::from_secs(2));
        None
    };
    if end == LeaderExit::LostMaps {
        for name in journal::history::checkpoint::CheckpointPlace::default().names() {
            stage.cluster.delete("configmaps", "kube-system", &name).unwrap();
        }
    }
    let next = standby.unwrap_or_else(|| start(&stage, "b"));
    stage.until("a pod is removed", 2.0 * PERIOD, |stage| stage.replicas("web") < 4).await;
    let removed = stage.now().as_secs_f64();
    next.end().await;
    if let Some(failing) = failing {
        failing.await.unwrap();
    }
    removed - (last_high + PERIOD)
}

/// The least and the greatest result of [`scale_down_after_the_window`], for stops at several times of a period.
async fn over_a_period(end: LeaderExit, is_written: bool) -> (f64, f64) {
    let mut range = (f64::MAX, f64::MIN);
    for second in (60..76_u32).step_by(3) {
        let after = scale_down_after_the_window(end, f64::from(second), is_written).await;
        range = (range.0.min(after), range.1.max(after));
    }
    eprintln!("{end:?}: the first pod is removed {:.1} s to {:.1} s after its window", range.0, range.1);
    range
}

#[tokio::test(start_paused = true)]
async fn planned_handover_and_restart_remove_no_pod_before_the_end_of_its_window() {
    for end in [LeaderExit::InOrder, LeaderExit::Restart] {
        let (least, most) = over_a_period(end, true).await;
        assert!(least >= 0.0 && most <= SYNC + HANDOVER, "{end:?}: {least} to {most}");
    }
}

#[tokio::test(start_paused = true)]
async fn crash_loses_the_recommendations_since_the_last_checkpoint() {
    let (least, most) = over_a_period(LeaderExit::CutOff, true).await;
    assert!((-2.0 * SYNC..0.0).contains(&least), "at most two recommendations are lost: {least}");
    assert!(most <= SYNC + HANDOVER, "{most}");
}

#[tokio::test(start_paused = true)]
async fn without_its_config_maps_a_restart_starts_the_window_again() {
    let (least, most) = over_a_period(LeaderExit::LostMaps, true).await;
    assert!(least >= 0.0 && most <= 2.0 * SYNC + HANDOVER, "{least} to {most}");
    // The same without the permission for the checkpoint.
    let (least, most) = over_a_period(LeaderExit::InOrder, false).await;
    assert!(least >= 0.0 && most <= 2.0 * SYNC + HANDOVER, "{least} to {most}");
}

/// Records the history of every sync, before its decision.
#[derive(Debug, Default)]
struct Histories(Mutex<Vec<History>>);

impl Observer for Histories {
    fn concluded(&self, _: &ConcludedSync<'_>) {}

    fn evaluated(&self, _: &ConcludedSync<'_>, _: &Plan, history: &History) {
        self.0.lock().push(history.clone());
    }
}

#[tokio::test(start_paused = true)]
async fn planned_handover_preserves_all_that_decides() {
    let stage = stage();
    let [before, after] = [(), ()].map(|()| Arc::new(Histories::default()));
    let leader = Process::start_observed(&stage, "a", checkpointed(), Arc::clone(&before) as _);
    stage.until("a leads", 5.0, |stage| stage.hpa("web")["status"]["desiredReplicas"] == 4).await;
    let standby = Process::start_observed(&stage, "b", checkpointed(), Arc::clone(&after) as _);
    stage.external("queue", "90");
    stage.until("a scales", 20.0, |stage| stage.replicas("web") == 6).await;
    stage.pass(40.0).await;
    let syncs = stage.syncs("web").len();
    leader.end().await;
    stage.until("b leads", HANDOVER, |stage| stage.syncs("web").len() > syncs).await;
    stage.pass(0.1).await;
    let (mut last, restored) = (before.0.lock().pop().unwrap(), after.0.lock()[0].clone());
    assert!(last.recommendations.len() > 3 && last.scale_ups.len() == 1, "{last:?}");
    // The newest recommendation comes from the last sync of the first leader.
    let newest = *restored.recommendations.last().unwrap();
    assert_eq!(newest.replicas, 9);
    last.recommendations.push(newest);
    assert_eq!(restored, last.condensed());
    standby.end().await;
}

/// Records the reason of the last forecast.
#[derive(Debug, Default)]
struct Forecasts(Mutex<String>);

impl Observer for Forecasts {
    fn concluded(&self, sync: &ConcludedSync<'_>) {
        let forecast = sync.policy.and_then(|policy| policy.forecast.as_ref());
        *self.0.lock() = forecast.map(|forecast| forecast.reason.to_string()).unwrap_or_default();
    }
}

#[tokio::test(start_paused = true)]
async fn next_leader_continues_the_history_of_a_forecast() {
    let stage = stage();
    stage.edit("web", |hpa| {
        let policy = "{forecast: {}, syncPeriodSeconds: 60}";
        hpa["metadata"]["annotations"] = json!({"concertina.dev/policy": policy});
    });
    // The checkpoint of an earlier leader, with six days.
    let uid = stage.hpa("web")["metadata"]["uid"].as_str().unwrap().to_owned();
    let history = codec::encode_forecast(&crate::forecasts::history(&uid));
    let shard = Shard {
        written: crate::forecasts::START.parse().unwrap(),
        ended: false,
        entries: vec![Entry { uid, history }],
    };
    let stored = k8s_openapi::ByteString(shard.encode());
    stage.cluster.put_raw(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "binaryData": {"histories": stored},
        "metadata": {"namespace": "kube-system", "name": "concertina-history-7"},
    }));
    let [first, second] = [(), ()].map(|()| Arc::new(Forecasts::default()));
    let leader = Process::start_observed(&stage, "a", checkpointed(), Arc::clone(&first) as _);
    stage.pass(130.0).await;
    let is_known = |reason: &str| !reason.is_empty() && !reason.contains("the history has 0.0 of");
    assert!(is_known(&first.0.lock()), "{}", first.0.lock());
    // The first leader writes it again within ten minutes.
    stage.cluster.delete("configmaps", "kube-system", "concertina-history-7").unwrap();
    stage.pass(600.0).await;
    leader.cut_off();
    let failing = tokio::spawn(leader.wait_for_failure());
    let next = Process::start_observed(&stage, "b", checkpointed(), Arc::clone(&second) as _);
    stage.pass(180.0).await;
    assert!(is_known(&second.0.lock()), "{}", second.0.lock());
    next.end().await;
    failing.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn rescale_after_the_last_checkpoint_still_counts_against_the_rate_policy() {
    for config in [checkpointed(), plain()] {
        let stage = stage();
        let leader = Process::start(&stage, "a", config.clone());
        stage.until("a leads", 5.0, |stage| stage.hpa("web")["status"]["desiredReplicas"] == 4).await;
        let standby = Process::start(&stage, "b", config);
        stage.pass(5.0).await;
        stage.external("queue", "90");
        while stage.replicas("web") != 6 {
            stage.pass(0.01).await;
        }
        let rescaled = stage.now();
        leader.cut_off();
        let failure = tokio::spawn(leader.wait_for_failure());
        let syncs = stage.syncs("web").len();
        stage.until("b leads", 20.0, |stage| stage.syncs("web").len() > syncs).await;
        stage.until("b scales", 600.0, |stage| stage.replicas("web") > 6).await;
        let waited = stage.now().saturating_sub(rescaled).as_secs_f64();
        assert_eq!(stage.replicas("web"), 8);
        assert!((PERIOD..=PERIOD + SYNC + 2.0).contains(&waited), "{waited}");
        failure.await.unwrap();
        standby.end().await;
    }
}
