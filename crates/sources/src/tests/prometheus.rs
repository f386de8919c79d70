//! Instant and range queries against servers in memory.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{PastReading, PastTarget, TimeRange};

const SUM: &str = "{metric: a, prometheus: {server: main, query: 'sum(up)'}}";
const QUEUE: &str = "{metric: jobs, prometheus: {server: main, query: 'sum(jobs{app=\"$name\"})'}}";
const WAITING_OF_PODS: &str =
    "{metric: waiting, prometheus: {server: main, query: 'sum by (pod) (waiting{pod=~\"$pods\"})'}}";

#[tokio::test(start_paused = true)]
async fn vector_is_matched_to_the_pods_of_the_target() {
    let rig = Rig::new(MAIN);
    rig.servers.serve("prometheus:9090", |_| {
        PageResponse::vector(&[(&[("pod", "web-1")], 2.5), (&[("pod", "web-9")], 7.0)])
    });
    let pods = [pod("web-1", 1), pod("web-2", 2)];
    assert_eq!(rig.per_pod(REQUESTS, &pods).await, named(&[("web-1", 2.5)]));
    let request = &rig.servers.requests()[0];
    assert_eq!(request.path, "/api/v1/query");
    assert_eq!(request.query, r#"sum by (pod) (requests{namespace="shop",pod=~"web-1|web-2"})"#);
}

#[tokio::test(start_paused = true)]
async fn query_of_another_namespace_is_restricted_to_the_own_one() {
    let rig = Rig::new(MAIN);
    rig.servers.serve("prometheus:9090", |_| PageResponse::vector(&[]));
    let metric = r#"{metric: a, prometheus: {server: main, query: 'sum(up{namespace="bank"})'}}"#;
    let reading = rig.read(metric, Form::Single, &[]).await.unwrap();
    assert_eq!(reading.values, Values::Single(None));
    assert_eq!(rig.servers.requests()[0].query, r#"sum(up{namespace="bank",namespace="shop"})"#);
}

#[tokio::test(start_paused = true)]
async fn equal_queries_share_an_answer_for_an_interval() {
    let rig = Rig::new(MAIN);
    rig.servers.serve("prometheus:9090", |_| PageResponse::vector(&[(&[], 4.0)]));
    for hpa in 0..10 {
        let reading = rig.read(SUM, Form::Single, &[]).await.unwrap();
        assert_eq!(reading.values, Values::Single(Some(4.0)), "{hpa}");
        advance(Duration::from_millis(90)).await;
    }
    assert_eq!(rig.servers.requests().len(), 1);
    advance(Duration::from_millis(200)).await;
    rig.read(SUM, Form::Single, &[]).await.unwrap();
    assert_eq!(rig.servers.requests().len(), 2);
    // Another namespace sends a separate query.
    rig.read_in("bank", SUM, Form::Single, &[]).await.unwrap();
    assert_eq!(rig.servers.requests().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn query_without_a_usable_answer_fails_with_its_cause() {
    let rig = Rig::new(MAIN);
    let data = json!({"resultType": "vector", "result": [{"metric": {}, "value": [0, "NaN"]}]});
    let answers = [
        (
            PageResponse::json(200, &json!({"status": "success", "data": data})),
            "the query returns NaN for {}: it must return finite numbers",
        ),
        (
            PageResponse::json(
                200,
                &json!({"status": "success", "warnings": ["store down"],
                "data": {"resultType": "vector", "result": []}}),
            ),
            "the answer may be incomplete: store down",
        ),
        (
            PageResponse::json(400, &json!({"status": "error", "errorType": "bad_data", "error": "no"})),
            "the server refused the query: bad_data: no",
        ),
        (
            PageResponse { status: 401, ..PageResponse::page("Unauthorized") },
            "the server answers 401 Unauthorized",
        ),
        (
            PageResponse { status: 302, location: "http://10.0.0.9/".to_owned(), ..PageResponse::page("") },
            "the server answers 302 Found: redirects are not followed",
        ),
        (PageResponse::page("x".repeat(5 << 20)), "the response has more than 4194304 bytes"),
        // A gzip stream, which could expand a thousand times. No request accepts one, and no answer is expanded.
        (
            PageResponse::page(&b"\x1f\x8b\x08\0\0\0\0\0\0\xff\xed\xc1\x01\x0d"[..]),
            "the answer is not one of Prometheus' query API: expected value at line 1 column 1",
        ),
        (
            PageResponse::page(
                r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":NaN},"value":[0,"1"]}]}}"#,
            ),
            "the answer is not one of Prometheus' query API: expected value at line 1 column 83",
        ),
    ];
    for (answer, expected) in answers {
        rig.servers.serve("prometheus:9090", move |_| answer.clone());
        advance(Duration::from_secs(2)).await;
        let failure = rig.read(SUM, Form::Single, &[]).await.unwrap_err();
        assert_eq!(failure.to_string(), format!("prometheus \"main\", query \"sum(up)\": {expected}"));
    }
    rig.servers.remove("prometheus:9090");
    let unknown = "{metric: a, prometheus: {server: other, query: 'sum(up)'}}";
    let failure = rig.read(unknown, Form::Single, &[]).await.unwrap_err();
    assert_eq!(failure.error, SourceError::UnknownServer);
}

#[tokio::test(start_paused = true)]
async fn slow_answer_is_a_timeout() {
    let rig = Rig::new(MAIN);
    let drip = Duration::from_secs(1);
    rig.servers
        .serve("prometheus:9090", move |_| PageResponse { drip, ..PageResponse::page("{\"status\":") });
    let started = Instant::now();
    let failure = rig.read(SUM, Form::Single, &[]).await.unwrap_err();
    assert_eq!(failure.error.to_string(), "no complete response within 5s");
    assert_eq!(started.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn namespace_outside_of_the_list_may_not_use_a_server() {
    let rig = Rig::new("prometheus: [{name: main, url: 'http://prometheus:9090', namespaces: [bank]}]");
    rig.servers.serve("prometheus:9090", |_| PageResponse::vector(&[(&[], 1.0)]));
    let failure = rig.read(SUM, Form::Single, &[]).await.unwrap_err();
    assert_eq!(failure.error, SourceError::Namespace);
    assert_eq!(rig.servers.requests(), []);
    assert!(rig.read_in("bank", SUM, Form::Single, &[]).await.is_ok());
    assert_eq!(failure.error.reason(), "NotAllowed");
}

#[tokio::test(start_paused = true)]
async fn number_older_than_allowed_is_an_error() {
    let rig = Rig::new("prometheus: [{name: main, url: 'http://prometheus:9090', interval: 1m}]");
    rig.servers.serve("prometheus:9090", |_| PageResponse::vector(&[(&[], 1.0)]));
    let metric = "{metric: a, maxAgeSeconds: 10, prometheus: {server: main, query: 'sum(up)'}}";
    assert!(rig.read(metric, Form::Single, &[]).await.is_ok());
    advance(Duration::from_secs(11)).await;
    let failure = rig.read(metric, Form::Single, &[]).await.unwrap_err();
    assert_eq!(failure.error, SourceError::TooOld(11, 10));
}

fn answer(field: &str, value: &Value) -> PageResponse {
    let mut body = json!({"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [0, "4"]}]}});
    body[field] = value.clone();
    PageResponse::json(200, &body)
}

async fn read_once(file: &str, address: &str, answer: PageResponse) -> (Result<Values, String>, Vec<String>) {
    let rig = Rig::new(file);
    rig.servers.serve(address, move |_| answer.clone());
    let read = rig.read(SUM, Form::Single, &[]).await;
    let paths = rig.servers.requests().into_iter().map(|request| request.path).collect();
    (read.map(|reading| reading.values).map_err(|failure| failure.error.to_string()), paths)
}

#[tokio::test(start_paused = true)]
async fn partial_answers_are_errors_unless_allowed() {
    let thanos = answer("warnings", &json!(["No StoreAPIs matched for this query"]));
    let victoria_metrics = answer("isPartial", &json!(true));
    for (answer, cause) in [
        (thanos, "No StoreAPIs matched for this query"),
        (victoria_metrics, "a part of the storage did not answer"),
    ] {
        let file = "prometheus: [{name: main, url: 'http://a:1'}]";
        let (values, _) = read_once(file, "a:1", answer.clone()).await;
        assert_eq!(values, Err(format!("the answer may be incomplete: {cause}")));
        let file = "prometheus: [{name: main, url: 'http://a:1', allowPartial: true}]";
        let (values, _) = read_once(file, "a:1", answer).await;
        assert_eq!(values, Ok(Values::Single(Some(4.0))));
    }
    // Since Prometheus 3, `infos` contains notes about the query. They do not make a response incomplete.
    let file = "prometheus: [{name: main, url: 'http://a:1'}]";
    let (values, _) =
        read_once(file, "a:1", answer("infos", &json!(["metric might not be a counter"]))).await;
    assert_eq!(values, Ok(Values::Single(Some(4.0))));
}

#[tokio::test(start_paused = true)]
async fn path_of_the_url_precedes_that_of_the_api() {
    for (url, path) in [
        ("http://a:1", "/api/v1/query"),
        ("http://a:1/prometheus", "/prometheus/api/v1/query"),
        ("http://a:1/select/0/prometheus/", "/select/0/prometheus/api/v1/query"),
    ] {
        let file = format!("prometheus: [{{name: main, url: '{url}'}}]");
        let (values, paths) = read_once(&file, "a:1", answer("infos", &json!([]))).await;
        assert_eq!((values, paths), (Ok(Values::Single(Some(4.0))), vec![path.to_owned()]));
    }
    // Mimir refuses a query without a tenant.
    let refused = PageResponse { status: 401, ..PageResponse::page("no org id\n") };
    let (values, _) =
        read_once("prometheus: [{name: main, url: 'http://a:1/prometheus'}]", "a:1", refused).await;
    assert_eq!(values, Err("the server answers 401 Unauthorized".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn extension_of_metricsql_is_refused() {
    let rig = Rig::new("prometheus: [{name: main, url: 'http://a:1'}]");
    rig.servers.serve("a:1", |_| PageResponse::vector(&[]));
    for query in ["sum(rate(up))", "up default 0", "up{a=\"b\" or c=\"d\"}"] {
        let metric = format!("{{metric: a, prometheus: {{server: main, query: '{query}'}}}}");
        let failure = rig.read(&metric, Form::Single, &[]).await.unwrap_err();
        assert_eq!(failure.error.reason(), "InvalidQuery", "{query}: {failure}");
    }
    assert_eq!(rig.servers.requests(), []);
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

async fn past(rig: &Rig, metric: &str, form: Form, seconds: i64) -> Result<PastReading, String> {
    let namespace: Arc<str> = "shop".into();
    let target = PastTarget { namespace: &namespace, kind: "Deployment", name: "web" };
    let range = TimeRange { start: at(1_000), end: at(1_000 + seconds) };
    let read = rig.sources.past(&rule(metric).origin, form, &target, range, range.step()).await.unwrap();
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
    let refused = json!({"status": "error", "errorType": "bad_data", "error": "no"});
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
async fn values_outside_of_the_range_are_not_of_the_past() {
    let rig = Rig::new(MAIN);
    rig.servers.serve("prometheus:9090", |_| {
        PageResponse::matrix(&[(&[], &[(999, 1.0), (1_000, 2.0), (1_060, 3.0), (99_999_999_999, 4.0)])])
    });
    let reading = past(&rig, QUEUE, Form::Single, 60).await.unwrap();
    assert_eq!(reading.totals, [(at(1_000), 2.0), (at(1_060), 3.0)]);
}

#[tokio::test(start_paused = true)]
async fn namespaces_take_turns_at_the_past_of_a_server() {
    let rig = Rig::new(MAIN);
    let origin = rule(QUEUE).origin;
    let [shop, bank]: [Arc<str>; 2] = ["shop".into(), "bank".into()];
    let order = Mutex::new(Vec::new());
    let read = async |namespace: &Arc<str>| {
        let _turn = rig.sources.turn(&origin, namespace).await.unwrap();
        order.lock().push(Arc::clone(namespace));
        sleep(Duration::from_secs(1)).await;
    };
    let started = Instant::now();
    futures::join!(read(&shop), read(&shop), read(&shop), read(&bank));
    assert_eq!(started.elapsed().as_secs(), 4);
    assert_eq!(order.into_inner(), [&shop, &shop, &bank, &shop].map(Arc::clone));
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
    let origin = rule(WAITING).origin;
    assert_eq!(rig.sources.past(&origin, Form::PerPod, &target, range, range.step()).await, None);
    assert!(rig.sources.turn(&origin, &namespace).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn timestamp_ahead_makes_no_page_and_no_answer_fresher() {
    let rig = Rig::new(&format!("{MAIN}\n{PODS}"));
    rig.servers.serve("10.0.0.1:8080", |_| PageResponse::page("waiting 3 1893456300000\n"));
    let reading = rig.read(WAITING, Form::PerPod, &[pod("web", 1)]).await.unwrap();
    assert_eq!((reading.values, reading.at), (Values::PerPod([("web".into(), 3.0)].into()), Instant::now()));
    let result = serde_json::json!([{"metric": {}, "value": [99_999_999_999.0, "4"]}]);
    let data = serde_json::json!({"resultType": "vector", "result": result});
    let answer = PageResponse::json(200, &serde_json::json!({"status": "success", "data": data}));
    rig.servers.serve("prometheus:9090", move |_| answer.clone());
    let metric = "{metric: a, maxAgeSeconds: 1, prometheus: {server: main, query: 'sum(up)'}}";
    let reading = rig.read(metric, Form::Single, &[]).await.unwrap();
    assert_eq!((reading.values, reading.at), (Values::Single(Some(4.0)), Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn query_that_takes_a_minute_is_an_error_and_delays_no_other_one() {
    let rig = Rig::new(
        "prometheus:\n- {name: main, url: 'http://prometheus:9090'}\n- {name: other, url: 'http://other:9090'}",
    );
    rig.servers.serve("prometheus:9090", |request| {
        let drip = Duration::from_secs(if request.query.contains("slow") { 60 } else { 0 });
        PageResponse { drip, ..PageResponse::vector(&[(&[], 1.0)]) }
    });
    let started = Instant::now();
    let slow: Vec<String> = (0..20)
        .map(|n| format!("{{metric: a, prometheus: {{server: main, query: 'sum(slow{{n=\"{n}\"}})'}}}}"))
        .collect();
    let slow = slow.iter().map(|metric| rig.read_in("hostile", metric, Form::Single, &[]));
    let quick = "{metric: a, prometheus: {server: main, query: 'sum(up)'}}";
    let (slow, quick) = futures::join!(futures::future::join_all(slow), async {
        sleep(Duration::from_millis(10)).await;
        let reading = rig.read(quick, Form::Single, &[]).await;
        (reading, started.elapsed())
    });
    assert_eq!(quick.0.unwrap().values, Values::Single(Some(1.0)));
    assert!(quick.1 < Duration::from_millis(100), "{:?}", quick.1);
    let timeout = "no complete response within 5s";
    let errors = slow
        .iter()
        .map(|result| result.as_ref().map_or_else(|failure| failure.error.to_string(), |_| String::new()));
    assert!(errors.clone().all(|error| !error.is_empty()) && errors.clone().any(|error| error == timeout));
}

#[tokio::test(start_paused = true)]
async fn oversized_query_sends_no_request() {
    let rig = Rig::new(MAIN);
    rig.servers.serve("prometheus:9090", |_| PageResponse::vector(&[(&[], 1.0)]));
    let mut rule = rule("{metric: a, prometheus: {server: main, query: 'sum(up)'}}");
    rule.origin = policies::spec::MetricOrigin::Prometheus {
        server: "main".into(),
        query: format!("sum({})", "a".repeat(1 << 20)).into(),
    };
    let namespace: Arc<str> = "shop".into();
    let target = Target { namespace: &namespace, name: "web", pods: &[], secrets: None };
    let failure = rig.sources.read(&rule, Form::Single, &target, now()).await.unwrap_err();
    assert_eq!(failure.error.to_string(), "the query has 1048581 bytes: at most 16384 are allowed");
    assert!(failure.to_string().len() < 500, "{failure}");
    assert_eq!(rig.servers.requests(), []);
}
