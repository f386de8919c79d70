//! The work queue: due HPAs in order, and HPAs in progress.
//!
//! The semantics are those of client-go's delaying queue:
//! - A key waits at most once. The earlier of two times wins.
//! - An immediate add keeps the waiting time, so that the periodic sync remains due.
//! - A key is never handed out twice at once. A key that is added while in progress is due again after
//!   [`Queue::done`].
//! - Of several due keys, the key with the earliest due time comes first.
//!
//! One rule is specific to this queue. Keys that are added at once, because their HPA is new or has changed,
//! come before periodic keys, independent of the number of periodic keys.
//!
//! The queue has no background task. Every call first moves the keys that have become due, in the order of
//! their due times.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::store::Key;
use crate::telemetry::metrics::Workqueue;

/// Interval of periodic keys while both lanes have keys: every `PERIODIC_SHARE`-th key is periodic, so that a
/// flood of changes cannot stop periodic syncs.
const PERIODIC_SHARE: u32 = 8;

/// A work queue of HPAs. All methods take `&self`. Any number of workers may wait in [`Self::get`].
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
    /// Signals a new key in the fresh lane, in addition to `changed`.
    fresh_added: Notify,
    metrics: Workqueue,
}

#[derive(Debug, Default)]
struct State {
    /// Keys that are due later, by due time, then by order of adding.
    waiting: BTreeMap<Position, Key>,
    waiting_at: BTreeMap<Key, Position>,
    added: u64,
    /// Due keys that can be handed out, by lane.
    fresh: BTreeMap<Position, Key>,
    periodic: BTreeMap<Position, Key>,
    /// All due keys: the ready keys, and the keys that became due while in progress.
    dirty: BTreeMap<Key, Waiting>,
    /// Keys in progress, with the start of the work.
    processing: BTreeMap<Key, Instant>,
    /// Consecutive fresh keys handed out while periodic ones were due.
    passed: u32,
    shut_down: bool,
}

/// The reason why a key is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// The HPA is new or has changed.
    Fresh,
    /// The due time was reached.
    Periodic,
}

/// A position in a lane: the due time of a key, and the order of adding.
type Position = (Instant, u64);

/// A key that is due.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    lane: Lane,
    position: Position,
    /// The due time for which the key waited, if that time was reached.
    at: Option<Instant>,
}

/// A key that was handed out. The caller must call [`Queue::done`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The key.
    pub key: Key,
    /// Time between the due time and the hand-out.
    pub lateness: Duration,
    /// The due time for which the key waited, if that time was reached.
    pub at: Option<Instant>,
}

