//! What is remembered of each HPA, by UID: an HPA recreated under its name starts anew.
//!
//! Every history has the number of its last change, so that whoever keeps a copy asks only for what is new.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::fmt;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use autoscaling::history::{Added, Changes, Direction, History, ScaleEvent};
use autoscaling::spec::Behavior;
use jiff::{SignedDuration, Timestamp};

use crate::clock::Anchor;

/// The histories of all HPAs.
#[derive(Debug, Default)]
pub struct Histories {
    /// Numbers of changes mean something within one process only.
    epoch: u64,
    /// It was asked what was before this process led.
    has_past: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_uid: BTreeMap<Arc<str>, Entry>,
    /// The same UIDs by their last change.
    by_change: BTreeMap<u64, Arc<str>>,
    /// The last number that was given.
    last: u64,
    /// When the time of day was read first, or was set since.
    anchor: Option<Anchor>,
    /// By how much the time of day was set in all.
    set: SignedDuration,
}

/// When a sync decides, and by which setting of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time of day.
    pub at: Timestamp,
    /// By how much the clock had been set before, in all.
    pub set: SignedDuration,
}

#[derive(Debug, Default)]
struct Entry {
    history: Arc<History>,
    change: u64,
}

/// How far a copy of the histories goes; as text `epoch.change`, the epoch in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revision {
    /// Of which process it is a copy.
    pub epoch: u64,
    /// The last change in it.
    pub change: u64,
}

/// What has changed, in the order of the last changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Nothing of a copy that was there before belongs to it: this is its beginning.
    pub anew: bool,
    /// How far the copy goes with it.
    pub upto: Revision,
    /// There is more to be asked for.
    pub more: bool,
    /// Histories by UID, each as it is now.
    pub histories: Vec<(Arc<str>, Arc<History>)>,
}

/// A rescale that another process made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenRescale {
    /// When, in whole seconds, as `status.lastScaleTime` has it.
    pub at: Timestamp,
    /// The count before.
    pub from: i32,
    /// The count that was written.
    pub to: i32,
}

