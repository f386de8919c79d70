//! Drives the syncs: takes keys from the queue, runs one sync for each key, and adds the key again for the
//! next period.
//!
//! Workers bound the syncs that decide or scale. A sync that waits for metrics, or with a status write in
//! flight, holds no worker. A panic in one sync does not affect others: its HPA is due again a period later.

mod claims;
mod gather;
mod guard_reads;
mod histories;
mod intake;
mod node_usage;
mod observe;
mod policy_inputs;
mod publish;
pub mod queue;
mod report;
mod scale;
mod schedule;
mod sources;
mod sync;
mod worker_pool;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::settings::Settings;
use autoscaling::{Action, ErrorLabel};
use futures::FutureExt;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::histories::ClockReading;
pub use self::histories::{Changed, Histories, KeptHistory, Revision, RevisionError, WatchedRescale};
pub use self::intake::{HpaIntake, PodIntake};
pub use self::observe::{ComparedSync, ForeignRescale, ShadowComparator};
pub use self::observe::{ConcludedSync, Observer, Observers};
pub use self::policy_inputs::Bursts;
use self::queue::{Due, Queue};
pub use self::schedule::SyncSchedule;
pub(crate) use self::sources::Adapters;
pub use self::sources::{NO_SOURCES, SourceReader, SourceReading, SourceValue};
pub use self::sync::Next;
pub use self::worker_pool::{WorkerPermit, Workers};
use crate::policy::Policies;
use crate::store::{HpaRecord, Hpas, Key, Overlap, Pods};
use crate::targets::Targets;
use crate::tasks::Tasks;
use crate::telemetry::metrics::Metrics as Telemetry;
use clock::SharedClock;
use cluster::client::Client;
use cluster::events::{EventTarget, Recorder};
use cluster::mapper::Mapper;
use cluster::metrics::Metrics;
use cluster::scale::Scales;
use cluster::status::Statuses;

/// Maximum time for which a stop waits for syncs that have not decided. Most metrics arrive within this time.
const UNDECIDED: Duration = Duration::from_secs(1);

/// The controller: stores, clients, queue and history.
#[derive(Debug)]
pub struct Controller {
    /// HPAs, kept up to date by [`HpaIntake`].
    pub hpas: Arc<Hpas>,
    /// Pods, kept up to date by [`PodIntake`].
    pub pods: Arc<Pods>,
    /// HPAs that control the same pods.
    pub overlap: Arc<Overlap>,
    /// Maps kinds to resources.
    pub mapper: Arc<Mapper>,
    /// Client of the scale subresource.
    pub scales: Scales,
    /// Client of the lists that guards of scaling policies need.
    pub guard_reads: Client,
    /// The watched targets. Without them, every sync reads the Scale.
    pub targets: Option<Arc<Targets>>,
    /// Client of HPA statuses.
    pub statuses: Statuses,
    /// The three metrics APIs.
    pub metrics: Arc<dyn Metrics>,
    /// The sender of events, off the hot path.
    pub events: Recorder,
    /// The history of each HPA.
    pub histories: Histories,
    /// Observers of syncs and of the watch.
    pub observers: Observers,
    /// Compares this controller's decisions with those of another active controller, in shadow mode.
    pub comparator: Option<Arc<dyn ShadowComparator>>,
    /// The work queue.
    pub queue: Arc<Queue>,
    /// The offset of each HPA in the period.
    pub phases: Arc<SyncSchedule>,
    /// Metrics of the controller.
    pub telemetry: Telemetry,
    /// The clock.
    pub clock: SharedClock,
    /// Flags and feature gates that affect decisions.
    pub settings: Settings,
    /// Feature gate StaleControllerConsistencyHPA: skips a sync until the watch has delivered this
    /// controller's last status write.
    pub stale_guard: bool,
    /// `--horizontal-pod-autoscaler-sync-period`.
    pub period: Duration,
    /// `--concurrent-horizontal-pod-autoscaler-syncs`, in the form of permits.
    pub workers: Workers,
    /// Supervises the tasks that feed the controller.
    pub tasks: Tasks,
    /// The scaling policies.
    pub policies: Arc<Policies>,
    /// The windows of HPAs whose policy sets `burst`.
    pub bursts: Bursts,
    /// `--metric-sources`. `None`: the metrics APIs answer all queries.
    pub sources: Option<SourceReader>,
    /// Cancelled during a stop, to abandon syncs that have not decided.
    pub decisions_end: CancellationToken,
}

