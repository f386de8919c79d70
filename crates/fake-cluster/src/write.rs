//! The rules of create, update, status update and delete.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

pub(crate) use super::metadata::Write;
use super::metadata::{
    SYSTEM_FIELDS, check_name, check_namespace, check_open, check_version, have_same_desired_state, identify,
    keep_system_fields, prepare, record_manager, taken_metadata,
};
use super::object::{self, meta};
use super::registry::{ResourceType, StatusMetadata, TYPES};
use super::status::{FieldError, Status};
use super::store::{Key, State, StoredObject};
use super::{hpa, validation};

/// Handles a POST of an object.
pub(crate) fn create(
    state: &mut State,
    ty: &'static ResourceType,
    namespace: &str,
    mut object: Value,
    write: &Write<'_>,
) -> Result<Arc<StoredObject>, Status> {
    identify(ty, &mut object)?;
    check_namespace(ty, namespace, &mut object)?;
    if !meta(&object, "resourceVersion").is_empty() {
        return Err(Status::bad_request("resourceVersion should not be set on objects to be created"));
    }
    let generate = meta(&object, "generateName").to_owned();
    let mut name = meta(&object, "name").to_owned();
    if name.is_empty() && !generate.is_empty() {
        name = format!("{generate}{}", state.next_suffix());
        object::section(&mut object, "metadata").insert("name".to_owned(), name.clone().into());
    }
    if ty.namespaced {
        check_open(state, ty, namespace, &name)?;
    }
    let uid = state.next_uid();
    let metadata = object::section(&mut object, "metadata");
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation", "managedFields"]
    {
        metadata.remove(key);
    }
    metadata.insert("uid".to_owned(), uid.into());
    metadata.insert("creationTimestamp".to_owned(), object::time_text(write.now).into());
    if ty.generation {
        metadata.insert("generation".to_owned(), 1.into());
    }
    if ty.status.is_some() {
        object::map(&mut object).remove("status");
    }
    prepare(ty, &mut object)?;
    fail_if(ty, &name, &validation::create(ty, &object))?;
    if state.get(ty, namespace, &name).is_some() {
        return Err(Status::already_exists(ty.group, ty.resource, &name));
    }
    record_manager(ty, &mut object, write);
    Ok(commit(state, ty, object, write))
}

/// Handles a PUT of an object. Keeps the status and the system fields.
pub(crate) fn update(
    state: &mut State,
    ty: &'static ResourceType,
    namespace: &str,
    name: &str,
    mut object: Value,
    write: &Write<'_>,
) -> Result<Arc<StoredObject>, Status> {
    identify(ty, &mut object)?;
    check_namespace(ty, namespace, &mut object)?;
    check_name(name, &object)?;
    let stored = existing(state, ty, namespace, name)?;
    check_version(ty, &stored, &object)?;
    let old = stored.value();
    if ty.status.is_some() {
        object::put(object::map(&mut object), "status", old.get("status").cloned());
    }
    keep_system_fields(&mut object, &old);
    prepare(ty, &mut object)?;
    if ty.generation && !have_same_desired_state(ty, &object, &old) {
        let generation = object::int(&old, &["metadata", "generation"]).unwrap_or(0) + 1;
        object::section(&mut object, "metadata").insert("generation".to_owned(), generation.into());
    }
    fail_if(ty, name, &validation::update(ty, &object, &old))?;
    Ok(finish_update(state, ty, &stored, &old, object, write))
}

