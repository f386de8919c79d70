//! Tests of `concertina simulate`: scenario files and their errors, scenarios from a cluster, and repeatable runs. Also
//! checks the claims of the examples, and recordings of kube-controller-manager that a scenario can express.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "simulate/errors.rs"]
mod errors;
#[path = "simulate/examples.rs"]
mod examples;
#[path = "simulate/recordings.rs"]
mod recordings;
#[path = "simulate/runs.rs"]
mod runs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use clock::{SharedClock, SystemClock};
use fake_cluster::Cluster;
use fake_cluster::load::{Curve, Load, LoadMetrics, Pipeline, Scraping, Work};
use fake_cluster::workload::Workloads;
use serde_json::json;
use simulate::options::{SimulateOptions, Source as SimulateSource};
use simulate::run::{Comparison, HpaRun};
use simulate::{schema, simulate};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Writes a file for one test and returns its path.
fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn options(path: &Path) -> SimulateOptions {
    SimulateOptions { source: SimulateSource::File(path.to_owned()), ..SimulateOptions::default() }
}

fn run_scenario(name: &str, text: &str) -> Comparison {
    simulate(&options(&file(name, text))).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the only HPA of the only run.
fn only(comparison: &Comparison) -> &HpaRun {
    assert_eq!((comparison.runs.len(), comparison.runs[0].hpas.len()), (1, 1));
    &comparison.runs[0].hpas[0]
}

#[test]
fn schema_file_matches_the_format() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/simulate.schema.json");
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let is_same = stored.trim_end() == schema().trim_end();
    assert!(is_same, "concertina simulate --schema > docs/simulate.schema.json");
}

#[test]
fn program_exits_with_0_or_locates_the_error() {
    let program = |words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_concertina")).arg("simulate").args(words).output().unwrap()
    };
    let text = format!("{}load: [{{cpu: 1}}]\nduration: 1m\n", runs::WEB);
    let path = file("program.yaml", &text);
    let output = program(&[path.to_str().unwrap(), "--csv", "-"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 5, "a heading and four samples");

    let wrong = file("program-wrong.yaml", &text.replace("1m", "soon"));
    let output = program(&[wrong.to_str().unwrap()]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("program-wrong.yaml:12: duration: invalid duration \"soon\""), "{error}");

    assert_eq!(program(&["--speed"]).status.code(), Some(2));
}

/// The program reads a scenario from a cluster over the network and prints it. The printed scenario runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_from_a_cluster_runs() {
    let clock: SharedClock = Arc::new(SystemClock);
    let cluster = Cluster::new(Arc::clone(&clock));
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web:1", "resources": {"requests": {"cpu": "500m"}}}]},
            },
        },
    });
    cluster.create(object).unwrap();
    let hpa = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
        },
    });
    cluster.create(hpa).unwrap();
    let workloads = Workloads::new(cluster.clone(), Arc::clone(&clock));
    workloads.warm_up();
    let pipeline = Pipeline::all(Scraping::every(Duration::from_millis(100)));
    let load = Arc::new(LoadMetrics::new(clock, pipeline));
    let web = load.add(Load {
        work: vec![Work::cpu(Curve::constant(2_000.0), 2_000.0)],
        ..Load::new("shop", "app", "web")
    });
    cluster.set_metrics(load.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let _stopping = stop.clone().drop_guard();
    let (serving, stopped) = (cluster.clone(), stop.clone());
    tokio::spawn(async move { serving.serve(listener, stopped).await });
    let (scraped, stopped) = (cluster.clone(), stop.clone());
    let scraping = Arc::clone(&load);
    tokio::spawn(async move { scraping.run(scraped, stopped).await });
    // The first rate needs two scrapes, whose duration depends on the machine.
    let usage = || load.state(web).is_some_and(|state| state.work[0].served > 500.0);
    while !usage() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let kubeconfig = file("cluster-kubeconfig.yaml", "apiVersion: v1\nkind: Config\n");
    let mut program = Command::new(env!("CARGO_BIN_EXE_concertina"));
    program.args([
        "simulate",
        "--from-cluster",
        "web",
        "-n",
        "shop",
        "--print-scenario",
        "--server",
        &server,
    ]);
    program.arg("--kubeconfig").arg(&kubeconfig);
    let output = tokio::task::spawn_blocking(move || program.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(cluster.requests().entries().iter().all(|request| ["get", "list"].contains(&request.verb)));

    let printed = String::from_utf8(output.stdout).unwrap();
    let path = file("cluster-scenario.yaml", &printed);
    let comparison = tokio::task::spawn_blocking(move || simulate(&options(&path)).unwrap()).await.unwrap();
    let web = only(&comparison);
    assert_eq!((web.target.as_str(), web.decisions[0].explanation.current), ("Deployment/web", 2));
    assert!([8, 9].contains(&web.samples.last().unwrap().wanted), "2 cores at 250m each: {printed}");
}
