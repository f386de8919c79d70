//! Long runs: the state of a controller during a day of churn in virtual time, and its resident memory during ten
//! minutes in real time. In real time, the controller uses TCP, and its cluster is a separate process. The tests are
//! ignored by default. Run them with `cargo test --profile quick --test soak -- --ignored --nocapture`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "soak/churn.rs"]
mod churn;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clock::{SharedClock, SystemClock, VirtualClock};
use cluster::client::Clients;
use concertina::app::{ElectionRuntime, RunContext, client_options, run_with};
use controller::assembly::{Assembly, Parts, Phase};
use controller::options::Options;
use engine::reconcile::Observer;
use engine::telemetry::metrics::Metrics;
use flags::Config;
use flags::config::{Election, TakeOver};
use flags::serving::Serving;
use hyper_util::rt::TokioIo;
use journal::record::Record;
use peak_alloc::PeakAlloc;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::churn::{CYCLE, Churn, NAMESPACES, SLOTS};

/// Counts the allocated bytes that are not freed.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Growth from `before` to `after`, in percent.
fn growth(before: f64, after: f64) -> f64 {
    (after - before) / before * 100.0
}

/// Virtual time between two rounds of the churn.
const ROUND: Duration = Duration::from_mins(1);
const DAY: usize = 24 * 60;
/// Rounds until the caches of fixed size are full and every table has had its maximum size. The cache of
/// event correlation takes the longest.
const WARM_UP: usize = 14 * 60;
/// Maximum growth of the heap or of resident memory, in percent.
const ALLOWED_PERCENT: f64 = 1.0;

/// Number of entries in each store of a controller.
#[derive(Debug, PartialEq, Eq)]
struct Sizes {
    hpas: usize,
    pods: usize,
    namespaces: usize,
    selectors: usize,
    claims: usize,
    histories: usize,
    records: usize,
    keys: usize,
}

fn sizes(assembly: &Assembly, record: &Record) -> Sizes {
    let controller = &assembly.controller;
    let pods = controller.stores.pods.stats();
    Sizes {
        hpas: controller.stores.hpas.len(),
        pods: pods.pods,
        namespaces: pods.namespaces,
        selectors: pods.selectors,
        claims: controller.stores.overlap.len(),
        histories: controller.stores.histories.len(),
        records: record.len(),
        keys: controller.runtime.queue.len() + controller.runtime.queue.waiting(),
    }
}

/// Number of series that name a namespace of the churn.
fn series(telemetry: &Metrics) -> usize {
    telemetry.render().lines().filter(|line| line.contains("team-")).count()
}

#[tokio::test(start_paused = true)]
#[ignore = "takes a minute; run by .ci/run --long"]
async fn day_of_churn_leaves_no_state_behind() {
    let clock: SharedClock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().unwrap()));
    let mut churn = Churn::new(Arc::clone(&clock));
    let controller = Options { decisions_per_hpa: 0, ..Options::default() };
    let config = Config { controller, takeover: TakeOver::Off, ..Config::default() };
    let telemetry = Metrics::new();
    let clients = Clients::over(churn.cluster.connector(), &client_options(&config, &telemetry)).unwrap();
    let record = Arc::new(Record::new(40));
    let stop = CancellationToken::new();
    let parts = Parts {
        clients: &clients,
        options: &config.controller,
        clock,
        telemetry: telemetry.clone(),
        observers: vec![Arc::clone(&record) as Arc<dyn Observer>],
        seed: 0,
        phase: Phase::Name,
    };
    let assembly = Assembly::start(parts, &stop);
    assembly.synced().await;
    let running = tokio::spawn(Arc::clone(&assembly.controller).run(stop.clone()));
    let expected = |churn: &Churn| Sizes {
        hpas: SLOTS,
        pods: churn.pods(),
        namespaces: NAMESPACES,
        selectors: SLOTS,
        claims: SLOTS,
        histories: SLOTS,
        records: SLOTS,
        keys: SLOTS,
    };

    let mut heaps = Vec::new();
    let mut series_at = Vec::new();
    let mut strings_at = Vec::new();
    let mut next = Instant::now();
    for round in 1..=DAY {
        churn.run_round();
        next += ROUND;
        sleep_until(next).await;
        assert_eq!(sizes(&assembly, &record), expected(&churn), "after {round} rounds");
        if round >= WARM_UP && round % CYCLE == 0 {
            series_at.push(series(&telemetry));
            strings_at.push(assembly.controller.stores.pods.stats().strings);
            heaps.push(HEAP.current_usage());
        }
    }
    let (first, last) = (heaps[0] as f64, heaps[heaps.len() - 1] as f64);
    let grown = growth(first, last);
    println!(
        "a day: {} HPAs replaced; heap of cluster and controller {:.0} kB after the warm-up, {:.0} kB at the end \
         ({grown:+.2} %), {} series",
        DAY * crate::churn::REPLACED,
        first / 1e3,
        last / 1e3,
        series_at[0],
    );
    assert!(series_at.iter().all(|count| *count == series_at[0]), "{series_at:?}");
    assert!(strings_at.iter().all(|count| *count == strings_at[0]), "{strings_at:?}");
    assert!(grown < ALLOWED_PERCENT, "{heaps:?}");

    churn.delete_all();
    sleep_until(next + ROUND).await;
    let empty =
        Sizes { hpas: 0, pods: 0, namespaces: 0, selectors: 0, claims: 0, histories: 0, records: 0, keys: 0 };
    assert_eq!(sizes(&assembly, &record), empty);
    assert_eq!(assembly.controller.stores.pods.stats(), engine::store::Stats::default());
    assert_eq!(series(&telemetry), 0, "{}", telemetry.render());
    stop.cancel();
    running.await.unwrap();
}

