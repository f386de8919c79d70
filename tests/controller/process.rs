//! Whole processes: startup without an API server, panics, failed tasks, shutdown, and leader election among replicas.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use autoscaling::query::{Answer, Query, QueryError};
use clock::{SharedClock, SystemClock};
use cluster::client::Clients;
use concertina::app::{AppError, ElectionRuntime, RunContext, client_options, run_with};
use controller::assembly::Phase;
use controller::election::{LostReason, Timing};
use controller::options::Options;
use engine::reconcile::{ConcludedSync, Controller, Observer};
use engine::store::HpaRecord;
use engine::telemetry::metrics::Metrics;
use fake_cluster::{Cluster, FaultAction, FaultRule, LoggedRequest};
use flags::Config;
use flags::config::{Election, TakeOver};
use flags::serving::Serving;
use futures::future::BoxFuture;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::checkpoint::plain;
use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness, Process, logs};

/// A complete process as the only replica, configured without a command line.
fn process(stage: &Fixture) -> Process {
    Process::start(stage, "alone", Config { election: None, ..plain() })
}

#[tokio::test(start_paused = true)]
async fn process_without_a_server_logs_once_a_minute_and_stops_at_once() {
    let stage = Fixture::growing();
    stage.cluster.faults().add(FaultRule::new(FaultAction::Close));
    let process = process(&stage);
    stage.pass(600.0).await;
    assert_eq!(logs::with("waiting for the API server").len(), 10, "{:?}", logs::with(""));
    assert!(logs::with("").len() <= 13, "{:?}", logs::with(""));
    assert_eq!(process.end().await, Duration::ZERO);

    // A stopped process does not react to the recovered server.
    stage.cluster.faults().clear();
    stage.pass(60.0).await;
    assert_eq!(stage.replicas("web"), 4);
}

