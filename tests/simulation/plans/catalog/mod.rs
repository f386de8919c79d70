//! The scenarios. Each is a small cluster and a few minutes of changes, as data.

mod lifecycle;
mod metrics;
mod rates;

use concertina::cli::config::TakeOver;
use serde_json::{Value, json};

use super::scenario::{Change, Counts, Scenario, Step, Target, split};

/// Every scenario, in a fixed order.
pub(crate) fn all() -> Vec<Scenario> {
    [metrics::all(), rates::all(), lifecycle::all(), controller_plans()].concat()
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

fn controller_plans() -> Vec<Scenario> {
    let initial = |behavior| {
        vec![
            deployment("web", 2),
            Change::External("queue", 20),
            hpa_with("web", &[external("queue", "10")], &json!({ "behavior": behavior })),
        ]
    };
    let queue = |value: u64| Change::External("queue", value);
    let slow = json!({"scaleUp": {"policies": [{"type": "Pods", "value": 3, "periodSeconds": 60}]}});
    let two = |scenario: Scenario| Scenario { replicas: 2, ..scenario };
    vec![
        two(scenario(
            "hand-over",
            "the leader shuts down within a policy's period",
            initial(slow),
            vec![after(20, [queue(80)]), after(20, [Change::End(0)])],
            130,
        )),
        two(scenario(
            "there-and-back",
            "both replicas are replaced, one after the other",
            initial(json!({"scaleDown": {"stabilizationWindowSeconds": 30}})),
            vec![
                after(15, [Change::End(0)]),
                after(10, [queue(60)]),
                after(20, [Change::End(1)]),
                after(10, [queue(30)]),
            ],
            70,
        )),
        Scenario {
            checkpoint: true,
            ..scenario(
                "checkpoint",
                "the only replica is replaced within a period and within a window, and has a checkpoint",
                initial(json!({
                    "scaleUp": {"policies": [{"type": "Pods", "value": 3, "periodSeconds": 60}]},
                    "scaleDown": {"stabilizationWindowSeconds": 45},
                })),
                vec![
                    after(20, [queue(80)]),
                    after(30, [Change::End(0)]),
                    after(70, [queue(30)]),
                    after(20, [Change::End(0)]),
                ],
                90,
            )
        },
        Scenario {
            takeover: TakeOver::Wait,
            ..scenario(
                "looks-first",
                "before it writes, the controller checks for another active controller",
                vec![deployment("web", 2), queue(50), Change::Hpa(hpa("web", &[external("queue", "10")]))],
                vec![after(60, [queue(20)])],
                80,
            )
        },
    ]
}
