//! `--status-precision`: the statuses that are withheld, those that are not, and what reads statuses.

use std::time::Duration;

use controller::options::Options;
use fake_cluster::{FaultAction, Status};
use flags::Config;
use serde_json::{Value, json};

use crate::handover::rig::{BuiltIn, LABEL, Replica, label, ours};
use crate::handover::{NAMES, stage};
use crate::support::objects::{SHOP, external, hpa};
use crate::support::{Fixture, HPAS, Harness, Process};

/// The flags with a precision.
pub(crate) fn precise(percent: &str) -> Config {
    let mut options = Options::default();
    options.settings.status_precision = percent.parse().unwrap();
    Config::from(options)
}

/// Four workers with a target of 10 items each, and 9 items each.
fn queue() -> Fixture {
    let stage = Fixture::new();
    stage.target("web", 4);
    stage.external("queue", "36");
    stage.create(hpa("web", &[external("queue", "10")]));
    stage
}

/// The number of status writes after each of these values, in consecutive periods.
async fn writes_of(rig: &Harness, values: &[&str]) -> Vec<usize> {
    let mut writes = Vec::new();
    for value in values {
        let before = rig.count("update", "/status");
        rig.external("queue", value);
        rig.pass(15.0).await;
        writes.push(rig.count("update", "/status") - before);
    }
    writes
}

/// The value of the first metric in the status.
fn shown(stage: &Fixture, name: &str) -> String {
    let metric = &stage.hpa(name)["status"]["currentMetrics"][0];
    metric["external"]["current"]["averageValue"].as_str().unwrap().to_owned()
}

/// Waits until a turn of ten periods starts, in which the status with 9.25 items each is written.
async fn turn(rig: &Harness) {
    for value in ["37", "36"].into_iter().cycle().take(12) {
        if writes_of(rig, &[value]).await == [1] {
            assert_eq!(shown(rig, "web"), "9250m");
            return;
        }
    }
    panic!("no turn starts within twelve periods");
}

#[tokio::test(start_paused = true)]
async fn status_is_written_when_a_metric_has_moved_or_once_in_ten_periods() {
    let rig = Harness::with(queue(), &precise("10%"));
    rig.pass(7.0).await;
    assert_eq!((shown(&rig, "web").as_str(), rig.count("update", "/status")), ("9", 1));
    turn(&rig).await;
    // 9.25 items each ± 1 are not written, but 8 items each are.
    assert_eq!(writes_of(&rig, &["38", "33", "35", "32", "34", "35"]).await, [0, 0, 0, 1, 0, 0]);
    // Within the tolerance, the value may cross the target: 9.75 and 10.25 items each.
    assert_eq!(writes_of(&rig, &["39", "41", "39"]).await, [1, 0, 0]);
    let mut moves = ["36", "37"].into_iter().cycle();
    let mut writes = 0;
    for _ in 0..100 {
        writes += writes_of(&rig, &[moves.next().unwrap()]).await[0];
    }
    // Every second value equals the written one.
    assert!((9..=10).contains(&writes), "{writes}");
}

#[tokio::test(start_paused = true)]
async fn value_that_flickers_around_the_precision_is_seldom_written() {
    let rig = Harness::with(queue(), &precise("10%"));
    rig.pass(7.0).await;
    // 8 and 7.95 items each: the second is more than 1 away from 9, and then less than 1 from the first.
    let flicker = ["32", "31800m"].repeat(45);
    let writes: usize = writes_of(&rig, &flicker).await.iter().sum();
    // After the first, one in ten periods or the next.
    assert!((9..=10).contains(&writes), "{writes}");
    assert_eq!(rig.replicas("web"), 4);
}

