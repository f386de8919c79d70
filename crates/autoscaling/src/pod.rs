//! The compact pod record: what an autoscaler must know of a pod, and nothing else.
//!
//! Labels and requests are shared between the pods of one workload, so a record costs little more than its name.

use std::sync::Arc;

use jiff::Timestamp;

use crate::quantity::Quantity;
use crate::selector::Labels;

/// One pod as the decision sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.labels`, shared by all pods that carry the same set.
    pub labels: Arc<LabelSet>,
    /// Requests of containers and of the pod, shared by all pods made from the same template.
    pub requests: Arc<PodRequests>,
    /// `status.phase`.
    pub phase: Phase,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// The condition of type `Ready`, if there is one.
    pub ready: Option<ReadyCondition>,
    /// `status.startTime`.
    pub start_time: Option<Timestamp>,
}

/// `status.phase` of a pod; an unknown or empty phase is [`Phase::Unknown`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Accepted, not all containers started.
    Pending,
    /// Bound to a node, containers started.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, at least one badly.
    Failed,
    /// Anything else.
    #[default]
    Unknown,
}

impl Phase {
    /// Reads `status.phase`.
    pub fn parse(text: &str) -> Self {
        match text {
            "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }
}

/// The `Ready` condition of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyCondition {
    /// `True`, `False`, or neither.
    pub status: ConditionStatus,
    /// `lastTransitionTime`; absent in the object means the zero time, which is before all others.
    pub since: Option<Timestamp>,
}

/// The status of a condition: exactly `True`, exactly `False`, or anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionStatus {
    /// `True`
    True,
    /// `False`
    False,
    /// `Unknown` or any other text.
    Unknown,
}

impl ConditionStatus {
    /// Reads a condition's `status`.
    pub fn parse(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

/// A set of labels, sorted by key, at most one value per key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LabelSet(Box<[(Arc<str>, Arc<str>)]>);

impl LabelSet {
    /// Makes a set; of two pairs with the same key the last wins.
    pub fn new(pairs: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) -> Self {
        Self(pairs.into_iter().collect::<std::collections::BTreeMap<_, _>>().into_iter().collect())
    }

    /// The pairs, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl Labels for LabelSet {
    fn value(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| &**value)
    }
}

/// What the containers of a pod request, and what the pod requests as a whole.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodRequests {
    /// `spec.containers`, in order.
    pub containers: Box<[ContainerRequests]>,
    /// `spec.initContainers`, in order.
    pub init_containers: Box<[ContainerRequests]>,
    /// `spec.resources.requests`; empty if the pod sets none.
    pub pod_level: ResourceList,
}

/// One container's requests.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerRequests {
    /// `name`.
    pub name: Arc<str>,
    /// Whether `restartPolicy` is `Always`: among init containers, this one keeps running beside the others.
    pub restartable: bool,
    /// `resources.requests`.
    pub requests: ResourceList,
}

/// Amounts by resource name (`cpu`, `memory`, ...), sorted by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResourceList(Box<[(Arc<str>, Quantity)]>);

impl ResourceList {
    /// Makes a list; of two entries with the same name the last wins.
    pub fn new(entries: impl IntoIterator<Item = (Arc<str>, Quantity)>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        // Backwards, so that of equal names the last comes first and stays.
        entries.reverse();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        entries.dedup_by(|(later, _), (kept, _)| later == kept);
        Self(entries.into_boxed_slice())
    }

    /// The amount of one resource.
    pub fn get(&self, resource: &str) -> Option<Quantity> {
        let at = self.0.binary_search_by(|(name, _)| (**name).cmp(resource)).ok()?;
        self.0.get(at).map(|(_, quantity)| *quantity)
    }

    /// The entries, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, quantity)| (&**name, *quantity))
    }

    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
