//! Tests a standby against various leaders, in virtual time.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod leader;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use autoscaling::history::{History, ScaleEvent};
use autoscaling::spec::Behavior;
use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::follow::{Follower, Parts};
use super::peers::{PeerTransport, ServedPages, TransportError};
use super::{Handover, Part, Source, Writer};
use crate::assembly;
use crate::election::{Holder, LeaderState, Peer};
use crate::history::codec;
use crate::options::Options;
use crate::reconcile::{Changed, Controller, KeptHistory, Revision, WatchedRescale};
use crate::store::HpaRecord;
use crate::telemetry::metrics::Metrics;
use clock::{Clock, SharedClock, VirtualClock};
use cluster::client::{ClientOptions, Clients};
use cluster::user::Fingerprint;
use fake_cluster::Cluster;

/// The response of a scripted leader.
enum LeaderReply {
    /// A response with the leader's time of day.
    Answers(Box<dyn Fn(Timestamp) -> Vec<u8> + Send>),
    Fails,
    /// No response.
    Hangs,
}

/// A transport to leaders with scripted responses. The last response repeats.
#[derive(Default)]
struct Leaders {
    does: Mutex<VecDeque<LeaderReply>>,
    asked: Mutex<Vec<(Duration, String)>>,
    started: Option<Instant>,
    /// Lag of the leader's clock behind the clock of the standby.
    behind: Mutex<SignedDuration>,
}

impl std::fmt::Debug for Leaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Leaders")
    }
}

impl PeerTransport for Leaders {
    fn register(&self, _: ServedPages) {}

    fn advertised(&self) -> Option<Peer> {
        None
    }

    fn get<'a>(&'a self, peer: &'a Peer, path: &'a str) -> BoxFuture<'a, Result<Bytes, TransportError>> {
        let at = self.started.unwrap().elapsed();
        self.asked.lock().push((at, path.to_owned()));
        let mut does = self.does.lock();
        let next = if does.len() > 1 { does.pop_front() } else { None };
        let result = match next.as_ref().unwrap_or(&does[0]) {
            LeaderReply::Answers(answer) => {
                let now = Timestamp::UNIX_EPOCH + at - *self.behind.lock();
                Some(Ok(answer(now).into()))
            }
            LeaderReply::Fails => {
                Some(Err(TransportError::Unreachable { peer: peer.address, reason: "gone".to_owned() }))
            }
            LeaderReply::Hangs => None,
        };
        Box::pin(async move {
            match result {
                Some(result) => result,
                None => std::future::pending().await,
            }
        })
    }
}

/// A clock that can jump.
#[derive(Debug)]
struct OwnClock(VirtualClock, Mutex<SignedDuration>);

impl Clock for OwnClock {
    fn now(&self) -> Timestamp {
        self.0.now() + *self.1.lock()
    }
}

/// A standby with the HPA `known` in its store.
struct Harness {
    leaders: Arc<Leaders>,
    clock: Arc<OwnClock>,
    leader_state: watch::Sender<LeaderState>,
    controller: Arc<Controller>,
    telemetry: Metrics,
    follower: Follower,
}

fn leads(identity: &str, term: i32) -> LeaderState {
    let peer = Peer { address: "10.0.0.1:1".parse().unwrap(), certificate: Fingerprint::from_der(b"") };
    LeaderState::Standby(Some(Holder { identity: identity.to_owned(), term, peer: Some(peer) }))
}

fn rig(does: impl IntoIterator<Item = LeaderReply>) -> Harness {
    rig_with(does, &Options::default())
}

fn rig_with(does: impl IntoIterator<Item = LeaderReply>, options: &Options) -> Harness {
    let own = Arc::new(OwnClock(VirtualClock::starting_at(Timestamp::UNIX_EPOCH), Mutex::default()));
    let clock: SharedClock = Arc::clone(&own) as _;
    let cluster = Cluster::new(Arc::clone(&clock));
    let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
    let telemetry = Metrics::new();
    let parts = assembly::Parts {
        clients: &clients,
        options,
        clock,
        telemetry: telemetry.clone(),
        observers: Vec::new(),
        seed: 1,
        phase: crate::assembly::Phase::FirstSync,
    };
    let controller = parts.controller();
    controller.hpas.begin(None);
    controller.hpas.apply(known());
    controller.hpas.finish(None);
    let leaders = Arc::new(Leaders {
        does: Mutex::new(does.into_iter().collect()),
        asked: Mutex::default(),
        started: Some(Instant::now()),
        behind: Mutex::default(),
    });
    let (leader_state, receiver) = watch::channel(leads("a", 3));
    let follower = Follower::new(Parts {
        link: Arc::clone(&leaders) as _,
        identity: "b_1".to_owned(),
        leader_state: receiver,
        controller: Arc::clone(&controller),
        telemetry: telemetry.clone(),
        lease: "concertina".into(),
    });
    Harness { leaders, clock: own, leader_state, controller, telemetry, follower }
}

