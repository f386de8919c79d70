//! All scenarios. Each is a small cluster and a few minutes of changes, as data.

use flags::config::TakeOver;
use serde_json::{Value, json};

use super::scenarios::{
    abruptly, after, cpu, deployment, external, hpa, hpa_with, object, of_lifecycles, scenario,
};
use super::world::{Api, Change, Counts, Scenario};

/// Every scenario, in a fixed order.
pub(super) fn all() -> Vec<Scenario> {
    [of_metrics(), of_rates(), of_lifecycles(), of_processes()].concat()
}

/// Scenarios for every kind of metric, and for metrics that fail.
fn of_metrics() -> Vec<Scenario> {
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

fn pods(value: u32, period: u32) -> Value {
    json!({"type": "Pods", "value": value, "periodSeconds": period})
}

fn percent(value: u32, period: u32) -> Value {
    json!({"type": "Percent", "value": value, "periodSeconds": period})
}

/// Scenarios with `behavior`: policies and windows that run in full or are changed midway.
fn of_rates() -> Vec<Scenario> {
    let one = |replicas: i64, behavior: Value| {
        vec![
            deployment("web", replicas),
            Change::External("queue", u64::try_from(replicas).unwrap() * 10),
            hpa_with("web", &[external("queue", "10")], &json!({ "behavior": behavior })),
        ]
    };
    let queue = |value: u64| [Change::External("queue", value)];
    let mut in_mid_window = scenario(
        "mid-window",
        "window and policies change while they hold a count",
        one(6, json!({"scaleDown": {"stabilizationWindowSeconds": 60}})),
        vec![
            after(20, queue(30)),
            abruptly(
                25,
                [Change::Edit(
                    "web",
                    json!({"spec": {"behavior": {
                        "scaleDown": {"stabilizationWindowSeconds": 20, "policies": [pods(1, 20)]},
                    }}}),
                )],
            ),
            abruptly(
                30,
                [Change::Edit(
                    "web",
                    json!({"spec": {"behavior": {"scaleDown": {"policies": [pods(5, 20)]}}}}),
                )],
            ),
        ],
        90,
    );
    in_mid_window.counts = Counts::Last;
    vec![
        scenario(
            "pods-up",
            "two pods a minute",
            one(2, json!({"scaleUp": {"policies": [pods(2, 60)]}})),
            vec![after(20, queue(60))],
            160,
        ),
        scenario(
            "pods-down",
            "a pod in half a minute",
            one(5, json!({"scaleDown": {"stabilizationWindowSeconds": 0, "policies": [pods(1, 30)]}})),
            vec![after(20, queue(20))],
            130,
        ),
        scenario(
            "percent-and-pods",
            "the slower of two policies",
            one(2, json!({"scaleUp": {"selectPolicy": "Min", "policies": [percent(100, 40), pods(3, 40)]}})),
            vec![after(20, queue(100))],
            170,
        ),
        scenario(
            "windows",
            "windows in both directions",
            one(
                3,
                json!({
                    "scaleUp": {"stabilizationWindowSeconds": 30},
                    "scaleDown": {"stabilizationWindowSeconds": 45},
                }),
            ),
            vec![after(20, queue(60)), after(80, queue(20))],
            90,
        ),
        scenario(
            "disabled",
            "scaling down is disabled, then allowed",
            one(5, json!({"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}})),
            vec![
                after(20, queue(20)),
                after(
                    30,
                    [Change::Edit(
                        "web",
                        json!({"spec": {"behavior": {"scaleDown": {"selectPolicy": "Max"}}}}),
                    )],
                ),
            ],
            60,
        ),
        scenario(
            "bounds",
            "minimum and maximum move past the count",
            vec![
                deployment("web", 4),
                Change::External("queue", 40),
                Change::Hpa(hpa("web", &[external("queue", "10")])),
            ],
            vec![
                after(20, [Change::Edit("web", json!({"spec": {"maxReplicas": 3}}))]),
                after(30, [Change::Edit("web", json!({"spec": {"minReplicas": 6, "maxReplicas": 10}}))]),
                after(30, [Change::Edit("web", json!({"spec": {"minReplicas": 1}}))]),
            ],
            70,
        ),
        in_mid_window,
    ]
}

/// Scenarios with processes that are replaced, and with a controller that waits before it acts.
fn of_processes() -> Vec<Scenario> {
    let initial = |behavior| {
        vec![
            deployment("web", 2),
            Change::External("queue", 20),
            hpa_with("web", &[external("queue", "10")], &json!({ "behavior": behavior })),
        ]
    };
    let queue = |value: u64| Change::External("queue", value);
    let slow = json!({"scaleUp": {"policies": [{"type": "Pods", "value": 3, "periodSeconds": 60}]}});
    let two = |scenario: Scenario| Scenario { replicas: 2, checkpoint: true, ..scenario };
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
