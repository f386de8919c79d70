//! The problems of Secrets that policies name.

use std::sync::Arc;

/// The label of Secrets that policies may name. Its value must be `true`.
pub const SECRET_LABEL: &str = "concertina.dev/metric-sources";

/// The reason why a Secret has no usable value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretProblem {
    /// The namespace has no such Secret.
    #[error("does not exist")]
    Missing,
    /// A permission is missing.
    #[error("cannot be read: grant get on it, as concertina rbac prints")]
    Forbidden,
    /// The Secret is too large. Holds the limit in bytes.
    #[error("has more than {0} bytes")]
    TooLarge(usize),
    /// The Secret does not have the label.
    #[error("does not have the label {SECRET_LABEL}: \"true\"")]
    Unlabelled,
    /// The Secret does not have the key.
    #[error("has no key {0:?}")]
    NoKey(Arc<str>),
    /// The value is not a token.
    #[error("has no valid token under key {0:?}: it must be one line of visible characters")]
    NoToken(Arc<str>),
    /// The response is not a Secret.
    #[error("cannot be decoded")]
    Malformed,
    /// The read failed for another reason. Holds the cause.
    #[error("cannot be read: {0}")]
    Failed(String),
}
