//! Histories across a full restart, after which no replica has them in memory, with and without
//! `--history-checkpoint`.

use std::time::Duration;

use controller::options::Options;
use fake_cluster::{FaultAction, FaultRule, Status};
use flags::Config;
use flags::config::TakeOver;
use journal::history::checkpoint::CheckpointPlace;
use serde_json::{Value, json};

use crate::support::objects::{SHOP, external, hpa};
use crate::support::{Fixture, Process, logs};

const MAPS: &str = "configmaps";
const FIRST: &str = "concertina-history-0";

/// An HPA that may add two pods in five minutes and remove one pod in four, with a scale-down window of
/// five minutes.
fn rate_limited_hpa(name: &str) -> Value {
    let mut hpa = hpa(name, &[external("queue", "10")]);
    hpa["spec"]["behavior"] = json!({
        "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 300}]},
        "scaleDown": {
            "stabilizationWindowSeconds": 300,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 240}],
        },
    });
    hpa
}

fn stage() -> Fixture {
    let stage = Fixture::new();
    stage.target("web", 2);
    stage.external("queue", "80");
    stage.create(rate_limited_hpa("web"));
    stage
        .cluster
        .put_raw(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}));
    stage
}

/// Creates the ConfigMaps that `concertina rbac` prints.
pub(crate) fn create_maps(stage: &Fixture) {
    for name in CheckpointPlace::default().names() {
        stage.create(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kube-system", "name": name},
        }));
    }
}

/// The default configuration without takeover checks and without a checkpoint.
pub(crate) fn plain() -> Config {
    Config { takeover: TakeOver::Off, history_checkpoint: None, ..Config::default() }
}

pub(crate) fn checkpointed() -> Config {
    Config { history_checkpoint: Some(CheckpointPlace::default()), ..plain() }
}

fn forbidden() -> FaultAction {
    FaultAction::Status(Status::new(403, "Forbidden", "no such right"))
}

fn map(stage: &Fixture, name: &str) -> Value {
    stage.cluster.get(MAPS, "kube-system", name).unwrap_or_default()
}

/// The histories in a ConfigMap, as base64.
fn stored(stage: &Fixture, name: &str) -> String {
    map(stage, name)["binaryData"]["histories"].as_str().unwrap_or_default().to_owned()
}

/// A trace of replica counts, one per second.
struct Trace(Vec<i64>);

impl Trace {
    async fn record(stage: &Fixture, seconds: usize, trace: &mut Self) {
        for _ in 0..seconds {
            stage.pass(1.0).await;
            trace.0.push(stage.replicas("web"));
        }
    }

    /// The maximum sum of the positive results of `change` within any interval of `seconds`.
    fn most(&self, seconds: usize, change: impl Fn(i64) -> i64) -> i64 {
        let changes: Vec<_> = self.0.windows(2).map(|pair| change(pair[1] - pair[0]).max(0)).collect();
        changes.windows(seconds.min(changes.len())).map(|some| some.iter().sum()).max().unwrap()
    }

    fn assert_rates_hold(&self, case: &str) {
        // The interval is one second shorter than the period. Otherwise, it could include the changes at both of its
        // ends.
        assert!(self.most(299, |change| change) <= 2, "{case}: {:?}", self.0);
        assert!(self.most(239, |change| -change) <= 1, "{case}: {:?}", self.0);
    }
}

/// Runs 40 minutes of load with a restart at each second of `restarts`. Restarts are clean if `in_order` is
/// set, and crashes otherwise.
async fn run_load(stage: &Fixture, config: &Config, restarts: &[usize], in_order: bool) -> Trace {
    let (mut trace, mut at) = (Trace(Vec::new()), 0);
    let mut process = Some(Process::start(stage, "first", config.clone()));
    let loads = [(0, "80"), (730, "30"), (1510, "50")];
    for second in 0..2400 {
        if let Some((_, load)) = loads.iter().find(|(from, _)| *from == second) {
            stage.external("queue", load);
        }
        if restarts.contains(&second) {
            at += 1;
            let old = process.take().unwrap();
            if in_order {
                old.end().await;
            } else {
                old.cut_off();
            }
            process = Some(Process::start(stage, &format!("number-{at}"), config.clone()));
        }
        Trace::record(stage, 1, &mut trace).await;
    }
    process.unwrap().end().await;
    trace
}

