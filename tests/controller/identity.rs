//! Objects that are deleted, and new objects of the same name. No state remains of deleted HPAs and pods.

use std::time::Duration;

use fake_cluster::{FaultAction, FaultRule};
use flags::Config;
use serde_json::json;

use crate::support::objects::{SHOP, cpu, deployment, external, hpa, pod};
use crate::support::{Fixture, HPAS, Harness};

const DESIRED: &str =
    r#"horizontal_pod_autoscaler_controller_desired_replicas{hpa_name="web",namespace="shop"}"#;
const HPA_COUNT: &str = "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers";

#[tokio::test(start_paused = true)]
async fn deleted_hpa_leaves_no_state_behind() {
    let rig = Harness::start(Fixture::growing());
    rig.pass(20.0).await;
    let controller = &rig.assembly.controller;
    assert_eq!(
        (rig.series(DESIRED), rig.series(HPA_COUNT), controller.stores.histories.len()),
        (8.0, 1.0, 1)
    );
    rig.cluster.delete(HPAS, "shop", "web").unwrap();
    rig.pass(60.0).await;
    assert_eq!(rig.syncs("web").len(), 2);
    assert_eq!(
        (rig.series(HPA_COUNT), controller.stores.histories.len(), controller.runtime.queue.waiting()),
        (0.0, 0, 0)
    );
    assert!(!rig.telemetry.render().contains(DESIRED));
}

/// A controller whose HPA was deleted while its sync waited for the metric.
async fn deleted_during_its_sync() -> Harness {
    let stage = Fixture::growing();
    stage.fault("/queue", FaultAction::DelayAnswer(Duration::from_secs(10)));
    let rig = Harness::start(stage);
    rig.pass(5.0).await;
    rig.cluster.delete(HPAS, "shop", "web").unwrap();
    rig
}

#[tokio::test(start_paused = true)]
async fn hpa_deleted_during_its_sync_leaves_no_state_behind() {
    let rig = deleted_during_its_sync().await;
    rig.pass(60.0).await;
    let controller = &rig.assembly.controller;
    assert_eq!(rig.syncs("web").len(), 1);
    assert_eq!(
        (
            controller.stores.histories.len(),
            controller.runtime.queue.waiting(),
            controller.runtime.queue.len()
        ),
        (0, 0, 0)
    );
    assert!(!rig.telemetry.render().contains(DESIRED));
}

