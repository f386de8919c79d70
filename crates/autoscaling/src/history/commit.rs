//! What a sync adds to a history, and where it goes.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Direction, Found, History, LONGEST_PERIOD, Recommendation, ScaleEvent, Unsettled, ago, bounds};
use crate::spec::Behavior;

/// What one sync adds to the history.
///
/// Where an entry goes is found when it is committed: between a decision and its commit, somebody else may have committed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Changes {
    /// What the sync found to have happened before.
    pub found: Option<Found>,
    /// The first recommendation of an HPA without any.
    pub initial: Option<Recommendation>,
    /// This sync's recommendation.
    pub recommendation: Option<Added<Recommendation>>,
    /// This sync's rescale.
    pub scale_event: Option<(Direction, Added<ScaleEvent>)>,
    /// This sync's rescale, if its answer was lost.
    pub unsettled: Option<Unsettled>,
}

/// An entry, and which ones it may take the slot of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Added<T> {
    /// The entry.
    pub entry: T,
    /// Entries strictly older are outdated for the sync that adds this one.
    pub outdated_before: Timestamp,
}

/// What stands in a slot.
pub trait Dated {
    /// When it was.
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
    /// What a rescale adds that somebody else made.
    pub fn rescaled(behavior: &Behavior, from: i32, to: i32, at: Timestamp) -> Self {
        Self { scale_event: Some(scale_event(behavior, from, to, at)), ..Self::default() }
    }

    /// The same after the time of day was set by this much, forwards or back.
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

    /// When the sync was that these are of.
    fn now(&self) -> Option<Timestamp> {
        let recommendation = self.recommendation.map(|added| added.entry.at);
        let event = self.scale_event.map(|(_, added)| added.entry.at);
        recommendation.into_iter().chain(event).max()
    }
}

/// The scale event of a rescale from one count to another. It takes the slot of one older than the longest period of that
/// direction's policies.
pub(crate) fn scale_event(
    behavior: &Behavior,
    from: i32,
    to: i32,
    at: Timestamp,
) -> (Direction, Added<ScaleEvent>) {
    let (direction, change) = Direction::between(from, to);
    let rules = match direction {
        Direction::Up => &behavior.scale_up,
        Direction::Down => &behavior.scale_down,
    };
    let longest = rules.policies.iter().map(|policy| policy.period_seconds).max().unwrap_or(0).max(0);
    let outdated_before = ago(at, SignedDuration::from_secs(longest.into()));
    (direction, Added { entry: ScaleEvent::new(at, change), outdated_before })
}

impl Added<ScaleEvent> {
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
    /// Commits what a sync added.
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

    /// The same after the time of day was set by this much, forwards or back: what is remembered is as old as before.
    /// The reference measures such ages by a clock that nobody can set.
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

    /// Remembers a scale event.
    pub(super) fn remember(&mut self, direction: Direction, added: Added<ScaleEvent>) {
        let events = self.events_mut(direction);
        added.store(events);
        bounds::scale_events(events, added.entry.at, added.outdated_before);
    }
}

/// A time moved by a duration; the first or last time there is if that is out of range.
pub(super) fn moved(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or_else(|_| if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX })
}

impl<T: Dated + Copy> Added<T> {
    /// Puts the entry in the slot of the last outdated one, or at the end.
    fn store(self, entries: &mut Vec<T>) {
        match entries.iter_mut().rfind(|entry| entry.at() < self.outdated_before) {
            Some(outdated) => *outdated = self.entry,
            None => entries.push(self.entry),
        }
    }
}
