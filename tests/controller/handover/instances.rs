//! Several instances and several replicas: which of them acts, and what each of them shows.

use std::time::Duration;

use concertina::cli::Config;
use controller::handover::scope::Scope;
use serde_json::json;

use super::rig::{Guarded, LABEL, Replica, label, labelled, ours};
use super::{move_for, stage};
use crate::support::objects::{SHOP, external};
use crate::support::process::Process;
use crate::support::{Fixture, HPAS};

const MASTER: &str = r#"leader_election_master_status{name="concertina"} "#;

fn labelled_config() -> Config {
    let mut config = Config::default();
    config.controller.scope = Scope::Labelled;
    config
}

/// Whether a process shows that it leads.
fn leads(process: &Process) -> bool {
    let text = process.telemetry.render();
    text.lines().find_map(|line| line.strip_prefix(MASTER)).is_some_and(|value| value == "1")
}

#[tokio::test(start_paused = true)]
async fn lease_decides_between_two_instances_of_one_name() {
    let stage = stage(&["a"]);
    label(&stage, "a", Some("concertina"));
    let blue = Process::start(&stage, "blue", labelled_config());
    move_for(&stage, &["a"], 5).await;
    let green = Process::start(&stage, "green", labelled_config());
    move_for(&stage, &["a"], 120).await;
    // Both show which of them leads, and only that one writes.
    assert_eq!((leads(&blue), leads(&green)), (true, false));
    let leases = stage.cluster.list("coordination.k8s.io/leases", None);
    let holders: Vec<_> = leases.iter().map(|lease| &lease["spec"]["holderIdentity"]).collect();
    assert_eq!(holders, [&json!("blue")]);
    let (before, died) = (ours(&stage, "a").len(), stage.now());
    assert!(before > 0);
    blue.cut_off();
    move_for(&stage, &["a"], 60).await;
    assert!(leads(&green));
    let next = ours(&stage, "a").into_iter().find(|at| *at > died).unwrap();
    assert!(
        next.checked_sub(died).unwrap() <= Duration::from_secs(45),
        "{:?}",
        next.checked_sub(died).unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn hpa_moves_between_instances_with_the_value_of_its_label() {
    let stage = stage(&["a"]);
    label(&stage, "a", Some("concertina"));
    let one = Replica::start(&stage);
    let two = Replica::with(&stage, |config| {
        config.controller.controller_name = controller::handover::scope::ControllerName::new("blue").unwrap();
    });
    for replica in [&one, &two] {
        replica.prove();
        replica.lead(None);
    }
    move_for(&stage, &["a"], 30).await;
    assert_eq!((one.state("a"), two.state("a")), ("in_charge", "outside"));
    label(&stage, "a", Some("blue"));
    move_for(&stage, &["a"], 30).await;
    assert_eq!((one.state("a"), two.state("a")), ("outside", "in_charge"));
    // A value in another case, an empty one and a name with a suffix are those of other instances.
    for other in ["Blue", "", "blue-2"] {
        label(&stage, "a", Some(other));
        move_for(&stage, &["a"], 5).await;
        assert_eq!((one.state("a"), two.state("a")), ("outside", "outside"), "{other:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn hpas_in_scope_with_one_target_are_both_ambiguous() {
    let stage = stage(&["a"]);
    for index in 0..4 {
        stage.create(crate::support::objects::pod("a", index));
    }
    let mut twin = labelled("twin", &[external("a", "10")], "concertina");
    twin["spec"]["scaleTargetRef"]["name"] = json!("a");
    stage.create(twin);
    label(&stage, "a", Some("concertina"));
    stage.external("a", "90");
    let replica = Replica::start(&stage);
    replica.prove();
    replica.lead(None);
    stage.pass(60.0).await;
    assert_eq!((replica.counts().as_str(), stage.replicas("a")), ("in_charge 2", 4));
    for (name, other) in [("a", "shop/twin"), ("twin", "shop/a")] {
        let condition = stage.condition(name, "ScalingActive");
        assert!(condition.contains("AmbiguousSelector") && condition.contains(other), "{condition}");
    }
    // The guard refuses a write to the target for either of them, and goes on when one leaves the scope.
    assert_eq!(replica.charges().targets(SHOP, "a").len(), 2);
    label(&stage, "twin", None);
    stage.pass(1.0).await;
    let left = replica.charges().targets(SHOP, "a");
    assert_eq!(left.iter().map(|target| &*target.hpa).collect::<Vec<_>>(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn hpa_that_changes_its_target_is_guarded_there() {
    let stage = stage(&["a"]);
    stage.target("other", 4);
    label(&stage, "a", Some("concertina"));
    let replica = Replica::start(&stage);
    replica.prove();
    replica.lead(None);
    let guard = Guarded::by(&replica);
    stage.pass(20.0).await;
    stage.edit("a", |hpa| hpa["spec"]["scaleTargetRef"]["name"] = json!("other"));
    stage.external("a", "70");
    stage.pass(20.0).await;
    assert_eq!((stage.replicas("a"), stage.replicas("other")), (4, 7));
    assert!(replica.charges().targets(SHOP, "a").is_empty());
    assert_eq!(replica.charges().targets(SHOP, "other").len(), 1);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn replica_that_is_not_synced_refuses_nothing_and_writes_nothing() {
    let stage = Fixture::new();
    stage.target("a", 4);
    stage.external("a", "90");
    stage.create(labelled("a", &[external("a", "10")], "concertina"));
    // The first list never ends.
    let hangs = fake_cluster::FaultAction::Delay(Duration::from_hours(1));
    stage.fault("/horizontalpodautoscalers", hangs);
    let replica = Replica::start(&stage);
    replica.prove();
    replica.lead(None);
    stage.pass(120.0).await;
    assert!(!replica.charges().is_synced());
    assert_eq!((replica.counts().as_str(), stage.replicas("a")), ("", 4));
    assert!(ours(&stage, "a").is_empty());
    assert!(stage.cluster.get(HPAS, SHOP, "a").unwrap()["metadata"]["labels"][LABEL] == "concertina");
}
