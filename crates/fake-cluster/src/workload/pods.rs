//! The cached state of owners and pods. Also creates pod objects from templates, and computes their names, nodes,
//! addresses and statuses. Names resemble the names in Kubernetes but are equal in every run. The accessors accept
//! objects of any shape.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::TimePoint;
use super::pod_lifecycle::{PodLifecycle, Stage};
use crate::object::{at, int, letters, list, map, meta, text, time_text};
use crate::store::StoredObject;

/// The label that distinguishes the pods of different templates.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// The label with the template hash of a StatefulSet's pod.
pub(super) const REVISION_LABEL: &str = "controller-revision-hash";

/// Returns `metadata.name`, or an empty text.
pub(super) fn name(object: &Value) -> &str {
    meta(object, "name")
}

/// Returns `metadata.namespace`, or an empty text.
pub(super) fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

/// Returns `metadata.uid`, or an empty text.
pub(super) fn uid(object: &Value) -> &str {
    meta(object, "uid")
}

/// Sets the field at `path`. Values of other types along the path become objects.
pub(super) fn set(object: &mut Value, path: &[&str], value: impl Into<Value>) {
    let mut slot = object;
    for field in path {
        slot = map(slot).entry(*field).or_insert(Value::Null);
    }
    *slot = value.into();
}

/// Returns whether `metadata.deletionTimestamp` is set.
pub(super) fn is_terminating(object: &Value) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// Returns `spec.replicas`. The default is 1, as in the API server.
pub(super) fn wanted_replicas(object: &Value) -> usize {
    let replicas = int(object, &["spec", "replicas"]).unwrap_or(1);
    // The API server refuses negative counts. Here, they are handled as zero.
    usize::try_from(replicas).unwrap_or(0)
}

/// Returns the owner reference with `controller: true`, if any.
pub(super) fn controller(object: &Value) -> Option<&Value> {
    let owners = list(object, &["metadata", "ownerReferences"]);
    owners.iter().find(|owner| at(owner, &["controller"]) == Some(&Value::Bool(true)))
}

/// Returns the owner reference that makes `owner` the controller of another object.
pub(super) fn owned_by(owner: &Value) -> Value {
    json!({
        "apiVersion": text(owner, &["apiVersion"]),
        "kind": text(owner, &["kind"]),
        "name": name(owner),
        "uid": uid(owner),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Returns a field in whole seconds. Absent and negative values are zero.
pub(super) fn seconds(object: &Value, path: &[&str]) -> Duration {
    Duration::from_secs(int(object, path).and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0))
}

/// Creates a pod of `owner` from `template`.
pub(super) fn from_template(owner: &Value, template: &Value, pod_name: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod_name, "namespace": namespace(owner), "ownerReferences": [owned_by(owner)]},
        "spec": at(template, &["spec"]),
    });
    for field in ["labels", "annotations"] {
        if let Some(value) = at(template, &["metadata", field]) {
            set(&mut pod, &["metadata", field], value.clone());
        }
    }
    pod
}

/// Returns whether a pod counts for its workload. A terminating or ended pod does not count.
pub(crate) fn is_active(pod: &Value) -> bool {
    !is_terminating(pod) && !matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

/// Returns whether the pod's `Ready` condition is `True`.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = list(pod, &["status", "conditions"]);
    conditions.iter().any(|it| text(it, &["type"]) == "Ready" && text(it, &["status"]) == "True")
}

/// Marks the pod as terminating, for removal `grace` after `now`.
pub(super) fn announce_end(mut pod: Value, grace: Duration, now: Timestamp) -> Value {
    let end = now.checked_add(grace).unwrap_or(now);
    set(&mut pod, &["metadata", "deletionTimestamp"], time_text(end));
    set(&mut pod, &["metadata", "deletionGracePeriodSeconds"], grace.as_secs());
    pod
}

/// Returns the status that the kubelet writes at the current stage of `lifecycle`. `number` determines the address of
/// the pod.
pub(super) fn status(pod: &Value, lifecycle: &PodLifecycle, number: u64, now: TimePoint) -> Value {
    let stage = lifecycle.stage;
    let is_ready = stage == Stage::Ready;
    let has_image = !matches!(stage, Stage::Pulling { .. });
    let mut scheduled = condition(pod, "PodScheduled", !lifecycle.waits_for_node(), now);
    if lifecycle.waits_for_node() {
        set(&mut scheduled, &["reason"], "Unschedulable");
    }
    let mut status = json!({
        "phase": if has_image { "Running" } else { "Pending" },
        "startTime": at(pod, &["status", "startTime"]).cloned().unwrap_or_else(|| time_text(now.time).into()),
        "hostIP": host_address(text(pod, &["spec", "nodeName"])),
        "conditions": [
            condition(pod, "Initialized", true, now),
            condition(pod, "Ready", is_ready, now),
            condition(pod, "ContainersReady", is_ready, now),
            scheduled,
        ],
        "containerStatuses": list(pod, &["spec", "containers"])
            .iter()
            .map(|container| container_status(container, lifecycle, now))
            .collect::<Vec<_>>(),
    });
    if has_image {
        let address = pod_address(number);
        set(&mut status, &["podIPs"], json!([{"ip": address}]));
        set(&mut status, &["podIP"], address);
    }
    status
}

