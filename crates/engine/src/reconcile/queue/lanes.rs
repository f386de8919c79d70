//! The due keys that can be handed out, in two lanes with turns by namespace. The module also contains the keys that
//! were recently handed out as fresh keys.
//!
//! In one turn, a namespace hands out several periodic keys. Few namespaces are then in progress at the same time, and
//! the HPAs of a namespace share their metrics. Fresh keys come first. While periodic keys are due, however, a
//! namespace hands out only one fresh key per round. A round ends when every namespace with periodic keys has had its
//! turn. Changes of HPAs therefore cannot increase the share of a namespace in the hand-outs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::fair::{Rotation, Turn};
use tokio::time::Instant;

use super::{Lane, Position, Queue};
use crate::store::Key;

/// If this many syncs of a namespace wait for a token of the rate limit, no keys of the namespace are handed out.
const MAX_TOKEN_WAITS: usize = 8;
/// Maximum number of periodic keys that a namespace hands out in one turn.
pub(super) const KEYS_PER_TURN: u32 = 16;
/// The rank of a namespace while its keys are not handed out.
const BLOCKED: u64 = u64::MAX;

#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The rank of a namespace is the first round in which its keys have priority.
    fresh: Rotation<Position, Key>,
    periodic: Rotation<Position, Key>,
    /// The last turn with a periodic key, and the number of keys handed out in it.
    turn: Option<(Turn, u32)>,
    round: u64,
    /// Number of the first turn of the next round.
    round_end: u64,
    /// Namespaces with a fresh key handed out in this round.
    served: BTreeSet<Arc<str>>,
    /// Number of syncs that wait for a token, by namespace, without zeros.
    token_waits: BTreeMap<Arc<str>, usize>,
}

impl Lanes {
    pub(super) fn insert(&mut self, lane: Lane, position: Position, key: Key) {
        let (namespace, rank) = (Arc::clone(&key.namespace), self.rank(lane, &key.namespace));
        self.lane(lane).insert(&namespace, rank, position, key);
    }

    pub(super) fn remove(&mut self, lane: Lane, namespace: &str, position: &Position) -> Option<Key> {
        self.lane(lane).remove(namespace, position)
    }

    /// Takes the next key.
    pub(super) fn pop(&mut self) -> Option<Key> {
        let periodic = available(&self.periodic);
        if periodic.is_none_or(|turn| turn.number >= self.round_end) {
            self.round += 1;
            self.round_end = self.periodic.next_number();
            self.served.clear();
        }
        match available(&self.fresh) {
            Some(turn) if periodic.is_none() || turn.rank <= self.round => self.pop_fresh(),
            _ => {
                let turn = periodic?;
                let count = self.turn.filter(|(last, _)| *last == turn).map_or(1, |(_, count)| count + 1);
                self.turn = Some((turn, count));
                let next =
                    if count < KEYS_PER_TURN { self.periodic.pop_in_turn() } else { self.periodic.pop() };
                next.map(|(_, _, key)| key)
            }
        }
    }

    /// Takes the next fresh key.
    pub(super) fn pop_fresh(&mut self) -> Option<Key> {
        available(&self.fresh)?;
        let (namespace, _, key) = self.fresh.pop()?;
        self.served.insert(Arc::clone(&namespace));
        let rank = self.rank(Lane::Fresh, &namespace);
        self.fresh.set_rank(&namespace, rank);
        Some(key)
    }

    /// Removes all keys, in order of positions.
    pub(super) fn drain(&mut self) -> BTreeMap<Position, Key> {
        self.periodic.drain().chain(self.fresh.drain()).collect()
    }

    /// Records that a sync waits for a token of the rate limit.
    pub(super) fn token_wait_started(&mut self, namespace: &Arc<str>) {
        *self.token_waits.entry(Arc::clone(namespace)).or_default() += 1;
        self.update_ranks(namespace);
    }

