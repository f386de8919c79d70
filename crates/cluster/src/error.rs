//! The errors of requests, with the texts of Go's client, because the texts appear in conditions and events.

mod connecting;
mod transport;

pub(crate) use self::connecting::TunnelError;
pub use self::connecting::{AccountError, CredentialError, PluginError};
pub(super) use self::transport::{describe_connecting, is_broken};

use std::time::Duration;

use autoscaling::failure::{MetricFailureClass, ScaleFailureClass};
use http::StatusCode;
use serde::Deserialize;

use super::call::Call;
use super::decode::DecodeError;
use super::gate::Refusal;
use super::text::{MAX_MESSAGE, cut};

/// Maximum size of a plain-text response within an error text, in bytes. The limit is client-go's.
pub(super) const MAX_ERROR_TEXT: usize = 2048;

/// Maximum size of a `reason` of a Status, in bytes.
const MAX_REASON: usize = 256;

/// The error of a request. `Display` is the text of Go's client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The server responded with an error.
    #[error("{message}")]
    Status {
        /// The HTTP code.
        code: u16,
        /// `reason` of the Status, such as `Conflict`, or the reason that client-go derives from the code.
        reason: String,
        /// The complete text of the error.
        message: String,
        /// The wait that the server requested.
        retry_after: Option<Duration>,
        /// The first non-empty `reason` of a cause, such as `NamespaceTerminating`.
        cause: Option<String>,
        /// Whether the response was not a Status, so that reason and text are derived from the code.
        generic: bool,
    },
    /// The client or the server refused the certificate of its peer. The server did not receive the request.
    #[error("{op} \"{url}\": {message}")]
    Certificate {
        /// The method in Go's form, such as `Get`.
        op: String,
        /// The URL of the request, without `fieldManager`.
        url: String,
        /// The problem with the certificate, as Go prints it.
        message: String,
    },
    /// No connection could be established. The server did not receive the request.
    #[error("{op} \"{url}\": {message}")]
    Connect {
        /// The method in Go's form, such as `Get`.
        op: String,
        /// The URL of the request, without `fieldManager`.
        url: String,
        /// The cause, as Go prints it.
        message: String,
    },
    /// The connection failed while the request was in flight.
    #[error("{op} \"{url}\": {message}")]
    Transport {
        /// The method in Go's form, such as `Get`.
        op: String,
        /// The URL of the request, without `fieldManager`.
        url: String,
        /// The cause, as Go prints it.
        message: String,
    },
    /// The request exceeded its time limit.
    #[error("{op} \"{url}\": context deadline exceeded")]
    Timeout {
        /// The method in Go's form, such as `Get`.
        op: String,
        /// The URL of the request, without `fieldManager`.
        url: String,
    },
    /// The response ended before it was complete.
    #[error("unexpected error when reading response body. Please retry. Original error: {0}")]
    Body(String),
    /// The response exceeds the size limit.
    #[error("the response is larger than {limit} bytes")]
    TooLarge {
        /// The size limit, in bytes.
        limit: usize,
    },
    /// The response could not be decoded.
    #[error("{0}")]
    Decode(DecodeError),
    /// The request could not be built, for example because a name is invalid in a URL or a value is invalid in a
    /// header.
    #[error("{0}")]
    Request(String),
    /// The write gate refused the request. Nothing was sent.
    #[error("{0}")]
    Refused(Refusal),
}

impl ApiError {
    /// Creates the error for an error response. A body without a content type may be a Status or plain text.
    pub fn from_answer(
        call: &Call,
        code: StatusCode,
        content_type: &str,
        retry_after: Option<Duration>,
        body: &[u8],
    ) -> Self {
        let text = content_type.is_empty() || content_type.starts_with("text/");
        match serde_json::from_slice::<Status>(body) {
            Ok(status) if !content_type.starts_with("text/") && status.is_failure() => {
                status.into_error(code.as_u16(), retry_after)
            }
            _ => {
                let body = body.get(..MAX_ERROR_TEXT).unwrap_or(body);
                let text =
                    if text { String::from_utf8_lossy(body).trim().to_owned() } else { "unknown".to_owned() };
                let (reason, message) = generic(call, code.as_u16(), text);
                Self::Status {
                    code: code.as_u16(),
                    reason: reason.to_owned(),
                    message,
                    retry_after,
                    cause: None,
                    generic: true,
                }
            }
        }
    }

