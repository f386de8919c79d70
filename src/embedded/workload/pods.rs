//! Pods as objects: made from a template, and their status at each step of their life.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::objects::{is_terminating, namespace, owned_by, set};
use crate::embedded::object::{at, list, text, time_text};

/// A new pod of `owner`, from its `spec.template`.
pub(super) fn from_template(owner: &Value, template: &Value, pod_name: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod_name, "namespace": namespace(owner), "ownerReferences": [owned_by(owner)]},
        "spec": at(template, &["spec"]),
    });
    for field in ["labels", "annotations"] {
        if let Some(given) = at(template, &["metadata", field]) {
            set(&mut pod, &["metadata", field], given.clone());
        }
    }
    pod
}

/// Whether a pod counts for its workload: not on its way out, not ended.
pub(in crate::embedded) fn is_active(pod: &Value) -> bool {
    !is_terminating(pod) && !matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

/// Whether the pod's `Ready` condition is `True`.
pub(in crate::embedded) fn is_ready(pod: &Value) -> bool {
    let conditions = list(pod, &["status", "conditions"]);
    conditions.iter().any(|it| text(it, &["type"]) == "Ready" && text(it, &["status"]) == "True")
}

/// The pod with its end announced: gone `grace` after `now`.
pub(super) fn announce_end(pod: &Value, grace: Duration, now: Timestamp) -> Value {
    let mut pod = pod.clone();
    let end = now.checked_add(grace).unwrap_or(now);
    set(&mut pod, &["metadata", "deletionTimestamp"], time_text(end));
    set(&mut pod, &["metadata", "deletionGracePeriodSeconds"], grace.as_secs());
    pod
}

/// The status of a pod that was just placed on a node.
pub(super) fn starting(pod: &Value, place: u32, now: Timestamp) -> Value {
    let since = time_text(now);
    let condition = |kind: &str, met: bool| {
        let mut condition =
            json!({"type": kind, "status": if met { "True" } else { "False" }, "lastTransitionTime": since});
        if !met {
            set(&mut condition, &["reason"], "ContainersNotReady");
        }
        condition
    };
    json!({
        "phase": "Pending",
        "startTime": since,
        "hostIP": host_address(place),
        "conditions": [
            condition("Initialized", true),
            condition("Ready", false),
            condition("ContainersReady", false),
            condition("PodScheduled", true),
        ],
        "containerStatuses": containers(pod, false, &json!({"waiting": {"reason": "ContainerCreating"}})),
    })
}

/// The status of a pod whose containers have started and are ready, made from its status before.
pub(super) fn running(pod: &Value, place: u32, now: Timestamp) -> Value {
    let since = time_text(now);
    let mut status = at(pod, &["status"]).cloned().unwrap_or_default();
    set(&mut status, &["phase"], "Running");
    set(&mut status, &["podIP"], pod_address(place));
    set(&mut status, &["podIPs"], json!([{"ip": pod_address(place)}]));
    let met = |condition: &Value| match text(condition, &["status"]) {
        "True" => condition.clone(),
        _ => json!({"type": text(condition, &["type"]), "status": "True", "lastTransitionTime": since}),
    };
    let conditions: Vec<_> = list(&status, &["conditions"]).iter().map(met).collect();
    set(&mut status, &["conditions"], conditions);
    set(
        &mut status,
        &["containerStatuses"],
        containers(pod, true, &json!({"running": {"startedAt": since}})),
    );
    status
}

/// The node that a pod is placed on.
pub(super) fn node(place: u32) -> String {
    format!("node-{}", place % 3 + 1)
}

fn host_address(place: u32) -> String {
    format!("172.18.0.{}", place % 3 + 2)
}

fn pod_address(place: u32) -> String {
    format!("10.244.{}.{}", place / 250 % 250, place % 250 + 2)
}

fn containers(pod: &Value, ready: bool, state: &Value) -> Vec<Value> {
    let status = |container: &Value| {
        json!({
            "name": text(container, &["name"]),
            "image": text(container, &["image"]),
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": 0,
            "state": state,
        })
    };
    list(pod, &["spec", "containers"]).iter().map(status).collect()
}