    /// Records that a sync no longer waits for a token.
    pub(super) fn token_wait_ended(&mut self, namespace: &Arc<str>) {
        if let Some(count) = self.token_waits.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                self.token_waits.remove(namespace);
            }
        }
        self.update_ranks(namespace);
    }

    /// Returns whether a key can be handed out.
    pub(super) fn is_ready(&self) -> bool {
        self.is_fresh_ready() || available(&self.periodic).is_some()
    }

    /// Returns whether a fresh key can be handed out.
    pub(super) fn is_fresh_ready(&self) -> bool {
        available(&self.fresh).is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.fresh.len() + self.periodic.len()
    }

    fn update_ranks(&mut self, namespace: &str) {
        let (fresh, periodic) = (self.rank(Lane::Fresh, namespace), self.rank(Lane::Periodic, namespace));
        self.fresh.set_rank(namespace, fresh);
        self.periodic.set_rank(namespace, periodic);
    }

    fn rank(&self, lane: Lane, namespace: &str) -> u64 {
        match lane {
            _ if self.token_waits.get(namespace).is_some_and(|count| *count >= MAX_TOKEN_WAITS) => BLOCKED,
            Lane::Periodic => 0,
            Lane::Fresh => self.round + u64::from(self.served.contains(namespace)),
        }
    }

    fn lane(&mut self, lane: Lane) -> &mut Rotation<Position, Key> {
        match lane {
            Lane::Fresh => &mut self.fresh,
            Lane::Periodic => &mut self.periodic,
        }
    }
}

/// Returns the first turn of a lane, unless all its namespaces are blocked.
fn available(lane: &Rotation<Position, Key>) -> Option<Turn> {
    lane.first().filter(|turn| turn.rank < BLOCKED)
}

impl Queue {
    /// Records that the sync of a key waits for a token of a rate limit, until the return value is dropped. While at
    /// least eight syncs of a namespace wait, no keys of the namespace are handed out.
    pub fn token_wait(&self, key: &Key) -> TokenWait<'_> {
        self.state.lock().lanes.token_wait_started(&key.namespace);
        TokenWait { queue: self, namespace: Arc::clone(&key.namespace) }
    }
}

/// A sync that waits for a token of a rate limit.
#[derive(Debug)]
#[must_use]
pub struct TokenWait<'a> {
    queue: &'a Queue,
    namespace: Arc<str>,
}

impl Drop for TokenWait<'_> {
    fn drop(&mut self) {
        self.queue.state.lock().lanes.token_wait_ended(&self.namespace);
        self.queue.changed.notify_one();
        self.queue.fresh_added.notify_one();
    }
}

/// Minimum interval between a hand-out of a fresh key and its next hand-out for a change. Each further interval with a
/// change is twice as long, so that HPAs that are edited in a loop use few of the shared tokens. An interval without a
/// change ends the sequence.
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
    /// Records a hand-out, which covers all changes so far. `fresh`: whether an interval starts.
    pub(super) fn handed_out(&mut self, key: &Key, now: Instant, fresh: bool) {
        if fresh {
            let length = self.by_key.get(key).map_or(FIRST_INTERVAL, |interval| interval.length);
            self.start(key, now, length);
        } else {
            self.forget_change(key);
        }
    }

    /// Records a change of a key for the end of its interval. Returns false if the key is in no interval.
    pub(super) fn defer_change(&mut self, key: &Key) -> bool {
        let Some(interval) = self.by_key.get_mut(key) else { return false };
        interval.changed = true;
        true
    }

    /// Drops a recorded change. The interval remains, so that an HPA that is recreated in a loop is not synced more
    /// often.
    pub(super) fn forget_change(&mut self, key: &Key) {
        if let Some(interval) = self.by_key.get_mut(key) {
            interval.changed = false;
        }
    }

    /// Returns the earliest end of an interval.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_end.first_key_value().map(|((at, _), _)| *at)
    }

    /// Ends an interval whose end was reached. Returns the end, and the key if it has changed.
    pub(super) fn pop_ended(&mut self, now: Instant) -> Option<(Instant, Option<Key>)> {
        let entry = self.by_end.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((end, _), key) = entry.remove_entry();
        let interval = self.by_key.remove(&key).filter(|interval| interval.changed);
        let changed = interval.map(|Interval { length, .. }| {
            // The hand-out of the key restarts this interval.
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
