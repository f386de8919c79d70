//! Backends of the three metrics APIs of a [`Cluster`].
//!
//! A cluster calls its [`MetricsBackend`]. [`StaticMetrics`] returns responses that the caller sets in the form of the
//! conformance recordings. [`LoadMetrics`](super::load::LoadMetrics) follows a load model.

use std::collections::BTreeSet;
use std::fmt::Debug;

pub use autoscaling::query::Api as MetricsApi;
use autoscaling::selector::{Labels, Selector, SelectorError};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::object::{at, int, list, meta, text};
use super::{Cluster, Status};

/// The labels in a JSON object of strings. Any other value, `null` included, has no labels.
#[derive(Debug, Clone, Copy)]
pub struct ObjectLabels<'a>(pub &'a Value);

impl<'a> ObjectLabels<'a> {
    /// Returns the labels of a Kubernetes object: `metadata.labels`.
    pub fn from_object(object: &'a Value) -> Self {
        Self::at(object, &["metadata", "labels"])
    }

    /// Returns the labels at a path of field names.
    pub fn at(object: &'a Value, path: &[&str]) -> Self {
        Self(at(object, path).unwrap_or(&Value::Null))
    }
}

impl Labels for ObjectLabels<'_> {
    fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str)
    }
}

/// Builds a MetricValueList. `items` have the form of v1beta2, and are converted if `version` is v1beta1.
fn value_list(version: &str, mut items: Vec<Value>) -> MetricsReply {
    if version == "v1beta1" {
        for item in &mut items {
            to_v1beta1(item);
        }
    }
    list_of("MetricValueList", "custom.metrics.k8s.io", version, items)
}

/// Returns a metrics adapter's error for a missing metric. `resource` is `resource[.group]`.
pub(super) fn metric_not_found(metric: &str, resource: &str, object: &str) -> MetricsReply {
    let message = format!("the server could not find the metric {metric} for {resource} {object}");
    MetricsReply::Status(Status::new(404, "NotFound", message))
}

/// Returns the error for an invalid selector.
pub(super) fn bad_selector(error: &SelectorError) -> MetricsReply {
    MetricsReply::Status(Status::new(400, "BadRequest", error.to_string()))
}

fn list_of(kind: &str, group: &str, version: &str, items: Vec<Value>) -> MetricsReply {
    let items = Value::Array(items);
    MetricsReply::Json(json!({
        "kind": kind,
        "apiVersion": format!("{group}/{version}"),
        "metadata": {},
        "items": items,
    }))
}

fn to_v1beta1(item: &mut Value) {
    let Some(fields) = item.as_object_mut() else {
        return;
    };
    if let Some(mut metric) = fields.remove("metric") {
        fields.insert("metricName".to_owned(), metric.get_mut("name").map_or(Value::Null, Value::take));
        fields.insert("selector".to_owned(), metric.get_mut("selector").map_or(Value::Null, Value::take));
    }
    if let Some(window) = fields.remove("windowSeconds") {
        fields.insert("window".to_owned(), window);
    }
}

/// A GET request to a metrics group.
#[derive(Debug, Clone, Copy)]
pub struct MetricsRequest<'a> {
    /// The cluster that received the request, as the source of pods and their labels.
    pub cluster: &'a Cluster,
    /// The metrics group.
    pub api: MetricsApi,
    /// The version in the path, such as `v1beta2`.
    pub version: &'a str,
    /// The namespace in the path; empty if the path has none.
    pub namespace: &'a str,
    /// The decoded segments after `namespaces/{ns}`, or after the version without a namespace.
    pub path: &'a [String],
    /// The query parameter `labelSelector`; empty if absent.
    pub label_selector: &'a str,
    /// The query parameter `metricLabelSelector`; empty if absent.
    pub metric_label_selector: &'a str,
}

/// The response of a backend.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricsReply {
    /// 200 with an object.
    Json(Value),
    /// 200 with an object that is already JSON text.
    Encoded(Bytes),
    /// A failure as `metav1.Status`.
    Status(Status),
    /// Plain text, such as from a broken adapter or a proxy in front of it.
    Text {
        /// HTTP status code.
        code: u16,
        /// The body.
        body: String,
    },
    /// The API is not installed: 404 `404 page not found`, as text.
    Absent,
}

