//! Worker permits: how many syncs decide or scale at once. A sync that only waits for metrics holds none, and one whose
//! status is on its way has given its worker for one of more that may be.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many workers one is kept for syncs of HPAs that are new or changed: however many others wait for a worker, those
/// find one. Fewer workers are all for all.
const ONE_OF: usize = 5;
/// Statuses that are on their way at once, at least; each on a connection of its own. What the server answers to many
/// at a time costs it, and us, a fifth less than one after the other; twice as many cost as much, and 3 MB more.
const STATUSES: usize = 16;

/// The workers that there are.
#[derive(Debug, Clone)]
pub struct Workers {
    /// For whatever is due.
    pub any: Lane,
    /// For what is new or changed alone.
    pub fresh: Option<Lane>,
}

impl Workers {
    /// So many workers in all, at least one.
    pub fn new(count: usize) -> Self {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        let (fresh, statuses) = (count / ONE_OF, count.max(STATUSES));
        let kept = if fresh > 0 { statuses / ONE_OF } else { 0 };
        Self {
            any: Lane::new(count - fresh, statuses - kept),
            fresh: (fresh > 0).then(|| Lane::new(fresh, kept)),
        }
    }
}

/// Workers, and what is on its way for them.
#[derive(Debug, Clone)]
pub struct Lane {
    workers: Arc<Semaphore>,
    statuses: Arc<Semaphore>,
}

impl Lane {
    fn new(workers: usize, statuses: usize) -> Self {
        Self { workers: Arc::new(Semaphore::new(workers)), statuses: Arc::new(Semaphore::new(statuses)) }
    }
}

/// One sync's claim to a worker, held or given back.
#[derive(Debug)]
pub struct WorkerPermit {
    lane: Lane,
    held: Option<OwnedSemaphorePermit>,
}

impl WorkerPermit {
    /// Waits for a worker, first come, first served.
    pub async fn new(lane: &Lane) -> Self {
        let mut permit = Self { lane: lane.clone(), held: None };
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
            self.held = Arc::clone(&self.lane.workers).acquire_owned().await.ok();
        }
    }

    /// Gives the worker back once there is room for one more status on its way. While there is none no worker becomes
    /// free, so that nothing is decided long before it can be told.
    pub(super) async fn send_status(&mut self) {
        self.held = Arc::clone(&self.lane.statuses).acquire_owned().await.ok();
    }
}
