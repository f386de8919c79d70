//! Scenarios for every kind of metric, and for metrics that fail.

use serde_json::json;

use super::super::scenario::{Api, Change, Scenario};
use super::{after, cpu, deployment, external, hpa, hpa_with, object, scenario};

pub(super) fn all() -> Vec<Scenario> {
    let container = json!({"type": "ContainerResource", "containerResource": {
        "name": "cpu", "container": "side", "target": {"type": "Utilization", "averageUtilization": 50},
    }});
    let pods_metric = json!({"type": "Pods", "pods": {
        "metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "10"},
    }});
    let tolerant = json!({"behavior": {
        "scaleUp": {"tolerance": "0.5"}, "scaleDown": {"tolerance": "0.05", "stabilizationWindowSeconds": 30},
    }});
    vec![
        scenario(
            "cpu",
            "load rises and falls",
            vec![deployment("web", 2), Change::Cpu("web", 200), Change::Hpa(hpa("web", &[cpu(50)]))],
            vec![after(20, [Change::Cpu("web", 550)]), after(30, [Change::Cpu("web", 290)])],
            70,
        ),
        scenario(
            "container",
            "the cpu of one container",
            vec![
                deployment("web", 2),
                Change::Cpu("web", 900),
                Change::Side("web", 90),
                Change::Hpa(hpa("web", &[container])),
            ],
            vec![after(20, [Change::Side("web", 240)]), after(30, [Change::Side("web", 40)])],
            70,
        ),
        scenario(
            "pods",
            "a metric of the pods",
            vec![
                deployment("web", 2),
                Change::Pods("web", "hits", 20),
                Change::Hpa(hpa("web", &[pods_metric])),
            ],
            vec![after(20, [Change::Pods("web", "hits", 60)]), after(30, [Change::Pods("web", "hits", 30)])],
            70,
        ),
        scenario(
            "object",
            "a metric of a Service",
            vec![
                deployment("web", 2),
                Change::Object("front", 20),
                Change::Hpa(hpa("web", &[object("front", "10")])),
            ],
            vec![after(20, [Change::Object("front", 75)]), after(30, [Change::Object("front", 15)])],
            70,
        ),
        scenario(
            "external",
            "an external metric for two HPAs",
            vec![
                deployment("web", 2),
                deployment("job", 1),
                Change::External("queue", 20),
                Change::Hpa(hpa("web", &[external("queue", "10")])),
                Change::Hpa(hpa("job", &[external("queue", "20")])),
            ],
            vec![after(20, [Change::External("queue", 75)]), after(30, [Change::External("queue", 35)])],
            70,
        ),
        scenario(
            "several",
            "each of three metrics decides in turn",
            vec![
                deployment("web", 2),
                Change::Cpu("web", 200),
                Change::External("queue", 20),
                Change::Object("front", 20),
                Change::Hpa(hpa("web", &[cpu(50), external("queue", "10"), object("front", "10")])),
            ],
            vec![
                after(20, [Change::External("queue", 45)]),
                after(30, [Change::Object("front", 70)]),
                after(
                    30,
                    [Change::Object("front", 0), Change::External("queue", 0), Change::Cpu("web", 390)],
                ),
            ],
            70,
        ),
        scenario(
            "outage",
            "the only metrics API fails and recovers",
            vec![deployment("web", 3), Change::Cpu("web", 300), Change::Hpa(hpa("web", &[cpu(50)]))],
            vec![
                after(20, [Change::Down(Api::Resource), Change::Cpu("web", 600)]),
                after(40, [Change::Up(Api::Resource)]),
            ],
            50,
        ),
        scenario(
            "half-blind",
            "one of two metrics fails: up is allowed, down is not",
            vec![
                deployment("web", 3),
                Change::Cpu("web", 300),
                Change::External("queue", 30),
                Change::Hpa(hpa("web", &[cpu(50), external("queue", "10")])),
            ],
            vec![
                after(20, [Change::Down(Api::External), Change::Cpu("web", 200)]),
                after(30, [Change::Cpu("web", 500)]),
                after(30, [Change::Up(Api::External), Change::Cpu("web", 200)]),
            ],
            70,
        ),
        scenario(
            "unmeasured",
            "pods without metrics hold a count back",
            vec![
                deployment("web", 4),
                Change::Cpu("web", 400),
                Change::Unmeasured("web", 1),
                Change::Hpa(hpa("web", &[cpu(50)])),
            ],
            vec![
                after(20, [Change::Unmeasured("web", 2), Change::Cpu("web", 240)]),
                after(30, [Change::Unmeasured("web", 0)]),
            ],
            70,
        ),
        scenario(
            "tolerance",
            "an HPA with tolerances in its behavior",
            vec![
                deployment("web", 4),
                Change::External("queue", 40),
                hpa_with("web", &[external("queue", "10")], &tolerant),
            ],
            vec![
                after(20, [Change::External("queue", 55)]),
                after(30, [Change::External("queue", 70)]),
                after(30, [Change::External("queue", 64)]),
            ],
            70,
        ),
    ]
}
