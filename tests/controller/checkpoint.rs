//! What a full restart forgets, with `--history-checkpoint` and without it: no replica is left that remembers.

use std::time::Duration;

use concertina::cli::Config;
use concertina::cli::config::{HistoryCheckpoint, TakeOver};
use concertina::embedded::{FaultAction, FaultRule, Status};
use serde_json::{Value, json};

use crate::support::objects::{SHOP, external, hpa};
use crate::support::process::Process;
use crate::support::{Stage, logs};

const MAPS: &str = "configmaps";
const FIRST: &str = "concertina-history-0";

/// Two pods more in five minutes, one pod less in four, and that only if nothing higher was asked for in five.
fn careful(name: &str) -> Value {
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

fn stage() -> Stage {
    let stage = Stage::new();
    stage.target("web", 2);
    stage.external("queue", "80");
    stage.create(careful("web"));
    stage
        .cluster
        .put_raw(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}));
    stage
}

/// As `concertina rbac` prints them.
fn ship(stage: &Stage) {
    for name in HistoryCheckpoint::default().names() {
        stage.create(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kube-system", "name": name},
        }));
    }
}

fn plain() -> Config {
    Config { takeover: TakeOver::Off, ..Config::default() }
}

fn kept() -> Config {
    Config { history_checkpoint: Some(HistoryCheckpoint::default()), ..plain() }
}

fn forbidden() -> FaultAction {
    FaultAction::Status(Status::new(403, "Forbidden", "no such right"))
}

fn map(stage: &Stage, name: &str) -> Value {
    stage.cluster.get(MAPS, "kube-system", name).unwrap_or_default()
}

/// What a ConfigMap holds, as base64.
fn held(stage: &Stage, name: &str) -> String {
    map(stage, name)["binaryData"]["histories"].as_str().unwrap_or_default().to_owned()
}

/// A trace of counts, one a second.
struct Trace(Vec<i64>);

impl Trace {
    async fn of(stage: &Stage, seconds: usize, trace: &mut Self) {
        for _ in 0..seconds {
            stage.pass(1.0).await;
            trace.0.push(stage.replicas("web"));
        }
    }

    /// How many pods were added and removed within any so many seconds, at most.
    fn most(&self, seconds: usize, change: impl Fn(i64) -> i64) -> i64 {
        let changes: Vec<_> = self.0.windows(2).map(|pair| change(pair[1] - pair[0]).max(0)).collect();
        changes.windows(seconds.min(changes.len())).map(|some| some.iter().sum()).max().unwrap()
    }

    fn assert_rates_hold(&self, what: &str) {
        // A second less than the period: an instant at its edge is in both.
        assert!(self.most(299, |change| change) <= 2, "{what}: {:?}", self.0);
        assert!(self.most(239, |change| -change) <= 1, "{what}: {:?}", self.0);
    }
}