impl Histories {
    /// No history yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// No history yet. `epoch`: a number that tells this process from all others.
    pub fn of_epoch(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// A copy of one HPA's history; empty if there is none.
    pub fn get(&self, uid: &str) -> History {
        let kept = self.lock().by_uid.get(uid).map(|entry| Arc::clone(&entry.history));
        kept.map(|history| History::clone(&history)).unwrap_or_default()
    }

    /// It is asked now what was before: of HPAs that come later, nobody will ask any more.
    pub fn begin_past(&self) {
        self.has_past.store(true, Ordering::Relaxed);
    }

    /// Whether [`Self::begin_past`] was called.
    pub fn has_past(&self) -> bool {
        self.has_past.load(Ordering::Relaxed)
    }

    /// Puts what is known of an HPA's past in the place of what was remembered.
    pub fn seed(&self, uid: &Arc<str>, history: History) {
        self.change(uid, |kept| {
            *kept = history;
            true
        });
    }

    /// Commits what a sync added that decided at this moment.
    pub fn commit(&self, uid: &Arc<str>, changes: &Changes, moment: Moment) {
        let set = self.lock().set.saturating_sub(moment.set);
        if set.is_zero() {
            self.add(uid, changes);
        } else {
            // The clock was set while the sync was under way.
            let mut changes = changes.clone();
            changes.shift(set);
            self.add(uid, &changes);
        }
    }

    /// What the time of day says now. If it has been set since it was read last, by more than a running clock is ever
    /// corrected, all that is remembered moves along: windows and periods last as long as they last.
    pub fn moment(&self, at: Timestamp) -> Moment {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let by = inner.anchor.get_or_insert_with(|| Anchor::at(at)).set_by(at);
        if !by.is_zero() {
            tracing::warn!(%by, "the clock was set; what is remembered stays as old as it is");
            inner.anchor = Some(Anchor::at(at));
            inner.set = inner.set.saturating_add(by);
            inner.by_change.clear();
            for (uid, entry) in &mut inner.by_uid {
                Arc::make_mut(&mut entry.history).shift(by);
                // Whoever has a copy needs all of them again.
                inner.last += 1;
                entry.change = inner.last;
                inner.by_change.insert(entry.change, Arc::clone(uid));
            }
        }
        Moment { at, set: inner.set }
    }

    fn add(&self, uid: &Arc<str>, changes: &Changes) {
        if *changes != Changes::default() {
            self.change(uid, |history| {
                history.commit(changes);
                true
            });
        }
    }

    /// Remembers a rescale that the watch shows now, unless it is remembered already.
    pub fn remember(&self, uid: &Arc<str>, behavior: &Behavior, rescale: SeenRescale, now: Timestamp) {
        let SeenRescale { at, from, to } = rescale;
        self.change(uid, |history| {
            let events = if to > from { &history.scale_ups } else { &history.scale_downs };
            let known = total(events, at);
            let missing = i64::from(from).abs_diff(i64::from(to)).saturating_sub(known);
            if missing == 0 {
                return false;
            }
            // Of what happened within that second, only what is not remembered.
            let missing = i32::try_from(missing).unwrap_or(i32::MAX);
            let (from, to) = if to > from { (0, missing) } else { (missing, 0) };
            let mut changes = Changes::rescaled(behavior, from, to, at);
            if let Some((_, Added { entry, .. })) = &mut changes.scale_event {
                entry.earliest = Some(at);
                entry.at = end_of_second(at).min(now).max(at);
            }
            history.commit(&changes);
            true
        });
    }

    /// Takes over what another process knew of an HPA. What is known here and missing there stays: rescales that the
    /// watch has shown, and what is in doubt.
    pub fn inherit(&self, uid: &Arc<str>, mut known: History) {
        self.change(uid, |history| {
            add_missing(&mut known, Direction::Up, &history.scale_ups);
            add_missing(&mut known, Direction::Down, &history.scale_downs);
            known.unknown_up = known.unknown_up.max(history.unknown_up);
            known.unknown_down = known.unknown_down.max(history.unknown_down);
            known.unsettled = known.unsettled.or(history.unsettled);
            known.inherited = known.inherited.max(history.inherited);
            if known.recommendations.is_empty() {
                known.recommendations = std::mem::take(&mut history.recommendations);
            }
            *history = known;
            true
        });
    }

    /// Forgets an HPA.
    pub fn forget(&self, uid: &str) {
        let mut inner = self.lock();
        if let Some(entry) = inner.by_uid.remove(uid) {
            inner.by_change.remove(&entry.change);
        }
    }

    /// What has changed since, at most this many histories. All of them for whoever has no copy, or one of another
    /// process.
    pub fn changed_since(&self, since: Option<Revision>, most: usize) -> Changed {
        let inner = self.lock();
        let since = since.filter(|since| since.epoch == self.epoch && since.change <= inner.last);
        let after = since.map_or(Bound::Unbounded, |since| Bound::Excluded(since.change));
        let mut changed = inner.by_change.range((after, Bound::Unbounded));
        let mut upto = since.map_or(0, |since| since.change);
        let mut histories = Vec::new();
        for (change, uid) in changed.by_ref().take(most) {
            if let Some(entry) = inner.by_uid.get(uid) {
                histories.push((Arc::clone(uid), Arc::clone(&entry.history)));
            }
            upto = *change;
        }
        let more = changed.next().is_some();
        if !more {
            upto = inner.last;
        }
        Changed { anew: since.is_none(), upto: Revision { epoch: self.epoch, change: upto }, more, histories }
    }

    /// How far a copy of everything goes now.
    pub fn revision(&self) -> Revision {
        Revision { epoch: self.epoch, change: self.lock().last }
    }

    /// How many HPAs have a history.
    pub fn len(&self) -> usize {
        self.lock().by_uid.len()
    }

    /// Whether no HPA has one.
    pub fn is_empty(&self) -> bool {
        self.lock().by_uid.is_empty()
    }

    /// Changes one history, if `change` says that it did. Whoever copies it meanwhile has it as it was before.
    fn change(&self, uid: &Arc<str>, change: impl FnOnce(&mut History) -> bool) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let number = inner.last + 1;
        let (key, before) = match inner.by_uid.entry(Arc::clone(uid)) {
            Place::Occupied(mut place) => {
                let entry = place.get_mut();
                if !change(Arc::make_mut(&mut entry.history)) {
                    return;
                }
                let before = std::mem::replace(&mut entry.change, number);
                (Arc::clone(place.key()), Some(before))
            }
            Place::Vacant(place) => {
                let mut history = History::default();
                if !change(&mut history) {
                    return;
                }
                let key = Arc::clone(place.key());
                place.insert(Entry { history: Arc::new(history), change: number });
                (key, None)
            }
        };
        if let Some(before) = before {
            inner.by_change.remove(&before);
        }
        inner.by_change.insert(number, key);
        inner.last = number;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// By how many pods the events within this second change the count. A status has whole seconds.
fn total(events: &[ScaleEvent], second: Timestamp) -> u64 {
    let same = events.iter().filter(|event| event.at.as_second() == second.as_second());
    same.map(|event| u64::try_from(event.change).unwrap_or(0)).sum()
}

/// Adds what `ours` has within a second beyond what `theirs` has within it.
fn add_missing(theirs: &mut History, direction: Direction, ours: &[ScaleEvent]) {
    for event in ours {
        let known = match direction {
            Direction::Up => &theirs.scale_ups,
            Direction::Down => &theirs.scale_downs,
        };
        let missing = total(ours, event.at).saturating_sub(total(known, event.at));
        let change = event.change.min(i32::try_from(missing).unwrap_or(i32::MAX));
        if change > 0 {
            // It takes nobody's slot.
            let added = Added { entry: ScaleEvent { change, ..*event }, outdated_before: Timestamp::MIN };
            theirs.commit(&Changes { scale_event: Some((direction, added)), ..Changes::default() });
        }
    }
}

/// The last instant that is told as this second.
fn end_of_second(second: Timestamp) -> Timestamp {
    second.checked_add(SignedDuration::from_nanos(999_999_999)).unwrap_or(Timestamp::MAX)
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}", self.epoch, self.change)
    }
}