#[tokio::test(start_paused = true)]
async fn without_a_precision_every_changed_status_is_written() {
    let rig = Harness::start(queue());
    rig.pass(7.0).await;
    assert_eq!(writes_of(&rig, &["36", "36001m", "36001m", "36", "37"]).await, [0, 1, 0, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn edited_status_is_corrected_in_the_next_sync() {
    let rig = Harness::with(queue(), &precise("10%"));
    rig.pass(7.0).await;
    assert_eq!(writes_of(&rig, &["37"]).await, [0]);
    let mut edited = rig.hpa("web");
    let current = "/status/currentMetrics/0/external/current/averageValue";
    *edited.pointer_mut(current).unwrap() = "9100m".into();
    let entry = json!({
        "manager": "kubectl-edit", "operation": "Update", "apiVersion": "autoscaling/v2", "subresource": "status",
        "time": rig.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    edited["metadata"]["managedFields"].as_array_mut().unwrap().push(entry);
    rig.cluster.put_raw(edited);
    assert_eq!(writes_of(&rig, &["37", "38"]).await, [1, 0]);
    assert_eq!(shown(&rig, "web"), "9250m");
}

#[tokio::test(start_paused = true)]
async fn rescales_conditions_and_events_are_not_withheld() {
    let mut statuses = Vec::new();
    for precision in ["0", "100%"] {
        let rig = Harness::with(queue(), &precise(precision));
        rig.pass(7.0).await;
        let mut all = Vec::new();
        for value in ["60", "120", "30", "31", "110"] {
            rig.external("queue", value);
            rig.pass(15.0).await;
            // The status after the rescale has the new count.
            rig.target("web", rig.replicas("web"));
            rig.pass(15.0).await;
            let mut status = rig.hpa("web")["status"].clone();
            status.as_object_mut().unwrap().remove("currentMetrics");
            all.push(status);
        }
        let broken = rig.fault("/queue", FaultAction::Status(Status::new(500, "InternalError", "broken")));
        rig.pass(15.0).await;
        assert!(rig.condition("web", "ScalingActive").starts_with("False FailedGetExternalMetric"));
        rig.cluster.faults().remove(broken);
        rig.pass(15.0).await;
        assert!(rig.condition("web", "ScalingActive").starts_with("True ValidMetricFound"));
        statuses.push((all, rig.events("web")));
    }
    assert_eq!(statuses[0], statuses[1]);
}

#[tokio::test(start_paused = true)]
async fn failed_status_write_is_repeated() {
    let rig = Harness::with(queue(), &precise("10%"));
    rig.pass(7.0).await;
    let conflict = FaultAction::Status(Status::new(409, "Conflict", "changed"));
    let failing = rig.fault("/web/status", conflict);
    assert_eq!(writes_of(&rig, &["31", "31"]).await, [1, 1]);
    rig.cluster.faults().remove(failing);
    assert_eq!(writes_of(&rig, &["31", "31500m"]).await, [1, 0]);
    assert_eq!(shown(&rig, "web"), "7750m");
}

#[tokio::test(start_paused = true)]
async fn next_leader_does_not_write_all_statuses_again() {
    let first = Harness::with(queue(), &precise("10%"));
    first.pass(7.0).await;
    turn(&first).await;
    let before = first.count("update", "/status");
    let stage = first.end().await;
    stage.external("queue", "38");
    let second = Harness::with(stage, &precise("10%"));
    second.pass(15.0).await;
    assert_eq!(second.count("update", "/status"), before);
    second.until("the next turn", 150.0, |stage| shown(stage, "web") == "9500m").await;
}

/// Advances the time while the metrics change by at most 3 % of their target every five seconds.
async fn tremble(stage: &Fixture, seconds: u32) {
    for _ in 0..seconds / 5 {
        let step = stage.now().as_secs() / 5;
        for (offset, name) in (0..).zip(NAMES) {
            stage.external(name, &format!("{}m", 33_000 + (step * 7 + offset * 3) % 23 * 50));
        }
        stage.pass(5.0).await;
    }
}

fn is_acting(process: &Process) -> bool {
    process.telemetry.render().contains("concertina_takeover_state{state=\"acting\"} 1")
}

#[tokio::test(start_paused = true)]
async fn withheld_status_does_not_prove_that_no_controller_acts() {
    let stage = stage(&NAMES);
    let first = Process::start(&stage, "first", precise("10%"));
    tremble(&stage, 60).await;
    assert!(is_acting(&first));
    // The second process has another Lease, and observes only.
    let mut config = precise("10%");
    config.election = config.election.map(|mut election| {
        election.name = "second".to_owned();
        election
    });
    let second = Process::start(&stage, "second", config);
    tremble(&stage, 600).await;
    assert!(is_acting(&first) && !is_acting(&second));
    // The first process ends. The second acts although the metrics hardly change.
    first.end().await;
    tremble(&stage, 240).await;
    assert!(is_acting(&second));
    second.end().await;
}

#[tokio::test(start_paused = true)]
async fn takeover_from_the_built_in_controller_is_not_delayed() {
    let stage = stage(&NAMES);
    let built_in = BuiltIn::behind(&stage, None);
    stage.pass(20.0).await;
    let process = Process::start(&stage, "ours", precise("10%"));
    tremble(&stage, 300).await;
    assert!(!is_acting(&process));
    drop(built_in);
    tremble(&stage, 90).await;
    assert!(is_acting(&process));
    // The statuses of the built-in controller are replaced at once.
    let concertina = |hpa: &Value| {
        let fields = hpa["metadata"]["managedFields"].as_array().unwrap();
        fields.iter().any(|entry| entry["manager"] == "concertina" && entry["subresource"] == "status")
    };
    assert!(NAMES.iter().all(|name| concertina(&stage.hpa(name))));
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn withheld_status_does_not_prove_that_a_labelled_hpa_has_no_controller() {
    let stage = stage(&NAMES);
    let start = |stage: &Fixture| {
        Replica::with(stage, |config| config.controller.settings = precise("10%").controller.settings)
    };
    label(&stage, "a", Some("concertina"));
    let first = start(&stage);
    first.prove();
    first.lead(None);
    tremble(&stage, 60).await;
    assert_eq!(first.state("a"), "in_charge");
    let second = start(&stage);
    second.lead(None);
    tremble(&stage, 600).await;
    assert_eq!((first.state("a"), second.state("a")), ("in_charge", "claiming"));
    assert!(ours(&stage, "a").len() <= 8, "{:?}", ours(&stage, "a"));
    first.kill();
    tremble(&stage, 240).await;
    assert_eq!(second.state("a"), "in_charge");
}

#[tokio::test(start_paused = true)]
async fn hpa_moves_between_the_controllers_by_its_label() {
    let stage = stage(&["a"]);
    let built_in = BuiltIn::behind(&stage, None);
    let replica = Replica::with(&stage, |config| {
        config.controller.settings = precise("10%").controller.settings;
    });
    replica.lead(None);
    stage.external("a", "33");
    stage.pass(60.0).await;
    label(&stage, "a", Some("concertina"));
    drop(built_in);
    tremble(&stage, 60).await;
    assert_eq!(
        (replica.state("a"), &stage.hpa("a")["metadata"]["labels"][LABEL]),
        ("in_charge", &json!("concertina"))
    );
    let before = ours(&stage, "a").len();
    tremble(&stage, 140).await;
    assert!(before > 0 && ours(&stage, "a").len() <= before + 1);
    label(&stage, "a", None);
    let built_in = BuiltIn::behind(&stage, None);
    tremble(&stage, 60).await;
    assert_eq!(replica.state("a"), "outside");
    drop(built_in);
}

#[tokio::test(start_paused = true)]
async fn policy_sets_the_precision_of_one_hpa() {
    let stage = queue();
    stage.target("exact", 4);
    stage.create(hpa("exact", &[external("queue", "10")]));
    stage.edit("web", |hpa| {
        hpa["metadata"]["annotations"] = json!({"concertina.dev/policy": "statusPrecision: 10%"});
    });
    let rig = Harness::start(stage);
    rig.pass(7.0).await;
    rig.external("queue", "37");
    rig.pass(15.0).await;
    assert_eq!((shown(&rig, "web").as_str(), shown(&rig, "exact").as_str()), ("9", "9250m"));
}

/// An HPA as KEDA creates it. KEDA itself scales the target from and to zero.
#[tokio::test(start_paused = true)]
async fn hpa_of_keda_follows_activation_and_deactivation_at_once() {
    let stage = Fixture::new();
    stage.target("web", 1);
    stage.external("s0-kafka-orders", "4");
    let mut object = hpa("web", &[external("s0-kafka-orders", "5")]);
    object["metadata"]["name"] = json!("keda-hpa-web");
    object["metadata"]["labels"] = json!({"scaledobject.keda.sh/name": "web"});
    stage.create(object);
    let rig = Harness::with(stage, &precise("10%"));
    rig.pass(7.0).await;
    for (count, value, active) in [
        (0, "0", "False ScalingDisabled"),
        (1, "4", "True ValidMetricFound"),
        (0, "0", "False ScalingDisabled"),
    ] {
        rig.external("s0-kafka-orders", value);
        rig.target("web", count);
        rig.pass(15.0).await;
        let condition = rig.condition("keda-hpa-web", "ScalingActive");
        assert!(condition.starts_with(active), "{condition}");
        assert_eq!(rig.hpa("keda-hpa-web")["status"]["desiredReplicas"], count);
    }
    rig.external("s0-kafka-orders", "20");
    rig.target("web", 1);
    rig.until("the target scales", 16.0, |stage| stage.replicas("web") == 4).await;
}

/// Statuses that many HPAs withhold for ten periods in step are still spread over the period.
#[tokio::test(start_paused = true)]
async fn statuses_after_ten_periods_are_spread_over_a_period() {
    let stage = Fixture::new();
    for index in 0..60 {
        let name = format!("web-{index:03}");
        stage.target(&name, 4);
        stage.create(hpa(&name, &[external("queue", "10")]));
    }
    stage.external("queue", "36");
    let rig = Harness::spread(stage, &precise("10%"));
    rig.pass(40.0).await;
    rig.external("queue", "37");
    rig.pass(160.0).await;
    let times = rig.times(|request| request.verb == "update" && request.path.ends_with("/status"));
    let late: Vec<_> = times.into_iter().filter(|at| *at > Duration::from_secs(40)).collect();
    assert_eq!(late.len(), 60);
    let busiest =
        late.iter().map(|at| late.iter().filter(|other| other.as_secs() == at.as_secs()).count()).max();
    assert!(busiest.unwrap() <= 20, "{busiest:?}");
    let all = rig.cluster.list(HPAS, Some(SHOP));
    assert!(all.iter().all(|hpa| shown(&rig, hpa["metadata"]["name"].as_str().unwrap()) == "9250m"));
}
