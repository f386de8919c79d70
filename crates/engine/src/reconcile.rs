//! Drives the syncs: takes keys from the queue, runs one sync for each key, and adds the key again for the next period.
//!
//! The number of workers limits the syncs that decide or scale at the same time. A sync that waits for metrics, or that
//! has a status write in flight, holds no worker. A panic ends only the sync in which it occurs: the HPA is due again
//! one period later.

mod gather;
mod guests;
mod histories;
mod intake;
pub mod queue;
mod report;
mod scale;
mod schedule;
mod sync;
mod workers;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::settings::Settings;
use autoscaling::spec::Spec;
use autoscaling::{Action, ErrorLabel, Hpa};
use futures::FutureExt;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::gather::evaluate_metrics;
pub use self::guests::{
    Alone, Basis, Comparator, EveryHpa, ForeignRescale, Guests, MetricsSource, RuleDue, RuleInputs,
    RuleReport, Rulebook, Scope, Standpoint, SyncRules, Upstream,
};
pub use self::histories::{ClockReading, Histories, KeptHistory, WatchedRescale};
pub use self::intake::{HpaIntake, PodIntake};
use self::queue::{Due, Queue};
pub use self::report::{ComparedSync, ConcludedSync, Observer, Observers};
pub use self::schedule::{OwnPeriod, SyncSchedule};
pub use self::workers::{WorkerPermit, WorkerPool, Workers};
use crate::store::{HpaRecord, Hpas, Key, Overlap, Pods};
use crate::targets::CachedScales;
use crate::tasks::Tasks;
use crate::telemetry::metrics::Metrics as Telemetry;
use clock::SharedClock;
use cluster::events::{EventTarget, Recorder};
use cluster::mapper::Mapper;
use cluster::metrics::Metrics;
use cluster::scale::Scales;
use cluster::status::Statuses;
pub use policies::steps::{NO_SOURCES, SourceReading, SourceValue};

/// Maximum time for which a shutdown waits for syncs that have not decided. Most metrics arrive within this time.
const UNDECIDED: Duration = Duration::from_secs(1);

/// Number of syncs in progress from which on further syncs start at intervals of [`PAUSE`]. A sync that waits for metrics
/// keeps up to 22 kB. Without this bound, the first syncs of 60,000 HPAs, or their syncs while a metrics API is slow,
/// would take more memory than all stores.
const MANY_SYNCS: usize = 4_096;
/// Even if thousands of syncs hang, 500 others start per second in each lane.
const PAUSE: Duration = Duration::from_millis(2);

/// The state of a key after its sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The key is due again one period later.
    Period,
    /// The HPA was deleted, was replaced or left the scope. This sync does not make the key due again.
    Gone,
}

/// The controller.
#[derive(Debug)]
pub struct Controller {
    /// The controller's copy of the cluster, and the histories of HPAs.
    pub stores: Stores,
    /// The clients of the API server.
    pub clients: ApiClients,
    /// Scaling policies, shadow mode, the handover, and observers.
    pub guests: Guests,
    /// The queue of syncs, and the limits of their concurrency.
    pub runtime: Runtime,
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
}

/// The controller's copy of the cluster, and the histories of HPAs.
#[derive(Debug)]
pub struct Stores {
    /// HPAs, kept up to date by [`HpaIntake`].
    pub hpas: Arc<Hpas>,
    /// Pods, kept up to date by [`PodIntake`].
    pub pods: Arc<Pods>,
    /// The selectors of HPAs, which show the HPAs that control the same pods.
    pub overlap: Arc<Overlap>,
    /// The Scales of targets. `None`: every sync reads the Scale from the API server.
    pub targets: Option<Arc<dyn CachedScales>>,
    /// The history of each HPA.
    pub histories: Histories,
}

/// The clients of the API server.
#[derive(Debug, Clone)]
pub struct ApiClients {
    /// Maps the kinds of targets to resources.
    pub mapper: Arc<Mapper>,
    /// Client of the scale subresource.
    pub scales: Scales,
    /// Client of HPA statuses.
    pub statuses: Statuses,
    /// The three metrics APIs.
    pub metrics: Arc<dyn Metrics>,
    /// Sends events in the background.
    pub events: Recorder,
}

/// The queue of syncs, and the limits of their concurrency.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// The work queue.
    pub queue: Arc<Queue>,
    /// The due times of syncs.
    pub phases: Arc<SyncSchedule>,
    /// The permits for concurrent syncs (`--concurrent-horizontal-pod-autoscaler-syncs`).
    pub workers: Workers,
    /// Supervises the tasks that feed the controller.
    pub tasks: Tasks,
    /// Cancelled during a shutdown, to abandon syncs that have not decided.
    pub decisions_end: CancellationToken,
}

impl Controller {
    /// Reads the wall clock. If the clock has jumped, first shifts all histories by the jump.
    pub fn clock_reading(&self) -> ClockReading {
        self.stores.histories.correct_clock(self.clock.now())
    }

