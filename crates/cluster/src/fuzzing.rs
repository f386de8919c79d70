//! Additional exports, compiled only for the fuzz targets.

use std::time::Duration;

use autoscaling::status::Status;
use http::{Method, StatusCode};

use super::call::Call;
use super::decode::ItemScanner;
use super::error::ApiError;
use super::status::StatusTarget;

pub use super::metrics::fuzzing::{custom_list, external_list, resource_list};
pub use super::watch::fuzzing::{DecodedLine, watch};

/// The envelope of a list, and its items.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct List {
    /// `kind`.
    pub kind: String,
    /// `apiVersion`.
    pub api_version: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.continue`.
    pub next: String,
    /// The bytes of each item.
    pub items: Vec<Vec<u8>>,
}

/// Splits a list, received in `pieces`, into its items.
pub fn list(pieces: &[&[u8]]) -> Result<List, ApiError> {
    let (mut scanner, mut items) = (ItemScanner::default(), Vec::new());
    for piece in pieces {
        let keep = |item: &[u8]| {
            items.push(item.to_vec());
            Ok(())
        };
        scanner.push(piece, keep).map_err(ApiError::Decode)?;
    }
    let envelope = scanner.finish().map_err(ApiError::Decode)?;
    Ok(List {
        kind: envelope.kind,
        api_version: envelope.api_version,
        resource_version: envelope.metadata.resource_version,
        next: envelope.metadata.r#continue,
        items,
    })
}

/// Creates the error for a response to a read of pod metrics, or to a status write if `write` is set.
pub fn error(
    write: bool,
    code: StatusCode,
    content_type: &str,
    wait: Option<Duration>,
    answer: &[u8],
) -> ApiError {
    let call = if write {
        let path =
            ["apis", "autoscaling", "v2", "namespaces", "shop", "horizontalpodautoscalers", "web", "status"];
        Call::send(Method::PUT, path, "application/json", Vec::new())
            .about("horizontalpodautoscalers.autoscaling", "web")
            .subresource("status")
    } else {
        Call::get(["apis", "metrics.k8s.io", "v1beta1", "pods"]).about("pods.metrics.k8s.io", "")
    };
    ApiError::from_answer(&call, code, content_type, wait, answer)
}

/// The body of a status write.
pub fn status_body(target: StatusTarget<'_>, status: &Status) -> Result<Vec<u8>, ApiError> {
    target.body(status)
}
