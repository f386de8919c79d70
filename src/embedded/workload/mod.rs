//! The workload side of a cluster: what the deployment, replicaset and statefulset controllers and the kubelets do.
//!
//! For every Deployment, ReplicaSet, ReplicationController, StatefulSet and `example.com` Widget there are as many pods as
//! `spec.replicas` says. A pod lives by its workload's [`WorkloadModel`]: it is `Pending` while its image is pulled, then
//! `Running`, ready after its start-up; it may crash or lose its readiness; and once it is no longer wanted it carries a
//! `deletionTimestamp` for a grace period before it goes. The status of every workload follows its pods.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use std::time::Duration;
//! use concertina::clock::VirtualClock;
//! use concertina::embedded::Cluster;
//! use concertina::embedded::workload::{Distribution, Failure, ImagePull, Span, WorkloadModel, Workloads};
//!
//! let clock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().unwrap()));
//! let cluster = Cluster::new(clock.clone());
//! let workloads = Arc::new(Workloads::new(cluster.clone(), clock).with_seed(1).with_nodes(5));
//! workloads.set_model("shop", "web", WorkloadModel {
//!     start_up: Distribution::LogNormal { median: Duration::from_secs(8), p95: Duration::from_secs(20) },
//!     image_pull: ImagePull::FirstOnNode(Duration::from_secs(25).into()),
//!     grace: Duration::from_secs(10),
//!     failures: vec![Failure::CrashLoop {
//!         during: Span::new(Duration::from_hours(3), Duration::from_mins(20)),
//!         fraction: 0.3,
//!         runs_for: Duration::from_secs(5),
//!     }],
//! });
//! // The Deployment shop/web is created here; then its first pods are ready at once:
//! workloads.warm_up();
//! let running = Arc::clone(&workloads);
//! tokio::spawn(async move { running.run(Default::default()).await });
//! tokio::time::sleep(Duration::from_hours(24)).await;
//! # assert!(workloads.counts("shop", "web").is_none());
//! # });
//! ```
//!
//! Nothing ticks. [`Workloads::run`] sleeps until a pod is due or the cluster changes, and looks only at what has changed,
//! in a fixed order, so that the same inputs and the same seed give the same pods with the same names. Durations are
//! measured with tokio's clock, times of day come from the cluster's [`Clock`](crate::clock::Clock); virtual time moves
//! both. What cannot be written because of a conflict is written later.
//!
//! Rollouts follow the deployment controller: `maxSurge`, `maxUnavailable`, `Recreate`, `minReadySeconds`, `paused`, the
//! history limit, and scaling in the middle of a rollout in proportion. StatefulSets go pod by pod, in order or in
//! parallel, with `partition` and `OnDelete`. Not played: progress deadlines, ControllerRevisions (pods below the partition
//! that are lost come back with the new template), adoption of pods without an owner, Jobs, DaemonSets, nodes that run full.
//!
//! # How it is built
//!
//! `book` keeps the `records` of owners and pods, from a `feed` of their changes. `deployments` (by the rules in
//! `rollout`), `replicas` and `stateful` do what controllers do, `kubelet` moves each pod's `life` on, `status` writes the
//! statuses of owners, `pods` those of pods.

mod book;
mod deployments;
mod distribution;
pub(super) mod feed;
mod kubelet;
mod life;
mod model;
mod names;
mod objects;
mod placing;
mod pods;
mod records;
mod replicas;
mod rollout;
pub(super) mod seed;
mod stateful;
mod status;

pub use distribution::Distribution;
pub use model::{Failure, ImagePull, Span, WorkloadModel};
pub(super) use pods::{is_active, is_ready};
pub use records::Counts;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::book::Book;
use self::objects::{restarted, time_after};
use self::placing::Images;
use self::records::{Id, Kind};
use self::seed::Seed;
use super::{Cluster, Status};
use crate::clock::SharedClock;

/// How long something waits that could not be written.
const RETRY: Duration = Duration::from_millis(200);

/// How many nodes there are, unless told otherwise.
const NODES: u32 = 3;

/// Plays the workload side of one cluster.
#[derive(Debug)]
pub struct Workloads {
    cluster: Cluster,
    clock: SharedClock,
    /// The beginning of the run.
    origin: Instant,
    state: Mutex<State>,
}

/// All that the workload side knows.
#[derive(Debug)]
struct State {
    book: Book,
    seed: Seed,
    nodes: u32,
    /// By namespace and name of the workload.
    models: BTreeMap<(String, String), WorkloadModel>,
    /// How many pods of each workload have ever started: what draws for the next one are made for.
    ordinals: BTreeMap<(String, String), u64>,
    images: Images,
    /// How many pods were ever created: the next one goes to the next node.
    placed: u32,
    is_warming_up: bool,
}

