//! What a controller remembers of one HPA: recent recommendations and recent scale events.
//!
//! A decision only reads it. What should be added comes back as [`Changes`], which the caller commits.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::spec::{Behavior, ScalingRules};

/// Recommendations and scale events of one HPA, in the order of their slots (a new entry may take the slot of an
/// outdated one).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct History {
    /// What was recommended, before stabilization.
    pub recommendations: Vec<Recommendation>,
    /// Pods added, by rescales of HPAs with `behavior`.
    pub scale_ups: Vec<ScaleEvent>,
    /// Pods removed, likewise.
    pub scale_downs: Vec<ScaleEvent>,
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
    /// When.
    pub at: Timestamp,
    /// By how many pods; never negative.
    pub change: i32,
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

/// What one sync adds to the history.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Changes {
    /// The first recommendation of an HPA without history.
    pub initial: Option<Recommendation>,
    /// This sync's recommendation.
    pub recommendation: Option<(Slot, Recommendation)>,
    /// This sync's rescale.
    pub scale_event: Option<(Direction, Slot, ScaleEvent)>,
}

/// Where an entry goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Slot {
    /// In place of an outdated one.
    Replace(usize),
    /// At the end.
    Append,
}

impl History {
    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.recommendations.is_empty() && self.scale_ups.is_empty() && self.scale_downs.is_empty()
    }

    /// Commits what a sync added.
    pub fn commit(&mut self, changes: &Changes) {
        if let Some(initial) = changes.initial {
            self.recommendations.push(initial);
        }
        if let Some((slot, recommendation)) = changes.recommendation {
            slot.store(&mut self.recommendations, recommendation);
        }
        if let Some((direction, slot, event)) = changes.scale_event {
            let events = match direction {
                Direction::Up => &mut self.scale_ups,
                Direction::Down => &mut self.scale_downs,
            };
            slot.store(events, event);
        }
    }

    /// What a rescale adds that somebody else made.
    pub fn rescaled(&self, behavior: &Behavior, from: i32, to: i32, at: Timestamp) -> Changes {
        Changes { scale_event: Some(self.rescale(behavior, from, to, at)), ..Changes::default() }
    }

    /// The scale event for a rescale from one count to another.
    pub(crate) fn rescale(
        &self,
        behavior: &Behavior,
        from: i32,
        to: i32,
        at: Timestamp,
    ) -> (Direction, Slot, ScaleEvent) {
        let (direction, change, rules) = if to > from {
            (Direction::Up, to.saturating_sub(from), &behavior.scale_up)
        } else {
            (Direction::Down, from.saturating_sub(to), &behavior.scale_down)
        };
        self.scale_event(direction, change, rules, at)
    }

    /// The scale event for a rescale at `now`, and where it goes: in place of the last one strictly older than the
    /// longest period of that direction's policies.
    pub fn scale_event(
        &self,
        direction: Direction,
        change: i32,
        rules: &ScalingRules,
        now: Timestamp,
    ) -> (Direction, Slot, ScaleEvent) {
        let events = match direction {
            Direction::Up => &self.scale_ups,
            Direction::Down => &self.scale_downs,
        };
        let longest = rules.policies.iter().map(|policy| policy.period_seconds).max().unwrap_or(0).max(0);
        let cutoff = ago(now, SignedDuration::from_secs(longest.into()));
        let slot = Slot::last_of(events.iter().map(|event| event.at < cutoff));
        (direction, slot, ScaleEvent { at: now, change })
    }
}

impl Slot {
    /// The slot of the last entry that is outdated, or a new one.
    pub(crate) fn last_of(outdated: impl DoubleEndedIterator<Item = bool> + ExactSizeIterator) -> Self {
        outdated.into_iter().rposition(|outdated| outdated).map_or(Self::Append, Self::Replace)
    }

    fn store<T>(self, entries: &mut Vec<T>, entry: T) {
        match self {
            Self::Replace(at) if at < entries.len() => {
                if let Some(place) = entries.get_mut(at) {
                    *place = entry;
                }
            }
            _ => entries.push(entry),
        }
    }
}

/// The time `duration` before `now`; the earliest time there is if that is out of range.
pub(crate) fn ago(now: Timestamp, duration: SignedDuration) -> Timestamp {
    now.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_new_entry_takes_the_slot_of_the_last_outdated_one() {
        assert_eq!(Slot::last_of([true, true, false].into_iter()), Slot::Replace(1));
        assert_eq!(Slot::last_of([false, false].into_iter()), Slot::Append);
    }

    #[test]
    fn committing_adds_the_initial_recommendation_before_the_new_one() {
        let mut history = History::default();
        history.commit(&Changes {
            initial: Some(Recommendation { at: at(1), replicas: 3 }),
            recommendation: Some((Slot::Append, Recommendation { at: at(1), replicas: 5 })),
            scale_event: Some((Direction::Up, Slot::Append, ScaleEvent { at: at(1), change: 2 })),
        });
        assert_eq!(history.recommendations.iter().map(|r| r.replicas).collect::<Vec<_>>(), [3, 5]);
        assert_eq!(history.scale_ups.len(), 1);
        assert!(history.scale_downs.is_empty());
    }
}
