//! What another controller's status says, in short.

use autoscaling::quantity::Quantity;
use autoscaling::status::{MetricStatus, MetricValueStatus, Status};

use super::wire::Said;

pub(super) fn said(status: &Status) -> Said {
    let conditions = status.conditions.iter().map(|condition| {
        let autoscaling::status::Condition { kind, status, reason, message, .. } = condition;
        format!("{kind}={status} {reason}: {message}")
    });
    Said { metrics: status.current_metrics.iter().map(metric).collect(), conditions: conditions.collect() }
}

fn metric(metric: &MetricStatus) -> String {
    let named = |name: &str, value: &MetricValueStatus| format!("{name} {}", shown(value));
    if let Some(of) = &metric.resource {
        named(&of.name, &of.current)
    } else if let Some(of) = &metric.container_resource {
        named(&format!("{} of container {}", of.name, of.container), &of.current)
    } else if let Some(of) = metric.pods.as_ref().or(metric.external.as_ref()) {
        named(&of.metric.name, &of.current)
    } else if let Some(of) = &metric.object {
        let object = &of.described_object;
        named(&format!("{} of {}/{}", of.metric.name, object.kind, object.name), &of.current)
    } else {
        "one that could not be read".to_owned()
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
