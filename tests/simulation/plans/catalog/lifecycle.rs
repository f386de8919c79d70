//! Scenarios with objects that are created, deleted, broken and repaired, and with foreign changes of a
//! target.

use serde_json::json;

use super::super::scenario::{Change, Counts, Scenario, Target};
use super::{after, cpu, deployment, external, hpa, hpa_with, object, scenario};

pub(super) fn all() -> Vec<Scenario> {
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
