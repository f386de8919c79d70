//! The sources of the reaction test: the load of each HPA over time, and the programs that publish it. These are the
//! metrics pages of the pods, the real Prometheus, which scrapes the pages every 5 s, a kubelet, and metrics-server.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::adapter::Adapter;
use crate::controlplane::free_port;
use crate::election::now;
use crate::outcome::{Context as _, Outcome, Process, ensure};
use crate::world::{Fixture, World};

pub(crate) struct Pages {
    pub(crate) address: SocketAddr,
    load: Arc<Mutex<Option<Load>>>,
    task: JoinHandle<()>,
}

/// The path of the page with the loads of all pods, for Prometheus.
const ALL: &str = "/metrics/all";

/// The path of the page of an HPA's pod.
pub(crate) fn path(index: usize) -> String {
    format!("/metrics/{index}")
}

/// The address of this machine in a network. Concertina requests no page at a loopback address.
pub(crate) async fn own_address() -> Outcome<IpAddr> {
    // Connecting a UDP socket sends nothing, and gives the socket the address of this machine in that network.
    let socket = UdpSocket::bind(("0.0.0.0", 0)).await?;
    socket.connect(("198.51.100.1", 9)).await.context("this machine needs a route to other networks")?;
    Ok(socket.local_addr()?.ip())
}