#[tokio::test(start_paused = true)]
async fn clean_restarts_change_no_decision() {
    let alone = run_load(&stage(), &plain(), &[], true).await;
    alone.assert_rates_hold("without restarts");
    assert!(alone.0.contains(&8) && alone.0.last() < Some(&8), "{:?}", alone.0);

    let stage = stage();
    create_maps(&stage);
    let restarts = [37, 322, 610, 640, 820, 1100, 1307, 1900];
    let restarted = run_load(&stage, &checkpointed(), &restarts, true).await;
    // A restart moves the syncs by less than a period.
    let at = |trace: &Trace, second: usize| trace.0[second];
    let changes: Vec<_> = (1..2400).filter(|second| at(&alone, *second) != at(&alone, *second - 1)).collect();
    for second in (0..2400_usize).filter(|second| changes.iter().all(|change| second.abs_diff(*change) > 17))
    {
        assert_eq!(at(&alone, second), at(&restarted, second), "after {second} s: {changes:?}");
    }
    assert!(logs::with("WARN").is_empty(), "{:?}", logs::with("WARN"));
}

#[tokio::test(start_paused = true)]
async fn rate_policies_hold_over_every_kind_of_restart() {
    let restarts = [2, 20, 302, 330, 610, 640, 820, 1040, 1100, 1307, 1700, 1900];
    for (what, config, with_maps, events, in_order) in [
        ("crashes with a checkpoint", checkpointed(), true, true, false),
        ("clean restarts without a checkpoint", plain(), false, true, true),
        ("crashes without a checkpoint", plain(), false, true, false),
        ("crashes without the permission to list events", plain(), false, false, false),
        ("clean restarts without permissions for the checkpoint", checkpointed(), false, false, true),
    ] {
        let stage = stage();
        if with_maps {
            create_maps(&stage);
        }
        if !events {
            stage.cluster.faults().add(FaultRule::new(forbidden()).verb("list").path_suffix("/events"));
            stage.cluster.faults().add(FaultRule::new(forbidden()).path_contains("/configmaps"));
        }
        let trace = run_load(&stage, &config, &restarts, in_order).await;
        trace.assert_rates_hold(what);
        assert!(trace.0.last() > Some(&2), "{what}: the target still scales: {:?}", trace.0);
    }
}

/// The cluster after a process has scaled the target from 2 to 4, shut down in order, and written its checkpoint.
async fn after_clean_shutdown() -> Fixture {
    let stage = stage();
    create_maps(&stage);
    let process = Process::start(&stage, "first", checkpointed());
    stage.until("it scales", 5.0, |stage| stage.replicas("web") == 4).await;
    stage.pass(40.0).await;
    process.end().await;
    assert!(!stored(&stage, FIRST).is_empty());
    stage
}

fn restored(process: &Process, source: &str) -> bool {
    process.telemetry.render().contains(&format!("concertina_history_restored_hpas{{source=\"{source}\"}} 1"))
}

