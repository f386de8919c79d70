//! The guard against deciding on an HPA that our own last write has overtaken.

use std::time::Duration;

use concertina::cli::Config;
use concertina::embedded::{FaultAction, FaultRule};

use crate::support::objects::{external, hpa};
use crate::support::{Rig, Stage};

const SKIPS: &str = "horizontal_pod_autoscaler_controller_stale_sync_skips_total\
                     {group=\"autoscaling\",resource=\"horizontalpodautoscalers\"}";

/// A controller whose watch of HPAs is 20 s behind; its one HPA got its status written in the first sync.
async fn lagging(config: &Config) -> Rig {
    let stage = Stage::new();
    stage.target("web", 2);
    stage.external("queue", "20");
    stage.create(hpa("web", &[external("queue", "10")]));
    let delay = FaultAction::WatchDelay(Duration::from_secs(20));
    stage.cluster.faults().add(FaultRule::new(delay).path_suffix("/horizontalpodautoscalers"));
    let rig = Rig::with(stage, config);
    rig.until("the status is written", 1.0, |stage| stage.count("update", "/status") == 1).await;
    rig
}

#[tokio::test(start_paused = true)]
async fn a_sync_on_a_stale_hpa_is_skipped_and_counted_and_tried_a_period_later() {
    let rig = lagging(&Config::default()).await;
    rig.pass(14.0).await;
    assert_eq!((rig.syncs("web").len(), rig.series(SKIPS)), (1, 0.0));
    rig.pass(5.0).await;
    assert_eq!((rig.syncs("web").len(), rig.series(SKIPS)), (1, 1.0));
    rig.pass(10.0).await;
    assert_eq!((rig.syncs("web").len(), rig.series(SKIPS)), (1, 1.0));
    rig.pass(3.0).await;
    assert_eq!((rig.syncs("web").len(), rig.series(SKIPS)), (2, 1.0));
}

#[tokio::test(start_paused = true)]
async fn without_the_gate_it_is_synced_all_the_same() {
    let rig = lagging(&Config { stale_consistency: false, ..Config::default() }).await;
    rig.pass(31.0).await;
    assert_eq!((rig.syncs("web").len(), rig.series(SKIPS)), (3, 0.0));
}
