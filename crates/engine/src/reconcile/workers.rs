//! The permits for concurrent syncs and for status writes in flight.

use std::sync::Arc;

use cluster::fair::{FairPermit, FairSemaphore, Share};
use tokio::sync::Semaphore;

/// One of every [`RESERVED_FRACTION`] workers and status permits is reserved for new or changed HPAs, so that they do
/// not wait behind a backlog. With fewer workers, none is reserved.
const RESERVED_FRACTION: usize = 5;
/// Minimum number of status permits. Each status write in flight uses a separate connection. Concurrent writes take a
/// fifth less CPU time in server and client than sequential writes. Twice as many permits use 3 MB more memory and save
/// no more CPU time.
const MIN_INFLIGHT_STATUSES: usize = 16;

/// All worker permits.
#[derive(Debug, Clone)]
pub struct Workers {
    /// Workers for every due key.
    pub any: WorkerPool,
    /// Workers for new or changed HPAs only.
    pub fresh: Option<WorkerPool>,
}

impl Workers {
    /// Creates `count` workers in total, at least one.
    pub fn new(count: usize) -> Self {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        let (fresh, statuses) = (count / RESERVED_FRACTION, count.max(MIN_INFLIGHT_STATUSES));
        let reserved = if fresh > 0 { statuses / RESERVED_FRACTION } else { 0 };
        Self {
            any: WorkerPool::new(count - fresh, statuses - reserved),
            fresh: (fresh > 0).then(|| WorkerPool::new(fresh, reserved)),
        }
    }
}

/// A pool of workers, with its permits for status writes in flight.
#[derive(Debug, Clone)]
pub struct WorkerPool {
    workers: Arc<FairSemaphore>,
    statuses: Arc<FairSemaphore>,
}

impl WorkerPool {
    fn new(workers: usize, statuses: usize) -> Self {
        let semaphore = |permits| Arc::new(FairSemaphore::new(permits, Share::All));
        Self { workers: semaphore(workers), statuses: semaphore(statuses) }
    }
}

/// The permit of one sync for a worker or for a status write, held or released.
#[derive(Debug)]
pub struct WorkerPermit {
    lane: WorkerPool,
    held: Option<FairPermit>,
}

impl WorkerPermit {
    /// Waits for a worker before a key is taken from the queue.
    pub async fn new(lane: &WorkerPool) -> Self {
        let mut permit = Self { lane: lane.clone(), held: None };
        permit.acquire(&Arc::default()).await;
        permit
    }

    /// Lets another sync run while this one waits.
    pub fn release(&mut self) {
        self.held = None;
    }

    /// Waits for a worker again, on behalf of a namespace.
    pub async fn acquire(&mut self, namespace: &Arc<str>) {
        if self.held.is_none() {
            self.held = Some(self.lane.workers.acquire(namespace).await);
        }
    }

    /// Exchanges the worker for a status permit. The worker is held until a status permit is free, so that no sync
    /// decides long before it can publish its status.
    pub(super) async fn send_status(&mut self, namespace: &Arc<str>) {
        self.held = Some(self.lane.statuses.acquire(namespace).await);
    }
}
