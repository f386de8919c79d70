//! The histories of all HPAs, by UID. An HPA that is recreated under its name starts with an empty history.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use autoscaling::history::{AddedEntry, Changes, Direction, History, ScaleEvent};
use autoscaling::spec::Behavior;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use policies::history::PolicyHistory;

use crate::store::{FixedHasher, shrink};
use clock::Anchor;

/// The histories of all HPAs.
#[derive(Debug, Default)]
pub struct Histories {
    /// Whether the restore of earlier histories has started.
    has_past: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_uid: HashMap<Arc<str>, KeptHistory, FixedHasher>,
    /// The number of changes.
    changes: u64,
    /// The first reading of the clock, or the first reading after its last jump.
    anchor: Option<Anchor>,
    /// Sum of all jumps of the clock.
    set: SignedDuration,
}

/// A reading of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// The time of day, uncorrected.
    pub at: Timestamp,
    /// Sum of all jumps of the clock before this reading.
    pub set: SignedDuration,
}

/// The history of an HPA and of its scaling policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeptHistory {
    /// Recommendations and rescales, as the HPA algorithm uses them.
    pub history: Arc<History>,
    /// The metrics of earlier syncs. `None` if no rule of a policy needs them.
    pub policy: Option<Arc<PolicyHistory>>,
    /// The stored state of a forecast. `None` if no policy has one.
    pub forecast: Option<Arc<[u8]>>,
}

impl From<History> for KeptHistory {
    fn from(history: History) -> Self {
        Self { history: Arc::new(history), policy: None, forecast: None }
    }
}

impl KeptHistory {
    /// Shifts all times.
    pub fn shift(&mut self, by: SignedDuration) {
        Arc::make_mut(&mut self.history).shift(by);
        if let Some(policy) = &mut self.policy {
            Arc::make_mut(policy).shift(by);
        }
    }

    /// Marks the history as taken over at `now` from a process that did not shut down cleanly ([`History::inherit`]).
    #[must_use]
    pub fn inherit(self, now: Timestamp) -> Self {
        let history = Arc::unwrap_or_clone(self.history).inherit(now);
        Self { history: Arc::new(history), ..self }
    }
}

/// A rescale by another process, derived from the watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchedRescale {
    /// `status.lastScaleTime`, in whole seconds.
    pub at: Timestamp,
    /// The previous count.
    pub from: i32,
    /// The new count.
    pub to: i32,
}

impl Histories {
    /// Creates empty histories.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a copy of one HPA's history, or an empty history if the HPA has none.
    pub fn get(&self, uid: &str) -> History {
        let kept = self.inner.lock().by_uid.get(uid).map(|kept| Arc::clone(&kept.history));
        kept.map(|history| History::clone(&history)).unwrap_or_default()
    }

    /// Returns the metrics of earlier syncs, for the scaling policy of an HPA.
    pub fn policy(&self, uid: &str) -> Arc<PolicyHistory> {
        let inner = self.inner.lock();
        inner.by_uid.get(uid).and_then(|kept| kept.policy.clone()).unwrap_or_default()
    }

    /// Replaces the metrics of earlier syncs with the metrics of a sync that decided at `moment`. `None` drops the
    /// metrics, because no rule of a policy needs them.
    pub fn commit_policy(&self, uid: &Arc<str>, policy: Option<PolicyHistory>, moment: ClockReading) {
        let (set, is_known) = {
            let inner = self.inner.lock();
            let known = inner.by_uid.get(uid).is_some_and(|kept| kept.policy.is_some());
            (inner.set.saturating_sub(moment.set), known)
        };
        if policy.is_none() && !is_known {
            return;
        }
        let policy = policy.map(|mut policy| {
            policy.shift(set);
            Arc::new(policy)
        });
        self.change_kept(uid, |kept| {
            let is_changed = kept.policy != policy;
            kept.policy = policy;
            is_changed
        });
    }