impl Pages {
    /// Serves pages with one unit of load.
    pub(crate) async fn start() -> Outcome<Self> {
        let listener = TcpListener::bind((own_address().await?, 0)).await?;
        let address = listener.local_addr()?;
        let load = Arc::<Mutex<Option<Load>>>::default();
        let shown = Arc::clone(&load);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shown = Arc::clone(&shown);
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let page = page(&request, *shown.lock());
                        async move { Ok::<_, Infallible>(page) }
                    });
                    // Clients close idle connections, which is not an error.
                    let connection = hyper::server::conn::http1::Builder::new();
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { address, load, task })
    }

    /// Sets the load to show from now on.
    pub(crate) fn show(&self, load: Load) {
        *self.load.lock() = Some(load);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn page(request: &Request<Incoming>, load: Option<Load>) -> Response<Full<Bytes>> {
    let at = now();
    let units = |index| load.map_or(1, |load| load.units(index, at));
    let mut text = "# TYPE load gauge\n".to_owned();
    let path = request.uri().path();
    if path == ALL {
        for index in 0..HPAS {
            let _ = writeln!(text, "load{{pod=\"{}\"}} {}", name(index), units(index));
        }
    } else if let Some(index) = path.rsplit('/').next().and_then(|index| index.parse().ok()) {
        let _ = writeln!(text, "load {}", units(index));
    }
    let mut response = Response::new(Full::new(Bytes::from(text)));
    let media = HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

pub(crate) struct Prometheus {
    pub(crate) port: u16,
    _process: Process,
}

impl Prometheus {
    /// Stores samples in the text format of OpenMetrics, before [`Self::start`], with the program that `PROMTOOL` names.
    pub(crate) fn fill(stage: &Fixture, samples: &str) -> Outcome {
        let program = std::env::var_os("PROMTOOL")
            .ok_or("PROMTOOL is not set: run tests/prometheus/build.sh promtool")?;
        let folder = stage.plane.folder().join("prometheus");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join("samples.txt");
        std::fs::write(&file, samples)?;
        let made = Command::new(program)
            .args(["tsdb", "create-blocks-from", "openmetrics", "--quiet", "--max-block-duration=18h"])
            .args([&file, &folder.join("data")])
            .output()
            .context("promtool")?;
        ensure(made.status.success(), || String::from_utf8_lossy(&made.stderr).into_owned())
    }

    /// Starts the program that `PROMETHEUS` names.
    pub(crate) fn start(stage: &Fixture, pages: SocketAddr) -> Outcome<Self> {
        let program = std::env::var_os("PROMETHEUS")
            .ok_or("PROMETHEUS is not set: run tests/prometheus/build.sh prometheus")?;
        let folder = stage.plane.folder().join("prometheus");
        std::fs::create_dir_all(&folder)?;
        let configuration = folder.join("prometheus.yml");
        let scrape = format!(
            "scrape_configs: [{{job_name: pods, scrape_interval: 5s, scrape_timeout: 5s, metrics_path: {ALL}, \
             static_configs: [{{targets: ['{pages}']}}]}}]\n"
        );
        std::fs::write(&configuration, scrape)?;
        let port = free_port()?;
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let process = Process::start("prometheus", command, stage.plane.folder()).context("prometheus")?;
        Ok(Self { port, _process: process })
    }
}

pub(crate) const HPAS: usize = 60;
pub(crate) const STEPS: usize = 10;
/// The time between two steps of an HPA. The slowest path takes less.
pub(crate) const STEP: SignedDuration = SignedDuration::from_secs(60);
/// The time from the first step of the first HPA until [`STEP`] after the last step of the last HPA.
pub(crate) const LAST: Duration = Duration::from_mins(11);

/// The loads of all HPAs. All paths use the same `Load`, so their steps are equal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    start: Timestamp,
}

/// The name of an HPA, its target and its pod.
pub(crate) fn name(index: usize) -> String {
    format!("hpa-{index:02}")
}

impl Load {
    /// The load whose first step comes after `time`.
    pub(crate) fn starting_in(time: Duration) -> Self {
        Self { start: now() + time }
    }

    /// The time of a step of an HPA. The steps of the HPAs are spread over the time between two steps.
    pub(crate) fn time_of(self, index: usize, step: usize) -> Timestamp {
        let seconds = i64::try_from(index + 60 * step).unwrap_or(i64::MAX);
        // Scrapes occur at a fixed offset within the second. Fractions vary the offset of the steps.
        let millis = i64::try_from((index * 370 + step * 210) % 1000).unwrap_or_default();
        self.start + SignedDuration::from_secs(seconds) + SignedDuration::from_millis(millis)
    }

    /// The load of an HPA at a time, in units.
    pub(crate) fn units(self, index: usize, at: Timestamp) -> i64 {
        let steps = (0..STEPS).filter(|&step| self.time_of(index, step) <= at).count();
        1 + i64::try_from(steps).unwrap_or(i64::MAX)
    }
}

/// The kubelet of the node of all pods, with its default interval. It serves HTTPS at the address of this machine.
///
/// A counter grows in line with the numbers of [`Chain`]: by the load at the time of a measurement, for the whole
/// interval before the measurement.
pub(crate) struct Node {
    load: Arc<Mutex<Option<Load>>>,
    server: Adapter,
}

impl Node {
    /// Serves the usage of the pods of a namespace, with one unit of load.
    pub(crate) async fn start(address: IpAddr, namespace: &'static str) -> Outcome<Self> {
        let load = Arc::<Mutex<Option<Load>>>::default();
        let (shown, started) = (Arc::clone(&load), now() - SignedDuration::from_hours(1));
        let server = Adapter::start_at(address, move |received| {
            if received.path != "/metrics/resource" {
                return (404, "text/plain", String::new());
            }
            (200, "text/plain; version=0.0.4", usage(*shown.lock(), started, namespace))
        });
        Ok(Self { load, server: server.await? })
    }

    pub(crate) const fn port(&self) -> u16 {
        self.server.port
    }

    /// Sets the load to show from now on.
    pub(crate) fn show(&self, load: Load) {
        *self.load.lock() = Some(load);
    }
}

fn usage(load: Option<Load>, started: Timestamp, namespace: &str) -> String {
    let (at, mut text) = (now(), String::new());
    for index in 0..HPAS {
        let last = measured(index, at);
        let mut intervals = (last.as_second() - started.as_second()) / KUBELET_SECONDS;
        let mut time = last;
        while let Some(load) = load
            && time >= load.time_of(0, 0)
        {
            intervals += load.units(index, time) - 1;
            time -= SignedDuration::from_secs(KUBELET_SECONDS);
        }
        // Hundredths of a second of cpu.
        let used = intervals * KUBELET_SECONDS * MILLICORES / 10;
        let labels = format!("{{container=\"app\",namespace=\"{namespace}\",pod=\"{}\"}}", name(index));
        let millis = last.as_second() * 1000;
        let _ = writeln!(
            text,
            "container_cpu_usage_seconds_total{labels} {}.{:02} {millis}\n\
             container_memory_working_set_bytes{labels} 67108864 {millis}\n\
             container_start_time_seconds{labels} {}",
            used / 100,
            used % 100,
            started.as_second()
        );
    }
    text
}

/// The cpu usage of one unit of load.
pub(crate) const MILLICORES: i64 = 10;
const KUBELET_SECONDS: i64 = 10;
const METRICS_SERVER: Duration = Duration::from_secs(15);

/// kubelet and metrics-server with their default intervals: a kubelet measures a pod every 10 s, and metrics-server
/// reads all kubelets every 15 s. Publishes numbers until it is dropped.
///
/// A number is the load at the time of the measurement. In a real cluster, cpu is computed from two readings of a
/// counter, so a full step appears later.
pub(crate) struct Chain(JoinHandle<()>);

impl Chain {
    pub(crate) fn start(load: Load, worlds: Vec<World>) -> Self {
        Self(tokio::spawn(async move {
            let mut scrapes = interval(METRICS_SERVER);
            scrapes.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                scrapes.tick().await;
                let at = now();
                for index in 0..HPAS {
                    let units = load.units(index, measured(index, at));
                    for world in &worlds {
                        world.cpu(&name(index), units * MILLICORES);
                    }
                }
            }
        }))
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The time of the last measurement of a pod. The kubelets of a cluster do not measure at the same time.
fn measured(index: usize, at: Timestamp) -> Timestamp {
    let phase = i64::try_from(index).unwrap_or_default() * 7;
    let (seconds, part) = (at.as_second(), at.subsec_nanosecond());
    let age = (seconds + phase).rem_euclid(KUBELET_SECONDS);
    at - SignedDuration::new(age, part)
}
