//! The history of one HPA: recent recommendations and recent scale events.
//!
//! A decision reads the history and returns additions as [`Changes`], which the caller commits. `commit`
//! chooses the slots of new entries, and `bounds` limits their number. A history outlives its process.
//! `rebuilt` derives a history from the state of the cluster, and `reconcile` compares the Scale with
//! rescales that a lost response or another process left uncertain.
//!
//! Uncertain data is treated conservatively: it counts against the rate policies. A rescale at an uncertain
//! time counts at the latest possible time in its direction, and at the earliest possible time in the other
//! direction. A rescale of unknown size counts as the full allowance of the policies in both directions.

mod bounds;
mod commit;
mod rebuild;
mod reconcile;
#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use self::bounds::{LONGEST_PERIOD, LONGEST_WINDOW, RECOMMENDATIONS, SCALE_EVENTS};
pub(crate) use self::commit::scale_event;
pub use self::commit::{AddedEntry, Changes};
pub use self::rebuild::ObservedRescale;
pub use self::reconcile::Reconciliation;

/// The recommendations, scale events and uncertain rescales of one HPA. Entries are in the order of their
/// slots, because a new entry may replace an outdated one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// The recommendations, before stabilization.
    pub recommendations: Vec<Recommendation>,
    /// Pods added by rescales of HPAs with `behavior`.
    pub scale_ups: Vec<ScaleEvent>,
    /// Pods removed by rescales of HPAs with `behavior`.
    pub scale_downs: Vec<ScaleEvent>,
    /// Time of the last rescale of unknown size that may have added pods. A scale-up policy allows nothing if
    /// its period reaches back to this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_up: Option<Timestamp>,
    /// Time of the last rescale of unknown size that may have removed pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_down: Option<Timestamp>,
    /// A rescale with a lost response. The next sync that reads the Scale settles it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<PendingWrite>,
    /// Time of the takeover from another process, or of the rebuild. The last rescale before this time may be
    /// missing. The next sync that reads the Scale checks for such a rescale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Timestamp>,
}

/// One recommendation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recommendation {
    /// Time of the recommendation.
    pub at: Timestamp,
    /// The recommended count.
    pub replicas: i32,
}

/// One rescale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleEvent {
    /// Time of the rescale; the latest possible time if the time is uncertain.
    pub at: Timestamp,
    /// The number of pods; never negative.
    pub change: i32,
    /// The earliest possible time, if the time is uncertain. Policies of the other direction count the event
    /// from this time, and therefore for the shortest possible time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest: Option<Timestamp>,
}

/// A rescale that was written without a known outcome.
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
    /// Whether the history contains no entry and no uncertain rescale.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Marks the history as taken over from another process. That process may have rescaled until `now` at
    /// the latest.
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
    /// The direction from one count to another, and the number of pods.
    pub(crate) fn between(from: i32, to: i32) -> (Self, i32) {
        if to > from { (Self::Up, to.saturating_sub(from)) } else { (Self::Down, from.saturating_sub(to)) }
    }
}

/// The time `duration` before `now`, saturating at the earliest timestamp.
pub(crate) fn ago(now: Timestamp, duration: SignedDuration) -> Timestamp {
    now.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

/// The time `duration` after `at`, saturating at the latest timestamp.
pub(crate) fn after(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.checked_add(duration).unwrap_or(Timestamp::MAX)
}
