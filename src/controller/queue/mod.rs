//! The work queue: which HPA is due, in which order, and which is being worked on.
//!
//! The semantics are those of client-go's delaying queue:
//! - a key waits at most once; of two times the earlier wins;
//! - an immediate add leaves the waiting time alone, so the periodic sync that was due stays due;
//! - a key is never handed out twice at once: added while it is worked on, it comes again after [`Queue::done`];
//! - among the due ones, who is due longest comes first.
//!
//! One thing is added: what is added at once, because it is new or was changed, goes before what is due because its time
//! has come, however much of that there is.
//!
//! Nothing runs in the background: whoever calls moves what has come due, in the order of the due times.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::store::Key;
use crate::telemetry::metrics::Workqueue;

/// While both lanes have keys, every so manieth is one whose time has come: not even a flood of changes stops those.
const TURN: u32 = 8;

/// A work queue of HPAs. All methods take `&self`; any number of workers may wait in [`Self::get`].
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
    /// Something fresh came; besides `changed`.
    freshened: Notify,
    metrics: Workqueue,
}

#[derive(Debug, Default)]
struct State {
    /// Due later, by due time, then by order of adding.
    waiting: BTreeMap<Place, Key>,
    waiting_at: BTreeMap<Key, Place>,
    added: u64,
    /// Due now and free to be handed out, by lane.
    fresh: BTreeMap<Place, Key>,
    periodic: BTreeMap<Place, Key>,
    /// All that is due: what is ready, and what came due while it was being worked on.
    dirty: BTreeMap<Key, Waiting>,
    /// Being worked on since when.
    processing: BTreeMap<Key, Instant>,
    /// How many fresh ones were handed out in a row while others were due.
    passed: u32,
    shut_down: bool,
}

/// Why a key is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// It is new or was changed.
    Fresh,
    /// Its time has come.
    Periodic,
}

/// A place in a lane: since when a key is due, and the order of adding.
type Place = (Instant, u64);

/// A key that is due.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    lane: Lane,
    place: Place,
    /// The time that it waited for, if that has come.
    at: Option<Instant>,
}

/// A key that was handed out. [`Queue::done`] must follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The key.
    pub key: Key,
    /// From when it was due until now.
    pub lateness: Duration,
    /// The time that it waited for, if that has come.
    pub at: Option<Instant>,
}

