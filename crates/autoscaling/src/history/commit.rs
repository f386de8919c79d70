//! Commits the changes of a sync to a history, and bounds its size.
//!
//! Upstream keeps each entry until a later entry replaces it. This module does the same while the history is within its
//! bounds. Beyond the bounds, this module first drops entries that are older than any window or period that the API
//! server accepts. Then it drops recommendations that cannot change any decision. If too many entries remain, it merges
//! neighbors conservatively. A merged recommendation is in effect for a longer time. A merged rescale counts against
//! its direction for a longer time, and in favor of the other direction for a shorter time.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Direction, History, PendingWrite, Recommendation, Reconciliation, ScaleEvent, after, ago};
use crate::spec::Behavior;

/// The longest stabilization window that the API server accepts.
pub const LONGEST_WINDOW: SignedDuration = SignedDuration::from_secs(3600);

/// The longest period of a rate policy that the API server accepts.
pub const LONGEST_PERIOD: SignedDuration = SignedDuration::from_secs(1800);

/// Maximum number of recommendations of one HPA: more than twice the syncs of the longest window, at 15 s between
/// syncs.
pub const RECOMMENDATIONS: usize = 512;

/// Maximum number of scale events of one HPA and direction: more than twice the syncs of the longest period, at 15 s
/// between syncs.
pub const SCALE_EVENTS: usize = 256;

/// Number of entries by which a full list grows.
const ROOM: usize = 4;

/// The changes that one sync makes to the history. [`History::commit`] chooses the slots of the entries, because
/// another sync may have committed changes since the decision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Changes {
    /// The uncertain rescales that the sync resolved. `None` if the history had no uncertain rescale.
    pub found: Option<Reconciliation>,
    /// The initial recommendation, for an HPA without recommendations.
    pub initial: Option<Recommendation>,
    /// The recommendation of this sync.
    pub recommendation: Option<AddedEntry<Recommendation>>,
    /// The rescale of this sync, for an HPA with `behavior`.
    pub scale_event: Option<(Direction, AddedEntry<ScaleEvent>)>,
    /// The rescale of this sync if the response to its write was lost, for an HPA with `behavior`.
    pub unsettled: Option<PendingWrite>,
}

/// A new entry of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedEntry<T> {
    /// The recommendation or the scale event.
    pub entry: T,
    /// Entries before this time are outdated for the sync that adds the entry.
    pub outdated_before: Timestamp,
}

impl Changes {
    /// Creates the changes for a rescale by another client at `at`.
    pub fn rescaled(behavior: &Behavior, from: i32, to: i32, at: Timestamp) -> Self {
        Self { scale_event: Some(scale_event(behavior, from, to, at)), ..Self::default() }
    }

    /// Moves all times by the size of a wall-clock jump, forwards or backwards.
    pub fn shift(&mut self, by: SignedDuration) {
        if let Some(initial) = &mut self.initial {
            initial.at = after(initial.at, by);
        }
        if let Some(added) = &mut self.recommendation {
            added.entry.at = after(added.entry.at, by);
            added.outdated_before = after(added.outdated_before, by);
        }
        if let Some((_, added)) = &mut self.scale_event {
            added.shift(by);
        }
        if let Some(unsettled) = &mut self.unsettled {
            unsettled.at = after(unsettled.at, by);
        }
        if let Some(found) = &mut self.found {
            found.shift(by);
        }
    }

    /// The time of the sync. `None` if the sync adds neither a recommendation nor a rescale.
    fn now(&self) -> Option<Timestamp> {
        let recommendation = self.recommendation.map(|added| added.entry.at);
        let event = self.scale_event.map(|(_, added)| added.entry.at);
        recommendation.into_iter().chain(event).max()
    }
}

/// Creates the scale event of a rescale. Events older than the longest period of the direction's policies are outdated.
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
        self.outdated_before = after(self.outdated_before, by);
    }
}