impl Queue {
    /// Creates an empty queue.
    pub fn new(metrics: Workqueue) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), fresh_added: Notify::new(), metrics }
    }

    /// Makes a key due now. Does nothing if the key is already due. A time for which the key waits stays.
    pub fn add(&self, key: &Key) {
        let now = Instant::now();
        let mut state = self.up_to(now);
        if state.shut_down {
            return;
        }
        self.make_due(&mut state, key.clone(), Lane::Fresh, now);
    }

    /// Makes a key due after a delay. Does nothing if the key already waits for an earlier time.
    pub fn add_after(&self, key: &Key, delay: Duration) {
        let now = Instant::now();
        // A delay beyond the range of the clock becomes a year.
        self.add_at(key, now.checked_add(delay).unwrap_or(now + Duration::from_hours(365 * 24)));
    }

    /// Makes a key due at an instant. Does nothing if the key already waits for an earlier instant.
    pub fn add_at(&self, key: &Key, at: Instant) {
        let now = Instant::now();
        let mut state = self.up_to(now);
        if state.shut_down {
            return;
        }
        self.metrics.retried();
        if at <= now {
            self.make_due(&mut state, key.clone(), Lane::Periodic, at);
            return;
        }
        if let Some(position) = state.waiting_at.get(key).copied() {
            if position.0 <= at {
                return;
            }
            state.waiting.remove(&position);
        }
        state.added += 1;
        let position = (at, state.added);
        state.waiting.insert(position, key.clone());
        state.waiting_at.insert(key.clone(), position);
        if state.waiting.first_key_value().is_some_and(|(first, _)| *first == position) {
            self.changed.notify_one();
        }
    }

    /// Waits until a key is due and hands the key out. `None` once the queue is shut down.
    pub async fn get(&self) -> Option<Due> {
        while self.wait().await {
            if let Some(due) = self.take() {
                return Some(due);
            }
        }
        None
    }

    /// Waits until a key is due and keeps it in the queue, for a caller that needs another resource before
    /// [`Self::take`]. False once the queue is shut down.
    pub async fn wait(&self) -> bool {
        loop {
            let changed = self.changed.notified();
            let next = {
                let state = self.up_to(Instant::now());
                if state.shut_down {
                    return false;
                }
                if state.ready() > 0 {
                    return true;
                }
                state.waiting.first_key_value().map(|((at, _), _)| *at)
            };
            match next {
                Some(at) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Waits until a fresh key is due and keeps it in the queue. False once the queue is shut down.
    pub async fn wait_fresh(&self) -> bool {
        loop {
            let fresh_added = self.fresh_added.notified();
            {
                let state = self.state.lock();
                if state.shut_down {
                    return false;
                }
                if !state.fresh.is_empty() {
                    return true;
                }
            }
            fresh_added.await;
        }
    }

    /// Whether a key has a due time: it waits for a due time, or has reached one and was not handed out
    /// since.
    pub fn has_time(&self, key: &Key) -> bool {
        let state = self.up_to(Instant::now());
        state.waiting_at.contains_key(key) || state.dirty.get(key).is_some_and(|waiting| waiting.at.is_some())
    }

    /// Hands out a due key, if there is one.
    pub fn take(&self) -> Option<Due> {
        self.take_next(State::pop)
    }

    /// Hands out a due key of a new or changed HPA, if there is one.
    pub fn take_fresh(&self) -> Option<Due> {
        self.take_next(State::pop_fresh)
    }

    fn take_next(&self, pop: impl FnOnce(&mut State) -> Option<Key>) -> Option<Due> {
        let now = Instant::now();
        let mut state = self.up_to(now);
        if state.shut_down {
            return None;
        }
        let key = pop(&mut state)?;
        let waited = state.dirty.remove(&key);
        state.processing.insert(key.clone(), now);
        let lateness = waited.map_or(Duration::ZERO, |waited| now.duration_since(waited.position.0));
        self.metrics.depth(state.dirty.len());
        self.metrics.handed_out(lateness);
        // This worker no longer waits at the queue, so another worker must wake up.
        if state.ready() > 0 || !state.waiting.is_empty() {
            self.changed.notify_one();
        }
        if !state.fresh.is_empty() {
            self.fresh_added.notify_one();
        }
        Some(Due { key, lateness, at: waited.and_then(|waited| waited.at) })
    }

    /// Restarts the due time of all due keys when this process starts to act after another one. All of these
    /// keys become periodic, so that keys added from now on come first.
    pub fn begin(&self) {
        let now = Instant::now();
        let mut state = self.up_to(now);
        let state = &mut *state;
        for waiting in state.dirty.values_mut() {
            (waiting.lane, waiting.position.0) = (Lane::Periodic, now);
        }
        let ready = [std::mem::take(&mut state.periodic), std::mem::take(&mut state.fresh)];
        let ready = ready.into_iter().flatten();
        state.periodic = ready.map(|((_, added), key)| ((now, added), key)).collect();
    }

    /// Ends the work on a key. A key that was added in the meantime is due again.
    pub fn done(&self, key: &Key) {
        let now = Instant::now();
        let mut state = self.up_to(now);
        let Some(since) = state.processing.remove(key) else {
            return;
        };
        self.metrics.finished(now.duration_since(since));
        if let Some(Waiting { lane, position, .. }) = state.dirty.get(key).copied() {
            state.lane(lane).insert(position, key.clone());
            self.notify(lane);
        }
    }

    /// Drops a waiting or due key of a deleted HPA. Work in progress continues.
    pub fn forget(&self, key: &Key) {
        let mut state = self.up_to(Instant::now());
        if let Some(position) = state.waiting_at.remove(key) {
            state.waiting.remove(&position);
        }
        if let Some(Waiting { lane, position, .. }) = state.dirty.remove(key) {
            state.lane(lane).remove(&position);
            self.metrics.depth(state.dirty.len());
        }
    }

    /// Shuts the queue down: hands out no keys and accepts none. Work in progress still ends with
    /// [`Self::done`].
    pub fn shut_down(&self) {
        self.state.lock().shut_down = true;
        self.changed.notify_waiters();
        self.fresh_added.notify_waiters();
    }

    /// Number of due keys that were not handed out.
    pub fn len(&self) -> usize {
        self.up_to(Instant::now()).ready()
    }

    /// Whether no key is due.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of keys that wait for their due time.
    pub fn waiting(&self) -> usize {
        self.up_to(Instant::now()).waiting.len()
    }

    /// Updates the metrics that depend on the time. Must be called before a scrape.
    pub fn publish(&self) {
        let now = Instant::now();
        let state = self.up_to(now);
        self.metrics.depth(state.dirty.len());
        let running = state.processing.values().map(|since| now.duration_since(*since));
        self.metrics.running(running.clone().sum(), running.max().unwrap_or_default());
    }

    /// Returns the state after moving the keys that have become due.
    fn up_to(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while let Some(entry) = state.waiting.first_entry() {
            let (at, _) = *entry.key();
            if at > now {
                break;
            }
            let key = entry.remove();
            state.waiting_at.remove(&key);
            self.make_due(&mut state, key, Lane::Periodic, at);
        }
        state
    }

    fn notify(&self, lane: Lane) {
        self.changed.notify_one();
        if lane == Lane::Fresh {
            self.fresh_added.notify_one();
        }
    }

    fn make_due(&self, state: &mut State, key: Key, lane: Lane, since: Instant) {
        let at = (lane == Lane::Periodic).then_some(since);
        if let Some(due) = state.dirty.get_mut(&key) {
            due.at = due.at.or(at);
            if (lane, due.lane) == (Lane::Fresh, Lane::Periodic) {
                // The key moves to the front and keeps its due time.
                due.lane = lane;
                let position = due.position;
                if let Some(key) = state.periodic.remove(&position) {
                    state.fresh.insert(position, key);
                    self.notify(lane);
                }
            }
            return;
        }
        state.added += 1;
        let position = (since, state.added);
        state.dirty.insert(key.clone(), Waiting { lane, position, at });
        self.metrics.added();
        self.metrics.depth(state.dirty.len());
        if !state.processing.contains_key(&key) {
            state.lane(lane).insert(position, key);
            self.notify(lane);
        }
    }
}

impl State {
    fn lane(&mut self, lane: Lane) -> &mut BTreeMap<Position, Key> {
        match lane {
            Lane::Fresh => &mut self.fresh,
            Lane::Periodic => &mut self.periodic,
        }
    }

    /// Number of keys that can be handed out.
    fn ready(&self) -> usize {
        self.fresh.len() + self.periodic.len()
    }

    /// Takes the next key.
    fn pop(&mut self) -> Option<Key> {
        let both = !self.fresh.is_empty() && !self.periodic.is_empty();
        let (lane, passed) = match self.passed {
            passed if both && passed + 1 < PERIODIC_SHARE => (Lane::Fresh, passed + 1),
            _ if both || self.fresh.is_empty() => (Lane::Periodic, 0),
            _ => (Lane::Fresh, 0),
        };
        self.passed = passed;
        self.lane(lane).pop_first().map(|(_, key)| key)
    }

    fn pop_fresh(&mut self) -> Option<Key> {
        self.fresh.pop_first().map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests;
