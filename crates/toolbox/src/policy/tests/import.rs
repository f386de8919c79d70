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
    // The printed policies are valid.
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

const ADAPTER: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: adapter-config, namespace: monitoring}
  data:
    config.yaml: |
      rules:
      - seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
        resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
        name: {matches: "^(.*)_total$", as: "${1}_per_second"}
        metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: prometheus-adapter, namespace: monitoring}
  spec: {template: {spec: {containers: [{name: adapter, args: [--prometheus-url=http://prometheus.monitoring:9090/]}]}}}
- apiVersion: autoscaling/v2
  kind: HorizontalPodAutoscaler
  metadata: {name: web, namespace: shop}
  spec: {maxReplicas: 9, metrics: [{type: Pods, pods: {metric: {name: http_requests_per_second}}}]}
"#;

#[tokio::test(start_paused = true)]
async fn adapter_becomes_a_file_of_sources_and_policies() {
    let folder = Folder::new("sources-import");
    let file = folder.file("adapter.yaml", ADAPTER);
    let import = async |sources: Option<PathBuf>| {
        let options = PolicyOptions::ImportSources { files: vec![file.clone().into()], sources };
        let clock: SharedClock = Arc::new(VirtualClock::starting_at(NOW.parse().unwrap()));
        let (mut out, mut notes) = (Vec::new(), Vec::new());
        let verdict = run_with(&options, None, clock, &mut out, &mut notes).await.unwrap();
        (verdict, String::from_utf8(out).unwrap(), String::from_utf8(notes).unwrap())
    };
    let (verdict, out, notes) = import(None).await;
    assert_eq!(verdict, Verdict::Good, "{notes}");
    let server = "prometheus:
- name: main
  url: http://prometheus.monitoring:9090/
  enforceNamespaceLabel: namespace
";
    let (first, policies) = out.split_at(out.rfind("---").unwrap());
    assert_eq!(first, format!("---\n# The file of --metric-sources\n{server}"));
    assert!(policies.contains("kind: ScalingPolicy") && policies.contains("server: main"), "{policies}");
    assert!(notes.ends_with("3 objects read, 1 policy printed, 0 fields not imported\n"), "{notes}");
    // With a file for the sources, standard output can be applied.
    let path = folder.0.join("sources.yaml");
    let (verdict, out, _) = import(Some(path.clone())).await;
    assert_eq!((verdict, out.as_str()), (Verdict::Good, policies));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), server);
    let printed = folder.file("policies.yaml", &out);
    assert_eq!(run(&folder, &["check", "--offline", &printed], None).await.verdict, Ok(Verdict::Good));
    // An HPA that uses no metric of the rules needs no source.
    let resources = "resourceRules: {cpu: {}}\n---\n".to_owned() + &ADAPTER.replace("rules:", "others:");
    folder.file("adapter.yaml", &resources);
    let (verdict, out, notes) = import(None).await;
    assert_eq!((verdict, out.as_str()), (Verdict::Attention, ""), "{notes}");
    assert!(notes.contains("resourceRules: stays in effect"), "{notes}");
    // The command needs a configuration of the adapter.
    folder.file("adapter.yaml", "kind: ConfigMap");
    let options = PolicyOptions::ImportSources { files: vec![file.clone().into()], sources: None };
    let clock: SharedClock = Arc::new(VirtualClock::starting_at(NOW.parse().unwrap()));
    let failed = run_with(&options, None, clock, &mut Vec::new(), &mut Vec::new()).await.unwrap_err();
    assert!(
        failed.to_string().ends_with("adapter.yaml has no configuration of prometheus-adapter"),
        "{failed}"
    );
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