/// Handles a PUT of the status subresource. Keeps the spec. The rule of the type determines the metadata.
pub(crate) fn update_status(
    state: &mut State,
    ty: &'static ResourceType,
    namespace: &str,
    name: &str,
    mut object: Value,
    write: &Write<'_>,
) -> Result<Arc<StoredObject>, Status> {
    let Some(rule) = ty.status else {
        return Err(Status::unknown_resource());
    };
    identify(ty, &mut object)?;
    check_namespace(ty, namespace, &mut object)?;
    check_name(name, &object)?;
    let stored = existing(state, ty, namespace, name)?;
    check_version(ty, &stored, &object)?;
    let mut old = stored.metadata();
    let old = object::map(&mut old);
    // Only the metadata and the status are parsed. The system fields are moved to the new metadata at the end.
    let retained: Map<String, Value> =
        SYSTEM_FIELDS.iter().filter_map(|key| old.remove_entry(*key)).collect();
    let mut new = Value::Object(Map::new());
    object::put(object::map(&mut new), "status", object.get_mut("status").map(Value::take));
    let mut metadata = match rule {
        StatusMetadata::Taken | StatusMetadata::LabelsKept => taken_metadata(&mut object),
        StatusMetadata::Kept => Value::Object(old.clone()),
    };
    if rule == StatusMetadata::LabelsKept {
        object::put(object::map(&mut metadata), "labels", old.get("labels").cloned());
    }
    object::map(&mut new).insert("metadata".to_owned(), metadata);
    if !ty.custom {
        object::drop_nulls(&mut new);
    }
    if ty.kind == "HorizontalPodAutoscaler" {
        hpa::canonical(&mut new)?;
        hpa::complete_status(&mut new);
    }
    fail_if(ty, name, &validation::update_status(ty, &new))?;
    let status = new.get("status").map(object::encode).unwrap_or_default();
    let metadata = object::section(&mut new, "metadata");
    if status == stored.status_text() && metadata == old {
        return Ok(stored);
    }
    metadata.extend(retained);
    let write = Write { subresource: "status", ..write.clone() };
    record_manager(ty, &mut new, &write);
    let removed = clears_last_finalizer(&new, old);
    let updated =
        if write.dry_run { Arc::new(stored.with_status(new)) } else { state.store_status(&stored, new) };
    Ok(if removed && !write.dry_run { remove(state, &updated, false, &write) } else { updated })
}

/// Stores an object without applying any rule. Sets missing required fields: the uid, the creationTimestamp, the
/// namespace, and the generation if the type has one.
pub(crate) fn put_raw(
    state: &mut State,
    ty: &'static ResourceType,
    mut object: Value,
    now: Timestamp,
) -> Arc<StoredObject> {
    if ty.namespaced && meta(&object, "namespace").is_empty() {
        object::section(&mut object, "metadata").insert("namespace".to_owned(), "default".into());
    }
    let namespace = meta(&object, "namespace").to_owned();
    let name = meta(&object, "name").to_owned();
    let old = state.get(ty, &namespace, &name).map(|stored| stored.value());
    let retained = |key: &str| old.as_ref().and_then(|old| object::at(old, &["metadata", key]).cloned());
    let new_uid = if old.is_some() { Value::Null } else { state.next_uid().into() };
    let metadata = object::section(&mut object, "metadata");
    object::default(metadata, "uid", retained("uid").unwrap_or(new_uid));
    object::default(
        metadata,
        "creationTimestamp",
        retained("creationTimestamp").unwrap_or_else(|| object::time_text(now).into()),
    );
    if ty.generation {
        object::default(metadata, "generation", retained("generation").unwrap_or_else(|| 1.into()));
    }
    if ty.namespaced {
        ensure_namespace(state, &namespace, now);
    }
    state.store(ty, object)
}

/// Stores an object with a JSON text as its spec, and increases its generation. Keeps the other metadata and the status
/// of an existing object. Applies no other rule.
pub(crate) fn put_spec(
    state: &mut State,
    ty: &'static ResourceType,
    namespace: &str,
    name: &str,
    spec: &str,
    now: Timestamp,
) {
    let stored = state.get(ty, namespace, name).cloned();
    let metadata = match &stored {
        Some(stored) => {
            let mut metadata = stored.metadata();
            let generation = object::int(&metadata, &["generation"]).unwrap_or(0) + 1;
            object::map(&mut metadata).insert("generation".to_owned(), generation.into());
            metadata
        }
        None => json!({
            "name": name, "namespace": namespace, "uid": state.next_uid(), "generation": 1,
            "creationTimestamp": object::time_text(now),
        }),
    };
    ensure_namespace(state, namespace, now);
    let status = stored.as_ref().map(|stored| stored.status_text()).unwrap_or_default();
    state.store_parts(ty, json!({ "metadata": metadata }), spec, status);
}