/// Returns a condition, with the previous transition time if the status is unchanged.
fn condition(pod: &Value, kind: &str, met: bool, now: TimePoint) -> Value {
    let status = if met { "True" } else { "False" };
    let conditions = list(pod, &["status", "conditions"]);
    let before = conditions.iter().find(|it| text(it, &["type"]) == kind && text(it, &["status"]) == status);
    let since = before.map(|before| text(before, &["lastTransitionTime"])).filter(|since| !since.is_empty());
    let since = since.map_or_else(|| time_text(now.time), str::to_owned);
    let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": since});
    if !met {
        set(&mut condition, &["reason"], "ContainersNotReady");
    }
    condition
}

fn container_status(container: &Value, lifecycle: &PodLifecycle, now: TimePoint) -> Value {
    let stage = lifecycle.stage;
    let (container_state, has_started) = match stage {
        Stage::Pulling { .. } => (json!({"waiting": {"reason": "ContainerCreating"}}), false),
        Stage::BackOff { .. } => {
            let message = format!("back-off restarting failed container={}", text(container, &["name"]));
            (json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}}), false)
        }
        Stage::Starting | Stage::Ready | Stage::Unready => {
            let started_at = now.time_of(lifecycle.started);
            (json!({"running": {"startedAt": time_text(started_at)}}), stage != Stage::Starting)
        }
    };
    let mut status = json!({
        "name": text(container, &["name"]),
        "image": text(container, &["image"]),
        "imageID": "",
        "ready": stage == Stage::Ready,
        "started": has_started,
        "restartCount": lifecycle.restarts,
        "state": container_state,
    });
    if let Some(crashed) = lifecycle.crashed {
        let finished = time_text(now.time_of(crashed));
        let terminated = json!({"exitCode": 1, "reason": "Error", "finishedAt": finished});
        set(&mut status, &["lastState"], json!({"terminated": terminated}));
    }
    status
}

/// Returns the hash of a pod template, such as `5d9c7b8f6d`, which distinguishes the ReplicaSets of a Deployment.
pub(super) fn template_hash(template: &Value) -> String {
    letters(fnv(template.to_string().as_bytes()), 10)
}

/// Returns the name suffix of the `count`-th pod of a workload, such as `bcdfg`.
pub(super) fn pod_suffix(workload: &str, count: u64) -> String {
    letters(fnv(format!("{workload}/{count}").as_bytes()), 5)
}

/// Computes FNV-1a with a final mix, so that a difference in the last character affects all digits.
fn fnv(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

const NODES: u32 = 3;

/// Returns the node of the n-th placed pod.
pub(super) fn node(index: u32) -> String {
    format!("node-{}", index % NODES + 1)
}

pub(super) fn host_address(node: &str) -> String {
    let number: u32 = node.strip_prefix("node-").and_then(|number| number.parse().ok()).unwrap_or(0);
    format!("172.18.{}.{}", number / 250 % 250, number % 250 + 1)
}

/// Returns the address of a pod by its number.
pub(super) fn pod_address(number: u64) -> String {
    format!("10.{}.{}.{}", 244 + number / 62_500 % 10, number / 250 % 250, number % 250 + 2)
}

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
    /// The hash of the pod template. For a ReplicaSet, the value of its label `pod-template-hash`.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::{pod_suffix, template_hash};

    #[test]
    fn pod_suffixes_are_unique_and_have_five_letters() {
        let names: BTreeSet<_> = (0..1_000).map(|count| pod_suffix("web-5d9c7b8f6d", count)).collect();
        assert_eq!(names.len(), 1_000);
        assert!(names.iter().all(|name| name.len() == 5));
    }

    #[test]
    fn template_hashes_are_equal_only_for_equal_templates() {
        let one = json!({"spec": {"containers": [{"image": "web:1"}]}});
        let two = json!({"spec": {"containers": [{"image": "web:2"}]}});
        assert_eq!(template_hash(&one), template_hash(&one.clone()));
        assert_ne!(template_hash(&one), template_hash(&two));
    }
}
