//! Drives the syncs: takes keys from the queue, runs one sync for each key, and adds the key again for the next period.
//!
//! The number of workers limits the syncs that decide or scale at the same time. A sync that waits for metrics, or that
//! has a status write in flight, holds no worker. A panic ends only the sync in which it occurs: the HPA is due again
//! one period later.

mod gather;
mod guard_reads;
mod histories;
mod intake;
mod policy_inputs;
pub mod queue;
mod report;
mod scale;
mod schedule;
mod sources;
mod sync;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::settings::Settings;
use autoscaling::{Action, ErrorLabel, Hpa};
use futures::FutureExt;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::histories::ClockReading;
pub use self::histories::{Histories, KeptHistory, WatchedRescale};
pub use self::intake::{HpaIntake, PodIntake};
pub(crate) use self::policy_inputs::Adapters;
pub use self::policy_inputs::Bursts;
use self::queue::{Due, Queue};
pub use self::report::{ComparedSync, ForeignRescale, ShadowComparator};
pub use self::report::{ConcludedSync, Observer, Observers};
pub(crate) use self::schedule::OwnPeriod;
pub use self::schedule::SyncSchedule;
pub use self::sources::{NO_SOURCES, SourceReader, SourceReading, SourceValue};
use crate::policy::{Policies, Resolved};
use crate::store::{HpaRecord, Hpas, Key, Overlap, Pods};
use crate::targets::Targets;
use crate::tasks::Tasks;
use crate::telemetry::metrics::Metrics as Telemetry;
use clock::SharedClock;
use cluster::client::Client;
use cluster::events::{EventTarget, Recorder};
use cluster::fair::{FairPermit, FairSemaphore, Share};
use cluster::mapper::Mapper;
use cluster::metrics::Metrics;
use cluster::scale::Scales;
use cluster::status::Statuses;

/// Maximum time for which a shutdown waits for syncs that have not decided. Most metrics arrive within this time.
const UNDECIDED: Duration = Duration::from_secs(1);

/// The state of a key after its sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The key is due again one period later.
    Period,
    /// The HPA was deleted, was replaced or left the scope. This sync does not make the key due again.
    Gone,
}

/// The controller: stores, clients, queue and history.
#[derive(Debug)]
pub struct Controller {
    /// HPAs, kept up to date by [`HpaIntake`].
    pub hpas: Arc<Hpas>,
    /// Pods, kept up to date by [`PodIntake`].
    pub pods: Arc<Pods>,
    /// The selectors of HPAs, which show the HPAs that control the same pods.
    pub overlap: Arc<Overlap>,
    /// Maps the kinds of targets to resources.
    pub mapper: Arc<Mapper>,
    /// Client of the scale subresource.
    pub scales: Scales,
    /// Client of the lists that guards of scaling policies need.
    pub guard_reads: Client,
    /// The watched targets. `None`: every sync reads the Scale from the API server.
    pub targets: Option<Arc<Targets>>,
    /// Client of HPA statuses.
    pub statuses: Statuses,
    /// The three metrics APIs.
    pub metrics: Arc<dyn Metrics>,
    /// Sends events in the background.
    pub events: Recorder,
    /// The history of each HPA.
    pub histories: Histories,
    /// Observers of syncs and of the watch.
    pub observers: Observers,
    /// Compares this controller's decisions with those of another active controller, in shadow mode.
    pub comparator: Option<Arc<dyn ShadowComparator>>,
    /// The work queue.
    pub queue: Arc<Queue>,
    /// The due times of syncs.
    pub phases: Arc<SyncSchedule>,
    /// Prometheus metrics of the controller.
    pub telemetry: Telemetry,
    /// The source of the wall-clock time.
    pub clock: SharedClock,
    /// Flags and feature gates that affect decisions.
    pub settings: Settings,
    /// Feature gate StaleControllerConsistencyHPA: skips a sync until the watch has delivered this controller's last
    /// status write.
    pub stale_guard: bool,
    /// `--horizontal-pod-autoscaler-sync-period`.
    pub period: Duration,
    /// The permits for concurrent syncs (`--concurrent-horizontal-pod-autoscaler-syncs`).
    pub workers: Workers,
    /// Supervises the tasks that feed the controller.
    pub tasks: Tasks,
    /// The scaling policies.
    pub policies: Arc<Policies>,
    /// The windows of HPAs whose policy sets `burst`.
    pub bursts: Bursts,
    /// `--metric-sources`. `None`: the metrics APIs answer all queries.
    pub sources: Option<SourceReader>,
    /// Cancelled during a shutdown, to abandon syncs that have not decided.
    pub decisions_end: CancellationToken,
}

impl Controller {
    /// Reads the wall clock. If the clock has jumped, first shifts all histories by the jump.
    pub(crate) fn clock_reading(&self) -> ClockReading {
        self.histories.correct_clock(self.clock.now())
    }

