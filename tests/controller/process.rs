//! The process around the loop: how it starts without a server, and how it ends.

use std::time::Duration;

use concertina::cli::Config;
use concertina::cli::config::TakeOver;
use concertina::embedded::{FaultAction, FaultRule};

use crate::support::objects::{external, hpa};
use crate::support::process::Process;
use crate::support::{Stage, logs};

/// The whole process but for its command line, alone.
fn process(stage: &Stage) -> Process {
    Process::start(stage, "alone", Config { election: None, takeover: TakeOver::Off, ..Config::default() })
}

/// One HPA that wants 8 instead of 4 replicas, if it gets its metric.
fn one() -> Stage {
    let stage = Stage::new();
    stage.target("web", 4);
    stage.external("queue", "80");
    stage.create(hpa("web", &[external("queue", "10")]));
    stage
}

#[tokio::test(start_paused = true)]
async fn without_a_server_it_says_so_once_a_minute_and_ends_at_once_when_told() {
    let stage = one();
    stage.cluster.faults().add(FaultRule::new(FaultAction::Close));
    let process = process(&stage);
    stage.pass(600.0).await;
    assert_eq!(logs::with("waiting for the API server").len(), 10, "{:?}", logs::with(""));
    assert!(logs::with("").len() <= 13, "{:?}", logs::with(""));
    assert_eq!(process.end().await, Duration::ZERO);

    // What the server says when it comes concerns nobody any more.
    stage.cluster.faults().clear();
    stage.pass(60.0).await;
    assert_eq!(stage.replicas("web"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_goes_later_is_told_of_once_a_minute_and_so_is_its_return() {
    let stage = one();
    let process = process(&stage);
    stage.pass(20.0).await;
    let before = logs::with("cannot list and watch").len();
    stage.cluster.faults().add(FaultRule::new(FaultAction::Close).path_suffix("/pods"));
    stage.cluster.faults().add(FaultRule::new(FaultAction::WatchClose).path_suffix("/pods"));
    stage.pass(300.0).await;
    let told = logs::with("cannot list and watch").len() - before;
    assert!((4..=6).contains(&told), "{:?}", logs::with("cannot list"));
    stage.cluster.faults().clear();
    stage.pass(80.0).await;
    assert_eq!(logs::with("the watch works again").len(), 1);
    process.end().await;
}

#[tokio::test(start_paused = true)]
async fn at_the_end_a_sync_that_has_begun_is_finished_and_its_events_are_sent() {
    let stage = one();
    stage.fault("/queue", FaultAction::DelayAnswer(Duration::from_secs(10)));
    let process = process(&stage);
    stage.pass(4.0).await;
    let took = process.end().await;
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(7), "{took:?}");
    assert_eq!(stage.replicas("web"), 8);
    assert_eq!(stage.hpa("web")["status"]["desiredReplicas"], 8);
    assert_eq!(stage.events("web").len(), 1);
    stage.pass(60.0).await;
    assert_eq!(stage.syncs("web").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_nothing_is_waited_for_longer_than_a_pod_is_given() {
    let stage = one();
    stage.cluster.faults().add(FaultRule::new(FaultAction::Silence).verb("update"));
    let process = process(&stage);
    stage.pass(4.0).await;
    let took = process.end().await;
    assert!(took <= Duration::from_secs(25), "{took:?}");
}