    /// Runs until `stop` is cancelled, then waits for the syncs in flight. After one second, abandons the syncs that
    /// have not decided, because a hanging metrics API must not delay the next leader.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let syncs = TaskTracker::new();
        self.runtime.queue.begin();
        for key in self.stores.hpas.keys() {
            self.add_at_slot(&key);
        }
        let lanes = async {
            futures::join!(self.serve_fresh(&syncs), self.serve(&syncs));
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = lanes => {}
        }
        self.runtime.queue.shut_down();
        syncs.close();
        if timeout(UNDECIDED, syncs.wait()).await.is_err() {
            self.runtime.decisions_end.cancel();
            syncs.wait().await;
        }
    }

    /// Starts a sync in a task. [`Self::work`] catches a panic of the sync. A panic in the rest of the task would leave
    /// the key without a next sync, so it is a failure of the process.
    fn start(self: &Arc<Self>, syncs: &TaskTracker, due: Due, permit: WorkerPermit) {
        let work = Arc::clone(self).work(due, Instant::now(), permit);
        syncs.spawn(self.runtime.tasks.catch("sync".into(), work));
    }

    /// Starts syncs of due keys.
    async fn serve(self: &Arc<Self>, syncs: &TaskTracker) {
        // Wait for a key before acquiring a worker. An idle worker would be unavailable to syncs whose metrics have
        // arrived. The key stays in the queue until a worker is free.
        while self.runtime.queue.wait().await {
            pace(syncs).await;
            let permit = WorkerPermit::new(&self.runtime.workers.any).await;
            if let Some(due) = self.runtime.queue.take() {
                self.start(syncs, due, permit);
            }
        }
    }

    /// Starts syncs of new or changed HPAs, with workers reserved for them.
    async fn serve_fresh(self: &Arc<Self>, syncs: &TaskTracker) {
        let Some(workers) = &self.runtime.workers.fresh else { return };
        while self.runtime.queue.wait_fresh().await {
            pace(syncs).await;
            let permit = WorkerPermit::new(workers).await;
            if let Some(due) = self.runtime.queue.take_fresh() {
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
        let due = self.guests.rules.due(&key);
        if next == Next::Period {
            let next = due.period.map_or_else(|| self.next(&key), OwnPeriod::next);
            // As in upstream, an earlier due time stays, for example after the sync of a changed spec.
            self.runtime.queue.add_at(&key, next);
        }
        if let Some(edge) = due.edge {
            self.runtime.queue.add_at(&key, edge);
        }
        self.runtime.queue.done(&key);
    }

    /// Returns the due time after a sync that ends now. For a compared HPA, this is in 1.1 periods, because each status
    /// write of the other controller triggers an earlier sync.
    fn next(&self, key: &Key) -> Instant {
        if !self.guests.comparator.compares(key) {
            return self.runtime.phases.next(key);
        }
        clock::after(Instant::now(), self.period + self.period / 10)
    }

    /// Makes an HPA due at its next slot.
    fn add_at_slot(&self, key: &Key) {
        if let Some(slot) = self.runtime.phases.slot(key) {
            self.runtime.queue.add_at(key, slot);
        }
    }

    /// Syncs the HPAs of a namespace, or of all namespaces, if there are at most `most`. Otherwise their periodic syncs
    /// apply a change within a period, so that other HPAs are not delayed.
    pub fn sync_soon(&self, namespace: Option<&str>, most: usize) {
        let keys: Vec<_> = match namespace {
            Some(namespace) => {
                self.stores.hpas.in_namespace(namespace).iter().map(|record| record.key.clone()).collect()
            }
            None if self.stores.hpas.len() > most => return,
            None => self.stores.hpas.keys(),
        };
        if keys.len() <= most {
            for key in keys {
                self.runtime.queue.add_changed(&key);
            }
        }
    }

    /// Drops the state of an HPA that was deleted, or replaced by another HPA with the same name.
    fn forget(&self, key: &Key, uid: &Arc<str>) {
        self.stores.histories.forget(uid);
        self.guests.rules.forget(uid);
        self.clients.events.forget(&key.namespace, &key.name, uid);
        for observer in &self.guests.observers {
            observer.forgotten(key, uid);
        }
    }

    /// Drops the state of a key that no longer has an HPA.
    fn forget_key(&self, key: &Key) {
        self.stores.overlap.release(key, &self.stores.pods);
        self.guests.rules.forget_key(key);
        self.runtime.queue.forget(key);
        self.telemetry.forget(key);
        self.unwatch(key);
    }
}

/// Waits before the start of a sync if many syncs are in progress.
async fn pace(syncs: &TaskTracker) {
    if syncs.len() >= MANY_SYNCS {
        sleep(PAUSE).await;
    }
}

/// Returns the HPA as the object of an event.
pub fn event_target(record: &HpaRecord) -> EventTarget {
    EventTarget {
        namespace: Arc::clone(&record.key.namespace),
        name: Arc::clone(&record.key.name),
        uid: Arc::clone(&record.uid),
        resource_version: record.resource_version.as_str().into(),
    }
}

/// Returns the input of the core for a stored HPA, with the spec that results from its rules.
fn view<'a>(record: &'a HpaRecord, spec: &'a Spec) -> Hpa<'a> {
    Hpa {
        namespace: &record.key.namespace,
        name: &record.key.name,
        generation: record.generation,
        spec,
        status: &record.status,
    }
}
