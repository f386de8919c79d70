//! What is kept of each owner and each pod.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::life::Life;
use super::objects::is_terminating;
use crate::embedded::object::text;
use crate::embedded::store::Stored;

/// The order in which objects were first seen.
pub(super) type Id = u64;

/// The kinds of objects that have pods, or sets of pods. In this order they are looked after.
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

/// An object that has pods, or sets of pods.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) kind: Kind,
    pub(super) object: Arc<Value>,
    /// The Deployment that a ReplicaSet belongs to.
    pub(super) parent: Option<Id>,
    /// `spec.replicas`; none wanted of one that is being deleted.
    pub(super) wanted: usize,
    /// Of which pod template: a ReplicaSet's label, otherwise the hash of the template that there is.
    pub(super) hash: String,
    /// How long a pod must have been ready to be available.
    pub(super) min_ready: Duration,
    /// The pods that name it as their controller, the oldest first.
    pub(super) pods: BTreeSet<Id>,
    /// The ReplicaSets that name it as their controller, the oldest first.
    pub(super) sets: BTreeSet<Id>,
    /// How many pods it has ever got: the source of their names.
    pub(super) created: u64,
    /// For how many replicas of its Deployment, and at most how many pods, a ReplicaSet has got its size.
    pub(super) sized_for: Option<(i64, i64)>,
    pub(super) generation: Option<i64>,
    /// When it is to be looked after again.
    pub(super) due: Option<Duration>,
}

/// A pod.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) stored: Arc<Stored>,
    pub(super) owner: Option<Id>,
    /// The template that it was made from, if a StatefulSet made it.
    pub(super) revision: String,
    pub(super) standing: Standing,
    /// Since when it is ready.
    pub(super) ready_since: Option<Duration>,
    /// What its kubelet knows; none before it was placed, and of pods whose status somebody else writes.
    pub(super) life: Option<Life>,
    /// Whether the last status could not be written.
    pub(super) is_unwritten: bool,
    /// How long it takes to end.
    pub(super) grace: Duration,
    /// When it is gone.
    pub(super) gone_at: Option<Duration>,
    /// When it is to be looked after again.
    pub(super) due: Option<Duration>,
}

/// How a pod counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has not started.
    Pending,
    /// It has started.
    Running,
    /// It has a `deletionTimestamp`.
    Ending,
    /// It is over, and nobody has deleted it.
    Ended,
}

impl Standing {
    pub(super) fn of(pod: &Value) -> Self {
        match text(pod, &["status", "phase"]) {
            _ if is_terminating(pod) => Self::Ending,
            "Succeeded" | "Failed" => Self::Ended,
            "" | "Pending" => Self::Pending,
            _ => Self::Running,
        }
    }

    /// Whether the pod counts for its owner.
    pub(super) fn is_active(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

impl Pod {
    pub(super) fn is_active(&self) -> bool {
        self.standing.is_active()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready_since.is_some()
    }
}

/// Pods of one workload, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Pods that the workload is told to have: `spec.replicas`.
    pub wanted: usize,
    /// Pods that are there and not on their way out.
    pub active: usize,
    /// Those of them that have not started yet: no image.
    pub pending: usize,
    /// Those of them that are ready.
    pub ready: usize,
    /// Those of them that have been ready for `minReadySeconds`.
    pub available: usize,
    /// Pods on their way out.
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
