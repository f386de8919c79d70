//! PATCH in three forms. Server-side apply is not supported.

mod json;
mod merge;
mod strategic;

use serde_json::Value;

use super::status::Status;

/// Applies a patch in the form that the content type names. `strategic` states whether the type supports
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
        "application/merge-patch+json" => merge::apply(target, &parsed()?),
        "application/strategic-merge-patch+json" if strategic => strategic::apply(target, &parsed()?),
        "application/json-patch+json" => json::apply(target, &parsed()?)?,
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
