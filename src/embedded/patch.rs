//! PATCH: merge patch (RFC 7386).

use serde_json::Value;

use super::object;
use super::status::Status;

/// Applies a merge patch: maps are merged, null removes, everything else replaces.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    let fields = object::map(target);
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.as_str()).or_insert(Value::Null), change);
        }
    }
}

/// Applies a patch of the form that the content type names.
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
        "application/merge-patch+json" => merge(target, &parsed()?),
        "application/strategic-merge-patch+json" if strategic => merge(target, &parsed()?),
        _ => {
            return Err(Status::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json",
            ));
        }
    }
    Ok(())
}
