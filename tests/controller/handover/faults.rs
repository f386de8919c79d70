//! Failovers, restarts, outages of the guard, and several instances or replicas. The tests check which of them writes,
//! and the state that each of them publishes.

use std::time::Duration;

use coexist::handover::scope::Scope;
use fake_cluster::{FaultAction, FaultRule, Status};
use flags::Config;
use flags::config::HandoverGuard;
use serde_json::json;

use super::rig::{BuiltIn, Guarded, LABEL, Replica, label, labelled, ours, theirs};
use super::{move_for, stage};
use crate::support::objects::{SHOP, external};
use crate::support::{Fixture, HPAS, Process};

const PERIOD: Duration = Duration::from_secs(15);
const LEASE: Duration = Duration::from_secs(15);

#[tokio::test(start_paused = true)]
async fn standby_takes_over_within_two_periods_and_writes_nothing_before() {
    let stage = stage(&["a"]);
    label(&stage, "a", Some("concertina"));
    let (first, second) = (Replica::start(&stage), Replica::start(&stage));
    first.prove();
    first.lead(None);
    let guard = Guarded::by(&first);
    let built_in = BuiltIn::start(&stage, Some(guard.clone()));
    move_for(&stage, &["a"], 100).await;
    assert!(theirs(&stage, "a").is_empty() && !ours(&stage, "a").is_empty());
    assert_eq!((first.state("a"), second.state("a")), ("in_charge", "claiming"));
    // The first replica dies. The second replica leads once the Lease has expired, without a proof of the guard.
    let died = stage.now();
    first.kill();
    guard.serve(Some(&second));
    move_for(&stage, &["a"], 15).await;
    assert!(ours(&stage, "a").iter().all(|at| *at <= died));
    second.lead(Some(LEASE));
    move_for(&stage, &["a"], 60).await;
    let next = ours(&stage, "a").into_iter().find(|at| *at > died).unwrap();
    assert!(next.checked_sub(died).unwrap() <= LEASE + 2 * PERIOD, "{:?}", next.checked_sub(died).unwrap());
    assert!(theirs(&stage, "a").is_empty());
    drop(built_in);
}

#[tokio::test(start_paused = true)]
async fn built_in_loop_acts_without_replicas_and_stops_when_one_returns() {
    let stage = stage(&["a"]);
    label(&stage, "a", Some("concertina"));
    let first = Replica::start(&stage);
    first.prove();
    first.lead(None);
    let guard = Guarded::by(&first);
    let built_in = BuiltIn::start(&stage, Some(guard.clone()));
    move_for(&stage, &["a"], 60).await;
    let died = stage.now();
    first.kill();
    guard.serve(None);
    move_for(&stage, &["a"], 100).await;
    let rescued = theirs(&stage, "a")[0];
    assert!(
        rescued.checked_sub(died).unwrap() <= PERIOD + Duration::from_secs(1),
        "{:?}",
        rescued.checked_sub(died).unwrap()
    );
    // A new replica starts: its webhook answers, and a minute later the replica leads.
    let second = Replica::start(&stage);
    second.prove();
    guard.serve(Some(&second));
    guard.lead(false);
    move_for(&stage, &["a"], 60).await;
    assert_eq!((second.state("a"), ours(&stage, "a").iter().all(|at| *at <= died)), ("claiming", true));
    let back = stage.now();
    guard.lead(true);
    second.lead(None);
    move_for(&stage, &["a"], 60).await;
    let first = ours(&stage, "a").into_iter().find(|at| *at > died).unwrap();
    assert!(first.checked_sub(back).unwrap() <= 2 * PERIOD, "{:?}", first.checked_sub(back).unwrap());
    assert!(theirs(&stage, "a").iter().all(|at| *at <= first));
    drop(built_in);
}

