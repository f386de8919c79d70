#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;

const LENGTH: Duration = Duration::from_secs(15);

fn wall(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn versioned(version: &str) -> ObjectMeta {
    ObjectMeta { resource_version: Some(version.to_owned()), ..ObjectMeta::default() }
}

fn lease(holder: &str, renewed: i64, version: &str) -> Lease {
    let record = Record {
        holder: holder.to_owned(),
        lease_duration_seconds: 15,
        acquire_time: Some(wall(0)),
        renew_time: Some(wall(renewed)),
        transitions: 3,
    };
    Lease { record, metadata: versioned(version) }
}

/// A server that stores at most one Lease and responds to an elector.
struct Server {
    lease: Option<Lease>,
    /// Number of upcoming writes that fail.
    failures: u32,
    writes: u32,
}

impl Server {
    fn with(lease: Option<Lease>) -> Self {
        Self { lease, failures: 0, writes: 0 }
    }

    fn attempt(&mut self, elector: &mut Elector, now: Instant, at: i64) -> Outcome {
        let mut input = Input::Start;
        loop {
            input = match elector.step(input, now, wall(at)) {
                Action::End(outcome) => return outcome,
                Action::Read => self.lease.clone().map_or(Input::Absent, Input::Found),
                Action::Create(record) if self.lease.is_none() => self.write(record),
                Action::Replace(next)
                    if self.lease.as_ref().is_some_and(|lease| lease.metadata == next.metadata) =>
                {
                    self.write(next.record)
                }
                Action::Create(_) | Action::Replace(_) => Input::Failed,
            };
        }
    }

    fn write(&mut self, record: Record) -> Input {
        if self.failures > 0 {
            self.failures -= 1;
            return Input::Failed;
        }
        self.writes += 1;
        let written = Lease { record, metadata: versioned(&format!("w{}", self.writes)) };
        self.lease = Some(written.clone());
        Input::Written(written)
    }

    fn record(&self) -> &Record {
        &self.lease.as_ref().unwrap().record
    }
}

fn elector() -> Elector {
    Elector::new("me", LENGTH)
}

#[tokio::test(start_paused = true)]
async fn missing_lease_is_created() {
    let (mut server, mut me) = (Server::with(None), elector());
    assert_eq!(server.attempt(&mut me, Instant::now(), 7), Outcome::Leads);
    assert!(me.leads());
    let record = server.record();
    assert_eq!((record.holder.as_str(), record.transitions, record.acquire_time), ("me", 0, Some(wall(7))));
}

#[tokio::test(start_paused = true)]
async fn free_lease_is_acquired_at_once() {
    for empty in [Lease { metadata: versioned("1"), ..Lease::default() }, lease("", 0, "1")] {
        let transitions = empty.record.transitions;
        let (mut server, mut me) = (Server::with(Some(empty)), elector());
        assert_eq!(server.attempt(&mut me, Instant::now(), 7), Outcome::Leads);
        assert_eq!(server.record().transitions, transitions + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_lease_is_acquired_after_its_length_without_a_change() {
    let (mut server, mut me) = (Server::with(Some(lease("other", 0, "1"))), elector());
    let start = Instant::now();
    // By its `renewTime` the Lease expired years ago, but that time does not count.
    assert_eq!(server.attempt(&mut me, start, 1_000_000_000), Outcome::Held);
    assert_eq!(me.holder(), Some("other"));
    assert_eq!(me.expires(), Some(start + LENGTH));
    assert_eq!(server.attempt(&mut me, start + LENGTH - Duration::from_millis(1), 0), Outcome::Held);
    assert_eq!(server.attempt(&mut me, start + LENGTH, 0), Outcome::Leads);
    assert_eq!(server.record().transitions, 4);
}

#[tokio::test(start_paused = true)]
async fn observed_renewal_restarts_the_wait_and_other_changes_do_not() {
    let (mut server, mut me) = (Server::with(Some(lease("other", 0, "1"))), elector());
    let start = Instant::now();
    server.attempt(&mut me, start, 0);
    me.observe(lease("other", 0, "2"), start + Duration::from_secs(9));
    assert_eq!(me.expires(), Some(start + LENGTH));
    me.observe(lease("other", 9, "3"), start + Duration::from_secs(10));
    assert_eq!(me.expires(), Some(start + Duration::from_secs(25)));
    server.lease = Some(lease("other", 9, "3"));
    assert_eq!(server.attempt(&mut me, start + Duration::from_secs(24), 0), Outcome::Held);
    assert_eq!(server.attempt(&mut me, start + Duration::from_secs(25), 0), Outcome::Leads);
}

#[tokio::test(start_paused = true)]
async fn leader_renews_with_one_write_and_keeps_acquire_time_and_term() {
    let (mut server, mut me) = (Server::with(Some(lease("", 0, "1"))), elector());
    let start = Instant::now();
    server.attempt(&mut me, start, 7);
    assert!(matches!(me.step(Input::Start, start, wall(9)), Action::Replace(_)));
    assert_eq!(server.attempt(&mut me, start + Duration::from_secs(2), 9), Outcome::Leads);
    let record = server.record();
    assert_eq!(
        (record.acquire_time, record.renew_time, record.transitions),
        (Some(wall(7)), Some(wall(9)), 4)
    );
}

#[tokio::test(start_paused = true)]
async fn failed_renewal_is_retried_on_top_of_a_read() {
    let (mut server, mut me) = (Server::with(None), elector());
    let start = Instant::now();
    server.attempt(&mut me, start, 0);
    server.failures = 1;
    assert_eq!(server.attempt(&mut me, start, 2), Outcome::Leads);
    server.failures = 2;
    assert_eq!(server.attempt(&mut me, start, 4), Outcome::Unknown);
    assert!(me.leads(), "a failed attempt does not lose the Lease");
    // Another client annotated the object, which has a new version and the same holder.
    server.lease.as_mut().unwrap().metadata = versioned("annotated");
    assert_eq!(server.attempt(&mut me, start, 6), Outcome::Leads);
}

#[tokio::test(start_paused = true)]
async fn leader_that_slept_past_its_lease_reads_before_it_writes() {
    let (mut server, mut me) = (Server::with(None), elector());
    let start = Instant::now();
    server.attempt(&mut me, start, 0);
    assert_eq!(me.step(Input::Start, start + LENGTH, wall(15)), Action::Read);
    server.lease = Some(lease("other", 14, "stolen"));
    assert_eq!(server.attempt(&mut me, start + LENGTH, 15), Outcome::Held);
    assert!(!me.leads());
}

#[tokio::test(start_paused = true)]
async fn one_of_two_candidates_acquires_an_expired_lease() {
    let mut server = Server::with(Some(lease("other", 0, "1")));
    let (mut a, mut b) = (Elector::new("a", LENGTH), Elector::new("b", LENGTH));
    let start = Instant::now();
    server.attempt(&mut a, start, 0);
    server.attempt(&mut b, start, 0);
    // Both candidates read before either writes.
    let later = start + LENGTH;
    let read = Input::Found(server.lease.clone().unwrap());
    for elector in [&mut a, &mut b] {
        assert_eq!(elector.step(Input::Start, later, wall(15)), Action::Read);
        assert!(
            matches!(elector.step(read.clone(), later, wall(15)), Action::Replace(next) if next.metadata == versioned("1"))
        );
    }
    let Input::Written(written) = server.write(a.record(wall(15), wall(15), 4)) else { panic!() };
    assert_eq!(a.step(Input::Written(written), later, wall(15)), Action::End(Outcome::Leads));
    assert_eq!(b.step(Input::Failed, later, wall(15)), Action::End(Outcome::Unknown));
    assert_eq!(server.attempt(&mut b, later, 16), Outcome::Held);
}

#[tokio::test(start_paused = true)]
async fn released_lease_can_be_acquired_at_once() {
    let (mut server, mut me) = (Server::with(None), elector());
    let start = Instant::now();
    assert_eq!(me.release(wall(0)), None);
    server.attempt(&mut me, start, 0);
    let Lease { record, metadata } = me.release(wall(5)).unwrap();
    assert_eq!((record.holder.as_str(), record.lease_duration_seconds), ("", 1));
    assert_eq!(metadata, server.lease.as_ref().unwrap().metadata);
    server.write(record);
    let mut other = Elector::new("other", LENGTH);
    assert_eq!(server.attempt(&mut other, start, 6), Outcome::Leads);
    assert_eq!(server.record().transitions, 1);
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_is_created_again() {
    let (mut server, mut me) = (Server::with(None), elector());
    let start = Instant::now();
    server.attempt(&mut me, start, 0);
    server.lease = None;
    assert_eq!(server.attempt(&mut me, start, 2), Outcome::Leads);
    assert_eq!(server.record().holder, "me");
}

#[tokio::test(start_paused = true)]
async fn foreign_lease_that_was_deleted_is_free_after_its_length() {
    let (mut server, mut me) = (Server::with(None), elector());
    let start = Instant::now();
    let mut other = Elector::new("other", LENGTH);
    server.attempt(&mut other, start, 0);
    assert_eq!(server.attempt(&mut me, start, 0), Outcome::Held);
    server.lease = None;
    assert_eq!(server.attempt(&mut me, start + LENGTH / 2, 7), Outcome::Held);
    assert_eq!(server.attempt(&mut me, start + LENGTH, 15), Outcome::Leads);
}

#[tokio::test(start_paused = true)]
async fn time_since_others_comes_from_observations_or_from_their_clock() {
    let start = Instant::now();
    let seconds = Duration::from_secs;
    // No other candidate ever led.
    let (mut server, mut me) = (Server::with(None), elector());
    server.attempt(&mut me, start, 0);
    assert_eq!(me.time_since_other_holder(start, wall(0)), None);
    // The age of an abandoned Lease depends on a clock that may be wrong in both directions.
    for renewed in [7, 107] {
        let (mut server, mut me) = (Server::with(Some(lease("other", renewed, "1"))), elector());
        assert_eq!(server.attempt(&mut me, start, 57), Outcome::Held);
        assert_eq!(server.attempt(&mut me, start + LENGTH, 57), Outcome::Leads);
        assert_eq!(me.time_since_other_holder(start + LENGTH, wall(57)), Some(seconds(50)));
    }
    // A Lease with an observed renewal and an observed release.
    let (mut server, mut me) = (Server::with(Some(lease("other", 1000, "1"))), elector());
    server.attempt(&mut me, start, 0);
    me.observe(lease("other", 1002, "2"), start + seconds(2));
    server.lease = Some(lease("", 1003, "3"));
    assert_eq!(server.attempt(&mut me, start + seconds(3), 3), Outcome::Leads);
    assert_eq!(me.time_since_other_holder(start + seconds(3), wall(3)), Some(seconds(0)));
    // The candidate's own renewals do not count.
    assert_eq!(server.attempt(&mut me, start + seconds(8), 8), Outcome::Leads);
    assert_eq!(me.time_since_other_holder(start + seconds(8), wall(8)), Some(seconds(5)));
}

#[test]
fn own_renewals_are_no_renewals_of_another_candidate() {
    let (start, mut elector) = (Instant::now(), Elector::new("a", LENGTH));
    elector.observe(lease("a", 5, "1"), start);
    elector.observe(lease("a", 7, "2"), start);
    assert_eq!(elector.time_since_other_holder(start, wall(9)), None);
    elector.observe(lease("b", 8, "3"), start);
    assert_eq!(elector.time_since_other_holder(start + LENGTH, wall(9)), Some(LENGTH));
}
