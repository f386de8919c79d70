//! The state machine of leader election, by client-go's rules. It has no clock and no client.
//!
//! [`Elector::step`] drives one attempt to acquire or renew the Lease: it returns the next request, receives the
//! response, and ends with an outcome. Another candidate's Lease has expired when *this* process has observed no change
//! for the lease duration, on a monotonic clock. The clocks of other machines do not matter.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::leases::{Lease, Record};

/// One candidate.
#[derive(Debug, Clone)]
pub struct Elector {
    identity: Arc<str>,
    /// `--leader-elect-lease-duration`, in whole seconds as in the Lease.
    length_seconds: i32,
    observed: Option<Observed>,
    /// The last renewal or release by another candidate.
    foreign_renewal: Option<ForeignRenewal>,
    phase: Phase,
}

/// The time at which another candidate last renewed or released the Lease.
#[derive(Debug, Clone, Copy)]
enum ForeignRenewal {
    /// The time at which this process observed the change.
    Observed(Instant),
    /// A change before this process started to observe: `renewTime`, by the other candidate's clock.
    Recorded(Option<Timestamp>),
}

/// The Lease and the time of its last observed change.
#[derive(Debug, Clone)]
struct Observed {
    lease: Lease,
    at: Instant,
}

/// The phase of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No attempt is in flight.
    Idle,
    /// The leader replaces the Lease that it last wrote, without a read.
    Renewing,
    /// A read is in flight.
    Reading,
    /// A write based on a fresh read is in flight.
    Writing,
}

/// An input of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The attempt starts.
    Start,
    /// The read returned this Lease.
    Found(Lease),
    /// The Lease does not exist.
    Absent,
    /// The write succeeded and returned this Lease.
    Written(Lease),
    /// The read or the write failed: no response, a conflict or a refusal.
    Failed,
}

/// The next step of an attempt.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "an attempt has one action at a time")]
pub enum Action {
    /// Read the Lease.
    Read,
    /// Create the Lease.
    Create(Record),
    /// Replace the Lease if its version on the server is unchanged.
    Replace(Lease),
    /// The attempt has ended.
    End(Outcome),
}

/// The outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// This candidate holds the Lease.
    Leads,
    /// Another candidate holds the Lease.
    Held,
    /// The Lease could not be read or written.
    Unknown,
}

impl Elector {
    /// Creates a candidate without observations.
    pub fn new(identity: impl Into<Arc<str>>, length: Duration) -> Self {
        let length_seconds = i32::try_from(length.as_secs()).unwrap_or(i32::MAX);
        Self {
            identity: identity.into(),
            length_seconds,
            observed: None,
            foreign_renewal: None,
            phase: Phase::Idle,
        }
    }

    /// Advances the attempt. `now` is monotonic. `wall` is the time to write into the Lease.
    pub fn step(&mut self, input: Input, now: Instant, wall: Timestamp) -> Action {
        let (phase, next) = match (self.phase, input) {
            (_, Input::Start) => self.start_attempt(now, wall),
            // The read shows whether a write of another candidate caused the failure.
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

    fn start_attempt(&self, now: Instant, wall: Timestamp) -> (Phase, Action) {
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

    /// Handles a missing Lease. The holder of a deleted Lease may act until the Lease would have expired.
    fn absent(&self, now: Instant, wall: Timestamp) -> (Phase, Action) {
        let is_valid = self.observed.as_ref().is_some_and(|observed| observed.is_valid(now));
        if is_valid && self.holder().is_some() && !self.leads() {
            return (Phase::Idle, Action::End(Outcome::Held));
        }
        (Phase::Writing, Action::Create(self.record(wall, wall, 0)))
    }

    /// Records the Lease as read or watched. Only a change of its record extends the Lease. Other writes to the object
    /// do not.
    pub fn observe(&mut self, lease: Lease, now: Instant) {
        match &mut self.observed {
            Some(observed) if observed.lease.record == lease.record => observed.lease = lease,
            _ => {
                if lease.record.holder != *self.identity {
                    let is_new = self.observed.is_some();
                    self.foreign_renewal = Some(if is_new {
                        ForeignRenewal::Observed(now)
                    } else {
                        ForeignRenewal::Recorded(lease.record.renew_time)
                    });
                }
                self.observed = Some(Observed { lease, at: now });
            }
        }
    }

    /// Returns whether this candidate holds the Lease, by its last observation.
    pub fn leads(&self) -> bool {
        self.holder().is_some_and(|holder| *holder == *self.identity)
    }

    /// Returns whether a write with an unknown outcome is in flight.
    pub fn is_writing(&self) -> bool {
        matches!(self.phase, Phase::Renewing | Phase::Writing)
    }

    /// Returns the holder of the Lease, by the last observation. `None` if the Lease is free.
    pub fn holder(&self) -> Option<&str> {
        let observed = self.observed.as_ref()?;
        observed.lease.record.is_held().then_some(observed.lease.record.holder.as_str())
    }

    /// Returns the Lease of the last observation.
    pub fn lease(&self) -> Option<&Lease> {
        self.observed.as_ref().map(|observed| &observed.lease)
    }

    /// Returns the time since another candidate last renewed or released the Lease. `None` if no such time is known.
    /// The times of renewals before the first observation come from the other candidate's clock.
    pub fn time_since_other_holder(&self, now: Instant, wall: Timestamp) -> Option<Duration> {
        match self.foreign_renewal? {
            ForeignRenewal::Observed(at) => Some(now.saturating_duration_since(at)),
            ForeignRenewal::Recorded(renewed) => Some(wall.duration_since(renewed?).unsigned_abs()),
        }
    }

    /// Returns the time from which the observed Lease can be acquired. `None` without an observation.
    pub fn expires(&self) -> Option<Instant> {
        let observed = self.observed.as_ref()?;
        if observed.lease.record.is_held() { Some(observed.expires()) } else { Some(observed.at) }
    }

    /// Returns the released form of the Lease: without a holder, and expired at once. `None` if this candidate does not
    /// hold the Lease.
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
