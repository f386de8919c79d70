//! The windows of HPAs whose policy sets `burst`, by UID. They do not outlive the process: after a failover, each HPA
//! starts in panic mode, so its count does not fall before there are samples of a whole stable window.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use policies::burst::BurstState;

/// The windows.
#[derive(Debug, Default)]
pub struct Bursts(Mutex<BTreeMap<Arc<str>, Arc<BurstState>>>);

impl Bursts {
    /// The windows after the previous sync of an HPA.
    pub(super) fn get(&self, uid: &str) -> Option<Arc<BurstState>> {
        self.0.lock().get(uid).cloned()
    }

    /// Keeps the windows after a sync. `None` drops them.
    pub(super) fn set(&self, uid: &Arc<str>, state: Option<BurstState>) {
        let mut states = self.0.lock();
        match state {
            Some(state) => drop(states.insert(Arc::clone(uid), Arc::new(state))),
            None => drop(states.remove(uid)),
        }
    }

    /// Drops the windows of a deleted HPA.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}
