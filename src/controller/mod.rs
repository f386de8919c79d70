//! Drives the syncs: takes keys from the queue, runs one sync each, puts them back for the next period.
//!
//! Workers bound the syncs that decide or scale. A sync that waits for metrics, or whose status is on its way, holds none;
//! and a sync that panics takes nobody with it: its HPA comes back a period later like any other.

mod beside;
mod gather;
mod histories;
mod intake;
mod levels;
mod observe;
mod permit;
mod phase;
pub mod queue;
mod rescale;
mod scale;
mod sync;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::settings::Settings;
use autoscaling::{Action, ErrorLabel};
use futures::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::beside::{Before, Beside, Compared};
use self::histories::Moment;
pub use self::histories::{Changed, Histories, Revision, RevisionError, SeenRescale};
pub use self::intake::{HpaIntake, PodIntake};
pub use self::observe::{Concluded, Observer, Observers};
pub use self::permit::{WorkerPermit, Workers};
pub use self::phase::Phases;
use self::queue::{Due, Queue};
pub use self::sync::Next;
use crate::api::events::{EventTarget, Recorder};
use crate::api::mapper::Mapper;
use crate::api::metrics::Metrics;
use crate::api::scale::Scales;
use crate::api::status::Statuses;
use crate::clock::SharedClock;
use crate::store::{HpaRecord, Hpas, Key, Overlap, Pods};
use crate::targets::Targets;
use crate::telemetry::metrics::Metrics as Telemetry;

/// Longer than any run.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// The controller: what it sees, how it touches the cluster, what it remembers.
#[derive(Debug)]
pub struct Controller {
    /// HPAs, kept up to date by [`HpaIntake`].
    pub hpas: Arc<Hpas>,
    /// Pods, kept up to date by [`PodIntake`].
    pub pods: Arc<Pods>,
    /// Which HPAs control the same pods.
    pub overlap: Arc<Overlap>,
    /// From kinds to resources.
    pub mapper: Arc<Mapper>,
    /// Scales, read and written.
    pub scales: Scales,
    /// Targets that are watched; without it, every sync reads the Scale.
    pub targets: Option<Arc<Targets>>,
    /// Statuses, written.
    pub statuses: Statuses,
    /// The three metrics APIs.
    pub metrics: Arc<dyn Metrics>,
    /// Events, sent off the hot path.
    pub events: Recorder,
    /// What is remembered of each HPA.
    pub histories: Histories,
    /// Who is told of concluded syncs.
    pub observers: Observers,
    /// Who compares the decisions with those of another controller that is at work.
    pub beside: Option<Arc<dyn Beside>>,
    /// Which HPA is due.
    pub queue: Arc<Queue>,
    /// When in each period an HPA is due.
    pub phases: Arc<Phases>,
    /// What is counted.
    pub telemetry: Telemetry,
    /// The time of day.
    pub clock: SharedClock,
    /// Flags and gates that change a decision.
    pub settings: Settings,
    /// Gate StaleControllerConsistencyHPA: skip a sync until our own last status write was seen.
    pub stale_guard: bool,
    /// `--horizontal-pod-autoscaler-sync-period`.
    pub period: Duration,
    /// `--concurrent-horizontal-pod-autoscaler-syncs`, as permits.
    pub workers: Workers,
}

impl Controller {
    /// What time it is, to which what is remembered is as old as it was, whatever became of the clock.
    pub(crate) fn moment(&self) -> Moment {
        self.histories.moment(self.clock.now())
    }

    /// Works until `stop`, then waits for the syncs that have begun.
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
        syncs.wait().await;
    }

    /// Begins whatever is due.
    async fn serve(self: &Arc<Self>, syncs: &TaskTracker) {
        // A key first, a worker second: a worker held while nothing is due would be missing to the syncs whose metrics
        // have come. The key stays in the queue until there is a worker.
        while self.queue.wait().await {
            let permit = WorkerPermit::new(&self.workers.any).await;
            if let Some(due) = self.queue.take() {
                syncs.spawn(Arc::clone(self).work(due, Instant::now(), permit));
            }
        }
    }

    /// Begins what is new or changed with workers that nobody else has.
    async fn serve_fresh(self: &Arc<Self>, syncs: &TaskTracker) {
        let Some(workers) = &self.workers.fresh else { return };
        while self.queue.wait_fresh().await {
            let permit = WorkerPermit::new(workers).await;
            if let Some(due) = self.queue.take_fresh() {
                syncs.spawn(Arc::clone(self).work(due, Instant::now(), permit));
            }
        }
    }

    /// One sync, with what follows for the queue.
    async fn work(self: Arc<Self>, due: Due, taken: Instant, mut permit: WorkerPermit) {
        let started = Instant::now();
        let Due { key, lateness, at } = due;
        self.telemetry.sync_began(lateness + started.duration_since(taken));
        let sync = AssertUnwindSafe(self.sync(&key, &mut permit)).catch_unwind();
        let next = sync.await.unwrap_or_else(|_| {
            tracing::error!(hpa = %key, "the sync of this HPA panicked; others go on, and it is tried again");
            self.telemetry.reconciled(Action::None, ErrorLabel::Internal, started.elapsed());
            self.telemetry.sync_failed("Panic");
            Next::Period
        });
        // A sync that was not due by its place leaves alone what is.
        if next == Next::Period && !self.queue.has_time(&key) {
            self.queue.add_at(&key, self.next(&key, at, started));
        }
        self.queue.done(&key);
    }

    /// When the next sync is due after one that began at `began`. Beside another controller a little later than its own
    /// comes: ours answers it.
    fn next(&self, key: &Key, at: Option<Instant>, began: Instant) -> Instant {
        if self.beside.is_none() {
            return self.phases.next(key, at, began);
        }
        let (now, period) = (Instant::now(), self.period + self.period / 10);
        now.checked_add(period).unwrap_or(now + FOREVER)
    }

    /// Drops what is remembered of an HPA that is gone, or was replaced by another of its name.
    fn forget(&self, key: &Key, uid: &Arc<str>) {
        self.histories.forget(uid);
        self.events.forget(&key.namespace, &key.name, uid);
        for observer in &self.observers {
            observer.forgotten(key, uid);
        }
    }

    /// Drops what is remembered under a key whose HPA is gone.
    fn forget_key(&self, key: &Key) {
        self.overlap.release(key, &self.pods);
        self.queue.forget(key);
        self.telemetry.forget(&key.namespace, &key.name);
        if let Some(targets) = &self.targets {
            targets.release(key);
        }
    }
}

/// An HPA as events name it.
pub(crate) fn event_target(record: &HpaRecord) -> EventTarget {
    EventTarget {
        namespace: Arc::clone(&record.key.namespace),
        name: Arc::clone(&record.key.name),
        uid: Arc::clone(&record.uid),
        resource_version: record.resource_version.as_str().into(),
    }
}
