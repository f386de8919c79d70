//! Histories of forecasts from a Prometheus server. The load is that of `forecasts`: two pods, and 20 pods from ten to
//! twenty past midnight.

use std::sync::Arc;
use std::time::Duration;

use engine::store::Key;
use fake_cluster::pages::{PageRequest, PageResponse, PageServers};
use serde_json::{Value, json};

use crate::forecasts::history;
use crate::policies::{active, annotated};
use crate::sources::{SourceFile, config};
use crate::support::objects::{HPAS, SHOP, external, hpa};
use crate::support::{Fixture, Harness};

const FILE: &str = "prometheus: [{name: main, url: 'http://prometheus:9090', enforceNamespaceLabel: namespace, timeout: 2s}]";
const SERVER: &str = "prometheus:9090";
const QUERY: &str = "prometheus \"main\", query \"sum(jobs{app=\\\"web\\\",namespace=\\\"shop\\\"})\"";

/// A server of pages.
type Serve = Box<dyn Fn(&PageRequest) -> PageResponse + Send + Sync>;

/// A policy with the history of a server.
fn policy(fields: &str) -> String {
    format!(
        "forecast: {{horizonSeconds: 180, budget: 20%, {fields}, \
         history: {{server: main, query: 'sum(jobs{{app=\"$name\"}})'}}}}"
    )
}

/// Answers a range query with the total of the minute before each time. A pod serves 15.
fn answer(request: &PageRequest, total: impl Fn(i64) -> f64) -> PageResponse {
    let field = |name: &str| {
        let value = request.fields.iter().find(|(field, _)| field == name);
        value.unwrap_or_else(|| panic!("{request:?}")).1.parse::<i64>().unwrap()
    };
    let times = (field("start")..=field("end")).step_by(usize::try_from(field("step")).unwrap());
    let values: Vec<_> = times.map(|at| (at, total((at / 60 - 1).rem_euclid(1440)))).collect();
    PageResponse::matrix(&[(&[], &values)])
}

fn usual(minute: i64) -> f64 {
    if (10..20).contains(&minute) { 300.0 } else { 30.0 }
}

/// The HPA `web` of at most ten pods, and the HPA `api` without a policy.
fn stage(policy: &str) -> Fixture {
    let stage = Fixture::new();
    stage.external("queue", "30");
    for name in ["web", "api"] {
        stage.target(name, 3);
        let mut object = hpa(name, &[external("queue", "10")]);
        object["spec"]["behavior"] =
            json!({"scaleUp": {"policies": [{"type": "Percent", "value": 900, "periodSeconds": 15}]}});
        stage.create(if name == "web" { annotated(object, policy) } else { object });
    }
    stage
}

fn start(servers: &PageServers, policy: &str) -> (Harness, SourceFile) {
    let (config, file) = config(servers, FILE);
    (Harness::with(stage(policy), &config), file)
}

fn uid(object: &Value) -> Arc<str> {
    object["metadata"]["uid"].as_str().unwrap().into()
}

/// The reason of the last forecast.
fn reason(rig: &Harness) -> String {
    let list = rig.assembly.decisions.as_ref().unwrap().list(&Key::new("shop", "web")).unwrap();
    let policy = list.decisions[0].policy.as_ref().unwrap();
    policy.forecast.as_ref().unwrap().reason.to_string()
}

#[tokio::test(start_paused = true)]
async fn floor_of_a_new_forecast_comes_before_the_load_of_the_servers_past() {
    let servers = PageServers::default();
    servers.serve(SERVER, |request| answer(request, usual));
    let (rig, _file) = start(&servers, &policy("mode: Floor"));
    rig.pass(6.0 * 60.0).await;
    assert_eq!(rig.replicas("web"), 3);
    rig.until("the floor", 90.0, |stage| stage.replicas("web") == 8).await;
    rig.pass(1.0).await;
    assert!(
        active(&rig).starts_with("True ForecastFloor the forecast sets a floor from "),
        "{}",
        active(&rig)
    );
    assert!(reason(&rig).contains("similar days peaked at 20"), "{}", reason(&rig));
    let requests = servers.requests();
    assert_eq!(requests.len(), 14, "one for each day, and never again");
    assert!(requests.iter().all(|request| request.path == "/api/v1/query_range"));
    assert_eq!(requests[0].query, "sum(jobs{app=\"web\",namespace=\"shop\"})");
    let fields = |index: usize| requests[index].fields[1..].iter().map(|(_, value)| value.as_str());
    assert_eq!(fields(0).collect::<Vec<_>>(), ["1892246460", "1892332800", "60"]);
    assert_eq!(fields(13).collect::<Vec<_>>(), ["1893369660", "1893456000", "60"]);
}

