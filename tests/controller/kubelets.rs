//! HPAs whose policy reads cpu and memory from the kubelets of their pods.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::reconcile::NO_SOURCES;
use fake_cluster::pages::{PageResponse, PageServers};
use flags::Config;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::policies::annotated;
use crate::sources::{SourceFile, ages_of_apis, config, readings, stage};
use crate::support::objects::{cpu, hpa, pod};
use crate::support::{Fixture, Harness};

const POLICY: &str = "metrics: [{metric: cpu, kubelet: {}}]";
const NODE: &str = "192.168.0.1:10250";
/// The start of every test, in seconds since the Unix epoch.
const EPOCH: f64 = 1_893_456_000.0;

struct Token(PathBuf);

impl Drop for Token {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn with_kubelets(servers: &PageServers) -> (Config, (SourceFile, Token)) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let token = std::env::temp_dir().join(format!("hpa-kubelet-token-{}-{number}", std::process::id()));
    std::fs::write(&token, "secret").unwrap();
    let file =
        format!("kubelet: {{enabled: true, insecureSkipVerify: true, bearerTokenFile: {}}}", token.display());
    let (config, file) = config(servers, &file);
    (config, (file, Token(token)))
}

/// Starts a kubelet that measures every ten seconds. `used` returns the cpu seconds that each pod has used at a given
/// second. The kubelet starts at second 1000.
fn serve(servers: &PageServers, address: &str, pods: usize, used: fn(f64) -> f64) {
    let start = Instant::now();
    servers.serve(address, move |_| {
        let at = (start.elapsed().as_secs_f64() / 10.0).floor() * 10.0;
        let millis = (EPOCH + at) * 1e3;
        let page = (0..pods).map(|index| {
            let labels = format!("{{container=\"app\",namespace=\"shop\",pod=\"web-{index:04}\"}}");
            format!(
                "container_cpu_usage_seconds_total{labels} {} {millis}\n\
                 container_memory_working_set_bytes{labels} 67108864 {millis}\n\
                 container_start_time_seconds{labels} {}\n",
                used(at + 1000.0),
                EPOCH - 86_400.0
            )
        });
        PageResponse::page(page.collect::<String>())
    });
}

/// The current metrics, the desired count, the replicas of the target, and the conditions without times and reasons.
fn status(rig: &Harness) -> Value {
    let status = &rig.hpa("web")["status"];
    let conditions = status["conditions"].as_array().unwrap().iter();
    let mut conditions: Vec<Value> = conditions
        .map(|condition| json!([condition["type"], condition["status"], condition["message"]]))
        .collect();
    conditions.sort_by_key(Value::to_string);
    json!([status["currentMetrics"], status["desiredReplicas"], rig.replicas("web"), conditions])
}

/// The cpu seconds of a pod that uses 60 millicores, and 120 millicores from the 60th second of the test on.
fn growing(at: f64) -> f64 {
    at * 0.06 + (at - 1060.0).max(0.0) * 0.06
}

