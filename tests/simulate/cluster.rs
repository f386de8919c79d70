//! A scenario from a cluster: the program reads it over the network and prints a scenario that can run.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use clock::{SharedClock, SystemClock};
use concertina::tools::PROCESS;
use fake_cluster::Cluster;
use fake_cluster::load::{Curve, Load, LoadMetrics, Pipeline, Scraping, Work};
use fake_cluster::workload::Workloads;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use toolbox::simulate::simulate;

use crate::{file, only, options};

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
    // The first rate needs two scrapes. Their duration depends on the machine.
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
    let comparison =
        tokio::task::spawn_blocking(move || simulate(&options(&path), PROCESS).unwrap()).await.unwrap();
    let web = only(&comparison);
    assert_eq!((web.target.as_str(), web.decisions[0].explanation.current), ("Deployment/web", 2));
    assert!([8, 9].contains(&web.samples.last().unwrap().wanted), "2 cores at 250m each: {printed}");
}