#[tokio::test(start_paused = true)]
async fn history_that_cannot_be_read_changes_nothing_and_is_read_later() {
    let series = |count: usize| {
        let series = r#"{"metric":{},"values":[[0,"1"]]},"#.repeat(count);
        let series = series.trim_end_matches(',');
        PageResponse::page(format!(
            r#"{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}"#
        ))
    };
    let whole = |request: &PageRequest| answer(request, usual);
    let (million, several) = (series(1_000_000), series(20_000));
    let cases: [(Option<Serve>, &str); 8] = [
        (None, "connection"),
        (
            Some(Box::new(move |request| PageResponse { drip: Duration::from_secs(1), ..whole(request) })),
            "no complete response within 2s",
        ),
        (
            Some(Box::new(move |request| {
                let body = whole(request).body;
                PageResponse::page(body.slice(..body.len() / 2))
            })),
            "the answer is not one of Prometheus' query API: EOF while parsing",
        ),
        (Some(Box::new(move |_| million.clone())), "the response has more than 4194304 bytes"),
        (Some(Box::new(move |_| several.clone())), "more than 10000 series"),
        (
            Some(Box::new(|_| {
                PageResponse::matrix(&[
                    (&[("a", "1")], &[(1_893_400_000, 1.0)]),
                    (&[], &[(1_893_400_000, 1.0)]),
                ])
            })),
            "2 series",
        ),
        (
            Some(Box::new(|request| answer(request, |_| f64::NAN))),
            "the query returns no series of the target in this time",
        ),
        (
            Some(Box::new(|_| PageResponse { status: 503, ..PageResponse::page("down") })),
            "503 Service Unavailable",
        ),
    ];
    let plain = {
        let rig = Harness::start(stage("forecast: {}"));
        rig.pass(120.0).await;
        ["web", "api"].map(|name| rig.syncs(name))
    };
    for (serve, expected) in cases {
        let servers = PageServers::default();
        if let Some(serve) = serve {
            servers.serve(SERVER, serve);
        }
        let (rig, _file) = start(&servers, &policy("mode: Floor"));
        rig.pass(120.0).await;
        let start = format!("no floor: the history has 0.0 of 3.0 days; history from {QUERY}: ");
        let shown = reason(&rig);
        assert!(shown.starts_with(&start) && shown.contains(expected), "{expected}: {shown}");
        assert_eq!(
            active(&rig),
            "False NoEffect the scaling policy changes nothing at the moment; the forecast has no floor: the history \
             is too short, and its source cannot be read"
        );
        assert_eq!(["web", "api"].map(|name| rig.syncs(name)), plain, "{expected}");
        assert!(rig.telemetry.render().contains("concertina_metric_source_errors_total{"), "{expected}");
        servers.serve(SERVER, move |request| whole(request));
        rig.until("the floor", 500.0, |stage| stage.replicas("web") == 8).await;
    }
}

