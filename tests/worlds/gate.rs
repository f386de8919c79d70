//! Controls the syncs of each world at the proxy. A sync starts with a read of the Scale, so the gate blocks a sync by
//! blocking this read. The number of reads that pass is the number of syncs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::outcome::{Failure, Outcome};
use crate::plan::{Action, Class, Fault};

/// The maximum time from a failed request for a Scale to the retry of the read in the same sync. It is shorter than the
/// minimum time between two syncs.
const SAME_SYNC: Duration = Duration::from_millis(1400);
/// The maximum time between two requests of one sync, except for retries.
const QUIET: Duration = Duration::from_millis(700);
/// After this time without a request, no event is pending.
const EVENTS_QUIET: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(50);

#[derive(Clone, Default)]
pub(crate) struct Gate {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    rooms: BTreeMap<String, Room>,
    /// The bytes that a watch must deliver, and whether a watch has delivered them.
    expected: Vec<(Vec<u8>, bool)>,
}

/// The requests in one namespace.
#[derive(Default)]
struct Room {
    /// The number of allowed syncs that have not started, by path of the Scale.
    permits: BTreeMap<String, u32>,
    /// The number of blocked reads, by path of the Scale.
    held: BTreeMap<String, u32>,
    /// The times of the last failures, by path.
    failed: BTreeMap<String, Instant>,
    faults: Vec<Fault>,
    in_flight: u32,
    last_end: Option<Instant>,
}

/// A request in the namespace of a world that has no response yet.
pub(crate) struct Passage {
    gate: Gate,
    namespace: String,
}

impl Drop for Passage {
    fn drop(&mut self) {
        if let Some(room) = self.gate.state.lock().rooms.get_mut(&self.namespace) {
            room.in_flight -= 1;
            room.last_end = Some(Instant::now());
        }
    }
}

/// Counts a blocked read while its client waits.
struct Held<'a>(&'a Gate, &'a str, &'a str);

impl<'a> Held<'a> {
    fn new(gate: &'a Gate, namespace: &'a str, path: &'a str) -> Self {
        if let Some(room) = gate.state.lock().rooms.get_mut(namespace) {
            *room.held.entry(path.to_owned()).or_default() += 1;
        }
        Self(gate, namespace, path)
    }

    fn admit(self, room: &mut Room) {
        if let Some(held) = room.held.get_mut(self.2) {
            *held -= 1;
        }
        std::mem::forget(self);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if let Some(held) = state.rooms.get_mut(self.1).and_then(|room| room.held.get_mut(self.2)) {
            *held -= 1;
        }
    }
}

impl Gate {
    pub(crate) fn open_room(&self, namespace: &str) {
        self.state.lock().rooms.insert(namespace.to_owned(), Room::default());
    }

    /// Replaces the faults of a namespace.
    pub(crate) fn set_faults(&self, namespace: &str, faults: &[Fault]) {
        if let Some(room) = self.state.lock().rooms.get_mut(namespace) {
            room.faults = faults.to_vec();
        }
    }

    /// Allows one more sync of the HPA of a Scale.
    pub(crate) fn allow(&self, namespace: &str, scale: &str) {
        if let Some(room) = self.state.lock().rooms.get_mut(namespace) {
            room.permits.insert(scale.to_owned(), 1);
            room.last_end = None;
        }
        self.changed.notify_waiters();
    }

    /// Waits until all allowed syncs have ended.
    pub(crate) async fn finished(&self, namespace: &str) -> Outcome {
        self.wait(&format!("all syncs in {namespace}"), |state| {
            let room = state.rooms.get(namespace).ok_or("the room is closed")?;
            let open: Vec<_> = room.permits.iter().filter(|(_, permits)| **permits > 0).collect();
            let quiet = room.in_flight == 0
                && room.last_end.is_some_and(|end| end.elapsed() > QUIET)
                && room.failed.values().all(|failed| failed.elapsed() > SAME_SYNC);
            if open.is_empty() && quiet { Ok(()) } else { Err(format!("{open:?} remain")) }
        })
        .await
    }

    /// Waits until the next syncs of the Scales are blocked, which means that the allowed syncs have ended.
    pub(crate) async fn next_held(&self, namespace: &str, scales: &[String]) -> Outcome {
        self.wait(&format!("the next syncs in {namespace}"), |state| {
            let room = state.rooms.get(namespace).ok_or("the room is closed")?;
            let held = |scale: &&String| {
                let used = room.permits.get(*scale).is_none_or(|permits| *permits == 0);
                used && room.held.get(*scale).is_some_and(|held| *held > 0)
            };
            match scales.iter().find(|scale| !held(scale)) {
                None => Ok(()),
                Some(scale) => Err(format!("{scale} is not read")),
            }
        })
        .await
    }

