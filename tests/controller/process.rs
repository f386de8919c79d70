//! The process around the control loop: startup without an API server, and shutdown.

use std::time::Duration;

use concertina::cli::Config;
use concertina::cli::config::TakeOver;
use fake_cluster::{FaultAction, FaultRule};

use crate::support::process::Process;
use crate::support::{Fixture, logs};

/// A whole process without its command line, as a single replica.
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
