//! The record of decisions: the last decisions of each HPA, in a compact form, served as JSON.
//!
//! The record observes the same concluded syncs as metrics and log. Consecutive decisions that differ only in
//! noise (other ratios, but the same path and result for the same reason) share one entry. Every change is a
//! new entry. A full record drops its oldest entry. An entry takes at most 64 KiB and the entries of an HPA 512
//! KiB. Metrics beyond that are counted.

mod pages;
mod ring;
mod selection;
mod steps;
#[cfg(test)]
mod tests;
mod text;
pub mod wire;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

pub use self::pages::{Answer, Comparisons, Decisions, DecisionsRequest, Page};
use self::ring::{Entry, Ring, Scratch};
use self::wire::DecisionEntry;
use crate::reconcile::{ConcludedSync, Observer};
use crate::store::Key;

/// The last decisions of each HPA, by UID. An HPA that is recreated under its name starts with an empty
/// record.
#[derive(Debug)]
pub struct Record {
    /// Maximum entries per HPA, at least one.
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Boxed, because the map has many unused slots.
    by_uid: HashMap<Arc<str>, Box<Ring>>,
    scratch: Scratch,
}

impl Record {
    /// Creates an empty record with at most `capacity` entries per HPA, at least one.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), state: Mutex::default() }
    }

    /// The decisions of an HPA, newest first.
    pub fn decisions(&self, uid: &str) -> Vec<DecisionEntry> {
        // Decode outside the lock, because syncs wait for it.
        let entries: Vec<Entry> = self
            .state
            .lock()
            .by_uid
            .get(uid)
            .map(|ring| ring.newest_first().cloned().collect())
            .unwrap_or_default();
        entries.iter().filter_map(Entry::decision).collect()
    }

    /// The last decision of an HPA.
    pub fn last(&self, uid: &str) -> Option<DecisionEntry> {
        let entry = self.state.lock().by_uid.get(uid).and_then(|ring| ring.last()).cloned();
        entry.as_ref().and_then(Entry::decision)
    }

    /// The size of the decisions of an HPA, in bytes.
    pub fn bytes(&self, uid: &str) -> usize {
        self.state.lock().by_uid.get(uid).map_or(0, |ring| ring.bytes())
    }

    /// Number of HPAs with decisions.
    pub fn len(&self) -> usize {
        self.state.lock().by_uid.len()
    }

    /// Whether there are no decisions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Observer for Record {
    fn concluded(&self, sync: &ConcludedSync<'_>) {
        let mut state = self.state.lock();
        let State { by_uid, scratch } = &mut *state;
        if let Some(ring) = by_uid.get_mut(&sync.hpa.uid) {
            ring.add(sync, self.capacity, scratch);
            return;
        }
        by_uid.entry(Arc::clone(&sync.hpa.uid)).or_default().add(sync, self.capacity, scratch);
    }

    fn forgotten(&self, _: &Key, uid: &str) {
        let mut state = self.state.lock();
        state.by_uid.remove(uid);
        // Free the memory after a cluster-wide cleanup.
        if state.by_uid.len() < state.by_uid.capacity() / 4 {
            state.by_uid.shrink_to_fit();
        }
    }
}
