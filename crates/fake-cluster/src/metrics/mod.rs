//! Backends of the three metrics APIs of a [`Cluster`].
//!
//! A cluster calls its [`MetricsBackend`]. This module contains [`StaticMetrics`], whose responses the caller
//! sets in the form of the conformance recordings.
//! [`LoadMetrics`](super::load::LoadMetrics) is the backend that follows a load model.

mod static_metrics;

use std::fmt::Debug;

use autoscaling::selector::{Labels, SelectorError};
use bytes::Bytes;
use serde_json::{Value, json};

use super::Cluster;
use crate::Status;
use crate::object::at;

pub use autoscaling::query::Api as MetricsApi;
pub use static_metrics::StaticMetrics;
pub(super) use static_metrics::{CustomMetricQuery, pod_not_found};

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

/// Builds a PodMetrics list of metrics.k8s.io.
fn pod_metrics_list(version: &str, items: Vec<Value>) -> MetricsReply {
    list("PodMetricsList", "metrics.k8s.io", version, items)
}

/// Builds a MetricValue list of custom.metrics.k8s.io. `items` have the form of v1beta2. v1beta1 uses other
/// field names.
fn value_list(version: &str, mut items: Vec<Value>) -> MetricsReply {
    if version == "v1beta1" {
        for item in &mut items {
            to_v1beta1(item);
        }
    }
    list("MetricValueList", "custom.metrics.k8s.io", version, items)
}

/// Builds an ExternalMetricValue list of external.metrics.k8s.io.
fn external_list(version: &str, items: Vec<Value>) -> MetricsReply {
    list("ExternalMetricValueList", "external.metrics.k8s.io", version, items)
}

/// Returns a metrics adapter's error for a missing metric. `resource` is `resource[.group]`.
pub(super) fn metric_not_found(metric: &str, resource: &str, object: &str) -> MetricsReply {
    let message = format!("the server could not find the metric {metric} for {resource} {object}");
    MetricsReply::Status(Status::new(404, "NotFound", message))
}

/// Returns a server's error for an invalid selector.
pub(super) fn bad_selector(error: &SelectorError) -> MetricsReply {
    MetricsReply::Status(Status::new(400, "BadRequest", error.to_string()))
}

fn list(kind: &str, group: &str, version: &str, items: Vec<Value>) -> MetricsReply {
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

/// One GET of a metrics group.
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
