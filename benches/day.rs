//! Simulates a day of the whole controller against the embedded cluster in virtual time: `cargo bench --bench day`.
//!
//! The controller and the cluster run on one thread, with HTTP over in-memory pipes and tokio's paused clock. The
//! targets are Deployments with a constant number of pods. The cpu usage of a pod varies within the tolerance, so every
//! sync writes a status and no sync rescales. The benchmark prints a table of whole runs. Then it measures single
//! periods and single requests with their allocations.

#![allow(clippy::expect_used, reason = "literals in this file are valid")]

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clock::{SharedClock, VirtualClock};
use cluster::call::Call;
use cluster::client::Clients;
use concertina::app::client_options;
use controller::assembly::{Assembly, Parts, Phase};
use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use engine::telemetry::metrics::Metrics;
use fake_cluster::{Cluster, MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};
use flags::Config;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

const EPOCH: &str = "2030-01-01T00:00:00Z";
const NAMESPACE: &str = "shop";
const PERIOD: Duration = Duration::from_secs(15);
const DAY: Duration = Duration::from_hours(24);
/// The time before the measurement. After this time, every HPA syncs once per period.
const WARM_UP: Duration = Duration::from_mins(5);

/// The size of a cluster: the number of HPAs and the number of pods per HPA, and the policy of every HPA.
#[derive(Debug, Clone, Copy)]
struct Size {
    hpas: usize,
    pods: usize,
    policy: &'static str,
}

const SIZES: [Size; 3] = [
    Size { hpas: 1, pods: 10, policy: "" },
    Size { hpas: 1, pods: 100, policy: "" },
    Size { hpas: 100, pods: 10, policy: "" },
];

/// Two policies, to compare their CPU time per sync.
const WITH_POLICIES: [Size; 2] = [
    Size { hpas: 1_000, pods: 10, policy: "syncPeriodSeconds: 15" },
    Size { hpas: 1_000, pods: 10, policy: "{syncPeriodSeconds: 15, forecast: {}}" },
];

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {}{}", self.hpas, self.pods, if self.policy.contains("forecast") { " f" } else { "" })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // The first argument filters the lines of the table and the benchmarks of divan, such as `table 1 x 100` or
    // `period`.
    let chosen = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    println!(
        "HPAs x pods |   time |  syncs |    cpu s | µs/sync | requests/sync | RSS MB first, last (f: forecast)"
    );
    for (size, time) in SIZES.into_iter().chain(WITH_POLICIES).zip([DAY, DAY, DAY / 12, DAY / 144, DAY / 144])
    {
        if format!("table {size}").contains(&chosen) {
            run(size, time)?;
        }
    }
    divan::main();
    Ok(())
}

/// Runs a simulation, and prints its line of the table.
fn run(size: Size, time: Duration) -> Result<(), Box<dyn Error>> {
    let world = World::new(size);
    world.pass(WARM_UP);
    let (first, requests) = (resident_bytes()?, world.requests());
    let started = Stopwatch::start()?;
    world.pass(time);
    let cpu_seconds_spent = started.seconds()?;
    let syncs = time.as_secs_f64() / PERIOD.as_secs_f64() * size.hpas as f64;
    let requests = world.requests() - requests;
    println!(
        "{:>11} | {:>4.1} h | {syncs:>6} | {cpu_seconds_spent:>8.3} | {:>7.1} | {:>13.2} | {:.1}, {:.1}",
        size.to_string(),
        time.as_secs_f64() / 3600.0,
        cpu_seconds_spent * 1e6 / syncs,
        requests / syncs,
        first as f64 / 1e6,
        resident_bytes()? as f64 / 1e6,
    );
    Ok(())
}

/// Runs one period, with one sync of every HPA.
#[divan::bench(args = SIZES, sample_size = 1, sample_count = 200)]
fn period(bencher: Bencher<'_, '_>, size: Size) {
    let world = World::new(size);
    world.pass(WARM_UP);
    bencher.counter(ItemsCount::new(size.hpas)).bench_local(|| world.pass(PERIOD));
}

/// Sends a request with a response of two bytes through the controller's client. This measures the cost of in-process
/// HTTP.
#[divan::bench(sample_size = 100, sample_count = 200)]
fn request(bencher: Bencher<'_, '_>) {
    let runtime = paused_runtime();
    let core = runtime.block_on(async {
        let clock = Arc::new(VirtualClock::starting_at(EPOCH.parse().expect("a literal time")));
        clients(&Cluster::new(clock), &Config::default(), &Metrics::new()).watch
    });
    bencher.bench_local(|| {
        let answer = runtime.block_on(core.bytes(&Call::get(["healthz"])));
        divan::black_box(answer).expect("the healthz request must succeed")
    });
}

/// A cluster with a running controller. The clock of the runtime advances only in [`World::pass`].
struct World {
    runtime: Runtime,
    telemetry: Metrics,
    _stop: tokio_util::sync::DropGuard,
}

