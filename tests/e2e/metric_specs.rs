//! Metric entries of an HPA's spec.

use serde_json::{Value, json};

pub(crate) fn cpu_utilization(percent: u32) -> Value {
    json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent},
    }})
}

pub(crate) fn memory_average(value: &str) -> Value {
    json!({"type": "Resource", "resource": {
        "name": "memory", "target": {"type": "AverageValue", "averageValue": value},
    }})
}

pub(crate) fn container_cpu(container: &str, percent: u32) -> Value {
    json!({"type": "ContainerResource", "containerResource": {
        "name": "cpu", "container": container,
        "target": {"type": "Utilization", "averageUtilization": percent},
    }})
}

pub(crate) fn pods_average(metric: &str, value: &str) -> Value {
    json!({"type": "Pods", "pods": {
        "metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": value},
    }})
}

/// A metric of the Ingress `main`.
pub(crate) fn ingress(metric: &str, kind: &str, value: &str) -> Value {
    json!({"type": "Object", "object": {
        "describedObject": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"},
        "metric": {"name": metric},
        "target": target(kind, value),
    }})
}

pub(crate) fn external(metric: &str, kind: &str, value: &str) -> Value {
    json!({"type": "External", "external": {"metric": {"name": metric}, "target": target(kind, value)}})
}

/// Like [`external`], but restricted to series with the given labels.
pub(crate) fn external_selected(metric: &str, labels: &Value, kind: &str, value: &str) -> Value {
    json!({"type": "External", "external": {
        "metric": {"name": metric, "selector": {"matchLabels": labels}},
        "target": target(kind, value),
    }})
}

fn target(kind: &str, value: &str) -> Value {
    match kind {
        "Value" => json!({"type": kind, "value": value}),
        _ => json!({"type": kind, "averageValue": value}),
    }
}
