//! Tests of the three metrics APIs against the embedded cluster.

use std::time::Duration;

use autoscaling::query::{Answer, Query};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;
use crate::mapper::Mapper;
use crate::metrics::{ApiMetrics, Metrics, MetricsOptions};
use fake_cluster::metrics::StaticMetrics;
use fake_cluster::{FaultAction, FaultRule, MetricsBackend, MetricsReply, MetricsRequest};

/// A metrics backend that returns the same response to all requests.
#[derive(Debug)]
struct Fixed(Mutex<MetricsReply>);

impl MetricsBackend for Fixed {
    fn answer(&self, _: &MetricsRequest<'_>) -> MetricsReply {
        self.0.lock().clone()
    }
}

fn metrics(cluster: &Cluster, reply: MetricsReply, options: MetricsOptions) -> ApiMetrics {
    cluster.set_metrics(Arc::new(Fixed(Mutex::new(reply))));
    let clients = clients(cluster);
    let mapper = Arc::new(Mapper::new(clients.discovery.clone()));
    ApiMetrics::new(&clients, mapper, options)
}

fn resource() -> Query {
    Query::Resource { namespace: "shop".into(), selector: "app=web,tier in (a,b)".into() }
}

fn pods() -> Query {
    Query::Pods {
        namespace: "shop".into(),
        metric: "rps".into(),
        selector: "app=web".into(),
        metric_selector: "verb=GET".into(),
    }
}

fn object(group: &str, kind: &str, name: &str) -> Query {
    Query::Object {
        namespace: "shop".into(),
        group: group.into(),
        kind: kind.into(),
        name: name.into(),
        metric: "hits".into(),
        metric_selector: "".into(),
    }
}

fn external() -> Query {
    Query::External { namespace: "shop".into(), metric: "queue".into(), selector: "q=a".into() }
}

async fn error(metrics: &ApiMetrics, query: Query) -> String {
    metrics.fetch(query).await.unwrap_err().message.to_string()
}

fn pod_metrics(items: &Value) -> MetricsReply {
    MetricsReply::Json(
        json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items}),
    )
}

fn values(items: &Value) -> MetricsReply {
    MetricsReply::Json(
        json!({"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": {}, "items": items}),
    )
}

