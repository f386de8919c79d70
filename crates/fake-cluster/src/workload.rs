//! The workload controllers of a cluster: deployment, replicaset and statefulset controllers and kubelets.
//!
//! Every Deployment, ReplicaSet, ReplicationController, StatefulSet and `example.com` Widget gets `spec.replicas` pods.
//! The [`WorkloadModel`] of the workload determines the behavior of its pods. A pod is `Pending` during the image pull,
//! then `Running`, and ready after its startup. It may crash or become unready. A surplus pod gets a
//! `deletionTimestamp` and is removed after its grace period. The status of every workload reflects its pods.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use std::time::Duration;
//! use clock::VirtualClock;
//! use fake_cluster::Cluster;
//! use fake_cluster::workload::{Distribution, Failure, ImagePull, Span, WorkloadModel, Workloads};
//!
//! let clock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().unwrap()));
//! let cluster = Cluster::new(clock.clone());
//! let workloads = Arc::new(Workloads::new(cluster.clone(), clock).with_seed(1));
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
//! // The Deployment shop/web is created here. `warm_up` makes its first pods ready immediately:
//! workloads.warm_up();
//! let running = Arc::clone(&workloads);
//! tokio::spawn(async move { running.run(Default::default()).await });
//! tokio::time::sleep(Duration::from_hours(24)).await;
//! # assert!(workloads.counts("shop", "web").is_none());
//! # });
//! ```
//!
//! [`Workloads::run`] sleeps until a pod is due or the cluster changes. It processes only the changes, in a fixed
//! order. Therefore equal inputs and equal seeds produce equal pods with equal names. Durations use tokio's clock, and
//! times of day come from the cluster's [`Clock`](clock::Clock). Virtual time advances both clocks. A conflicting write
//! is retried later.
//!
//! Rollouts follow the deployment controller: `maxSurge`, `maxUnavailable`, `Recreate`, `minReadySeconds`, `paused`,
//! the history limit, and proportional scaling during a rollout. StatefulSets update pod by pod, in order or in
//! parallel, with `partition` and `OnDelete`. Progress deadlines, adoption of pods without an owner, Jobs, DaemonSets
//! and the capacity of nodes are not supported. Without ControllerRevisions, a lost pod below the partition is
//! recreated from the new template.
//!
//! # Structure
//!
//! `informer_cache` caches the owners and pods from a feed of their changes. `rollout` and `replicas` are the
//! controllers. The kubelets in this file advance the `pod_lifecycle` of each pod. `pods` computes the status of a pod
//! from its life cycle. `replicas` computes the statuses of owners. `model` contains the parameters of workloads.

mod informer_cache;
pub(super) mod model;
mod pod_lifecycle;
mod pods;
mod replicas;
mod rollout;

pub use model::{Distribution, Failure, ImagePull, Span, WorkloadModel};
pub use pods::Counts;
pub(super) use pods::{is_active, is_ready};

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::informer_cache::InformerCache;
use self::model::Seed;
use self::pod_lifecycle::PodLifecycle;
use self::pods::{Id, Kind, PodPhase, name, namespace, set, status, uid};
use self::replicas::model_key;
use super::object::{list, text, time_text};
use super::{Cluster, Status};
use clock::SharedClock;

/// Delay before a failed write is retried.
const RETRY: Duration = Duration::from_millis(200);

/// Runs the workload controllers of one cluster.
#[derive(Debug)]
pub struct Workloads {
    cluster: Cluster,
    clock: SharedClock,
    /// The start of the run.
    origin: Instant,
    state: Mutex<State>,
}

/// The complete state of the workload controllers.
#[derive(Debug)]
struct State {
    cache: InformerCache,
    seed: Seed,
    /// Models by namespace and name of the workload.
    models: BTreeMap<(String, String), WorkloadModel>,
    /// The number of pods of each workload that have ever started. It seeds the draws for the next pod.
    ordinals: BTreeMap<(String, String), u64>,
    /// The time since the start of the run at which each image is available, by node and image.
    images: BTreeMap<(String, String), Duration>,
    /// The number of pods ever created. It selects the node of the next pod.
    placed: u32,
    is_warming_up: bool,
    /// The largest number of pods of each modelled workload. `None` if it is not recorded.
    peaks: Option<BTreeMap<(String, String), usize>>,
}

/// An instant, as time since the start of the run and as time of day.
#[derive(Debug, Clone, Copy)]
struct TimePoint {
    /// Time since the start of the run.
    at: Duration,
    time: Timestamp,
}

impl TimePoint {
    /// Returns the time of day at another instant of the run.
    fn time_of(self, at: Duration) -> Timestamp {
        match self.at.checked_sub(at) {
            Some(ago) => self.time.checked_sub(ago).unwrap_or(self.time),
            None => self.time.checked_add(at.saturating_sub(self.at)).unwrap_or(self.time),
        }
    }
}

/// The work of the controllers at one instant.
struct Pass<'a> {
    cluster: &'a Cluster,
    state: &'a mut State,
    now: TimePoint,
}