/// Rounds between two failovers. Each replica is replaced in every second failover.
const ROUNDS_PER_LEADER: usize = 15;

#[tokio::test(start_paused = true)]
#[ignore = "takes a minute; run by .ci/run --long"]
async fn day_of_failovers_leaves_no_state_behind() {
    let clock: SharedClock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().unwrap()));
    let mut churn = Churn::new(Arc::clone(&clock));
    let start = |churn: &Churn, number: usize| {
        let config = Config {
            serving: Serving { port: 0, ..Serving::default() },
            takeover: TakeOver::Off,
            election: Some(Election::default()),
            ..Config::default()
        };
        let telemetry = Metrics::new();
        let clients = Clients::over(churn.cluster.connector(), &client_options(&config, &telemetry)).unwrap();
        let surroundings = RunContext {
            server: "http://embedded/".to_owned(),
            clock: Arc::clone(&clock),
            identity: format!("replica-{number:04}"),
            observers: Vec::new(),
            phase: Phase::Name,
            election: ElectionRuntime::Shared,
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            Box::pin(run_with(&config, &clients, surroundings, telemetry, stopped)).await
        });
        (stop, running)
    };
    let mut replicas = vec![start(&churn, 0), start(&churn, 1)];
    let mut heaps = Vec::new();
    let mut next = Instant::now();
    for round in 1..=DAY {
        churn.run_round();
        next += ROUND;
        sleep_until(next).await;
        if round % ROUNDS_PER_LEADER == 0 {
            // The older replica has led since the previous failover.
            let (stop, running) = replicas.remove(0);
            stop.cancel();
            running.await.unwrap().unwrap();
            replicas.push(start(&churn, round));
        }
        // The measurement precedes the next failover. The memory of connections varies by a few percent, so
        // the test averages many measurements.
        if round >= WARM_UP && round % ROUNDS_PER_LEADER == ROUNDS_PER_LEADER - 1 {
            heaps.push(HEAP.current_usage() as f64);
        }
    }
    let (early, late) = heaps.split_at(heaps.len() / 2);
    let mean = |heaps: &[f64]| heaps.iter().sum::<f64>() / heaps.len() as f64;
    let (first, last) = (mean(early), mean(late));
    let grown = growth(first, last);
    println!(
        "a day with {} failovers: heap of cluster and two replicas {:.0} kB on average after the warm-up, {:.0} kB at \
         the end ({grown:+.2} %)",
        DAY / ROUNDS_PER_LEADER,
        first / 1e3,
        last / 1e3
    );
    assert!(grown < ALLOWED_PERCENT, "{heaps:?}");
    for (stop, running) in replicas {
        stop.cancel();
        running.await.unwrap().unwrap();
    }
}

/// Environment variable with which this program runs the cluster instead of the test.
const CLUSTER: &str = "CONCERTINA_SOAK_CLUSTER";
/// Real time between two rounds of the churn.
const TCP_ROUND: Duration = Duration::from_secs(1);
/// `--horizontal-pod-autoscaler-sync-period`.
const TCP_PERIOD: Duration = Duration::from_secs(1);
const TCP_WARM_UP: Duration = Duration::from_mins(3);
const TCP_RUN: Duration = Duration::from_mins(10);

/// The process of the cluster. It is killed on drop.
struct ClusterProcess(Child);

impl Drop for ClusterProcess {
    fn drop(&mut self) {
        // The process may already have exited.
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
        .args(["--ignored", "--exact", "cluster_process_of_the_soak", "--nocapture"])
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
        controller: Options { sync_period: TCP_PERIOD, qps: None, ..Options::default() },
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
        observers: Vec::new(),
        phase: Phase::Name,
        election: ElectionRuntime::Separate,
    };
    let stop = CancellationToken::new();
    let (counted, stopped) = (telemetry.clone(), stop.clone());
    let running =
        tokio::spawn(async move { run_with(&config, &clients, surroundings, counted, stopped).await });
    sleep(TCP_WARM_UP).await;
    let before = highest(&telemetry).await;
    let syncs = value(&telemetry, "workqueue_work_duration_seconds_count");
    sleep(TCP_RUN.saturating_sub(TCP_WARM_UP + MEASUREMENT * 2)).await;
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

/// Duration of a measurement: one cycle of the churn.
const MEASUREMENT: Duration = Duration::from_secs(CYCLE as u64);

/// Maximum resident memory during a measurement, in bytes, from the metrics of the controller.
async fn highest(telemetry: &Metrics) -> f64 {
    let mut highest: f64 = 0.0;
    for _ in 0..MEASUREMENT.as_secs() {
        highest = highest.max(value(telemetry, "process_resident_memory_bytes"));
        sleep(Duration::from_secs(1)).await;
    }
    highest
}

/// The sum of all series whose name starts with `name`.
fn value(telemetry: &Metrics, name: &str) -> f64 {
    let text = telemetry.render();
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// Runs the cluster for `memory_does_not_grow_over_ten_minutes_over_tcp`. Does nothing unless [`CLUSTER`] is set.
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
        sleep(TCP_ROUND).await;
        churn.run_round();
    }
}