/// A backend of the metrics groups.
pub trait MetricsBackend: Debug + Send + Sync {
    /// Returns the response to one request. The caller holds no lock, so the backend may read the cluster.
    fn answer(&self, request: &MetricsRequest<'_>) -> MetricsReply;
}

/// A backend that returns the configured metrics, filtered as a real adapter filters them.
///
/// The three parts have the form of a recording's world (`tests/conformance/README.md`): `resourceMetrics` is
/// `{"items": [...]}`, `{"fault": {...}}`, or absent. `customMetrics` and `externalMetrics` are maps from metric names
/// to values of the same form. A fault is `code` and either `text` (returned as text/plain) or `reason` and `message`
/// (returned as a Status). Initially the resource metrics API is absent, and the other two have no metrics.
#[derive(Debug, Default)]
pub struct StaticMetrics {
    world: Mutex<World>,
}

#[derive(Debug, Default)]
struct World {
    resource: Option<Value>,
    custom: Value,
    external: Value,
}

impl StaticMetrics {
    /// Creates a backend without metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `resourceMetrics`. `None` and `null` remove the API.
    pub fn set_resource(&self, metrics: Option<Value>) {
        self.world.lock().resource = metrics.filter(|metrics| !metrics.is_null());
    }

    /// Sets `customMetrics`. `null` clears it.
    pub fn set_custom(&self, metrics: Value) {
        self.world.lock().custom = metrics;
    }

    /// Sets `externalMetrics`. `null` clears it.
    pub fn set_external(&self, metrics: Value) {
        self.world.lock().external = metrics;
    }
}

impl MetricsBackend for StaticMetrics {
    fn answer(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        let world = self.world.lock();
        match request.api {
            MetricsApi::Resource => world.resource(request),
            MetricsApi::Custom => world.custom(request),
            MetricsApi::External => world.external(request),
        }
    }
}

impl World {
    fn resource(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        let Some(metrics) = &self.resource else {
            return MetricsReply::Absent;
        };
        if let Some(fault) = fault(metrics) {
            return fault;
        }
        let selector = match Selector::parse(request.label_selector) {
            Ok(selector) => selector,
            Err(error) => return bad_selector(&error),
        };
        let in_namespace =
            |item: &&Value| request.namespace.is_empty() || meta(item, "namespace") == request.namespace;
        let mut found = list(metrics, &["items"])
            .iter()
            .filter(in_namespace)
            .filter(|item| selector.matches(&ObjectLabels::from_object(item)))
            .cloned();
        match request.path {
            [pods] if pods == "pods" => {
                list_of("PodMetricsList", "metrics.k8s.io", request.version, found.collect())
            }
            [pods, name] if pods == "pods" => found
                .find(|item| meta(item, "name") == name)
                .map_or_else(|| pod_not_found(request.namespace, name), |item| single(request.version, item)),
            _ => MetricsReply::Absent,
        }
    }

    fn custom(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        let Some(query) = CustomMetricQuery::read(request.namespace, request.path) else {
            return MetricsReply::Absent;
        };
        let Some(metrics) = self.custom.get(query.metric) else {
            return metric_not_found(query.metric, query.resource, query.object);
        };
        if let Some(fault) = fault(metrics) {
            return fault;
        }
        let (selector, metric_selector) =
            match (Selector::parse(request.label_selector), Selector::parse(request.metric_label_selector)) {
                (Ok(selector), Ok(metric_selector)) => (selector, metric_selector),
                (Err(error), _) | (_, Err(error)) => return bad_selector(&error),
            };
        let pods = query.selects_pods().then(|| matching_pods(request.cluster, request.namespace, &selector));
        let found = list(metrics, &["items"])
            .iter()
            .filter(|item| query.describes(item, pods.as_ref()))
            .filter(|item| is_series(item, &metric_selector))
            .cloned()
            .collect();
        value_list(request.version, found)
    }

    fn external(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        let [metric] = request.path else {
            return MetricsReply::Absent;
        };
        let metrics = self.external.get(metric).unwrap_or(&Value::Null);
        if let Some(fault) = fault(metrics) {
            return fault;
        }
        let selector = match Selector::parse(request.label_selector) {
            Ok(selector) => selector,
            Err(error) => return bad_selector(&error),
        };
        let found = list(metrics, &["items"])
            .iter()
            .filter(|item| selector.matches(&ObjectLabels::at(item, &["metricLabels"])))
            .cloned()
            .collect();
        list_of("ExternalMetricValueList", "external.metrics.k8s.io", request.version, found)
    }
}

/// The metric and objects that a path of custom.metrics.k8s.io names.
pub(crate) struct CustomMetricQuery<'a> {
    namespace: &'a str,
    /// `resource[.group]`, as in the path. `namespaces` for a path that names only a metric.
    pub(crate) resource: &'a str,
    /// The object's name, or `*`.
    pub(crate) object: &'a str,
    pub(crate) metric: &'a str,
}

