//! The handover of single HPAs between the built-in controller and this controller. The built-in controller is a second
//! Concertina under another name. It ignores labels, and a model of the guard decides about its writes.

#[path = "handover/faults.rs"]
mod faults;
#[path = "handover/moves.rs"]
mod moves;
#[path = "handover/rig.rs"]
pub(crate) mod rig;

use std::time::Duration;

use coexist::handover::scope::ControllerName;
use fake_cluster::{FaultAction, FaultRule};
use serde_json::{Value, json};

use self::rig::{BuiltIn, Guarded, LABEL, OTHER, Replica, label, labelled, namespace_label, ours, theirs};
use crate::support::objects::{SHOP, external, hpa};
use crate::support::{Fixture, logs};

/// A cluster with an HPA of each name. Each HPA has a separate metric and a target with 4 replicas.
pub(crate) fn stage(names: &[&str]) -> Fixture {
    let stage = Fixture::new();
    for name in names {
        stage.target(name, 4);
        stage.external(name, "40");
        stage.create(hpa(name, &[external(name, "10")]));
    }
    stage
}

/// Advances the time while the metrics change every five seconds.
async fn move_for(stage: &Fixture, names: &[&str], seconds: u32) {
    for _ in 0..seconds / 5 {
        let step = stage.now().as_secs() / 5;
        for (offset, name) in (0..).zip(names) {
            stage.external(name, &(21 + (step * 17 + offset * 11) % 60).to_string());
        }
        stage.pass(5.0).await;
    }
}

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

#[tokio::test(start_paused = true)]
async fn only_labelled_hpas_are_written_and_only_until_the_label_goes() {
    let stage = stage(&NAMES);
    let replica = Replica::start(&stage);
    replica.prove();
    replica.lead(None);
    let built_in = BuiltIn::start(&stage, Some(Guarded::by(&replica)));
    move_for(&stage, &NAMES, 60).await;
    assert!(ours(&stage, "a").is_empty());
    assert_eq!(replica.counts(), "outside 3");
    // Nothing is queued for HPAs in namespaces without HPAs in scope.
    assert_eq!(replica.syncs(), 0.0);

    let on = stage.now();
    label(&stage, "a", Some("concertina"));
    move_for(&stage, &NAMES, 120).await;
    let (first, last) = (ours(&stage, "a")[0], *theirs(&stage, "a").last().unwrap());
    assert!(first.checked_sub(on).unwrap() <= Duration::from_secs(15), "{on:?} {first:?}");
    assert!(last <= on, "{on:?} {last:?}");
    assert_eq!(replica.state("a"), "in_charge");
    assert_eq!((ours(&stage, "b"), ours(&stage, "c")), (vec![], vec![]));
    assert!(theirs(&stage, "b").iter().any(|at| *at > on));
    assert!(stage.hpa("a")["metadata"]["labels"][LABEL] == "concertina");

    let off = stage.now();
    label(&stage, "a", None);
    move_for(&stage, &NAMES, 60).await;
    assert!(ours(&stage, "a").iter().all(|at| *at <= off));
    let back = theirs(&stage, "a").into_iter().find(|at| *at > off).unwrap();
    assert!(back.checked_sub(off).unwrap() <= Duration::from_secs(15));
    assert_eq!(replica.counts(), "outside 3");
    drop(built_in);
}

#[tokio::test(start_paused = true)]
async fn write_that_waits_is_not_sent_after_the_label_goes() {
    let stage = stage(&["a"]);
    label(&stage, "a", Some("concertina"));
    let replica = Replica::start(&stage);
    replica.prove();
    replica.lead(None);
    stage.until("the first status", 60.0, |stage| stage.count("update", "/status") == 1).await;
    // The client sends the next status write again after 20 s.
    let throttled = FaultAction::RetryAfter { code: 429, seconds: 20 };
    let fault = stage.fault("/a/status", throttled);
    stage.external("a", "57");
    stage.until("the second rescale", 60.0, |stage| stage.replicas("a") == 6).await;
    stage.pass(1.0).await;
    assert_eq!(stage.count("update", "/status"), 2, "the status waits");
    stage.cluster.faults().remove(fault);
    let off = stage.now();
    label(&stage, "a", None);
    stage.external("a", "77");
    stage.pass(120.0).await;
    assert!(ours(&stage, "a").iter().all(|at| *at <= off), "{:?}", ours(&stage, "a"));
    assert_eq!((stage.replicas("a"), stage.count("update", "/status")), (6, 2));
}