/// Creates a namespace if it is missing.
pub(crate) fn ensure_namespace(state: &mut State, name: &str, now: Timestamp) {
    let Some(ty) = ResourceType::named("namespaces") else {
        return;
    };
    if name.is_empty() || state.get(ty, "", name).is_some() {
        return;
    }
    let uid = state.next_uid();
    let mut namespace = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": name, "uid": uid, "creationTimestamp": object::time_text(now) },
    });
    validation::apply_defaults(ty, &mut namespace);
    state.store(ty, namespace);
}

/// Returns a stored object, or 404.
pub(crate) fn existing(
    state: &State,
    ty: &ResourceType,
    namespace: &str,
    name: &str,
) -> Result<Arc<StoredObject>, Status> {
    let stored = state.get(ty, namespace, name);
    stored.cloned().ok_or_else(|| Status::not_found(ty.group, ty.resource, name))
}

fn fail_if(ty: &ResourceType, name: &str, causes: &[FieldError]) -> Result<(), Status> {
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid(ty.group, ty.kind, name, causes)) }
}

/// Stores an update unless nothing has changed. Removes a terminating object if the update clears its last finalizer.
fn finish_update(
    state: &mut State,
    ty: &'static ResourceType,
    stored: &Arc<StoredObject>,
    old: &Value,
    mut object: Value,
    write: &Write<'_>,
) -> Arc<StoredObject> {
    if object == *old {
        return Arc::clone(stored);
    }
    record_manager(ty, &mut object, write);
    let removed = object::at(old, &["metadata"])
        .and_then(Value::as_object)
        .is_some_and(|old| clears_last_finalizer(&object, old));
    let updated = commit(state, ty, object, write);
    if removed && !write.dry_run { remove(state, &updated, false, write) } else { updated }
}

fn commit(
    state: &mut State,
    ty: &'static ResourceType,
    object: Value,
    write: &Write<'_>,
) -> Arc<StoredObject> {
    if write.dry_run { Arc::new(StoredObject::new(ty, object)) } else { state.store(ty, object) }
}

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
    let ends = write.now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(write.now);
    let generation = object::int(&object, &["metadata", "generation"]).unwrap_or(0) + 1;
    let metadata = object::section(&mut object, "metadata");
    metadata.insert("deletionTimestamp".to_owned(), object::time_text(ends).into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
    if ty.generation && !terminating {
        metadata.insert("generation".to_owned(), generation.into());
    }
    Ok((state.store(ty, object), false))
}

/// Returns whether an update clears the last finalizer of a terminating object without a grace period. `old` is the
/// metadata before the update.
fn clears_last_finalizer(object: &Value, old: &Map<String, Value>) -> bool {
    let terminating = object::at(object, &["metadata", "deletionTimestamp"]).is_some();
    let released = object::list(object, &["metadata", "finalizers"]).is_empty()
        && old.get("finalizers").and_then(Value::as_array).is_some_and(|finalizers| !finalizers.is_empty());
    let grace = object::int(object, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
    terminating && released && grace == 0
}

/// Returns the grace period in seconds, which is nonzero only for unfinished pods on a node.
fn grace_period(ty: &ResourceType, object: &Value, options: &DeleteOptions) -> i64 {
    let runs = !object::text(object, &["spec", "nodeName"]).is_empty()
        && !matches!(object::text(object, &["status", "phase"]), "Succeeded" | "Failed");
    if ty.kind != "Pod" || !runs {
        return 0;
    }
    let default = || object::int(object, &["spec", "terminationGracePeriodSeconds"]).unwrap_or(30);
    options.grace_period.unwrap_or_else(default).max(0)
}

/// Removes an object, and its dependents unless `orphan` is set. A namespace first becomes Terminating, and its content
/// is also removed.
fn remove(
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
