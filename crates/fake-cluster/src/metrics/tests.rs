use std::sync::Arc;

use serde_json::{Value, json};

use super::StaticMetrics;
use crate::{Cluster, MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};
use clock::SystemClock;

/// A request to a backend.
struct Request<'a> {
    api: MetricsApi,
    path: &'a [&'a str],
    labels: &'a str,
    metric_labels: &'a str,
}

impl Request<'_> {
    fn send(&self, metrics: &StaticMetrics, cluster: &Cluster) -> MetricsReply {
        let path: Vec<String> = self.path.iter().map(ToString::to_string).collect();
        metrics.answer(&MetricsRequest {
            cluster,
            api: self.api,
            version: if self.api == MetricsApi::Custom { "v1beta2" } else { "v1beta1" },
            namespace: "shop",
            path: &path,
            label_selector: self.labels,
            metric_label_selector: self.metric_labels,
        })
    }
}

fn resource(labels: &str) -> Request<'_> {
    Request { api: MetricsApi::Resource, path: &["pods"], labels, metric_labels: "" }
}

fn custom<'a>(path: &'a [&'a str], metric_labels: &'a str) -> Request<'a> {
    Request { api: MetricsApi::Custom, path, labels: "", metric_labels }
}

fn external(labels: &str) -> Request<'_> {
    Request { api: MetricsApi::External, path: &["queue_depth"], labels, metric_labels: "" }
}

fn cluster() -> Cluster {
    Cluster::new(Arc::new(SystemClock))
}

fn json_of(reply: MetricsReply) -> Value {
    match reply {
        MetricsReply::Json(value) => value,
        other => panic!("expected JSON, got {other:?}"),
    }
}

/// Returns the values at `pointer` of the items of a list.
fn column(reply: MetricsReply, pointer: &str) -> Vec<String> {
    let list = json_of(reply);
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item.pointer(pointer).and_then(Value::as_str).expect("text").to_owned()).collect()
}

fn pod_metrics(namespace: &str, name: &str, app: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "timestamp": "2000-01-01T00:00:10Z", "window": "30s",
        "containers": [{"name": "app", "usage": {"cpu": "52m", "memory": "34339Ki"}}],
    })
}

fn value_item(kind: &str, api_version: Option<&str>, name: &str, value: &str) -> Value {
    let mut described = json!({"kind": kind, "namespace": "shop", "name": name});
    if let Some(api_version) = api_version {
        described["apiVersion"] = api_version.into();
    }
    json!({"describedObject": described, "metric": {"name": "hits", "selector": null}, "timestamp": "2000-01-01T00:00:10Z", "value": value})
}

fn series(labels: &Value, value: &str) -> Value {
    let mut item = value_item("Service", Some("v1"), "front", value);
    if !labels.is_null() {
        item["metric"]["selector"] = json!({"matchLabels": labels});
    }
    item
}

fn hits(items: &[Value]) -> StaticMetrics {
    let metrics = StaticMetrics::new();
    metrics.set_custom(json!({"hits": {"items": items}}));
    metrics
}

#[test]
fn resource_api_is_absent_without_resource_metrics() {
    let metrics = StaticMetrics::new();
    assert_eq!(resource("").send(&metrics, &cluster()), MetricsReply::Absent);
    metrics.set_resource(Some(json!({})));
    metrics.set_resource(Some(Value::Null));
    assert_eq!(resource("").send(&metrics, &cluster()), MetricsReply::Absent);
    metrics.set_resource(Some(json!({})));
    metrics.set_resource(None);
    assert_eq!(resource("").send(&metrics, &cluster()), MetricsReply::Absent);
}

#[test]
fn empty_resource_metrics_return_an_empty_list() {
    let metrics = StaticMetrics::new();
    metrics.set_resource(Some(json!({})));
    let expected = json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": []});
    assert_eq!(json_of(resource("app=web").send(&metrics, &cluster())), expected);
}

#[test]
fn resource_metrics_are_filtered_and_keep_their_order() {
    let metrics = StaticMetrics::new();
    metrics.set_resource(Some(json!({"items": [
        pod_metrics("shop", "web-2", "web"),
        pod_metrics("shop", "db-1", "db"),
        pod_metrics("other", "web-9", "web"),
        pod_metrics("shop", "web-1", "web"),
    ]})));
    assert_eq!(column(resource("app=web").send(&metrics, &cluster()), "/metadata/name"), ["web-2", "web-1"]);
    assert_eq!(column(resource("").send(&metrics, &cluster()), "/metadata/name"), ["web-2", "db-1", "web-1"]);
    assert_eq!(column(resource("app in (db)").send(&metrics, &cluster()), "/metadata/name"), ["db-1"]);
}

