//! `policy import`.

use super::*;

const SCALED_OBJECT: &str = "
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: web
  namespace: shop
  annotations:
    autoscaling.keda.sh/paused-replicas: '4'
spec:
  scaleTargetRef: {name: web}
  minReplicaCount: 1
  triggers:
  - type: cron
    name: day
    metadata: {timezone: Europe/Berlin, start: 0 8 * * 1-5, end: 0 19 * * 1-5, desiredReplicas: '10'}
  - type: cpu
";

#[tokio::test(start_paused = true)]
async fn policies_are_printed_and_notes_name_file_document_and_field() {
    let folder = Folder::new("import");
    let file = folder.file("keda.yaml", &format!("kind: ConfigMap\n---{SCALED_OBJECT}"));
    let ran = run(&folder, &["import", "-f", &file], None).await;
    assert_eq!(
        ran.out,
        "---
# ScaledObject shop/web, keda.yaml: document 2
apiVersion: autoscaling.concertina.dev/v1alpha1
kind: ScalingPolicy
metadata:
  name: keda-web
  namespace: shop
spec:
  selector:
    matchLabels:
      app.kubernetes.io/managed-by: keda-operator
      app.kubernetes.io/part-of: web
  mode: Pinned
  replicas: 4
  schedules:
  - name: day
    timeZone: Europe/Berlin
    start: 0 8 * * 1-5
    end: 0 19 * * 1-5
    minReplicas: 10
"
    );
    assert_eq!(
        ran.notes,
        "keda.yaml: document 2: ScaledObject shop/web: metadata.annotations[autoscaling.keda.sh/paused-replicas]: next step: \
         remove the annotation after the policy applies: while it is set, KEDA deletes the HPA
keda.yaml: document 2: ScaledObject shop/web: spec.triggers: stays in effect: triggers other than cron stay metrics of the HPA \
         that KEDA writes
keda.yaml: document 2: ScaledObject shop/web: spec.triggers[0]: next step: remove the trigger after the policy applies
1 object read, 1 policy printed, 0 fields not imported
"
    );
    assert_eq!(ran.verdict, Ok(Verdict::Good));
    // What is printed is valid.
    let printed = folder.file("policies.yaml", &ran.out);
    let ran = run(&folder, &["check", "--offline", &printed], None).await;
    assert_eq!(ran.verdict, Ok(Verdict::Good), "{}", ran.out);
}

#[tokio::test(start_paused = true)]
async fn field_that_is_not_imported_has_its_own_exit_code() {
    let folder = Folder::new("import-lost");
    let text = SCALED_OBJECT.replace("Europe/Berlin", "Europe/Bonn");
    let file = folder.file("keda.yaml", &text);
    let ran = run(&folder, &["import", "-f", &file], None).await;
    assert_eq!(ran.verdict, Ok(Verdict::Attention));
    assert_eq!(ran.verdict.map(Verdict::exit_code), Ok(3));
    assert!(ran.notes.contains("spec.triggers[0]: not imported: timeZone: no time zone"), "{}", ran.notes);
    assert!(ran.notes.ends_with("1 object read, 1 policy printed, 1 field not imported\n"), "{}", ran.notes);
    assert!(!ran.out.contains("schedules"), "{}", ran.out);
}

#[tokio::test(start_paused = true)]
async fn files_are_combined_and_control_characters_are_escaped() {
    let folder = Folder::new("import-files");
    let schedule = folder.file(
        "schedule.json",
        r#"{"apiVersion": "zalando.org/v1", "kind": "ClusterScalingSchedule", "metadata": {"name": "sale\u001b[2J\nkind: Secret"}, "spec": {
            "schedules": [{"type": "OneTime", "date": "2027-01-01T00:00:00Z", "durationMinutes": 60, "value": 100}]}}"#,
    );
    let hpas = folder.file(
        "hpas.json",
        r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"maxReplicas": 20, "metrics": [{"type": "Object", "object": {
                "describedObject": {"apiVersion": "zalando.org/v1", "kind": "ClusterScalingSchedule", "name": "sale\u001b[2J\nkind: Secret"},
                "target": {"type": "AverageValue", "averageValue": "10"}}}]}}]}"#,
    );
    let ran = run(&folder, &["import", "-f", &schedule, "-f", &hpas], None).await;
    assert!(
        ran.out.starts_with("---\n# HorizontalPodAutoscaler shop/web, hpas.json: document 1, items[0]\n"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("minReplicas: 10\n"), "{}", ran.out);
    assert!(!ran.out.contains('\u{1b}') && !ran.notes.contains('\u{1b}'), "{}{}", ran.out, ran.notes);
    assert!(!ran.out.lines().any(|line| line.starts_with("kind: Secret")), "{}", ran.out);
}

#[tokio::test(start_paused = true)]
async fn unusable_input_is_an_error() {
    let folder = Folder::new("import-errors");
    let error = async |text: &str| {
        let file = folder.file("a.yaml", text);
        run(&folder, &["import", "-f", &file], None).await.verdict.unwrap_err()
    };
    assert_eq!(
        error("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}").await,
        "a.yaml has no ScaledObject, IntelligentHorizontalPodAutoscaler, ScalingSchedule or configuration of prometheus-adapter"
    );
    assert!(error("a: 1\n---\nb: [").await.starts_with("a.yaml: document 2: "));
}