    /// Returns the HTTP code, if the server responded with an error.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns whether the server rejected a write because the object has changed since it was read.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Status { code: 409, reason, .. } if reason != "AlreadyExists")
    }

    /// Returns whether the object or the resource does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Returns the class of a failure to read a Scale.
    pub fn scale_class(&self) -> ScaleFailureClass {
        match self.code() {
            Some(404) => ScaleFailureClass::NotFound,
            Some(403) => ScaleFailureClass::Forbidden,
            _ => ScaleFailureClass::Other,
        }
    }

    /// Returns the class of a failure to read a metric.
    pub fn metric_class(&self) -> MetricFailureClass {
        match self {
            Self::Connect { .. } | Self::Status { code: 503, .. } => MetricFailureClass::ApiUnavailable,
            Self::Status { code: 403, .. } => MetricFailureClass::Forbidden,
            Self::Status { code: 404, generic: true, .. } => MetricFailureClass::ApiNotServed,
            Self::Status { code: 404, .. } => MetricFailureClass::NoValues,
            _ => MetricFailureClass::Other,
        }
    }

    /// Returns whether the response is 403, because a permission is missing or admission rejected the object.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Returns whether the namespace is being terminated and rejects new objects.
    pub fn is_namespace_terminating(&self) -> bool {
        matches!(self, Self::Status { code: 403, cause, message, .. }
            if cause.as_deref() == Some("NamespaceTerminating") || message.contains("because it is being terminated"))
    }

    /// Returns whether the resourceVersion or the continue token has expired.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Status { code, reason, .. } if *code == 410 || reason == "Expired" || reason == "Gone")
    }

    /// Returns whether the write gate refused the request.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Returns the wait that the server requested.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns whether a retry may succeed, because the response is missing, incomplete, 429 or 5xx.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Status { code, .. } => *code == 429 || *code >= 500,
            Self::Connect { .. }
            | Self::Certificate { .. }
            | Self::Transport { .. }
            | Self::Timeout { .. }
            | Self::Body(_) => true,
            Self::TooLarge { .. } | Self::Decode(_) | Self::Request(_) | Self::Refused(_) => false,
        }
    }

    /// Returns whether both errors have the same cause. Their URLs may differ.
    pub fn has_same_cause(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Connect { message: one, .. }, Self::Connect { message: another, .. })
            | (Self::Certificate { message: one, .. }, Self::Certificate { message: another, .. })
            | (Self::Transport { message: one, .. }, Self::Transport { message: another, .. }) => {
                one == another
            }
            (Self::Timeout { .. }, Self::Timeout { .. }) => true,
            _ => self == other,
        }
    }

    /// Returns whether the server did not receive the request.
    pub(super) fn is_unsent(&self) -> bool {
        self.code().is_none() && !self.outcome_unknown()
    }

    /// Appends the cause of an earlier attempt of the same request, as in client-go. Has an effect only if both errors
    /// are failures below HTTP with different causes.
    #[must_use]
    pub(super) fn after(mut self, earlier: &Self) -> Self {
        if let Some(cause) = earlier.transport_cause()
            && let Self::Connect { message, .. }
            | Self::Certificate { message, .. }
            | Self::Transport { message, .. } = &mut self
            && message != cause
        {
            *message = format!("{message} - error from a previous attempt: {cause}");
        }
        self
    }

    /// Returns the cause of a failure below HTTP.
    fn transport_cause(&self) -> Option<&str> {
        match self {
            Self::Connect { message, .. }
            | Self::Certificate { message, .. }
            | Self::Transport { message, .. } => Some(message),
            _ => None,
        }
    }

    /// Returns whether a write with this error may have been applied.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::Status { code, .. } => *code >= 500,
            Self::Transport { .. }
            | Self::Timeout { .. }
            | Self::Body(_)
            | Self::TooLarge { .. }
            | Self::Decode(_) => true,
            Self::Connect { .. } | Self::Certificate { .. } | Self::Request(_) | Self::Refused(_) => false,
        }
    }
}

impl From<DecodeError> for ApiError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

/// Returns client-go's reason and text for an error response that is not a Status.
fn generic(call: &Call, code: u16, text: String) -> (&'static str, String) {
    let (reason, mut message) = match code {
        409 if call.method == http::Method::POST => ("AlreadyExists", "the server reported a conflict".to_owned()),
        409 => ("Conflict", "the server reported a conflict".to_owned()),
        404 => ("NotFound", "the server could not find the requested resource".to_owned()),
        400 => ("BadRequest", "the server rejected our request for an unknown reason".to_owned()),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials".to_owned()),
        403 => ("Forbidden", text),
        405 => {
            ("MethodNotAllowed", "the server does not allow this method on the requested resource".to_owned())
        }
        406 => ("NotAcceptable", text),
        415 => ("UnsupportedMediaType", text),
        422 => ("Invalid", "the server rejected our request due to an error in our request".to_owned()),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned()),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned(),
        ),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later".to_owned(),
        ),
        500.. => (
            "InternalError",
            format!("an error on the server ({}) has prevented the request from succeeding", autoscaling::failure::quote(&text)),
        ),
        _ => (
            "Unknown",
            format!("the server responded with the status code {code} but did not return more information"),
        ),
    };
    if !call.resource.is_empty() {
        let verb = call.method.as_str().to_ascii_lowercase();
        message = if call.name.is_empty() {
            format!("{message} ({verb} {})", call.resource)
        } else {
            format!("{message} ({verb} {} {})", call.resource, call.name)
        };
    }
    (reason, message)
}

/// `metav1.Status`, the body of an error response or the object of an ERROR event.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    #[serde(default)]
    kind: String,
    /// `Success` or `Failure`.
    #[serde(default, rename = "status")]
    result: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    code: u16,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    retry_after_seconds: u64,
    causes: Option<Vec<Cause>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
}

impl Status {
    /// Returns whether the Status reports a failure. Early versions of the API server omit the kind.
    pub(super) fn is_failure(&self) -> bool {
        (self.kind.is_empty() || self.kind == "Status") && self.result == "Failure"
    }

    /// Converts the Status to an error. `code` is used if the Status has no code.
    pub(super) fn into_error(self, code: u16, retry_after: Option<Duration>) -> ApiError {
        let (mut from_body, mut cause) = (None, None);
        if let Some(details) = self.details {
            from_body =
                (details.retry_after_seconds > 0).then(|| Duration::from_secs(details.retry_after_seconds));
            cause = details
                .causes
                .into_iter()
                .flatten()
                .map(|cause| cut(cause.reason, MAX_REASON))
                .find(|reason| !reason.is_empty());
        }
        let message = if self.message.is_empty() {
            // apimachinery's text for a Status without a message.
            format!("the server responded with the status code {code} but did not return more information")
        } else {
            cut(self.message, MAX_MESSAGE)
        };
        ApiError::Status {
            code: if self.code == 0 { code } else { self.code },
            reason: cut(self.reason, MAX_REASON),
            message,
            retry_after: retry_after.or(from_body),
            cause,
            generic: false,
        }
    }
}

#[cfg(test)]
mod tests;
