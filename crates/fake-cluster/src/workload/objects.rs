//! Accessors of Kubernetes objects in plain JSON. Objects may have any shape.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object::{at, int, list, map, meta, text, time_text};

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

/// Whether `metadata.deletionTimestamp` is set.
pub(super) fn is_terminating(object: &Value) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// Returns `spec.replicas`. The default is 1, as in the API server.
pub(super) fn wanted_replicas(object: &Value) -> usize {
    let replicas = int(object, &["spec", "replicas"]).unwrap_or(1);
    // A negative count, which the API server refuses, counts as zero.
    usize::try_from(replicas).unwrap_or(0)
}

/// Returns the owner reference with `controller: true`.
pub(super) fn controller(object: &Value) -> Option<&Value> {
    let owners = list(object, &["metadata", "ownerReferences"]);
    owners.iter().find(|owner| at(owner, &["controller"]) == Some(&Value::Bool(true)))
}

/// Returns the uid of the controlling owner, or an empty text.
pub(super) fn controller_uid(object: &Value) -> &str {
    controller(object).map_or("", |owner| text(owner, &["uid"]))
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

/// Returns the time of day at `at`. `time` is the time of day at `now`.
pub(super) fn time_after(time: Timestamp, at: Duration, now: Duration) -> Timestamp {
    match now.checked_sub(at) {
        Some(ago) => time.checked_sub(ago).unwrap_or(time),
        None => time.checked_add(at.saturating_sub(now)).unwrap_or(time),
    }
}

/// Adds the annotation with which `kubectl rollout restart` changes a pod template.
pub(super) fn restarted(mut object: Value, now: Timestamp) -> Value {
    let annotations = ["spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt"];
    set(&mut object, &annotations, time_text(now));
    object
}
