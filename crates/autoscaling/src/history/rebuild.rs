//! Rebuilds the history of an HPA from the cluster: from the status of the HPA and the events of its
//! rescales.
//!
//! The cluster does not record recommendations, so the rebuilt history has none. The status has the time of
//! the last rescale, and events have sizes. But events can be lost: the API server or its event store was
//! unavailable, the sender reached its limit of 25 consecutive events, or a process stopped before it sent an
//! event. Equal events may also be merged, which keeps only the dates of the first and the last event. An
//! event contains the new size, but not the previous size.
//!
//! No other rescale fits between the events of two consecutive syncs. Events therefore count backwards from the last
//! rescale, as long as consecutive events are one sync period apart. The oldest event of this sequence has a known size
//! but an unknown change, so this event counts as the full allowance of the policies. If no event matches the last
//! rescale in the status, that rescale counts as the full allowance.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::reconcile::end_of_second;
use super::{Direction, History, LONGEST_PERIOD, SCALE_EVENTS, ScaleEvent, after, ago};
use crate::status::Status;

/// A rescale, as shown by its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedRescale {
    /// Time of the event, in whole seconds. The event is created up to a second before the rescale.
    pub at: Timestamp,
    /// The new size.
    pub to: i32,
}

/// Maximum time from the timestamp of an event to the rescale. The event is created before the rescale, and
/// the event's time is truncated.
const AFTER_EVENT: SignedDuration = SignedDuration::from_secs(2);

impl History {
    /// Rebuilds a history from an HPA's status and the events of its rescales, in any order. A merged event
    /// counts at its first and at its last date.
    ///
    /// `apart` is the minimum time between two rescales: the sync period. Consecutive events must be one
    /// period apart. A distance below two periods is not sufficient, because a changed spec triggers an extra
    /// sync, and the next sync follows one period later. If `apart` is zero, no event counts.
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
            // The status of the last rescale's sync has the count before the rescale. Another client may have
            // set that count.
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

/// The minimum time between two rescales.
#[derive(Debug, Clone, Copy)]
struct SyncDistance(SignedDuration);

impl SyncDistance {
    /// Whether an event certainly belongs to the last rescale of the status.
    fn matches_status(self, event: ObservedRescale, desired: i32, last_scale_time: Timestamp) -> bool {
        let near = (event.at..=event.latest()).contains(&last_scale_time);
        near && event.to == desired && self.0 > AFTER_EVENT * 2
    }

    /// Whether `older` is certainly the last rescale before `newer`: their distance is consistent with one
    /// sync period.
    fn neighbours(self, older: ObservedRescale, newer: ObservedRescale) -> bool {
        let most = newer.at.duration_since(older.at).saturating_add(AFTER_EVENT);
        older.to != newer.to && most >= self.0 && most <= self.0.saturating_add(AFTER_EVENT * 2)
    }
}