#[tokio::test(start_paused = true)]
async fn pod_usage_keeps_the_servers_order() {
    let cluster = cluster();
    let reply = pod_metrics(&json!([
        {"metadata": {"name": "b"}, "timestamp": "2026-01-01T00:00:10Z", "window": "1m0.5s",
         "containers": [{"name": "app", "usage": {"memory": "96Mi", "cpu": "1500m", "example.com/gpu": 2}}]},
        {"metadata": {"name": "a"}, "timestamp": null, "window": "0s", "containers": null},
    ]));
    let metrics = metrics(&cluster, reply, MetricsOptions::default());
    let Answer::Resource(usage) = metrics.fetch(resource()).await.unwrap() else { panic!() };
    assert_eq!(usage.iter().map(|usage| &*usage.pod).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(usage[0].timestamp, Some("2026-01-01T00:00:10Z".parse().unwrap()));
    assert_eq!(usage[0].window_nanos, 60_500_000_000);
    let list = &usage[0].containers[0].usage;
    assert_eq!(list.get("cpu").unwrap().to_string(), "1500m");
    assert_eq!(list.get("memory").unwrap().to_string(), "96Mi");
    assert_eq!(list.get("example.com/gpu").unwrap().to_string(), "2");
    assert!(usage[1].containers.is_empty() && usage[1].timestamp.is_none());
    assert_eq!(
        log(&cluster),
        [
            "list /apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dweb%2Ctier+in+%28a%2Cb%29"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn custom_metrics_use_version_and_resource_from_discovery() {
    let cluster = cluster();
    let reply = values(&json!([
        {"describedObject": {"name": "web-1"}, "metric": {"name": "rps"}, "timestamp": "2026-01-01T00:00:10Z",
         "windowSeconds": 60, "value": "2500m"},
        {"describedObject": {"name": "web-2"}, "metricName": "rps", "window": 30, "value": "1k"},
    ]));
    let metrics = metrics(&cluster, reply, MetricsOptions::default());
    let Answer::Custom(values) = metrics.fetch(pods()).await.unwrap() else { panic!() };
    assert_eq!((&*values[0].object, values[0].window_seconds), ("web-1", Some(60)));
    assert_eq!(values[1].window_seconds, Some(30));
    assert_eq!(values[1].value.milli_value(), 1_000_000);
    metrics.fetch(object("networking.k8s.io", "Ingress", "main")).await.unwrap();
    metrics.fetch(object("", "Service", "front")).await.unwrap();
    metrics.fetch(object("", "Namespace", "whatever")).await.unwrap();
    let requests: Vec<_> = log(&cluster).into_iter().filter(|line| line.contains("/namespaces/")).collect();
    let base = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop";
    let path = |line: &str| line.split_once(' ').unwrap().1.to_owned();
    assert_eq!(
        requests.iter().map(|line| path(line)).collect::<Vec<_>>(),
        [
            format!("{base}/pods/*/rps?labelSelector=app%3Dweb&metricLabelSelector=verb%3DGET"),
            format!("{base}/ingresses.networking.k8s.io/main/hits"),
            format!("{base}/services/front/hits"),
            format!("{base}/metrics/hits"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn custom_metrics_api_may_appear_and_disappear() {
    let cluster = cluster();
    let metrics = metrics(&cluster, values(&json!([])), MetricsOptions::default());
    cluster.set_discovery("custom.metrics.k8s.io", false);
    assert_eq!(error(&metrics, pods()).await, "no custom metrics API (custom.metrics.k8s.io) registered");
    cluster.set_discovery("custom.metrics.k8s.io", true);
    assert_eq!(error(&metrics, pods()).await, "no custom metrics API (custom.metrics.k8s.io) registered");
    tokio::time::advance(Duration::from_secs(15)).await;
    metrics.fetch(pods()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn custom_metrics_api_without_a_supported_version_is_named() {
    let cluster = cluster();
    let metrics = metrics(&cluster, values(&json!([])), MetricsOptions::default());
    let other = json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": "custom.metrics.k8s.io",
        "versions": [{"groupVersion": "custom.metrics.k8s.io/v9", "version": "v9"}],
        "preferredVersion": {"groupVersion": "custom.metrics.k8s.io/v9", "version": "v9"},
    });
    let answer = FaultAction::Body(other.to_string());
    cluster.faults().add(FaultRule::new(answer).path_suffix("/apis/custom.metrics.k8s.io"));
    assert_eq!(error(&metrics, pods()).await, "no known available metric versions found");
}

#[tokio::test(start_paused = true)]
async fn custom_metrics_are_read_in_the_last_version_while_discovery_fails() {
    let cluster = cluster();
    let metrics = metrics(&cluster, values(&json!([])), MetricsOptions::default());
    metrics.fetch(pods()).await.unwrap();
    let unavailable = FaultAction::Text { code: 503, body: "no".to_owned() };
    cluster.faults().add(FaultRule::new(unavailable).path_suffix("/apis/custom.metrics.k8s.io"));
    tokio::time::advance(Duration::from_mins(1)).await;
    metrics.fetch(pods()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn unknown_described_kind_is_named() {
    let cluster = cluster();
    let metrics = metrics(&cluster, values(&json!([])), MetricsOptions::default());
    assert_eq!(
        error(&metrics, object("example.org", "Sprocket", "x")).await,
        "unable to map kind Sprocket.example.org to resource: no matches for kind \"Sprocket\" in group \"example.org\""
    );
    assert_eq!(
        error(&metrics, object("", "Sprocket", "x")).await,
        "unable to map kind Sprocket to resource: no matches for kind \"Sprocket\" in group \"\""
    );
}

#[tokio::test(start_paused = true)]
async fn faults_read_as_in_the_recordings() {
    let cluster = cluster();
    let text = |code, body: &str| MetricsReply::Text { code, body: body.to_owned() };
    for (reply, query, expected) in [
        (
            MetricsReply::Absent,
            resource(),
            "the server could not find the requested resource (get pods.metrics.k8s.io)",
        ),
        (
            text(500, "boom\n"),
            pods(),
            "an error on the server (\"boom\") has prevented the request from succeeding (get pods.custom.metrics.k8s.io *)",
        ),
        (
            text(500, "boom\n"),
            object("", "Service", "front"),
            "an error on the server (\"boom\") has prevented the request from succeeding (get services.custom.metrics.k8s.io front)",
        ),
        (
            text(503, "service unavailable\n"),
            external(),
            "the server is currently unable to handle the request (get queue.external.metrics.k8s.io)",
        ),
        (
            MetricsReply::Status(fake_cluster::Status::new(
                404,
                "NotFound",
                "the server could not find the metric",
            )),
            external(),
            "the server could not find the metric",
        ),
    ] {
        let metrics = metrics(&cluster, reply, MetricsOptions::default());
        assert_eq!(error(&metrics, query).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn external_metric_is_lower_case_in_the_path_but_not_in_errors() {
    let cluster = cluster();
    let metrics = metrics(&cluster, MetricsReply::Json(json!({"items": []})), MetricsOptions::default());
    let adapter = Arc::new(StaticMetrics::new());
    adapter.set_external(json!({"queue\u{e4}length": {"items": [
        {"metricName": "Queue\u{c4}Length", "metricLabels": {}, "timestamp": "2026-01-01T00:00:10Z", "value": "12"}]}}));
    cluster.set_metrics(adapter.clone());
    let query = || Query::External {
        namespace: "shop".into(),
        metric: "Queue\u{c4}Length".into(),
        selector: "".into(),
    };
    let Answer::External(series) = metrics.fetch(query()).await.unwrap() else { panic!() };
    assert_eq!(series.iter().map(|value| value.value.value()).collect::<Vec<_>>(), [12]);

    adapter
        .set_external(json!({"queue\u{e4}length": {"fault": {"code": 503, "text": "service unavailable"}}}));
    assert_eq!(
        error(&metrics, query()).await,
        "the server is currently unable to handle the request (get Queue\u{c4}Length.external.metrics.k8s.io)"
    );
}

#[tokio::test(start_paused = true)]
async fn external_series_keep_the_servers_order() {
    let cluster = cluster();
    let reply = MetricsReply::Json(json!({"kind": "ExternalMetricValueList", "items": [
        {"metricName": "queue", "metricLabels": {"q": "a"}, "timestamp": "2026-01-01T00:00:10Z", "value": "12"},
        {"metricName": "queue", "metricLabels": {"q": "b"}, "timestamp": "2026-01-01T00:00:10Z", "value": "-3"}]}));
    let metrics = metrics(&cluster, reply, MetricsOptions::default());
    let Answer::External(series) = metrics.fetch(external()).await.unwrap() else { panic!() };
    assert_eq!(series.iter().map(|value| value.value.value()).collect::<Vec<_>>(), [12, -3]);
}

#[tokio::test(start_paused = true)]
async fn invalid_responses_fail_the_metric_with_a_clear_error() {
    let cluster = cluster();
    let metrics = metrics(&cluster, pod_metrics(&json!([])), MetricsOptions::default());
    let body = |body: &str| cluster.faults().add(FaultRule::new(FaultAction::Body(body.to_owned())).times(1));
    body("{\"kind\":\"PodMetricsList\",\"items\":[{\"metadata\":{\"na");
    assert_eq!(
        error(&metrics, resource()).await,
        "couldn't get version/kind; json parse error: unexpected end of JSON input"
    );
    body("{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"items\":[]}");
    assert_eq!(
        error(&metrics, resource()).await,
        "no kind \"ConfigMapList\" is registered for version \"v1\": expected a PodMetricsList"
    );
    body("{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"not possible\",\"code\":500}");
    assert_eq!(error(&metrics, resource()).await, "not possible");
    body("<html>hello</html>");
    assert!(error(&metrics, resource()).await.starts_with("couldn't get version/kind; json parse error: "));
    body(
        r#"{"kind":"PodMetricsList","items":[{"metadata":{"name":"a"},"containers":[{"name":"c","usage":{"cpu":"lots"}}]}]}"#,
    );
    assert_eq!(
        error(&metrics, resource()).await,
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
    cluster.faults().add(FaultRule::new(FaultAction::Truncate(10)).times(1));
    assert!(error(&metrics, resource()).await.contains("unexpected EOF"));
}

#[tokio::test(start_paused = true)]
async fn time_and_size_are_bounded() {
    let cluster = cluster();
    let items = json!([{"metadata": {"name": "x".repeat(300)}}]);
    let options =
        MetricsOptions { timeout: Duration::from_secs(7), max_response: 200, ..MetricsOptions::default() };
    let metrics = metrics(&cluster, pod_metrics(&items), options);
    assert_eq!(error(&metrics, resource()).await, "the response is larger than 200 bytes");
    cluster.faults().add(FaultRule::new(FaultAction::Silence));
    let start = Instant::now();
    assert_eq!(
        error(&metrics, external()).await,
        "Get \"http://embedded/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue?labelSelector=q%3Da\": \
         context deadline exceeded"
    );
    assert_eq!(start.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn concurrent_equal_queries_are_one_request() {
    let cluster = cluster();
    let metrics = metrics(&cluster, pod_metrics(&json!([])), MetricsOptions::default());
    let calls = (0..50).map(|_| metrics.fetch(resource()));
    assert!(futures::future::join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!(cluster.requests().len(), 1);
    metrics.fetch(resource()).await.unwrap();
    assert_eq!(cluster.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_hung_apis_leave_permits_for_the_third() {
    for (per_api, total, permits) in [(2, 5, 2), (256, 7, 3), (256, 3, 1)] {
        let cluster = cluster();
        let options = MetricsOptions { per_api, total, ..MetricsOptions::default() };
        let metrics = metrics(&cluster, pod_metrics(&json!([])), options);
        for dead in ["/apis/external.metrics.k8s.io", "/apis/custom.metrics.k8s.io/v1beta2"] {
            cluster.faults().add(FaultRule::new(FaultAction::Silence).path_prefix(dead));
        }
        let ask = |query| {
            let metrics = metrics.clone();
            tokio::spawn(async move { metrics.fetch(query).await })
        };
        let namespace = |n: u32| format!("team-{}", n % 3).into();
        let external = |n: u32| Query::External {
            namespace: namespace(n),
            metric: format!("m{n}").into(),
            selector: "".into(),
        };
        let described = |n: u32| Query::Object {
            namespace: namespace(n),
            group: "".into(),
            kind: "Namespace".into(),
            name: format!("n{n}").into(),
            metric: format!("m{n}").into(),
            metric_selector: "".into(),
        };
        let mut stuck: Vec<_> = (0..10).map(|n| ask(external(n))).collect();
        stuck.extend((0..10).map(|n| ask(described(n))));
        tokio::time::sleep(Duration::from_millis(1)).await;
        let start = Instant::now();
        metrics.fetch(resource()).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
        let in_flight = |api: &str| {
            let prefix = format!("/apis/{api}.metrics.k8s.io/");
            let is_query = |path: &str| path.starts_with(&prefix) && path.contains("/namespaces/");
            cluster.requests().count(|request| is_query(&request.path))
        };
        assert_eq!((in_flight("external"), in_flight("custom")), (permits, permits), "{per_api} of {total}");
        for waiting in stuck {
            assert!(waiting.await.unwrap().is_err());
        }
    }
}