#[tokio::test(start_paused = true)]
async fn write_decided_before_a_gap_in_the_charge_is_not_sent_after_it() {
    let stage = stage(&["a"]);
    label(&stage, "a", Some("concertina"));
    let replica = Replica::start(&stage);
    replica.prove();
    replica.lead(None);
    stage.until("in charge", 20.0, |stage| !ours(stage, "a").is_empty()).await;
    stage.pass(5.0).await;
    // The read of the Scale before the write takes 8 s. In that time the label is removed and added again.
    let slow = FaultRule::new(FaultAction::Delay(Duration::from_secs(8))).verb("get").path_suffix("/a/scale");
    stage.cluster.faults().add(slow.times(1));
    stage.external("a", "90");
    stage.pass(12.0).await;
    let before = ours(&stage, "a").len();
    label(&stage, "a", None);
    label(&stage, "a", Some("concertina"));
    stage.pass(1.0).await;
    stage.external("a", "20");
    stage.pass(60.0).await;
    // The decision for 9 replicas dates from before the removal of the label, so it is not written.
    assert_eq!(stage.replicas("a"), 4, "{before}");
}

#[tokio::test(start_paused = true)]
async fn label_of_a_namespace_counts_for_its_hpas_except_excluded_ones() {
    let stage = stage(&NAMES);
    label(&stage, "b", Some("built-in"));
    label(&stage, "c", Some("blue"));
    let replica = Replica::start(&stage);
    replica.prove();
    replica.lead(None);
    stage.pass(20.0).await;
    assert_eq!(replica.counts(), "outside 3");
    let on = stage.now();
    namespace_label(&stage, Some("concertina"));
    stage.pass(16.0).await;
    assert!(ours(&stage, "a")[0].checked_sub(on).unwrap() <= Duration::from_secs(15));
    assert_eq!(replica.counts(), "outside 2 in_charge 1");
    assert_eq!((ours(&stage, "b"), ours(&stage, "c")), (vec![], vec![]));
    // Without its label, `b` is no longer excluded.
    label(&stage, "b", None);
    stage.pass(16.0).await;
    assert_eq!(replica.counts(), "outside 1 in_charge 2");
    let off = stage.now();
    namespace_label(&stage, None);
    move_for(&stage, &NAMES, 60).await;
    assert_eq!(replica.counts(), "outside 3");
    for name in NAMES {
        assert!(ours(&stage, name).iter().all(|at| *at <= off), "{name}");
    }
    // An HPA that has the label itself stays in scope when the label of the namespace is removed.
    label(&stage, "a", Some("concertina"));
    namespace_label(&stage, Some("concertina"));
    stage.pass(16.0).await;
    namespace_label(&stage, None);
    stage.pass(1.0).await;
    assert_eq!((replica.state("a"), replica.state("b")), ("in_charge", "outside"));
}

#[tokio::test(start_paused = true)]
async fn other_instance_is_left_alone() {
    let stage = stage(&["a", "b"]);
    label(&stage, "a", Some("concertina"));
    label(&stage, "b", Some("blue"));
    let blue = Replica::with(&stage, |config| {
        config.controller.controller_name = ControllerName::new("blue").unwrap();
    });
    blue.prove();
    blue.lead(None);
    stage.pass(30.0).await;
    assert_eq!((blue.state("a"), blue.state("b")), ("outside", "in_charge"));
    assert!(ours(&stage, "a").is_empty() && !ours(&stage, "b").is_empty());
}