#[tokio::test(start_paused = true)]
async fn lost_server_is_logged_once_a_minute_and_its_recovery_once() {
    let stage = Fixture::growing();
    let process = process(&stage);
    stage.pass(20.0).await;
    let before = logs::with("failed to list and watch").len();
    stage.cluster.faults().add(FaultRule::new(FaultAction::Close).path_suffix("/pods"));
    stage.cluster.faults().add(FaultRule::new(FaultAction::WatchClose).path_suffix("/pods"));
    stage.pass(300.0).await;
    let logged = logs::with("failed to list and watch").len() - before;
    assert!((4..=6).contains(&logged), "{:?}", logs::with("failed to list"));
    stage.cluster.faults().clear();
    stage.pass(80.0).await;
    assert_eq!(logs::with("watch recovered").len(), 1);
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_the_current_sync_and_sends_its_events() {
    let stage = Fixture::growing();
    stage.fault("/queue", FaultAction::DelayAnswer(Duration::from_millis(4_500)));
    let process = process(&stage);
    stage.pass(4.0).await;
    let took = process.end().await;
    assert!(took > Duration::ZERO && took < Duration::from_secs(1), "{took:?}");
    assert_eq!(stage.replicas("web"), 8);
    assert_eq!(stage.hpa("web")["status"]["desiredReplicas"], 8);
    assert_eq!(stage.events("web").len(), 1);
    stage.pass(60.0).await;
    assert_eq!(stage.syncs("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_abandons_a_sync_whose_metrics_do_not_arrive() {
    let stage = Fixture::growing();
    stage.fault("/queue", FaultAction::Silence);
    let process = process(&stage);
    stage.pass(4.0).await;
    assert!(process.end().await < Duration::from_secs(2));
    assert_eq!(stage.replicas("web"), 4);
    assert_eq!(stage.count("update", "/status"), 0);
    assert_eq!(logs::with("aborted syncs that did not finish in time"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_within_the_grace_period_of_a_pod() {
    let stage = Fixture::growing();
    stage.cluster.faults().add(FaultRule::new(FaultAction::Silence).verb("update"));
    let process = process(&stage);
    stage.pass(4.0).await;
    let took = process.end().await;
    assert!(took <= Duration::from_secs(25), "{took:?}");
}

/// Panics for the metric `bomb` and forwards all other queries to the metrics APIs.
#[derive(Debug)]
struct PanickingMetrics(Arc<dyn cluster::metrics::Metrics>);

impl cluster::metrics::Metrics for PanickingMetrics {
    fn fetch_within(&self, query: Query, age: Duration) -> BoxFuture<'_, Result<Answer, QueryError>> {
        if matches!(&query, Query::External { metric, .. } if **metric == *"bomb") {
            return Box::pin(async { panic!("this metric panics") });
        }
        self.0.fetch_within(query, age)
    }
}

fn with_bomb(controller: &mut Controller) {
    controller.clients.metrics = Arc::new(PanickingMetrics(Arc::clone(&controller.clients.metrics)));
}

#[tokio::test(start_paused = true)]
async fn panic_affects_one_hpa_which_is_retried_every_period() {
    let stage = Fixture::new();
    stage.external("queue", "40");
    for name in ["a", "bad", "c", "d"] {
        stage.target(name, 3);
        let metric = if name == "bad" { "bomb" } else { "queue" };
        stage.create(hpa(name, &[external(metric, "10")]));
    }
    let rig = Harness::altered(
        stage,
        &Config::from(Options { concurrent_syncs: 1, ..Options::default() }),
        with_bomb,
    );
    rig.pass(61.0).await;
    for name in ["a", "bad", "c", "d"] {
        let syncs = rig.syncs(name);
        assert_eq!(syncs.len(), 5, "{name}: {syncs:?}");
        assert_eq!(rig.replicas(name), if name == "bad" { 3 } else { 4 }, "{name}");
    }
    assert_eq!(rig.reconciliations("none", "internal"), 5.0);
    assert!(rig.hpa("bad")["status"]["conditions"].is_null());

    rig.edit("bad", |hpa| hpa["spec"]["metrics"][0]["external"]["metric"]["name"] = "queue".into());
    rig.until("the HPA scales with a working metric", 1.0, |stage| stage.replicas("bad") == 4).await;
}

/// Panics when the watch delivers an HPA named `bomb`.
#[derive(Debug)]
struct PanicsAtBomb;

impl Observer for PanicsAtBomb {
    fn concluded(&self, _: &ConcludedSync<'_>) {}

    fn seen(&self, _: Option<&HpaRecord>, new: &HpaRecord) {
        assert_ne!(&*new.key.name, "bomb", "this HPA panics");
    }
}

#[tokio::test(start_paused = true)]
async fn process_ends_with_an_error_when_a_watch_panics() {
    let stage = Fixture::growing();
    let process = Process::start_observed(&stage, "a", plain(), Arc::new(PanicsAtBomb));
    stage.pass(20.0).await;
    assert_eq!(stage.replicas("web"), 8);

    stage.create(hpa("bomb", &[external("queue", "10")]));
    stage.pass(5.0).await;
    assert!(process.has_ended(), "still running after its watch of HPAs panicked");
    let (error, _) = process.wait_for_failure().await;
    assert!(error.starts_with("background task \"watch of HPAs\" panicked: "), "{error}");
    assert!(error.contains("this HPA panics"), "{error}");
    assert_eq!(logs::with("background task failed").len(), 1);
    let lease = stage.cluster.get("coordination.k8s.io/leases", "kube-system", "concertina").unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "", "the next leader need not wait");
}

#[tokio::test(start_paused = true)]
async fn standby_ends_with_an_error_when_a_watch_panics() {
    let stage = Fixture::growing();
    let leader = Process::start(&stage, "a", plain());
    stage.pass(5.0).await;
    let standby = Process::start_observed(&stage, "b", plain(), Arc::new(PanicsAtBomb));
    stage.pass(20.0).await;
    stage.create(hpa("bomb", &[external("queue", "10")]));
    stage.pass(5.0).await;
    assert!(standby.has_ended(), "still running after its watch of HPAs panicked");
    let (error, _) = standby.wait_for_failure().await;
    assert!(error.contains("watch of HPAs"), "{error}");
    leader.end().await;
}

fn start(stage: &Fixture, identity: &str) -> Process {
    Process::start(stage, identity, plain())
}

fn is_write(request: &LoggedRequest) -> bool {
    !matches!(request.verb, "get" | "list" | "watch") && !request.path.contains("/leases")
}

fn holder(stage: &Fixture) -> String {
    let lease = stage.cluster.get("coordination.k8s.io/leases", "kube-system", "concertina");
    lease.unwrap_or_default()["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn standby_watches_everything_and_writes_nothing() {
    let stage = Fixture::growing();
    let leader = start(&stage, "a");
    stage.until("a leads", 5.0, |stage| stage.replicas("web") == 8).await;
    let before = stage.count("get", "/scale");
    let standby = start(&stage, "b");
    stage.pass(10.0).await;
    // The leader syncs every 15 s.
    assert!(stage.count("get", "/scale") <= before + 1);
    let master = r#"leader_election_master_status{name="concertina"}"#;
    assert!(leader.telemetry.render().contains(&format!("{master} 1")));
    assert!(standby.telemetry.render().contains(&format!("{master} 0")));
    let hpas = "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers 1";
    assert!(standby.telemetry.render().contains(hpas));
    standby.end().await;
    assert_eq!(holder(&stage), "a");
    leader.end().await;
    assert_eq!(holder(&stage), "");
}

#[tokio::test(start_paused = true)]
async fn planned_handover_takes_less_than_two_seconds() {
    let stage = Fixture::growing();
    let leader = start(&stage, "a");
    stage.until("a leads", 5.0, |stage| stage.replicas("web") == 8).await;
    let standby = start(&stage, "b");
    stage.pass(7.0).await;
    let stopped = stage.now();
    leader.end().await;
    stage.until("b leads", 2.0, |stage| stage.syncs("web").last().is_some_and(|at| *at >= stopped)).await;
    assert_eq!(holder(&stage), "b");
    standby.end().await;
}

#[tokio::test(start_paused = true)]
async fn failover_after_a_crash_takes_at_most_17_s_without_other_writes() {
    let mut waits = Vec::new();
    for round in 0..40_u32 {
        let stage = Fixture::growing();
        let leader = start(&stage, "a");
        stage.until("a leads", 5.0, |stage| stage.replicas("web") == 8).await;
        let standby = start(&stage, "b");
        stage.pass(20.0 + f64::from(round) * 0.37).await;
        leader.cut_off();
        let cut = stage.now();
        // The next leader has a rescale to write.
        stage.external("queue", "100");
        let failure = tokio::spawn(leader.wait_for_failure());
        stage.until("b decides", 20.0, |stage| stage.replicas("web") == 10).await;
        waits.push(stage.now().saturating_sub(cut));
        let writes = stage.times(is_write);
        assert!(!writes.iter().any(|at| *at > cut && *at < cut + Duration::from_secs(10)), "{writes:?}");
        let (error, took) = failure.await.unwrap();
        assert!(error.contains("lost leadership"), "{error}");
        assert!(took <= Duration::from_secs(10), "{took:?}");
        standby.end().await;
    }
    waits.sort();
    assert!(waits[37] <= Duration::from_secs(17), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn only_one_of_two_replicas_that_start_together_writes() {
    let stage = Fixture::growing();
    let (a, b) = (start(&stage, "a"), start(&stage, "b"));
    stage.pass(100.0).await;
    // The HPA has one sync per period, and one at the start.
    assert!((6..=8).contains(&stage.syncs("web").len()), "{:?}", stage.syncs("web"));
    a.end().await;
    b.end().await;
}

/// Maximum time for which [`Blocks`] blocks the thread. A passing test needs much less time.
const DEADLINE: Duration = Duration::from_secs(20);

/// Blocks the thread of the process in the first sync, and counts the renewals of the Lease meanwhile.
#[derive(Debug)]
struct Blocks {
    cluster: Cluster,
    stop: CancellationToken,
    renewals: AtomicUsize,
    /// The number of renewals after which the observer stops blocking.
    until: usize,
    /// The time without a renewal after which the observer stops blocking.
    silence: Duration,
}

impl Observer for Blocks {
    #[expect(clippy::disallowed_methods, reason = "blocks a real thread")]
    fn concluded(&self, _: &ConcludedSync<'_>) {
        let renewed = || {
            let lease = self.cluster.get("coordination.k8s.io/leases", "kube-system", "concertina");
            lease.map(|lease| lease["spec"]["renewTime"].clone())
        };
        let (start, mut last) = (Instant::now(), renewed());
        let mut at = start;
        while self.renewals.load(Ordering::Relaxed) < self.until
            && at.elapsed() < self.silence
            && start.elapsed() < DEADLINE
        {
            std::thread::sleep(Duration::from_millis(2));
            let now = renewed();
            if now != last {
                (last, at) = (now, Instant::now());
                self.renewals.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.stop.cancel();
    }
}

/// Runs a process with one HPA whose first sync blocks. Returns the result of the process and the number of
/// renewals during the block.
async fn run_blocked(timing: Timing, until: usize, silence: Duration) -> (Result<(), AppError>, usize) {
    let clock: SharedClock = Arc::new(SystemClock);
    let cluster = Cluster::new(Arc::clone(&clock));
    cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).unwrap();
    cluster.create(hpa("web", &[external("queue", "10")])).unwrap();
    let config = Config {
        serving: Serving { port: 0, ..Serving::default() },
        takeover: TakeOver::Off,
        election: Some(Election { timing, ..Election::default() }),
        ..Config::default()
    };
    let telemetry = Metrics::new();
    let clients = Clients::over(cluster.connector(), &client_options(&config, &telemetry)).unwrap();
    let stop = CancellationToken::new();
    let renewals = AtomicUsize::new(0);
    let blocks = Arc::new(Blocks { cluster: cluster.clone(), stop: stop.clone(), renewals, until, silence });
    let surroundings = RunContext {
        server: "http://embedded/".to_owned(),
        clock,
        identity: "busy".to_owned(),
        observers: vec![Arc::clone(&blocks) as _],
        phase: Phase::FirstSync,
        election: ElectionRuntime::Separate,
    };
    let ended = run_with(&config, &clients, surroundings, telemetry, stop).await;
    (ended, blocks.renewals.load(Ordering::Relaxed))
}

#[tokio::test]
async fn lease_is_renewed_while_the_process_is_busy() {
    let timing = Timing {
        lease: Duration::from_mins(1),
        renew_deadline: Duration::from_secs(50),
        retry: Duration::from_millis(50),
    };
    let (ended, renewals) = run_blocked(timing, 3, DEADLINE).await;
    ended.unwrap();
    assert_eq!(renewals, 3);
}

#[tokio::test]
async fn lease_is_not_renewed_while_the_process_hangs() {
    let timing = Timing {
        lease: Duration::from_secs(1),
        renew_deadline: Duration::from_millis(900),
        retry: Duration::from_millis(50),
    };
    let (ended, _) = run_blocked(timing, usize::MAX, Duration::from_secs(3)).await;
    let error = ended.unwrap_err();
    assert!(matches!(error, AppError::LeaseLost(LostReason::Unresponsive { .. })), "{error:?}");
}
