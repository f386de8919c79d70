//! HPAs that cannot be decoded or that are invalid.

use serde_json::{Value, json};

use crate::support::logs;
use crate::support::objects::{external, hpa};
use crate::support::{Fixture, HPAS, Harness};

/// An HPA that no API server would store.
fn undecodable(name: &str) -> Value {
    let mut object = hpa(name, &[external("queue", "10")]);
    object["spec"]["minReplicas"] = json!("two");
    object
}

#[tokio::test(start_paused = true)]
async fn undecodable_hpa_is_skipped_and_others_scale() {
    let stage = Fixture::new();
    stage.external("queue", "80");
    for name in ["a", "b", "c", "d"] {
        stage.target(name, 4);
    }
    stage.create(hpa("a", &[external("queue", "10")]));
    stage.cluster.put_raw(undecodable("b"));
    stage.create(hpa("c", &[external("queue", "10")]));
    let rig = Harness::start(stage);
    rig.until("the other HPAs of the list scale", 1.0, |stage| {
        ["a", "c"].iter().all(|name| stage.replicas(name) == 8)
    })
    .await;
    let status = rig.assembly.hpas.status();
    assert_eq!((status.skipped, status.error), (1, None));

    rig.cluster.put_raw(undecodable("bb"));
    rig.create(hpa("d", &[external("queue", "10")]));
    rig.until("an HPA created after it scales", 1.0, |stage| stage.replicas("d") == 8).await;
    let status = rig.assembly.hpas.status();
    assert_eq!((status.skipped, status.error), (2, None));
    assert_eq!(rig.count("watch", "/horizontalpodautoscalers"), 1);
    assert_eq!(rig.replicas("b"), 4);

    let logged = logs::with("could not be decoded");
    assert_eq!(logged.len(), 2, "{logged:?}");
    assert!(
        logged[0].contains(r#"namespace="shop" name="b""#) && logged[1].contains(r#"name="bb""#),
        "{logged:?}"
    );

    let mut repaired = rig.hpa("b");
    repaired["spec"]["minReplicas"] = json!(2);
    rig.cluster.put_raw(repaired);
    rig.until("the repaired HPA scales", 1.0, |stage| stage.replicas("b") == 8).await;
}

#[tokio::test(start_paused = true)]
async fn hpa_that_became_undecodable_can_still_be_deleted() {
    let stage = Fixture::new();
    stage.target("a", 4);
    stage.external("queue", "40");
    stage.create(hpa("a", &[external("queue", "10")]));
    let rig = Harness::start(stage);
    rig.pass(1.0).await;
    let mut broken = rig.hpa("a");
    broken["spec"]["minReplicas"] = json!("two");
    rig.cluster.put_raw(broken);
    rig.pass(1.0).await;
    rig.cluster.delete(HPAS, "shop", "a").unwrap();
    rig.pass(40.0).await;
    assert_eq!(rig.assembly.controller.stores.hpas.len(), 0);
    assert_eq!(rig.assembly.controller.runtime.queue.waiting(), 0);
}

/// An invalid HPA: the change of the spec, the expected condition, and the label `error` of its reconciliations.
struct Case {
    name: &'static str,
    change: fn(&mut Value),
    condition: (&'static str, &'static str),
    label: &'static str,
}

const CASES: &[Case] = &[
    Case {
        name: "metric-type",
        change: |spec| spec["metrics"][0]["type"] = json!("Sprocket"),
        condition: (
            "ScalingActive",
            "False InvalidMetricSourceType the HPA was unable to compute the replica count: unknown metric source \
             type \"Sprocket\"",
        ),
        label: "spec",
    },
    Case {
        name: "metric-target",
        change: |spec| spec["metrics"][0]["external"]["target"] = json!({"type": "AverageValue"}),
        condition: (
            "ScalingActive",
            "False FailedGetExternalMetric the HPA was unable to compute the replica count: invalid external metric \
             source: neither a value target nor an average value target was set",
        ),
        label: "internal",
    },
    Case {
        name: "api-version",
        change: |spec| spec["scaleTargetRef"]["apiVersion"] = json!("a/b/c"),
        condition: (
            "AbleToScale",
            "False FailedGetScale the HPA controller was unable to get the target's current scale: unexpected \
             GroupVersion string: a/b/c",
        ),
        label: "spec",
    },
    Case {
        name: "kind",
        change: |spec| {
            spec["scaleTargetRef"] = json!({"apiVersion": "example.com/v1", "kind": "Sprocket", "name": "x"});
        },
        condition: (
            "AbleToScale",
            "False FailedGetScale the HPA controller was unable to get the target's current scale: no matches for \
             kind \"Sprocket\" in group \"example.com\"",
        ),
        label: "internal",
    },
    Case {
        name: "no-target",
        change: |spec| spec["scaleTargetRef"]["name"] = json!("absent"),
        condition: (
            "AbleToScale",
            "False FailedGetScale the HPA controller was unable to get the target's current scale: \
             deployments.apps \"absent\" not found",
        ),
        label: "internal",
    },
    Case {
        name: "no-reference",
        change: |spec| {
            spec.as_object_mut().unwrap().remove("scaleTargetRef");
        },
        condition: ("AbleToScale", "False FailedGetScale"),
        label: "internal",
    },
];

#[tokio::test(start_paused = true)]
async fn invalid_hpa_gets_a_condition_and_others_scale() {
    for case in CASES {
        let stage = Fixture::growing();
        stage.target(case.name, 4);
        let mut object = hpa(case.name, &[external("queue", "10")]);
        object["metadata"]["labels"] = json!({"team": "shop"});
        object["spec"]["newerField"] = json!({"mode": "Sideways"});
        (case.change)(&mut object["spec"]);
        stage.cluster.put_raw(object);
        let before = stage.hpa(case.name);

        let rig = Harness::start(stage);
        rig.until("the other HPA scales", 1.0, |stage| stage.replicas("web") == 8).await;
        rig.pass(20.0).await;
        let condition = rig.condition(case.name, case.condition.0);
        assert!(condition.starts_with(case.condition.1), "{}: {condition}", case.name);
        assert!(!rig.events(case.name).is_empty(), "{}", case.name);
        assert_eq!(rig.reconciliations("none", case.label), 2.0, "{}: {}", case.name, rig.telemetry.render());
        let after = rig.hpa(case.name);
        assert_eq!(after["spec"], before["spec"], "{}", case.name);
        for field in ["labels", "annotations", "uid", "creationTimestamp", "generation"] {
            assert_eq!(after["metadata"][field], before["metadata"][field], "{}", case.name);
        }
        assert_eq!(rig.replicas(case.name), 4, "{}", case.name);
        assert_eq!(rig.syncs("web").len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn minimum_above_maximum_follows_upstream_and_affects_no_other_hpa() {
    let stage = Fixture::growing();
    for (name, replicas) in [("above", 12), ("below", 2), ("between", 6)] {
        stage.target(name, replicas);
        let mut object = hpa(name, &[external("queue", "10")]);
        object["spec"]["minReplicas"] = json!(8);
        object["spec"]["maxReplicas"] = json!(5);
        stage.cluster.put_raw(object);
    }
    let rig = Harness::start(stage);
    rig.pass(1.0).await;
    // The maximum is checked before the minimum.
    let events = |name: &str| rig.events(name);
    assert_eq!(
        events("above"),
        ["SuccessfulRescale New size: 5; reason: Current number of replicas above Spec.MaxReplicas"]
    );
    assert_eq!(
        events("below"),
        ["SuccessfulRescale New size: 8; reason: Current number of replicas below Spec.MinReplicas"]
    );
    assert_eq!(
        events("between"),
        ["SuccessfulRescale New size: 5; reason: Current number of replicas above Spec.MaxReplicas"]
    );
    assert_eq!(rig.replicas("web"), 8);
}

#[tokio::test(start_paused = true)]
async fn hpa_with_an_enum_value_of_a_newer_api_scales() {
    let stage = Fixture::new();
    stage.external("queue", "80");
    stage.target("web", 4);
    let mut object = hpa("web", &[external("queue", "10")]);
    object["spec"]["behavior"] = json!({
        "scaleUp": {
            "selectPolicy": "Median", "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
        },
    });
    object["spec"]["metrics"][0]["external"]["target"]["type"] = json!("Median");
    stage.cluster.put_raw(object);
    let rig = Harness::start(stage);
    rig.until("it scales", 1.0, |stage| stage.replicas("web") == 8).await;
}
