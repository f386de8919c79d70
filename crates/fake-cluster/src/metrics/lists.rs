//! Responses of the metrics APIs: list kinds and error texts.

use autoscaling::selector::SelectorError;
use serde_json::{Value, json};

use crate::{MetricsReply, Status};

/// Builds a PodMetrics list of metrics.k8s.io.
pub(super) fn pod_metrics_list(version: &str, items: Vec<Value>) -> MetricsReply {
    list("PodMetricsList", "metrics.k8s.io", version, items)
}

/// Builds a MetricValue list of custom.metrics.k8s.io. `items` have the form of v1beta2. v1beta1 uses other
/// field names.
pub(super) fn value_list(version: &str, mut items: Vec<Value>) -> MetricsReply {
    if version == "v1beta1" {
        for item in &mut items {
            to_v1beta1(item);
        }
    }
    list("MetricValueList", "custom.metrics.k8s.io", version, items)
}

/// Builds an ExternalMetricValue list of external.metrics.k8s.io.
pub(super) fn external_list(version: &str, items: Vec<Value>) -> MetricsReply {
    list("ExternalMetricValueList", "external.metrics.k8s.io", version, items)
}

/// Returns a metrics adapter's error for a missing metric. `resource` is `resource[.group]`.
pub(crate) fn metric_not_found(metric: &str, resource: &str, object: &str) -> MetricsReply {
    let message = format!("the server could not find the metric {metric} for {resource} {object}");
    MetricsReply::Status(Status::new(404, "NotFound", message))
}

/// Returns a server's error for an invalid selector.
pub(crate) fn bad_selector(error: &SelectorError) -> MetricsReply {
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
