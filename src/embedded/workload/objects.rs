//! Reading Kubernetes objects that are plain JSON: every function answers for objects of any shape.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::embedded::object::{at, int, list, map, meta, text};

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

/// Objects by the UID of their controlling owner; those without an owner are left out.
pub(super) fn by_controller(objects: &[Value]) -> BTreeMap<&str, Vec<&Value>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for object in objects {
        let owner = controller_uid(object);
        if !owner.is_empty() {
            found.entry(owner).or_default().push(object);
        }
    }
    found
}
