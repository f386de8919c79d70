//! The rules of DELETE: preconditions, grace periods, finalizers and dependents.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Write, existing};
use crate::object;
use crate::registry::{ResourceType, TYPES};
use crate::status::Status;
use crate::store::{Key, State, StoredObject};

/// The supported part of `DeleteOptions`.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period: Option<i64>,
    pub(crate) orphan: bool,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

/// Handles a DELETE of an object. Returns the object's last state, and whether the object was removed.
pub(crate) fn delete(
    state: &mut State,
    ty: &'static ResourceType,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
    write: &Write<'_>,
) -> Result<(Arc<StoredObject>, bool), Status> {
    let stored = existing(state, ty, namespace, name)?;
    let precondition = |field: &str, requested: &str, actual: &str| {
        let cause = format!(
            "Precondition failed: {field} in precondition: {requested}, {field} in object meta: {actual}"
        );
        Status::conflict_because(ty.group, ty.resource, name, &cause)
    };
    if let Some(uid) = options.uid.as_deref().filter(|uid| **uid != *stored.uid) {
        return Err(precondition("UID", uid, &stored.uid));
    }
    let version = stored.resource_version.to_string();
    if let Some(requested) = options.resource_version.as_deref().filter(|requested| *requested != version) {
        return Err(precondition("ResourceVersion", requested, &version));
    }
    let mut object = stored.value();
    let grace = grace_period(ty, &object, options);
    let finalized = object::list(&object, &["metadata", "finalizers"]).is_empty();
    if write.dry_run {
        return Ok((stored, finalized && grace == 0));
    }
    if finalized && grace == 0 {
        return Ok((remove(state, &stored, options.orphan, write), true));
    }
    let terminating = object::at(&object, &["metadata", "deletionTimestamp"]).is_some();
    let shorter =
        object::int(&object, &["metadata", "deletionGracePeriodSeconds"]).is_none_or(|old| grace < old);
    if terminating && !shorter {
        return Ok((stored, false));
    }
    let ends = write.now.checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(write.now);
    let generation = object::int(&object, &["metadata", "generation"]).unwrap_or(0) + 1;
    let metadata = object::section(&mut object, "metadata");
    metadata.insert("deletionTimestamp".to_owned(), object::time_text(ends).into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
    if ty.generation && !terminating {
        metadata.insert("generation".to_owned(), generation.into());
    }
    Ok((state.store(ty, object), false))
}

/// Whether an update clears the last finalizer of a terminating object without a grace period. `old` is its previous
/// metadata.
pub(super) fn clears_last_finalizer(object: &Value, old: &Map<String, Value>) -> bool {
    let terminating = object::at(object, &["metadata", "deletionTimestamp"]).is_some();
    let released = object::list(object, &["metadata", "finalizers"]).is_empty()
        && old.get("finalizers").and_then(Value::as_array).is_some_and(|finalizers| !finalizers.is_empty());
    let grace = object::int(object, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
    terminating && released && grace == 0
}

/// Returns the grace period in seconds, which is nonzero only for pods on a node.
fn grace_period(ty: &ResourceType, object: &Value, options: &DeleteOptions) -> i64 {
    let runs = !object::text(object, &["spec", "nodeName"]).is_empty()
        && !matches!(object::text(object, &["status", "phase"]), "Succeeded" | "Failed");
    if ty.kind != "Pod" || !runs {
        return 0;
    }
    let default = || object::int(object, &["spec", "terminationGracePeriodSeconds"]).unwrap_or(30);
    options.grace_period.unwrap_or_else(default).max(0)
}

/// Removes an object, and its dependents unless `orphan` is set. A namespace first becomes Terminating. Its
/// content is also removed.
pub(super) fn remove(
    state: &mut State,
    stored: &Arc<StoredObject>,
    orphan: bool,
    write: &Write<'_>,
) -> Arc<StoredObject> {
    let mut last = Arc::clone(stored);
    let mut dependents = if orphan { Vec::new() } else { state.dependents(&stored.uid) };
    let mut options = DeleteOptions::default();
    if stored.ty.kind == "Namespace" {
        let mut ending = stored.value();
        let ends = object::time_text(write.now);
        object::section(&mut ending, "metadata").insert("deletionTimestamp".to_owned(), ends.into());
        object::section(&mut ending, "status").insert("phase".to_owned(), "Terminating".into());
        last = state.store(stored.ty, ending);
        for ty in TYPES.iter().filter(|ty| ty.namespaced) {
            let content = state.list(ty, Some(stored.name()), None);
            dependents.extend(content.map(|content| (ty, Key::new(content.namespace(), content.name()))));
        }
        options.grace_period = Some(0);
        drop_all(state, dependents, &options, write);
        state.remove(stored.ty, stored.namespace(), stored.name());
        return last;
    }
    last = state.remove(stored.ty, stored.namespace(), stored.name()).unwrap_or(last);
    drop_all(state, dependents, &options, write);
    last
}

fn drop_all(
    state: &mut State,
    all: Vec<(&'static ResourceType, Key)>,
    options: &DeleteOptions,
    write: &Write<'_>,
) {
    for (ty, key) in all {
        // An object that no longer exists needs no deletion.
        let _ = delete(state, ty, &key.namespace, &key.name, options, write);
    }
}
