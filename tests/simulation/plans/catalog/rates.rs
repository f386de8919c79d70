//! Scenarios with `behavior`: policies and windows that run in full or are changed midway.

use serde_json::{Value, json};

use super::super::scenario::{Change, Counts, Scenario};
use super::{abruptly, after, deployment, external, hpa, hpa_with, scenario};

fn pods(value: u32, period: u32) -> Value {
    json!({"type": "Pods", "value": value, "periodSeconds": period})
}

fn percent(value: u32, period: u32) -> Value {
    json!({"type": "Percent", "value": value, "periodSeconds": period})
}

pub(super) fn all() -> Vec<Scenario> {
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
