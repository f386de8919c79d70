//! Strategic merge patch: a merge patch that matches the items of a list by a key field.

use serde_json::{Map, Value};

use crate::object;

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

/// Applies a patch to an object.
pub(super) fn apply(target: &mut Value, patch: &Value) {
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
            _ => apply(fields.entry(key.as_str()).or_insert(Value::Null), change),
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
                    apply(item, change);
                }
            }
            (false, None) => {
                let mut item = Value::Null;
                apply(&mut item, change);
                items.push(item);
            }
        }
    }
}