impl ScaleEvent {
    fn shift(&mut self, by: SignedDuration) {
        self.at = after(self.at, by);
        self.earliest = self.earliest.map(|at| after(at, by));
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
            added.store(&mut self.recommendations, |entry| entry.at);
            bound_recommendations(&mut self.recommendations, added.entry.at, added.outdated_before);
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

    /// Returns the history without the recommendations that cannot change any decision.
    #[must_use]
    pub fn condensed(&self) -> Self {
        let mut condensed = self.clone();
        let (highest, lowest) = unsurpassed(&mut condensed.recommendations);
        condensed.recommendations = united(&highest, &lowest);
        condensed
    }

    /// Moves all times by the size of a wall-clock jump, forwards or backwards. The ages of all entries stay the same,
    /// as in upstream, which measures ages with a monotonic clock.
    pub fn shift(&mut self, by: SignedDuration) {
        for recommendation in &mut self.recommendations {
            recommendation.at = after(recommendation.at, by);
        }
        for event in self.scale_ups.iter_mut().chain(&mut self.scale_downs) {
            event.shift(by);
        }
        for at in [&mut self.unknown_up, &mut self.unknown_down, &mut self.inherited].into_iter().flatten() {
            *at = after(*at, by);
        }
        if let Some(unsettled) = &mut self.unsettled {
            unsettled.at = after(unsettled.at, by);
        }
    }

    pub(super) fn remember(&mut self, direction: Direction, added: AddedEntry<ScaleEvent>) {
        let events = self.events_mut(direction);
        added.store(events, |entry| entry.at);
        bound_scale_events(events, added.entry.at, added.outdated_before);
    }
}

impl<T: Copy> AddedEntry<T> {
    /// Replaces the last outdated entry, or appends the new entry if no entry is outdated.
    fn store(self, entries: &mut Vec<T>, at: impl Fn(&T) -> Timestamp) {
        if let Some(outdated) = entries.iter_mut().rfind(|entry| at(entry) < self.outdated_before) {
            *outdated = self.entry;
        } else {
            // An HPA has about as many entries as periods in its window, and doubling the space would leave a third
            // of it unused.
            if entries.len() == entries.capacity() {
                entries.reserve_exact(ROOM);
            }
            entries.push(self.entry);
        }
    }
}

/// Drops or merges recommendations beyond their maximum number. `outdated_before` is the start of the HPA's longest
/// window.
fn bound_recommendations(entries: &mut Vec<Recommendation>, now: Timestamp, outdated_before: Timestamp) {
    if entries.len() <= RECOMMENDATIONS {
        return;
    }
    let reached = ago(now, LONGEST_WINDOW).min(outdated_before);
    entries.retain(|entry| entry.at >= reached);
    if entries.len() <= RECOMMENDATIONS {
        return;
    }
    let (mut highest, mut lowest) = unsurpassed(entries);
    *entries = united(&highest, &lowest);
    while entries.len() > RECOMMENDATIONS {
        (highest, lowest) = (merged(&highest), merged(&lowest));
        *entries = united(&highest, &lowest);
    }
}

/// Returns the entries that are higher than all newer entries, and those that are lower, oldest first. A window uses only
/// its highest or its lowest entry, so it never uses any other entry. The newest entry is always included.
fn unsurpassed(entries: &mut [Recommendation]) -> (Vec<Recommendation>, Vec<Recommendation>) {
    entries.sort_by_key(|entry| entry.at);
    let beyond_newer = |beyond: fn(i32, i32) -> bool| {
        let mut kept: Vec<Recommendation> = Vec::new();
        for entry in entries.iter().rev() {
            if kept.last().is_none_or(|newer| beyond(entry.replicas, newer.replicas)) {
                kept.push(*entry);
            }
        }
        kept.reverse();
        kept
    };
    (beyond_newer(|entry, newer| entry > newer), beyond_newer(|entry, newer| entry < newer))
}

/// Merges pairs of neighbors. Each result has the count of the older entry, which is more extreme, and the time of the
/// newer entry.
fn merged(entries: &[Recommendation]) -> Vec<Recommendation> {
    let pairs = entries.chunks(2);
    pairs
        .filter_map(|pair| Some(Recommendation { at: pair.last()?.at, replicas: pair.first()?.replicas }))
        .collect()
}

/// The union of two lists, sorted by time, without duplicates.
fn united(highest: &[Recommendation], lowest: &[Recommendation]) -> Vec<Recommendation> {
    let mut all = [highest, lowest].concat();
    all.sort_by_key(|entry| (entry.at, entry.replicas));
    all.dedup();
    all
}

/// Drops or merges the scale events of one direction beyond their maximum number. `outdated_before` is the start of the
/// longest period of the HPA's policies.
fn bound_scale_events(entries: &mut Vec<ScaleEvent>, now: Timestamp, outdated_before: Timestamp) {
    if entries.len() <= SCALE_EVENTS {
        return;
    }
    let reached = ago(now, LONGEST_PERIOD).min(outdated_before);
    entries.retain(|entry| entry.at >= reached);
    if entries.len() > SCALE_EVENTS {
        entries.sort_by_key(|entry| entry.at);
    }
    while entries.len() > SCALE_EVENTS {
        *entries = entries.chunks(2).filter_map(summed).collect();
    }
}

/// Merges two neighbors into one event. A single event stays unchanged.
fn summed(pair: &[ScaleEvent]) -> Option<ScaleEvent> {
    let (first, last) = (pair.first()?, pair.last()?);
    if pair.len() == 1 {
        return Some(*last);
    }
    Some(ScaleEvent {
        at: last.at,
        change: first.change.saturating_add(last.change),
        earliest: Some(first.earliest().min(last.earliest())),
    })
}
