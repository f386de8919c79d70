//! The state machine of leader election, by client-go's rules and without a clock or a client of its own.
//!
//! One attempt to acquire or renew goes through [`Elector::step`]: it says what to read or write, is told the answer, and
//! ends with an outcome. Whether a lease that somebody else holds has expired is judged by how long *this* process has
//! seen it unchanged, on a clock that only runs forward: clocks of other machines do not matter.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::record::{Lease, Record};

/// One candidate.
#[derive(Debug, Clone)]
pub struct Elector {
    identity: Arc<str>,
    /// `--leader-elect-lease-duration`, in whole seconds as the Lease has it.
    length_seconds: i32,
    observed: Option<Observed>,
    /// What was seen last of others' work on the Lease.
    others: Option<Others>,
    phase: Phase,
}

/// The last time that somebody else renewed the Lease, or gave it back.
#[derive(Debug, Clone, Copy)]
enum Others {
    /// Before our eyes.
    Seen(Instant),
    /// Before we looked: when, by their clock.
    Told(Option<Timestamp>),
}

/// The Lease as it was last seen to change.
#[derive(Debug, Clone)]
struct Observed {
    lease: Lease,
    at: Instant,
}

/// How far an attempt has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// None is under way.
    Idle,
    /// The leader writes on top of what it wrote last, without reading.
    Renewing,
    /// The Lease is being read.
    Reading,
    /// A write on top of what was just read is under way.
    Writing,
}

/// What an attempt is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// It begins.
    Begin,
    /// The Lease that was read.
    Found(Lease),
    /// There is no Lease.
    Absent,
    /// What was written now stands, as this.
    Written(Lease),
    /// The read or the write failed: no answer, a conflict, a refusal.
    Failed,
}

/// What an attempt wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read the Lease.
    Read,
    /// Create the Lease.
    Create(Record),
    /// Write this in place of the Lease, if it still has this version.
    Replace(Lease),
    /// Nothing more: this is how it ended.
    End(Outcome),
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// This candidate leads.
    Leads,
    /// Somebody else does.
    Held,
    /// Nobody knows: the Lease could not be read or written.
    Unknown,
}

impl Elector {
    /// A candidate that has seen nothing yet.
    pub fn new(identity: impl Into<Arc<str>>, length: Duration) -> Self {
        let length_seconds = i32::try_from(length.as_secs()).unwrap_or(i32::MAX);
        Self { identity: identity.into(), length_seconds, observed: None, others: None, phase: Phase::Idle }
    }

    /// Moves on. `now` runs only forward; `wall` is what the Lease is told.
    pub fn step(&mut self, input: Input, now: Instant, wall: Timestamp) -> Action {
        let (phase, next) = match (self.phase, input) {
            (_, Input::Begin) => self.begin(now, wall),
            // Whoever wrote in between is seen by reading.
            (Phase::Renewing, Input::Failed | Input::Absent | Input::Found(_)) => {
                (Phase::Reading, Action::Read)
            }
            (Phase::Reading, Input::Found(lease)) => self.found(lease, now, wall),
            (Phase::Reading, Input::Absent) => self.absent(now, wall),
            (Phase::Renewing | Phase::Writing, Input::Written(lease)) => {
                self.observed = Some(Observed { lease, at: now });
                (Phase::Idle, Action::End(Outcome::Leads))
            }
            (Phase::Idle | Phase::Reading | Phase::Writing, _) => {
                (Phase::Idle, Action::End(Outcome::Unknown))
            }
        };
        self.phase = phase;
        next
    }

    fn begin(&self, now: Instant, wall: Timestamp) -> (Phase, Action) {
        match &self.observed {
            Some(observed) if self.leads() && observed.is_valid(now) => {
                let held = &observed.lease.record;
                let record = self.record(held.acquire_time.unwrap_or(wall), wall, held.transitions);
                (Phase::Renewing, Action::Replace(Lease { record, ..observed.lease.clone() }))
            }
            _ => (Phase::Reading, Action::Read),
        }
    }