#[tokio::test(start_paused = true)]
async fn invalid_checkpoint_is_logged_by_name_and_breaks_no_rate_policy() {
    let base64 = |text: &str| json!({"histories": text});
    let stage = after_clean_shutdown().await;
    let sound = stored(&stage, FIRST);
    let bad = [
        ("cut off", base64(&sound[..sound.len() / 8 * 4]), "the checksum of the shard is wrong"),
        ("of another version", base64(&format!("Q0hQQQMA{}", &sound[8..])), "the shard has format version 3"),
        ("something else", base64("aGVsbG8gd29ybGQh"), "the data is not a checkpoint"),
        ("huge", base64(&"AAAA".repeat(400_000)), "more than a ConfigMap can have"),
    ];
    for (what, data, expected) in bad {
        let stage = after_clean_shutdown().await;
        let mut broken = map(&stage, FIRST);
        broken["binaryData"] = data;
        stage.cluster.put_raw(broken);
        let process = Process::start(&stage, "second", checkpointed());
        stage.pass(60.0).await;
        let lines = logs::with("skipping a ConfigMap of the checkpoint");
        assert!(
            lines.len() == 1 && lines[0].contains(expected) && lines[0].contains(FIRST),
            "{what}: {lines:?}"
        );
        assert!(restored(&process, "status"), "{what}");
        assert_eq!(stage.replicas("web"), 4, "{what}: the rate policy permits no more");
        stage.until("it scales again", 300.0, |stage| stage.replicas("web") == 6).await;
        process.end().await;
        assert!(
            stored(&stage, FIRST).starts_with("Q0hQQQIB"),
            "{what}: rewritten with the clean-shutdown mark"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn checkpoint_from_the_future_is_not_used() {
    let stage = after_clean_shutdown().await;
    let later = stage.cluster.get(MAPS, "kube-system", FIRST).unwrap();
    let earlier = self::stage();
    create_maps(&earlier);
    let mut moved = map(&earlier, FIRST);
    moved["binaryData"] = later["binaryData"].clone();
    earlier.cluster.put_raw(moved);
    let process = Process::start(&earlier, "second", checkpointed());
    earlier.pass(10.0).await;
    // The checkpoint is forty seconds in the future, which is within the tolerance between clocks.
    assert!(logs::with("skipping").is_empty(), "{:?}", logs::with("skipping"));
    process.end().await;

    stage.pass(200.0).await;
    let process = Process::start(&stage, "third", checkpointed());
    stage.pass(20.0).await;
    process.end().await;
    let earlier = self::stage();
    create_maps(&earlier);
    let mut moved = map(&earlier, FIRST);
    moved["binaryData"] = map(&stage, FIRST)["binaryData"].clone();
    earlier.cluster.put_raw(moved);
    let process = Process::start(&earlier, "second", checkpointed());
    earlier.pass(10.0).await;
    assert_eq!(logs::with("is in the future").len(), 1, "{:?}", logs::with(""));
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn recreated_hpa_has_no_history_and_the_old_history_is_dropped() {
    let stage = after_clean_shutdown().await;
    let uid = stage.hpa("web")["metadata"]["uid"].as_str().unwrap().to_owned();
    stage.cluster.delete(crate::support::HPAS, SHOP, "web").unwrap();
    stage.create(rate_limited_hpa("web"));
    assert_ne!(stage.hpa("web")["metadata"]["uid"], uid.as_str());
    let process = Process::start(&stage, "second", checkpointed());
    stage.until("it scales at once", 5.0, |stage| stage.replicas("web") == 6).await;
    let before = stored(&stage, FIRST);
    stage.pass(60.0).await;
    process.end().await;
    assert_ne!(stored(&stage, FIRST), before);
    let process = Process::start(&stage, "third", checkpointed());
    stage.pass(5.0).await;
    assert!(restored(&process, "checkpoint"), "{}", process.telemetry.render());
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn hpa_observed_late_keeps_its_rates_and_a_new_one_scales_at_once() {
    let stage = stage();
    let process = Process::start(&stage, "first", plain());
    stage.until("the process leads", 5.0, |stage| stage.replicas("web") == 4).await;
    stage.target("late", 4);
    stage.target("new", 4);
    let mut late = rate_limited_hpa("late");
    late["status"] =
        json!({"lastScaleTime": "2029-12-31T23:59:00Z", "currentReplicas": 4, "desiredReplicas": 4});
    stage.cluster.put_raw(late);
    stage.create(rate_limited_hpa("new"));
    stage.until("the new HPA scales at once", 2.0, |stage| stage.replicas("new") == 6).await;
    stage.until("the late HPA is synced", 30.0, |stage| stage.syncs("late").len() > 1).await;
    stage.pass(230.0 - stage.now().as_secs_f64()).await;
    assert_eq!(stage.replicas("late"), 4, "the period of five minutes is not over");
    stage.until("it scales again", 30.0, |stage| stage.replicas("late") == 6).await;
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn clean_shutdown_mark_is_used_once_and_not_after_a_foreign_rescale() {
    let stage = after_clean_shutdown().await;
    // The clean-shutdown mark is removed before the first sync, so that a crash right after that sync leaves no mark.
    stage.cluster.faults().add(FaultRule::new(forbidden()).verb("get").path_suffix("/web/scale"));
    let process = Process::start(&stage, "second", checkpointed());
    stage.pass(2.0).await;
    assert!(restored(&process, "checkpoint"), "{}", process.telemetry.render());
    assert!(stored(&stage, FIRST).starts_with("Q0hQQQIA"), "{}", stored(&stage, FIRST));
    process.cut_off();
    stage.cluster.faults().clear();
    let process = Process::start(&stage, "third", checkpointed());
    stage.pass(20.0).await;
    assert!(restored(&process, "crash"), "{}", process.telemetry.render());
    process.end().await;

    let mut hpa = stage.hpa("web");
    let now = stage.cluster.now().checked_add(Duration::from_secs(5)).unwrap();
    hpa["status"]["lastScaleTime"] = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    stage.cluster.update_status(hpa).unwrap();
    stage.pass(10.0).await;
    let process = Process::start(&stage, "fourth", checkpointed());
    stage.pass(5.0).await;
    assert!(restored(&process, "crash"), "{}", process.telemetry.render());
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_writes_a_config_map_and_at_most_every_15_s() {
    let stage = stage();
    create_maps(&stage);
    let leader = Process::start(&stage, "first", checkpointed());
    stage.pass(3.0).await;
    let standby = Process::start(&stage, "second", checkpointed());
    let controller = Options { dry_run: true, ..Options::default() };
    let dry = Process::start(&stage, "third", Config { controller, ..checkpointed() });
    stage.pass(600.0).await;
    let writes = stage.times(|request| request.verb == "update" && request.path.contains("/configmaps/"));
    assert!((35..=41).contains(&writes.len()), "{writes:?}");
    assert!(writes.windows(2).all(|pair| pair[1] >= pair[0] + Duration::from_secs(15)), "{writes:?}");
    standby.end().await;
    dry.end().await;
    let last = stage.times(|request| request.verb == "update" && request.path.contains("/configmaps/"));
    assert_eq!(last.len(), writes.len(), "neither writes during shutdown");
    leader.end().await;
    for name in CheckpointPlace::default().names().skip(1) {
        assert_eq!(stored(&stage, &name), "", "one ConfigMap is enough for one HPA");
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_or_overwritten_config_map_is_restored() {
    let stage = stage();
    create_maps(&stage);
    let process = Process::start(&stage, "first", checkpointed());
    stage.pass(40.0).await;
    stage.cluster.delete(MAPS, "kube-system", FIRST).unwrap();
    stage.pass(40.0).await;
    assert!(stored(&stage, FIRST).starts_with("Q0hQQQIA"));
    let mut other = map(&stage, FIRST);
    other["binaryData"] = json!({"histories": "aGVsbG8="});
    other["metadata"]["labels"] = json!({"owner": "another"});
    stage.cluster.update(other).unwrap();
    stage.pass(40.0).await;
    assert!(stored(&stage, FIRST).starts_with("Q0hQQQIA"));
    assert_eq!(map(&stage, FIRST)["metadata"]["labels"]["owner"], "another", "foreign labels are kept");
    let metrics = process.telemetry.render();
    assert!(metrics.contains("concertina_checkpoint_writes_total{result=\"conflict\"} 1"), "{metrics}");
    assert!(!metrics.contains("result=\"failed\""), "{metrics}");
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn controller_works_and_warns_once_without_checkpoint_permissions() {
    let stage = stage();
    stage.cluster.faults().add(FaultRule::new(forbidden()).path_contains("/configmaps"));
    let process = Process::start(&stage, "first", checkpointed());
    stage.until("it scales", 5.0, |stage| stage.replicas("web") == 4).await;
    stage.pass(1800.0).await;
    assert_eq!(
        logs::with("failed to write the checkpoint of histories").len(),
        1,
        "{:?}",
        logs::with("WARN")
    );
    assert_eq!(logs::with("failed to read all of the checkpoint of histories").len(), 1);
    let writes = stage
        .times(|request| matches!(request.verb, "update" | "create") && request.path.contains("/configmaps"));
    assert!((8..20).contains(&writes.len()), "the backoff grows: {writes:?}");
    let failed = format!("concertina_checkpoint_writes_total{{result=\"failed\"}} {}", writes.len());
    assert!(process.telemetry.render().contains(&failed), "{}", process.telemetry.render());
    stage.cluster.faults().clear();
    create_maps(&stage);
    stage.pass(300.0).await;
    assert_eq!(logs::with("resumed writing the checkpoint of histories").len(), 1);
    assert!(process.end().await < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn silent_server_delays_the_first_sync_by_at_most_five_seconds() {
    let stage = after_clean_shutdown().await;
    stage.pass(60.0).await;
    stage.cluster.faults().add(FaultRule::new(FaultAction::Silence).path_contains("/configmaps"));
    stage.cluster.faults().add(FaultRule::new(FaultAction::Silence).verb("list").path_suffix("/events"));
    let before = stage.syncs("web").len();
    let process = Process::start(&stage, "second", checkpointed());
    let waited = stage.until("it syncs", 6.0, |stage| stage.syncs("web").len() > before).await;
    assert!(waited > Duration::from_secs(4), "{waited:?}");
    stage.pass(60.0).await;
    assert_eq!(stage.replicas("web"), 4, "without history the rate policy permits no rescale");
    assert_eq!(logs::with("2.5s").len(), 2, "{:?}", logs::with("WARN"));
    // The last write is abandoned, and the Lease is still released.
    assert!(process.end().await <= Duration::from_secs(6));
}
