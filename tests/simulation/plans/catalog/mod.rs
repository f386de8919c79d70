//! The scenarios. Each is a small cluster and a few minutes of changes, as data.

mod controllers;
mod lifecycle;
mod metrics;
mod rates;

use concertina::cli::config::TakeOver;
use serde_json::{Value, json};

use super::scenario::{Change, Counts, Scenario, Step, Target, split};

/// Every scenario, in a fixed order.
pub(crate) fn all() -> Vec<Scenario> {
    [metrics::all(), rates::all(), lifecycle::all(), controllers::all()].concat()
}

/// A scenario with one replica of the controller and a short window. `rest` seconds follow the last step.
fn scenario(
    name: &'static str,
    about: &'static str,
    initial: Vec<Change>,
    steps: Vec<Step>,
    rest: u64,
) -> Scenario {
    Scenario {
        name,
        about,
        replicas: 1,
        window: 30,
        takeover: TakeOver::Off,
        checkpoint: false,
        initial,
        steps,
        rest,
        counts: Counts::All,
    }
}

/// Changes `seconds` after the previous step, or later if a fault takes longer to heal.
fn after(seconds: u64, changes: impl Into<Vec<Change>>) -> Step {
    Step { after: seconds, abrupt: false, changes: changes.into() }
}

/// Changes exactly `seconds` after the previous step.
fn abruptly(seconds: u64, changes: impl Into<Vec<Change>>) -> Step {
    Step { after: seconds, abrupt: true, changes: changes.into() }
}

/// A Deployment.
fn deployment(name: &'static str, replicas: i64) -> Change {
    // The names that the scenarios use, with their selectors.
    let selector = match split(name).1 {
        "web" => "app=web",
        "api" => "app=api",
        "job" => "app=job",
        other => panic!("unknown Deployment {other}"),
    };
    Change::Target(Target { name, resource: ["apps", "v1", "deployments"], replicas, selector, labels: &[] })
}

/// An HPA for the Deployment of the same name, from 1 to 10 replicas.
fn hpa(name: &str, metrics: &[Value]) -> Value {
    let (namespace, name) = split(name);
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1, "maxReplicas": 10, "metrics": metrics,
        },
    })
}

/// Like [`hpa`], but with other fields of the spec.
fn hpa_with(name: &str, metrics: &[Value], fields: &Value) -> Change {
    let mut hpa = hpa(name, metrics);
    super::scenario::merge(&mut hpa["spec"], fields);
    Change::Hpa(hpa)
}

/// A target for cpu in percent of the request, which is 100m for each of two containers.
fn cpu(percent: u32) -> Value {
    json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent},
    }})
}

/// An external metric with an average target.
fn external(metric: &str, average: &str) -> Value {
    json!({"type": "External", "external": {
        "metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": average},
    }})
}

/// The metric `requests` of a Service with an average target.
fn object(service: &str, average: &str) -> Value {
    json!({"type": "Object", "object": {
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": service},
        "metric": {"name": "requests"}, "target": {"type": "AverageValue", "averageValue": average},
    }})
}