#[tokio::test(start_paused = true)]
async fn broken_guard_gives_the_hpa_back_until_it_is_mended() {
    let stage = stage(&["a"]);
    label(&stage, "a", Some("concertina"));
    let replica = Replica::start(&stage);
    replica.prove();
    replica.lead(None);
    let guard = Guarded::by(&replica);
    let built_in = BuiltIn::start(&stage, Some(guard.clone()));
    move_for(&stage, &["a"], 60).await;
    // The check finds the broken configuration before the built-in controller writes.
    guard.serve(None);
    replica.disprove();
    let broken = stage.now();
    move_for(&stage, &["a"], 100).await;
    assert!(ours(&stage, "a").iter().all(|at| *at <= broken));
    assert!(theirs(&stage, "a").len() > 4);
    assert_eq!(replica.state("a"), "contested");
    assert!(replica.page()["guard"]["reason"].is_string());
    guard.serve(Some(&replica));
    replica.prove();
    let mended = stage.now();
    move_for(&stage, &["a"], 60).await;
    let back = ours(&stage, "a").into_iter().find(|at| *at > mended).unwrap();
    assert!(back.checked_sub(mended).unwrap() <= 2 * PERIOD, "{:?}", back.checked_sub(mended).unwrap());
    drop(built_in);
}

fn labelled_config() -> Config {
    let mut config = Config::default();
    config.controller.scope = Scope::Labelled;
    config
}

#[tokio::test(start_paused = true)]
async fn process_hands_over_to_another_one() {
    let stage = stage(&["a", "b"]);
    label(&stage, "a", Some("concertina"));
    let first = Process::start(&stage, "first", labelled_config());
    move_for(&stage, &["a", "b"], 100).await;
    assert!(!ours(&stage, "a").is_empty(), "an unanswered change is the proof without a guard");
    let second = Process::start(&stage, "second", labelled_config());
    move_for(&stage, &["a", "b"], 30).await;
    // The first process crashes.
    let died = stage.now();
    first.cut_off();
    move_for(&stage, &["a", "b"], 60).await;
    let next = ours(&stage, "a").into_iter().find(|at| *at > died).unwrap();
    assert!(next.checked_sub(died).unwrap() <= LEASE + 2 * PERIOD, "{:?}", next.checked_sub(died).unwrap());
    // A rolling update replaces the second process.
    let third = Process::start(&stage, "third", labelled_config());
    move_for(&stage, &["a", "b"], 30).await;
    let ended = stage.now();
    second.end().await;
    move_for(&stage, &["a", "b"], 60).await;
    let next = ours(&stage, "a").into_iter().find(|at| *at > ended).unwrap();
    assert!(next.checked_sub(ended).unwrap() <= 2 * PERIOD, "{:?}", next.checked_sub(ended).unwrap());
    assert!(ours(&stage, "b").is_empty());
    third.end().await;
}

#[tokio::test(start_paused = true)]
async fn process_with_the_user_of_the_built_in_loop_does_not_start() {
    let stage = stage(&["a"]);
    label(&stage, "a", Some("concertina"));
    let review = |user: &str| {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {},
            "status": {"userInfo": {"username": user}},
        });
        FaultRule::new(FaultAction::Body(review.to_string())).path_suffix("/selfsubjectreviews")
    };
    let user = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";
    let rule = stage.cluster.faults().add(review(user));
    let mut config = labelled_config();
    config.handover.guard = HandoverGuard::Policy;
    let process = Process::start(&stage, "first", config.clone());
    let (error, took) = process.wait_for_failure().await;
    let expected =
        format!("cannot use --handover-guard=policy: this process runs as {user}, one of --built-in-users");
    assert!(error.starts_with(&expected), "{error}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    stage.cluster.faults().remove(rule);

    // The process starts if the API server lacks this review, as Kubernetes before 1.28 does, and if it has another
    // user.
    let missing = FaultAction::Status(Status::new(404, "NotFound", "the server could not find the resource"));
    for rule in [FaultRule::new(missing).path_suffix("/selfsubjectreviews"), review("concertina")] {
        let rule = stage.cluster.faults().add(rule);
        let process = Process::start(&stage, "second", config.clone());
        stage.pass(30.0).await;
        assert!(!process.has_ended());
        process.end().await;
        stage.cluster.faults().remove(rule);
    }
    assert!(ours(&stage, "a").is_empty());
}

const MASTER: &str = r#"leader_election_master_status{name="concertina"} "#;

/// Whether the metrics of a process show that it leads.
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
    // Only `blue` shows that it leads, and the only Lease names `blue`.
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
        config.controller.controller_name = coexist::handover::scope::ControllerName::new("blue").unwrap();
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
    // A value in another case, an empty value and a name with a suffix belong to other instances.
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
    // The guard protects the target while at least one of the two HPAs is in scope.
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
    // The first list takes longer than the test.
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
