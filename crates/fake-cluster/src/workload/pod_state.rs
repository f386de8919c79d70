//! The cached state of owners and pods.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::pod_lifecycle::PodLifecycle;
use super::pods::is_terminating;
use crate::object::text;
use crate::store::StoredObject;

/// The number of an object, in the order in which the cache first received the objects.
pub(super) type Id = u64;

/// The kinds of objects that own pods or ReplicaSets, in the order of their reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    ReplicationController,
    Widget,
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Deployment, Self::ReplicaSet, Self::StatefulSet, Self::ReplicationController, Self::Widget];

    pub(super) const fn resource(self) -> &'static str {
        match self {
            Self::Deployment => "apps/deployments",
            Self::ReplicaSet => "apps/replicasets",
            Self::StatefulSet => "apps/statefulsets",
            Self::ReplicationController => "replicationcontrollers",
            Self::Widget => "example.com/widgets",
        }
    }
}

/// An object that owns pods or ReplicaSets.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) kind: Kind,
    pub(super) object: Arc<Value>,
    /// The Deployment that owns a ReplicaSet.
    pub(super) parent: Option<Id>,
    /// `spec.replicas`. Zero for a terminating owner.
    pub(super) wanted: usize,
    /// The hash of the pod template. For a ReplicaSet, the value of its label.
    pub(super) hash: String,
    /// The time for which a pod must be ready to be available.
    pub(super) min_ready: Duration,
    /// The pods that the owner controls, the oldest first.
    pub(super) pods: BTreeSet<Id>,
    /// The ReplicaSets that the owner controls, the oldest first.
    pub(super) sets: BTreeSet<Id>,
    /// The number of pods ever created. It determines the names of pods.
    pub(super) created: u64,
    /// The replicas and the maximum pods of the Deployment at the last resize of this ReplicaSet.
    pub(super) sized_for: Option<(i64, i64)>,
    pub(super) generation: Option<i64>,
    /// The next scheduled reconciliation.
    pub(super) due: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Pod {
    pub(super) stored: Arc<StoredObject>,
    pub(super) owner: Option<Id>,
    /// The hash of the pod's template, if a StatefulSet created it.
    pub(super) revision: String,
    pub(super) phase: PodPhase,
    /// The time since which the pod is ready.
    pub(super) ready_since: Option<Duration>,
    /// The life cycle of the pod on its node. `None` before the pod starts, and if another client writes the status.
    pub(super) lifecycle: Option<PodLifecycle>,
    /// Whether the last status write failed.
    pub(super) has_unwritten_status: bool,
    /// The grace period of the termination.
    pub(super) grace: Duration,
    /// The time of the removal. `None` until the termination is processed.
    pub(super) removal_at: Option<Duration>,
    /// The next scheduled reconciliation.
    pub(super) due: Option<Duration>,
}

/// The phase of a pod from the view of its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodPhase {
    /// The pod has not started.
    Pending,
    /// The pod has started.
    Running,
    /// The pod has a `deletionTimestamp`.
    Terminating,
    /// The pod has ended but still exists.
    Finished,
}

impl PodPhase {
    pub(super) fn from_pod(pod: &Value) -> Self {
        match text(pod, &["status", "phase"]) {
            _ if is_terminating(pod) => Self::Terminating,
            "Succeeded" | "Failed" => Self::Finished,
            "" | "Pending" => Self::Pending,
            _ => Self::Running,
        }
    }

    /// Returns whether the pod counts for its owner.
    pub(super) fn is_active(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

impl Pod {
    pub(super) fn is_active(&self) -> bool {
        self.phase.is_active()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready_since.is_some()
    }
}

/// The pod counts of one workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Desired pods: `spec.replicas`.
    pub wanted: usize,
    /// Existing pods that are neither terminating nor finished.
    pub active: usize,
    /// Active pods that have not started, because they wait for a node or their image.
    pub pending: usize,
    /// Active pods that are ready.
    pub ready: usize,
    /// Active pods that have been ready for `minReadySeconds`.
    pub available: usize,
    /// Terminating pods.
    pub ending: usize,
}

impl Counts {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            wanted: self.wanted,
            active: self.active + other.active,
            pending: self.pending + other.pending,
            ready: self.ready + other.ready,
            available: self.available + other.available,
            ending: self.ending + other.ending,
        }
    }
}