fn known() -> HpaRecord {
    let object = cluster::decode::hpa(
        json!({
            "metadata": {"namespace": "shop", "name": "web", "uid": "known", "resourceVersion": "1"},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3},
        })
        .to_string()
        .as_bytes(),
    )
    .unwrap();
    HpaRecord::from(object)
}

fn history(change: i32) -> History {
    History { scale_ups: vec![ScaleEvent::new(Timestamp::UNIX_EPOCH, change)], ..History::default() }
}

/// Creates a response with the given histories.
fn answer(histories: &[(&str, i32)], change: u64, full: bool, more: bool, last: bool) -> LeaderReply {
    let upto = Revision { epoch: 5, change };
    let histories = histories.iter().map(|(uid, change)| (Arc::from(*uid), Arc::new(history(*change))));
    let histories = histories.map(|(uid, history)| (uid, KeptHistory { history, policy: None }));
    let changed = Changed { full, upto, more, histories: histories.collect() };
    LeaderReply::Answers(Box::new(move |now| {
        let mut writer = Writer::default();
        writer.add(&changed);
        writer.finish(now, upto, more, last)
    }))
}

impl Harness {
    async fn follow(&mut self, seconds: f64) {
        let following = timeout(Duration::from_secs_f64(seconds), self.follower.run()).await;
        assert!(following.is_err());
    }

    fn pulls(&self, result: &str) -> u64 {
        let series = format!("concertina_history_pulls_total{{result=\"{result}\"}} ");
        let text = self.telemetry.render();
        text.lines().find_map(|line| line.strip_prefix(&series)).map_or(0, |count| count.parse().unwrap())
    }

