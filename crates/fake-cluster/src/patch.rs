//! PATCH with JSON patches, merge patches and strategic merge patches. Server-side apply is not supported.

use serde_json::{Map, Value};

use super::status::Status;
use crate::object;

/// Applies a patch in the form that the content type names. `strategic` states whether the resource type supports
/// strategic merge.
pub(crate) fn apply(
    content_type: &str,
    strategic: bool,
    target: &mut Value,
    body: &[u8],
) -> Result<(), Status> {
    let parsed = || -> Result<Value, Status> {
        serde_json::from_slice(body)
            .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))
    };
    match content_type.split(';').next().unwrap_or("").trim() {
        "application/merge-patch+json" => apply_merge_patch(target, &parsed()?),
        "application/strategic-merge-patch+json" if strategic => apply_strategic_merge(target, &parsed()?),
        "application/json-patch+json" => apply_json_patch(target, &parsed()?)?,
        "application/apply-patch+yaml" => {
            return Err(Status::new(
                415,
                "UnsupportedMediaType",
                "the embedded cluster does not support server-side apply: use apply without --server-side, or a patch",
            ));
        }
        _ => {
            return Err(Status::unsupported_media_type(if strategic {
                "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json"
            } else {
                "application/json-patch+json, application/merge-patch+json"
            }));
        }
    }
    Ok(())
}

/// Applies the operations of a JSON patch (RFC 6902) in order. Fails with 422 if an operation cannot be applied.
fn apply_json_patch(target: &mut Value, patch: &Value) -> Result<(), Status> {
    let operations =
        patch.as_array().ok_or_else(|| Status::bad_request("the JSON patch is not a list of operations"))?;
    for operation in operations {
        let applied = json_patch_step(target, operation);
        applied.ok_or_else(|| {
            let message =
                format!("the server rejected our request due to an error in our request: {operation}");
            Status::new(422, "Invalid", message)
        })?;
    }
    Ok(())
}

fn json_patch_step(target: &mut Value, operation: &Value) -> Option<()> {
    let path = object::text(operation, &["path"]);
    let from = object::text(operation, &["from"]);
    let value = || operation.get("value").cloned();
    match object::text(operation, &["op"]) {
        "add" => add_at(target, path, value()?),
        "replace" => {
            *target.pointer_mut(path)? = value()?;
            Some(())
        }
        "remove" => remove_at(target, path).map(|_| ()),
        "move" => {
            let moved = remove_at(target, from)?;
            add_at(target, path, moved)
        }
        "copy" => {
            let copied = target.pointer(from)?.clone();
            add_at(target, path, copied)
        }
        "test" => (target.pointer(path)? == operation.get("value")?).then_some(()),
        _ => None,
    }
}

fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add_at(target: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *target = value;
        return Some(());
    }
    let (parent, last) = split(path)?;
    match target.pointer_mut(parent)? {
        Value::Object(fields) => {
            fields.insert(last, value);
        }
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let index = last.parse().ok().filter(|index| *index <= items.len())?;
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove_at(target: &mut Value, path: &str) -> Option<Value> {
    let (parent, last) = split(path)?;
    match target.pointer_mut(parent)? {
        Value::Object(fields) => fields.remove(&last),
        Value::Array(items) => {
            let index = last.parse().ok().filter(|index| *index < items.len())?;
            Some(items.remove(index))
        }
        _ => None,
    }
}

/// Applies a merge patch (RFC 7386). A null removes a field. Maps are merged recursively. Any other value replaces the
/// field.
fn apply_merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    let fields = object::map(target);
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
        } else {
            apply_merge_patch(fields.entry(key.as_str()).or_insert(Value::Null), change);
        }
    }
}

/// Returns the key field of a list's items. `None` if a patch replaces the whole list.
fn merge_key(field: &str, items: &[Value]) -> Option<&'static str> {
    match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "secrets" => Some("name"),
        "conditions" | "addresses" => Some("type"),
        "volumeMounts" => Some("mountPath"),
        "volumeDevices" => Some("devicePath"),
        "ownerReferences" => Some("uid"),
        "hostAliases" => Some("ip"),
        "topologySpreadConstraints" => Some("topologyKey"),
        // A container's and a service's `ports` have the same name and different keys.
        "ports" if items.iter().any(|item| item.get("containerPort").is_some()) => Some("containerPort"),
        "ports" if items.iter().any(|item| item.get("port").is_some()) => Some("port"),
        _ => None,
    }
}

/// Applies a strategic merge patch: a merge patch that matches the items of a list by a key field.
fn apply_strategic_merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    match changes.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            let kept = changes.iter().filter(|(key, _)| *key != "$patch");
            *target = Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect());
            return;
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return;
        }
        _ => {}
    }
    let fields = object::map(target);
    if let Some(kept) = changes.get("$retainKeys").and_then(Value::as_array) {
        fields.retain(|key, _| kept.iter().any(|kept| kept == key));
    }
    for (key, removed) in directives(changes, "$deleteFromPrimitiveList/") {
        if let Some(Value::Array(items)) = fields.get_mut(key) {
            items.retain(|item| !removed.contains(item));
        }
    }
    for (key, change) in changes.iter().filter(|(key, _)| !key.starts_with('$')) {
        match change {
            Value::Null => {
                fields.remove(key);
            }
            Value::Array(items) => {
                let slot = fields.entry(key.as_str()).or_insert_with(|| Value::Array(Vec::new()));
                merge_list(key, slot, items);
            }
            _ => apply_strategic_merge(fields.entry(key.as_str()).or_insert(Value::Null), change),
        }
    }
    for (key, order) in directives(changes, "$setElementOrder/") {
        if let Some(Value::Array(items)) = fields.get_mut(key) {
            let key_field = merge_key(key, order);
            // Items that the patch does not name follow the ordered items.
            items.sort_by_key(|item| {
                order.iter().position(|wanted| same(wanted, item, key_field)).unwrap_or(usize::MAX)
            });
        }
    }
}

fn directives<'a>(
    changes: &'a Map<String, Value>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a str, &'a [Value])> {
    changes
        .iter()
        .filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, value.as_array()?.as_slice())))
}

fn same(a: &Value, b: &Value, key: Option<&str>) -> bool {
    match key {
        Some(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        None => a == b,
    }
}

fn merge_list(field: &str, slot: &mut Value, patch: &[Value]) {
    let Value::Array(items) = slot else {
        *slot = Value::Array(patch.to_vec());
        return;
    };
    if field == "finalizers" {
        items.extend(patch.iter().filter(|item| !items.contains(item)).cloned().collect::<Vec<_>>());
        return;
    }
    let directive = |item: &Value| object::text(item, &["$patch"]).to_owned();
    let all: Vec<Value> = items.iter().chain(patch).cloned().collect();
    let replaces = patch.iter().any(|item| directive(item) == "replace");
    let key = merge_key(field, &all);
    if replaces || key.is_none() {
        *items = patch.iter().filter(|item| directive(item).is_empty()).cloned().collect();
        return;
    }
    for change in patch {
        let found = items.iter().position(|item| same(change, item, key));
        match (directive(change) == "delete", found) {
            (true, Some(index)) => {
                items.remove(index);
            }
            (true, None) => {}
            (false, Some(index)) => {
                if let Some(item) = items.get_mut(index) {
                    apply_strategic_merge(item, change);
                }
            }
            (false, None) => {
                let mut item = Value::Null;
                apply_strategic_merge(&mut item, change);
                items.push(item);
            }
        }
    }
}