#[tokio::test(start_paused = true)]
async fn namespace_without_permission_reads_no_history() {
    let servers = PageServers::default();
    servers.serve(SERVER, |request| answer(request, usual));
    let file = "prometheus: [{name: main, url: 'http://prometheus:9090', namespaces: [bank]}]";
    let (config, _file) = config(&servers, file);
    let rig = Harness::with(stage(&policy("mode: Floor")), &config);
    rig.pass(120.0).await;
    let shown = reason(&rig);
    assert!(shown.ends_with("the source file does not allow this namespace to use it"), "{shown}");
    assert_eq!(servers.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn history_needs_the_file_of_sources_and_a_target_per_pod() {
    let rig = Harness::start(stage(&policy("mode: Floor")));
    rig.pass(90.0).await;
    assert!(reason(&rig).ends_with(": --metric-sources is not set"), "{}", reason(&rig));
    let servers = PageServers::default();
    servers.serve(SERVER, |request| answer(request, usual));
    let (config, _file) = config(&servers, FILE);
    let stage = stage(&policy("mode: Floor"));
    let target = json!({"type": "Value", "value": "10"});
    stage.edit("web", |hpa| hpa["spec"]["metrics"][0]["external"]["target"] = target);
    let rig = Harness::with(stage, &config);
    rig.pass(90.0).await;
    assert!(reason(&rig).contains("no metric of the HPA has a target of type "), "{}", reason(&rig));
    assert_eq!(servers.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn another_query_is_read_at_once() {
    let servers = PageServers::default();
    servers.serve(SERVER, |request| {
        if request.query.contains("wrong") { PageResponse::matrix(&[]) } else { answer(request, usual) }
    });
    let (rig, _file) = start(&servers, &policy("mode: Floor").replace("jobs", "wrong"));
    rig.pass(300.0).await;
    assert!(
        reason(&rig).ends_with("the query returns no series of the target in this time"),
        "{}",
        reason(&rig)
    );
    let wrong = servers.requests().len();
    rig.edit("web", |hpa| {
        hpa["metadata"]["annotations"] = json!({"concertina.dev/policy": policy("mode: Floor")});
    });
    rig.pass(20.0).await;
    assert_eq!(servers.requests().len(), wrong + 14);
    rig.pass(60.0).await;
    assert!(!reason(&rig).contains("history"), "{}", reason(&rig));
}

#[tokio::test(start_paused = true)]
async fn history_of_a_deleted_hpa_is_not_that_of_the_next() {
    let servers = PageServers::default();
    // The answer to each day takes about a second.
    servers.serve(SERVER, |request| {
        let end = request.fields[2].1.parse().unwrap();
        PageResponse { drip: Duration::from_millis(10), ..PageResponse::matrix(&[(&[], &[(end, 30.0)])]) }
    });
    let (rig, _file) = start(&servers, &policy("mode: Floor"));
    rig.pass(5.0).await;
    assert!((2..10).contains(&servers.requests().len()), "{:?}", servers.requests());
    let old = uid(&rig.hpa("web"));
    rig.cluster.delete(HPAS, SHOP, "web").unwrap();
    rig.create(annotated(hpa("web", &[external("queue", "10")]), "forecast: {mode: Floor, budget: 20%}"));
    assert_ne!(uid(&rig.hpa("web")), old);
    let sent = servers.requests().len();
    rig.pass(100.0).await;
    assert_eq!(reason(&rig), "no floor: the history has 0.0 of 3.0 days");
    assert_eq!(servers.requests().len(), sent, "the read ends with its HPA");
}

#[tokio::test(start_paused = true)]
async fn own_history_is_kept_if_it_is_longer() {
    for (minimum, days_of_server, known, requests) in
        [("3d", 14, "", 0), ("7d", 4, "the history has 6.0 of 7.0 days", 14), ("7d", 14, "", 14)]
    {
        let servers = PageServers::default();
        servers.serve(SERVER, move |request| {
            let start: i64 = request.fields[1].1.parse().unwrap();
            let is_known = start > 1_893_456_000 - days_of_server * 86_400;
            if is_known { answer(request, |_| 30.0) } else { PageResponse::matrix(&[]) }
        });
        let policy = policy(&format!("mode: Floor, minimumHistory: {minimum}"));
        let (rig, _file) = start(&servers, &policy);
        let uid = uid(&rig.hpa("web"));
        let stored = history(&uid).into();
        rig.assembly.controller.stores.histories.commit_forecast(&uid, Some(stored));
        rig.pass(120.0).await;
        assert_eq!(servers.requests().len(), requests, "{minimum} {days_of_server}");
        let shown = reason(&rig);
        assert!(
            if known.is_empty() { !shown.contains("the history has") } else { shown.contains(known) },
            "{shown}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn read_history_is_stored() {
    let servers = PageServers::default();
    servers.serve(SERVER, |request| answer(request, usual));
    let (rig, _file) = start(&servers, &policy("mode: Preview"));
    rig.pass(60.0).await;
    let stored = rig.assembly.controller.stores.histories.forecast(&uid(&rig.hpa("web")));
    assert!(stored.is_some());
}
