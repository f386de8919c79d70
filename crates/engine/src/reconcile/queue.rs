//! The work queue: due HPAs in order, and HPAs in progress.
//!
//! The semantics are those of client-go's delaying queue:
//! - A key waits at most once. The earlier of two times wins.
//! - An immediate add keeps a later due time, so that the periodic sync remains due.
//! - A key is never in progress twice at the same time. A key that is added while in progress is due again after
//!   [`Queue::done`].
//! - Of several due keys of a namespace, the key with the earliest due time comes first.
//!
//! Three rules are specific to this queue:
//! - Namespaces take turns.
//! - Keys that are added without a delay, for example of new or changed HPAs, come before periodic keys. The share of
//!   each namespace is limited (`lanes`).
//! - A key is handed out for a change at most once a second, or once in eight seconds if it changes continuously
//!   (`lanes`). A change within such an interval is due at the end of the interval.
//!
//! The queue has no background task. Instead, each call first moves the keys that have become due, in the order of
//! their due times.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

pub use self::lanes::TokenWait;
use self::lanes::{Lanes, Recent};
use crate::store::{FixedHasher, Key, shrink};
use crate::telemetry::metrics::Workqueue;

mod lanes;

/// A work queue of HPAs. Any number of workers may wait in [`Self::wait`].
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
    waiting_at: HashMap<Key, Position, FixedHasher>,
    added: u64,
    /// Due keys that can be handed out.
    lanes: Lanes,
    recent: Recent,
    /// All due keys: the ready keys, and the keys that became due while in progress.
    dirty: BTreeMap<Key, Waiting>,
    /// Keys in progress, with the start of the work.
    processing: BTreeMap<Key, Instant>,
    has_begun: bool,
    shut_down: bool,
}

/// The reason why a key is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// The key was added without a delay, for example because the HPA is new or has changed.
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
}

/// A key that was handed out. The caller must call [`Queue::done`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The key.
    pub key: Key,
    /// Time between the due time and the hand-out.
    pub lateness: Duration,
}

