//! The workload side of a cluster: what the deployment, replicaset and statefulset controllers and the kubelets do.
//!
//! For every Deployment, ReplicaSet, ReplicationController, StatefulSet and `example.com` Widget there are as many pods as
//! `spec.replicas` says. A pod starts `Pending`, is `Running` and ready after a start-up delay, and, once it is no longer
//! wanted, carries a `deletionTimestamp` for a grace period before it goes. The status of every workload follows its pods.
//!
//! All of it happens in passes over the cluster's objects, one each [`TICK`], in a fixed order, so that the same inputs give
//! the same pods with the same names. Durations are measured with tokio's clock, times of day come from the cluster's
//! [`Clock`](crate::clock::Clock); virtual time moves both. What a pass cannot write because of a conflict, the next
//! one writes.
//!
//! Not played: rolling updates by `maxSurge` and `maxUnavailable` (a changed template gets a full new ReplicaSet, the old
//! ones shrink as its pods become ready), adoption of pods without an owner, crashes, nodes that run full.

mod deployments;
mod distribution;
mod kubelet;
mod model;
mod names;
mod objects;
mod pods;
mod replicas;
pub(super) mod seed;
mod status;

pub use distribution::Distribution;
pub use model::{Failure, ImagePull, Span, WorkloadModel};
pub(super) use pods::{is_active, is_ready};

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::Cluster;
use crate::clock::SharedClock;

/// How long a pass waits for the next.
pub const TICK: Duration = Duration::from_millis(200);

/// How long the pods of a workload take to start and to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// From the pod's creation until it is ready.
    pub start_up: Duration,
    /// From the pod's `deletionTimestamp` being set until the pod is gone.
    pub grace: Duration,
}

impl Default for Timing {
    /// 3 s to start, 2 s to end.
    fn default() -> Self {
        Self { start_up: Duration::from_secs(3), grace: Duration::from_secs(2) }
    }
}

/// Plays the workload side of one cluster.
#[derive(Debug)]
pub struct Workloads {
    cluster: Cluster,
    clock: SharedClock,
    memory: Mutex<Memory>,
}

/// What the workload side knows that is not written in any object.
#[derive(Debug, Default)]
struct Memory {
    /// Timings that differ from the default, by namespace and name of the workload.
    timings: BTreeMap<(String, String), Timing>,
    /// How many pods each workload has ever got, by its UID: the source of new names.
    created: BTreeMap<String, u64>,
    /// What the kubelets know, by pod UID.
    pods: BTreeMap<String, PodMemory>,
    /// The resourceVersion at which nothing was left to do, and until when that holds.
    settled: Option<(u64, Option<Instant>)>,
    /// How many pods were ever placed: the source of addresses and nodes.
    placed: u32,
}

/// What the kubelet knows of one pod.
#[derive(Debug, Clone, Copy)]
struct PodMemory {
    timing: Timing,
    /// When the pod was first seen.
    since: Instant,
    /// When its `deletionTimestamp` was first seen.
    ending_since: Option<Instant>,
    /// The pod's place in the order of all placed pods.
    place: u32,
}

impl PodMemory {
    /// When the pod becomes ready, or, on its way out, when it is gone.
    fn due(&self) -> Option<Instant> {
        match self.ending_since {
            Some(since) => since.checked_add(self.timing.grace),
            None => self.since.checked_add(self.timing.start_up),
        }
    }
}

/// The instant of one pass, on both clocks.
#[derive(Debug, Clone, Copy)]
struct Moment {
    instant: Instant,
    time: Timestamp,
}

impl Workloads {
    /// The workload side of `cluster`. Nothing happens until [`run`](Self::run) or [`step`](Self::step).
    pub fn new(cluster: Cluster, clock: SharedClock) -> Self {
        Self { cluster, clock, memory: Mutex::default() }
    }

    /// Sets how long the pods of one workload take to start and end; counts for pods created from now on.
    pub fn set_timing(&self, namespace: &str, name: &str, timing: Timing) {
        self.lock().timings.insert((namespace.to_owned(), name.to_owned()), timing);
    }

    /// Makes a pass each [`TICK`] until `stop` is cancelled.
    pub async fn run(&self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = ticks.tick() => self.step(),
            }
        }
    }

    /// One pass: replica sets, pods, kubelets, statuses. Does nothing as long as nothing has changed and no pod is due.
    pub fn step(&self) {
        let now = Moment { instant: Instant::now(), time: self.clock.now() };
        let mut memory = self.lock();
        let version = self.cluster.resource_version();
        if let Some((settled, until)) = memory.settled
            && settled == version
            && until.is_none_or(|until| now.instant < until)
        {
            return;
        }
        deployments::reconcile(&self.cluster);
        replicas::reconcile(&self.cluster, &mut memory, now);
        let due = kubelet::reconcile(&self.cluster, &mut memory, now);
        status::reconcile(&self.cluster, now);
        // A pass that has written something may have left work for the next.
        memory.settled = (self.cluster.resource_version() == version).then_some((version, due));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// The timing of a workload's pods.
    fn timing(&self, namespace: &str, name: &str) -> Timing {
        self.timings.get(&(namespace.to_owned(), name.to_owned())).copied().unwrap_or_default()
    }

    /// Begins to remember a pod.
    fn place(&mut self, pod_uid: &str, timing: Timing, now: Moment) -> PodMemory {
        let place = self.placed;
        self.placed = self.placed.wrapping_add(1);
        let memory = PodMemory { timing, since: now.instant, ending_since: None, place };
        self.pods.insert(pod_uid.to_owned(), memory);
        memory
    }
}

#[cfg(test)]
mod tests;