impl FromStr for Revision {
    type Err = RevisionError;

    fn from_str(text: &str) -> Result<Self, RevisionError> {
        let (epoch, change) = text.split_once('.').ok_or(RevisionError)?;
        let epoch = u64::from_str_radix(epoch, 16).map_err(|_| RevisionError)?;
        Ok(Self { epoch, change: change.parse().map_err(|_| RevisionError)? })
    }
}

/// A text is no revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be an epoch in hexadecimal, a dot and a number")]
pub struct RevisionError;

#[cfg(test)]
mod tests {
    use autoscaling::history::Recommendation;
    use autoscaling::spec::{PolicyKind, ScalingPolicy, ScalingRules};

    use std::time::Duration;

    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2030-01-01T00:{text}Z").parse().unwrap()
    }

    fn recommends(replicas: i32) -> Changes {
        let entry = Recommendation { at: at("01:00"), replicas };
        let added = Added { entry, outdated_before: Timestamp::MIN };
        Changes { recommendation: Some(added), ..Changes::default() }
    }

    fn uids(changed: &Changed) -> Vec<&str> {
        changed.histories.iter().map(|(uid, _)| &**uid).collect()
    }

    /// A rate over ten minutes in both directions.
    fn behavior() -> Behavior {
        let policy = ScalingPolicy { kind: PolicyKind::Pods, value: 4, period_seconds: 600 };
        let rules = ScalingRules { policies: [policy].into(), ..ScalingRules::default() };
        Behavior { scale_up: rules.clone(), scale_down: rules }
    }

    fn ups(events: &[ScaleEvent]) -> History {
        History { scale_ups: events.to_vec(), ..History::default() }
    }

    fn event(time: &str, change: i32) -> ScaleEvent {
        ScaleEvent::new(at(time), change)
    }

    /// What the watch has shown of a second that is over.
    fn seen(time: &str, change: i32) -> ScaleEvent {
        ScaleEvent { earliest: Some(at(time)), ..event(&format!("{time}.999999999"), change) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_leaves_everything_as_old_as_it_is() {
        let (histories, uid) = (Histories::new(), Arc::from("a"));
        let before = histories.moment(at("01:00"));
        histories.commit(&uid, &recommends(3), before);
        tokio::time::advance(Duration::from_secs(30)).await;
        let back = histories.moment(at("01:30") - SignedDuration::from_hours(1));
        let age = |moment: Moment| moment.at.duration_since(histories.get("a").recommendations[0].at);
        assert_eq!(age(back), SignedDuration::from_secs(30));
        // A sync that began before.
        histories.commit(&uid, &recommends(4), before);
        assert_eq!(histories.get("a").recommendations[1].at, histories.get("a").recommendations[0].at);
        tokio::time::advance(Duration::from_secs(30)).await;
        let ahead = histories.moment(at("02:00") + SignedDuration::from_hours(5));
        assert_eq!(age(ahead), SignedDuration::from_mins(1));
        // Who has a copy of it as it was gets it once more.
        let copied = histories.revision();
        let again = histories.moment(ahead.at - SignedDuration::from_hours(5));
        assert_eq!(uids(&histories.changed_since(Some(copied), 9)), ["a"]);
        // What a clock is corrected by while it runs moves nothing.
        let kept = histories.get("a");
        histories.moment(again.at + SignedDuration::from_millis(900));
        assert_eq!(histories.get("a"), kept);
    }

    #[test]
    fn a_copy_is_told_what_changed_since_and_nothing_twice() {
        let histories = Histories::of_epoch(7);
        let all: Vec<Arc<str>> = ["a", "b", "c"].map(Arc::from).into();
        for uid in &all {
            histories.add(uid, &recommends(1));
        }
        let first = histories.changed_since(None, 10);
        assert_eq!((uids(&first), first.anew, first.more), (vec!["a", "b", "c"], true, false));
        histories.add(&all[1], &recommends(2));
        let next = histories.changed_since(Some(first.upto), 10);
        assert_eq!((uids(&next), next.anew), (vec!["b"], false));
        assert_eq!(next.histories[0].1.recommendations.len(), 2);
        assert!(histories.changed_since(Some(next.upto), 10).histories.is_empty());
        // What was copied stays as it was.
        assert_eq!(first.histories[1].1.recommendations.len(), 1);
    }

    #[test]
    fn a_copy_of_another_process_begins_anew() {
        let histories = Histories::of_epoch(7);
        histories.add(&"a".into(), &recommends(1));
        let revision = histories.revision();
        assert!(histories.changed_since(Some(Revision { epoch: 8, ..revision }), 10).anew);
        assert!(histories.changed_since(Some(Revision { change: 2, ..revision }), 10).anew);
        assert!(!histories.changed_since(Some(revision), 10).anew);
    }

    #[test]
    fn many_changes_come_in_parts() {
        let histories = Histories::of_epoch(7);
        for number in 0..5 {
            histories.add(&format!("hpa-{number}").into(), &recommends(1));
        }
        let (mut since, mut seen) = (None, Vec::new());
        loop {
            let part = histories.changed_since(since, 2);
            assert_eq!(part.anew, since.is_none());
            seen.extend(uids(&part).into_iter().map(str::to_owned));
            since = Some(part.upto);
            if !part.more {
                break;
            }
        }
        assert_eq!(seen, ["hpa-0", "hpa-1", "hpa-2", "hpa-3", "hpa-4"]);
        assert_eq!(since, Some(histories.revision()));
    }

    #[test]
    fn what_is_forgotten_leaves_nothing() {
        let histories = Histories::of_epoch(7);
        histories.add(&"a".into(), &recommends(1));
        histories.forget("a");
        assert!(histories.is_empty());
        assert!(histories.changed_since(None, 10).histories.is_empty());
        assert!(histories.lock().by_change.is_empty());
    }

    #[test]
    fn a_rescale_that_is_remembered_already_is_not_counted_again() {
        let rescale = |from, to| SeenRescale { at: at("01:00"), from, to };
        let (before, known) = (event("00:05.25", 2), event("01:00.75", 3));
        let cases = [
            ("new", vec![before], rescale(1, 4), vec![before, seen("01:00", 3)]),
            ("known", vec![known], rescale(1, 4), vec![known]),
            ("known in part", vec![known], rescale(1, 6), vec![known, seen("01:00", 2)]),
        ];
        for (what, remembered, rescale, expected) in cases {
            let (histories, uid) = (Histories::new(), Arc::from("a"));
            histories.seed(&uid, ups(&remembered));
            let revision = histories.revision();
            histories.remember(&uid, &behavior(), rescale, at("02:00"));
            assert_eq!(histories.get("a"), ups(&expected), "{what}");
            assert_eq!(histories.revision() == revision, remembered.len() == expected.len(), "{what}");
        }
    }

    #[test]
    fn a_rescale_of_this_very_second_is_not_in_the_future() {
        let (histories, uid) = (Histories::new(), Arc::from("a"));
        let rescale = SeenRescale { at: at("01:00"), from: 1, to: 4 };
        histories.remember(&uid, &behavior(), rescale, at("01:00.25"));
        let expected = ScaleEvent { earliest: Some(at("01:00")), ..event("01:00.25", 3) };
        assert_eq!(histories.get("a"), ups(&[expected]));
    }

    #[test]
    fn what_the_watch_has_shown_stays_beside_what_is_inherited_and_is_not_counted_twice() {
        let (histories, uid) = (Histories::new(), Arc::from("a"));
        for (time, to) in [("01:00", 4), ("02:00", 3)] {
            let rescale = SeenRescale { at: at(time), from: 1, to };
            histories.remember(&uid, &behavior(), rescale, at("05:00"));
        }
        let theirs = [event("00:30.5", 1), event("01:00.25", 3)];
        histories.inherit(&uid, ups(&theirs));
        assert_eq!(histories.get("a"), ups(&[theirs[0], theirs[1], seen("02:00", 2)]));
    }

    #[test]
    fn a_revision_is_read_as_it_is_written() {
        let revision = Revision { epoch: u64::MAX - 1, change: 12 };
        assert_eq!(revision.to_string(), "fffffffffffffffe.12");
        assert_eq!(revision.to_string().parse(), Ok(revision));
        for wrong in ["", ".", "1", "1.", "g.1", "1.-1", "1.2.3"] {
            assert_eq!(wrong.parse::<Revision>(), Err(RevisionError), "{wrong}");
        }
    }
}