    /// Returns the stored state of a forecast.
    pub fn forecast(&self, uid: &str) -> Option<Arc<[u8]>> {
        self.inner.lock().by_uid.get(uid).and_then(|kept| kept.forecast.clone())
    }

    /// Replaces the stored state of a forecast. `None` drops it.
    pub fn commit_forecast(&self, uid: &Arc<str>, forecast: Option<Arc<[u8]>>) {
        self.change_kept(uid, |kept| {
            let is_changed = kept.forecast != forecast;
            kept.forecast = forecast;
            is_changed
        });
    }

    /// Marks the start of the restore. The restore does not cover HPAs that appear later.
    pub fn start_restore(&self) {
        self.has_past.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`Self::start_restore`] was called.
    pub fn has_past(&self) -> bool {
        self.has_past.load(Ordering::Relaxed)
    }

    /// Replaces the history of an HPA.
    pub fn seed(&self, uid: &Arc<str>, history: impl Into<KeptHistory>) {
        let history = history.into();
        self.change_kept(uid, |kept| {
            *kept = history;
            true
        });
    }

    /// Commits the changes of a sync that decided at `moment`.
    pub fn commit(&self, uid: &Arc<str>, changes: &Changes, moment: ClockReading) {
        let set = self.inner.lock().set.saturating_sub(moment.set);
        if set.is_zero() {
            self.add(uid, changes);
        } else {
            // The clock jumped during the sync.
            let mut changes = changes.clone();
            changes.shift(set);
            self.add(uid, &changes);
        }
    }

    /// Checks a reading of the wall clock for a jump: a deviation from the monotonic clock that is larger than the
    /// usual corrections. A jump shifts all histories by the same amount, so that windows and periods keep their
    /// length.
    pub fn correct_clock(&self, at: Timestamp) -> ClockReading {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let by = inner.anchor.get_or_insert_with(|| Anchor::at(at)).set_by(at);
        if !by.is_zero() {
            tracing::warn!(%by, "wall clock jumped; adjusted history timestamps");
            inner.anchor = Some(Anchor::at(at));
            inner.set = inner.set.saturating_add(by);
            inner.changes += 1;
            inner.by_uid.values_mut().for_each(|kept| kept.shift(by));
        }
        ClockReading { at, set: inner.set }
    }

    fn add(&self, uid: &Arc<str>, changes: &Changes) {
        if *changes != Changes::default() {
            self.change(uid, |history| {
                history.commit(changes);
                true
            });
        }
    }

    /// Records a rescale that the watch shows, unless the history already contains it.
    pub fn remember(&self, uid: &Arc<str>, behavior: &Behavior, rescale: WatchedRescale, now: Timestamp) {
        // A standby runs no syncs, so nothing else checks its clock for jumps.
        self.correct_clock(now);
        let WatchedRescale { at, from, to } = rescale;
        // The clock of the writer may be ahead. Without this limit, the rescale would affect rates until this clock has
        // caught up.
        let at = at.min(now);
        self.change(uid, |history| {
            let events = if to > from { &history.scale_ups } else { &history.scale_downs };
            let recorded = total(events, at);
            let missing = i64::from(from).abs_diff(i64::from(to)).saturating_sub(recorded);
            if missing == 0 {
                return false;
            }
            // Record only the part of this second's change that the history lacks.
            let missing = i32::try_from(missing).unwrap_or(i32::MAX);
            let (from, to) = if to > from { (0, missing) } else { (missing, 0) };
            let mut changes = Changes::rescaled(behavior, from, to, at);
            if let Some((_, AddedEntry { entry, .. })) = &mut changes.scale_event {
                entry.earliest = Some(at);
                entry.at = end_of_second(at).min(now);
            }
            history.commit(&changes);
            true
        });
    }

