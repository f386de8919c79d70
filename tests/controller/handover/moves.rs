//! HPAs that enter and leave the scope next to HPAs with the same pods.

use fake_cluster::{FaultAction, FaultRule, Status};
use serde_json::json;

use super::rig::{Replica, label, labelled, namespace_label, ours};
use super::stage;
use crate::support::objects::{SHOP, external, hpa, pod};
use crate::support::{Fixture, HPAS};

/// These HPAs and their twins sync at different offsets within the period.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn twin(name: &str) -> String {
    format!("{name}-twin")
}

/// HPAs with four pods each, and a twin of each with the same target, all without a label. The metrics request nine
/// pods.
fn twins() -> Fixture {
    let stage = stage(&NAMES);
    for name in NAMES {
        for index in 0..4 {
            stage.create(pod(name, index));
        }
        let mut object = hpa(&twin(name), &[external(name, "10")]);
        object["spec"]["scaleTargetRef"]["name"] = json!(name);
        stage.create(object);
        stage.external(name, "90");
    }
    stage
}

fn label_all(stage: &Fixture, value: Option<&str>) {
    for name in NAMES {
        label(stage, name, value);
    }
}

fn label_twins(stage: &Fixture, value: Option<&str>) {
    for name in NAMES {
        label(stage, &twin(name), value);
    }
}

fn leader(stage: &Fixture) -> Replica {
    let replica = Replica::start(stage);
    replica.prove();
    replica.lead(None);
    replica
}

/// Asserts that the replica is in charge of the HPAs, and that they are ambiguous because of their twins, which the
/// replica does not store.
fn assert_ambiguous(stage: &Fixture, replica: &Replica) {
    for name in NAMES {
        assert_eq!(replica.state(name), "in_charge");
        let (condition, twin) = (stage.condition(name, "ScalingActive"), twin(name));
        assert!(condition.contains("AmbiguousSelector") && condition.contains(&twin), "{condition}");
        assert_eq!(stage.replicas(name), 4, "{name}");
        assert_eq!((replica.has_stored(name), replica.has_stored(&twin)), (true, false));
    }
}

#[tokio::test(start_paused = true)]
async fn hpas_that_leave_the_scope_are_dropped_and_their_selectors_count() {
    let stage = twins();
    label_all(&stage, Some("concertina"));
    label_twins(&stage, Some("concertina"));
    let replica = leader(&stage);
    stage.pass(60.0).await;
    assert!(replica.has_stored("a-twin"));
    label_twins(&stage, None);
    stage.pass(60.0).await;
    assert_ambiguous(&stage, &replica);
    for name in NAMES {
        stage.cluster.delete(HPAS, SHOP, &twin(name)).unwrap();
    }
    stage.pass(31.0).await;
    assert!(NAMES.iter().all(|name| stage.replicas(name) > 4), "deleted HPAs still count");
}

#[tokio::test(start_paused = true)]
async fn selectors_beside_the_first_hpas_in_scope_count() {
    let stage = twins();
    let replica = leader(&stage);
    stage.pass(30.0).await;
    label_all(&stage, Some("concertina"));
    stage.pass(60.0).await;
    assert_ambiguous(&stage, &replica);
}

#[tokio::test(start_paused = true)]
async fn selectors_of_excluded_hpas_count_in_a_labelled_namespace() {
    let stage = twins();
    label_twins(&stage, Some("built-in"));
    let replica = leader(&stage);
    stage.pass(30.0).await;
    namespace_label(&stage, Some("concertina"));
    stage.pass(60.0).await;
    assert_ambiguous(&stage, &replica);
}

#[tokio::test(start_paused = true)]
async fn selectors_count_after_the_label_of_the_namespace_goes() {
    let stage = twins();
    label_all(&stage, Some("concertina"));
    namespace_label(&stage, Some("concertina"));
    let replica = leader(&stage);
    stage.pass(60.0).await;
    namespace_label(&stage, None);
    stage.pass(60.0).await;
    assert_ambiguous(&stage, &replica);
}

#[tokio::test(start_paused = true)]
async fn selectors_count_after_a_list_shows_that_hpas_left_the_scope() {
    let stage = twins();
    label_all(&stage, Some("concertina"));
    label_twins(&stage, Some("concertina"));
    let replica = leader(&stage);
    stage.pass(60.0).await;
    let of_hpas = |action| FaultRule::new(action).path_suffix("/horizontalpodautoscalers");
    let silence = stage.cluster.faults().add(of_hpas(FaultAction::WatchSilence));
    label_twins(&stage, None);
    stage.cluster.compact();
    let expired = Status::expired("too old resource version: 1 (2)");
    stage.cluster.faults().add(of_hpas(FaultAction::WatchError(expired)).times(1));
    stage.cluster.faults().remove(silence);
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
    // The other HPAs already have a due time.
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
    let outdated = FaultRule::new(FaultAction::Body(list.to_string()));
    stage.cluster.faults().add(outdated.path_suffix("/namespaces/shop/horizontalpodautoscalers"));
    namespace_label(&stage, Some("concertina"));
    stage.pass(10.0).await;
    assert_eq!((replica.state("a"), replica.state("ghost")), ("in_charge", "outside"));
    assert!(!replica.has_stored("ghost"));
}
