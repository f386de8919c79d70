//! An API server that is unavailable, throttles, expires resource versions, or closes connections.

use std::time::Duration;

use fake_cluster::{FaultAction, FaultRule, Status};
use serde_json::json;

use crate::support::objects::{cpu, external, hpa, pod};
use crate::support::{Fixture, Harness};

const PODS: &str = "/api/v1/pods";
const HPAS: &str = "/apis/autoscaling/v2/horizontalpodautoscalers";

/// An HPA on a queue and an HPA on cpu, both stable at 8 replicas.
fn balanced() -> Fixture {
    let stage = Fixture::new();
    stage.external("queue", "80");
    stage.target("queue", 8);
    stage.create(hpa("queue", &[external("queue", "10")]));
    stage.target("web", 8);
    for index in 0..8 {
        stage.cluster.put_raw(pod("web", index));
    }
    stage.cpu("web", &[50; 8]);
    stage.create(hpa("web", &[cpu(50)]));
    stage
}

fn counts(stage: &Fixture) -> [i64; 2] {
    ["queue", "web"].map(|name| stage.replicas(name))
}

#[tokio::test(start_paused = true)]
async fn outage_keeps_the_caches_and_syncs_recover_within_a_period() {
    let rig = Harness::start(balanced());
    rig.pass(20.0).await;
    let faults = rig.cluster.faults();
    faults.add(FaultRule::new(FaultAction::Close));
    faults.add(FaultRule::new(FaultAction::WatchClose));
    let before = rig.cluster.requests().len();
    for _ in 0..30 {
        rig.pass(10.0).await;
        assert_eq!(counts(&rig), [8, 8]);
        assert_eq!(
            (rig.assembly.controller.stores.hpas.len(), rig.assembly.controller.stores.pods.len()),
            (2, 8)
        );
    }
    assert!(rig.assembly.pods.is_synced() && rig.assembly.pods.status().error.is_some());
    // The controller requests Scales, statuses, discovery and events at most once per period. It retries each request
    // up to ten times. At the maximum backoff, each watch is opened at most every 3.75 s.
    let made = rig.cluster.requests().len() - before;
    assert!(made < 1_000, "{made} requests in 5 minutes");

    rig.external("queue", "100");
    rig.edit("web", |hpa| hpa["spec"]["minReplicas"] = json!(9));
    rig.cluster.faults().clear();
    let took = rig.until("both targets scale", 15.1, |stage| counts(stage) == [10, 9]).await;
    assert!(took > Duration::ZERO);
    // The watch of pods receives nothing before its next bookmark.
    let watches = [rig.assembly.hpas.clone(), rig.assembly.pods.clone()];
    rig.until("no error is left", 70.0, |_| watches.iter().all(|watch| watch.status().error.is_none())).await;
    for name in ["queue", "web"] {
        assert!(
            rig.condition(name, "AbleToScale").starts_with("True"),
            "{}",
            rig.condition(name, "AbleToScale")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_synced_before_the_server_is_available() {
    let stage = balanced();
    stage.external("queue", "100");
    stage.cluster.faults().add(FaultRule::new(FaultAction::Close));
    let rig = Harness::start(stage);
    rig.pass(120.0).await;
    assert!(!rig.assembly.hpas.is_synced());
    let made = rig.cluster.requests().len();
    assert!((20..80).contains(&made), "{made} requests in 2 minutes");
    rig.cluster.faults().clear();
    rig.until("the target scales", 7.6, |stage| stage.replicas("queue") == 10).await;
}

#[tokio::test(start_paused = true)]
async fn throttled_read_is_retried_after_the_interval_of_the_server() {
    let stage = balanced();
    stage.external("queue", "100");
    let throttled = FaultAction::RetryAfter { code: 429, seconds: 3 };
    stage.cluster.faults().add(FaultRule::new(throttled).path_suffix("/queue/scale").verb("get").times(2));
    let rig = Harness::start(stage);
    rig.until("the target scales", 7.0, |stage| stage.replicas("queue") == 10).await;
    let reads: Vec<_> = rig.syncs("queue").iter().map(Duration::as_secs).collect();
    assert_eq!(reads, [0, 3, 6]);
    assert!(rig.condition("queue", "AbleToScale").starts_with("True"));
}

#[tokio::test(start_paused = true)]
async fn throttled_writes_succeed_without_an_event_or_condition() {
    for path in ["/queue/scale", "/queue/status"] {
        let stage = balanced();
        stage.external("queue", "100");
        for code in [429, 503] {
            let throttled = FaultAction::RetryAfter { code, seconds: 1 };
            stage.cluster.faults().add(FaultRule::new(throttled).path_suffix(path).verb("update").times(1));
        }
        let rig = Harness::start(stage);
        rig.until("the status is written", 5.0, |stage| {
            stage.hpa("queue")["status"]["desiredReplicas"] == 10
        })
        .await;
        assert_eq!((rig.count("update", path), rig.replicas("queue")), (3, 10), "{path}");
        assert!(rig.condition("queue", "AbleToScale").starts_with("True SucceededRescale"), "{path}");
        rig.pass(1.0).await;
        let events = rig.events("queue");
        assert!(matches!(&*events, [event] if event.starts_with("SuccessfulRescale")), "{events:?}");
        assert_eq!(rig.reconciliations("scale_up", "none"), 1.0, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn restart_of_the_server_during_a_read_is_not_reported() {
    let stage = balanced();
    stage.external("queue", "100");
    for path in ["/queue/scale", "/queue"] {
        stage.cluster.faults().add(FaultRule::new(FaultAction::Close).path_suffix(path).verb("get").times(2));
    }
    let rig = Harness::start(stage);
    rig.until("the target scales", 5.0, |stage| stage.replicas("queue") == 10).await;
    rig.pass(1.0).await;
    assert_eq!(rig.count("get", "/queue/scale"), 3);
    let events = rig.events("queue");
    assert!(matches!(&*events, [event] if event.starts_with("SuccessfulRescale")), "{events:?}");
    assert!(rig.condition("queue", "AbleToScale").starts_with("True"));
}

#[tokio::test(start_paused = true)]
async fn throttled_watch_waits_for_the_interval_of_the_server() {
    let stage = balanced();
    let throttled = FaultAction::RetryAfter { code: 429, seconds: 12 };
    stage.cluster.faults().add(FaultRule::new(throttled).path_suffix("/pods").times(1));
    let rig = Harness::start(stage);
    rig.pass(11.9).await;
    assert_eq!(rig.count("watch", PODS), 1);
    rig.until("the pods are listed", 0.5, |_| rig.assembly.pods.is_synced()).await;
}

#[tokio::test(start_paused = true)]
async fn expired_list_restarts_and_shows_nothing_until_it_is_complete() {
    let stage = Fixture::new();
    stage.target("web", 8);
    for index in 0..1200 {
        stage.cluster.put_raw(pod("web", index));
    }
    let faults = stage.cluster.faults();
    faults.add(
        FaultRule::new(FaultAction::Status(Status::bad_request("no streaming")))
            .verb("watch")
            .path_suffix(PODS)
            .times(1),
    );
    let expired = Status::expired("The provided continue parameter is too old");
    faults.add(FaultRule::new(FaultAction::Status(expired)).verb("list").path_suffix(PODS).after(2).times(1));
    faults.add(FaultRule::new(FaultAction::Delay(Duration::from_secs(1))).verb("list").path_suffix(PODS));
    let rig = Harness::start(stage);
    // The server serves two pages, refuses the third page, and then serves three pages.
    for _ in 0..10 {
        assert_eq!(rig.assembly.controller.stores.pods.len(), 0);
        rig.pass(0.5).await;
    }
    rig.until("all pods are listed", 3.0, |_| rig.assembly.pods.is_synced()).await;
    assert_eq!(rig.assembly.controller.stores.pods.len(), 1200);
    assert_eq!(rig.count("list", PODS), 6);
}

#[tokio::test(start_paused = true)]
async fn watch_with_an_expired_version_relists_missed_changes() {
    let rig = Harness::start(balanced());
    rig.pass(20.0).await;
    let silence = rig.cluster.faults().add(FaultRule::new(FaultAction::WatchSilence).path_suffix(PODS));
    for index in 0..4 {
        rig.cluster.delete_now("pods", "shop", &format!("web-{index:04}")).unwrap();
    }
    rig.cluster.compact();
    rig.pass(5.0).await;
    assert_eq!(rig.assembly.controller.stores.pods.len(), 8);
    let expired = Status::expired("too old resource version: 1 (2)");
    rig.cluster.faults().add(FaultRule::new(FaultAction::WatchError(expired)).path_suffix(PODS).times(1));
    rig.cluster.faults().remove(silence);
    rig.until("the deleted pods are dropped", 1.0, |_| rig.assembly.controller.stores.pods.len() == 4).await;
    assert_eq!(rig.count("watch", PODS), 2);
}

#[tokio::test(start_paused = true)]
async fn watch_that_keeps_closing_is_reopened_at_growing_intervals() {
    let rig = Harness::start(balanced());
    rig.pass(20.0).await;
    rig.cluster.faults().add(FaultRule::new(FaultAction::WatchClose));
    let before = (rig.count("watch", PODS), rig.count("watch", HPAS));
    rig.pass(300.0).await;
    for opened in [rig.count("watch", PODS) - before.0, rig.count("watch", HPAS) - before.1] {
        assert!((40..90).contains(&opened), "{opened} watches in 5 minutes");
    }
    assert_eq!(rig.count("list", PODS), 0);
    assert_eq!(rig.syncs("web").len(), 22);
    rig.cluster.faults().clear();
    rig.edit("web", |hpa| hpa["spec"]["minReplicas"] = json!(9));
    rig.until("a change is observed again", 7.6, |stage| stage.replicas("web") == 9).await;
}

#[tokio::test(start_paused = true)]
async fn silent_watch_is_replaced() {
    let rig = Harness::start(balanced());
    rig.pass(20.0).await;
    rig.cluster.faults().add(FaultRule::new(FaultAction::WatchHang).path_suffix(HPAS).times(1));
    rig.edit("web", |hpa| hpa["spec"]["minReplicas"] = json!(9));
    // The last event before the watch hung was the first status write.
    rig.pass(69.0).await;
    assert_eq!(rig.replicas("web"), 8);
    rig.until("the change is observed", 2.0, |stage| stage.replicas("web") == 9).await;
    assert_eq!(rig.count("watch", HPAS), 2);
}

#[tokio::test(start_paused = true)]
async fn broken_responses_of_the_server_scale_nothing() {
    let rig = Harness::start(balanced());
    rig.pass(20.0).await;
    for action in [
        FaultAction::Body("{}".to_owned()),
        FaultAction::Body("[]".to_owned()),
        FaultAction::Body("{\"kind\":\"Scale\",\"apiVersion\":\"autoscaling/v1\"}".to_owned()),
        FaultAction::Text { code: 502, body: "<html>bad gateway</html>".to_owned() },
        FaultAction::Truncate(30),
        FaultAction::Silence,
    ] {
        let id = rig.cluster.faults().add(FaultRule::new(action.clone()).subresource("scale"));
        rig.pass(50.0).await;
        assert_eq!(counts(&rig), [8, 8], "{action:?}");
        let condition = rig.condition("web", "AbleToScale");
        assert!(condition.starts_with("False FailedGetScale"), "{action:?}: {condition}");
        rig.cluster.faults().remove(id);
        rig.until("the HPA recovers", 31.0, |stage| {
            stage.condition("web", "AbleToScale").starts_with("True")
        })
        .await;
    }
}
