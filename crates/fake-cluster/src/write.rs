//! The rules of create, update and status update. `metadata` checks objects, and `removal` deletes them.

mod metadata;
mod removal;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::object::{self, meta};
use super::registry::{ResourceType, StatusMetadata};
use super::status::{FieldError, Status};
use super::store::{State, StoredObject};
use super::{defaults, hpa, validation};

use self::metadata::{
    SYSTEM_FIELDS, check_name, check_namespace, check_open, check_version, have_same_desired_state, identify,
    keep_system_fields, prepare, record_manager, taken_metadata,
};
pub(crate) use self::removal::{DeleteOptions, delete};
use self::removal::{clears_last_finalizer, remove};

#[derive(Debug, Clone)]
pub(crate) struct Write<'a> {
    pub(crate) now: Timestamp,
    /// `dryRun=All`: performs all steps except storing the object.
    pub(crate) dry_run: bool,
    /// The manager in `managedFields`. `None` for writes from within the process.
    pub(crate) manager: Option<&'a str>,
    /// `status`, `scale`, or empty.
    pub(crate) subresource: &'static str,
}

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

/// Handles a PUT of an object. The status and the system fields stay.
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

/// Handles a PUT of the status subresource. The spec stays. The type's rule determines the metadata.
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
    // Only metadata and status are parsed. The other text stays. System fields are moved to the new metadata
    // at the end.
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
        if write.dry_run { State::preview_status(&stored, new) } else { state.store_status(&stored, new) };
    Ok(if removed && !write.dry_run { remove(state, &updated, false, &write) } else { updated })
}

/// Stores an object without applying any rule. Missing required fields are filled in: uid, creationTimestamp,
/// generation 1 for types that count it, and the namespace.
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
    let new_uid = state_uid(state, old.as_ref());
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

/// Stores an object with a text as its spec, and increases its generation. Metadata and status of an existing
/// object stay. Applies no other rule.
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
    defaults::apply(ty, &mut namespace);
    state.store(ty, namespace);
}

fn state_uid(state: &mut State, old: Option<&Value>) -> Value {
    if old.is_some() { Value::Null } else { state.next_uid().into() }
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

/// Stores an update unless nothing has changed. Removes an object if its last finalizer was cleared.
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
    if write.dry_run { State::preview(ty, object) } else { state.store(ty, object) }
}
