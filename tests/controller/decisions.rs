//! The record of decisions over HTTP, the log line of each rescale, and the events of `--decision-events`.

use std::time::Duration;

use autoscaling::settings::{Settings, Version};
use cluster::gate::Refusal;
use concertina::serve::{Endpoints, Health, serve_connection};
use controller::options::Options;
use fake_cluster::FaultAction;
use flags::Config;
use journal::record::wire::{DecisionList, DecisionSummaryList, Failure, Outcome};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, HPAS, Harness, logs};

/// Status code, head and body of the response to a request.
async fn send(rig: &Harness, request_line: &str) -> (u16, String, String) {
    let endpoints = Endpoints::new(Health::new(), rig.telemetry.clone(), rig.assembly.decisions.clone());
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let server = tokio::spawn(serve_connection(server, endpoints, CancellationToken::new()));
    let request = format!("{request_line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    server.await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
}

async fn get<T: DeserializeOwned>(rig: &Harness, path: &str) -> T {
    let (_, head, body) = send(rig, &format!("GET {path}")).await;
    assert!(head.contains("content-type: application/json"), "{head}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// A queue of `items` for 4 workers with a target of 10 each.
fn queue(items: &str) -> Fixture {
    let stage = Fixture::new();
    stage.target("web", 4);
    stage.external("queue", items);
    stage.create(hpa("web", &[external("queue", "10")]));
    stage
}

#[tokio::test(start_paused = true)]
async fn decision_list_has_all_inputs_of_the_next_decision() {
    let config = Config::from(Options {
        settings: Settings { tolerance: 0.05, ..Settings::new(Version::V1_36) },
        sync_period: Duration::from_secs(10),
        ..Options::default()
    });
    let rig = Harness::with(queue("40"), &config);
    rig.pass(25.0).await;
    rig.external("queue", "80");
    rig.pass(30.0).await;

    let list: DecisionList = get(&rig, "/decisions/shop/web").await;
    assert_eq!((&*list.api_version, &*list.kind), ("concertina/v1", "DecisionList"));
    assert_eq!(list.metadata.uid, rig.hpa("web")["metadata"]["uid"]);
    assert_eq!((&*list.metadata.namespace, &*list.metadata.name), ("shop", "web"));
    assert_eq!(Settings::from(list.controller.settings), config.controller.settings);
    assert_eq!(
        (&*list.controller.version, list.controller.sync_period),
        (env!("CARGO_PKG_VERSION"), config.controller.sync_period)
    );
    assert_eq!(list.now, rig.clock.now());
    let entries: Vec<_> = list
        .decisions
        .iter()
        .map(|entry| ((entry.result.from, entry.result.to), entry.syncs, entry.result.outcome))
        .collect();
    assert_eq!(
        entries,
        [
            ((Some(8), Some(8)), 2, Outcome::NotNeeded),
            ((Some(4), Some(8)), 1, Outcome::Done),
            ((Some(4), Some(4)), 3, Outcome::NotNeeded),
        ]
    );
    let uid = &list.metadata.uid;
    assert_eq!(
        autoscaling::history::History::from(list.history),
        rig.assembly.controller.stores.histories.get(uid)
    );

    let (status, head, body) = send(&rig, "HEAD /decisions/shop/web").await;
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(head.contains("content-length: "), "{head}");
}

#[tokio::test(start_paused = true)]
async fn hpa_is_listed_before_its_first_decision_and_not_after_deletion() {
    let rig = Harness::start(queue("40"));
    rig.pass(1.0).await;
    assert!(!get::<DecisionList>(&rig, "/decisions/shop/web").await.decisions.is_empty());
    let uid = get::<DecisionList>(&rig, "/decisions/shop/web").await.metadata.uid;

    // The HPA is deleted while its sync waits for the scale write. The sync finishes after the record
    // has dropped the HPA.
    rig.fault("/web/scale", FaultAction::DelayAnswer(Duration::from_secs(5)));
    rig.external("queue", "80");
    rig.pass(22.0).await;
    rig.cluster.delete_now(HPAS, "shop", "web").unwrap();
    rig.pass(1.0).await;
    let not_found: Failure = get(&rig, "/decisions/shop/web").await;
    assert_eq!((not_found.code, &*not_found.reason), (404, "NotFound"));
    assert_eq!(not_found.message, "horizontalpodautoscalers.autoscaling \"web\" not found");
    rig.pass(20.0).await;
    assert_eq!(rig.replicas("web"), 8);
    assert!(rig.assembly.decisions.as_ref().unwrap().record().is_empty());
    assert!(rig.assembly.controller.stores.histories.is_empty());

    rig.create(hpa("web", &[external("queue", "10")]));
    rig.until("the HPA is in the store", 5.0, |_| rig.assembly.controller.stores.hpas.len() == 1).await;
    let list: DecisionList = get(&rig, "/decisions/shop/web").await;
    assert!(list.metadata.uid != uid && list.decisions.len() <= 1, "{:?}", list.decisions);
}

#[tokio::test(start_paused = true)]
async fn all_hpas_are_listed_page_by_page() {
    let stage = queue("40");
    for name in ["api", "jobs", "mail", "shop"] {
        stage.target(name, 4);
        let mut object = hpa(name, &[external("queue", "10")]);
        if name == "jobs" {
            object["metadata"]["annotations"] = json!({"concertina.dev/policy": "syncPeriodSeconds: 60"});
        }
        stage.create(object);
    }
    let rig = Harness::start(stage);
    rig.pass(2.0).await;
    let mut names = Vec::new();
    let mut query = "limit=2".to_owned();
    loop {
        let page: DecisionSummaryList = get(&rig, &format!("/decisions?{query}")).await;
        assert!(page.items.len() <= 2);
        for item in &page.items {
            let expected = (item.name == "jobs").then_some(Duration::from_mins(1));
            assert_eq!(item.sync_period, expected, "{}", item.name);
        }
        names.extend(page.items.into_iter().map(|item| (item.name, item.result.sentence)));
        let Some(next) = page.metadata.next else {
            assert_eq!(page.metadata.remaining_item_count, None);
            break;
        };
        assert_eq!(page.metadata.remaining_item_count, Some(5 - names.len()));
        query = format!("continue={}&limit=2", next.replace('/', "%2F"));
    }
    let expected = ["api", "jobs", "mail", "shop", "web"];
    assert_eq!(names.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), expected);
    let filtered: DecisionSummaryList = get(&rig, "/decisions?namespace=shop").await;
    assert_eq!(filtered.items.len(), 5);
    let other: DecisionSummaryList = get(&rig, "/decisions?namespace=sho&continue=a%2Fb").await;
    assert_eq!((other.items.len(), other.metadata.next), (0, None));
    assert!(names.iter().all(|(_, sentence)| sentence.starts_with("stays at 4: ")));
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_are_refused_with_a_reason() {
    let rig = Harness::start(queue("40"));
    rig.pass(1.0).await;
    for (path, code, said) in [
        ("/decisions/", 404, "the pages are"),
        ("/decisions/shop", 404, "the pages are"),
        ("/decisions/shop/web/x", 404, "the pages are"),
        ("/decisions/shop/none", 404, "\"none\" not found"),
        ("/decisions/other/web", 404, "\"web\" not found"),
        ("/decisions/shop/%2e%2e%2fweb", 400, "invalid name \"%2e%2e%2fweb\": "),
        ("/decisions/Shop/web", 400, "invalid namespace \"Shop\": "),
        ("/decisions/shop/%ff", 400, "invalid name \"%ff\": "),
        ("/decisions//web", 400, "invalid namespace \"\": "),
        ("/decisions?namespace=Shop", 400, "invalid namespace \"Shop\": "),
        ("/decisions?limit=many", 400, "limit \"many\" is not a count"),
        ("/decisions?continue=x", 400, "continue \"x\" is not a token of this server"),
    ] {
        let failure: Failure = get(&rig, path).await;
        assert!(failure.code == code && failure.message.contains(said), "{path}: {failure:?}");
        assert_eq!(send(&rig, &format!("GET {path}")).await.0, code, "{path}");
    }
    let name = "x".repeat(254);
    assert_eq!(send(&rig, &format!("GET /decisions/shop/{name}")).await.0, 400);
    assert_eq!(send(&rig, "GET /decisions/shop/w%65b").await.0, 200);
    assert_eq!(send(&rig, "GET /decisions?limit=0").await.0, 200);
    assert_eq!(send(&rig, "GET /decisionsx").await.0, 404);
    let (status, head, body) = send(&rig, "DELETE /decisions/shop/web").await;
    assert!(status == 405 && head.contains("allow: get, head"), "{head}");
    assert!(body.contains("\"reason\":\"MethodNotAllowed\""), "{body}");
}

#[tokio::test(start_paused = true)]
async fn record_can_be_disabled() {
    let rig =
        Harness::with(queue("40"), &Config::from(Options { decisions_per_hpa: 0, ..Options::default() }));
    rig.pass(1.0).await;
    assert!(rig.assembly.decisions.is_none());
    let failure: Failure = get(&rig, "/decisions/shop/web").await;
    assert!(failure.code == 404 && failure.message.contains("--decisions-per-hpa is 0"), "{failure:?}");
}

#[tokio::test(start_paused = true)]
async fn rescale_logs_one_line_with_the_metric_and_the_limit() {
    let rig = Harness::start(queue("40"));
    rig.edit("web", |hpa| hpa["spec"]["maxReplicas"] = json!(6));
    rig.pass(16.0).await;
    rig.external("queue", "80");
    rig.pass(60.0).await;
    let [line] = logs::with("shop/web").try_into().unwrap();
    for part in [
        "INFO",
        "hpa=shop/web",
        "from=4",
        "to=6",
        "metric=\"queue\"",
        "limited_by=\"maximum\"",
        "goes from 4 to 6: ",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains("withheld"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn dry_run_logs_the_withheld_rescale() {
    let rig = Harness::with(queue("80"), &Config::from(Options { dry_run: true, ..Options::default() }));
    rig.pass(1.0).await;
    let [line] = logs::with("shop/web").try_into().unwrap();
    assert!(line.contains("withheld=true") && line.contains("goes from 4 to 8: "), "{line}");
    let list: DecisionList = get(&rig, "/decisions/shop/web").await;
    assert_eq!(list.decisions[0].result.outcome, Outcome::Withheld);
}

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
    // The flag changes neither the other events nor the writes to the HPA.
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
    // At 8 replicas, the metric requests 8. The count stays, so no event is sent.
    rig.pass(600.0).await;
    assert_eq!(reported(&rig), [first]);
    // A new limit is a change. It is reported once, although each sync repeats the sentence.
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
    // A previous leader has already scaled the target of the HPA.
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
    // The rate limit permits a burst of 50 events, and then five events per second.
    assert!((50.0..=130.0).contains(&first), "{first} events in a period");
    rig.pass(74.0).await;
    assert_eq!(rig.series(SERIES) - before, f64::from(HPAS));
}
