//! A history of what the cluster shows of an HPA's past: its status and the events of its rescales.
//!
//! Recommendations leave no trace, so they begin anew. Of rescales the status tells when the last one was, and events tell
//! sizes. But events get lost (the API server or its event store was away, the sender's limit of 25 in a row was reached,
//! a process ended before it sent them, of equal ones only the first and the last are dated), and a size alone does not
//! tell what it was changed from. Between two events of a sync and the next there is no room for another; so they are
//! believed as far back from the last rescale as each is a sync from the one before. The first of them is the oldest whose
//! size is known, but not by how much it changed: it counts as all that the policies allow. Where not even the last
//! rescale is told as the status has it, that one does.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::reconcile::end_of_second;
use super::{Direction, History, LONGEST_PERIOD, SCALE_EVENTS, ScaleEvent, after, ago};
use crate::status::Status;

/// A rescale as an event tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rescaled {
    /// When, as the event tells: to the second, and up to a second too early.
    pub at: Timestamp,
    /// The new size.
    pub to: i32,
}

/// A rescale is before this long after the second that its event tells: the event is made first, and its time cut off.
const AFTER_EVENT: SignedDuration = SignedDuration::from_secs(2);

impl History {
    /// What is known of an HPA's past by its status and by the events of its rescales, in any order. Of an event that
    /// stands for several, the first and the last count.
    ///
    /// `apart` is how far two rescales are apart at least: the period between two syncs. A spec that changes is synced out
    /// of turn, and a period later again; that is why two events must be one period apart, not just less than two. With
    /// zero, no event is believed.
    #[must_use]
    pub fn rebuilt(status: &Status, rescales: &[Rescaled], apart: Duration, now: Timestamp) -> Self {
        let mut history = Self::default().inherit(now);
        let Some(told) = status.last_scale_time else { return history };
        let mut rescales = rescales.to_vec();
        rescales.sort_unstable_by_key(|rescale| std::cmp::Reverse(*rescale));
        rescales.dedup();
        let newest = rescales.first().copied();
        let untold = newest.filter(|newest| newest.at > end_of_second(told));
        let last = untold.map_or_else(|| end_of_second(told), Rescaled::latest).min(now);
        let reached = ago(now, LONGEST_PERIOD);
        if last <= reached {
            return history;
        }
        let apart = Apart(SignedDuration::try_from(apart).unwrap_or(SignedDuration::MAX));
        if !newest.is_some_and(|newest| apart.told_by(newest, status.desired_replicas, told)) {
            history.unknown_rescale(Some(last));
            return history;
        }
        let mut before = rescales.iter().skip(1);
        let mut rescale = newest;
        let mut events = Vec::new();
        while let Some(newer) = rescale.filter(|newer| newer.latest() > reached) {
            let at = newer.latest().min(last);
            // A status of the sync of the last rescale tells what it was changed from: somebody else may have been there.
            let from = status.current_replicas;
            let agrees = |older: &Rescaled| !events.is_empty() || from == older.to || from == newer.to;
            rescale = before.next().copied().filter(|older| apart.neighbours(*older, newer) && agrees(older));
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

impl Rescaled {
    /// The last instant at which it may have been.
    fn latest(self) -> Timestamp {
        after(self.at, AFTER_EVENT)
    }
}

/// How far two rescales are apart at least.
#[derive(Debug, Clone, Copy)]
struct Apart(SignedDuration);

impl Apart {
    /// Whether an event is certainly of the rescale that the status tells.
    fn told_by(self, event: Rescaled, desired: i32, last_scale_time: Timestamp) -> bool {
        let near = (event.at..=event.latest()).contains(&last_scale_time);
        near && event.to == desired && self.0 > AFTER_EVENT * 2
    }

    /// Whether the older is certainly the last one before the newer: they are one sync apart, as far as their times tell.
    fn neighbours(self, older: Rescaled, newer: Rescaled) -> bool {
        let most = newer.at.duration_since(older.at).saturating_add(AFTER_EVENT);
        older.to != newer.to && most >= self.0 && most <= self.0.saturating_add(AFTER_EVENT * 2)
    }
}
