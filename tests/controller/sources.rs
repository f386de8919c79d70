//! HPAs whose policy names a Prometheus server or the pods' own pages.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use controller::options::MetricSources;
use engine::reconcile::{NO_SOURCES, SourceReading, SourceValue};
use engine::store::Key;
use fake_cluster::pages::{PageResponse, PageServers};
use flags::Config;
use serde_json::{Value, json};
use sources::{Dial, InMemory, Sources};

use crate::policies::annotated;
use crate::support::objects::{external, hpa, pod};
use crate::support::{Fixture, Harness};

pub(crate) const FILE: &str = "
prometheus: [{name: main, url: 'http://prometheus:9090', enforceNamespaceLabel: namespace}]
pods: {enabled: true}
";
const WAITING: &str = "metrics: [{metric: waiting, pods: {port: http, series: waiting, intervalSeconds: 1}}]";

fn in_memory(servers: &PageServers) -> Arc<dyn Dial> {
    let servers = servers.clone();
    Arc::new(InMemory::new(move |address: &str| servers.dial(address)))
}

/// A file that is removed on drop.
pub(crate) struct SourceFile(PathBuf);

impl SourceFile {
    pub(crate) fn path(&self) -> &PathBuf {
        &self.0
    }
}

impl Drop for SourceFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) fn config(servers: &PageServers, file: &str) -> (Config, SourceFile) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("hpa-sources-{}-{number}.yaml", std::process::id()));
    std::fs::write(&path, file).unwrap();
    let sources = Sources::new(path.clone(), Some(in_memory(servers))).unwrap();
    let mut config = Config::default();
    config.controller.metric_sources = Some(MetricSources(Arc::new(sources)));
    (config, SourceFile(path))
}

pub(crate) fn pods_metric(name: &str, average: &str) -> Value {
    json!({"type": "Pods", "pods": {
        "metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": average},
    }})
}

/// An HPA `web` with a policy, and two pods at 10.0.0.1 and 10.0.0.2 that declare port 8080.
pub(crate) fn stage(metric: Value, policy: &str) -> Fixture {
    let stage = Fixture::new();
    stage.target("web", 2);
    for index in 0..2 {
        let mut pod = pod("web", index);
        pod["spec"]["containers"][0]["ports"] = json!([{"name": "http", "containerPort": 8080}]);
        pod["status"]["podIP"] = json!(format!("10.0.0.{}", index + 1));
        pod["status"]["hostIP"] = json!("192.168.0.1");
        stage.cluster.put_raw(pod);
    }
    stage.create(annotated(hpa("web", &[metric]), policy));
    stage
}

pub(crate) fn readings(rig: &Harness) -> Vec<SourceReading> {
    let list = rig.assembly.decisions.as_ref().unwrap().list(&Key::new("shop", "web")).unwrap();
    list.decisions[0].sources.clone()
}

fn metrics_requests(rig: &Harness) -> usize {
    rig.cluster.requests().count(|request| request.path.contains("metrics.k8s.io/v"))
}

/// Number of observed ages of metrics API responses.
pub(crate) fn ages_of_apis(rig: &Harness) -> f64 {
    let series = |api: &str| rig.series(&format!("concertina_metrics_age_seconds_count{{api=\"{api}\"}}"));
    ["metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"].map(series).iter().sum()
}