#[test]
fn pod_resource_metrics_can_be_read_by_name() {
    let metrics = StaticMetrics::new();
    metrics.set_resource(Some(json!({"items": [pod_metrics("shop", "web-1", "web")]})));
    let by_name = |name| {
        Request { api: MetricsApi::Resource, path: &["pods", name], labels: "", metric_labels: "" }
            .send(&metrics, &cluster())
    };
    assert_eq!(json_of(by_name("web-1"))["kind"], "PodMetrics");
    assert!(matches!(by_name("web-2"), MetricsReply::Status(status) if status.code == 404));
}

#[test]
fn fault_returns_text_or_a_status() {
    let metrics = StaticMetrics::new();
    metrics.set_resource(Some(json!({"fault": {"code": 503, "text": "service unavailable\n"}})));
    let expected = MetricsReply::Text { code: 503, body: "service unavailable\n".to_owned() };
    assert_eq!(resource("").send(&metrics, &cluster()), expected);

    metrics.set_external(
        json!({"queue_depth": {"fault": {"code": 504, "reason": "Timeout", "message": "too late"}}}),
    );
    let MetricsReply::Status(status) = external("").send(&metrics, &cluster()) else {
        panic!("expected a Status")
    };
    assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (504, "Timeout", "too late"));

    metrics.set_custom(json!({"hits": {"fault": {"code": 500, "text": "boom\n"}}}));
    let reply = custom(&["services", "front", "hits"], "").send(&metrics, &cluster());
    assert_eq!(reply, MetricsReply::Text { code: 500, body: "boom\n".to_owned() });
}

#[test]
fn value_list_contains_the_item_unchanged() {
    let item = value_item("Service", Some("v1"), "front", "250m");
    let reply =
        custom(&["services", "front", "hits"], "").send(&hits(std::slice::from_ref(&item)), &cluster());
    let expected = json!({"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": {}, "items": [item]});
    assert_eq!(json_of(reply), expected);
}

#[test]
fn object_metrics_are_filtered_by_kind_group_and_name() {
    let metrics = hits(&[
        value_item("Service", Some("v1"), "front", "1"),
        value_item("Service", None, "front", "2"),
        value_item("Service", Some("example.com/v1"), "front", "3"),
        value_item("Service", Some("v1"), "back", "4"),
        value_item("Ingress", Some("networking.k8s.io/v1"), "front", "5"),
        value_item("Deployment", Some("apps/v1"), "front", "6"),
    ]);
    let send =
        |resource| column(custom(&[resource, "front", "hits"], "").send(&metrics, &cluster()), "/value");
    assert_eq!(send("services"), ["1", "2"]);
    assert_eq!(send("ingresses.networking.k8s.io"), ["5"]);
    assert_eq!(send("deployments.apps"), ["6"]);
    assert_eq!(send("statefulsets.apps"), Vec::<String>::new());
}

#[test]
fn object_metrics_of_another_namespace_are_omitted() {
    let mut elsewhere = value_item("Service", Some("v1"), "front", "1");
    elsewhere["describedObject"]["namespace"] = "other".into();
    let metrics = hits(&[elsewhere, value_item("Service", Some("v1"), "front", "2")]);
    let reply = custom(&["services", "front", "hits"], "").send(&metrics, &cluster());
    assert_eq!(column(reply, "/value"), ["2"]);
}

#[test]
fn path_with_only_a_metric_refers_to_the_namespace() {
    let metrics = hits(&[
        value_item("Namespace", Some("v1"), "shop", "1"),
        value_item("Namespace", Some("v1"), "other", "2"),
        value_item("Service", Some("v1"), "shop", "3"),
    ]);
    let reply = custom(&["metrics", "hits"], "").send(&metrics, &cluster());
    assert_eq!(column(reply, "/value"), ["1"]);
}

