//! Objects of other projects, written for these tests from the projects' reference documentation.

mod adapter;
mod kapacity;
mod keda;
mod zalando;

use proptest::prelude::*;

use super::*;
use crate::spec::{Level, read};

/// Imports YAML documents. Returns the specs of the policies as JSON, without selectors, and the notes without
/// locations.
fn imported(documents: &[&str]) -> (Vec<String>, Vec<String>) {
    let objects: Vec<Object> = documents
        .iter()
        .enumerate()
        .map(|(index, text)| Object {
            location: format!("document {}", index + 1).into(),
            value: serde_saphyr::from_str(text).unwrap(),
        })
        .collect();
    let Import { policies, notes, .. } = import(&objects).unwrap();
    let specs = policies.iter().map(|policy| {
        let mut value = serde_json::to_value(policy).unwrap();
        let mut spec = value["spec"].take();
        assert_eq!(read(spec.clone(), Level::Namespaced).problems, [], "{spec}");
        spec.as_object_mut().unwrap().remove("selector");
        spec.to_string()
    });
    let texts = notes.iter().map(|note| {
        let text = note.to_string();
        text.split_once(": ").map_or_else(|| text.clone(), |(_, rest)| rest.to_owned())
    });
    (specs.collect(), texts.collect())
}

/// Imports a document. Returns its only spec, or an empty text, and the notes.
fn one(document: &str) -> (String, Vec<String>) {
    let (mut specs, notes) = imported(&[document]);
    assert!(specs.len() <= 1, "{specs:?}");
    (specs.pop().unwrap_or_default(), notes)
}

#[test]
fn other_objects_are_ignored_and_relatives_are_noted() {
    for ignored in [
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}",
        "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {maxReplicas: 3}}",
        "{kind: ScaledObject, metadata: {name: web}}",
        "[1, 2]",
        "text",
    ] {
        assert_eq!(one(ignored), (String::new(), Vec::new()), "{ignored}");
    }
    let job = "{apiVersion: keda.sh/v1alpha1, kind: ScaledJob, metadata: {name: batch, namespace: shop}}";
    let note = "ScaledJob shop/batch: not imported: objects of this kind create no HPA and have no policy";
    assert_eq!(one(job), (String::new(), vec![note.to_owned()]));
}

#[test]
fn notes_of_an_input_are_bounded() {
    let value = serde_json::json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledJob", "metadata": {"name": "batch"},
    });
    let mut objects = vec![Object { location: "a".into(), value }; MAX_NOTES];
    assert_eq!(import(&objects).unwrap().notes.len(), MAX_NOTES);
    objects.push(objects[0].clone());
    assert_eq!(import(&objects), Err(TooManyNotes));
}

/// An arbitrary value for a field.
fn any_value() -> impl proptest::strategy::Strategy<Value = serde_json::Value> {
    use serde_json::json;
    proptest::sample::select(vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(7),
        json!(i64::MAX),
        json!(1.5),
        json!(""),
        json!("7"),
        json!("08:30"),
        json!("0 8 * * 1-5"),
        json!("0 19 * * *"),
        json!("Europe/Berlin"),
        json!("Mars/Base"),
        json!("2026-12-01T08:00:00Z"),
        json!("2027-01-01T08:00:00+02:00"),
        json!([]),
        json!(["Mon", "Sat"]),
        json!({}),
        json!("ä".repeat(60)),
    ])
}

proptest! {
    /// The reader of policies accepts all fields of an imported policy, for any object.
    #[test]
    fn imported_policy_is_valid_for_any_object(
        values in proptest::collection::vec(any_value(), 16),
        (trigger, behavior, provider, schedule) in (0..3usize, 0..6usize, 0..4usize, 0..3usize),
    ) {
        use serde_json::json;
        let value = |index: usize| values[index].clone();
        let behavior = ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower", "scalingModifiers", "x"][behavior];
        let keda = json!({
            "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
            "metadata": {"name": value(0), "namespace": value(1), "annotations": {
                "autoscaling.keda.sh/paused": value(2), "autoscaling.keda.sh/paused-replicas": value(3),
            }, "labels": value(4)},
            "spec": {
                "minReplicaCount": value(5),
                "triggers": [{"type": (["cron", "cpu", "x"][trigger]), "name": value(6), "metadata": {
                    "timezone": value(7), "start": value(8), "end": value(9), "desiredReplicas": value(10),
                }}],
                "fallback": {"failureThreshold": value(11), "replicas": value(12), "behavior": behavior},
                "cooldownPeriod": value(13),
            },
        });
        let kapacity = json!({
            "apiVersion": "autoscaling.kapacitystack.io/v1alpha1", "kind": "IntelligentHorizontalPodAutoscaler",
            "metadata": {"name": value(0)},
            "spec": {"paused": value(1), "scaleMode": value(2), "behavior": {"scaleUp": {"disabled": value(3)}},
                "portraitProviders": [
                    {"type": (["Cron", "Static", "Dynamic", "x"][provider]), "priority": value(4)},
                    {"type": "Cron", "priority": value(5), "cron": {"crons": [
                        {"name": value(6), "timeZone": value(7), "start": value(8), "end": value(9), "replicas": value(10)},
                    ]}},
                ]},
        });
        let zalando = json!({
            "apiVersion": "zalando.org/v1", "kind": "ClusterScalingSchedule", "metadata": {"name": "sale"},
            "spec": {"scalingWindowDurationMinutes": value(0), "schedules": [{
                "type": (["OneTime", "Repeating", "x"][schedule]), "date": value(1), "endDate": value(2),
                "durationMinutes": value(3), "value": value(4),
                "period": {"startTime": value(5), "endTime": value(6), "days": value(7), "timezone": value(8)},
            }]},
        });
        let hpa = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": value(9)},
            "spec": {"metrics": [{"type": "Object", "object": {
                "describedObject": {"apiVersion": "zalando.org/v1", "kind": "ClusterScalingSchedule", "name": "sale"},
                "target": {"type": "AverageValue", "averageValue": value(10)},
            }}]},
        });
        let objects = [keda, kapacity, zalando, hpa].map(|value| Object { location: "a".into(), value });
        for policy in import(&objects).unwrap().policies {
            let mut value = serde_json::to_value(&policy).unwrap();
            let problems = read(value["spec"].take(), Level::Namespaced).problems;
            prop_assert!(problems.is_empty(), "{problems:?}");
        }
    }
}