#[tokio::test(start_paused = true)]
async fn hpa_deleted_during_its_sync_does_not_scale() {
    let rig = deleted_during_its_sync().await;
    rig.pass(60.0).await;
    assert_eq!((rig.count("update", "/web/scale"), rig.replicas("web")), (0, 4));
    assert_eq!(rig.events("web"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn hpa_recreated_during_its_sync_is_synced_as_the_new_one() {
    let rig = deleted_during_its_sync().await;
    rig.external("other", "60");
    rig.create(hpa("web", &[external("other", "10")]));
    let uid = rig.hpa("web")["metadata"]["uid"].clone();
    rig.pass(60.0).await;
    let after = rig.hpa("web");
    assert_eq!((&after["metadata"]["uid"], &after["status"]["desiredReplicas"]), (&uid, &json!(6)));
    assert_eq!((rig.replicas("web"), rig.assembly.controller.stores.histories.len()), (6, 1));
}

/// A target that has grown by two pods, which is the limit of its policy for ten minutes.
async fn grown_by_two() -> Harness {
    let stage = Fixture::new();
    stage.target("web", 2);
    stage.external("queue", "100");
    stage.create(growing());
    let rig = Harness::start(stage);
    rig.pass(40.0).await;
    assert_eq!(rig.replicas("web"), 4);
    assert!(rig.condition("web", "ScalingLimited").starts_with("True ScaleUpLimit"));
    rig
}

fn growing() -> serde_json::Value {
    let mut object = hpa("web", &[external("queue", "10")]);
    object["spec"]["behavior"] =
        json!({"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 600}]}});
    object
}

#[tokio::test(start_paused = true)]
async fn recreated_hpa_starts_with_an_empty_history() {
    let rig = grown_by_two().await;
    rig.cluster.delete(HPAS, "shop", "web").unwrap();
    rig.create(growing());
    rig.until("the target grows by two again", 1.0, |stage| stage.replicas("web") == 6).await;
    assert_eq!(rig.assembly.controller.stores.histories.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn hpa_keeps_its_history_when_its_spec_changes() {
    let rig = grown_by_two().await;
    rig.edit("web", |hpa| hpa["spec"]["maxReplicas"] = json!(20));
    rig.pass(40.0).await;
    assert_eq!(rig.replicas("web"), 4);
}

#[tokio::test(start_paused = true)]
async fn recreated_hpa_is_new_even_if_the_watch_missed_it() {
    let rig = grown_by_two().await;
    let path = "/horizontalpodautoscalers";
    let silence = rig.cluster.faults().add(FaultRule::new(FaultAction::WatchSilence).path_suffix(path));
    rig.cluster.delete(HPAS, "shop", "web").unwrap();
    rig.create(growing());
    rig.pass(3.0).await;
    rig.cluster.compact();
    let expired = fake_cluster::Status::expired("too old resource version");
    rig.cluster.faults().add(FaultRule::new(FaultAction::WatchError(expired)).path_suffix(path).times(1));
    rig.cluster.faults().remove(silence);
    rig.until("the target grows by two again", 1.0, |stage| stage.replicas("web") == 6).await;
}

#[tokio::test(start_paused = true)]
async fn recreated_target_is_scaled_again() {
    let stage = Fixture::new();
    stage.target("web", 4);
    stage.external("queue", "40");
    stage.create(hpa("web", &[external("queue", "10")]));
    let rig = Harness::start(stage);
    rig.pass(20.0).await;
    rig.remove_target("web");
    rig.pass(20.0).await;
    let missing = "deployments.apps \"web\" not found";
    assert_eq!(
        rig.condition("web", "AbleToScale"),
        format!(
            "False FailedGetScale the HPA controller was unable to get the target's current scale: {missing}"
        )
    );
    assert!(rig.events("web").contains(&format!("FailedGetScale {missing}")));
    rig.target("web", 4);
    rig.external("queue", "80");
    rig.until("the new target scales", 15.1, |stage| stage.replicas("web") == 8).await;
    assert!(rig.condition("web", "AbleToScale").starts_with("True"));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_target_do_not_count_for_its_successor() {
    let stage = Fixture::new();
    stage.target("web", 2);
    for index in 0..2 {
        stage.cluster.put_raw(pod("web", index));
    }
    stage.cpu("web", &[50, 50]);
    stage.create(hpa("web", &[cpu(50)]));
    let rig = Harness::start(stage);
    rig.pass(20.0).await;
    for index in 0..2 {
        rig.cluster.delete_now("pods", "shop", &format!("web-{index:04}")).unwrap();
    }
    rig.pass(20.0).await;
    assert!(rig.condition("web", "ScalingActive").starts_with("False FailedGetResourceMetric"));
    assert_eq!(rig.replicas("web"), 2);
    rig.cluster.put_raw(pod("web", 0));
    rig.cpu("web", &[100]);
    rig.until("the only pod counts", 15.1, |stage| {
        stage.condition("web", "ScalingActive").starts_with("True ValidMetricFound")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn events_of_a_terminating_namespace_are_dropped_without_delay() {
    let stage = Fixture::new();
    stage.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ending"}}));
    let mut object = hpa("gone", &[external("queue", "10")]);
    object["metadata"]["namespace"] = json!("ending");
    stage.create(object);
    let mut namespace = stage.cluster.get("namespaces", "", "ending").unwrap();
    namespace["status"]["phase"] = json!("Terminating");
    stage.cluster.put_raw(namespace);
    stage.target("web", 4);
    stage.external("queue", "80");
    stage.create(hpa("web", &[external("queue", "10")]));
    let rig = Harness::start(stage);
    rig.pass(61.0).await;
    let refused = rig.cluster.requests().entries();
    let refused: Vec<_> =
        refused.iter().filter(|request| request.path == "/api/v1/namespaces/ending/events").collect();
    // The controller sends one event per sync, without retries.
    assert_eq!(refused.len(), 5, "{refused:?}");
    assert!(refused.iter().all(|request| request.code == Some(403)));
    assert_eq!(rig.assembly.controller.clients.events.stats().failed, 5);
    assert!(rig.events("web").iter().any(|event| event.starts_with("SuccessfulRescale")));
    let sent = rig.times(|request| request.path == "/api/v1/namespaces/shop/events");
    assert!(sent[0] < Duration::from_secs(1), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn deleted_event_is_recreated_and_unanswered_event_is_resent() {
    let stage = Fixture::new();
    stage.create(hpa("web", &[external("queue", "10")]));
    let rig = Harness::start(stage);
    rig.pass(1.0).await;
    let name = rig.cluster.list("events", Some("shop"))[0]["metadata"]["name"].as_str().unwrap().to_owned();
    rig.cluster.delete("events", "shop", &name).unwrap();
    rig.pass(15.0).await;
    assert_eq!(rig.events("web").len(), 1);
    rig.cluster.faults().add(FaultRule::new(FaultAction::Close).path_contains("/events").times(2));
    rig.pass(40.0).await;
    let stats = rig.assembly.controller.clients.events.stats();
    assert_eq!(stats.failed, 0);
    assert!(stats.sent >= 3, "{stats:?}");
}

const APPS: usize = 24;

fn app(index: usize) -> String {
    format!("leftover-{index:02}")
}

/// Creates Deployments with pods and HPAs. The HPAs use cpu, a working metric or a failing metric. Some have a twin on
/// the same pods, and some have no target. All except the twins have a `behavior` that needs a history.
fn fill(stage: &Fixture) {
    let mut all = Vec::new();
    for (index, app) in (0..APPS).map(|index| (index, app(index))) {
        if index % 6 != 5 {
            stage.create(deployment(&app, 3));
            let mut created = stage.cluster.get("apps/deployments", SHOP, &app).unwrap();
            created["status"]["replicas"] = 3.into();
            stage.cluster.update_status(created).unwrap();
        }
        for pod_index in 0..3 {
            stage.cluster.put_raw(pod(&app, pod_index));
        }
        let metric = match index % 6 {
            0 | 5 => cpu(50),
            1 | 4 => {
                stage.external(&app, "50");
                external(&app, "10")
            }
            _ => external(&format!("broken-{app}"), "10"),
        };
        let mut hpa = hpa(&app, &[metric]);
        if index % 6 == 4 {
            let twin = hpa.clone();
            all.push((twin, format!("{app}-twin")));
        }
        hpa["spec"]["behavior"] = serde_json::json!({"scaleUp": {"stabilizationWindowSeconds": 60}});
        all.push((hpa, app));
    }
    for (mut hpa, name) in all {
        hpa["metadata"]["name"] = name.into();
        stage.create(hpa);
    }
    let broken = FaultAction::Text { code: 503, body: "down".to_owned() };
    stage.cluster.faults().add(FaultRule::new(broken).path_contains("/broken-"));
}

fn empty(stage: &Fixture) {
    for kind in [HPAS, "apps/deployments", "pods"] {
        for object in stage.cluster.list(kind, Some(SHOP)) {
            let name = object["metadata"]["name"].as_str().unwrap();
            stage.cluster.delete_now(kind, SHOP, name).unwrap();
        }
    }
}

/// Number of entries in each store and cache.
fn entry_counts(rig: &Harness) -> Vec<(&'static str, usize)> {
    let controller = &rig.assembly.controller;
    let pods = controller.stores.pods.stats();
    let record = rig.assembly.decisions.as_ref().map_or(0, |decisions| decisions.record().len());
    let shown = rig.telemetry.render().lines().filter(|line| line.contains("leftover-")).count();
    vec![
        ("HPAs", controller.stores.hpas.len()),
        ("pods", pods.pods),
        ("label sets", pods.label_sets),
        ("requests of pods", pods.request_sets),
        ("strings", pods.strings),
        ("selectors", pods.selectors),
        ("namespaces", pods.namespaces),
        ("claims", controller.stores.overlap.len()),
        ("due", controller.runtime.queue.len()),
        ("histories", controller.stores.histories.len()),
        ("decisions", record),
        ("waiting", controller.runtime.queue.waiting()),
        ("series", shown),
        ("events", controller.clients.events.remembered()),
    ]
}

#[tokio::test(start_paused = true)]
async fn controller_keeps_no_state_when_its_cluster_is_emptied() {
    let stage = Fixture::new();
    fill(&stage);
    let rig = Harness::with(stage, &Config::default());
    for round in 0..2 {
        rig.pass(100.0).await;
        for (store, count) in entry_counts(&rig) {
            assert!(count > 0 || store == "due", "{store} in round {round}");
        }
        empty(&rig);
        // Wait until syncs in flight have finished.
        rig.pass(40.0).await;
        for (store, count) in entry_counts(&rig) {
            assert_eq!(count, 0, "{store} in round {round}");
        }
        if round == 0 {
            rig.cluster.faults().clear();
            fill(&rig);
        }
    }
    let before = rig.cluster.requests().entries().len();
    rig.pass(120.0).await;
    let requests = rig.cluster.requests().entries();
    let since: Vec<_> = requests[before..].iter().filter(|request| request.verb != "watch").collect();
    assert!(since.is_empty(), "{since:?}");
}
