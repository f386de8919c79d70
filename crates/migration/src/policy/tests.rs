//! Tests of the commands with files, and against the in-memory cluster.

mod check;

use std::path::PathBuf;
use std::sync::Arc;

use fake_cluster::Cluster;
use serde_json::{Value, json};

use super::{DEFAULT_NAMESPACE, PolicyError, Verdict, answer};
use crate::policy::options::PolicyOptions;
use crate::policy::options::{CheckOptions, command, options};
use clock::{SharedClock, VirtualClock};
use cluster::client::{ClientOptions, Clients};
use terminal::options::parsed;

/// The time of most tests, which is a Monday at 13:00 in Berlin.
const NOW: &str = "2026-11-23T12:00:00Z";

/// A folder for the files of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("concertina-policy-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The result of a command.
struct Ran {
    verdict: Result<Verdict, String>,
    /// Standard output.
    out: String,
    /// Standard error.
    notes: String,
}

impl Ran {
    fn document(&self) -> Value {
        serde_json::from_str(&self.out).unwrap()
    }
}

/// Runs a command against a cluster. The paths in its outputs are relative to the folder.
async fn run_options(now: &str, folder: &Folder, options: &PolicyOptions, cluster: Option<&Cluster>) -> Ran {
    let clock: SharedClock = Arc::new(VirtualClock::starting_at(now.parse().unwrap()));
    let connect = |options: &CheckOptions| {
        let namespace = options.cluster.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let clients = match cluster {
            _ if options.offline => None,
            Some(cluster) => Some(Clients::over(cluster.connector(), &ClientOptions::default()).unwrap()),
            None => return Err(PolicyError::Interrupted),
        };
        Ok((clients, namespace.to_owned()))
    };
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let verdict = answer(options, connect, clock, false, &mut out, &mut notes).await;
    let short = |text: String| text.replace(&format!("{}/", folder.0.display()), "");
    let text = |bytes| short(String::from_utf8(bytes).unwrap());
    Ran { verdict: verdict.map_err(|error| short(error.to_string())), out: text(out), notes: text(notes) }
}

/// Runs `policy` with the given arguments at [`NOW`].
async fn run(folder: &Folder, words: &[&str], cluster: Option<&Cluster>) -> Ran {
    run_at(NOW, folder, words, cluster).await
}

async fn run_at(now: &str, folder: &Folder, words: &[&str], cluster: Option<&Cluster>) -> Ran {
    run_options(now, folder, &parsed(command("concertina"), words, options).unwrap(), cluster).await
}

/// Returns a cluster with the HPAs `shop/web` and `back/jobs`, each with 2 to 20 replicas.
fn cluster() -> Cluster {
    let clock: SharedClock = Arc::new(VirtualClock::starting_at(NOW.parse().unwrap()));
    let cluster = Cluster::new(clock);
    for (namespace, name, team) in [("shop", "web", "shop"), ("back", "jobs", "back")] {
        cluster
            .create(json!({
                "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                "metadata": {"namespace": namespace, "name": name, "labels": {"team": team}},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                    "minReplicas": 2, "maxReplicas": 20,
                },
            }))
            .unwrap();
    }
    cluster
}

fn policy(kind: &str, name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "autoscaling.concertina.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    if kind == "ScalingPolicy" {
        object["metadata"]["namespace"] = json!("shop");
    }
    object
}

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
    let rules = folder.file(
        "rules.json",
        r#"{"rules": [{"seriesQuery": "requests", "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
            "resources": {"template": "<<.Resource>>"}}]}"#,
    );
    let list = |name: &str| {
        format!(
            r#"{{"apiVersion": "v1", "kind": "List", "items": [{{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {{"name": "{name}", "namespace": "shop"}}, "spec": {{"maxReplicas": 20, "metrics": [
                {{"type": "Pods", "pods": {{"metric": {{"name": "requests"}}}}}}]}}}}]}}"#
        )
    };
    let hpas = folder.file("hpas.json", &list("web"));
    let ran = run(&folder, &["import", "-f", &rules, "-f", &hpas], None).await;
    assert!(
        ran.out.starts_with("---\n# HorizontalPodAutoscaler shop/web, hpas.json: document 1, items[0]\n"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("sum(requests{"), "{}", ran.out);
    // The name of the policy would be invalid.
    let hpas = folder.file("hpas.json", &list("web\\u001b[2J\\nkind: Secret"));
    let ran = run(&folder, &["import", "-f", &rules, "-f", &hpas], None).await;
    assert_eq!(ran.out, "");
    let reason = "not imported: the policy would be invalid: metadata.name: must be a DNS name of at most 253 characters";
    assert!(ran.notes.contains(reason) && !ran.notes.contains('\u{1b}'), "{}", ran.notes);
}