impl Workloads {
    /// Creates the controllers of `cluster` in a run that starts now. The controllers are idle until [`run`](Self::run)
    /// or [`step`](Self::step).
    pub fn new(cluster: Cluster, clock: SharedClock) -> Self {
        let state = State {
            cache: InformerCache::open(&cluster, false),
            seed: Seed::new(0),
            models: BTreeMap::new(),
            ordinals: BTreeMap::new(),
            images: BTreeMap::new(),
            placed: 0,
            is_warming_up: false,
            peaks: None,
        };
        Self { cluster, clock, origin: Instant::now(), state: Mutex::new(state) }
    }

    /// Sets the random seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        self.state.lock().seed = Seed::new(seed);
        self
    }

    /// Sets the model of one workload's pods. `name` is the name of the user's object, such as a Deployment. The model
    /// applies to pods that are created later.
    pub fn set_model(&self, namespace: &str, name: &str, model: WorkloadModel) {
        self.state.lock().models.insert((namespace.to_owned(), name.to_owned()), model);
    }

    /// Completes all pending work as if image pulls and startups took no time. Afterwards, every workload has its pods,
    /// which are ready unless they fail.
    pub fn warm_up(&self) {
        self.state.lock().is_warming_up = true;
        self.step();
        self.state.lock().is_warming_up = false;
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(&self, stop: CancellationToken) {
        let mut changes = self.cluster.changes();
        loop {
            changes.mark_unchanged();
            let due = self.step();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Ok(()) = changes.changed() => {}
                () = clock::sleep_until(due) => {}
            }
        }
    }

    /// Completes all work that is due. Returns the time of the next work if nothing changes until then.
    pub fn step(&self) -> Option<Instant> {
        let now = TimePoint { at: self.origin.elapsed(), time: self.clock.now() };
        let mut state = self.state.lock();
        Pass { cluster: &self.cluster, state: &mut state, now }.run_to_completion();
        state.note_peaks(now.at);
        self.origin.checked_add(state.cache.due()?)
    }

    /// Counts the pods of a user's workload. Returns `None` if the workload does not exist.
    pub fn counts(&self, namespace: &str, name: &str) -> Option<Counts> {
        let state = self.state.lock();
        let owner = state.cache.workload(namespace, name)?;
        Some(state.cache.count(owner, self.origin.elapsed()))
    }

    /// Records from now on the largest number of pods of each workload that has a model.
    pub fn record_peaks(&self) {
        let mut state = self.state.lock();
        state.peaks = Some(BTreeMap::new());
        state.note_peaks(self.origin.elapsed());
    }

    /// Returns the largest number of pods of a user's workload that existed at one time, as [`Counts::active`]. `None`
    /// if it is not recorded.
    pub fn peak(&self, namespace: &str, name: &str) -> Option<usize> {
        let state = self.state.lock();
        state.peaks.as_ref()?.get(&(namespace.to_owned(), name.to_owned())).copied()
    }

    /// Starts a rollout by changing only an annotation of the pod template, as `kubectl rollout restart` does.
    /// `resource` has the form of [`Cluster::get`]: `apps/deployments`.
    pub fn restart(&self, resource: &str, namespace: &str, name: &str) -> Result<(), Status> {
        let object = self.cluster.get(resource, namespace, name);
        let mut object = object.ok_or_else(|| Status::not_found("", resource, name))?;
        let restarted_at =
            ["spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt"];
        set(&mut object, &restarted_at, time_text(self.clock.now()));
        self.cluster.update(object)
    }
}

impl State {
    /// Records the number of pods of each workload that has a model, if peaks are recorded.
    fn note_peaks(&mut self, now: Duration) {
        let Self { cache, models, peaks: Some(peaks), .. } = self else { return };
        for key in models.keys() {
            let Some(owner) = cache.workload(&key.0, &key.1) else { continue };
            let pods = cache.count(owner, now).active;
            match peaks.get_mut(key) {
                Some(peak) => *peak = (*peak).max(pods),
                None => drop(peaks.insert(key.clone(), pods)),
            }
        }
    }
}

impl Pass<'_> {
    /// Processes changes and reconciles until no work is left. The writes of the controllers also cause work.
    fn run_to_completion(&mut self) {
        if self.state.cache.is_closed() {
            self.state.cache = InformerCache::open(self.cluster, true);
        }
        loop {
            self.state.cache.update(self.now.at);
            if let Some(id) = self.state.cache.next_owner() {
                self.reconcile(id);
            } else if let Some(id) = self.state.cache.next_pod() {
                self.sync_pod(id);
            } else {
                return;
            }
        }
    }

    /// Takes one step of an owner's controller. If nothing changes, updates the status of the owner.
    fn reconcile(&mut self, id: Id) {
        let Some(owner) = self.state.cache.owners.get(&id) else { return };
        let next_available = self.state.cache.next_available(owner, self.now.at);
        let has_acted = match owner.kind {
            Kind::Deployment => self.roll_out(id),
            Kind::StatefulSet => self.keep_ordinals(id),
            Kind::ReplicaSet | Kind::ReplicationController | Kind::Widget => self.keep_count(id),
        };
        if next_available.is_some() {
            self.state.cache.schedule_owner(id, next_available);
        }
        if !has_acted {
            self.write_status_of(id);
        }
    }
}

