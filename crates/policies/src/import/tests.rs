//! Imports of objects, which follow the reference documentation of their projects.

mod adapter;
mod keda;

use proptest::prelude::*;

use super::{Context, Import, MAX_NOTES, Object, TooManyNotes};
use crate::spec::{Level, read};

/// Imports objects on Wednesday, 2 December 2026.
fn import(objects: &[Object]) -> Result<Import, TooManyNotes> {
    let invalid_query = |query: &str| Some(promql::Query::parse(query, None).err()?.to_string());
    let now = "2026-12-02T12:00:00Z".parse().unwrap();
    super::import(objects, &Context { now, invalid_query: &invalid_query })
}

/// Imports YAML documents. Returns the specs of the policies as JSON without selectors, and the notes without
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

/// Imports one document. Returns the only spec, which is empty if there is no policy, and the notes.
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
    #[test]
    fn imported_policy_is_valid_for_any_object(
        values in proptest::collection::vec(any_value(), 14),
        (trigger, behavior) in (0..3usize, 0..6usize),
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
        let objects = [Object { location: "a".into(), value: keda }];
        for policy in import(&objects).unwrap().policies {
            let mut value = serde_json::to_value(&policy).unwrap();
            let problems = read(value["spec"].take(), Level::Namespaced).problems;
            prop_assert!(problems.is_empty(), "{problems:?}");
        }
    }
}