#[tokio::test(start_paused = true)]
async fn invalid_query_is_a_problem_of_the_policy() {
    let folder = Folder::new("check-queries");
    for (query, expected) in
        [("sum(up)", "valid"), ("sum(", "1 problem"), ("rate(up)", "1 problem"), ("up[5m*2]", "valid")]
    {
        let text = format!("metrics: [{{metric: a, prometheus: {{server: main, query: '{query}'}}}}]");
        let file = folder.file("policy.yaml", &text);
        let ran = run(&folder, &["check", "--offline", &file], None).await;
        assert!(ran.out.contains(&format!("annotation: {expected}\n")), "{query}: {}", ran.out);
        assert_eq!(
            ran.out.contains("metrics.a.prometheus.query: the query is invalid: "),
            expected != "valid",
            "{}",
            ran.out
        );
        let text = format!("forecast: {{history: {{server: main, query: '{query}'}}}}");
        let file = folder.file("policy.yaml", &text);
        let ran = run(&folder, &["check", "--offline", &file], None).await;
        assert_eq!(
            ran.out.contains("forecast.history.query: the query is invalid: "),
            expected != "valid",
            "{}",
            ran.out
        );
    }
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
        let Ran { verdict, out, notes } = run_options(NOW, &folder, &options, None).await;
        (verdict.unwrap(), out, notes)
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
    // With a file for the sources, standard output contains only the policies.
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
    let failed = run_options(NOW, &folder, &options, None).await.verdict.unwrap_err();
    assert_eq!(failed, "adapter.yaml has no configuration of prometheus-adapter");
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
        "a.yaml has no ScaledObject or configuration of prometheus-adapter"
    );
    assert!(error("a: 1\n---\nb: [").await.starts_with("a.yaml: document 2: "));
}

#[tokio::test]
async fn sources_check_reads_files_and_config_maps() {
    let folder = Folder::new("sources-check");
    let check = async |name: &str, text: &str| {
        let options = PolicyOptions::CheckSources { files: vec![folder.file(name, text).into()] };
        run_options(NOW, &folder, &options, None).await
    };
    let invalid = "pods: {concurrency: 0}";
    let good = check("a.yaml", "pods: {enabled: true}").await;
    assert_eq!((good.verdict, &*good.out), (Ok(Verdict::Good), "a.yaml: metric sources: valid\n"));
    let bad = check("a.yaml", invalid).await;
    let reason = "pods.concurrency must be from 1 to 4096, not 0\n";
    assert_eq!((bad.verdict, bad.out), (Ok(Verdict::Attention), format!("a.yaml: metric sources: {reason}")));
    let broken = check("a.yaml", "pods: {").await;
    assert_eq!(broken.verdict, Ok(Verdict::Attention));
    assert!(broken.out.starts_with("a.yaml: metric sources: "), "{}", broken.out);
    let map = |data: Value| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": data});
        format!("kind: Service\n---\n{}", json!({"kind": "List", "items": [map]}))
    };
    let in_map = check("a.yaml", &map(json!({"sources.yaml": invalid, "note": "[]"}))).await;
    assert_eq!(in_map.verdict, Ok(Verdict::Attention));
    assert_eq!(in_map.out, format!("a.yaml: ConfigMap b: sources.yaml: metric sources: {reason}"));
    let other = check("a.yaml", &map(json!({"c.yaml": "", "d.yaml": ""}))).await;
    assert_eq!(other.out.lines().count(), 2, "{}", other.out);
    let none = check("a.yaml", "kind: Service").await;
    assert_eq!(none.verdict, Err("a.yaml has no ConfigMap with data".to_owned()));
}
