//! The content of the demo's cluster: workloads with their HPAs and load, and the metrics pages of the pods of `burst`.
//! The module also contains the flags and the metric sources of the controller.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{DuplexStream, copy_bidirectional, duplex};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::NAMESPACE;
use super::files::Files;
use clock::SharedClock;
use cluster::platform;
use fake_cluster::load::{
    Curve, Load, LoadId, LoadMetrics, Measure, MemoryModel, Metric, Pipeline, Scraping, Shape, Work,
    WorkState,
};
use fake_cluster::pages::{PageResponse, PageServers};
use fake_cluster::workload::{WorkloadModel, Workloads};
use fake_cluster::{Cluster, Status};
use flags::decision;
use sources::{Dial, FileError, InMemory, Sources};
use terminal::forward::hostname;
use terminal::values::text;

/// The namespace of the controller's Lease and pod, as in an installation.
const SYSTEM: &str = "concertina-system";
/// The user of the controller's pod.
const ACCOUNT: &str = "system:serviceaccount:concertina-system:concertina";

/// The port of a pod's metrics page.
const PAGE_PORT: u16 = 8080;

/// The flags that set the controller's periods. The periods are short enough for a day of 40 seconds.
const PERIODS: [(&str, &str); 4] = [
    (decision::SYNC_PERIOD, "1s"),
    (decision::DOWNSCALE_STABILIZATION, "6s"),
    (decision::CPU_INITIALIZATION_PERIOD, "5s"),
    (decision::INITIAL_READINESS_DELAY, "2s"),
];

/// The deployments, and the startup time of their pods in milliseconds.
const START_UPS: [(&str, u64); 4] = [("web", 2_000), ("worker", 1_000), ("burst", 1_500), ("cache", 2_000)];

/// The manifests of the HPAs.
const HPAS: &str = include_str!("hpas.yaml");

const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// The demo's cluster, and the models that act in it.
#[derive(Debug)]
pub(super) struct DemoWorld {
    pub(super) cluster: Cluster,
    workloads: Arc<Workloads>,
    load: Arc<LoadMetrics>,
    /// The load of `burst`.
    burst: LoadId,
}

impl DemoWorld {
    /// Builds a cluster with the demo's workloads, whose pods already run. Nothing changes before [`Self::start`].
    /// Requires a tokio runtime.
    /// `secure_port` is the controller's port on the loopback address.
    pub(super) fn build(clock: &SharedClock, secure_port: u16) -> Result<Self, Status> {
        let cluster = Cluster::new(Arc::clone(clock));
        for object in objects() {
            cluster.create(object)?;
        }
        cluster.create(controller_pod(secure_port))?;
        let status = "horizontalpodautoscalers.autoscaling/status";
        cluster.reviews().allow_resource(ACCOUNT, "update", status, None);
        cluster.set_pod_ports(move |pod, port| match text(pod, "/metadata/namespace") {
            SYSTEM if port == secure_port => Ok(connect(port)),
            _ => Err(io::Error::other("only the pod of the controller has ports")),
        });
        let workloads = Arc::new(Workloads::new(cluster.clone(), Arc::clone(clock)));
        workloads.warm_up();
        for (name, start_up) in START_UPS {
            let start_up = Duration::from_millis(start_up).into();
            workloads.set_model(NAMESPACE, name, WorkloadModel { start_up, ..WorkloadModel::default() });
        }
        let load = Arc::new(LoadMetrics::new(
            Arc::clone(clock),
            Pipeline::all(Scraping::every(Duration::from_secs(1))),
        ));
        let [_, _, burst, _] = loads().map(|one| load.add(one));
        cluster.set_metrics(load.clone());
        Ok(Self { cluster, workloads, load, burst })
    }