    /// Runs until `stop` is cancelled, then waits for the syncs in flight. After one second, abandons the syncs that
    /// have not decided, because a hanging metrics API must not delay the next leader.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let syncs = TaskTracker::new();
        self.queue.begin();
        let lanes = async {
            futures::join!(self.serve_fresh(&syncs), self.serve(&syncs));
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = lanes => {}
        }
        self.queue.shut_down();
        syncs.close();
        if timeout(UNDECIDED, syncs.wait()).await.is_err() {
            self.decisions_end.cancel();
            syncs.wait().await;
        }
    }

    /// Starts a sync in a task. [`Self::work`] catches a panic of the sync. A panic in the rest of the task would leave
    /// the key without a next sync, so it is a failure of the process.
    fn start(self: &Arc<Self>, syncs: &TaskTracker, due: Due, permit: WorkerPermit) {
        let work = Arc::clone(self).work(due, Instant::now(), permit);
        syncs.spawn(self.tasks.catch("sync".into(), work));
    }

    /// Starts syncs of due keys.
    async fn serve(self: &Arc<Self>, syncs: &TaskTracker) {
        // Wait for a key before acquiring a worker. An idle worker would be unavailable to syncs whose metrics have
        // arrived. The key stays in the queue until a worker is free.
        while self.queue.wait().await {
            let permit = WorkerPermit::new(&self.workers.any).await;
            if let Some(due) = self.queue.take() {
                self.start(syncs, due, permit);
            }
        }
    }

    /// Starts syncs of new or changed HPAs, with workers reserved for them.
    async fn serve_fresh(self: &Arc<Self>, syncs: &TaskTracker) {
        let Some(workers) = &self.workers.fresh else { return };
        while self.queue.wait_fresh().await {
            let permit = WorkerPermit::new(workers).await;
            if let Some(due) = self.queue.take_fresh() {
                self.start(syncs, due, permit);
            }
        }
    }

    /// Runs one sync and schedules the next sync of its key.
    async fn work(self: Arc<Self>, due: Due, taken: Instant, mut permit: WorkerPermit) {
        let started = Instant::now();
        let Due { key, lateness } = due;
        self.telemetry.sync_began(lateness + started.duration_since(taken));
        // The future is boxed, because it has several kilobytes, and a task copies its future several times.
        let sync = AssertUnwindSafe(self.sync(&key, &mut permit).boxed()).catch_unwind();
        let next = sync.await.unwrap_or_else(|_| {
            tracing::error!(hpa = %key, "sync panicked; retrying next period");
            self.telemetry.reconciled(Action::None, ErrorLabel::Internal, started.elapsed());
            self.telemetry.sync_failed("Panic");
            Next::Period
        });
        let due = self.policies.due(&key);
        if next == Next::Period {
            let next = due.period.map_or_else(|| self.next(&key), OwnPeriod::next);
            // As in upstream, an earlier due time stays, for example after the sync of a changed spec.
            self.queue.add_at(&key, next);
        }
        if let Some(edge) = due.edge {
            self.queue.add_at(&key, edge);
        }
        self.queue.done(&key);
    }

    /// Returns the due time after a sync that ends now. For a compared HPA, this is in 1.1 periods, because each status
    /// write of the other controller triggers an earlier sync.
    fn next(&self, key: &Key) -> Instant {
        if self.comparator_of(key).is_none() {
            return self.phases.next(key);
        }
        clock::after(Instant::now(), self.period + self.period / 10)
    }

    /// Returns the comparator, if it compares the syncs of an HPA.
    fn comparator_of(&self, key: &Key) -> Option<&Arc<dyn ShadowComparator>> {
        self.comparator.as_ref().filter(|comparator| comparator.compares(key))
    }

    /// Drops the state of an HPA that was deleted, or replaced by another HPA with the same name.
    fn forget(&self, key: &Key, uid: &Arc<str>) {
        self.histories.forget(uid);
        self.bursts.forget(uid);
        self.events.forget(&key.namespace, &key.name, uid);
        for observer in &self.observers {
            observer.forgotten(key, uid);
        }
    }

    /// Drops the state of a key that no longer has an HPA.
    fn forget_key(&self, key: &Key) {
        self.overlap.release(key, &self.pods);
        if !self.policies.is_empty() {
            self.policies.forget_hpa(key);
            self.telemetry.policy(&key.namespace, &key.name, None);
        }
        self.queue.forget(key);
        self.telemetry.forget(&key.namespace, &key.name);
        self.unwatch(key);
    }
}

/// Returns the HPA as the object of an event.
pub(crate) fn event_target(record: &HpaRecord) -> EventTarget {
    EventTarget {
        namespace: Arc::clone(&record.key.namespace),
        name: Arc::clone(&record.key.name),
        uid: Arc::clone(&record.uid),
        resource_version: record.resource_version.as_str().into(),
    }
}

/// Returns the input of the core for a stored HPA, with the spec that results from its policy.
fn view<'a>(record: &'a HpaRecord, policy: Option<&'a Resolved>) -> Hpa<'a> {
    Hpa {
        namespace: &record.key.namespace,
        name: &record.key.name,
        generation: record.generation,
        spec: policy.map_or(&record.spec, |policy| &policy.spec),
        status: &record.status,
    }
}

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

    fn release(&mut self) {
        self.held = None;
    }

    /// Waits for a worker again, on behalf of a namespace.
    async fn acquire(&mut self, namespace: &Arc<str>) {
        if self.held.is_none() {
            self.held = Some(self.lane.workers.acquire(namespace).await);
        }
    }

    /// Exchanges the worker for a status permit. The worker is held until a status permit is free, so that no sync
    /// decides long before it can publish its status.
    async fn send_status(&mut self, namespace: &Arc<str>) {
        self.held = Some(self.lane.statuses.acquire(namespace).await);
    }
}