#[tokio::test(start_paused = true)]
async fn hpa_follows_the_numbers_of_its_own_pods() {
    let servers = PageServers::default();
    servers.serve("10.0.0.1:8080", |_| PageResponse::page("waiting 15\n"));
    servers.serve("10.0.0.2:8080", |_| PageResponse::page("waiting 20\n"));
    let (config, _file) = config(&servers, FILE);
    let rig = Harness::with(stage(pods_metric("waiting", "10"), WAITING), &config);
    rig.until("the demand", 2.0, |stage| stage.replicas("web") == 4).await;
    rig.pass(1.0).await;
    let metric = &rig.hpa("web")["status"]["currentMetrics"][0];
    assert_eq!(metric["pods"]["current"]["averageValue"], "17500m");
    assert_eq!(metrics_requests(&rig), 0);
    let reading = &readings(&rig)[0];
    assert_eq!(reading.source, "pods, series \"waiting\" at /metrics");
    assert_eq!((reading.metric.as_str(), reading.numbers, &reading.problem), ("waiting", 2, &None));
    assert!(reading.age_seconds.unwrap() < 1.0);
    let value = |pod: &str, value| SourceValue { pod: Some(pod.to_owned()), value };
    assert_eq!(reading.values, [value("web-0000", 15.0), value("web-0001", 20.0)]);
    assert!(rig.series("concertina_metric_age_seconds_count{source=\"pods\"}") >= 1.0);
    assert_eq!(ages_of_apis(&rig), 0.0);
    assert_eq!(rig.series("concertina_metric_sources_valid"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn hpa_follows_a_query_for_its_own_namespace() {
    let servers = PageServers::default();
    servers.serve("prometheus:9090", |_| {
        PageResponse::vector(&[(&[("pod", "web-0000")], 20.0), (&[("pod", "web-0001")], 20.0)])
    });
    let policy = "metrics: [{metric: requests, prometheus: {server: main, query: 'sum by (pod) (rate(requests[30s]))'}}]";
    let (config, _file) = config(&servers, FILE);
    let rig = Harness::with(stage(pods_metric("requests", "10"), policy), &config);
    rig.until("the demand", 2.0, |stage| stage.replicas("web") == 4).await;
    let query = &servers.requests()[0].query;
    assert_eq!(query, r#"sum by (pod) (rate(requests{namespace="shop"}[30s]))"#);
    rig.pass(1.0).await;
    assert!(readings(&rig)[0].source.starts_with("prometheus \"main\", query"), "{:?}", readings(&rig));
    assert_eq!(metrics_requests(&rig), 0);
}

#[tokio::test(start_paused = true)]
async fn pod_that_does_not_answer_is_missing_as_in_the_reference() {
    let servers = PageServers::default();
    servers.serve("10.0.0.1:8080", |_| PageResponse::page("waiting 30\n"));
    let (config, _file) = config(&servers, FILE);
    let rig = Harness::with(stage(pods_metric("waiting", "10"), WAITING), &config);
    // For a scale-up, the value of a missing pod is treated as 0, so the sum is 30 with a target of 10 per pod.
    rig.until("the demand", 2.0, |stage| stage.replicas("web") == 3).await;
    rig.pass(1.0).await;
    let problem = readings(&rig)[0].problem.clone().unwrap();
    assert!(problem.starts_with("pod web-0001: the request failed: "), "{problem}");
    let failed = "concertina_metric_source_errors_total{reason=\"Request\",source=\"pods\"}";
    assert!(rig.series(failed) >= 1.0, "{}", rig.telemetry.render());
}

#[tokio::test(start_paused = true)]
async fn failed_source_is_a_failed_metric_and_holds_the_count() {
    let servers = PageServers::default();
    let policy = "metrics: [{metric: queue, prometheus: {server: other, query: 'sum(queue)'}}]";
    let (config, _file) = config(&servers, FILE);
    let stage = stage(external("queue", "10"), policy);
    // The metrics API has the metric, too.
    stage.external("queue", "80");
    let rig = Harness::with(stage, &config);
    rig.pass(20.0).await;
    assert_eq!(rig.replicas("web"), 2);
    let active = rig.condition("web", "ScalingActive");
    assert!(active.starts_with("False FailedGetExternalMetric"), "{active}");
    assert!(
        active.ends_with("prometheus \"other\", query \"sum(queue)\": the source file has no such server"),
        "{active}"
    );
    let failed = "concertina_metric_source_errors_total{reason=\"NotAllowed\",source=\"unknown\"}";
    assert!(rig.series(failed) >= 1.0, "{}", rig.telemetry.render());
}

#[tokio::test(start_paused = true)]
async fn without_a_file_or_a_policy_the_metrics_apis_answer() {
    let servers = PageServers::default();
    servers.serve("10.0.0.1:8080", |_| PageResponse::page("waiting 30\n"));
    servers.serve("prometheus:9090", |_| PageResponse::vector(&[(&[], 1.0)]));
    let requests = async |config: &Config, policy: &str, reason: Option<&str>| {
        let stage = stage(external("queue", "10"), policy);
        stage.external("queue", "80");
        let rig = Harness::with(stage, config);
        rig.pass(40.0).await;
        assert_eq!(rig.replicas("web"), 8);
        let reasons: Vec<_> = readings(&rig).into_iter().map(|reading| reading.reason).collect();
        assert_eq!(reasons, Vec::from_iter(reason.map(|reason| Some(reason.to_owned()))));
        let requests = rig.cluster.requests().entries();
        requests.iter().map(|request| (request.verb, request.path.clone())).collect::<Vec<_>>()
    };
    let (with_file, _file) = config(&servers, FILE);
    let policy = "metrics: [{metric: queue, prometheus: {server: main, query: 'sum(queue)'}}]";
    let plain = requests(&Config::default(), policy, Some(NO_SOURCES)).await;
    // The policy is about another metric.
    assert_eq!(requests(&with_file, WAITING, None).await, plain);
    assert_eq!(servers.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn rate_from_pods_is_fresh_at_each_sync() {
    let servers = PageServers::default();
    let start = tokio::time::Instant::now();
    for last in 1..=2 {
        servers.serve(format!("10.0.0.{last}:8080"), move |_| {
            PageResponse::page(format!("requests_total {}\n", start.elapsed().as_secs_f64() * 25.0))
        });
    }
    let policy = "metrics: [{metric: requests, pods: {port: http, series: requests_total, rateSeconds: 10, intervalSeconds: 1}}]";
    let (config, _file) = config(&servers, FILE);
    let rig = Harness::with(stage(pods_metric("requests", "10"), policy), &config);
    // At the first sync, only one scrape is complete, so the rate is unavailable.
    rig.until("the demand", 50.0, |stage| stage.replicas("web") == 5).await;
    rig.pass(60.0).await;
    assert!(readings(&rig)[0].age_seconds.unwrap() <= 1.1, "{:?}", readings(&rig));
}

#[tokio::test(start_paused = true)]
async fn server_that_is_down_gets_one_query_per_second() {
    let servers = PageServers::default();
    servers.serve("prometheus:9090", |_| PageResponse { status: 503, ..PageResponse::page("down") });
    let (config, _file) = config(&servers, FILE);
    let stage = Fixture::new();
    for index in 0..60 {
        let (name, policy) = (
            format!("web-{index}"),
            format!("metrics: [{{metric: queue, prometheus: {{server: main, query: 'sum(queue{index})'}}}}]"),
        );
        stage.target(&name, 2);
        stage.create(annotated(hpa(&name, &[external("queue", "10")]), &policy));
    }
    let rig = Harness::with(stage, &config);
    rig.pass(16.0).await;
    let down = "concertina_metric_source_down{source=\"main\"}";
    assert_eq!(rig.series(down), 1.0);
    let before = servers.requests().len();
    rig.pass(45.0).await;
    // Without a breaker, the controller would send 180 queries in three periods.
    let sent = servers.requests().len() - before;
    assert!(sent <= 60, "{sent}");
    let condition = rig.condition("web-7", "ScalingActive");
    assert!(condition.ends_with("the server answers 503 Service Unavailable"), "{condition}");
    servers.serve("prometheus:9090", |_| PageResponse::vector(&[(&[], 80.0)]));
    rig.until("the recovery", 31.0, |stage| (0..60).all(|index| stage.replicas(&format!("web-{index}")) > 2))
        .await;
    assert_eq!(rig.series(down), 0.0);
}

/// The Secret `scrape` with a token, labelled for policies.
fn scrape_secret(token: &str) -> Value {
    let token = k8s_openapi::ByteString(token.as_bytes().to_vec());
    json!({"apiVersion": "v1", "kind": "Secret", "data": {"token": token}, "metadata": {
        "name": "scrape", "namespace": "shop", "labels": {"concertina.dev/metric-sources": "true"},
    }})
}

#[tokio::test(start_paused = true)]
async fn token_of_pods_appears_in_no_record() {
    const TOKEN: &str = "value-of-the-token";
    let servers = PageServers::default();
    servers.serve("10.0.0.1:8080", |_| PageResponse::page("waiting 15\n"));
    let policy = "metrics: [{metric: waiting, pods: {port: http, series: waiting, intervalSeconds: 1, scheme: https, \
        tlsConfig: {insecureSkipVerify: true}, authorization: {credentials: {name: scrape, key: token}}}}]";
    let (config, _file) = config(&servers, "pods: {enabled: true, tls: true, secretNamespaces: [shop]}");
    let stage = stage(pods_metric("waiting", "10"), policy);
    // The metric of another HPA in the namespace needs no Secret.
    stage.target("other", 2);
    let mut other = hpa("other", &[external("queue", "10")]);
    other["metadata"]["annotations"] = json!({});
    stage.create(other);
    stage.external("queue", "40");
    let rig = Harness::with(stage, &config);
    rig.until("the other HPA", 2.0, |stage| stage.replicas("other") == 4).await;
    rig.pass(1.0).await;
    let active = rig.condition("web", "ScalingActive");
    assert!(active.ends_with("at /metrics over TLS: Secret scrape does not exist"), "{active}");
    assert_eq!(readings(&rig)[0].reason.as_deref(), Some("Credentials"));
    rig.cluster.put_raw(scrape_secret(TOKEN));
    rig.pass(60.0).await;
    // The servers do not support TLS, so the controller reads the token and never sends it.
    let active = rig.condition("web", "ScalingActive");
    assert!(active.contains("none of 2 pods has a number; web-0000: the request failed: "), "{active}");
    assert_eq!(servers.requests(), []);
    let list = rig.assembly.decisions.as_ref().unwrap().list(&Key::new("shop", "web")).unwrap();
    let shown = [
        serde_json::to_string(&list).unwrap(),
        rig.hpa("web").to_string(),
        rig.events("web").concat(),
        rig.telemetry.render(),
        format!("{:?}", rig.assembly.controller),
    ];
    let encoded = json!(k8s_openapi::ByteString(TOKEN.as_bytes().to_vec()));
    for text in shown {
        assert!(!text.contains(TOKEN) && !text.contains(encoded.as_str().unwrap()), "{text}");
    }
}