impl Queue {
    /// Creates an empty queue.
    pub fn new(metrics: Workqueue) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), fresh_added: Notify::new(), metrics }
    }

    /// Makes a key due now. If the key is already due, moves it to the fresh keys. A later due time of the key stays.
    pub fn add(&self, key: &Key) {
        let now = Instant::now();
        if let Some(mut state) = self.open(now) {
            self.make_due(&mut state, key.clone(), Lane::Fresh, now);
        }
    }

    /// Makes a key due because its HPA is new or has changed. The key is due now, or at the end of the interval after
    /// its last hand-out as a fresh key.
    pub fn add_changed(&self, key: &Key) {
        let now = Instant::now();
        if let Some(mut state) = self.open(now)
            && !state.recent.defer_change(key)
        {
            self.make_due(&mut state, key.clone(), Lane::Fresh, now);
        }
    }

    /// Makes a key due at an instant. Does nothing if the key already waits for an earlier instant.
    pub fn add_at(&self, key: &Key, at: Instant) {
        let now = Instant::now();
        let Some(mut state) = self.open(now) else { return };
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
                if state.lanes.is_ready() {
                    return true;
                }
                state.next()
            };
            until(changed, next).await;
        }
    }

    /// Waits until a fresh key is due and keeps it in the queue. False once the queue is shut down.
    pub async fn wait_fresh(&self) -> bool {
        loop {
            let fresh_added = self.fresh_added.notified();
            let next = {
                let state = self.up_to(Instant::now());
                if state.shut_down {
                    return false;
                }
                if state.lanes.is_fresh_ready() {
                    return true;
                }
                state.recent.next()
            };
            until(fresh_added, next).await;
        }
    }

    /// Returns whether a key is due or waits for a due time.
    pub fn has(&self, key: &Key) -> bool {
        let state = self.up_to(Instant::now());
        state.waiting_at.contains_key(key) || state.dirty.contains_key(key)
    }

    /// Hands out a due key. `None` if no key can be handed out.
    pub fn take(&self) -> Option<Due> {
        self.take_next(Lanes::pop)
    }

    /// Hands out a due key of the fresh lane. `None` if no such key can be handed out.
    pub fn take_fresh(&self) -> Option<Due> {
        self.take_next(Lanes::pop_fresh)
    }

    fn take_next(&self, pop: impl FnOnce(&mut Lanes) -> Option<Key>) -> Option<Due> {
        let now = Instant::now();
        let mut state = self.open(now)?;
        let key = pop(&mut state.lanes)?;
        let waited = state.dirty.remove(&key);
        state.recent.handed_out(&key, now, waited.is_some_and(|waited| waited.lane == Lane::Fresh));
        state.processing.insert(key.clone(), now);
        let lateness = waited.map_or(Duration::ZERO, |waited| now.duration_since(waited.position.0));
        self.metrics.depth(state.dirty.len());
        self.metrics.handed_out(lateness);
        // The notification woke only this worker, so another worker must be woken for the next key.
        if state.lanes.is_ready() || state.next().is_some() {
            self.changed.notify_one();
        }
        if state.lanes.is_fresh_ready() || state.recent.next().is_some() {
            self.fresh_added.notify_one();
        }
        Some(Due { key, lateness })
    }

    /// Sets the due time of all due keys to now, when this process starts to act. All due keys become periodic, so that
    /// keys that are added later come first.
    pub fn begin(&self) {
        let now = Instant::now();
        let mut state = self.up_to(now);
        let state = &mut *state;
        state.has_begun = true;
        for waiting in state.dirty.values_mut() {
            (waiting.lane, waiting.position.0) = (Lane::Periodic, now);
        }
        let ready: BTreeMap<_, _> =
            state.lanes.drain().into_iter().map(|((_, added), key)| (added, key)).collect();
        for (added, key) in ready {
            state.lanes.insert(Lane::Periodic, (now, added), key);
        }
    }

    /// Returns whether this process has started to act.
    pub fn has_begun(&self) -> bool {
        self.state.lock().has_begun
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
            state.lanes.insert(lane, position, key.clone());
            self.notify(lane);
        }
    }

    /// Drops a waiting or due key of a deleted HPA. Work in progress continues.
    pub fn forget(&self, key: &Key) {
        let mut state = self.up_to(Instant::now());
        if let Some(position) = state.waiting_at.remove(key) {
            state.waiting.remove(&position);
            shrink(&mut state.waiting_at);
        }
        if let Some(Waiting { lane, position, .. }) = state.dirty.remove(key) {
            state.lanes.remove(lane, &key.namespace, &position);
            self.metrics.depth(state.dirty.len());
        }
        state.recent.forget_change(key);
    }

    /// Shuts the queue down: hands out no keys and accepts none. Work in progress still ends with [`Self::done`].
    pub fn shut_down(&self) {
        self.state.lock().shut_down = true;
        self.changed.notify_waiters();
        self.fresh_added.notify_waiters();
    }

    /// Returns the number of due keys that are not in progress.
    pub fn len(&self) -> usize {
        self.up_to(Instant::now()).lanes.len()
    }

    /// Returns whether no key is due.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys that wait for their due time.
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

    /// Returns the state from [`Self::up_to`]. `None` if the queue is shut down.
    fn open(&self, now: Instant) -> Option<MutexGuard<'_, State>> {
        Some(self.up_to(now)).filter(|state| !state.shut_down)
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
        while let Some((at, changed)) = state.recent.pop_ended(now) {
            if let Some(key) = changed {
                self.make_due(&mut state, key, Lane::Fresh, at);
            }
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
        if let Some(due) = state.dirty.get_mut(&key) {
            if (lane, due.lane) == (Lane::Fresh, Lane::Periodic) {
                // The key moves to the front and keeps its due time.
                due.lane = lane;
                let position = due.position;
                if let Some(key) = state.lanes.remove(Lane::Periodic, &key.namespace, &position) {
                    state.lanes.insert(lane, position, key);
                    self.notify(lane);
                }
            }
            return;
        }
        state.added += 1;
        let position = (since, state.added);
        state.dirty.insert(key.clone(), Waiting { lane, position });
        self.metrics.added();
        self.metrics.depth(state.dirty.len());
        if !state.processing.contains_key(&key) {
            state.lanes.insert(lane, position, key);
            self.notify(lane);
        }
    }
}

/// Waits for a notification, at most until an instant.
async fn until(notified: Notified<'_>, at: Option<Instant>) {
    match at {
        Some(at) => tokio::select! {
            biased;
            () = notified => {}
            () = tokio::time::sleep_until(at) => {}
        },
        None => notified.await,
    }
}

impl State {
    /// Returns the next time at which a key may become due.
    fn next(&self) -> Option<Instant> {
        let waiting = self.waiting.first_key_value().map(|((at, _), _)| *at);
        waiting.into_iter().chain(self.recent.next()).min()
    }
}

#[cfg(test)]
mod tests;
