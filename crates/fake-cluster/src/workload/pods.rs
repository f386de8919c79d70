//! Pod objects: their creation from a template, their names, nodes and addresses, and their status at each stage.
//! Names resemble Kubernetes' names but are equal in every run.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::TimePoint;
use super::objects::{is_terminating, namespace, owned_by, set};
use super::pod_lifecycle::{PodLifecycle, Stage};
use super::pod_state::Id;
use crate::object::{at, list, text, time_text};
use crate::store::letters;

/// The label that distinguishes the pods of different templates.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// The label with the template hash of a StatefulSet's pod.
pub(super) const REVISION_LABEL: &str = "controller-revision-hash";

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

/// Whether a pod counts for its workload, because the pod is not terminating and has not ended.
pub(crate) fn is_active(pod: &Value) -> bool {
    !is_terminating(pod) && !matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

/// Whether the pod's `Ready` condition is `True`.
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

/// Returns the status that the kubelet writes at the current stage of `lifecycle`. `number` determines the
/// pod's address.
pub(super) fn status(pod: &Value, lifecycle: &PodLifecycle, number: Id, now: TimePoint) -> Value {
    let stage = lifecycle.stage();
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

/// Returns a condition. The previous transition time is kept if the status stays the same.
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
    let stage = lifecycle.stage();
    let (container_state, has_started) = match stage {
        Stage::Pulling { .. } => (json!({"waiting": {"reason": "ContainerCreating"}}), false),
        Stage::BackOff { .. } => {
            let message = format!("back-off restarting failed container={}", text(container, &["name"]));
            (json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}}), false)
        }
        Stage::Starting | Stage::Ready | Stage::Unready => {
            let started_at = now.time_of(lifecycle.started());
            (json!({"running": {"startedAt": time_text(started_at)}}), stage != Stage::Starting)
        }
    };
    let mut status = json!({
        "name": text(container, &["name"]),
        "image": text(container, &["image"]),
        "imageID": "",
        "ready": stage == Stage::Ready,
        "started": has_started,
        "restartCount": lifecycle.restarts(),
        "state": container_state,
    });
    if let Some(crashed) = lifecycle.crashed() {
        let finished = time_text(now.time_of(crashed));
        let terminated = json!({"exitCode": 1, "reason": "Error", "finishedAt": finished});
        set(&mut status, &["lastState"], json!({"terminated": terminated}));
    }
    status
}

/// Returns the hash of a pod template, such as `5d9c7b8f6d`. The hash distinguishes the ReplicaSets of one
/// Deployment.
pub(super) fn template_hash(template: &serde_json::Value) -> String {
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

/// Returns the address of a node.
pub(super) fn host_address(node: &str) -> String {
    let number: u32 = node.strip_prefix("node-").and_then(|number| number.parse().ok()).unwrap_or(0);
    format!("172.18.{}.{}", number / 250 % 250, number % 250 + 1)
}

/// Returns the address of a pod by its number.
pub(super) fn pod_address(number: u64) -> String {
    format!("10.{}.{}.{}", 244 + number / 62_500 % 10, number / 250 % 250, number % 250 + 2)
}

/// The time at which each image is available on each node.
#[derive(Debug, Default)]
pub(super) struct Images {
    available_at: BTreeMap<(String, String), Duration>,
}

impl Images {
    /// Returns the time at which an image is available on a node. The first request starts the pull, with the
    /// duration from `pull`.
    pub(super) fn available_at(
        &mut self,
        node: &str,
        image: &str,
        now: Duration,
        pull: impl FnOnce() -> Duration,
    ) -> Duration {
        let key = (node.to_owned(), image.to_owned());
        *self.available_at.entry(key).or_insert_with(|| now.saturating_add(pull()))
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
