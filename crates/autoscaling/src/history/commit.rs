//! The changes that a sync makes to a history, and the slots of new entries.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    Direction, History, LONGEST_PERIOD, PendingWrite, Recommendation, Reconciliation, ScaleEvent, ago, bounds,
};
use crate::spec::Behavior;

/// The changes that one sync makes to the history.
///
/// The commit chooses the slot of an entry, because another sync may have committed since the decision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Changes {
    /// Earlier rescales that the sync detected.
    pub found: Option<Reconciliation>,
    /// The initial recommendation, for an HPA without recommendations.
    pub initial: Option<Recommendation>,
    /// This sync's recommendation.
    pub recommendation: Option<AddedEntry<Recommendation>>,
    /// This sync's rescale.
    pub scale_event: Option<(Direction, AddedEntry<ScaleEvent>)>,
    /// This sync's rescale, if the response to the write was lost.
    pub unsettled: Option<PendingWrite>,
}

/// A new entry, and the time before which other entries are outdated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedEntry<T> {
    /// The entry.
    pub entry: T,
    /// The sync that adds the entry considers entries before this time outdated.
    pub outdated_before: Timestamp,
}

/// An entry with a time.
pub trait Dated {
    /// The time of the entry.
    fn at(&self) -> Timestamp;
}

impl Dated for Recommendation {
    fn at(&self) -> Timestamp {
        self.at
    }
}

impl Dated for ScaleEvent {
    fn at(&self) -> Timestamp {
        self.at
    }
}

impl Changes {
    /// Creates the changes for a rescale by another client.
    pub fn rescaled(behavior: &Behavior, from: i32, to: i32, at: Timestamp) -> Self {
        Self { scale_event: Some(scale_event(behavior, from, to, at)), ..Self::default() }
    }

    /// Moves all times by the size of a wall-clock jump, forwards or backwards.
    pub fn shift(&mut self, by: SignedDuration) {
        if let Some(initial) = &mut self.initial {
            initial.at = moved(initial.at, by);
        }
        if let Some(added) = &mut self.recommendation {
            added.entry.at = moved(added.entry.at, by);
            added.outdated_before = moved(added.outdated_before, by);
        }
        if let Some((_, added)) = &mut self.scale_event {
            added.shift(by);
        }
        if let Some(unsettled) = &mut self.unsettled {
            unsettled.at = moved(unsettled.at, by);
        }
        if let Some(found) = &mut self.found {
            found.shift(by);
        }
    }

    /// The time of the sync that made these changes.
    fn now(&self) -> Option<Timestamp> {
        let recommendation = self.recommendation.map(|added| added.entry.at);
        let event = self.scale_event.map(|(_, added)| added.entry.at);
        recommendation.into_iter().chain(event).max()
    }
}

/// Creates the scale event of a rescale. The event may replace an event that is older than the longest policy
/// period of its direction.
pub(crate) fn scale_event(
    behavior: &Behavior,
    from: i32,
    to: i32,
    at: Timestamp,
) -> (Direction, AddedEntry<ScaleEvent>) {
    let (direction, change) = Direction::between(from, to);
    let rules = match direction {
        Direction::Up => &behavior.scale_up,
        Direction::Down => &behavior.scale_down,
    };
    let longest = rules.policies.iter().map(|policy| policy.period_seconds).max().unwrap_or(0).max(0);
    let outdated_before = ago(at, SignedDuration::from_secs(longest.into()));
    (direction, AddedEntry { entry: ScaleEvent::new(at, change), outdated_before })
}

impl AddedEntry<ScaleEvent> {
    pub(super) fn shift(&mut self, by: SignedDuration) {
        self.entry.shift(by);
        self.outdated_before = moved(self.outdated_before, by);
    }
}

impl ScaleEvent {
    fn shift(&mut self, by: SignedDuration) {
        self.at = moved(self.at, by);
        self.earliest = self.earliest.map(|at| moved(at, by));
    }
}

impl History {
    /// Commits the changes of a sync.
    pub fn commit(&mut self, changes: &Changes) {
        if let Some(found) = &changes.found {
            self.apply(found);
        }
        if let Some(initial) = changes.initial
            && self.recommendations.is_empty()
        {
            self.recommendations.push(initial);
        }
        if let Some(added) = changes.recommendation {
            added.store(&mut self.recommendations);
            bounds::recommendations(&mut self.recommendations, added.entry.at, added.outdated_before);
        }
        if let Some((direction, added)) = changes.scale_event {
            self.remember(direction, added);
        }
        if let Some(unsettled) = changes.unsettled {
            self.unsettled = Some(unsettled);
        }
        if let Some(now) = changes.now() {
            let reached = ago(now, LONGEST_PERIOD);
            self.unknown_up.take_if(|at| *at <= reached);
            self.unknown_down.take_if(|at| *at <= reached);
        }
    }

    /// Moves all times by the size of a wall-clock jump, forwards or backwards, which keeps the age of all
    /// entries. Upstream measures ages with a monotonic clock.
    pub fn shift(&mut self, by: SignedDuration) {
        for recommendation in &mut self.recommendations {
            recommendation.at = moved(recommendation.at, by);
        }
        for event in self.scale_ups.iter_mut().chain(&mut self.scale_downs) {
            event.shift(by);
        }
        for at in [&mut self.unknown_up, &mut self.unknown_down, &mut self.inherited].into_iter().flatten() {
            *at = moved(*at, by);
        }
        if let Some(unsettled) = &mut self.unsettled {
            unsettled.at = moved(unsettled.at, by);
        }
    }

    /// Stores a scale event.
    pub(super) fn remember(&mut self, direction: Direction, added: AddedEntry<ScaleEvent>) {
        let events = self.events_mut(direction);
        added.store(events);
        bounds::scale_events(events, added.entry.at, added.outdated_before);
    }
}

/// Adds a duration to a time, saturating at the range of timestamps.
pub(super) fn moved(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or_else(|_| if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX })
}

impl<T: Dated + Copy> AddedEntry<T> {
    /// Stores the new entry: replaces the last outdated entry, or appends the new one.
    fn store(self, entries: &mut Vec<T>) {
        match entries.iter_mut().rfind(|entry| entry.at() < self.outdated_before) {
            Some(outdated) => *outdated = self.entry,
            None => entries.push(self.entry),
        }
    }
}