impl Queue {
    /// An empty queue.
    pub fn new(metrics: Workqueue) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), freshened: Notify::new(), metrics }
    }

    /// Makes a key due now. No effect if it is due already; a time that it waits for stays.
    pub fn add(&self, key: &Key) {
        let now = Instant::now();
        let mut state = self.up_to(now);
        if state.shut_down {
            return;
        }
        self.make_due(&mut state, key.clone(), Lane::Fresh, now);
    }

    /// Makes a key due after some time; no effect if it waits for an earlier time already.
    pub fn add_after(&self, key: &Key, delay: Duration) {
        let now = Instant::now();
        // A delay that no clock can hold is as good as a year.
        self.add_at(key, now.checked_add(delay).unwrap_or(now + Duration::from_hours(365 * 24)));
    }

    /// Makes a key due at some time; no effect if it waits for an earlier one already.
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

    /// Waits until a fresh key is due and leaves it in the queue; false once the queue is shut down.
    pub async fn wait_fresh(&self) -> bool {
        loop {
            let freshened = self.freshened.notified();
            {
                let state = self.lock();
                if state.shut_down {
                    return false;
                }
                if !state.fresh.is_empty() {
                    return true;
                }
            }
            freshened.await;
        }
    }

    /// Whether a time is set for a key: it waits for one, or one has come that it was not handed out for yet.
    pub fn has_time(&self, key: &Key) -> bool {
        let state = self.up_to(Instant::now());
        state.waiting_at.contains_key(key) || state.dirty.get(key).is_some_and(|waiting| waiting.at.is_some())
    }

    /// Hands out a key if one is due.
    pub fn take(&self) -> Option<Due> {
        self.hand_out(State::pop)
    }

    /// Hands out a key if one is due that is new or was changed.
    pub fn take_fresh(&self) -> Option<Due> {
        self.hand_out(State::pop_fresh)
    }

    fn hand_out(&self, pop: impl FnOnce(&mut State) -> Option<Key>) -> Option<Due> {
        let now = Instant::now();
        let mut state = self.up_to(now);
        if state.shut_down {
            return None;
        }
        let key = pop(&mut state)?;
        let waited = state.dirty.remove(&key);
        state.processing.insert(key.clone(), now);
        let lateness = waited.map_or(Duration::ZERO, |waited| now.duration_since(waited.place.0));
        self.metrics.depth(state.dirty.len());
        self.metrics.handed_out(lateness);
        // This worker looks after the queue no more, so another one must.
        if state.ready() > 0 || !state.waiting.is_empty() {
            self.changed.notify_one();
        }
        if !state.fresh.is_empty() {
            self.freshened.notify_one();
        }
        Some(Due { key, lateness, at: waited.and_then(|waited| waited.at) })
    }

    /// Takes all that is due as due from now on: the work begins, after a time in which somebody else did it. Nothing of
    /// it is fresh: what comes from now on goes first.
    pub fn begin(&self) {
        let now = Instant::now();
        let mut state = self.up_to(now);
        let state = &mut *state;
        for waiting in state.dirty.values_mut() {
            (waiting.lane, waiting.place.0) = (Lane::Periodic, now);
        }
        let ready = [std::mem::take(&mut state.periodic), std::mem::take(&mut state.fresh)];
        let ready = ready.into_iter().flatten();
        state.periodic = ready.map(|((_, added), key)| ((now, added), key)).collect();
    }

    /// Ends the work on a key. If it was added in the meantime it is handed out again.
    pub fn done(&self, key: &Key) {
        let now = Instant::now();
        let mut state = self.up_to(now);
        let Some(since) = state.processing.remove(key) else {
            return;
        };
        self.metrics.finished(now.duration_since(since));
        if let Some(Waiting { lane, place, .. }) = state.dirty.get(key).copied() {
            state.lane(lane).insert(place, key.clone());
            self.notify(lane);
        }
    }

    /// Drops a key that waits or is due, for its HPA is gone. If it is being worked on, that goes on.
    pub fn forget(&self, key: &Key) {
        let mut state = self.up_to(Instant::now());
        if let Some(place) = state.waiting_at.remove(key) {
            state.waiting.remove(&place);
        }
        if let Some(Waiting { lane, place, .. }) = state.dirty.remove(key) {
            state.lane(lane).remove(&place);
            self.metrics.depth(state.dirty.len());
        }
    }

    /// Hands out nothing any more, and takes nothing in. Work in hand ends with [`Self::done`] as usual.
    pub fn shut_down(&self) {
        self.lock().shut_down = true;
        self.changed.notify_waiters();
        self.freshened.notify_waiters();
    }

    /// How many keys are due and not handed out.
    pub fn len(&self) -> usize {
        self.up_to(Instant::now()).ready()
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
            self.make_due(&mut state, key, Lane::Periodic, at);
        }
        state
    }

    fn notify(&self, lane: Lane) {
        self.changed.notify_one();
        if lane == Lane::Fresh {
            self.freshened.notify_one();
        }
    }

    fn make_due(&self, state: &mut State, key: Key, lane: Lane, since: Instant) {
        let at = (lane == Lane::Periodic).then_some(since);
        if let Some(known) = state.dirty.get_mut(&key) {
            known.at = known.at.or(at);
            if (lane, known.lane) == (Lane::Fresh, Lane::Periodic) {
                // It goes first from now on, and is due for as long as it was.
                known.lane = lane;
                let place = known.place;
                if let Some(key) = state.periodic.remove(&place) {
                    state.fresh.insert(place, key);
                    self.notify(lane);
                }
            }
            return;
        }
        state.added += 1;
        let place = (since, state.added);
        state.dirty.insert(key.clone(), Waiting { lane, place, at });
        self.metrics.added();
        self.metrics.depth(state.dirty.len());
        if !state.processing.contains_key(&key) {
            state.lane(lane).insert(place, key);
            self.notify(lane);
        }
    }
}

impl State {
    fn lane(&mut self, lane: Lane) -> &mut BTreeMap<Place, Key> {
        match lane {
            Lane::Fresh => &mut self.fresh,
            Lane::Periodic => &mut self.periodic,
        }
    }

    /// How many keys may be handed out.
    fn ready(&self) -> usize {
        self.fresh.len() + self.periodic.len()
    }

    /// Takes the key whose turn it is.
    fn pop(&mut self) -> Option<Key> {
        let both = !self.fresh.is_empty() && !self.periodic.is_empty();
        let (lane, passed) = match self.passed {
            passed if both && passed + 1 < TURN => (Lane::Fresh, passed + 1),
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
