//! The history of one HPA: recent recommendations and recent scale events.
//!
//! A decision reads the history and returns its additions as [`Changes`]. The caller commits them with
//! [`History::commit`], which bounds the number of entries. Upstream loses the history when its process stops. Here the
//! caller may store the history and pass it to another process with [`History::inherit`]. [`History::rebuilt`] derives
//! a history from the status and the events of the HPA.
//!
//! After a lost response or a handover from another process, a rescale may be uncertain. The next sync that reads the
//! Scale checks for such a rescale. An uncertain rescale never allows a larger change than a known rescale would. If
//! the time is uncertain, policies of its direction use its latest possible time, and policies of the other direction
//! use its earliest possible time. A rescale of unknown size uses up the full allowance of the policies in both
//! directions.

mod commit;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub(crate) use self::commit::scale_event;
pub use self::commit::{AddedEntry, Changes, LONGEST_PERIOD, LONGEST_WINDOW, RECOMMENDATIONS, SCALE_EVENTS};
use crate::hpa::Hpa;
use crate::status::{
    ABLE_TO_SCALE, Condition, FAILED_UPDATE_SCALE, SUCCEEDED_GET_SCALE, Status, whole_seconds,
};

/// The recommendations, scale events and uncertain rescales of one HPA. The entries are not sorted by time, because a
/// new entry may replace an outdated entry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// The recommendations, before stabilization.
    pub recommendations: Vec<Recommendation>,
    /// The scale-ups, stored only for an HPA with `behavior`.
    pub scale_ups: Vec<ScaleEvent>,
    /// The scale-downs, stored only for an HPA with `behavior`.
    pub scale_downs: Vec<ScaleEvent>,
    /// Time of the last rescale of unknown size that may have added pods. A scale-up policy allows no change while this
    /// time is within its period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_up: Option<Timestamp>,
    /// Time of the last rescale of unknown size that may have removed pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_down: Option<Timestamp>,
    /// A write with a lost response. The next sync that reads the Scale determines its outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<PendingWrite>,
    /// Time of the handover from another process, or of the rebuild. The next sync that reads the Scale checks whether
    /// the history lacks a rescale of the previous process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Timestamp>,
}

/// The proposal of one sync, before stabilization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The time of the sync.
    pub at: Timestamp,
    /// The proposed count.
    pub replicas: i32,
}

/// One rescale in a known direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleEvent {
    /// Time of the rescale; the latest possible time if the time is uncertain.
    pub at: Timestamp,
    /// The number of added or removed pods; never negative.
    pub change: i32,
    /// The earliest possible time, if the time is uncertain. For policies of the other direction, the event counts at
    /// this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest: Option<Timestamp>,
}

/// A write of the Scale without a known outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingWrite {
    /// Time of the write.
    pub at: Timestamp,
    /// The count before the write.
    pub from: i32,
    /// The written count.
    pub to: i32,
}

/// The direction of a rescale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Direction {
    /// More pods.
    Up,
    /// Fewer pods.
    Down,
}

impl History {
    /// Whether the history has no entry and no uncertain rescale.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Marks the history as inherited at `now` from another process, whose last rescale may be missing.
    #[must_use]
    pub fn inherit(self, now: Timestamp) -> Self {
        Self { inherited: Some(now), ..self }
    }

    /// The time of the last rescale of unknown size that may have been in `direction`.
    pub fn unknown(&self, direction: Direction) -> Option<Timestamp> {
        match direction {
            Direction::Up => self.unknown_up,
            Direction::Down => self.unknown_down,
        }
    }

    fn events_mut(&mut self, direction: Direction) -> &mut Vec<ScaleEvent> {
        match direction {
            Direction::Up => &mut self.scale_ups,
            Direction::Down => &mut self.scale_downs,
        }
    }
}

impl ScaleEvent {
    /// Creates an event at a known time.
    pub fn new(at: Timestamp, change: i32) -> Self {
        Self { at, change, earliest: None }
    }

    /// The earliest possible time of the rescale.
    pub fn earliest(&self) -> Timestamp {
        self.earliest.unwrap_or(self.at)
    }
}

impl Direction {
    /// The direction from one count to another, and the number of added or removed pods.
    pub(crate) fn between(from: i32, to: i32) -> (Self, i32) {
        if to > from { (Self::Up, to.saturating_sub(from)) } else { (Self::Down, from.saturating_sub(to)) }
    }
}

/// The time `duration` before `now`, saturating at the range of timestamps.
pub(crate) fn ago(now: Timestamp, duration: SignedDuration) -> Timestamp {
    now.saturating_sub(duration).unwrap_or(now)
}

/// The time `duration` after `at`, or before it if `duration` is negative, saturating at the range of timestamps.
pub(crate) fn after(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.saturating_add(duration).unwrap_or(at)
}

/// Maximum duration of a request, and therefore the maximum time from the handover to a write of the previous process.
const MAX_IN_FLIGHT: SignedDuration = SignedDuration::from_secs(30);

