//! The record of decisions: the last ones of each HPA, kept small, served as JSON.
//!
//! It is told of the same concluded syncs as metrics and log. Decisions in a row that differ in noise only (other ratios,
//! the same course and result for the same reason) are one entry; every change is an entry of its own, until there are
//! as many as the HPA may have.

mod code;
mod pages;
mod ring;
mod steps;
#[cfg(test)]
mod tests;
pub mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::code::Writer;
pub use self::pages::{Answer, Asked, Comparisons, Decisions, Page};
use self::ring::{Entry, Ring};
use self::wire::DecisionEntry;
use crate::controller::{Concluded, Observer};
use crate::store::Key;

/// The last decisions of each HPA, by its UID: one that is recreated under its name starts anew.
#[derive(Debug)]
pub struct Record {
    /// How many entries an HPA may have, at least one.
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Boxed, as a map has many places that are not taken.
    by_uid: HashMap<Arc<str>, Box<Ring>>,
    writer: Writer,
}

impl Record {
    /// An empty record with this many entries per HPA, at least one.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), state: Mutex::default() }
    }

    /// The decisions of an HPA, newest first.
    pub fn decisions(&self, uid: &str) -> Vec<DecisionEntry> {
        // Read outside of the lock, as syncs wait for it.
        let entries: Vec<Entry> = self
            .lock()
            .by_uid
            .get(uid)
            .map(|ring| ring.newest_first().cloned().collect())
            .unwrap_or_default();
        entries.iter().filter_map(Entry::decision).collect()
    }

    /// The last decision of an HPA.
    pub fn last(&self, uid: &str) -> Option<DecisionEntry> {
        let entry = self.lock().by_uid.get(uid).and_then(|ring| ring.last()).cloned();
        entry.as_ref().and_then(Entry::decision)
    }

    /// Of how many HPAs there are decisions.
    pub fn len(&self) -> usize {
        self.lock().by_uid.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A panic in one sync must not end the others: what runs under the lock leaves each ring whole at every step.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Record {
    fn concluded(&self, sync: &Concluded<'_>) {
        let mut state = self.lock();
        let State { by_uid, writer } = &mut *state;
        if let Some(ring) = by_uid.get_mut(&sync.hpa.uid) {
            ring.add(sync, self.capacity, writer);
            return;
        }
        by_uid.entry(Arc::clone(&sync.hpa.uid)).or_default().add(sync, self.capacity, writer);
    }

    fn forgotten(&self, _: &Key, uid: &str) {
        let mut state = self.lock();
        state.by_uid.remove(uid);
        // After a cluster-wide clean-up the space goes too.
        if state.by_uid.len() < state.by_uid.capacity() / 4 {
            state.by_uid.shrink_to_fit();
        }
    }
}