#[test]
fn pod_metrics_include_only_existing_pods_that_match() {
    let cluster = cluster();
    for (namespace, name, app) in
        [("shop", "web-1", "web"), ("shop", "db-1", "db"), ("other", "web-3", "web")]
    {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name, "labels": {"app": app}}});
        cluster.put_raw(pod);
    }
    let of_pod = |name: &str| value_item("Pod", Some("v1"), name, "1");
    let metrics = hits(&[of_pod("gone"), of_pod("db-1"), of_pod("web-1"), of_pod("web-3"), of_pod("web-1")]);
    let request = Request {
        api: MetricsApi::Custom,
        path: &["pods", "*", "hits"],
        labels: "app=web",
        metric_labels: "",
    };
    assert_eq!(column(request.send(&metrics, &cluster), "/describedObject/name"), ["web-1", "web-1"]);
}

#[test]
fn metric_selector_matches_the_labels_of_the_series() {
    let metrics = hits(&[
        series(&json!({"verb": "GET"}), "1"),
        series(&json!({"verb": "PUT", "code": "200"}), "2"),
        series(&json!({}), "3"),
        series(&Value::Null, "4"),
    ]);
    let send = |selector| {
        column(custom(&["services", "front", "hits"], selector).send(&metrics, &cluster()), "/value")
    };
    assert_eq!(send("verb=GET"), ["1"]);
    assert_eq!(send("verb in (GET,PUT),code"), ["2"]);
    assert_eq!(send(""), ["1", "2", "3", "4"]);
    // Only the empty selector matches a series without a selector. A series with an empty selector has no labels.
    assert_eq!(send("!verb"), ["3"]);
}

#[test]
fn unknown_custom_metric_is_a_404_with_metric_and_object() {
    let message = |path: &[&str]| match custom(path, "").send(&StaticMetrics::new(), &cluster()) {
        MetricsReply::Status(status) if status.code == 404 => status.message,
        other => panic!("expected a 404, got {other:?}"),
    };
    assert_eq!(message(&["pods", "*", "hits"]), "the server could not find the metric hits for pods *");
    assert_eq!(
        message(&["metrics", "hits"]),
        "the server could not find the metric hits for namespaces shop"
    );
    assert_eq!(
        message(&["ingresses.networking.k8s.io", "front", "hits"]),
        "the server could not find the metric hits for ingresses.networking.k8s.io front"
    );
}

#[test]
fn external_metrics_are_filtered_by_their_labels() {
    let metrics = StaticMetrics::new();
    let item = |labels: Value, value: &str| json!({"metricName": "queue_depth", "metricLabels": labels, "timestamp": "2000-01-01T00:00:10Z", "value": value});
    metrics.set_external(json!({"queue_depth": {"items": [
        item(json!({"queue": "orders", "region": "eu"}), "1"),
        item(json!({"queue": "mails"}), "2"),
        item(Value::Null, "3"),
    ]}}));
    let send = |selector| column(external(selector).send(&metrics, &cluster()), "/value");
    assert_eq!(send("queue=orders"), ["1"]);
    assert_eq!(send("!queue"), ["3"]);
    assert_eq!(send(""), ["1", "2", "3"]);
    assert_eq!(json_of(external("").send(&metrics, &cluster()))["kind"], "ExternalMetricValueList");
}

#[test]
fn unknown_external_metric_is_an_empty_list() {
    let expected = json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}, "items": []});
    assert_eq!(json_of(external("queue=orders").send(&StaticMetrics::new(), &cluster())), expected);
}

#[test]
fn v1beta1_uses_different_field_names() {
    let metrics = hits(&[series(&json!({"verb": "GET"}), "1")]);
    let path = ["services".to_owned(), "front".to_owned(), "hits".to_owned()];
    let reply = metrics.answer(&MetricsRequest {
        cluster: &cluster(),
        api: MetricsApi::Custom,
        version: "v1beta1",
        namespace: "shop",
        path: &path,
        label_selector: "",
        metric_label_selector: "",
    });
    let item = &json_of(reply)["items"][0];
    assert_eq!(
        (&item["metricName"], &item["selector"]),
        (&json!("hits"), &json!({"matchLabels": {"verb": "GET"}}))
    );
}

#[test]
fn invalid_selector_is_a_bad_request() {
    let metrics = StaticMetrics::new();
    metrics.set_resource(Some(json!({})));
    assert!(
        matches!(resource("a b").send(&metrics, &cluster()), MetricsReply::Status(status) if status.code == 400)
    );
}