impl<'a> CustomMetricQuery<'a> {
    /// Parses a path. `metrics/{metric}` refers to the namespace itself. `{resource[.group]}/{name}/{metric}` refers to
    /// an object in the namespace.
    pub(crate) fn read(namespace: &'a str, path: &'a [String]) -> Option<Self> {
        match path {
            [metrics, metric] if metrics == "metrics" => {
                Some(Self { namespace, resource: "namespaces", object: namespace, metric })
            }
            [resource, object, metric] => Some(Self { namespace, resource, object, metric }),
            _ => None,
        }
    }

    fn selects_pods(&self) -> bool {
        self.resource == "pods" && self.object == "*"
    }

    /// Returns whether an item's `describedObject` matches the query. For a query of `pods/*`, `pods` contains the
    /// names of the selected pods.
    fn describes(&self, item: &Value, pods: Option<&BTreeSet<String>>) -> bool {
        let described = at(item, &["describedObject"]).unwrap_or(&Value::Null);
        let name = text(described, &["name"]);
        let name_matches = match pods {
            Some(pods) => pods.contains(name),
            None => self.matches_name(name),
        };
        name_matches
            && self.matches_kind(text(described, &["apiVersion"]), text(described, &["kind"]))
            && self.is_in_namespace(described)
    }

    /// Returns whether the query includes an object named `name`.
    pub(crate) fn matches_name(&self, name: &str) -> bool {
        self.object == "*" || self.object == name
    }

    /// Returns whether the query includes objects of `kind`. If `version` is empty, only the kind is compared.
    pub(crate) fn matches_kind(&self, version: &str, kind: &str) -> bool {
        let (resource, group) = self.resource.split_once('.').unwrap_or((self.resource, ""));
        (version.is_empty() || group_of(version) == group) && resource_of(kind) == resource
    }

    fn is_in_namespace(&self, described: &Value) -> bool {
        let namespace = text(described, &["namespace"]);
        self.resource == "namespaces" || namespace.is_empty() || namespace == self.namespace
    }
}

/// Returns the resource of a kind by the plural rule of Kubernetes (`UnsafeGuessKindToResource`).
fn resource_of(kind: &str) -> String {
    let singular = kind.to_lowercase();
    if singular.ends_with('s') {
        return format!("{singular}es");
    }
    match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{singular}s"),
    }
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn matching_pods(cluster: &Cluster, namespace: &str, selector: &Selector) -> BTreeSet<String> {
    cluster
        .list("pods", Some(namespace))
        .iter()
        .filter(|pod| selector.matches(&ObjectLabels::from_object(pod)))
        .map(|pod| meta(pod, "name").to_owned())
        .collect()
}

/// Returns whether the labels of the item's series match the selector. An item without labels matches only the empty
/// selector, and no selector that requires the absence of a label.
fn is_series(item: &Value, selector: &Selector) -> bool {
    match at(item, &["metric", "selector"]) {
        None => selector.is_empty(),
        Some(series) => selector.matches(&ObjectLabels::at(series, &["matchLabels"])),
    }
}

fn fault(metrics: &Value) -> Option<MetricsReply> {
    let fault = at(metrics, &["fault"])?;
    let code = int(fault, &["code"]).and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
    Some(match at(fault, &["text"]).and_then(Value::as_str) {
        Some(body) => MetricsReply::Text { code, body: body.to_owned() },
        None => MetricsReply::Status(Status::new(code, text(fault, &["reason"]), text(fault, &["message"]))),
    })
}

/// Returns metrics-server's error for a pod without a sample.
pub(crate) fn pod_not_found(namespace: &str, name: &str) -> MetricsReply {
    let message = format!("podmetrics.metrics.k8s.io \"{namespace}/{name}\" not found");
    MetricsReply::Status(Status::new(404, "NotFound", message))
}

fn single(version: &str, mut item: Value) -> MetricsReply {
    if let Some(fields) = item.as_object_mut() {
        fields.insert("kind".to_owned(), "PodMetrics".into());
        fields.insert("apiVersion".to_owned(), format!("metrics.k8s.io/{version}").into());
    }
    MetricsReply::Json(item)
}

#[cfg(test)]
mod tests;
