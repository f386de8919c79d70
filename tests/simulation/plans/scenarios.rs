//! Builders of scenarios, and scenarios with objects that are created, deleted, broken and repaired.

use flags::config::TakeOver;
use serde_json::{Value, json};

use super::world::{Change, Counts, Scenario, Step, Target, merge, split};

/// A scenario with one replica of the controller and a short window. `rest` seconds follow the last step.
pub(super) fn scenario(
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

/// A step `seconds` after the previous step, or later if the controller has not yet recovered from a fault.
pub(super) fn after(seconds: u64, changes: impl Into<Vec<Change>>) -> Step {
    Step { after: seconds, abrupt: false, changes: changes.into() }
}

/// A step exactly `seconds` after the previous step.
pub(super) fn abruptly(seconds: u64, changes: impl Into<Vec<Change>>) -> Step {
    Step { after: seconds, abrupt: true, changes: changes.into() }
}

pub(super) fn deployment(name: &'static str, replicas: i64) -> Change {
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
pub(super) fn hpa(name: &str, metrics: &[Value]) -> Value {
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

/// Like [`hpa`], but with `fields` merged into the spec.
pub(super) fn hpa_with(name: &str, metrics: &[Value], fields: &Value) -> Change {
    let mut hpa = hpa(name, metrics);
    merge(&mut hpa["spec"], fields);
    Change::Hpa(hpa)
}

/// A metric of cpu usage with a target in percent of the request, which is 100m for each of two containers.
pub(super) fn cpu(percent: u32) -> Value {
    json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent},
    }})
}

/// An external metric with an average target.
pub(super) fn external(metric: &str, average: &str) -> Value {
    json!({"type": "External", "external": {
        "metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": average},
    }})
}

/// The metric `requests` of a Service with an average target.
pub(super) fn object(service: &str, average: &str) -> Value {
    json!({"type": "Object", "object": {
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": service},
        "metric": {"name": "requests"}, "target": {"type": "AverageValue", "averageValue": average},
    }})
}

/// Scenarios with objects that are created, deleted, broken and repaired, and with foreign changes of a target.
pub(super) fn of_lifecycles() -> Vec<Scenario> {
    let queue = [external("queue", "10")];
    let target = |name: &'static str, selector: &'static str| {
        Change::Target(Target {
            name,
            resource: ["apps", "v1", "deployments"],
            replicas: 2,
            selector,
            labels: &[("tier", "front")],
        })
    };
    let initial = |replicas: i64| {
        vec![deployment("web", replicas), Change::External("queue", 40), Change::Hpa(hpa("web", &queue))]
    };
    let widget = |replicas: i64| {
        Change::Target(Target {
            name: "web",
            resource: ["example.com", "v1", "widgets"],
            replicas,
            selector: "app=web",
            labels: &[],
        })
    };
    let widget_ref =
        json!({"scaleTargetRef": {"apiVersion": "example.com/v1", "kind": "Widget", "name": "web"}});
    // If several HPAs select the same pods, a new process scales once for the first HPA that it syncs, before it has
    // synced the others. The reference does the same.
    let by_order = |scenario: Scenario| Scenario { counts: Counts::Last, ..scenario };
    vec![
        scenario(
            "to-zero",
            "down to no replicas and back",
            vec![
                deployment("web", 2),
                Change::External("queue", 20),
                Change::Object("front", 0),
                hpa_with(
                    "web",
                    &[external("queue", "10"), object("front", "10")],
                    &json!({"minReplicas": 0}),
                ),
            ],
            vec![after(20, [Change::External("queue", 0)]), after(70, [Change::External("queue", 30)])],
            50,
        ),
        scenario(
            "paused",
            "a user sets the count to 0 and back",
            initial(3),
            vec![after(20, [Change::Count("web", 0)]), after(40, [Change::Count("web", 2)])],
            50,
        ),
        scenario(
            "by-hand",
            "a user scales up and down",
            initial(4),
            vec![after(20, [Change::Count("web", 9)]), after(60, [Change::Count("web", 1)])],
            50,
        ),
        scenario(
            "invalid",
            "a spec that no controller can follow, and its repair",
            initial(3),
            vec![
                after(
                    20,
                    [
                        Change::Force("web", json!({"spec": {"metrics": [{"type": "Nonsense"}]}})),
                        Change::External("queue", 70),
                    ],
                ),
                after(30, [Change::Edit("web", json!({"spec": {"metrics": queue}}))]),
            ],
            50,
        ),
        scenario(
            "selector",
            "the target's selector breaks and is repaired",
            initial(3),
            vec![
                after(20, [Change::Selector("web", "app in (web"), Change::External("queue", 70)]),
                after(30, [Change::Selector("web", "")]),
                after(30, [Change::Selector("web", "app=web")]),
            ],
            50,
        ),
        scenario(
            "another-hpa",
            "an HPA is deleted, and another one of its name is created",
            vec![
                deployment("web", 4),
                Change::External("queue", 40),
                hpa_with(
                    "web",
                    &queue,
                    &json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 30}}}),
                ),
            ],
            vec![
                after(20, [Change::Delete("web")]),
                after(20, [Change::External("queue", 60)]),
                after(20, [hpa_with("web", &[external("queue", "20")], &json!({"maxReplicas": 5}))]),
            ],
            70,
        ),
        scenario(
            "another-target",
            "a target is deleted, and another one of its name is created",
            initial(3),
            vec![after(20, [Change::Gone("web")]), after(40, [deployment("web", 1)])],
            50,
        ),
        by_order(scenario(
            "ambiguous",
            "two HPAs select the same pods until one target selects others",
            vec![
                target("web", "app=web"),
                target("api", "app=api"),
                Change::Cpu("web", 200),
                Change::External("queue", 20),
                Change::Hpa(hpa("web", &[cpu(50)])),
                Change::Hpa(hpa("api", &queue)),
            ],
            vec![
                after(20, [Change::Selector("api", "tier=front"), Change::External("queue", 50)]),
                after(40, [Change::Selector("api", "app=api")]),
            ],
            50,
        )),
        by_order(scenario(
            "rival",
            "a second HPA for the same target is created and deleted",
            initial(3),
            vec![
                after(
                    20,
                    [hpa_with("job", &[external("queue", "5")], &json!({"scaleTargetRef": {"name": "web"}}))],
                ),
                after(40, [Change::Delete("job"), Change::External("queue", 60)]),
            ],
            50,
        )),
        scenario(
            "widget",
            "a custom resource is the target",
            vec![widget(2), Change::External("queue", 20), hpa_with("web", &queue, &widget_ref)],
            vec![after(20, [Change::External("queue", 50)]), after(30, [Change::External("queue", 10)])],
            70,
        ),
        scenario(
            "namespaces",
            "the same names in two namespaces",
            vec![
                deployment("web", 2),
                deployment("other/web", 3),
                Change::External("queue", 40),
                Change::Cpu("other/web", 300),
                Change::Hpa(hpa("web", &queue)),
                Change::Hpa(hpa("other/web", &[cpu(50)])),
            ],
            vec![
                after(20, [Change::Cpu("other/web", 600)]),
                after(30, [Change::External("queue", 20), Change::Cpu("other/web", 100)]),
            ],
            70,
        ),
    ]
}