#[tokio::test(start_paused = true)]
async fn hpas_out_of_scope_are_compared_with_shadow_others() {
    let stage = stage(&NAMES);
    label(&stage, "a", Some("concertina"));
    let replica = Replica::with(&stage, |config| config.controller.shadow_others = true);
    replica.prove();
    replica.lead(None);
    let built_in = BuiltIn::start(&stage, Some(Guarded::by(&replica)));
    move_for(&stage, &NAMES, 120).await;
    let report = replica.parity();
    let compared = |name: &str| {
        let counts = report["hours"].as_array().unwrap().iter().filter(|hour| hour["name"] == name);
        counts.map(|hour| hour["counts"]["same"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((compared("a"), report["hpas"].as_u64()), (0, Some(2)), "{report}");
    assert!(compared("b") > 0 && compared("c") > 0, "{report}");
    let differences =
        report["changes"].as_array().unwrap().iter().filter(|change| change["result"] == "different");
    assert_eq!(differences.count(), 0, "{report}");
    assert!(ours(&stage, "b").is_empty() && !ours(&stage, "a").is_empty());
    drop(built_in);
}

#[tokio::test(start_paused = true)]
async fn only_hpas_in_scope_have_policies_with_shadow_others() {
    let stage = stage(&["a", "b"]);
    for name in ["a", "b"] {
        let policy = json!({"concertina.dev/policy": "mode: Paused"});
        stage.edit(name, |hpa| hpa["metadata"]["annotations"] = policy);
        stage.external(name, "90");
    }
    label(&stage, "a", Some("concertina"));
    let replica = Replica::with(&stage, |config| config.controller.shadow_others = true);
    replica.prove();
    replica.lead(None);
    let built_in = BuiltIn::start(&stage, Some(Guarded::by(&replica)));
    stage.pass(60.0).await;
    assert_eq!((stage.replicas("a"), stage.replicas("b")), (4, 9));
    let active = stage.condition("a", "ScalingPolicyActive");
    assert!(active.starts_with("True Paused"), "{active}");
    let report = replica.parity();
    let changes = report["changes"].as_array().unwrap();
    assert!(changes.iter().all(|change| change["result"] == "same") && !changes.is_empty(), "{report}");
    drop(built_in);
}

#[tokio::test(start_paused = true)]
async fn hpa_out_of_scope_on_the_same_pods_makes_both_ambiguous() {
    let stage = stage(&["a"]);
    for index in 0..4 {
        stage.create(crate::support::objects::pod("a", index));
    }
    let mut twin = hpa("twin", &[external("a", "10")]);
    twin["spec"]["scaleTargetRef"]["name"] = json!("a");
    stage.create(twin);
    label(&stage, "a", Some("concertina"));
    stage.external("a", "90");
    let replica = Replica::start(&stage);
    replica.prove();
    replica.lead(None);
    stage.pass(60.0).await;
    assert_eq!(replica.counts(), "outside 1 in_charge 1");
    let condition = stage.condition("a", "ScalingActive");
    assert!(condition.contains("AmbiguousSelector") && condition.contains("shop/twin"), "{condition}");
    assert!(ours(&stage, "twin").is_empty());
    // The HPA out of scope is deleted.
    stage.cluster.delete(crate::support::HPAS, SHOP, "twin").unwrap();
    stage.pass(31.0).await;
    assert!(
        stage.condition("a", "ScalingActive").starts_with("True"),
        "{}",
        stage.condition("a", "ScalingActive")
    );
    assert_eq!(stage.replicas("a"), 9);
}

#[tokio::test(start_paused = true)]
async fn without_a_guard_the_hpa_is_contested_and_others_are_unharmed() {
    let stage = stage(&NAMES);
    label(&stage, "a", Some("concertina"));
    label(&stage, "b", Some("concertina"));
    let replica = Replica::start(&stage);
    replica.prove();
    replica.lead(None);
    move_for(&stage, &NAMES, 200).await;
    assert_eq!(replica.counts(), "outside 1 in_charge 2");
    // The guard refuses no write about `a`.
    let begin = stage.now();
    let built_in = BuiltIn::start(&stage, Some(Guarded::by(&replica).except("a")));
    move_for(&stage, &NAMES, 300).await;
    let first = theirs(&stage, "a").into_iter().find(|at| *at > begin).unwrap();
    let grace = first + Duration::from_millis(10);
    let fights: Vec<_> = ours(&stage, "a").into_iter().filter(|at| *at > grace).collect();
    assert!(fights.is_empty(), "{fights:?}");
    assert_eq!((replica.state("a"), replica.state("b")), ("contested", "in_charge"));
    assert!(theirs(&stage, "b").is_empty());
    assert!(ours(&stage, "b").last().unwrap() > &(begin + Duration::from_secs(250)));
    let row = replica.row("a");
    assert_eq!(row["lastForeignWrite"]["manager"], OTHER);
    assert_eq!(stage.events("a").iter().filter(|event| event.starts_with("AnotherController")).count(), 1);
    assert_eq!(logs::with("contested: another controller writes this HPA").len(), 1);
    // The guard works again. After the first refused write, the replica is in charge of the HPA again.
    built_in.guard.as_ref().unwrap().guard("a");
    let mended = stage.now();
    move_for(&stage, &NAMES, 60).await;
    let back = ours(&stage, "a").into_iter().find(|at| *at > mended).unwrap();
    assert!(back.checked_sub(mended).unwrap() <= Duration::from_secs(31), "{back:?} {mended:?}");
    assert_eq!(replica.state("a"), "in_charge");
}

#[tokio::test(start_paused = true)]
async fn unknown_guard_is_claimed_until_a_refusal_or_an_unanswered_change() {
    let stage = stage(&NAMES);
    let replica = Replica::start(&stage);
    replica.lead(None);
    let built_in = BuiltIn::start(&stage, None);
    move_for(&stage, &NAMES, 30).await;
    label(&stage, "a", Some("concertina"));
    move_for(&stage, &NAMES, 200).await;
    assert_eq!((ours(&stage, "a"), replica.state("a")), (vec![], "claiming"));
    // The built-in controller stops. The HPAs never had a guard.
    drop(built_in);
    let last = *theirs(&stage, "a").last().unwrap();
    move_for(&stage, &NAMES, 60).await;
    let waited = ours(&stage, "a")[0].checked_sub(last).unwrap();
    assert!(waited >= Duration::from_secs(30) && waited <= Duration::from_secs(46), "{waited:?}");
    assert_eq!(replica.state("a"), "in_charge");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_labelled_hpas_are_in_charge_after_one_period() {
    let stage = Fixture::new();
    for index in 0..10_000 {
        let name = format!("hpa-{index:05}");
        stage.create(labelled(&name, &[], "concertina"));
    }
    let replica = Replica::start(&stage);
    replica.prove();
    replica.lead(None);
    stage.pass(3.0).await;
    assert_eq!(replica.counts(), "in_charge 10000");
    let lists = stage.count("list", "/horizontalpodautoscalers");
    assert!(lists <= 1, "{lists} lists");
}

#[tokio::test(start_paused = true)]
async fn page_shows_who_is_in_charge() {
    let stage = stage(&NAMES);
    label(&stage, "a", Some("concertina"));
    let replica = Replica::start(&stage);
    replica.prove();
    replica.lead(None);
    stage.pass(20.0).await;
    let page = replica.page();
    assert_eq!(
        (&page["scope"], &page["controller"], &page["leads"]),
        (&json!("labelled"), &json!("concertina"), &json!(true))
    );
    assert_eq!(page["guard"]["state"], "proven");
    let rows = page["hpas"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["namespace"], &rows[0]["name"], &rows[0]["by"], &rows[0]["state"]),
        (&json!("shop"), &json!("a"), &json!("hpa"), &json!("in_charge"))
    );
    assert_eq!(rows[0].get("lastForeignWrite"), None::<&Value>);
    assert_eq!(replica.series("concertina_hpas{state=\"in_charge\"}"), 1.0);
    assert_eq!(replica.series("concertina_hpas{state=\"outside\"}"), 2.0);
    assert!(replica.series("concertina_handover_last_proof_timestamp_seconds") > 1e9);
}