    fn asked(&self) -> Vec<(f64, String)> {
        let asked = self.leaders.asked.lock();
        asked.iter().map(|(at, path)| (at.as_secs_f64(), path.clone())).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn standby_requests_everything_first_and_then_changes() {
    let mut rig = rig([
        answer(&[("known", 1)], 1, true, true, false),
        answer(&[("gone", 2)], 2, false, false, false),
        answer(&[("known", 3)], 3, false, false, false),
    ]);
    rig.follow(1.0).await;
    let first = "/history?wait=900ms&standby=b%5F1";
    let expected =
        [(0.0, first.to_owned()), (0.0, format!("{first}&since=5.1")), (0.9, format!("{first}&since=5.2"))];
    assert_eq!(rig.asked(), expected);
    assert_eq!(rig.pulls("ok"), 3);
    let Harness { follower, controller, .. } = rig;
    assert_eq!(follower.take_over(4), Handover::CutOff);
    assert_eq!(controller.histories.get("known"), history(3).inherit(controller.clock.now()));
    assert_eq!(controller.histories.len(), 1, "no HPA has the other UID");
}

#[tokio::test(start_paused = true)]
async fn copied_histories_keep_their_age_across_clock_skew() {
    for (hours, moved) in [(0, 0), (1, 3600), (-1, -3600)] {
        let mut rig =
            rig([answer(&[("known", 1)], 1, true, false, false), answer(&[], 1, false, false, false)]);
        *rig.leaders.behind.lock() = SignedDuration::from_hours(hours);
        rig.follow(3.0).await;
        let Harness { follower, controller, .. } = rig;
        assert_eq!(follower.take_over(4), Handover::CutOff);
        let at = controller.histories.get("known").scale_ups[0].at;
        assert_eq!(at, Timestamp::from_second(moved).unwrap(), "{hours} hours behind");
    }
}

#[tokio::test(start_paused = true)]
async fn clock_jump_after_the_last_copy_keeps_the_ages() {
    let mut rig = rig([answer(&[("known", 1)], 1, true, false, false), answer(&[], 1, false, false, false)]);
    rig.follow(3.0).await;
    let Harness { follower, controller, clock, .. } = rig;
    *clock.1.lock() = SignedDuration::from_mins(5);
    assert_eq!(follower.take_over(4), Handover::CutOff);
    assert_eq!(controller.histories.get("known").scale_ups[0].at, Timestamp::from_second(300).unwrap());
}

#[tokio::test(start_paused = true)]
async fn clock_jump_of_a_standby_keeps_the_age_of_a_rescale_that_the_watch_showed() {
    let Harness { follower, controller, clock, .. } = rig([LeaderReply::Fails]);
    let rescale = WatchedRescale { at: clock.now(), from: 4, to: 6 };
    controller.histories.remember(&"known".into(), &Behavior::default(), rescale, clock.now());
    let age = || controller.histories.get("known").scale_ups[0].at.duration_since(clock.now());
    let before = age();
    *clock.1.lock() = SignedDuration::from_hours(-1);
    follower.take_over(1);
    assert_eq!(age(), before);
}

#[tokio::test(start_paused = true)]
async fn handover_is_exact_for_the_next_leader_only() {
    for (term, inheritance, expected) in
        [(4, Handover::HandedOver, history(1)), (5, Handover::CutOff, history(1))]
    {
        let mut rig = rig([
            answer(&[("known", 1)], 1, true, false, false),
            answer(&[], 1, false, false, true),
            answer(&[], 1, false, false, true),
        ]);
        rig.follow(2.0).await;
        // One more request confirms the copy at once. Then the usual interval continues.
        let times: Vec<_> = rig.asked().into_iter().map(|(at, _)| at).collect();
        assert_eq!(times, [0.0, 0.0, 0.0, 0.9, 1.8]);
        let Harness { follower, controller, .. } = rig;
        assert_eq!(follower.take_over(term), inheritance);
        let inherited = (inheritance == Handover::CutOff).then(|| controller.clock.now());
        assert_eq!(controller.histories.get("known"), History { inherited, ..expected });
    }
}

#[tokio::test(start_paused = true)]
async fn failing_leader_is_requested_less_often_and_the_copy_stays() {
    for (does, result) in [
        (LeaderReply::Fails, "unreachable"),
        (LeaderReply::Hangs, "unreachable"),
        (LeaderReply::Answers(Box::new(|_| b"garbage".to_vec())), "invalid"),
    ] {
        let mut rig = rig([answer(&[("known", 1)], 1, true, false, false), does]);
        rig.follow(600.0).await;
        let failed = rig.pulls(result);
        assert!((25..=45).contains(&failed), "{failed} {result}");
        let Harness { follower, controller, .. } = rig;
        assert_eq!(follower.take_over(4), Handover::CutOff);
        assert_eq!(controller.histories.get("known"), history(1).inherit(controller.clock.now()));
    }
}

#[tokio::test(start_paused = true)]
async fn new_leader_is_copied_in_full_and_a_partial_copy_hides_nothing() {
    let mut rig = rig([
        answer(&[("known", 1)], 7, true, false, false),
        answer(&[], 7, false, false, false),
        answer(&[("other", 2)], 1, true, true, false),
        LeaderReply::Hangs,
    ]);
    rig.follow(0.5).await;
    rig.leader_state.send_replace(leads("c", 4));
    rig.follow(0.1).await;
    let asked = rig.asked();
    assert!(asked[1].1.ends_with("&since=5.7") && !asked[2].1.contains("since"), "{asked:?}");
    let Harness { follower, controller, .. } = rig;
    assert_eq!(follower.take_over(5), Handover::CutOff);
    assert_eq!(controller.histories.get("known"), history(1).inherit(controller.clock.now()));
}

#[tokio::test(start_paused = true)]
async fn histories_without_an_hpa_are_dropped_after_a_while() {
    let mut rig = rig([
        answer(&[("known", 1), ("new", 1)], 1, true, false, false),
        answer(&[], 1, false, false, false),
    ]);
    rig.follow(45.0).await;
    assert_eq!(rig.follower.len(), 2, "its HPA may still come");
    rig.follow(75.0).await;
    assert_eq!(rig.follower.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_request_without_a_leader_or_its_address() {
    let mut rig = rig([LeaderReply::Fails]);
    let LeaderState::Standby(Some(holder)) = leads("a", 3) else { panic!() };
    for leader_state in
        [LeaderState::Standby(None), LeaderState::Standby(Some(Holder { peer: None, ..holder }))]
    {
        rig.leader_state.send_replace(leader_state);
        rig.follow(10.0).await;
    }
    assert!(rig.asked().is_empty());
    let Harness { follower, controller, .. } = rig;
    assert_eq!(follower.take_over(4), Handover::Nothing);
    assert!(controller.histories.is_empty());
}