/// An instant, on both clocks.
#[derive(Debug, Clone, Copy)]
struct Moment {
    /// Since the beginning of the run.
    at: Duration,
    time: Timestamp,
}

impl Moment {
    /// The time of day of another instant of the run.
    fn time_of(self, at: Duration) -> Timestamp {
        time_after(self.time, at, self.at)
    }
}

/// Everything that is to be done at one instant.
struct Pass<'a> {
    cluster: &'a Cluster,
    state: &'a mut State,
    now: Moment,
}

impl Workloads {
    /// The workload side of `cluster`, in a run that begins now. Nothing happens until [`run`](Self::run) or
    /// [`step`](Self::step).
    pub fn new(cluster: Cluster, clock: SharedClock) -> Self {
        let state = State {
            book: Book::open(&cluster),
            seed: Seed::new(0),
            nodes: NODES,
            models: BTreeMap::new(),
            ordinals: BTreeMap::new(),
            images: Images::default(),
            placed: 0,
            is_warming_up: false,
        };
        Self { cluster, clock, origin: Instant::now(), state: Mutex::new(state) }
    }

    /// Lets chance come from this seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        self.lock().seed = Seed::new(seed);
        self
    }

    /// Spreads the pods over so many nodes, at least one; three unless told otherwise.
    #[must_use]
    pub fn with_nodes(self, nodes: u32) -> Self {
        self.lock().nodes = nodes.max(1);
        self
    }

    /// Sets how the pods of one workload live: of the object that a user writes, such as a Deployment. Counts for pods
    /// created from now on.
    pub fn set_model(&self, namespace: &str, name: &str, model: WorkloadModel) {
        self.lock().models.insert((namespace.to_owned(), name.to_owned()), model);
    }

    /// Does all that is to be done now, as if images were pulled and pods started within no time: afterwards every
    /// workload has its pods, ready as far as they do not fail.
    pub fn warm_up(&self) {
        self.lock().is_warming_up = true;
        self.step();
        self.lock().is_warming_up = false;
    }

    /// Plays until `stop` is cancelled.
    pub async fn run(&self, stop: CancellationToken) {
        let mut changes = self.cluster.changes();
        loop {
            changes.mark_unchanged();
            let due = self.step();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Ok(()) = changes.changed() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    /// Does all that is to be done now; answers when there will be more to do, if nothing changes until then.
    pub fn step(&self) -> Option<Instant> {
        let now = Moment { at: self.origin.elapsed(), time: self.clock.now() };
        let mut state = self.lock();
        Pass { cluster: &self.cluster, state: &mut state, now }.play();
        self.origin.checked_add(state.book.due()?)
    }

    /// The pods of a workload that a user has written, counted; none if there is no such workload.
    pub fn counts(&self, namespace: &str, name: &str) -> Option<Counts> {
        let state = self.lock();
        let owner = state.book.workload(namespace, name)?;
        Some(state.book.count(owner, self.origin.elapsed()))
    }

    /// Begins a rollout without any other change, as `kubectl rollout restart` does. `resource` is as in
    /// [`Cluster::get`]: `apps/deployments`.
    pub fn restart(&self, resource: &str, namespace: &str, name: &str) -> Result<(), Status> {
        let object = self.cluster.get(resource, namespace, name);
        let object = object.ok_or_else(|| Status::not_found("", resource, name))?;
        self.cluster.update(restarted(object, self.clock.now())).map(|_: Value| ())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for an instant; without one, for ever.
pub(super) async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

impl Pass<'_> {
    /// Takes in changes and does what follows from them, its own changes included, until nothing is left.
    fn play(&mut self) {
        loop {
            self.state.book.update(self.now.at);
            if let Some(id) = self.state.book.next_owner() {
                self.look_after(id);
            } else if let Some(id) = self.state.book.next_pod() {
                self.tend(id);
            } else {
                return;
            }
        }
    }

    /// Does what an owner's controller would do, or writes the owner's status if nothing is to be done.
    fn look_after(&mut self, id: Id) {
        let Some(owner) = self.state.book.owners.get(&id) else { return };
        let next_available = self.state.book.next_available(owner, self.now.at);
        let has_acted = match owner.kind {
            Kind::Deployment => self.roll_out(id),
            Kind::StatefulSet => self.keep_ordinals(id),
            Kind::ReplicaSet | Kind::ReplicationController | Kind::Widget => self.keep_count(id),
        };
        if next_available.is_some() {
            self.state.book.wake_owner(id, next_available);
        }
        if !has_acted {
            self.write_status_of(id);
        }
    }
}

#[cfg(test)]
mod tests;