/// The uncertain rescales that a sync resolved, by comparing the Scale with the history and the status.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reconciliation {
    /// The write with a lost response that the sync compared with the Scale.
    pub settled: Option<PendingWrite>,
    /// Whether [`History::inherited`] was set. The commit clears that field.
    pub owned: bool,
    /// The rescale of the write with a lost response, if the write may have taken effect.
    pub scale_event: Option<(Direction, AddedEntry<ScaleEvent>)>,
    /// The latest possible time of a rescale by the previous process, of unknown size and direction.
    pub unknown: Option<Timestamp>,
}

impl Reconciliation {
    fn shift(&mut self, by: SignedDuration) {
        if let Some(settled) = &mut self.settled {
            settled.at = after(settled.at, by);
        }
        if let Some((_, added)) = &mut self.scale_event {
            added.shift(by);
        }
        self.unknown = self.unknown.map(|at| after(at, by));
    }
}

impl History {
    /// Compares the count of the Scale with the uncertain rescales. Returns `None` if the history has none.
    pub(crate) fn reconcile(&self, hpa: &Hpa<'_>, replicas: i32, now: Timestamp) -> Option<Reconciliation> {
        if self.unsettled.is_none() && self.inherited.is_none() {
            return None;
        }
        let owned = self.inherited.is_some();
        let mut found = Reconciliation { settled: self.unsettled, owned, ..Reconciliation::default() };
        // Only policies of `behavior` need rescales.
        let Some(behavior) = &hpa.spec.behavior else { return Some(found) };
        if let Some(PendingWrite { at, from, to }) = self.unsettled
            && replicas != from
        {
            let (direction, mut added) = scale_event(behavior, from, to, at);
            if replicas != to {
                // Another client changed the count before or after this write, so the write may have had no effect.
                added.entry.earliest = Some(Timestamp::MIN);
            }
            found.scale_event = Some((direction, added));
        }
        if let Some(inherited) = self.inherited {
            let known = self.known_rescales(&found, hpa.status);
            found.unknown = known.missing_last_scale(hpa.status, now);
            let last = status_count(hpa.status);
            if has_count(hpa.status) && replicas != last && i64::from(replicas) != known.expected {
                // The previous process may have rescaled after a manual change, so the direction and the size are
                // unknown. The latest possible time of the rescale does not depend on the time of its detection.
                found.unknown = Some(after(inherited, MAX_IN_FLIGHT).min(now));
            }
        }
        Some(found)
    }

    pub(crate) fn with(&self, found: &Reconciliation) -> Self {
        let mut history = self.clone();
        history.apply(found);
        history
    }

    fn apply(&mut self, found: &Reconciliation) {
        if found.settled.is_some() && found.settled == self.unsettled {
            self.unsettled = None;
        }
        self.inherited.take_if(|_| found.owned);
        if let Some((direction, added)) = found.scale_event {
            self.remember(direction, added);
        }
        self.unknown_rescale(found.unknown);
    }

    /// Stores the time of a rescale of unknown size and direction.
    fn unknown_rescale(&mut self, at: Option<Timestamp>) {
        self.unknown_up = self.unknown_up.max(at);
        self.unknown_down = self.unknown_down.max(at);
    }

    fn known_rescales(&self, found: &Reconciliation, status: &Status) -> KnownRescales {
        let all = self
            .scale_ups
            .iter()
            .map(|event| (Direction::Up, event))
            .chain(self.scale_downs.iter().map(|event| (Direction::Down, event)))
            .chain(found.scale_event.iter().map(|(direction, added)| (*direction, &added.entry)));
        let mut known = KnownRescales {
            last: self.unknown_up.max(self.unknown_down),
            expected: status_count(status).into(),
        };
        for (direction, event) in all {
            known.last = known.last.max(Some(event.at));
            if status.last_scale_time.is_none_or(|last| whole_seconds(event.earliest()) > last) {
                known.expected += match direction {
                    Direction::Up => i64::from(event.change),
                    Direction::Down => -i64::from(event.change),
                };
            }
        }
        known
    }
}

/// The count at the end of the sync that wrote the status: `desiredReplicas`. If that sync read the Scale, but computed
/// no count or failed to write it, `desiredReplicas` is from an earlier sync. The count is then `currentReplicas`.
fn status_count(status: &Status) -> i32 {
    let is_older = |condition: &Condition| {
        condition.kind == ABLE_TO_SCALE
            && [FAILED_UPDATE_SCALE, SUCCEEDED_GET_SCALE].contains(&&*condition.reason)
    };
    if status.conditions.iter().any(is_older) { status.current_replicas } else { status.desired_replicas }
}

/// Whether any sync has computed a count. A failed sync also writes a status.
fn has_count(status: &Status) -> bool {
    status.last_scale_time.is_some() || status.current_replicas != 0 || status.desired_replicas != 0
}

/// A summary of the stored and the detected rescales, relative to a status.
#[derive(Debug, Clone, Copy)]
struct KnownRescales {
    /// The time of the last rescale.
    last: Option<Timestamp>,
    /// The count of the status, after all rescales that are newer than the last rescale in the status.
    expected: i64,
}

