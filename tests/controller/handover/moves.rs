//! HPAs that enter and leave the scope next to HPAs with the same pods.

use fake_cluster::{FaultAction, FaultRule};
use serde_json::json;

use super::rig::{Replica, label, labelled, namespace_label, ours};
use super::stage;
use crate::support::Fixture;
use crate::support::objects::{external, hpa, pod};

/// HPA `a` with four pods, and HPA `twin` of the same target, both without a label. The metric asks for nine pods.
fn twins() -> Fixture {
    let stage = stage(&["a"]);
    for index in 0..4 {
        stage.create(pod("a", index));
    }
    let mut twin = hpa("twin", &[external("a", "10")]);
    twin["spec"]["scaleTargetRef"]["name"] = json!("a");
    stage.create(twin);
    stage.external("a", "90");
    stage
}

fn leader(stage: &Fixture) -> Replica {
    let replica = Replica::start(stage);
    replica.prove();
    replica.lead(None);
    replica
}

/// HPA `a` is in charge, and ambiguous because of `twin`.
fn assert_ambiguous(stage: &Fixture, replica: &Replica) {
    assert_eq!(replica.state("a"), "in_charge");
    let condition = stage.condition("a", "ScalingActive");
    assert!(condition.contains("AmbiguousSelector") && condition.contains("shop/twin"), "{condition}");
    assert_eq!(stage.replicas("a"), 4);
}

#[tokio::test(start_paused = true)]
async fn hpa_that_leaves_the_scope_is_dropped_and_its_selector_counts() {
    let stage = twins();
    label(&stage, "a", Some("concertina"));
    label(&stage, "twin", Some("concertina"));
    let replica = leader(&stage);
    stage.pass(60.0).await;
    assert!(replica.has_stored("twin"));
    label(&stage, "twin", None);
    stage.pass(0.5).await;
    assert_eq!((replica.has_stored("a"), replica.has_stored("twin")), (true, false));
    stage.pass(60.0).await;
    assert_ambiguous(&stage, &replica);
}

#[tokio::test(start_paused = true)]
async fn selectors_beside_the_first_hpa_in_scope_count() {
    let stage = twins();
    let replica = leader(&stage);
    stage.pass(30.0).await;
    label(&stage, "a", Some("concertina"));
    stage.pass(60.0).await;
    assert_ambiguous(&stage, &replica);
}

#[tokio::test(start_paused = true)]
async fn selector_of_an_excluded_hpa_counts_in_a_labelled_namespace() {
    let stage = twins();
    label(&stage, "twin", Some("built-in"));
    let replica = leader(&stage);
    stage.pass(30.0).await;
    namespace_label(&stage, Some("concertina"));
    stage.pass(60.0).await;
    assert_ambiguous(&stage, &replica);
}

#[tokio::test(start_paused = true)]
async fn selectors_count_after_the_label_of_the_namespace_goes() {
    let stage = twins();
    label(&stage, "a", Some("concertina"));
    namespace_label(&stage, Some("concertina"));
    let replica = leader(&stage);
    stage.pass(60.0).await;
    namespace_label(&stage, None);
    stage.pass(0.5).await;
    assert!(!replica.has_stored("twin"));
    stage.pass(60.0).await;
    assert_ambiguous(&stage, &replica);
}

#[tokio::test(start_paused = true)]
async fn series_of_an_hpa_end_when_it_leaves_the_scope() {
    let stage = stage(&["a"]);
    label(&stage, "a", Some("concertina"));
    let replica = leader(&stage);
    stage.pass(20.0).await;
    let desired = r#"horizontal_pod_autoscaler_controller_desired_replicas{hpa_name="a",namespace="shop"}"#;
    assert!(replica.telemetry.render().contains(desired), "{}", replica.telemetry.render());
    label(&stage, "a", None);
    stage.pass(1.0).await;
    assert!(!replica.telemetry.render().contains(desired));
}

#[tokio::test(start_paused = true)]
async fn selectors_out_of_scope_are_read_once_a_period() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let stage = stage(&names);
    label(&stage, "a", Some("concertina"));
    let replica = leader(&stage);
    stage.pass(40.0).await;
    let before = replica.syncs();
    // The others already have a due time.
    label(&stage, "b", Some("concertina"));
    stage.pass(0.5).await;
    let added = replica.syncs() - before;
    assert!(added < 4.0, "{added} keys were due");
}

#[tokio::test(start_paused = true)]
async fn compared_hpas_are_written_at_once_when_their_namespace_is_labelled() {
    let names = ["a", "b", "c"];
    let stage = stage(&names);
    for name in names {
        stage.external(name, "70");
    }
    let replica = Replica::with(&stage, |config| config.controller.shadow_others = true);
    replica.prove();
    replica.lead(None);
    stage.pass(40.0).await;
    let on = stage.now();
    namespace_label(&stage, Some("concertina"));
    stage.pass(20.0).await;
    for name in names {
        let first = ours(&stage, name)[0].checked_sub(on).unwrap();
        assert!(first.as_secs() <= 2, "{name}: {first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn hpa_that_only_a_list_still_has_is_not_adopted() {
    let stage = stage(&["a"]);
    let replica = leader(&stage);
    stage.pass(30.0).await;
    let mut ghost = labelled("ghost", &[external("a", "10")], "concertina");
    ghost["metadata"]["uid"] = json!("7-ghost");
    ghost["metadata"]["resourceVersion"] = json!("1");
    let list = json!({
        "kind": "HorizontalPodAutoscalerList", "apiVersion": "autoscaling/v2",
        "metadata": {"resourceVersion": "1"}, "items": [stage.hpa("a"), ghost],
    });
    let stale = FaultRule::new(FaultAction::Body(list.to_string()));
    stage.cluster.faults().add(stale.path_suffix("/namespaces/shop/horizontalpodautoscalers"));
    namespace_label(&stage, Some("concertina"));
    stage.pass(10.0).await;
    assert_eq!((replica.state("a"), replica.state("ghost")), ("in_charge", "outside"));
    assert!(!replica.has_stored("ghost"));
}
