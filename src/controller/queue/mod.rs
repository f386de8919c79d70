//! The work queue: which HPA is due, in which order, and which is being worked on.
//!
//! The semantics are those of client-go's delaying queue with a fixed interval:
//! - a key waits at most once; of two times the earlier wins;
//! - an immediate add leaves the waiting time alone, so the periodic sync that was due stays due;
//! - a key is never handed out twice at once: added while it is worked on, it comes again after [`Queue::done`];
//! - among the due ones, first come, first served.
//!
//! Nothing runs in the background: whoever calls moves what has come due, in the order of the due times.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::store::Key;
use crate::telemetry::metrics::Workqueue;

/// A work queue of HPAs. All methods take `&self`; any number of workers may wait in [`Self::get`].
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
    metrics: Workqueue,
}

#[derive(Debug, Default)]
struct State {
    /// Due later, by due time, then by order of adding.
    waiting: BTreeMap<(Instant, u64), Key>,
    waiting_at: BTreeMap<Key, (Instant, u64)>,
    added: u64,
    /// Due now and free to be handed out, in order.
    ready: VecDeque<Key>,
    /// Due since when: all that is ready, and what came due while it was being worked on.
    dirty: BTreeMap<Key, Instant>,
    /// Being worked on since when.
    processing: BTreeMap<Key, Instant>,
    shut_down: bool,
}

/// A key that was handed out. [`Queue::done`] must follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The key.
    pub key: Key,
    /// From when it was due until now.
    pub lateness: Duration,
}

impl Queue {
    /// An empty queue.
    pub fn new(metrics: Workqueue) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), metrics }
    }

    /// Makes a key due now. No effect if it is due already; a time that it waits for stays.
    pub fn add(&self, key: &Key) {
        let now = Instant::now();
        let mut state = self.up_to(now);
        if state.shut_down {
            return;
        }
        self.make_due(&mut state, key.clone(), now);
    }

    /// Makes a key due after some time; no effect if it waits for an earlier time already.
    pub fn add_after(&self, key: &Key, delay: Duration) {
        let now = Instant::now();
        let mut state = self.up_to(now);
        if state.shut_down {
            return;
        }
        self.metrics.retried();
        if delay.is_zero() {
            self.make_due(&mut state, key.clone(), now);
            return;
        }
        // A delay that no clock can hold is as good as a year.
        let at = now.checked_add(delay).unwrap_or(now + Duration::from_hours(365 * 24));
        if let Some(place) = state.waiting_at.get(key).copied() {
            if place.0 <= at {
                return;
            }
            state.waiting.remove(&place);
        }
        state.added += 1;
        let place = (at, state.added);
        state.waiting.insert(place, key.clone());
        state.waiting_at.insert(key.clone(), place);
        if state.waiting.first_key_value().is_some_and(|(first, _)| *first == place) {
            self.changed.notify_one();
        }
    }

    /// Waits until a key is due and hands it out; `None` once the queue is shut down.
    pub async fn get(&self) -> Option<Due> {
        while self.wait().await {
            if let Some(due) = self.take() {
                return Some(due);
            }
        }
        None
    }

    /// Waits until a key is due and leaves it in the queue, for a caller that needs something else before it can
    /// [`Self::take`] it; false once the queue is shut down.
    pub async fn wait(&self) -> bool {
        loop {
            let changed = self.changed.notified();
            let next = {
                let state = self.up_to(Instant::now());
                if state.shut_down {
                    return false;
                }
                if !state.ready.is_empty() {
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

    /// Hands out a key if one is due.
    pub fn take(&self) -> Option<Due> {
        let now = Instant::now();
        let mut state = self.up_to(now);
        if state.shut_down {
            return None;
        }
        let key = state.ready.pop_front()?;
        let since = state.dirty.remove(&key).unwrap_or(now);
        state.processing.insert(key.clone(), now);
        let lateness = now.duration_since(since);
        self.metrics.depth(state.dirty.len());
        self.metrics.handed_out(lateness);
        // This worker looks after the queue no more, so another one must.
        if !state.ready.is_empty() || !state.waiting.is_empty() {
            self.changed.notify_one();
        }
        Some(Due { key, lateness })
    }

    /// Takes all that is due as due from now on: the work begins, after a time in which somebody else did it.
    pub fn begin(&self) {
        let now = Instant::now();
        let mut state = self.up_to(now);
        for since in state.dirty.values_mut() {
            *since = now;
        }
    }

    /// Ends the work on a key. If it was added in the meantime it is handed out again.
    pub fn done(&self, key: &Key) {
        let now = Instant::now();
        let mut state = self.up_to(now);
        let Some(since) = state.processing.remove(key) else {
            return;
        };
        self.metrics.finished(now.duration_since(since));
        if state.dirty.contains_key(key) {
            state.ready.push_back(key.clone());
            self.changed.notify_one();
        }
    }

    /// Drops a key that waits or is due, for its HPA is gone. If it is being worked on, that goes on.
    pub fn forget(&self, key: &Key) {
        let mut state = self.up_to(Instant::now());
        if let Some(place) = state.waiting_at.remove(key) {
            state.waiting.remove(&place);
        }
        if state.dirty.remove(key).is_some() {
            state.ready.retain(|other| other != key);
            self.metrics.depth(state.dirty.len());
        }
    }

    /// Hands out nothing any more, and takes nothing in. Work in hand ends with [`Self::done`] as usual.
    pub fn shut_down(&self) {
        self.lock().shut_down = true;
        self.changed.notify_waiters();
    }

    /// How many keys are due and not handed out.
    pub fn len(&self) -> usize {
        self.up_to(Instant::now()).ready.len()
    }

    /// Whether no key is due.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys wait for their time.
    pub fn waiting(&self) -> usize {
        self.up_to(Instant::now()).waiting.len()
    }

    /// Brings the metrics that depend on the time up to date; to be called before they are read.
    pub fn publish(&self) {
        let now = Instant::now();
        let state = self.up_to(now);
        self.metrics.depth(state.dirty.len());
        let running = state.processing.values().map(|since| now.duration_since(*since));
        self.metrics.running(running.clone().sum(), running.max().unwrap_or_default());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state with everything moved that has come due.
    fn up_to(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while let Some(entry) = state.waiting.first_entry() {
            let (at, _) = *entry.key();
            if at > now {
                break;
            }
            let key = entry.remove();
            state.waiting_at.remove(&key);
            self.make_due(&mut state, key, at);
        }
        state
    }

    fn make_due(&self, state: &mut State, key: Key, since: Instant) {
        if state.dirty.contains_key(&key) {
            return;
        }
        state.dirty.insert(key.clone(), since);
        self.metrics.added();
        self.metrics.depth(state.dirty.len());
        if !state.processing.contains_key(&key) {
            state.ready.push_back(key);
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
