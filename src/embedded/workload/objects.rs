//! Reading Kubernetes objects that are plain JSON: every function answers for objects of any shape.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::embedded::object::{at, int, list, map, meta, text, time_text};

/// `metadata.name`, empty if there is none.
pub(super) fn name(object: &Value) -> &str {
    meta(object, "name")
}

/// `metadata.namespace`, empty if there is none.
pub(super) fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

/// `metadata.uid`, empty if there is none.
pub(super) fn uid(object: &Value) -> &str {
    meta(object, "uid")
}

/// Sets the field at `path`; what is on the way and not an object becomes one.
pub(super) fn set(object: &mut Value, path: &[&str], value: impl Into<Value>) {
    let mut place = object;
    for field in path {
        place = map(place).entry(*field).or_insert(Value::Null);
    }
    *place = value.into();
}

/// Whether `metadata.deletionTimestamp` is set.
pub(super) fn is_terminating(object: &Value) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// `spec.replicas`; absent means 1, as the API server defaults it.
pub(super) fn wanted_replicas(object: &Value) -> usize {
    let replicas = int(object, &["spec", "replicas"]).unwrap_or(1);
    // A negative count, which the API server refuses, means none.
    usize::try_from(replicas).unwrap_or(0)
}

/// The owner reference that has `controller: true`.
pub(super) fn controller(object: &Value) -> Option<&Value> {
    let owners = list(object, &["metadata", "ownerReferences"]);
    owners.iter().find(|owner| at(owner, &["controller"]) == Some(&Value::Bool(true)))
}

/// The UID of the controlling owner, empty if there is none.
pub(super) fn controller_uid(object: &Value) -> &str {
    controller(object).map_or("", |owner| text(owner, &["uid"]))
}

/// The owner reference that makes `owner` the controller of another object.
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

/// A field in whole seconds; absent and negative ones are zero.
pub(super) fn seconds(object: &Value, path: &[&str]) -> Duration {
    Duration::from_secs(int(object, path).and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0))
}

/// The time of day at `at`, if it is `time` at `now`.
pub(super) fn time_after(time: Timestamp, at: Duration, now: Duration) -> Timestamp {
    match now.checked_sub(at) {
        Some(ago) => time.checked_sub(ago).unwrap_or(time),
        None => time.checked_add(at.saturating_sub(now)).unwrap_or(time),
    }
}

/// The object with the annotation by which `kubectl rollout restart` changes a pod template.
pub(super) fn restarted(mut object: Value, now: Timestamp) -> Value {
    let annotations = ["spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt"];
    set(&mut object, &annotations, time_text(now));
    object
}
