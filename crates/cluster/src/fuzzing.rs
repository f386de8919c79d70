//! Functions for the fuzz targets, compiled only for fuzzing.

use std::time::Duration;

use autoscaling::query::Answer;
use autoscaling::status::Status;
use http::{Method, StatusCode};

use super::body::LineBuffer;
use super::call::Call;
use super::decode::{DecodeError, ItemScanner};
use super::error::ApiError;
use super::metrics::{CUSTOM_KIND, EXTERNAL_KIND, Snapshot, check_kind, custom_decoder, external_decoder};
use super::status::StatusTarget;
use super::watch::{Handle, Intake, Line, Sink, Watched};

/// The envelope and the items of a list.
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

/// Creates the error for a response to a status write if `write` is set, and otherwise to a read of pod metrics.
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

/// Returns the body of a status write.
pub fn status_body(target: StatusTarget<'_>, status: &Status) -> Result<Vec<u8>, ApiError> {
    target.body(status)
}

/// Decodes a `PodMetricsList` from its pieces.
pub fn resource_list(pieces: &[&[u8]]) -> Result<Answer, ApiError> {
    Ok(Answer::Resource(Snapshot::read(pieces.iter().copied())?.all()))
}

/// Decodes a `MetricValueList` from its pieces.
pub fn custom_list(pieces: &[&[u8]]) -> Result<Answer, ApiError> {
    Ok(Answer::Custom(decoded(pieces, CUSTOM_KIND, custom_decoder())?.into()))
}

/// Decodes an `ExternalMetricValueList` from its pieces.
pub fn external_list(pieces: &[&[u8]]) -> Result<Answer, ApiError> {
    Ok(Answer::External(decoded(pieces, EXTERNAL_KIND, external_decoder())?.into()))
}

fn decoded<T>(
    pieces: &[&[u8]],
    kind: &str,
    mut decode: impl FnMut(&[u8]) -> Result<T, DecodeError>,
) -> Result<Vec<T>, ApiError> {
    let (mut scanner, mut items) = (ItemScanner::default(), Vec::new());
    let mut keep = |item: &[u8]| {
        items.push(decode(item)?);
        Ok(())
    };
    for piece in pieces {
        scanner.push(piece, &mut keep).map_err(ApiError::Decode)?;
    }
    check_kind(scanner.finish().map_err(ApiError::Decode)?, kind)?;
    Ok(items)
}

/// The decoded meaning of one line of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodedLine {
    /// An object or a bookmark, with its resourceVersion.
    Event(String),
    /// The bookmark that ends the initial events, with its resourceVersion.
    InitialEventsEnd(String),
    /// A line without a usable resourceVersion, or with an unknown type.
    Skipped,
    /// The error that ends the watch.
    Failed(ApiError),
}

/// Decodes a watch from the pieces of its body, up to the first error. Returns the sink and the decoded lines.
pub fn watch<W, S>(pieces: &[&[u8]], sink: S) -> (S, Vec<DecodedLine>)
where
    W: Watched + Default,
    S: for<'a> Sink<W::Object<'a>>,
{
    let handle = Handle::new(W::default().name(), None);
    let mut intake = Intake::<W, S> { sink, handle, watched: W::default() };
    let (mut lines, mut lines_read) = (LineBuffer::default(), Vec::new());
    for piece in pieces {
        lines.push(piece);
        while let Some(line) = lines.take_line() {
            lines_read.push(match intake.line(&line) {
                Ok(Line::Event { resource_version, .. }) => DecodedLine::Event(resource_version),
                Ok(Line::InitialEventsEnd { resource_version }) => {
                    DecodedLine::InitialEventsEnd(resource_version)
                }
                Ok(Line::Skipped) => DecodedLine::Skipped,
                Err(error) => {
                    lines_read.push(DecodedLine::Failed(error));
                    return (intake.sink, lines_read);
                }
            });
        }
    }
    (intake.sink, lines_read)
}