    /// Waits until the HPA of the Scale is between two syncs. Allows each sync that has started, and returns their
    /// number.
    pub(crate) async fn idle(&self, namespace: &str, scale: &str) -> Outcome<u32> {
        let mut extra = 0;
        loop {
            let started = {
                let mut state = self.state.lock();
                let room = state.rooms.get_mut(namespace).ok_or("the room is closed")?;
                let started = room.held.get(scale).is_some_and(|held| *held > 0);
                if started {
                    room.permits.insert(scale.to_owned(), 1);
                }
                started
            };
            if !started {
                return Ok(extra);
            }
            extra += 1;
            self.changed.notify_waiters();
            self.finished(namespace).await?;
        }
    }

    async fn wait(&self, what: &str, mut holds: impl FnMut(&mut State) -> Result<(), String>) -> Outcome {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let result = holds(&mut self.state.lock());
            match result {
                Ok(()) => return Ok(()),
                Err(reason) if Instant::now() > deadline => {
                    return Err(Failure(format!("{what}: {reason}")));
                }
                Err(_) => tokio::time::sleep(POLL).await,
            }
        }
    }

    /// Waits until no event of a namespace is pending.
    pub(crate) async fn events_sent(&self, namespace: &str) -> Outcome {
        self.wait("all events", |state| {
            let room = state.rooms.get(namespace).ok_or("the room is closed")?;
            let quiet = room.last_end.is_none_or(|end| end.elapsed() > EVENTS_QUIET);
            if quiet { Ok(()) } else { Err("events arrive".to_owned()) }
        })
        .await
    }

    /// Registers a request. A read of a Scale waits until its sync is allowed.
    pub(crate) async fn enter(&self, namespace: &str, class: Option<Class>, path: &str) -> Option<Passage> {
        let held = (class == Some(Class::ScaleGet)).then(|| Held::new(self, namespace, path));
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                let room = state.rooms.get_mut(namespace)?;
                if class != Some(Class::ScaleGet) || room.admits(path) {
                    room.in_flight += 1;
                    // The lock still protects the permit, so an admitted request never counts as blocked.
                    if let Some(held) = held {
                        held.admit(room);
                    }
                    break;
                }
            }
            changed.await;
        }
        Some(Passage { gate: self.clone(), namespace: namespace.to_owned() })
    }

    /// Takes the next fault for a request.
    pub(crate) fn fault(&self, namespace: &str, class: Class, path: &str) -> Option<Action> {
        let mut state = self.state.lock();
        let room = state.rooms.get_mut(namespace)?;
        let fault = room.faults.iter_mut().find(|fault| fault.class == class && fault.times > 0)?;
        fault.times -= 1;
        let action = fault.action.clone();
        // Only later requests show whether the client retries this request.
        room.failed.insert(path.to_owned(), Instant::now());
        Some(action)
    }

    /// Records that the API server refused to write a Scale.
    pub(crate) fn refused(&self, namespace: &str, path: &str) {
        if let Some(room) = self.state.lock().rooms.get_mut(namespace) {
            room.failed.insert(path.to_owned(), Instant::now());
        }
    }

    /// Expects bytes in a watch.
    pub(crate) fn expect(&self, bytes: &str) {
        self.state.lock().expected.push((bytes.as_bytes().to_vec(), false));
    }

    /// Waits until a watch has delivered the expected bytes.
    pub(crate) async fn delivered(&self, bytes: &str) -> Outcome {
        let bytes = bytes.as_bytes();
        self.wait("a watch delivers a change", |state| {
            let delivered =
                state.expected.iter().any(|(expected, delivered)| expected == bytes && *delivered);
            if !delivered {
                return Err(String::from_utf8_lossy(bytes).into_owned());
            }
            state.expected.retain(|(expected, _)| expected != bytes);
            Ok(())
        })
        .await
    }

    /// Searches a part of a watch. `tail` is the end of the previous part.
    pub(crate) fn scan(&self, tail: &mut Vec<u8>, part: &[u8]) {
        tail.extend_from_slice(part);
        let mut state = self.state.lock();
        for (expected, delivered) in &mut state.expected {
            *delivered |= tail.windows(expected.len()).any(|window| window == expected);
        }
        let keep = tail.len().min(512);
        tail.drain(..tail.len() - keep);
    }
}

impl Room {
    fn admits(&mut self, path: &str) -> bool {
        // A retry belongs to the sync with the failed request.
        if self.failed.get(path).is_some_and(|failed| failed.elapsed() < SAME_SYNC) {
            return true;
        }
        match self.permits.get_mut(path) {
            Some(permits) if *permits > 0 => {
                *permits -= 1;
                true
            }
            _ => false,
        }
    }
}