impl World {
    fn new(size: Size) -> Self {
        let runtime = paused_runtime();
        let telemetry = Metrics::new();
        let stop = CancellationToken::new();
        runtime.block_on(start(size, telemetry.clone(), stop.clone()));
        Self { runtime, telemetry, _stop: stop.drop_guard() }
    }

    fn pass(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Returns the number of requests of the controller until now.
    fn requests(&self) -> f64 {
        let text = self.telemetry.render();
        let series = text.lines().filter(|line| line.starts_with("rest_client_requests_total{"));
        series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

fn paused_runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("the runtime must start")
}

/// Creates clients that connect to `cluster` with HTTP over in-memory pipes.
fn clients(cluster: &Cluster, config: &Config, telemetry: &Metrics) -> Clients {
    let server = cluster.clone();
    let connector = tower::service_fn(move |_: http::Uri| {
        let stream = TokioIo::new(server.dial());
        async move { Ok::<_, std::io::Error>(stream) }
    });
    Clients::over(connector, &client_options(config, telemetry)).expect("the clients must connect")
}

async fn start(size: Size, telemetry: Metrics, stop: CancellationToken) {
    let clock: SharedClock = Arc::new(VirtualClock::starting_at(EPOCH.parse().expect("a literal time")));
    let cluster = Cluster::new(Arc::clone(&clock));
    cluster.requests().keep(0);
    cluster.keep_history(1_000);
    for number in 0..size.hpas {
        cluster.create(deployment(number, size.pods)).expect("a valid deployment");
        cluster.create(hpa(number, size.policy)).expect("a valid HPA");
        for pod in 0..size.pods {
            cluster.put_raw(ready_pod(number, pod));
        }
    }
    cluster.set_metrics(Arc::new(OscillatingUsage { pods: size.pods, epoch: clock.now() }));
    let config = Config::default();
    let clients = clients(&cluster, &config, &telemetry);
    let parts = Parts {
        clients: &clients,
        options: &config.controller,
        clock,
        telemetry,
        observers: Vec::new(),
        seed: 0,
        phase: Phase::Name,
    };
    let assembly = Assembly::start(parts, &stop);
    assembly.synced().await;
    tokio::spawn(Arc::clone(&assembly.controller).run(stop));
}

/// A metrics API in which the cpu usage of every pod oscillates slowly between 46 % and 54 % of the request.
#[derive(Debug)]
struct OscillatingUsage {
    pods: usize,
    epoch: Timestamp,
}

impl MetricsBackend for OscillatingUsage {
    fn answer(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        if request.api != MetricsApi::Resource {
            return MetricsReply::Absent;
        }
        let app = request.label_selector.strip_prefix("app=").unwrap_or("");
        let now = request.cluster.now();
        let angle = now.duration_since(self.epoch).as_secs_f64() / 300.0;
        let microcores = angle.sin().mul_add(80_000.0, 1_000_000.0).round();
        let mut text = String::from(
            r#"{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":["#,
        );
        for pod in 0..self.pods {
            let comma = if pod > 0 { "," } else { "" };
            let cpu = microcores + pod as f64;
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                r#"{comma}{{"metadata":{{"name":"{app}-{pod:04}","namespace":"{NAMESPACE}","labels":{{"app":"{app}"}}}},"timestamp":"{now:.0}","window":"15s","containers":[{{"name":"app","usage":{{"cpu":"{cpu}u","memory":"33554432"}}}}]}}"#
            );
        }
        text.push_str("]}");
        MetricsReply::Encoded(text.into())
    }
}

fn name(number: usize) -> String {
    format!("web-{number:03}")
}

fn hpa(number: usize, policy: &str) -> serde_json::Value {
    let name = name(number);
    let annotations = if policy.is_empty() { json!({}) } else { json!({"concertina.dev/policy": policy}) };
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": NAMESPACE, "name": name, "annotations": annotations},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1, "maxReplicas": 200,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
            }}],
        },
    })
}

fn deployment(number: usize, replicas: usize) -> serde_json::Value {
    let name = name(number);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [
                    {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "2", "memory": "64Mi"}}},
                ]},
            },
        },
    })
}

fn ready_pod(number: usize, index: usize) -> serde_json::Value {
    let app = name(number);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": NAMESPACE, "name": format!("{app}-{index:04}"), "labels": {"app": app}},
        "spec": {"nodeName": "node-1", "containers": [
            {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "2", "memory": "64Mi"}}},
        ]},
        "status": {
            "phase": "Running", "startTime": "2029-12-31T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2029-12-31T00:01:00Z"}],
        },
    })
}

/// Measures the CPU time of this process.
struct Stopwatch(f64);

impl Stopwatch {
    fn start() -> Result<Self, Box<dyn Error>> {
        Ok(Self(cpu_seconds()?))
    }

    fn seconds(&self) -> Result<f64, Box<dyn Error>> {
        Ok(cpu_seconds()? - self.0)
    }
}

fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanos: f64 = text.split(' ').next().ok_or("/proc/self/schedstat is empty")?.parse()?;
    Ok(nanos / 1e9)
}

fn resident_bytes() -> Result<usize, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? * 1024)
}