    /// Runs the models of pods and load until `stop` is cancelled.
    pub(super) fn start(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        let (workloads, token) = (Arc::clone(&self.workloads), stop.clone());
        tasks.spawn(async move { workloads.run(token).await });
        let (load, cluster, token) = (Arc::clone(&self.load), self.cluster.clone(), stop.clone());
        tasks.spawn(async move { load.run(cluster, token).await });
    }
}

/// Returns the controller's flags. `metrics_port` is the port for metrics and decisions without TLS.
pub(super) fn controller_flags(files: &Files, secure_port: u16, metrics_port: Option<u16>) -> Vec<String> {
    let process = [
        format!("--kubeconfig={}", files.kubeconfig.display()),
        format!("--leader-elect-resource-namespace={SYSTEM}"),
        format!("--bind-address={}", Ipv4Addr::LOCALHOST),
        format!("--secure-port={secure_port}"),
        format!("--client-ca-file={}", files.client_ca.display()),
        "--authentication-skip-lookup".to_owned(),
    ];
    let periods = PERIODS.map(|(name, value)| format!("--{name}={value}"));
    let metrics = metrics_port.map(|port| format!("--health-address={}:{port}", Ipv4Addr::LOCALHOST));
    process.into_iter().chain(periods).chain(metrics).collect()
}

/// Returns the pod of the controller. The controller is a process of this machine, so the pod uses the host network, and
/// its node has the hostname in the identity of the Lease's holder.
fn controller_pod(secure_port: u16) -> Value {
    let host = platform::host_name().unwrap_or_else(|| "unknown".to_owned());
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "concertina",
            "namespace": SYSTEM,
            "labels": {"app.kubernetes.io/name": "concertina"},
        },
        "spec": {
            "nodeName": hostname(&host),
            "hostNetwork": true,
            "serviceAccountName": "concertina",
            "containers": [{
                "name": "concertina",
                "image": format!("concertina:{}", env!("CARGO_PKG_VERSION")),
                "ports": [{"name": "https", "containerPort": secure_port}],
            }],
        },
    })
}

/// Connects to a port of this machine. The stream ends if nothing listens there.
fn connect(port: u16) -> DuplexStream {
    let (near, mut far) = duplex(64 * 1024);
    tokio::spawn(async move {
        let mut tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        copy_bidirectional(&mut far, &mut tcp).await
    });
    near
}

fn loads() -> [Load; 4] {
    let seconds = Duration::from_secs;
    let day = Shape::BusinessDay { night: 120.0, peak: 1_050.0, day: seconds(40), weekend: 1.0 };
    let web = Load {
        // A day takes 40 seconds and starts at seven in the morning, while the load rises.
        work: vec![Work::cpu(
            Curve::from(day).with_noise(0.03, 1).starting_at(Duration::from_millis(11_700)),
            500.0,
        )],
        memory: MemoryModel { base: 90.0 * MEBIBYTE, growth: 0.05 * MEBIBYTE },
        ..Load::new(NAMESPACE, "app", "web")
    };
    // The three paused workers process 6 orders per second, so that the queue of a spike drains until the next one.
    let orders = Shape::Spikes { base: 4.5, peak: 11.0, every: seconds(32), width: seconds(7) };
    let orders = Curve::from(orders).with_noise(0.2, 2).starting_at(seconds(29));
    let length = Metric::external("queue_length", Measure::Waiting, [("queue", "orders")]);
    let worker = Load {
        work: vec![Work::queue(orders, 2.0).with_metric(length)],
        ..Load::new(NAMESPACE, "app", "worker")
    };
    // A spike needs twice the maximum of `burst`.
    let visitors = Shape::Spikes { base: 34.0, peak: 230.0, every: seconds(45), width: seconds(30) };
    let visitors = Curve::from(visitors).with_noise(0.1, 3).starting_at(seconds(37));
    let rate = Metric::for_pods("requests_per_second", Measure::Served);
    let burst = Load {
        work: vec![Work::requests(visitors, 80.0).with_metric(rate)],
        ..Load::new(NAMESPACE, "app", "burst")
    };
    let swing = Shape::Sine { mean: 400.0, amplitude: 250.0, period: seconds(30) };
    let cache = Load {
        work: vec![Work::cpu(Curve::from(swing).with_noise(0.05, 4), 1_000.0)],
        ..Load::new(NAMESPACE, "app", "cache")
    };
    [web, worker, burst, cache]
}