    fn found(&mut self, lease: Lease, now: Instant, wall: Timestamp) -> (Phase, Action) {
        self.observe(lease.clone(), now);
        let is_valid = self.observed.as_ref().is_some_and(|observed| observed.is_valid(now));
        let held = &lease.record;
        if held.is_held() && is_valid && !self.leads() {
            return (Phase::Idle, Action::End(Outcome::Held));
        }
        let record = if self.leads() {
            self.record(held.acquire_time.unwrap_or(wall), wall, held.transitions)
        } else {
            self.record(wall, wall, held.transitions.saturating_add(1))
        };
        (Phase::Writing, Action::Replace(Lease { record, ..lease }))
    }

    /// There is no Lease. Whoever held it until it was deleted may act on until it would have run out.
    fn absent(&self, now: Instant, wall: Timestamp) -> (Phase, Action) {
        let is_valid = self.observed.as_ref().is_some_and(|observed| observed.is_valid(now));
        if is_valid && self.holder().is_some() && !self.leads() {
            return (Phase::Idle, Action::End(Outcome::Held));
        }
        (Phase::Writing, Action::Create(self.record(wall, wall, 0)))
    }

    /// Takes in the Lease as it was seen, by a read or by a watch. Only another record counts as a change: what else is
    /// written to the object does not make a lease last longer.
    pub fn observe(&mut self, lease: Lease, now: Instant) {
        match &mut self.observed {
            Some(observed) if observed.lease.record == lease.record => observed.lease = lease,
            _ => {
                if lease.record.holder != *self.identity {
                    let is_new = self.observed.is_some();
                    self.others =
                        Some(if is_new { Others::Seen(now) } else { Others::Told(lease.record.renew_time) });
                }
                self.observed = Some(Observed { lease, at: now });
            }
        }
    }

    /// Whether this candidate holds the Lease, as far as it has seen.
    pub fn leads(&self) -> bool {
        self.holder().is_some_and(|holder| *holder == *self.identity)
    }

    /// Whether a write is under way of which it is not known how it ended.
    pub fn is_writing(&self) -> bool {
        matches!(self.phase, Phase::Renewing | Phase::Writing)
    }

    /// Who holds the Lease, as far as this candidate has seen; `None` if nobody does.
    pub fn holder(&self) -> Option<&str> {
        let observed = self.observed.as_ref()?;
        observed.lease.record.is_held().then_some(observed.lease.record.holder.as_str())
    }

    /// The Lease as it was seen last.
    pub fn lease(&self) -> Option<&Lease> {
        self.observed.as_ref().map(|observed| &observed.lease)
    }

    /// How long ago somebody else renewed the Lease or gave it back; `None` if nobody ever did. What happened before this
    /// process looked is known by the others' clock only.
    pub fn since_others(&self, now: Instant, wall: Timestamp) -> Option<Duration> {
        match self.others? {
            Others::Seen(at) => Some(now.saturating_duration_since(at)),
            Others::Told(renewed) => Some(wall.duration_since(renewed?).unsigned_abs()),
        }
    }

    /// When the Lease that was last seen may be taken; `None` if none was seen.
    pub fn expires(&self) -> Option<Instant> {
        let observed = self.observed.as_ref()?;
        if observed.lease.record.is_held() { Some(observed.expires()) } else { Some(observed.at) }
    }

    /// What gives the Lease back: a record without holder that is over at once. `None` if this candidate does not lead.
    pub fn release(&self, wall: Timestamp) -> Option<Lease> {
        let observed = self.observed.as_ref().filter(|_| self.leads())?;
        let record = Record {
            holder: String::new(),
            lease_duration_seconds: 1,
            acquire_time: Some(wall),
            renew_time: Some(wall),
            transitions: observed.lease.record.transitions,
        };
        Some(Lease { record, ..observed.lease.clone() })
    }

    fn record(&self, acquired: Timestamp, renewed: Timestamp, transitions: i32) -> Record {
        Record {
            holder: self.identity.to_string(),
            lease_duration_seconds: self.length_seconds,
            acquire_time: Some(acquired),
            renew_time: Some(renewed),
            transitions,
        }
    }
}

impl Observed {
    fn expires(&self) -> Instant {
        self.at + self.lease.record.length()
    }

    fn is_valid(&self, now: Instant) -> bool {
        now < self.expires()
    }
}

#[cfg(test)]
mod tests;
