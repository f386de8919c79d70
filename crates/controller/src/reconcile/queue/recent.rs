//! The keys that were handed out as fresh keys a short time ago.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Position;
use crate::store::Key;

/// First minimum interval between a hand-out of a fresh key and its next hand-out for a change. Each further
/// interval with a change is twice as long, so that HPAs that are edited in a loop use few of the tokens of
/// all HPAs. An interval without a change ends the sequence.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum interval.
const MAX_INTERVAL: Duration = Duration::from_secs(8);

/// Keys within an interval after a hand-out as fresh keys, and whether they have changed since.
#[derive(Debug, Default)]
pub(super) struct Recent {
    by_end: BTreeMap<Position, Key>,
    by_key: BTreeMap<Key, Interval>,
    recorded: u64,
}

#[derive(Debug, Clone, Copy)]
struct Interval {
    end: Position,
    length: Duration,
    changed: bool,
}

impl Recent {
    /// Records a hand-out. The HPA's current state counts as synced. `fresh`: whether an interval starts.
    pub(super) fn handed_out(&mut self, key: &Key, now: Instant, fresh: bool) {
        if fresh {
            let length = self.by_key.get(key).map_or(FIRST_INTERVAL, |interval| interval.length);
            self.start(key, now, length);
        } else {
            self.forget_change(key);
        }
    }

    /// Records a change of a key for the end of its interval. False if the key is in no interval.
    pub(super) fn defer_change(&mut self, key: &Key) -> bool {
        let Some(interval) = self.by_key.get_mut(key) else { return false };
        interval.changed = true;
        true
    }

    /// Drops a recorded change. The interval remains, so that an HPA that is recreated in a loop is not synced
    /// more often.
    pub(super) fn forget_change(&mut self, key: &Key) {
        if let Some(interval) = self.by_key.get_mut(key) {
            interval.changed = false;
        }
    }

    /// The end of the first interval.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_end.first_key_value().map(|((at, _), _)| *at)
    }

    /// Ends an interval whose end was reached. Returns the end, and the key if it has changed.
    pub(super) fn pop_ended(&mut self, now: Instant) -> Option<(Instant, Option<Key>)> {
        let entry = self.by_end.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((end, _), key) = entry.remove_entry();
        let interval = self.by_key.remove(&key).filter(|interval| interval.changed);
        let changed = interval.map(|Interval { length, .. }| {
            // Starts again with the hand-out.
            self.start(&key, end, (length * 2).min(MAX_INTERVAL));
            key
        });
        Some((end, changed))
    }

    fn start(&mut self, key: &Key, at: Instant, length: Duration) {
        self.recorded += 1;
        let end = (at + length, self.recorded);
        let interval = Interval { end, length, changed: false };
        if let Some(previous) = self.by_key.insert(key.clone(), interval) {
            self.by_end.remove(&previous.end);
        }
        self.by_end.insert(end, key.clone());
    }
}
