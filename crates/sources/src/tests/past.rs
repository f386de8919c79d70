//! Range queries against servers in memory.

use jiff::Timestamp;

use super::*;
use crate::{PastReading, PastTarget, TimeRange};

const QUEUE: &str = "{metric: jobs, prometheus: {server: main, query: 'sum(jobs{app=\"$name\"})'}}";
const WAITING_OF_PODS: &str =
    "{metric: waiting, prometheus: {server: main, query: 'sum by (pod) (waiting{pod=~\"$pods\"})'}}";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

async fn past(rig: &Rig, metric: &str, form: Form, seconds: i64) -> Result<PastReading, String> {
    let namespace: Arc<str> = "shop".into();
    let target = PastTarget { namespace: &namespace, kind: "Deployment", name: "web" };
    let range = TimeRange { start: at(1_000), end: at(1_000 + seconds) };
    let read = rig.sources.past(&rule(metric), form, &target, range).await.unwrap();
    read.map_err(|failure| failure.to_string())
}

#[tokio::test(start_paused = true)]
async fn past_of_a_query_is_read_with_the_restriction_of_a_sync() {
    let rig = Rig::new(MAIN);
    rig.servers.serve("prometheus:9090", |_| PageResponse::matrix(&[(&[], &[(1_000, 4.0), (1_180, 6.5)])]));
    let reading = past(&rig, QUEUE, Form::Single, 24 * 3_600).await.unwrap();
    assert_eq!(reading.totals, [(at(1_000), 4.0), (at(1_180), 6.5)]);
    assert_eq!(reading.server, "main");
    let requests = rig.servers.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].path, "/api/v1/query_range");
    assert_eq!(requests[0].query, "sum(jobs{app=\"web\",namespace=\"shop\"})");
    let fields: Vec<_> = requests[0].fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(fields, ["timeout=5000ms", "start=1000", "end=87400", "step=180"]);
}

#[tokio::test(start_paused = true)]
async fn past_of_pods_is_the_sum_over_those_that_the_target_has_had() {
    let rig = Rig::new(MAIN);
    rig.servers.serve("prometheus:9090", |_| {
        PageResponse::matrix(&[
            (&[("pod", "web-7d9f8c6b5-aaaaa")], &[(1_000, 1.0), (1_015, 2.0)]),
            (&[("pod", "web-5c6b7d9f8-bbbbb")], &[(1_015, 3.0)]),
            (&[("pod", "web-admin-7d9f8c6b5-ccccc")], &[(1_000, 100.0)]),
        ])
    });
    let reading = past(&rig, WAITING_OF_PODS, Form::PerPod, 60).await.unwrap();
    assert_eq!(reading.totals, [(at(1_000), 1.0), (at(1_015), 5.0)]);
    let request = &rig.servers.requests()[0];
    let expected = "sum by (pod) (waiting{namespace=\"shop\",pod=~\"web-[a-z0-9]+-[a-z0-9]{5}\"})";
    assert_eq!(request.query, expected);
    assert!(request.fields.contains(&("step".to_owned(), "15".to_owned())), "{request:?}");
}

#[tokio::test(start_paused = true)]
async fn unusable_past_is_a_sentence_with_the_query() {
    let rig = Rig::new(
        "prometheus: [{name: main, url: 'http://prometheus:9090', maxBytes: 1Ki}, \
         {name: bank, url: 'http://prometheus:9090', namespaces: [bank]}]",
    );
    let refused = serde_json::json!({"status": "error", "errorType": "bad_data", "error": "no"});
    for (answer, expected) in [
        (PageResponse::matrix(&[]), "the query returns no series of the target in this time"),
        (PageResponse::json(400, &refused), "the server refused the query: bad_data: no"),
        (
            PageResponse::vector(&[]),
            "the query returns a vector: it must return an instant vector or a scalar",
        ),
        (PageResponse::page("x".repeat(2_000)), "the response has more than 1024 bytes"),
        (
            PageResponse { status: 503, ..PageResponse::page("down") },
            "the server answers 503 Service Unavailable",
        ),
    ] {
        rig.servers.serve("prometheus:9090", move |_| answer.clone());
        let error =
            past(&rig, "{metric: a, prometheus: {server: main, query: 'sum(up)'}}", Form::Single, 60).await;
        assert_eq!(error, Err(format!("prometheus \"main\", query \"sum(up)\": {expected}")));
        advance(Duration::from_secs(2)).await;
    }
    let sent = rig.servers.requests().len();
    for (server, expected) in [
        ("other", "the source file has no such server"),
        ("bank", "the source file does not allow this namespace to use it"),
    ] {
        let metric = format!("{{metric: a, prometheus: {{server: {server}, query: 'sum(up)'}}}}");
        let error = past(&rig, &metric, Form::Single, 60).await.unwrap_err();
        assert!(error.ends_with(expected), "{error}");
    }
    assert_eq!(rig.servers.requests().len(), sent);
}

#[tokio::test(start_paused = true)]
async fn slow_past_ends_with_the_time_limit_of_its_server() {
    let rig = Rig::new(MAIN);
    let drip = Duration::from_secs(1);
    rig.servers
        .serve("prometheus:9090", move |_| PageResponse { drip, ..PageResponse::page("{\"status\":") });
    let started = Instant::now();
    let error = past(&rig, QUEUE, Form::Single, 60).await.unwrap_err();
    assert!(error.ends_with("no complete response within 5s"), "{error}");
    assert_eq!(started.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn source_without_a_server_has_no_past() {
    let rig = Rig::new(PODS);
    let namespace: Arc<str> = "shop".into();
    let target = PastTarget { namespace: &namespace, kind: "Deployment", name: "web" };
    let range = TimeRange { start: at(0), end: at(60) };
    assert_eq!(rig.sources.past(&rule(WAITING), Form::PerPod, &target, range).await, None);
}
