//! The times of syncs.

use std::time::Duration;

use concertina::cli::Config;
use controller::options::Options;
use serde_json::json;

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

/// Asserts that the syncs of `target` start at the `expected` seconds after `origin`.
fn at(rig: &Harness, target: &str, origin: Duration, expected: &[f64]) {
    let syncs: Vec<f64> =
        rig.syncs(target).iter().map(|at| at.as_secs_f64() - origin.as_secs_f64()).collect();
    let close = |(got, expected): (&f64, &f64)| (got - expected).abs() < 0.1;
    let equal = syncs.len() == expected.len() && syncs.iter().zip(expected).all(close);
    assert!(equal, "synced at {syncs:.2?}, expected {expected:?}");
}

/// One HPA under a controller that has run for a while, with the time of its creation.
async fn one_hpa() -> (Harness, Duration) {
    let stage = Fixture::new();
    stage.target("web", 2);
    stage.external("queue", "20");
    let rig = Harness::start(stage);
    rig.pass(3.2).await;
    let created = rig.now();
    rig.create(hpa("web", &[external("queue", "10")]));
    (rig, created)
}

#[tokio::test(start_paused = true)]
async fn new_hpa_is_synced_at_once_and_then_every_period() {
    let (rig, created) = one_hpa().await;
    rig.pass(61.0).await;
    at(&rig, "web", created, &[0.0, 15.0, 30.0, 45.0, 60.0]);
}

#[tokio::test(start_paused = true)]
async fn changed_spec_is_synced_at_once_and_the_period_is_kept() {
    let (rig, created) = one_hpa().await;
    rig.pass(7.0).await;
    rig.edit("web", |hpa| hpa["spec"]["maxReplicas"] = json!(20));
    rig.pass(25.0).await;
    at(&rig, "web", created, &[0.0, 7.0, 15.0, 30.0]);
}

#[tokio::test(start_paused = true)]
async fn status_and_metadata_changes_trigger_no_sync() {
    let (rig, created) = one_hpa().await;
    rig.pass(4.0).await;
    rig.edit("web", |hpa| hpa["metadata"]["labels"] = json!({"team": "a"}));
    rig.pass(4.0).await;
    let mut changed = rig.hpa("web");
    changed["status"]["desiredReplicas"] = json!(7);
    rig.cluster.update_status(changed).unwrap();
    rig.pass(23.0).await;
    at(&rig, "web", created, &[0.0, 15.0, 30.0]);
}

#[tokio::test(start_paused = true)]
async fn repeated_spec_changes_are_each_synced_at_once() {
    let (rig, created) = one_hpa().await;
    for max in 11..=13 {
        rig.pass(2.0).await;
        rig.edit("web", |hpa| hpa["spec"]["maxReplicas"] = json!(max));
    }
    rig.pass(10.0).await;
    at(&rig, "web", created, &[0.0, 2.0, 4.0, 6.0, 15.0]);
}

#[tokio::test(start_paused = true)]
async fn existing_hpas_are_synced_at_startup_and_then_every_period() {
    let stage = Fixture::new();
    stage.external("queue", "20");
    let names: Vec<String> = (0..40).map(|index| format!("web-{index:02}")).collect();
    for name in &names {
        stage.target(name, 2);
        stage.create(hpa(name, &[external("queue", "10")]));
    }
    let rig = Harness::start(stage);
    rig.pass(152.0).await;
    for name in &names {
        let syncs = rig.syncs(name);
        assert!(syncs[0] < Duration::from_secs(2), "{name}: {syncs:.2?}");
        assert_eq!(syncs.len(), 11, "{name}: {syncs:.2?}");
        let gaps: Vec<_> = syncs.windows(2).map(|pair| pair[1].checked_sub(pair[0]).unwrap()).collect();
        let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
        assert!(
            *least >= Duration::from_millis(14_900) && *most < Duration::from_secs(16),
            "{name}: {gaps:.2?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn sync_period_follows_the_flag() {
    let stage = Fixture::new();
    stage.target("web", 2);
    stage.external("queue", "20");
    stage.create(hpa("web", &[external("queue", "10")]));
    let rig = Harness::with(
        stage,
        &Config::from(Options { sync_period: Duration::from_secs(40), ..Options::default() }),
    );
    rig.pass(81.0).await;
    at(&rig, "web", Duration::ZERO, &[0.0, 40.0, 80.0]);
}

#[tokio::test(start_paused = true)]
async fn no_sync_starts_after_shutdown() {
    let (rig, created) = one_hpa().await;
    rig.pass(10.0).await;
    let stage = rig.end().await;
    let before = stage.cluster.requests().len();
    stage.pass(60.0).await;
    assert_eq!(stage.cluster.requests().len(), before);
    assert_eq!(stage.syncs("web").len(), 1, "{created:?}");
}