/// The kubelets, which pull images and start, probe, restart and stop containers.
impl Pass<'_> {
    /// Reconciles one pod: starts it, advances its life cycle, or deletes it.
    pub(super) fn sync_pod(&mut self, id: Id) {
        let cache = &mut self.state.cache;
        let is_unstarted = cache.pods.get(&id).is_some_and(|pod| cache.is_unstarted(pod));
        let Some(pod) = cache.pods.get_mut(&id) else { return };
        if pod.phase == PodPhase::Terminating {
            let removal_at = pod.removal_at.unwrap_or_else(|| self.now.at.saturating_add(pod.grace));
            pod.removal_at = Some(removal_at);
            if removal_at > self.now.at {
                self.state.cache.schedule_pod(id, Some(removal_at));
            } else {
                // The pod may already be deleted.
                let _ = self.cluster.delete_now("pods", pod.stored.namespace(), pod.stored.name());
            }
            return;
        }
        let Some(lifecycle) = &mut pod.lifecycle else {
            if is_unstarted {
                let object = pod.stored.value();
                self.start(id, &object);
            }
            return;
        };
        let needs_write = lifecycle.advance(self.now.at) || pod.has_unwritten_status;
        let next = lifecycle.due();
        let object = needs_write.then(|| pod.stored.value());
        self.state.cache.schedule_pod(id, next);
        if let Some(object) = object {
            self.write_status(id, object);
        }
    }

    /// Starts the life cycle of a pod on its node.
    fn start(&mut self, id: Id, object: &Value) {
        let Some(owner) = self.state.cache.pods.get(&id).map(|pod| pod.owner) else { return };
        let owner = owner.and_then(|id| self.state.cache.owners.get(&id));
        let parent = owner.and_then(|owner| self.state.cache.owners.get(&owner.parent?));
        let key = owner.map(|owner| model_key(&owner.object, parent.map(|parent| &*parent.object)));
        let key = key.unwrap_or_else(|| (namespace(object).to_owned(), name(object).to_owned()));
        let model = self.state.models.get(&key).cloned().unwrap_or_default();
        let seed = self.state.seed.for_name(&key.0).for_name(&key.1);
        let ordinal = self.state.ordinals.entry(key).or_default();
        let seed = seed.nth(*ordinal);
        *ordinal += 1;
        let lifecycle = self.lifecycle(&model, seed, object);
        let next = lifecycle.due();
        if let Some(pod) = self.state.cache.pods.get_mut(&id) {
            (pod.lifecycle, pod.grace) = (Some(lifecycle), model.grace);
        }
        self.state.cache.schedule_pod(id, next);
        self.write_status(id, object.clone());
    }

    fn lifecycle(&mut self, model: &WorkloadModel, seed: Seed, pod: &Value) -> PodLifecycle {
        let now = self.now.at;
        let node = text(pod, &["spec", "nodeName"]);
        let image = list(pod, &["spec", "containers"]).first().map_or("", |first| text(first, &["image"]));
        let slow = model.failures.iter().find_map(|failure| match failure {
            Failure::SlowPull { created, pull: wait } | Failure::Unschedulable { created, wait }
                if created.contains(now) =>
            {
                Some(wait)
            }
            _ => None,
        });
        let (pull, each) = match (slow, &model.image_pull) {
            _ if self.state.is_warming_up => (None, false),
            (Some(pull), _) | (None, ImagePull::EveryPod(pull)) => (Some(pull), true),
            (None, ImagePull::FirstOnNode(pull)) => (Some(pull), false),
            (None, ImagePull::None) => (None, true),
        };
        let draw = || pull.map(|pull| pull.draw(seed.for_name("pull"))).unwrap_or_default();
        let image_at = if each {
            now.saturating_add(draw())
        } else {
            let key = (node.to_owned(), image.to_owned());
            *self.state.images.entry(key).or_insert_with(|| now.saturating_add(draw()))
        };
        if self.state.is_warming_up {
            PodLifecycle::warm(model, seed, now)
        } else {
            PodLifecycle::new(model, seed, now, image_at)
        }
    }

    fn write_status(&mut self, id: Id, mut object: Value) {
        let Some(pod) = self.state.cache.pods.get_mut(&id) else { return };
        let Some(lifecycle) = &pod.lifecycle else { return };
        let status = status(&object, lifecycle, id, self.now);
        set(&mut object, &["status"], status);
        let uid = uid(&object).to_owned();
        pod.has_unwritten_status = false;
        if self.cluster.update_status(object).is_err() {
            // Another client has changed or deleted the pod. The feed contains the change.
            self.state.cache.update(self.now.at);
            if let Some(pod) = self.state.cache.id(&uid).and_then(|id| self.state.cache.pods.get_mut(&id)) {
                pod.has_unwritten_status = true;
                let retry = self.now.at.saturating_add(RETRY);
                let due =
                    pod.lifecycle.as_ref().and_then(PodLifecycle::due).map_or(retry, |due| due.min(retry));
                self.state.cache.schedule_pod(id, Some(due));
            }
        }
    }
}

#[cfg(test)]
mod tests;
