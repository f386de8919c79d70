//! The process around the control loop: startup without an API server, panics in a sync, tasks whose
//! failure ends the process, and shutdown.

use std::sync::Arc;
use std::time::Duration;

use autoscaling::query::{Answer, Query, QueryError};
use cluster::metrics::Metrics;
use concertina::cli::Config;
use concertina::cli::config::TakeOver;
use controller::options::Options;
use controller::reconcile::{ConcludedSync, Controller, Observer};
use controller::store::HpaRecord;
use fake_cluster::{FaultAction, FaultRule};
use futures::future::BoxFuture;

use crate::support::objects::{external, hpa};
use crate::support::process::Process;
use crate::support::{Fixture, Harness, logs};

/// A complete process as the only replica, configured without a command line.
fn process(stage: &Fixture) -> Process {
    Process::start(stage, "alone", Config { election: None, takeover: TakeOver::Off, ..Config::default() })
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

/// Panics for the metric `bomb` and forwards all others to the real APIs.
#[derive(Debug)]
struct PanickingMetrics(Arc<dyn Metrics>);

impl Metrics for PanickingMetrics {
    fn fetch_within(&self, query: Query, age: Duration) -> BoxFuture<'_, Result<Answer, QueryError>> {
        if matches!(&query, Query::External { metric, .. } if **metric == *"bomb") {
            return Box::pin(async { panic!("this metric panics") });
        }
        self.0.fetch_within(query, age)
    }
}

fn with_bomb(controller: &mut Controller) {
    controller.metrics = Arc::new(PanickingMetrics(Arc::clone(&controller.metrics)));
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
    let config = Config { takeover: TakeOver::Off, ..Config::default() };
    let process = Process::start_observed(&stage, "a", config, Arc::new(PanicsAtBomb));
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
    let config = || Config { takeover: TakeOver::Off, ..Config::default() };
    let leader = Process::start(&stage, "a", config());
    stage.pass(5.0).await;
    let standby = Process::start_observed(&stage, "b", config(), Arc::new(PanicsAtBomb));
    stage.pass(20.0).await;
    stage.create(hpa("bomb", &[external("queue", "10")]));
    stage.pass(5.0).await;
    assert!(standby.has_ended(), "still running after its watch of HPAs panicked");
    let (error, _) = standby.wait_for_failure().await;
    assert!(error.contains("watch of HPAs"), "{error}");
    leader.end().await;
}