impl Controller {
    /// The current time, with the history corrected for jumps of the wall clock.
    pub(crate) fn clock_reading(&self) -> ClockReading {
        self.histories.correct_clock(self.clock.now())
    }

    /// Runs until `stop`, then waits for the syncs in flight. After one second, abandons those that have not
    /// decided, because a metrics API that hangs must not delay the next leader.
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

    /// Starts a sync in a task. A panic in the sync is contained in [`Self::work`]. A panic elsewhere would leave the
    /// key without a next sync, and therefore counts as a failure of the process.
    fn start(self: &Arc<Self>, syncs: &TaskTracker, due: Due, permit: WorkerPermit) {
        let work = Arc::clone(self).work(due, Instant::now(), permit);
        syncs.spawn(self.tasks.catch("sync".into(), work));
    }

    /// Starts syncs of due keys.
    async fn serve(self: &Arc<Self>, syncs: &TaskTracker) {
        // Wait for a key before acquiring a worker. A worker held while no key is due would be unavailable to
        // syncs with metrics that have arrived. The key stays in the queue until a worker is free.
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

    /// Runs one sync and schedules the next one.
    async fn work(self: Arc<Self>, due: Due, taken: Instant, mut permit: WorkerPermit) {
        let started = Instant::now();
        let Due { key, lateness, at } = due;
        self.telemetry.sync_began(lateness + started.duration_since(taken));
        // Boxed, because a task copies its future several times, and the future of a sync has kilobytes.
        let sync = AssertUnwindSafe(self.sync(&key, &mut permit).boxed()).catch_unwind();
        let next = sync.await.unwrap_or_else(|_| {
            tracing::error!(hpa = %key, "sync panicked; retrying next period");
            self.telemetry.reconciled(Action::None, ErrorLabel::Internal, started.elapsed());
            self.telemetry.sync_failed("Panic");
            Next::Period
        });
        let due = self.policies.due(&key);
        // A key with a future due time keeps it after an earlier sync.
        if next == Next::Period && !self.queue.has_time(&key) {
            let next = due.period.unwrap_or_else(|| self.next(&key, at, started));
            self.queue.add_at(&key, next);
        }
        for due in [due.period, due.edge].into_iter().flatten() {
            self.queue.add_at(&key, due);
        }
        self.queue.done(&key);
    }

    /// Returns the due time of the sync that follows a sync started at `started`. In shadow mode, the next sync is due
    /// 1.1 periods from now, because each status write of the other controller triggers an earlier one.
    fn next(&self, key: &Key, at: Option<Instant>, started: Instant) -> Instant {
        if self.comparator_of(key).is_none() {
            return self.phases.next(key, at, started);
        }
        clock::after(Instant::now(), self.period + self.period / 10)
    }

    /// The comparator, if it compares the syncs of an HPA.
    fn comparator_of(&self, key: &Key) -> Option<&Arc<dyn ShadowComparator>> {
        self.comparator.as_ref().filter(|comparator| comparator.compares(key))
    }

    /// Drops the state of an HPA that was deleted, or replaced by another HPA of its name.
    fn forget(&self, key: &Key, uid: &Arc<str>) {
        self.histories.forget(uid);
        self.bursts.forget(uid);
        self.events.forget(&key.namespace, &key.name, uid);
        for observer in &self.observers {
            observer.forgotten(key, uid);
        }
    }

    /// Drops the state of a key without an HPA.
    fn forget_key(&self, key: &Key) {
        self.overlap.release(key, &self.pods);
        if !self.policies.is_empty() {
            self.policies.forget_hpa(key);
            self.telemetry.policy(&key.namespace, &key.name, None);
        }
        self.queue.forget(key);
        self.telemetry.forget(&key.namespace, &key.name);
        if let Some(targets) = &self.targets {
            targets.release(key);
        }
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
