//! Worker permits: how many syncs decide or write at once. A sync that only waits for metrics holds none.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many workers one is kept for syncs of HPAs that are new or changed: however many others wait for a worker, those
/// find one. Fewer workers are all for all.
const ONE_OF: usize = 5;

/// The workers that there are.
#[derive(Debug, Clone)]
pub struct Workers {
    /// For whatever is due.
    pub any: Arc<Semaphore>,
    /// For what is new or changed alone.
    pub fresh: Option<Arc<Semaphore>>,
}

impl Workers {
    /// So many workers in all, at least one.
    pub fn new(count: usize) -> Self {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        let fresh = count / ONE_OF;
        Self {
            any: Arc::new(Semaphore::new(count - fresh)),
            fresh: (fresh > 0).then(|| Arc::new(Semaphore::new(fresh))),
        }
    }
}

/// One sync's claim to a worker, held or given back.
#[derive(Debug)]
pub struct WorkerPermit {
    workers: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl WorkerPermit {
    /// Waits for a worker, first come, first served.
    pub async fn new(workers: &Arc<Semaphore>) -> Self {
        let mut permit = Self { workers: Arc::clone(workers), held: None };
        permit.acquire().await;
        permit
    }

    /// Gives the worker back.
    pub(super) fn release(&mut self) {
        self.held = None;
    }

    /// Waits for a worker again.
    pub(super) async fn acquire(&mut self) {
        if self.held.is_none() {
            // The semaphore is never closed; were it, the sync would go on without a bound rather than never.
            self.held = Arc::clone(&self.workers).acquire_owned().await.ok();
        }
    }
}
