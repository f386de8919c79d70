//! Worker permits: how many syncs decide or write at once. A sync that only waits for metrics holds none.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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