/// Plays half an hour of load, with restarts at these seconds; how is told by `end`.
async fn play(stage: &Stage, config: &Config, restarts: &[usize], in_order: bool) -> Trace {
    let (mut trace, mut at) = (Trace(Vec::new()), 0);
    let mut process = Some(Process::start(stage, "first", config.clone()));
    let loads = [(0, "80"), (730, "30"), (1510, "50")];
    for second in 0..2400 {
        if let Some((_, load)) = loads.iter().find(|(begins, _)| *begins == second) {
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
        Trace::of(stage, 1, &mut trace).await;
    }
    process.unwrap().end().await;
    trace
}

#[tokio::test(start_paused = true)]
async fn restarts_in_order_change_no_decision() {
    let alone = play(&stage(), &plain(), &[], true).await;
    alone.assert_rates_hold("never restarted");
    assert!(alone.0.contains(&8) && alone.0.last() < Some(&8), "{:?}", alone.0);

    let stage = stage();
    ship(&stage);
    let restarts = [37, 322, 610, 640, 820, 1100, 1307, 1900];
    let restarted = play(&stage, &kept(), &restarts, true).await;
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
async fn rates_hold_over_every_kind_of_restart() {
    let restarts = [2, 20, 302, 330, 610, 640, 820, 1040, 1100, 1307, 1700, 1900];
    for (what, config, shipped, events, in_order) in [
        ("crashes with a checkpoint", kept(), true, true, false),
        ("in order without a checkpoint", plain(), false, true, true),
        ("crashes without a checkpoint", plain(), false, true, false),
        ("crashes, and events may not be listed", plain(), false, false, false),
        ("in order, nothing may be written or read", kept(), false, false, true),
    ] {
        let stage = stage();
        if shipped {
            ship(&stage);
        }
        if !events {
            stage.cluster.faults().add(FaultRule::new(forbidden()).verb("list").path_suffix("/events"));
            stage.cluster.faults().add(FaultRule::new(forbidden()).path_contains("/configmaps"));
        }
        let trace = play(&stage, &config, &restarts, in_order).await;
        trace.assert_rates_hold(what);
        assert!(trace.0.last() > Some(&2), "{what}: it still scales: {:?}", trace.0);
    }
}

/// A process that has scaled from 2 to 4 and ended in order; its checkpoint is there.
async fn ended() -> Stage {
    let stage = stage();
    ship(&stage);
    let process = Process::start(&stage, "first", kept());
    stage.until("it scales", 5.0, |stage| stage.replicas("web") == 4).await;
    stage.pass(40.0).await;
    process.end().await;
    assert!(!held(&stage, FIRST).is_empty());
    stage
}

fn restored(process: &Process, source: &str) -> bool {
    process.telemetry.render().contains(&format!("concertina_history_restored_hpas{{source=\"{source}\"}} 1"))
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_is_bad_is_told_of_by_name_and_costs_no_rate() {
    let base64 = |text: &str| json!({"histories": text});
    let stage = ended().await;
    let sound = held(&stage, FIRST);
    let bad = [
        ("cut off", base64(&sound[..sound.len() / 8 * 4]), "its checksum is wrong"),
        ("of another version", base64(&format!("Q0hQQQIA{}", &sound[8..])), "it has version 2 of the format"),
        ("something else", base64("aGVsbG8gd29ybGQh"), "it does not begin as a checkpoint does"),
        ("huge", base64(&"AAAA".repeat(400_000)), "more than a ConfigMap may have"),
        ("no base64", base64("*"), "no base64"),
    ];
    for (what, data, told) in bad {
        let stage = ended().await;
        let mut broken = map(&stage, FIRST);
        broken["binaryData"] = data;
        stage.cluster.put_raw(broken);
        let process = Process::start(&stage, "second", kept());
        stage.pass(60.0).await;
        let lines = logs::with("a ConfigMap of the checkpoint is not used");
        assert!(lines.len() == 1 && lines[0].contains(told) && lines[0].contains(FIRST), "{what}: {lines:?}");
        assert!(restored(&process, "status"), "{what}");
        assert_eq!(stage.replicas("web"), 4, "{what}: the rate is used up");
        stage.until("it scales again", 300.0, |stage| stage.replicas("web") == 6).await;
        process.end().await;
        assert!(held(&stage, FIRST).starts_with("Q0hQQQEB"), "{what}: written anew, with the mark");
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_of_the_future_is_not_used() {
    let stage = ended().await;
    let later = stage.cluster.get(MAPS, "kube-system", FIRST).unwrap();
    let earlier = self::stage();
    ship(&earlier);
    let mut moved = map(&earlier, FIRST);
    moved["binaryData"] = later["binaryData"].clone();
    earlier.cluster.put_raw(moved);
    let process = Process::start(&earlier, "second", kept());
    earlier.pass(10.0).await;
    // Forty seconds are within the tolerance between clocks.
    assert!(logs::with("is not used").is_empty(), "{:?}", logs::with("is not used"));
    process.end().await;

    stage.pass(200.0).await;
    let process = Process::start(&stage, "third", kept());
    stage.pass(20.0).await;
    process.end().await;
    let earlier = self::stage();
    ship(&earlier);
    let mut moved = map(&earlier, FIRST);
    moved["binaryData"] = map(&stage, FIRST)["binaryData"].clone();
    earlier.cluster.put_raw(moved);
    let process = Process::start(&earlier, "second", kept());
    earlier.pass(10.0).await;
    assert_eq!(logs::with("which is yet to come").len(), 1, "{:?}", logs::with(""));
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_hpa_that_was_recreated_has_no_past_and_its_former_history_goes() {
    let stage = ended().await;
    let uid = stage.hpa("web")["metadata"]["uid"].as_str().unwrap().to_owned();
    stage.cluster.delete(crate::support::HPAS, SHOP, "web").unwrap();
    stage.create(careful("web"));
    assert_ne!(stage.hpa("web")["metadata"]["uid"], uid.as_str());
    let process = Process::start(&stage, "second", kept());
    stage.until("it scales at once", 5.0, |stage| stage.replicas("web") == 6).await;
    let before = held(&stage, FIRST);
    stage.pass(60.0).await;
    process.end().await;
    assert_ne!(held(&stage, FIRST), before);
    let process = Process::start(&stage, "third", kept());
    stage.pass(5.0).await;
    assert!(restored(&process, "checkpoint"), "{}", process.telemetry.render());
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_hpa_that_is_seen_only_while_this_replica_leads_keeps_its_rates_and_a_new_one_is_free() {
    let stage = stage();
    let process = Process::start(&stage, "first", plain());
    stage.until("it leads", 5.0, |stage| stage.replicas("web") == 4).await;
    stage.target("late", 4);
    stage.target("new", 4);
    let mut late = careful("late");
    late["status"] =
        json!({"lastScaleTime": "2029-12-31T23:59:00Z", "currentReplicas": 4, "desiredReplicas": 4});
    stage.cluster.put_raw(late);
    stage.create(careful("new"));
    stage.until("the new one scales at once", 2.0, |stage| stage.replicas("new") == 6).await;
    stage.until("the late one is synced too", 30.0, |stage| stage.syncs("late").len() > 1).await;
    stage.pass(230.0 - stage.now().as_secs_f64()).await;
    assert_eq!(stage.replicas("late"), 4, "five minutes are not over");
    stage.until("it scales again", 30.0, |stage| stage.replicas("late") == 6).await;
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_mark_is_believed_once_and_not_if_somebody_scaled_since() {
    let stage = ended().await;
    // It goes before the first sync, so a crash right after that does not leave it.
    stage.cluster.faults().add(FaultRule::new(forbidden()).verb("get").path_suffix("/web/scale"));
    let process = Process::start(&stage, "second", kept());
    stage.pass(2.0).await;
    assert!(restored(&process, "checkpoint"), "{}", process.telemetry.render());
    assert!(held(&stage, FIRST).starts_with("Q0hQQQEA"), "{}", held(&stage, FIRST));
    process.cut_off();
    stage.cluster.faults().clear();
    let process = Process::start(&stage, "third", kept());
    stage.pass(20.0).await;
    assert!(restored(&process, "crash"), "{}", process.telemetry.render());
    process.end().await;

    let mut hpa = stage.hpa("web");
    let now = stage.cluster.now().checked_add(Duration::from_secs(5)).unwrap();
    hpa["status"]["lastScaleTime"] = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    stage.cluster.update_status(hpa).unwrap();
    stage.pass(10.0).await;
    let process = Process::start(&stage, "fourth", kept());
    stage.pass(5.0).await;
    assert!(restored(&process, "crash"), "{}", process.telemetry.render());
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_config_map_is_written_at_most_every_15_s_and_by_the_leader_alone() {
    let stage = stage();
    ship(&stage);
    let leader = Process::start(&stage, "first", kept());
    stage.pass(3.0).await;
    let standby = Process::start(&stage, "second", kept());
    let dry = Process::start(&stage, "third", Config { dry_run: true, ..kept() });
    stage.pass(600.0).await;
    let writes = stage.times(|request| request.verb == "update" && request.path.contains("/configmaps/"));
    assert!((35..=41).contains(&writes.len()), "{writes:?}");
    assert!(writes.windows(2).all(|pair| pair[1] >= pair[0] + Duration::from_secs(15)), "{writes:?}");
    standby.end().await;
    dry.end().await;
    let last = stage.times(|request| request.verb == "update" && request.path.contains("/configmaps/"));
    assert_eq!(last.len(), writes.len(), "neither writes on its way down");
    leader.end().await;
    for name in HistoryCheckpoint::default().names().skip(1) {
        assert_eq!(held(&stage, &name), "", "one is enough for one HPA");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_deleted_comes_back_and_one_that_somebody_else_writes_is_taken_back() {
    let stage = stage();
    ship(&stage);
    let process = Process::start(&stage, "first", kept());
    stage.pass(40.0).await;
    stage.cluster.delete(MAPS, "kube-system", FIRST).unwrap();
    stage.pass(40.0).await;
    assert!(held(&stage, FIRST).starts_with("Q0hQQQEA"));
    let mut other = map(&stage, FIRST);
    other["binaryData"] = json!({"histories": "aGVsbG8="});
    other["metadata"]["labels"] = json!({"owner": "somebody"});
    stage.cluster.update(other).unwrap();
    stage.pass(40.0).await;
    assert!(held(&stage, FIRST).starts_with("Q0hQQQEA"));
    assert_eq!(map(&stage, FIRST)["metadata"]["labels"]["owner"], "somebody", "but what is theirs stays");
    let metrics = process.telemetry.render();
    assert!(metrics.contains("concertina_checkpoint_writes_total{result=\"conflict\"} 1"), "{metrics}");
    assert!(!metrics.contains("result=\"failed\""), "{metrics}");
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_write_it_works_and_says_so_once() {
    let stage = stage();
    stage.cluster.faults().add(FaultRule::new(forbidden()).path_contains("/configmaps"));
    let process = Process::start(&stage, "first", kept());
    stage.until("it scales", 5.0, |stage| stage.replicas("web") == 4).await;
    stage.pass(1800.0).await;
    assert_eq!(
        logs::with("the checkpoint of histories cannot be written").len(),
        1,
        "{:?}",
        logs::with("WARN")
    );
    assert_eq!(logs::with("not all of the checkpoint of histories can be read").len(), 1);
    let writes = stage
        .times(|request| matches!(request.verb, "update" | "create") && request.path.contains("/configmaps"));
    assert!((8..20).contains(&writes.len()), "waits get longer: {writes:?}");
    let failed = format!("concertina_checkpoint_writes_total{{result=\"failed\"}} {}", writes.len());
    assert!(process.telemetry.render().contains(&failed), "{}", process.telemetry.render());
    stage.cluster.faults().clear();
    ship(&stage);
    stage.pass(300.0).await;
    assert_eq!(logs::with("the checkpoint of histories is written again").len(), 1);
    assert!(process.end().await < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_delays_leading_by_five_seconds_at_most() {
    let stage = ended().await;
    stage.pass(60.0).await;
    stage.cluster.faults().add(FaultRule::new(FaultAction::Silence).path_contains("/configmaps"));
    stage.cluster.faults().add(FaultRule::new(FaultAction::Silence).verb("list").path_suffix("/events"));
    let before = stage.syncs("web").len();
    let process = Process::start(&stage, "second", kept());
    let waited = stage.until("it syncs", 6.0, |stage| stage.syncs("web").len() > before).await;
    assert!(waited > Duration::from_secs(4), "{waited:?}");
    stage.pass(60.0).await;
    assert_eq!(stage.replicas("web"), 4, "what is not known counts as used up");
    assert_eq!(logs::with("could not be read within").len(), 2, "{:?}", logs::with("WARN"));
    // The last write is given up, too, and the Lease still given back.
    assert!(process.end().await <= Duration::from_secs(6));
}
