//! The fields of a pod that the rules need. The pods of one workload share labels and requests, so a pod takes little
//! more memory than its name.

use std::sync::Arc;

use jiff::Timestamp;

use crate::quantity::Quantity;
use crate::selector::Labels;

/// A pod that the selector of a Scale may match.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.labels`.
    pub labels: Arc<LabelSet>,
    /// The requests in `spec`.
    pub requests: Arc<PodRequests>,
    /// `status.phase`.
    pub phase: Phase,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// The condition of type `Ready`, if the pod has one.
    pub ready: Option<ReadyCondition>,
    /// `status.startTime`.
    pub start_time: Option<Timestamp>,
}

/// `status.phase` of a pod. An unknown or empty phase is [`Phase::Unknown`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Accepted, but not all containers have started.
    Pending,
    /// Bound to a node, and all containers have started.
    Running,
    /// All containers terminated successfully.
    Succeeded,
    /// All containers terminated, at least one of them with a failure.
    Failed,
    /// Any other text.
    #[default]
    Unknown,
}

impl Phase {
    /// Parses `status.phase`.
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
    /// `status`.
    pub status: ConditionStatus,
    /// `lastTransitionTime`. `None` means Go's zero time, which is before all other times.
    pub since: Option<Timestamp>,
}

/// `status` of a condition.
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
    /// Parses the `status` of a condition.
    pub fn parse(text: &str) -> Self {
        match text {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

/// A set of labels, sorted by key, with at most one value per key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LabelSet(Box<[(Arc<str>, Arc<str>)]>);

impl LabelSet {
    /// Creates a set. The last of several pairs with the same key is kept.
    pub fn new(pairs: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) -> Self {
        Self(pairs.into_iter().collect::<std::collections::BTreeMap<_, _>>().into_iter().collect())
    }

    /// The pairs, sorted by key.
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

/// The requests of a pod's containers, and of the pod as a whole.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodRequests {
    /// `spec.containers`, in order.
    pub containers: Box<[ContainerRequests]>,
    /// `spec.initContainers`, in order.
    pub init_containers: Box<[ContainerRequests]>,
    /// `spec.resources.requests`.
    pub pod_level: ResourceList,
}

/// The requests of one container.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerRequests {
    /// `name`.
    pub name: Arc<str>,
    /// Whether `restartPolicy` is `Always`. Such an init container is a sidecar.
    pub restartable: bool,
    /// `resources.requests`.
    pub requests: ResourceList,
}

/// Amounts by the name of their resource (`cpu`, `memory`), sorted by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResourceList(Box<[(Arc<str>, Quantity)]>);

impl ResourceList {
    /// Creates a list. The last of several entries with the same name is kept.
    pub fn new(entries: impl IntoIterator<Item = (Arc<str>, Quantity)>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        // The reversal and the stable sort put the last of several entries with the same name first. `dedup_by` keeps
        // it.
        entries.reverse();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        entries.dedup_by(|(later, _), (kept, _)| later == kept);
        Self(entries.into_boxed_slice())
    }

    /// The amount of a resource. `None` if the list lacks the resource.
    pub fn get(&self, resource: &str) -> Option<Quantity> {
        let at = self.0.binary_search_by(|(name, _)| (**name).cmp(resource)).ok()?;
        self.0.get(at).map(|(_, quantity)| *quantity)
    }

    /// The entries, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, quantity)| (&**name, *quantity))
    }

    /// Whether the list has no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
