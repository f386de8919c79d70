//! Scenarios with several replicas of the controller, and with a takeover from another controller.

use concertina::cli::config::TakeOver;
use serde_json::json;

use super::super::scenario::{Change, Scenario};
use super::{after, deployment, external, hpa, hpa_with, scenario};

pub(super) fn all() -> Vec<Scenario> {
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
