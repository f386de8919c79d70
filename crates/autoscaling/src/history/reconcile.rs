//! What a sync finds to have happened before: a rescale whose answer was lost, or one by the process that the history was
//! taken over from.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::commit::{Added, moved, scale_event};
use super::{Direction, History, ScaleEvent, Unsettled, after};
use crate::condition::{ABLE_TO_SCALE, FAILED_UPDATE_SCALE, SUCCEEDED_GET_SCALE, whole_seconds};
use crate::plan::Hpa;
use crate::status::{Condition, Status};

/// How long the last request of the process before may have been on its way: as long as any request takes.
const ON_ITS_WAY: SignedDuration = SignedDuration::from_secs(30);

/// What a sync found to have happened before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Found {
    /// The lost answer that is open no more.
    pub settled: Option<Unsettled>,
    /// The history is this process's own from now on.
    pub owned: bool,
    /// A rescale that was not remembered.
    pub scale_event: Option<(Direction, Added<ScaleEvent>)>,
    /// When a rescale was of which neither size nor direction is known.
    pub unknown: Option<Timestamp>,
}

impl Found {
    /// The same after the time of day was set by this much.
    pub(super) fn shift(&mut self, by: SignedDuration) {
        if let Some(settled) = &mut self.settled {
            settled.at = moved(settled.at, by);
        }
        if let Some((_, added)) = &mut self.scale_event {
            added.shift(by);
        }
        self.unknown = self.unknown.map(|at| moved(at, by));
    }
}

impl History {
    /// What the Scale shows of what is open; `None` if nothing is.
    pub(crate) fn reconcile(&self, hpa: &Hpa<'_>, replicas: i32, now: Timestamp) -> Option<Found> {
        if self.unsettled.is_none() && self.inherited.is_none() {
            return None;
        }
        let owned = self.inherited.is_some();
        let mut found = Found { settled: self.unsettled, owned, ..Found::default() };
        // Without behavior no rescale is remembered: no policy asks for it.
        let Some(behavior) = &hpa.spec.behavior else { return Some(found) };
        if let Some(Unsettled { at, from, to }) = self.unsettled
            && replicas != from
        {
            let (direction, mut added) = scale_event(behavior, from, to, at);
            if replicas != to {
                // Somebody else has changed it since, before or after this one: it may not have happened.
                added.entry.earliest = Some(Timestamp::MIN);
            }
            found.scale_event = Some((direction, added));
        }
        if let Some(inherited) = self.inherited {
            let seen = self.seen(&found, hpa.status);
            found.unknown = seen.unknown_last_scale(hpa.status, now);
            let told = told_count(hpa.status);
            if tells_a_count(hpa.status) && replicas != told && i64::from(replicas) != seen.expected {
                // The process before may have scaled on top of what a person did: neither way nor size can be told. A
                // target that was not there for long shows it late.
                found.unknown = Some(after(inherited, ON_ITS_WAY).min(now));
            }
        }
        Some(found)
    }

    /// The history with what was found.
    pub(crate) fn with(&self, found: &Found) -> Self {
        let mut history = self.clone();
        history.apply(found);
        history
    }

    /// Commits what was found.
    pub(super) fn apply(&mut self, found: &Found) {
        if found.settled.is_some() && found.settled == self.unsettled {
            self.unsettled = None;
        }
        self.inherited.take_if(|_| found.owned);
        if let Some((direction, added)) = found.scale_event {
            self.remember(direction, added);
        }
        self.unknown_rescale(found.unknown);
    }

    /// Remembers a rescale of which neither size nor direction is known.
    pub(super) fn unknown_rescale(&mut self, at: Option<Timestamp>) {
        self.unknown_up = self.unknown_up.max(at);
        self.unknown_down = self.unknown_down.max(at);
    }

    /// The rescales remembered and found, against the status.
    fn seen(&self, found: &Found, status: &Status) -> Seen {
        let remembered = self
            .scale_ups
            .iter()
            .map(|event| (Direction::Up, event))
            .chain(self.scale_downs.iter().map(|event| (Direction::Down, event)))
            .chain(found.scale_event.iter().map(|(direction, added)| (*direction, &added.entry)));
        let mut seen =
            Seen { last: self.unknown_up.max(self.unknown_down), expected: told_count(status).into() };
        for (direction, event) in remembered {
            seen.last = seen.last.max(Some(event.at));
            if status.last_scale_time.is_none_or(|last| whole_seconds(event.earliest()) > last) {
                seen.expected += match direction {
                    Direction::Up => i64::from(event.change),
                    Direction::Down => -i64::from(event.change),
                };
            }
        }
        seen
    }
}

/// The count that a status leaves its target with. Where the Scale could not be written, or was read and nothing came of
/// it, that is the one that was there, and `desiredReplicas` is older.
fn told_count(status: &Status) -> i32 {
    let is_older = |condition: &Condition| {
        condition.kind == ABLE_TO_SCALE
            && [FAILED_UPDATE_SCALE, SUCCEEDED_GET_SCALE].contains(&&*condition.reason)
    };
    if status.conditions.iter().any(is_older) { status.current_replicas } else { status.desired_replicas }
}

/// Whether any sync before has come to a count. One that failed writes a status too.
fn tells_a_count(status: &Status) -> bool {
    status.last_scale_time.is_some() || status.current_replicas != 0 || status.desired_replicas != 0
}

/// The rescales that are known, against what a status tells.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// When the last one was.
    last: Option<Timestamp>,
    /// The count after those that are newer than the last one that the status tells.
    expected: i64,
}

impl Seen {
    /// The rescale that only the status tells.
    fn unknown_last_scale(self, status: &Status, now: Timestamp) -> Option<Timestamp> {
        let told = status.last_scale_time?;
        self.last.is_none_or(|last| whole_seconds(last) < told).then(|| end_of_second(told).min(now))
    }
}

/// The last instant that is told as this second.
pub(super) fn end_of_second(at: Timestamp) -> Timestamp {
    after(whole_seconds(at), SignedDuration::from_nanos(999_999_999))
}
