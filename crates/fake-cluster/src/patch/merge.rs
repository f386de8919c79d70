//! Merge patch (RFC 7386).

use serde_json::Value;

use crate::object;

/// Merges maps. A null removes a field. Maps are merged recursively. Any other value replaces the field.
pub(super) fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    let fields = object::map(target);
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
        } else {
            apply(fields.entry(key.as_str()).or_insert(Value::Null), change);
        }
    }
}
