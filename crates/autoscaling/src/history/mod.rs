//! What a controller remembers of one HPA: recent recommendations and recent scale events.
//!
//! A decision only reads it. What should be added comes back as [`Changes`], which the caller commits; `commit` says where
//! an entry goes, `bounds` how much is kept. A history outlives its process: `codec` writes it as bytes, `rebuilt` makes
//! one of what the cluster shows, and `reconcile` compares with the Scale what a lost answer or another process left open.
//!
//! What is not known for certain counts to the safe side, against the rate policies: a rescale whose time is known within
//! bounds counts at the latest in its own direction and at the earliest in the other, and one whose size is not known
//! counts as all that the policies of both directions allow.

mod bounds;
mod codec;
mod commit;
mod rebuilt;
mod reconcile;
#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use self::bounds::{LONGEST_PERIOD, LONGEST_WINDOW, RECOMMENDATIONS, SCALE_EVENTS};
pub use self::codec::HistoryError;
pub(crate) use self::commit::scale_event;
pub use self::commit::{Added, Changes};
pub use self::rebuilt::Rescaled;
pub use self::reconcile::Found;

/// Recommendations and scale events of one HPA, in the order of their slots (a new entry may take the slot of an
/// outdated one), and what of its past is in doubt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// What was recommended, before stabilization.
    pub recommendations: Vec<Recommendation>,
    /// Pods added, by rescales of HPAs with `behavior`.
    pub scale_ups: Vec<ScaleEvent>,
    /// Pods removed, likewise.
    pub scale_downs: Vec<ScaleEvent>,
    /// The last rescale of which the size is not known, if it may have added pods. A policy for growing whose period
    /// reaches back to it allows nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_up: Option<Timestamp>,
    /// The same for removing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_down: Option<Timestamp>,
    /// A rescale whose answer was lost. The next sync that reads the Scale settles it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<Unsettled>,
    /// When it was taken over from another process, or rebuilt: the very last rescale before may be missing. The next sync
    /// that reads the Scale looks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Timestamp>,
}

/// One recommendation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recommendation {
    /// When.
    pub at: Timestamp,
    /// How many replicas.
    pub replicas: i32,
}

/// One rescale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleEvent {
    /// When; at the latest, if that is not known exactly.
    pub at: Timestamp,
    /// By how many pods; never negative.
    pub change: i32,
    /// When at the earliest, if that is not known exactly. Until then it gives the policies of the other direction
    /// nothing back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest: Option<Timestamp>,
}

/// A rescale that was written, and of which nobody knows whether it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsettled {
    /// When.
    pub at: Timestamp,
    /// The count before.
    pub from: i32,
    /// The count that was written.
    pub to: i32,
}

/// Up or down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Direction {
    /// More pods.
    Up,
    /// Fewer pods.
    Down,
}

impl History {
    /// Whether nothing is remembered, and nothing in doubt.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The same, taken over from another process that may have gone on for a moment, until `now` at most.
    #[must_use]
    pub fn inherit(self, now: Timestamp) -> Self {
        Self { inherited: Some(now), ..self }
    }

    /// When the last rescale was of which the size is not known, as far as it may have gone in a direction.
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
    /// An event whose time is known.
    pub fn new(at: Timestamp, change: i32) -> Self {
        Self { at, change, earliest: None }
    }

    /// The first instant at which it may have happened.
    pub fn earliest(&self) -> Timestamp {
        self.earliest.unwrap_or(self.at)
    }
}

impl Direction {
    /// From one count to another, and by how many pods.
    pub(crate) fn between(from: i32, to: i32) -> (Self, i32) {
        if to > from { (Self::Up, to.saturating_sub(from)) } else { (Self::Down, from.saturating_sub(to)) }
    }
}

/// The time `duration` before `now`; the earliest time there is if that is out of range.
pub(crate) fn ago(now: Timestamp, duration: SignedDuration) -> Timestamp {
    now.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

/// The time `duration` after an instant; the latest time there is if that is out of range.
pub(crate) fn after(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.checked_add(duration).unwrap_or(Timestamp::MAX)
}
