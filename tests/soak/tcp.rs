//! Ten minutes in real time: a controller over TCP, with its cluster in a separate process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clock::SystemClock;
use cluster::client::Clients;
use concertina::app::{ElectionRuntime, RunContext, client_options, run_with};
use concertina::cli::Config;
use concertina::cli::config::TakeOver;
use concertina::serve::options::Serving;
use controller::assembly::Phase;
use controller::options::Options;
use controller::telemetry::metrics::Metrics;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::churn::{CYCLE, Churn};
use crate::growth;

/// Environment variable that makes this program the cluster.
const CLUSTER: &str = "CONCERTINA_SOAK_CLUSTER";
/// Time between two rounds of the churn. The time is short, since the test runs in real time.
const ROUND: Duration = Duration::from_secs(1);
/// `--horizontal-pod-autoscaler-sync-period`.
const PERIOD: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_mins(3);
const RUN: Duration = Duration::from_mins(10);
/// Maximum growth of resident memory, in percent.
const ALLOWED_PERCENT: f64 = 1.0;

/// The process of the cluster. Dropping it kills the process.
struct ClusterProcess(Child);

impl Drop for ClusterProcess {
    fn drop(&mut self) {
        // The process may have exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
#[ignore = "takes ten minutes; run by .ci/run --long"]
async fn memory_does_not_grow_over_ten_minutes_over_tcp() {
    if std::env::var_os(CLUSTER).is_some() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "wire::cluster_process_of_the_soak", "--nocapture"])
        .env(CLUSTER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let cluster = ClusterProcess(child);
    let address = lines
        .find_map(|line| line.unwrap().split_once("serves ").map(|(_, address)| address.to_owned()))
        .unwrap();

    let config = Config {
        serving: Serving { port: 0, ..Serving::default() },
        takeover: TakeOver::Off,
        election: None,
        controller: Options { sync_period: PERIOD, qps: None, ..Options::default() },
        ..Config::default()
    };
    let telemetry = Metrics::new();
    let connector = tower::service_fn(move |_: http::Uri| {
        let address = address.clone();
        async move { TcpStream::connect(address).await.map(TokioIo::new) }
    });
    let clients = Clients::over(connector, &client_options(&config, &telemetry)).unwrap();
    let surroundings = RunContext {
        server: "http://127.0.0.1/".to_owned(),
        clock: Arc::new(SystemClock),
        identity: "soak".to_owned(),
        link: None,
        observers: Vec::new(),
        phase: Phase::Name,
        election: ElectionRuntime::Separate,
    };
    let stop = CancellationToken::new();
    let (counted, stopped) = (telemetry.clone(), stop.clone());
    let running =
        tokio::spawn(async move { run_with(&config, &clients, surroundings, counted, stopped).await });
    sleep(WARM_UP).await;
    let before = highest(&telemetry).await;
    let syncs = value(&telemetry, "workqueue_work_duration_seconds_count");
    sleep(RUN.saturating_sub(WARM_UP + MEASUREMENT * 2)).await;
    let after = highest(&telemetry).await;
    let syncs = value(&telemetry, "workqueue_work_duration_seconds_count") - syncs;
    let grown = growth(before, after);
    println!(
        "over TCP: {syncs} syncs in real time; resident {:.1} MB after the warm-up, {:.1} MB at the end ({grown:+.2} %)",
        before / 1e6,
        after / 1e6
    );
    stop.cancel();
    running.await.unwrap().unwrap();
    drop(cluster);
    assert!(syncs > 5000.0, "{syncs}");
    assert!(grown < ALLOWED_PERCENT, "{before} {after}");
}

/// Duration of a measurement: a whole cycle of the churn.
const MEASUREMENT: Duration = Duration::from_secs(CYCLE as u64);

/// Maximum resident memory in a cycle, as the controller reports it.
async fn highest(telemetry: &Metrics) -> f64 {
    let mut highest: f64 = 0.0;
    for _ in 0..MEASUREMENT.as_secs() {
        highest = highest.max(value(telemetry, "process_resident_memory_bytes"));
        sleep(Duration::from_secs(1)).await;
    }
    highest
}

/// The sum of the series of a metric.
fn value(telemetry: &Metrics, name: &str) -> f64 {
    let text = telemetry.render();
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// The process of the cluster. Without its environment variable the test does nothing.
#[tokio::test]
#[ignore = "the cluster process of memory_does_not_grow_over_ten_minutes_over_tcp"]
async fn cluster_process_of_the_soak() {
    if std::env::var_os(CLUSTER).is_none() {
        return;
    }
    let mut churn = Churn::new(Arc::new(SystemClock));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("serves {}", listener.local_addr().unwrap());
    let serving = churn.cluster.clone();
    tokio::spawn(async move { serving.serve(listener, CancellationToken::new()).await });
    loop {
        sleep(ROUND).await;
        churn.run_round();
    }
}
