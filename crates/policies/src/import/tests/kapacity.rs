//! IntelligentHorizontalPodAutoscalers.

use super::one;

fn ihpa(spec: &str) -> String {
    format!(
        "{{apiVersion: autoscaling.kapacitystack.io/v1alpha1, kind: IntelligentHorizontalPodAutoscaler, \
         metadata: {{name: web, namespace: shop}}, \
         spec: {{scaleTargetRef: {{kind: Deployment, name: web}}, minReplicas: 1, maxReplicas: 10, {spec}}}}}"
    )
}

const TITLE: &str = "IntelligentHorizontalPodAutoscaler shop/web";
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
        [format!("{TITLE}: spec.scaleMode: not imported: must be Auto or Preview, not \"auto\"")]
    );
    assert_eq!(
        one(&ihpa("paused: 1")).1,
        [format!("{TITLE}: spec.paused: not imported: must be true or false, not 1")]
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
        "{TITLE}: spec.portraitProviders[1].dynamic: not imported: metrics belong to spec.metrics of the HPA, and predictions have no \
         counterpart"
    );
    assert_eq!(import(&format!("{}, {dynamic}", cron(2))), (fixed, vec![metrics.clone(), STEP.to_owned()]));
    assert_eq!(import(&format!("{}, {dynamic}", cron(1))), (floor, vec![metrics.clone(), STEP.to_owned()]));
    let (spec, notes) = import(&format!("{}, {dynamic}", cron(0)));
    assert_eq!(spec, "");
    let replaced =
        "spec.portraitProviders[0]: not imported: a provider with a higher priority replaces its count";
    assert_eq!(notes, [format!("{TITLE}: {replaced}"), metrics]);
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
    let path = format!("{TITLE}: spec.portraitProviders[0].cron.crons[0]");
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
