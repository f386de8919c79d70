//! What is remembered of each HPA, by UID: an HPA recreated under its name starts anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use autoscaling::history::{Changes, History};

/// The histories of all HPAs.
#[derive(Debug, Default)]
pub struct Histories {
    by_uid: Mutex<BTreeMap<Arc<str>, History>>,
}

impl Histories {
    /// No history yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy of one HPA's history; empty if there is none.
    pub fn get(&self, uid: &str) -> History {
        self.lock().get(uid).cloned().unwrap_or_default()
    }

    /// Puts what is known of an HPA's past in the place of what was remembered.
    pub fn seed(&self, uid: &Arc<str>, history: History) {
        self.lock().insert(Arc::clone(uid), history);
    }

    /// Commits what a sync added.
    pub fn commit(&self, uid: &Arc<str>, changes: &Changes) {
        if *changes != Changes::default() {
            self.lock().entry(Arc::clone(uid)).or_default().commit(changes);
        }
    }

    /// Forgets an HPA.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// How many HPAs have a history.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no HPA has one.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, History>> {
        self.by_uid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
