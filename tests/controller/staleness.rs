//! The guard against decisions on an HPA that is older than our last write.

use std::time::Duration;

use concertina::cli::Config;
use controller::options::Options;
use fake_cluster::{FaultAction, FaultRule};

use crate::support::objects::{external, hpa, pod};
use crate::support::{Fixture, Harness, logs};

const SKIPS: &str = "horizontal_pod_autoscaler_controller_stale_sync_skips_total\
                     {group=\"autoscaling\",resource=\"horizontalpodautoscalers\"}";

/// A controller after the first status write of its one HPA. Its watch of HPAs is 20 s behind.
async fn lagging(config: &Config) -> Harness {
    let stage = Fixture::new();
    stage.target("web", 2);
    stage.external("queue", "20");
    stage.create(hpa("web", &[external("queue", "10")]));
    let delay = FaultAction::WatchDelay(Duration::from_secs(20));
    stage.cluster.faults().add(FaultRule::new(delay).path_suffix("/horizontalpodautoscalers"));
    let rig = Harness::with(stage, config);
    rig.until("the status is written", 1.0, |stage| stage.count("update", "/status") == 1).await;
    rig
}

#[tokio::test(start_paused = true)]
async fn sync_of_a_stale_hpa_is_skipped_and_retried_a_period_later() {
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
async fn hpa_is_synced_although_the_watch_never_delivers_its_last_status() {
    let stage = Fixture::new();
    stage.target("web", 2);
    stage.target("other", 2);
    stage.external("queue", "20");
    stage.create(hpa("web", &[external("queue", "10")]));
    stage.create(hpa("other", &[external("queue", "10")]));
    let rig = Harness::start(stage);
    rig.pass(20.0).await;
    let lost = FaultRule::new(FaultAction::WatchDrop).path_suffix("/horizontalpodautoscalers");
    rig.cluster.faults().add(lost);
    rig.external("queue", "30");
    rig.until("the status is written", 16.0, |stage| stage.replicas("web") == 3).await;
    rig.pass(1.0).await;
    rig.cluster.faults().clear();
    rig.external("queue", "40");
    // The watch lives, because other objects change.
    for _ in 0..50 {
        rig.pass(1.0).await;
        rig.edit("other", |hpa| hpa["spec"]["maxReplicas"] = (50 + rig.now().as_secs()).into());
    }
    assert_eq!(rig.replicas("web"), 4);
}

#[tokio::test(start_paused = true)]
async fn stale_hpa_is_synced_without_the_guard() {
    let rig = lagging(&Config::from(Options { stale_consistency: false, ..Options::default() })).await;
    rig.pass(31.0).await;
    assert_eq!((rig.syncs("web").len(), rig.series(SKIPS)), (3, 0.0));
}

#[tokio::test(start_paused = true)]
async fn hpa_is_synced_after_a_restore_of_etcd() {
    check_restore(100.0).await;
}

#[tokio::test(start_paused = true)]
async fn hpa_is_synced_after_a_restore_before_the_first_bookmark() {
    // After the status write of the second period, and a minute before bookmarks.
    check_restore(20.0).await;
}

/// Restores etcd as it was `backup_at` seconds after the start, with the loss of many versions.
async fn check_restore(backup_at: f64) {
    let stage = Fixture::new();
    stage.target("web", 2);
    stage.external("queue", "20");
    stage.create(hpa("web", &[external("queue", "10")]));
    let rig = Harness::start(stage);
    rig.pass(backup_at).await;
    let backup = rig.cluster.resource_version();
    for _ in 0..1000 {
        rig.cluster.put_raw(pod("other", 0));
    }
    rig.external("queue", "40");
    rig.pass(20.0).await;
    assert_eq!(rig.replicas("web"), 4);
    rig.cluster.restore(backup);
    // The watches resume at versions that the server has lost. They are silent. Two silent watches cause a
    // list, or one before the first bookmark.
    rig.pass(200.0).await;
    rig.external("queue", "60");
    rig.until("the target grows", 15.1, |stage| stage.replicas("web") == 6).await;
    rig.pass(15.0).await;
    assert_eq!(rig.hpa("web")["status"]["currentReplicas"], 6);
    assert!(rig.cluster.resource_version() < backup + 1000, "the versions have not caught up");
    assert_eq!(rig.series(SKIPS), 0.0);
    let logged = logs::with("the API server has lost the last status write");
    assert_eq!(logged.len(), 1, "{logged:?}");
}
