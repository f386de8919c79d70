//! Imports of objects, which follow the reference documentation of their projects.

mod adapter;
mod keda;
mod zalando;

use proptest::prelude::*;

use super::*;
use crate::spec::{Level, read};

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

fn ihpa(spec: &str) -> String {
    format!(
        "{{apiVersion: autoscaling.kapacitystack.io/v1alpha1, kind: IntelligentHorizontalPodAutoscaler, \
         metadata: {{name: web, namespace: shop}}, \
         spec: {{scaleTargetRef: {{kind: Deployment, name: web}}, minReplicas: 1, maxReplicas: 10, {spec}}}}}"
    )
}

const IHPA: &str = "IntelligentHorizontalPodAutoscaler shop/web";
const STEP: &str = "IntelligentHorizontalPodAutoscaler shop/web: spec.scaleTargetRef: next step: create an HPA for Deployment web with \
                    minReplicas 1, maxReplicas 10 and the label concertina.dev/imported-from=web, and delete this object";

#[test]
fn pause_preview_and_directions_become_a_mode() {
    for (spec, mode) in [
        ("paused: true", "Paused"),
        ("paused: true, scaleMode: Preview", "Paused"),
        ("scaleMode: Preview", "DryRun"),
        ("scaleMode: Preview, behavior: {scaleUp: {disabled: true}}", "DryRun"),
        ("behavior: {scaleUp: {disabled: true}}", "ScaleDownOnly"),
        ("behavior: {scaleDown: {disabled: true}}", "ScaleUpOnly"),
        ("behavior: {scaleUp: {disabled: true}, scaleDown: {disabled: true}}", "Paused"),
    ] {
        assert_eq!(one(&ihpa(spec)), (format!(r#"{{"mode":"{mode}"}}"#), vec![STEP.to_owned()]), "{spec}");
    }
    for spec in ["", "paused: false", "scaleMode: Auto"] {
        assert_eq!(one(&ihpa(spec)), (String::new(), Vec::new()), "{spec}");
    }
    assert_eq!(
        one(&ihpa("scaleMode: auto")).1,
        [format!("{IHPA}: spec.scaleMode: not imported: must be Auto or Preview, not \"auto\"")]
    );
    assert_eq!(
        one(&ihpa("paused: 1")).1,
        [format!("{IHPA}: spec.paused: not imported: must be true or false, not 1")]
    );
}

#[test]
fn cron_provider_becomes_schedules_by_its_priority() {
    let cron = |priority: i32| {
        format!(
            "{{type: Cron, priority: {priority}, cron: {{crons: [{{name: day, timeZone: Asia/Shanghai, start: 0 8 * * *, end: 0 20 * * *, replicas: 5}}, \
             {{name: night, start: 0 20 * * *, end: 0 8 * * *, replicas: 2}}]}}}}"
        )
    };
    let dynamic = "{type: Dynamic, priority: 1, dynamic: {portraitType: Reactive}}";
    let schedules = |bound: &dyn Fn(i32) -> String| {
        format!(
            r#"{{"schedules":[{{"end":"0 20 * * *",{},"name":"day","start":"0 8 * * *","timeZone":"Asia/Shanghai"}},{{"end":"0 8 * * *",{},"name":"night","start":"0 20 * * *","timeZone":"UTC"}}]}}"#,
            bound(5),
            bound(2)
        )
    };
    let fixed = schedules(&|count| format!(r#""maxReplicas":{count},"minReplicas":{count}"#));
    let floor = schedules(&|count| format!(r#""minReplicas":{count}"#));
    let import = |providers: &str| one(&ihpa(&format!("portraitProviders: [{providers}]")));
    assert_eq!(import(&cron(0)), (fixed.clone(), vec![STEP.to_owned()]));
    let metrics = format!(
        "{IHPA}: spec.portraitProviders[1].dynamic: not imported: metrics belong to spec.metrics of the HPA, and predictions have no \
         counterpart"
    );
    assert_eq!(import(&format!("{}, {dynamic}", cron(2))), (fixed, vec![metrics.clone(), STEP.to_owned()]));
    assert_eq!(import(&format!("{}, {dynamic}", cron(1))), (floor, vec![metrics.clone(), STEP.to_owned()]));
    let (spec, notes) = import(&format!("{}, {dynamic}", cron(0)));
    assert_eq!(spec, "");
    let replaced =
        "spec.portraitProviders[0]: not imported: a provider with a higher priority replaces its count";
    assert_eq!(notes, [format!("{IHPA}: {replaced}"), metrics]);
}

#[test]
fn other_fields_are_noted() {
    let spec = "paused: true, portraitProviders: [{type: Static, priority: 0, static: {replicas: 3}}, {type: Other}, {priority: 1}], \
                behavior: {scaleUp: {grayStrategy: {grayState: Online}}, replicaProfile: {}}, stabilityCheckers: [{type: Metrics}], \
                minReplica: 2";
    let fields: Vec<_> = one(&ihpa(spec))
        .1
        .iter()
        .map(|note| note.splitn(4, ": ").skip(1).take(2).collect::<Vec<_>>().join(": "))
        .collect();
    assert_eq!(
        fields,
        [
            "spec.behavior.scaleUp.grayStrategy: not imported",
            "spec.behavior.replicaProfile: not imported",
            "spec.portraitProviders[0].static: not imported",
            "spec.portraitProviders[1].type: not imported",
            "spec.portraitProviders[2].type: not imported",
            "spec.minReplica: not imported",
            "spec.stabilityCheckers: not imported",
            "spec.scaleTargetRef: next step",
        ]
    );
}

#[test]
fn incomplete_cron_is_not_imported() {
    let import = |cron: &str| {
        one(&ihpa(&format!("portraitProviders: [{{type: Cron, cron: {{crons: [{{{cron}}}]}}}}]"))).1
    };
    let path = format!("{IHPA}: spec.portraitProviders[0].cron.crons[0]");
    assert_eq!(
        import("name: a, start: 0 8 * * *, end: 0 9 * * *"),
        [format!("{path}.replicas: not imported: is missing")]
    );
    assert_eq!(
        import("start: 0 8 * * *, end: 0 9 * * *, replicas: 1"),
        [format!("{path}.name: not imported: is missing")]
    );
    assert_eq!(import("name: a, start: '@daily at 8', end: 0 9 * * *, replicas: 1").len(), 1,);
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
