#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::super::TimingError;
use super::*;
use clock::{ShiftedClock, VirtualClock};
use cluster::client::{ClientOptions, Clients};
use fake_cluster::{Cluster, FaultAction, FaultRule};

/// A running candidate with a separate clock and gate.
struct Running {
    leader_state: watch::Receiver<LeaderState>,
    gate: Arc<Gate>,
    release: CancellationToken,
    task: JoinHandle<CandidateExit>,
}

struct Harness {
    cluster: Cluster,
    clock: SharedClock,
}

impl Harness {
    fn new() -> Self {
        let clock: SharedClock = Arc::new(VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()));
        Self { cluster: Cluster::new(Arc::clone(&clock)), clock }
    }

    fn start(&self, identity: &str) -> Running {
        self.start_off(identity, 0)
    }

    fn start_off(&self, identity: &str, hours: i64) -> Running {
        self.start_with(identity, hours, None)
    }

    fn start_with(&self, identity: &str, hours: i64, heartbeat: Option<Heartbeat>) -> Running {
        let options = ClientOptions { user_agent: identity.to_owned(), ..ClientOptions::default() };
        let clients = Clients::over(self.cluster.connector(), &options).unwrap();
        let timing = Timing::default();
        let gate = Gate::open();
        let seed = identity.bytes().map(u64::from).sum();
        let (candidate, leader_state) = Candidate::new(Parts {
            leases: Leases::new(&clients.core, "kube-system", "concertina", timing.request()),
            identity: identity.to_owned(),
            timing,
            clock: Arc::new(ShiftedClock {
                clock: Arc::clone(&self.clock),
                ahead: SignedDuration::from_hours(hours),
            }),
            jitter: Jitter::seeded(seed),
            gate: Arc::clone(&gate),
            heartbeat,
        });
        let release = CancellationToken::new();
        let task = tokio::spawn(candidate.run(release.clone()));
        Running { leader_state, gate, release, task }
    }

    fn lease(&self) -> Value {
        self.cluster.get("coordination.k8s.io/leases", "kube-system", "concertina").unwrap_or_default()
    }

    fn holder(&self) -> String {
        self.lease()["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }
}

impl Running {
    async fn leads(&mut self) -> Duration {
        let started = Instant::now();
        self.leader_state
            .wait_for(|leader_state| matches!(leader_state, LeaderState::Leader { .. }))
            .await
            .unwrap();
        assert_eq!(self.gate.refusal(), None);
        started.elapsed()
    }
}

async fn pass(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn first_candidate_leads_at_once_and_the_second_stands_by() {
    let rig = Harness::new();
    let mut a = rig.start("a");
    assert_eq!(a.leads().await, Duration::ZERO);
    let b = rig.start("b");
    pass(120).await;
    assert_eq!(*b.leader_state.borrow(), LeaderState::Standby(Some("a".to_owned())));
    assert!(b.gate.refusal().is_some());
    assert_eq!(rig.holder(), "a");
    assert_eq!(rig.lease()["spec"]["leaseTransitions"], json!(0));
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_acquired_at_once() {
    let rig = Harness::new();
    let mut a = rig.start("a");
    a.leads().await;
    let mut b = rig.start("b");
    pass(33).await;
    a.release.cancel();
    assert_eq!(a.task.await.unwrap(), CandidateExit::Released);
    assert!(b.leads().await < Duration::from_millis(100));
    assert_eq!(
        *b.leader_state.borrow(),
        LeaderState::Leader { after: None, since_others: Some(Duration::ZERO) }
    );
    assert_eq!(rig.lease()["spec"]["leaseTransitions"], json!(1));
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_acquired_at_once_after_a_watch_that_hung() {
    let rig = Harness::new();
    let mut a = rig.start("a");
    a.leads().await;
    rig.cluster.faults().add(FaultRule::new(FaultAction::WatchHang).path_suffix("/leases"));
    let mut b = rig.start("b");
    pass(5).await;
    rig.cluster.faults().clear();
    // The standby replaces the watch after an attempt that finds changes.
    pass(30).await;
    a.release.cancel();
    a.task.await.unwrap();
    assert!(b.leads().await < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn leader_that_hangs_is_replaced_and_a_standby_that_hangs_does_not_lead() {
    let rig = Harness::new();
    let (hung, beats) = (Heartbeat::new(), Heartbeat::new());
    let mut a = rig.start_with("a", 0, Some(beats.clone()));
    a.leads().await;
    let b = rig.start_with("b", 0, Some(hung));
    let mut c = rig.start_with("c", 0, None);
    for _ in 0..30 {
        pass(2).await;
        beats.beat();
    }
    assert_eq!(rig.holder(), "a");
    pass(18).await;
    assert!(a.task.is_finished(), "the leader still renews");
    let CandidateExit::Lost(LostReason::Unresponsive { silence, .. }) = a.task.await.unwrap() else {
        panic!()
    };
    assert!((15..=17).contains(&silence.as_secs()), "{silence:?}");
    assert!(a.gate.refusal().is_some());
    // The Lease is not released, because the work has not stopped.
    assert_eq!(rig.holder(), "a");
    c.leads().await;
    assert!(matches!(*b.leader_state.borrow(), LeaderState::Standby(_)));
}

#[tokio::test(start_paused = true)]
async fn lease_acquired_during_shutdown_is_released() {
    let rig = Harness::new();
    let slow = FaultRule::new(FaultAction::DelayAnswer(Duration::from_secs(3)));
    rig.cluster.faults().add(slow.verb("create").times(1));
    let a = rig.start("a");
    pass(1).await;
    assert_eq!((rig.holder().as_str(), a.gate.refusal().is_some()), ("a", true));
    a.release.cancel();
    assert_eq!(a.task.await.unwrap(), CandidateExit::Released);
    assert_eq!(rig.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn crashed_leader_is_replaced_after_its_lease_length_by_any_clock() {
    for hours in [-1, 0, 1] {
        let rig = Harness::new();
        let mut a = rig.start("a");
        a.leads().await;
        let mut b = rig.start_off("b", hours);
        pass(31).await;
        a.task.abort();
        let waited = b.leads().await;
        assert!(waited > Duration::from_secs(12) && waited <= Duration::from_secs(15), "{waited:?}");
        let leader_state = b.leader_state.borrow().clone();
        let LeaderState::Leader { after: Some(after), since_others: Some(since) } = leader_state else {
            panic!("{leader_state:?}")
        };
        assert_eq!(after, "a");
        assert!(since >= Duration::from_secs(15) && since < Duration::from_secs(18), "{since:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn leader_without_a_server_stops_before_another_may_start() {
    let rig = Harness::new();
    let mut a = rig.start("a");
    a.leads().await;
    pass(20).await;
    let down =
        rig.cluster.faults().add(FaultRule::new(FaultAction::Text { code: 503, body: "away".to_owned() }));
    let started = Instant::now();
    let ended = a.task.await.unwrap();
    assert!(
        matches!(&ended, CandidateExit::Lost(LostReason::NotRenewed { deadline, .. }) if *deadline == Duration::from_secs(10)),
        "{ended:?}"
    );
    assert!(started.elapsed() <= Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(a.gate.refusal().is_some());
    rig.cluster.faults().remove(down);
    let mut b = rig.start("b");
    b.leads().await;
}

#[tokio::test(start_paused = true)]
async fn leader_that_was_suspended_finds_the_gate_closed() {
    let rig = Harness::new();
    let mut a = rig.start("a");
    a.leads().await;
    // None of the tasks of `a` runs any more, as after SIGSTOP, while its clock advances.
    a.task.abort();
    pass(9).await;
    assert_eq!(a.gate.refusal(), None);
    pass(2).await;
    assert!(a.gate.refusal().is_some());
}

#[tokio::test(start_paused = true)]
async fn leader_stops_after_a_stolen_lease_and_recreates_a_deleted_one() {
    let rig = Harness::new();
    let mut a = rig.start("a");
    a.leads().await;
    // A candidate that has observed the holder does not acquire a deleted Lease at once.
    let b = rig.start("b");
    pass(1).await;
    rig.cluster.delete_now("coordination.k8s.io/leases", "kube-system", "concertina").unwrap();
    sleep_until(Instant::now() + Duration::from_millis(100)).await;
    assert_eq!(rig.holder(), "a");
    pass(5).await;
    assert_eq!(rig.holder(), "a");
    b.release.cancel();
    let mut stolen = rig.lease();
    stolen["spec"]["holderIdentity"] = json!("thief");
    rig.cluster.update(stolen).unwrap();
    let started = Instant::now();
    let ended = a.task.await.unwrap();
    assert!(
        matches!(&ended, CandidateExit::Lost(LostReason::Held { holder, .. }) if holder == "thief"),
        "{ended:?}"
    );
    assert!(started.elapsed() < Duration::from_millis(100), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn lease_write_with_a_lost_response_keeps_the_leader() {
    // Two consecutive hanging requests take as long as the renew deadline.
    for (lost, most) in [
        (FaultAction::CloseAfterApplying, 3),
        (FaultAction::SilenceAfterApplying, 1),
        (FaultAction::Truncate(20), 3),
    ] {
        for (verb, times) in [("create", 1), ("update", 1), ("update", most)] {
            let rig = Harness::new();
            if verb == "create" {
                rig.cluster.faults().add(FaultRule::new(lost.clone()).verb(verb).times(times));
            }
            let mut a = rig.start("a");
            assert!(a.leads().await <= Duration::from_secs(10), "{lost:?} {verb}");
            let b = rig.start("b");
            pass(7).await;
            if verb == "update" {
                rig.cluster.faults().add(FaultRule::new(lost.clone()).verb(verb).times(times));
            }
            for _ in 0..600 {
                sleep(Duration::from_millis(100)).await;
                assert!(!a.task.is_finished() && a.gate.refusal().is_none(), "{lost:?} {verb} {times}");
                assert!(b.gate.refusal().is_some(), "{lost:?} {verb} {times}");
            }
            assert_eq!((rig.holder().as_str(), &rig.lease()["spec"]["leaseTransitions"]), ("a", &json!(0)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn leader_without_any_response_stops_before_another_leads() {
    let rig = Harness::new();
    let mut a = rig.start("a");
    a.leads().await;
    let mut b = rig.start("b");
    pass(7).await;
    for verb in ["update", "get", "watch"] {
        let lost = FaultRule::new(FaultAction::CloseAfterApplying).verb(verb);
        rig.cluster.faults().add(lost.user_agent("a"));
    }
    let ended = a.task.await.unwrap();
    assert!(matches!(&ended, CandidateExit::Lost(LostReason::NotRenewed { .. })), "{ended:?}");
    assert!(a.gate.refusal().is_some());
    // The last write of `a` has an unknown outcome and keeps the other candidate waiting.
    assert!(b.leads().await > Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn leadership_counts_from_the_start_of_a_slow_renewal() {
    let rig = Harness::new();
    let mut a = rig.start("a");
    a.leads().await;
    let slow = FaultAction::Delay(Duration::from_secs(3));
    rig.cluster.faults().add(FaultRule::new(slow).verb("update"));
    sleep(Duration::from_millis(5_500)).await;
    for _ in 0..200 {
        let left = a.gate.leading_until().unwrap().saturating_duration_since(Instant::now());
        assert!(left > Duration::ZERO && left <= Duration::from_millis(7_050), "{left:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn standby_retries_an_expired_lease_at_its_interval() {
    let rig = Harness::new();
    let mut a = rig.start("a");
    a.leads().await;
    let b = rig.start("b");
    pass(5).await;
    a.task.abort();
    rig.cluster.faults().add(FaultRule::new(FaultAction::Close).verb("update").user_agent("b"));
    pass(30).await;
    let before = rig.cluster.requests().len();
    pass(60).await;
    // An attempt every 2 to 4.4 s reads, writes, and opens a watch.
    let sent = rig.cluster.requests().len() - before;
    assert!((20..200).contains(&sent) && b.gate.refusal().is_some(), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn foreign_annotations_of_the_lease_stay() {
    let rig = Harness::new();
    let mut a = rig.start("a");
    a.leads().await;
    let mut noted = rig.lease();
    noted["metadata"]["annotations"] = json!({"note": "keep me"});
    rig.cluster.update(noted).unwrap();
    pass(10).await;
    assert_eq!(rig.lease()["metadata"]["annotations"]["note"], json!("keep me"));
    assert!(!a.task.is_finished());
}

#[test]
fn durations_that_allow_two_leaders_are_refused() {
    let seconds = Duration::from_secs;
    let of = |lease, renew_deadline, retry| Timing { lease, renew_deadline, retry }.validate();
    assert_eq!(Timing::default().validate(), Ok(()));
    assert_eq!(of(seconds(10), seconds(10), seconds(2)), Err(TimingError::Lease));
    assert_eq!(of(seconds(15), seconds(2), seconds(2)), Err(TimingError::RenewDeadline));
    assert_eq!(of(seconds(15), seconds(10), seconds(0)), Err(TimingError::Retry));
    let milliseconds = Duration::from_millis;
    assert_eq!(of(milliseconds(999), milliseconds(500), milliseconds(100)), Err(TimingError::TooShort));
    assert_eq!(of(seconds(1), milliseconds(500), milliseconds(100)), Ok(()));
}
