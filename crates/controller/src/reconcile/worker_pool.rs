//! Worker permits, which bound the syncs that decide or scale at once. A sync that waits for metrics or for a
//! token of the scale client holds no permit. A sync that sends its status has exchanged its worker for one of
//! the larger number of status permits. Syncs that wait for a permit take turns by namespace.

use std::sync::Arc;

use cluster::fair::{FairPermit, FairSemaphore, Share};
use tokio::sync::Semaphore;

/// Divisor that determines the numbers of workers and of status permits reserved for new or changed HPAs, so that these
/// HPAs never wait behind a backlog. With fewer workers than this number, nothing is reserved.
const RESERVED_FRACTION: usize = 5;
/// Minimum number of status writes in flight, each on a separate connection. Concurrent writes cost server and client
/// a fifth less than sequential ones. Twice this number saves no more, and takes 3 MB more memory.
const MIN_INFLIGHT_STATUSES: usize = 16;
/// Maximum number of concurrent syncs with a large spec. With two, each namespace has at most one.
const LARGE_SYNCS: usize = 2;

/// All worker permits.
#[derive(Debug, Clone)]
pub struct Workers {
    /// Workers for every due key.
    pub any: WorkerPool,
    /// Workers for new or changed HPAs only.
    pub fresh: Option<WorkerPool>,
    /// The permits for syncs of HPAs with large specs, at most one per namespace.
    pub large: Arc<FairSemaphore>,
}

impl Workers {
    /// Creates `count` workers in all, at least one.
    pub fn new(count: usize) -> Self {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        let (fresh, statuses) = (count / RESERVED_FRACTION, count.max(MIN_INFLIGHT_STATUSES));
        let reserved = if fresh > 0 { statuses / RESERVED_FRACTION } else { 0 };
        Self {
            any: WorkerPool::new(count - fresh, statuses - reserved),
            fresh: (fresh > 0).then(|| WorkerPool::new(fresh, reserved)),
            large: Arc::new(FairSemaphore::new(LARGE_SYNCS, Share::AsFree)),
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

/// The permit of one sync, held or released.
#[derive(Debug)]
pub struct WorkerPermit {
    lane: WorkerPool,
    held: Option<FairPermit>,
}

impl WorkerPermit {
    /// Waits for a worker for a sync that is not chosen yet.
    pub async fn new(lane: &WorkerPool) -> Self {
        let mut permit = Self { lane: lane.clone(), held: None };
        permit.acquire(&Arc::default()).await;
        permit
    }

    /// Releases the worker.
    pub(super) fn release(&mut self) {
        self.held = None;
    }

    /// Waits for a worker again, on behalf of a namespace.
    pub(super) async fn acquire(&mut self, namespace: &Arc<str>) {
        if self.held.is_none() {
            self.held = Some(self.lane.workers.acquire(namespace).await);
        }
    }

    /// Releases the worker once a status permit is free. The worker is held until then, so that no sync
    /// decides long before it can publish its status.
    pub(super) async fn send_status(&mut self, namespace: &Arc<str>) {
        self.held = Some(self.lane.statuses.acquire(namespace).await);
    }
}