    /// Takes over the recorded history of another process. Keeps the entries that only this process has, such as
    /// rescales from the watch and a pending write.
    pub fn inherit(&self, uid: &Arc<str>, recorded: impl Into<KeptHistory>) {
        let KeptHistory { history: recorded, policy, forecast } = recorded.into();
        let mut recorded = Arc::unwrap_or_clone(recorded);
        self.change_kept(uid, |kept| {
            kept.policy = policy.or_else(|| kept.policy.take());
            kept.forecast = forecast.or_else(|| kept.forecast.take());
            let history = Arc::make_mut(&mut kept.history);
            add_missing(&mut recorded, Direction::Up, &history.scale_ups);
            add_missing(&mut recorded, Direction::Down, &history.scale_downs);
            recorded.unknown_up = recorded.unknown_up.max(history.unknown_up);
            recorded.unknown_down = recorded.unknown_down.max(history.unknown_down);
            recorded.unsettled = recorded.unsettled.or(history.unsettled);
            recorded.inherited = recorded.inherited.max(history.inherited);
            if recorded.recommendations.is_empty() {
                recorded.recommendations = std::mem::take(&mut history.recommendations);
            }
            *history = recorded;
            true
        });
    }

    /// Drops the history of an HPA.
    pub fn forget(&self, uid: &str) {
        let mut inner = self.inner.lock();
        inner.by_uid.remove(uid);
        shrink(&mut inner.by_uid);
    }

    /// Returns all histories with their UIDs, in any order.
    pub fn all(&self) -> Vec<(Arc<str>, KeptHistory)> {
        let inner = self.inner.lock();
        inner.by_uid.iter().map(|(uid, kept)| (Arc::clone(uid), kept.clone())).collect()
    }

    /// Returns the number of changes so far. Equal numbers mean equal histories, except for dropped ones.
    pub fn changes(&self) -> u64 {
        self.inner.lock().changes
    }

    /// Returns the number of HPAs with a history.
    pub fn len(&self) -> usize {
        self.inner.lock().by_uid.len()
    }

    /// Returns whether no HPA has a history.
    pub fn is_empty(&self) -> bool {
        self.inner.lock().by_uid.is_empty()
    }

    /// Changes [`KeptHistory::history`] of one HPA.
    fn change(&self, uid: &Arc<str>, change: impl FnOnce(&mut History) -> bool) {
        self.change_kept(uid, |kept| change(Arc::make_mut(&mut kept.history)));
    }

    /// Changes one history. `change` returns whether it changed the history. Concurrent readers keep the previous
    /// version.
    fn change_kept(&self, uid: &Arc<str>, change: impl FnOnce(&mut KeptHistory) -> bool) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if let Some(kept) = inner.by_uid.get_mut(uid) {
            inner.changes += u64::from(change(kept));
            return;
        }
        let mut kept = KeptHistory::default();
        if change(&mut kept) {
            inner.changes += 1;
            inner.by_uid.insert(Arc::clone(uid), kept);
        }
    }
}

/// Returns the number of pods that the events of the given second added or removed. `lastScaleTime` has whole seconds.
fn total(events: &[ScaleEvent], second: Timestamp) -> u64 {
    let same = events.iter().filter(|event| event.at.as_second() == second.as_second());
    same.map(|event| u64::try_from(event.change).unwrap_or(0)).sum()
}

/// Adds the changes of `ours` to `theirs`, except for those that `theirs` contains in the same second.
fn add_missing(theirs: &mut History, direction: Direction, ours: &[ScaleEvent]) {
    for event in ours {
        let recorded = match direction {
            Direction::Up => &theirs.scale_ups,
            Direction::Down => &theirs.scale_downs,
        };
        let missing = total(ours, event.at).saturating_sub(total(recorded, event.at));
        let change = event.change.min(i32::try_from(missing).unwrap_or(i32::MAX));
        if change > 0 {
            // With this bound, the added event replaces no event as outdated.
            let added =
                AddedEntry { entry: ScaleEvent { change, ..*event }, outdated_before: Timestamp::MIN };
            theirs.commit(&Changes { scale_event: Some((direction, added)), ..Changes::default() });
        }
    }
}

/// Returns the last instant of the given second.
fn end_of_second(second: Timestamp) -> Timestamp {
    second.checked_add(SignedDuration::from_nanos(999_999_999)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
