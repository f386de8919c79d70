//! Summarizes the status that another controller wrote.

use autoscaling::quantity::Quantity;
use autoscaling::status::{MetricStatus, MetricValueStatus, Status};

use super::wire::ForeignStatus;

pub(super) fn summary(status: &Status) -> ForeignStatus {
    let conditions = status.conditions.iter().map(|condition| {
        let autoscaling::status::Condition { kind, status, reason, message, .. } = condition;
        format!("{kind}={status} {reason}: {message}")
    });
    ForeignStatus {
        metrics: status.current_metrics.iter().map(metric).collect(),
        conditions: conditions.collect(),
    }
}

fn metric(metric: &MetricStatus) -> String {
    let named = |name: &str, value: &MetricValueStatus| format!("{name} {}", shown(value));
    if let Some(source) = &metric.resource {
        named(&source.name, &source.current)
    } else if let Some(source) = &metric.container_resource {
        named(&format!("{} of container {}", source.name, source.container), &source.current)
    } else if let Some(source) = metric.pods.as_ref().or(metric.external.as_ref()) {
        named(&source.metric.name, &source.current)
    } else if let Some(source) = &metric.object {
        let object = &source.described_object;
        named(&format!("{} of {}/{}", source.metric.name, object.kind, object.name), &source.current)
    } else {
        "failed metric".to_owned()
    }
}

fn shown(value: &MetricValueStatus) -> String {
    let text = |quantity: &Option<Quantity>| quantity.as_ref().map(ToString::to_string);
    let amount = text(&value.value).or_else(|| text(&value.average_value)).unwrap_or_default();
    match value.average_utilization {
        Some(percent) => format!("{percent} % ({amount})"),
        None => amount,
    }
}