impl KnownRescales {
    /// The time of the last rescale in the status, if the history does not contain this rescale.
    fn missing_last_scale(self, status: &Status, now: Timestamp) -> Option<Timestamp> {
        let last_scale = status.last_scale_time?;
        self.last
            .is_none_or(|last| whole_seconds(last) < last_scale)
            .then(|| end_of_second(last_scale).min(now))
    }
}

/// The last nanosecond of the second of `at`.
fn end_of_second(at: Timestamp) -> Timestamp {
    after(whole_seconds(at), SignedDuration::from_nanos(999_999_999))
}

/// A rescale, as its event shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedRescale {
    /// The timestamp of the event, in whole seconds. The rescale follows within two seconds.
    pub at: Timestamp,
    /// The new size.
    pub to: i32,
}

/// Maximum time from the timestamp of an event to its rescale. The rescale follows the creation of the event within a
/// second, and the timestamp is truncated to a second.
const AFTER_EVENT: SignedDuration = SignedDuration::from_secs(2);

impl History {
    /// Rebuilds the history of an HPA from its status and the events of its rescales, in any order. The caller passes a
    /// merged event twice, with its first and its last date.
    ///
    /// The API server does not store recommendations, so the rebuilt history has none. The status contains the time of
    /// the last rescale, and each event contains the new size of a rescale. Events may be merged. They may be missing,
    /// because the event store was unavailable, the sender reached its limit, or a process stopped before it sent an
    /// event.
    ///
    /// `apart` is the sync period, normally the minimum time between two rescales. If two events are one period apart,
    /// no rescale fits between them. The size in the older event is then the count before the newer rescale. A distance
    /// of nearly two periods is too long, because a changed spec triggers an extra sync.
    ///
    /// The events are followed back from the last rescale as long as neighbors are one period apart. The oldest event
    /// of the sequence becomes a rescale of unknown size. If the newest event does not match the last rescale in the
    /// status, only the later of the two is used, as a rescale of unknown size. The same applies if `apart` is at most
    /// 4 s, twice the uncertainty of the time of a rescale.
    #[must_use]
    pub fn rebuilt(status: &Status, rescales: &[ObservedRescale], apart: Duration, now: Timestamp) -> Self {
        let mut history = Self::default().inherit(now);
        let Some(last_scale) = status.last_scale_time else { return history };
        let mut rescales = rescales.to_vec();
        rescales.sort_unstable_by_key(|rescale| std::cmp::Reverse(*rescale));
        rescales.dedup();
        let newest = rescales.first().copied();
        let after_status = newest.filter(|newest| newest.at > end_of_second(last_scale));
        let last = after_status.map_or_else(|| end_of_second(last_scale), ObservedRescale::latest).min(now);
        let reached = ago(now, LONGEST_PERIOD);
        if last <= reached {
            return history;
        }
        let distance = SyncDistance(SignedDuration::try_from(apart).unwrap_or(SignedDuration::MAX));
        if !newest.is_some_and(|newest| distance.matches_status(newest, status.desired_replicas, last_scale))
        {
            history.unknown_rescale(Some(last));
            return history;
        }
        let mut before = rescales.iter().skip(1);
        let mut rescale = newest;
        let mut events = Vec::new();
        while let Some(newer) = rescale.filter(|newer| newer.latest() > reached) {
            let at = newer.latest().min(last);
            // `currentReplicas` is the count before the last rescale, or its new size if a later sync wrote the status.
            // Another client may have set the count before the rescale, so the older event must agree with the status.
            let from = status.current_replicas;
            let agrees = |older: &ObservedRescale| !events.is_empty() || from == older.to || from == newer.to;
            rescale =
                before.next().copied().filter(|older| distance.neighbours(*older, newer) && agrees(older));
            let Some(older) = rescale.filter(|_| events.len() < SCALE_EVENTS) else {
                history.unknown_rescale(Some(at));
                break;
            };
            let (direction, change) = Direction::between(older.to, newer.to);
            events.push((direction, ScaleEvent { at, change, earliest: Some(newer.at.min(at)) }));
        }
        for (direction, event) in events.into_iter().rev() {
            history.events_mut(direction).push(event);
        }
        history
    }
}

impl ObservedRescale {
    /// The latest possible time of the rescale.
    fn latest(self) -> Timestamp {
        after(self.at, AFTER_EVENT)
    }
}

/// The sync period, normally the minimum time between two rescales.
#[derive(Debug, Clone, Copy)]
struct SyncDistance(SignedDuration);

impl SyncDistance {
    /// Whether an event certainly belongs to the last rescale in the status.
    fn matches_status(self, event: ObservedRescale, desired: i32, last_scale_time: Timestamp) -> bool {
        let near = (event.at..=event.latest()).contains(&last_scale_time);
        near && event.to == desired && self.0 > AFTER_EVENT * 2
    }

    /// Whether `older` is certainly the last rescale before `newer`, because their distance is one sync period.
    fn neighbours(self, older: ObservedRescale, newer: ObservedRescale) -> bool {
        let most = newer.at.duration_since(older.at).saturating_add(AFTER_EVENT);
        older.to != newer.to && most >= self.0 && most <= self.0.saturating_add(AFTER_EVENT * 2)
    }
}
