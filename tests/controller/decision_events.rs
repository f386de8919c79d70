//! `--decision-events`: events with the sentence of a decision.

use cluster::gate::Refusal;
use concertina::cli::Config;
use fake_cluster::FaultAction;

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

const SERIES: &str = "concertina_decision_events_total";

fn config() -> Config {
    let mut config = Config::default();
    config.controller.decision_events = true;
    config
}

fn reported(stage: &Fixture) -> Vec<String> {
    let events = stage.events("web").into_iter();
    events.filter_map(|event| event.strip_prefix("LastDecision ").map(str::to_owned)).collect()
}

#[tokio::test(start_paused = true)]
async fn without_the_flag_events_requests_and_metrics_are_unchanged() {
    let with = Harness::with(Fixture::growing(), &config());
    let without = Harness::start(Fixture::growing());
    for rig in [&with, &without] {
        rig.pass(400.0).await;
    }
    assert!(reported(&without).is_empty());
    assert!(!without.telemetry.render().contains(SERIES));
    assert!(!reported(&with).is_empty());
    // The events of the built-in controller and the writes to the HPA are the same with the flag.
    let others = |rig: &Harness| {
        let events = rig.events("web").into_iter().filter(|event| !event.starts_with("LastDecision"));
        (events.collect::<Vec<_>>(), rig.count("update", "/web/status"), rig.hpa("web")["status"].clone())
    };
    assert_eq!(others(&with), others(&without));
    let fields = |rig: &Harness| rig.hpa("web")["metadata"]["managedFields"].clone();
    assert_eq!(fields(&with), fields(&without));
}

#[tokio::test(start_paused = true)]
async fn event_is_recorded_on_change_only() {
    let rig = Harness::with(Fixture::growing(), &config());
    rig.pass(2.0).await;
    let first = "goes from 4 to 8: queue is at 20 per pod, above its target of 10 per pod";
    assert_eq!(reported(&rig), [first]);
    // At 8 replicas the metric requests 8: the same count, so no event.
    rig.pass(600.0).await;
    assert_eq!(reported(&rig), [first]);
    // A limit is a change, and is reported once, though each sync repeats the sentence.
    rig.external("queue", "200");
    rig.pass(600.0).await;
    let events = reported(&rig);
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events[1].ends_with("but maxReplicas is 10"), "{events:?}");
    assert_eq!(rig.series(SERIES), 2.0);
    let events = rig.cluster.list("events", None);
    let event = events.iter().find(|event| event["reason"] == "LastDecision").unwrap();
    assert_eq!((&event["source"]["component"], &event["type"]), (&"concertina".into(), &"Normal".into()));
    assert_eq!(event["involvedObject"]["kind"], "HorizontalPodAutoscaler");
}

#[tokio::test(start_paused = true)]
async fn failed_metric_is_reported_and_its_recovery_too() {
    let rig = Harness::with(Fixture::growing(), &config());
    rig.pass(400.0).await;
    let fault = rig.fault("/queue", FaultAction::Text { code: 503, body: String::new() });
    rig.pass(400.0).await;
    rig.cluster.faults().remove(fault);
    rig.pass(400.0).await;
    let events = reported(&rig);
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(events[1].contains("cannot be read"), "{events:?}");
    assert!(events[2].starts_with("stays at 8"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn changes_within_five_minutes_are_reported_once_they_last() {
    let rig = Harness::with(Fixture::growing(), &config());
    rig.pass(60.0).await;
    rig.external("queue", "100");
    rig.pass(200.0).await;
    assert_eq!((rig.replicas("web"), reported(&rig).len()), (10, 1));
    rig.pass(100.0).await;
    let events = reported(&rig);
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events[1].starts_with("stays at 10"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn closed_gate_and_existing_hpas_record_nothing() {
    let rig = Harness::with(Fixture::growing(), &config());
    rig.gate.close(Refusal::TakeOver);
    rig.pass(60.0).await;
    assert_eq!((reported(&rig).len(), rig.series(SERIES)), (0, 0.0));
    // As another leader would leave it.
    let stage = Harness::start(Fixture::growing());
    stage.pass(60.0).await;
    let stage = stage.end().await;
    let next = Harness::with(stage, &config());
    next.pass(60.0).await;
    assert!(reported(&next).is_empty(), "{:?}", reported(&next));
    next.external("queue", "100");
    next.pass(30.0).await;
    assert_eq!(reported(&next).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn changes_of_many_hpas_at_once_are_spread() {
    const HPAS: u32 = 300;
    let stage = Fixture::new();
    for number in 0..HPAS {
        let name = format!("web-{number:03}");
        stage.target(&name, 4);
        stage.create(hpa(&name, &[external("queue", "10")]));
    }
    stage.external("queue", "40");
    let mut config = config();
    config.controller.qps = None;
    let rig = Harness::spread(stage, &config);
    rig.pass(320.0).await;
    let before = rig.series(SERIES);
    rig.external("queue", "80");
    rig.pass(16.0).await;
    let first = rig.series(SERIES) - before;
    // A burst of 50, and five per second for a period.
    assert!((50.0..=130.0).contains(&first), "{first} events in a period");
    rig.pass(74.0).await;
    assert_eq!(rig.series(SERIES) - before, f64::from(HPAS));
}
