//! The history of one HPA: recent recommendations and recent scale events.
//!
//! A decision reads the history and returns its additions as [`Changes`]. The caller commits them with
//! [`History::commit`], which bounds the number of entries. Upstream loses the history when its process stops. Here the
//! caller may store it and pass it to another process with [`History::inherit`], or derive it from the status and the
//! events of the HPA with [`History::rebuilt`].
//!
//! A lost response or another process may leave a rescale uncertain. The next sync that reads the Scale checks for such
//! a rescale. An uncertain rescale never allows a larger change than the real one. A rescale at an uncertain time counts at
//! its latest possible time for policies of its direction, and at its earliest possible time for the opposite policies. A
//! rescale of unknown size uses up the full allowance of the policies in both directions.

mod commit;
mod reconcile;
#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub(crate) use self::commit::scale_event;
pub use self::commit::{AddedEntry, Changes, LONGEST_PERIOD, LONGEST_WINDOW, RECOMMENDATIONS, SCALE_EVENTS};
pub use self::reconcile::{ObservedRescale, Reconciliation};

/// The recommendations, scale events and uncertain rescales of one HPA. The entries are not sorted by time, because a new
/// entry may replace an outdated one.
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
    /// Time of the handover from another process, or of the rebuild. The last rescale before this time may be missing
    /// until the next sync that reads the Scale.
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
    /// The number of pods; never negative.
    pub change: i32,
    /// The earliest possible time, if the time is uncertain. For policies of the other direction, the event leaves the
    /// period relative to this time.
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

    /// Marks the history as inherited from another process, which may have rescaled until `now`.
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
