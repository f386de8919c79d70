//! The checks of an object before a write, and the fields that the server sets.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::object::{self, meta};
use super::registry::ResourceType;
use super::status::{FieldError, Status};
use super::store::{State, StoredObject};
use super::{hpa, validation};

/// The context of a write.
#[derive(Debug, Clone)]
pub(crate) struct Write<'a> {
    pub(crate) now: Timestamp,
    /// Whether the write is a dry run (`dryRun=All`), which performs all steps except storing the object.
    pub(crate) dry_run: bool,
    /// The manager in `managedFields`. `None` for writes from within the process.
    pub(crate) manager: Option<&'a str>,
    /// The subresource: `status`, `scale`, or empty.
    pub(crate) subresource: &'static str,
}

/// Checks `apiVersion` and `kind` against the path, and sets both fields.
pub(crate) fn identify(ty: &ResourceType, object: &mut Value) -> Result<(), Status> {
    let (kind, version) = (object::text(object, &["kind"]), object::text(object, &["apiVersion"]));
    let expected = ty.api_version();
    if !kind.is_empty() && kind != ty.kind {
        return Err(Status::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {}: converting to type {} failed",
            version.rsplit('/').next().unwrap_or(""),
            ty.kind,
            ty.kind
        )));
    }
    if !version.is_empty() && version != expected {
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    let fields = object::map(object);
    fields.insert("apiVersion".to_owned(), expected.into());
    fields.insert("kind".to_owned(), ty.kind.into());
    Ok(())
}

pub(crate) fn check_namespace(ty: &ResourceType, namespace: &str, object: &mut Value) -> Result<(), Status> {
    let sent = meta(object, "namespace");
    if !ty.namespaced {
        object::section(object, "metadata").remove("namespace");
        return Ok(());
    }
    if !sent.is_empty() && sent != namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    object::section(object, "metadata").insert("namespace".to_owned(), namespace.into());
    Ok(())
}

/// Checks that the namespace exists and is not terminating.
pub(crate) fn check_open(
    state: &State,
    ty: &ResourceType,
    namespace: &str,
    name: &str,
) -> Result<(), Status> {
    let missing = || Status::not_found("", "namespaces", namespace);
    let namespaces = ResourceType::named("namespaces").ok_or_else(missing)?;
    let stored = state.get(namespaces, "", namespace).ok_or_else(missing)?.value();
    if object::text(&stored, &["status", "phase"]) == "Terminating" {
        let cause =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = Status::forbidden(ty.group, ty.resource, name, &cause);
        if let Some(Value::Object(details)) = &mut status.details {
            let message = format!("namespace {namespace} is being terminated");
            let cause = json!([{ "reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace" }]);
            details.insert("causes".to_owned(), cause);
        }
        return Err(status);
    }
    Ok(())
}

pub(crate) fn check_name(name: &str, object: &Value) -> Result<(), Status> {
    let sent = meta(object, "name");
    if sent == name {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the name of the object ({sent}) does not match the name on the URL ({name})"
    )))
}

pub(crate) fn check_version(ty: &ResourceType, stored: &StoredObject, object: &Value) -> Result<(), Status> {
    let name = stored.name();
    let uid = meta(object, "uid");
    if !uid.is_empty() && uid != &*stored.uid {
        let cause =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", stored.uid);
        return Err(Status::conflict_because(ty.group, ty.resource, name, &cause));
    }
    let version = meta(object, "resourceVersion");
    if version.is_empty() {
        if ty.unconditional_update() {
            return Ok(());
        }
        let cause =
            FieldError::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
        // Kubernetes names the resource here, because the kind is unavailable in its store.
        return Err(Status::invalid(ty.group, ty.resource, name, &[cause]));
    }
    if version == stored.resource_version.to_string() {
        Ok(())
    } else {
        Err(Status::conflict(ty.group, ty.resource, name))
    }
}

/// The metadata fields that clients cannot change.
pub(crate) const SYSTEM_FIELDS: [&str; 10] = [
    "namespace",
    "name",
    "generateName",
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
];

pub(crate) fn keep_system_fields(object: &mut Value, old: &Value) {
    let metadata = object::section(object, "metadata");
    metadata.remove("selfLink");
    for key in SYSTEM_FIELDS {
        object::put(metadata, key, object::at(old, &["metadata", key]).cloned());
    }
}

/// Removes the metadata from an object, and returns the metadata without the system fields.
pub(crate) fn taken_metadata(object: &mut Value) -> Value {
    let metadata = object::section(object, "metadata");
    metadata.remove("selfLink");
    for key in SYSTEM_FIELDS {
        metadata.remove(key);
    }
    drop_empty_metadata(object);
    object.get_mut("metadata").map(Value::take).unwrap_or_default()
}

/// Normalizes an object and sets its defaults, as its type requires.
pub(crate) fn prepare(ty: &ResourceType, object: &mut Value) -> Result<(), Status> {
    drop_empty_metadata(object);
    if ty.custom {
        return Ok(());
    }
    object::drop_nulls(object);
    if ty.kind == "HorizontalPodAutoscaler" {
        hpa::canonical(object)?;
        hpa::apply_defaults(object);
        hpa::complete_status(object);
    } else {
        validation::apply_defaults(ty, object);
    }
    Ok(())
}

/// Drops empty maps and lists from the metadata.
fn drop_empty_metadata(object: &mut Value) {
    object::section(object, "metadata").retain(|_, value| match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        value => !value.is_null(),
    });
}

/// Returns whether a write of `other` over `one` leaves `metadata.generation` unchanged. For built-in types, the specs
/// must be equal. For custom resources, all fields except the metadata and the status must be equal.
pub(crate) fn have_same_desired_state(ty: &ResourceType, one: &Value, other: &Value) -> bool {
    if !ty.custom {
        return one.get("spec").unwrap_or(&Value::Null) == other.get("spec").unwrap_or(&Value::Null);
    }
    let [one, other] = [one, other].map(|object| {
        let mut fields: Map<String, Value> = object.as_object().cloned().unwrap_or_default();
        fields.remove("metadata");
        fields.remove("status");
        fields
    });
    one == other
}

/// Adds or updates the entry of a manager in `managedFields`. The entry lists no fields.
pub(crate) fn record_manager(ty: &ResourceType, object: &mut Value, write: &Write<'_>) {
    let Some(manager) = write.manager else { return };
    let metadata = object::section(object, "metadata");
    let slot = metadata.entry("managedFields").or_insert_with(|| json!([]));
    let Some(entries) = slot.as_array_mut() else {
        return;
    };
    let mut previous = None;
    entries.retain_mut(|entry| {
        let same = object::text(entry, &["manager"]) == manager
            && object::text(entry, &["subresource"]) == write.subresource;
        if same {
            previous = Some(entry.take());
        }
        !same
    });
    let mut entry = previous.unwrap_or_else(|| json!({ "manager": manager }));
    let fields = object::map(&mut entry);
    let time = object::time_text(write.now);
    for (key, value) in [("operation", "Update"), ("fieldsType", "FieldsV1"), ("time", &time)] {
        fields.insert(key.to_owned(), value.into());
    }
    fields.insert("apiVersion".to_owned(), ty.api_version().into());
    fields.insert("fieldsV1".to_owned(), Value::Object(Map::new()));
    if !write.subresource.is_empty() {
        fields.insert("subresource".to_owned(), write.subresource.into());
    }
    entries.push(entry);
}
