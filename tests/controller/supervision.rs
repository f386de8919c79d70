//! Tasks that the controller depends on: a failure of one ends the process.

use std::sync::Arc;

use concertina::cli::Config;
use concertina::cli::config::TakeOver;
use controller::reconcile::{ConcludedSync, Observer};
use controller::store::HpaRecord;

use crate::support::objects::{external, hpa};
use crate::support::process::Process;
use crate::support::{Fixture, logs};

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
