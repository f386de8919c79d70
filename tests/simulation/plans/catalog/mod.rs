//! The scenarios: each a small world and a few minutes, as data.

mod comings;
mod controllers;
mod metrics;
mod rates;

use concertina::cli::config::TakeOver;
use serde_json::{Value, json};

use super::scenario::{Change, Counts, Scenario, Step, Target, split};

/// Every scenario, in a fixed order.
pub(crate) fn all() -> Vec<Scenario> {
    [metrics::all(), rates::all(), comings::all(), controllers::all()].concat()
}

/// A scenario with one replica of the controller and a short window; `rest` seconds follow the last step.
fn scenario(
    name: &'static str,
    about: &'static str,
    begin: Vec<Change>,
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
        begin,
        steps,
        rest,
        counts: Counts::All,
    }
}

/// Changes so many seconds after the step before, or as many as it takes to heal a fault.
fn after(seconds: u64, changes: impl Into<Vec<Change>>) -> Step {
    Step { after: seconds, abrupt: false, changes: changes.into() }
}

/// Changes exactly so many seconds after the step before.
fn abruptly(seconds: u64, changes: impl Into<Vec<Change>>) -> Step {
    Step { after: seconds, abrupt: true, changes: changes.into() }
}

/// A Deployment.
fn deployment(name: &'static str, replicas: i64) -> Change {
    // Selectors of the names that the scenarios use.
    let selector = match split(name).1 {
        "web" => "app=web",
        "api" => "app=api",
        "job" => "app=job",
        other => panic!("a Deployment {other}"),
    };
    Change::Target(Target { name, resource: ["apps", "v1", "deployments"], replicas, selector, labels: &[] })
}

/// An HPA of the Deployment of its own name, from 1 to 10 replicas.
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

/// The same with other fields of the spec.
fn hpa_with(name: &str, metrics: &[Value], fields: &Value) -> Change {
    let mut hpa = hpa(name, metrics);
    super::scenario::merge(&mut hpa["spec"], fields);
    Change::Hpa(hpa)
}

/// Cpu, in percent of the request, which is 100m for each of two containers.
fn cpu(percent: u32) -> Value {
    json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent},
    }})
}

/// An external metric of which each replica is to have so much.
fn external(metric: &str, average: &str) -> Value {
    json!({"type": "External", "external": {
        "metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": average},
    }})
}

/// `requests` of a Service, of which each replica is to have so many.
fn object(service: &str, average: &str) -> Value {
    json!({"type": "Object", "object": {
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": service},
        "metric": {"name": "requests"}, "target": {"type": "AverageValue", "averageValue": average},
    }})
}
