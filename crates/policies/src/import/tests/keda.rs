use super::one;

/// A ScaledObject with annotations, and with further fields of its spec.
fn scaled(annotations: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {{name: web, namespace: shop, annotations: {{{annotations}}}}}, \
         spec: {{scaleTargetRef: {{name: web}}, {spec}}}}}"
    )
}

#[test]
fn annotations_become_a_mode() {
    for (annotations, expected) in [
        ("autoscaling.keda.sh/paused: 'true'", r#"{"mode":"Paused"}"#),
        ("autoscaling.keda.sh/paused: ''", r#"{"mode":"Paused"}"#),
        ("autoscaling.keda.sh/paused: 'false'", ""),
        ("autoscaling.keda.sh/paused: 'F'", ""),
        ("autoscaling.keda.sh/paused-replicas: '4'", r#"{"mode":"Pinned","replicas":4}"#),
        ("autoscaling.keda.sh/paused-replicas: '0'", r#"{"mode":"Pinned","replicas":0}"#),
        (
            "autoscaling.keda.sh/paused-replicas: '4', autoscaling.keda.sh/paused: 'false'",
            r#"{"mode":"Pinned","replicas":4}"#,
        ),
        ("autoscaling.keda.sh/paused-scale-in: 'true'", r#"{"mode":"ScaleUpOnly"}"#),
        ("autoscaling.keda.sh/paused-scale-out: 'true'", r#"{"mode":"ScaleDownOnly"}"#),
        (
            "autoscaling.keda.sh/paused-scale-in: 'true', autoscaling.keda.sh/paused-scale-out: 'true'",
            r#"{"mode":"Paused"}"#,
        ),
        (
            "autoscaling.keda.sh/paused: 'true', autoscaling.keda.sh/paused-scale-in: 'true'",
            r#"{"mode":"Paused"}"#,
        ),
    ] {
        assert_eq!(one(&scaled(annotations, "triggers: []")).0, expected, "{annotations}");
    }
}

#[test]
fn annotations_have_a_next_step() {
    let step = |annotations: &str| one(&scaled(annotations, "triggers: []")).1;
    let path = "ScaledObject shop/web: metadata.annotations[autoscaling.keda.sh";
    assert_eq!(
        step("autoscaling.keda.sh/paused: 'true'"),
        [format!(
            "{path}/paused]: next step: remove the annotation after the policy applies: while it is set, KEDA deletes the HPA"
        )]
    );
    assert_eq!(
        step("autoscaling.keda.sh/paused-scale-in: 'true'"),
        [format!(
            "{path}/paused-scale-in]: next step: remove the annotation after the policy applies: while it is set, KEDA \
             disables the direction in the behavior of the HPA"
        )]
    );
    let invalid = step("autoscaling.keda.sh/paused-replicas: four");
    assert_eq!(
        invalid[0],
        format!("{path}/paused-replicas]: not imported: must be a count of pods, not \"four\"")
    );
    assert_eq!(
        step("autoscaling.keda.sh/force-activation: 'true'"),
        [format!(
            "{path}/force-activation]: stays in effect: KEDA keeps scaling to and from 0 or idleReplicaCount"
        )]
    );
}

#[test]
fn cron_trigger_becomes_a_floor() {
    let cron = "{type: cron, metadata: {timezone: Asia/Kolkata, start: 0 6 * * *, end: 0 20 * * *, desiredReplicas: '10'}}";
    let schedule = r#"{"end":"0 20 * * *","minReplicas":10,"name":"cron-0","start":"0 6 * * *","timeZone":"Asia/Kolkata"}"#;
    let expected = format!(r#"{{"schedules":[{schedule}]}}"#);
    let (spec, notes) = one(&scaled("", &format!("triggers: [{cron}]")));
    assert_eq!(spec, expected);
    assert_eq!(
        notes,
        [
            "ScaledObject shop/web: spec.triggers[0]: stays in effect: keep the trigger: it starts a target that KEDA has scaled to 0, \
          which a policy does not"
        ]
    );
    let (spec, notes) = one(&scaled("", &format!("minReplicaCount: 1, triggers: [{cron}]")));
    assert_eq!(spec, expected);
    assert!(notes[0].contains("keep one trigger"), "{notes:?}");
    let (spec, notes) =
        one(&scaled("", &format!("minReplicaCount: 1, triggers: [{cron}, {{type: prometheus}}]")));
    assert_eq!(spec, expected);
    assert_eq!(
        notes,
        [
            "ScaledObject shop/web: spec.triggers: stays in effect: triggers other than cron stay metrics of the HPA that KEDA writes",
            "ScaledObject shop/web: spec.triggers[0]: next step: remove the trigger after the policy applies",
        ]
    );
}

#[test]
fn invalid_cron_trigger_is_not_imported() {
    for (metadata, expected) in [
        (
            "timezone: Berlin, start: 0 6 * * *, end: 0 20 * * *, desiredReplicas: 3",
            "spec.triggers[0]: not imported: timeZone: no time zone has the name \"Berlin\"; did you mean \"Europe/Berlin\"?",
        ),
        (
            "timezone: UTC, start: 0 6 * * *, end: 0 6 * * *, desiredReplicas: 3",
            "spec.triggers[0]: not imported: end: is equal to start; for a schedule without an end use from and to",
        ),
        (
            "timezone: UTC, start: 0 6 * * *, end: 0 20 * * *",
            "spec.triggers[0].metadata.desiredReplicas: not imported: is missing",
        ),
        (
            "timezone: UTC, start: 0 6 * * *, end: 0 20 * * *, desiredReplicas: '0'",
            "spec.triggers[0].metadata.desiredReplicas: not imported: must be a count of at least 1, not \"0\"",
        ),
        (
            "timezone: UTC, start: 5, end: 0 20 * * *, desiredReplicas: 3",
            "spec.triggers[0].metadata.start: not imported: must be a text, not 5",
        ),
        (
            "timezone: UTC, end: 0 20 * * *, desiredReplicas: 3",
            "spec.triggers[0].metadata.start: not imported: is missing",
        ),
    ] {
        let (spec, notes) =
            one(&scaled("", &format!("triggers: [{{type: cron, metadata: {{{metadata}}}}}]")));
        assert_eq!(
            (spec.as_str(), notes),
            ("", vec![format!("ScaledObject shop/web: {expected}")]),
            "{metadata}"
        );
    }
    let cron =
        "{type: cron, metadata: {timezone: UTC, start: 0 6 * * *, end: 0 20 * * *, desiredReplicas: 3}}";
    let (spec, notes) =
        one(&scaled("", &format!("advanced: {{scalingModifiers: {{formula: a + b}}}}, triggers: [{cron}]")));
    assert_eq!(spec, "");
    assert!(notes[0].contains("spec.triggers[0]: not imported: the formula"), "{notes:?}");
}

#[test]
fn fallback_keeps_count_strategy_and_duration() {
    for (behavior, expected) in [
        ("", r#"{"action":"Replicas","failureDurationSeconds":45,"replicas":6,"when":"Error"}"#),
        (
            "behavior: static",
            r#"{"action":"Replicas","failureDurationSeconds":45,"replicas":6,"when":"Error"}"#,
        ),
        ("behavior: currentReplicas", r#"{"action":"Hold","failureDurationSeconds":45,"when":"Error"}"#),
        (
            "behavior: currentReplicasIfHigher",
            r#"{"action":"Replicas","failureDurationSeconds":45,"replicas":6,"strategy":"AtLeast","when":"Error"}"#,
        ),
        (
            "behavior: currentReplicasIfLower",
            r#"{"action":"Replicas","failureDurationSeconds":45,"replicas":6,"strategy":"AtMost","when":"Error"}"#,
        ),
    ] {
        let spec = format!(
            "fallback: {{failureThreshold: 3, replicas: 6, {behavior}}}, triggers: [{{type: kafka}}]"
        );
        let (spec, notes) = one(&scaled("", &spec));
        assert_eq!(spec, format!(r#"{{"fallback":[{expected}]}}"#), "{behavior}");
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert_eq!(
            notes[1],
            "ScaledObject shop/web: spec.fallback.failureThreshold: imported with a difference: 3 failures are 45 seconds, one \
             failure for each sync of 15 seconds"
        );
    }
    let cpu = one(&scaled("", "fallback: {failureThreshold: 3, replicas: 6}, triggers: [{type: cpu}]")).1;
    assert!(
        cpu.iter().any(
            |note| note.contains("spec.fallback: imported with a difference: it also applies to the cpu")
        ),
        "{cpu:?}"
    );
}

#[test]
fn invalid_fallback_is_not_imported() {
    for (fallback, expected) in [
        ("replicas: 6", "spec.fallback.failureThreshold: not imported: is missing"),
        ("failureThreshold: 3", "spec.fallback.replicas: not imported: is missing"),
        (
            "failureThreshold: -1, replicas: 6",
            "spec.fallback.failureThreshold: not imported: must be a count of failures, not -1",
        ),
        (
            "failureThreshold: 3, replicas: 6, behavior: scalingModifiers",
            "spec.fallback.behavior: not imported: policies have no formula",
        ),
        (
            "failureThreshold: 3, replicas: 6, behavior: x",
            "spec.fallback.behavior: not imported: must be a behavior of KEDA 2.21, not \"x\"",
        ),
    ] {
        let (spec, notes) = one(&scaled("", &format!("fallback: {{{fallback}}}")));
        assert_eq!(
            (spec.as_str(), notes),
            ("", vec![format!("ScaledObject shop/web: {expected}")]),
            "{fallback}"
        );
    }
    // The maximum of `failureDurationSeconds` is a day.
    let (spec, _) = one(&scaled("", "fallback: {failureThreshold: 100000, replicas: 6}"));
    assert!(spec.contains(r#""failureDurationSeconds":86400"#), "{spec}");
}

#[test]
fn fields_of_keda_stay_and_unknown_fields_are_noted() {
    let spec = "pollingInterval: 5, cooldownPeriod: 60, idleReplicaCount: 0, minReplicaCount: 1, maxReplicaCount: 9, \
                maxReplicas: 3, advanced: {horizontalPodAutoscalerConfig: {name: x}}";
    let notes = one(&scaled("", spec)).1;
    let fields: Vec<_> =
        notes.iter().map(|note| note.split(": ").skip(1).take(2).collect::<Vec<_>>().join(": ")).collect();
    assert_eq!(
        fields,
        [
            "spec.cooldownPeriod: stays in effect",
            "spec.idleReplicaCount: stays in effect",
            "spec.pollingInterval: stays in effect",
            "spec.maxReplicas: not imported",
        ]
    );
}

#[test]
fn policy_selects_the_hpa_of_the_scaled_object() {
    use super::{Object, import};
    let labels = |document: &str| {
        let object = Object { location: "a".into(), value: serde_saphyr::from_str(document).unwrap() };
        let policies = import(&[object]).unwrap().policies;
        let value = serde_json::to_value(&policies[0]).unwrap();
        assert_eq!(value["metadata"].to_string(), r#"{"name":"keda-web","namespace":"shop"}"#);
        assert_eq!(
            (&*policies[0].name(), &*policies[0].origin),
            ("shop/keda-web", "ScaledObject shop/web, a")
        );
        value["spec"]["selector"].to_string()
    };
    let object = scaled("autoscaling.keda.sh/paused: 'true'", "");
    assert_eq!(
        labels(&object),
        r#"{"matchLabels":{"app.kubernetes.io/managed-by":"keda-operator","app.kubernetes.io/part-of":"web"}}"#
    );
    // The labels of the ScaledObject replace the default labels of the HPA.
    let labelled = object
        .replace("name: web, namespace", "labels: {app.kubernetes.io/part-of: store}, name: web, namespace");
    assert!(labels(&labelled).contains(r#""app.kubernetes.io/part-of":"store""#));
}

#[test]
fn difference_from_keda_is_noted() {
    let cron =
        "{type: cron, metadata: {timezone: UTC, start: 30 6 * * 1-5, end: 10 22 * * *, desiredReplicas: 3}}";
    let (spec, notes) = one(&scaled("", &format!("minReplicaCount: 1, triggers: [{cron}]")));
    assert!(spec.contains("schedules"), "{spec}");
    assert_eq!(
        notes,
        [
            "ScaledObject shop/web: spec.triggers[0]: imported with a difference: KEDA is active from Fri 2026-12-04 06:30 to \
             Sun 2026-12-06 22:10, and the schedule is active from Fri 2026-12-04 06:30 to Fri 2026-12-04 22:10",
            "ScaledObject shop/web: spec.triggers[0]: stays in effect: keep one trigger: KEDA requires one, and its metric still \
             proposes its count at KEDA's times",
        ]
    );
}

#[test]
fn trigger_stays_if_keda_idles() {
    let cron =
        "{type: cron, metadata: {timezone: UTC, start: 0 6 * * *, end: 0 20 * * *, desiredReplicas: 3}}";
    let spec = format!("minReplicaCount: 2, idleReplicaCount: 0, triggers: [{cron}, {{type: kafka}}]");
    let notes = one(&scaled("", &spec)).1;
    assert!(
        notes[1].contains("keep the trigger: it starts a target that KEDA has scaled to idleReplicaCount"),
        "{notes:?}"
    );
}

#[test]
fn formula_is_the_only_metric() {
    let cron = "{name: day, type: cron, metadata: {timezone: UTC, start: 0 6 * * *, end: 0 20 * * *, desiredReplicas: 3}}";
    for (formula, expected) in
        [("day + rps", "uses the value of the trigger"), ("rps * 2", "does not use the trigger")]
    {
        let spec = format!(
            "advanced: {{scalingModifiers: {{formula: {formula}}}}}, triggers: [{cron}, {{name: rps, type: prometheus}}]"
        );
        let (spec, notes) = one(&scaled("", &spec));
        assert_eq!(spec, "");
        assert!(
            notes[0].contains("KEDA writes the formula of scalingModifiers to the HPA as one metric"),
            "{notes:?}"
        );
        assert!(
            notes[1].contains(&format!("not imported: the formula of scalingModifiers {expected}")),
            "{notes:?}"
        );
    }
}

#[test]
fn unknown_field_of_a_trigger_has_a_suggestion() {
    let cron =
        "{type: cron, metadata: {timezone: UTC, start: 0 6 * * *, end: 0 20 * * *, desiredReplicaCount: 3}}";
    let notes = one(&scaled("", &format!("triggers: [{cron}]"))).1;
    let path = "ScaledObject shop/web: spec.triggers[0].metadata";
    assert_eq!(
        notes,
        [
            format!("{path}.desiredReplicas: not imported: is missing"),
            format!(
                "{path}.desiredReplicaCount: not imported: the field is unknown; did you mean desiredReplicas?"
            ),
        ]
    );
}

#[test]
fn object_whose_hpa_cannot_exist_is_not_imported() {
    let object = scaled("autoscaling.keda.sh/paused: 'true'", "");
    let long = "x".repeat(64);
    for (from, to, expected) in [
        (
            "name: web, namespace: shop",
            format!("name: {long}, namespace: shop"),
            format!(
                "ScaledObject shop/{long}: metadata.name: not imported: as the label app.kubernetes.io/part-of of the HPA, the \
                 text must be no more than 63 bytes"
            ),
        ),
        (
            "name: web, namespace: shop",
            "name: false, namespace: shop".to_owned(),
            "ScaledObject shop/: metadata.name: not imported: must be a text, not false".to_owned(),
        ),
        (
            "name: web, namespace: shop",
            "name: '', namespace: shop".to_owned(),
            "ScaledObject shop/: metadata.name: not imported: is missing".to_owned(),
        ),
        (
            "namespace: shop",
            "namespace: true".to_owned(),
            "ScaledObject web: metadata.namespace: not imported: must be a text, not true".to_owned(),
        ),
        (
            "namespace: shop",
            "namespace: shop, labels: {app.kubernetes.io/part-of: 5}".to_owned(),
            "ScaledObject shop/web: metadata.labels[app.kubernetes.io/part-of]: not imported: must be a text, not 5"
                .to_owned(),
        ),
    ] {
        assert_eq!(one(&object.replacen(from, &to, 1)), (String::new(), vec![expected]));
    }
}

#[test]
fn one_failure_is_counted_in_the_singular() {
    let notes = one(&scaled("", "fallback: {failureThreshold: 1, replicas: 6}")).1;
    assert!(notes[0].contains("1 failure is 15 seconds"), "{notes:?}");
}