#[tokio::test(start_paused = true)]
async fn decisions_equal_those_through_the_metrics_api() {
    let servers = PageServers::default();
    serve(&servers, NODE, 2, growing);
    let (config, _files) = with_kubelets(&servers);
    let direct = Harness::with(stage(cpu(50), POLICY), &config);
    // metrics-server would report these values from the same counters.
    let through = stage(cpu(50), "");
    through.cpu("web", &[60, 60]);
    let through = Harness::start(through);
    direct.pass(50.0).await;
    assert_eq!(direct.replicas("web"), 3);
    assert_eq!(status(&direct), status(&through));
    direct.pass(20.0).await;
    through.cpu("web", &[120, 120]);
    direct.pass(40.0).await;
    assert_eq!(direct.replicas("web"), 5);
    assert_eq!(status(&direct), status(&through));
    let requests = direct.cluster.requests();
    assert_eq!(requests.count(|request| request.path.contains("metrics.k8s.io/v")), 0);
    assert!(servers.requests().iter().all(|request| request.path == "/metrics/resource"));
    assert!(servers.requests().iter().all(|request| request.authorization == "Bearer secret"));
    let reading = &readings(&direct)[0];
    assert_eq!((&*reading.metric, &*reading.source), ("cpu", "kubelets, /metrics/resource"));
    assert_eq!((reading.numbers, &reading.problem), (2, &None));
    assert!((reading.values[0].value - 0.12).abs() < 1e-6, "{:?}", reading.values);
    assert!(reading.age_seconds.unwrap() < 15.0);
    assert!(direct.series("concertina_metric_age_seconds_count{source=\"kubelet\"}") >= 1.0);
    assert_eq!(ages_of_apis(&direct), 0.0);
    assert!(ages_of_apis(&through) >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_down_are_missing() {
    let servers = PageServers::default();
    serve(&servers, NODE, 2, |at| at * 0.15);
    let (config, _files) = with_kubelets(&servers);
    let stage = stage(cpu(50), POLICY);
    let mut other = stage.cluster.get("pods", "shop", "web-0001").unwrap();
    other["status"]["hostIP"] = json!("192.168.0.2");
    stage.cluster.put_raw(other);
    let rig = Harness::with(stage, &config);
    // For a scale-up, the usage of a missing pod is treated as 0, so the pods use 150 of 200 millicores.
    rig.until("the demand", 40.0, |stage| stage.replicas("web") == 3).await;
    rig.pass(1.0).await;
    let problem = readings(&rig)[0].problem.clone().unwrap();
    assert!(problem.starts_with("pod web-0001: node 192.168.0.2: the request failed: "), "{problem}");
    assert_eq!(readings(&rig)[0].reason.as_deref(), Some("Request"));
    let failed = "concertina_metric_source_errors_total{reason=\"Request\",source=\"kubelet\"}";
    assert!(rig.series(failed) >= 1.0, "{}", rig.telemetry.render());
    // Without any node, the metric fails, and the count stays.
    servers.remove(NODE);
    rig.pass(40.0).await;
    assert_eq!(rig.replicas("web"), 3);
    let active = rig.condition("web", "ScalingActive");
    assert!(active.starts_with("False FailedGetResourceMetric"), "{active}");
    assert!(active.contains("resource metrics API: kubelets, /metrics/resource: none of 2 pods"), "{active}");
}

#[tokio::test(start_paused = true)]
async fn node_is_followed_to_another_address() {
    let servers = PageServers::default();
    serve(&servers, NODE, 2, |at| at * 0.05);
    let (config, _files) = with_kubelets(&servers);
    let rig = Harness::with(stage(cpu(50), POLICY), &config);
    rig.pass(40.0).await;
    assert_eq!(rig.replicas("web"), 2);
    servers.remove(NODE);
    serve(&servers, "192.168.0.9:10250", 2, |at| at * 0.1);
    for pod in ["web-0000", "web-0001"] {
        let mut moved = rig.cluster.get("pods", "shop", pod).unwrap();
        moved["status"]["hostIP"] = json!("192.168.0.9");
        rig.cluster.put_raw(moved);
    }
    rig.until("the demand", 60.0, |stage| stage.replicas("web") == 4).await;
}

#[tokio::test(start_paused = true)]
async fn hundred_hpas_share_one_scrape_of_a_node() {
    let servers = PageServers::default();
    serve(&servers, NODE, 1, |at| at * 0.05);
    let (config, _files) = with_kubelets(&servers);
    let stage = Fixture::new();
    for index in 0..100 {
        let name = format!("app-{index}");
        stage.target(&name, 1);
        let mut pod = pod(&name, 0);
        pod["status"]["podIP"] = json!(format!("10.0.0.{index}"));
        pod["status"]["hostIP"] = json!("192.168.0.1");
        stage.cluster.put_raw(pod);
        stage.create(annotated(hpa(&name, &[cpu(50)]), POLICY));
    }
    let rig = Harness::spread(stage, &config);
    rig.pass(60.0).await;
    // The controller scrapes every five seconds, or slightly earlier for a sync.
    let requests = servers.requests().len();
    assert!((11..=14).contains(&requests), "{requests}");
    assert_eq!(servers.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_file_the_metrics_api_answers() {
    let servers = PageServers::default();
    serve(&servers, NODE, 2, |at| at * 0.5);
    let requests = async |config: &Config, policy: &str, reason: Option<&str>| {
        let stage = stage(cpu(50), policy);
        stage.cpu("web", &[100, 100]);
        let rig = Harness::with(stage, config);
        rig.pass(40.0).await;
        assert_eq!(rig.replicas("web"), 4);
        let reasons: Vec<_> = readings(&rig).into_iter().map(|reading| reading.reason).collect();
        assert_eq!(reasons, Vec::from_iter(reason.map(|reason| Some(reason.to_owned()))));
        let requests = rig.cluster.requests().entries();
        requests.iter().map(|request| (request.verb, request.path.clone())).collect::<Vec<_>>()
    };
    let plain = requests(&Config::default(), "syncPeriodSeconds: 15", None).await;
    assert_eq!(requests(&Config::default(), POLICY, Some(NO_SOURCES)).await, plain);
    // The controller has the file, but the policy names no kubelet as the source of the metric.
    let (with_file, _files) = with_kubelets(&servers);
    let other = "metrics: [{metric: cpu, prometheus: {server: main, query: up}}]";
    assert_eq!(requests(&with_file, other, None).await, plain);
    assert_eq!(servers.connections(), 0);
}
