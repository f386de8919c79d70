//! Pod objects: their creation from a template, and their status at each stage.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::TimePoint;
use super::objects::{is_terminating, namespace, owned_by, set};
use super::pod_lifecycle::{PodLifecycle, Stage};
use super::pod_state::Id;
use super::scheduling::{host_address, pod_address};
use crate::object::{at, list, text, time_text};

/// Creates a pod of `owner` from its `spec.template`.
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
