//! Objects of the namespace `shop`, as plain JSON.

use serde_json::{Value, json};

/// The default namespace of test objects.
pub(crate) const SHOP: &str = "shop";

/// An HPA for the Deployment of the same name, from 1 to 10 replicas.
pub(crate) fn hpa(name: &str, metrics: &[Value]) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": SHOP, "name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1, "maxReplicas": 10, "metrics": metrics,
        },
    })
}

/// An external metric with a target of `average` per replica.
pub(crate) fn external(metric: &str, average: &str) -> Value {
    json!({"type": "External", "external": {
        "metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": average},
    }})
}

/// A target for cpu in percent of the request.
pub(crate) fn cpu(percent: u32) -> Value {
    json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent},
    }})
}

/// A Deployment with pods that request a tenth of a core.
pub(crate) fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": SHOP, "name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [
                    {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}},
                ]},
            },
        },
    })
}

/// A pod of `app` that has been ready for a day.
pub(crate) fn pod(app: &str, index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": SHOP, "name": format!("{app}-{index:04}"), "labels": {"app": app}},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {
            "phase": "Running", "startTime": "2029-12-31T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2029-12-31T00:01:00Z"}],
        },
    })
}