/// Returns the objects to create at the start, in order.
fn objects() -> Vec<Value> {
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        deployment("web", 2),
        deployment("worker", 3),
        deployment("burst", 2),
        deployment("cache", 2),
    ];
    // The manifests are part of the program, so they are valid YAML.
    objects.extend(serde_saphyr::from_multiple::<Value>(HPAS).unwrap_or_default());
    objects
}

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": name,
                    "image": format!("shop/{name}:1"),
                    "ports": [{"name": "http", "containerPort": PAGE_PORT}],
                    "resources": {"requests": {"cpu": "200m", "memory": "128Mi"}},
                }]},
            },
        },
    })
}

/// The request counter of a pod.
#[derive(Debug, Clone, Copy)]
struct Counter {
    /// The number of requests that the pod has served.
    requests: f64,
    /// The number of requests that all pods had served at the last scrape of this pod.
    of_all: f64,
}

/// The metrics pages of the pods of `burst`.
#[derive(Debug)]
struct Pages {
    cluster: Cluster,
    load: Arc<LoadMetrics>,
    burst: LoadId,
    /// The counter of each scraped pod, by address.
    counters: Mutex<BTreeMap<String, Counter>>,
}

/// Returns the metric sources of the controller. `file` allows scrapes of pods. The controller scrapes the pods
/// without a network, because their pages come from this process.
pub(super) fn sources(world: &DemoWorld, file: PathBuf) -> Result<Arc<Sources>, FileError> {
    let pages = Arc::new(Pages {
        cluster: world.cluster.clone(),
        load: Arc::clone(&world.load),
        burst: world.burst,
        counters: Mutex::default(),
    });
    let servers = PageServers::without_requests();
    let dial: Arc<dyn Dial> = Arc::new(InMemory::new(move |address: &str| {
        let running = pages.running();
        pages.counters.lock().retain(|other, _| {
            let is_running = running.contains(other);
            if !is_running {
                servers.remove(other);
            }
            is_running
        });
        if !running.iter().any(|other| other == address) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (pages, key) = (Arc::clone(&pages), address.to_owned());
        servers.serve(address, move |_| PageResponse::page(pages.page(&key)));
        servers.dial(address)
    }));
    Ok(Arc::new(Sources::new(file, Some(dial))?))
}

impl Pages {
    /// Returns the addresses of the running pods of `burst`.
    fn running(&self) -> Vec<String> {
        let pods = self.cluster.list("pods", Some(NAMESPACE));
        let is_running = |pod: &&Value| {
            text(pod, "/metadata/labels/app") == "burst" && text(pod, "/status/phase") == "Running"
        };
        let address = |pod: &Value| format!("{}:{PAGE_PORT}", text(pod, "/status/podIP"));
        pods.iter().filter(is_running).map(address).collect()
    }

    /// Returns the page of a pod, with its counter. Each ready pod serves the same share of all requests.
    fn page(&self, address: &str) -> String {
        let Some(state) = self.load.state(self.burst) else { return String::new() };
        let of_all = state.work.iter().map(|WorkState { served, .. }| served).sum();
        let mut counters = self.counters.lock();
        let counter = counters.entry(address.to_owned()).or_insert(Counter { requests: 0.0, of_all });
        counter.requests += (of_all - counter.of_all) / state.ready.max(1) as f64;
        counter.of_all = of_all;
        format!(
            "# TYPE http_requests_total counter\nhttp_requests_total{{code=\"200\"}} {}\n",
            counter.requests
        )
    }
}
