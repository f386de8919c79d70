//! What-if questions about an HPA with other fields. Defines the fields of a query and the interface to the
//! simulation.
//!
//! The question is a GET with the fields in its query, so that the rules of [`crate::access`] apply: a page of another
//! origin has no token, and no request has a body. The limit of a request's headers bounds the size of a question. One
//! question is answered at a time. A page that closes its connection stops the simulation.

use std::fmt::Debug;

use futures::future::BoxFuture;
use percent_encoding::percent_decode_str;
use serde::Serialize;

use crate::Subject;

/// Maximum number of fields of a question.
const MAX_FIELDS: usize = 128;

/// A question about one HPA.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The HPA.
    pub subject: Subject,
    /// The changed fields, in the order of the query.
    pub fields: Vec<Field>,
}

/// A field with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name of the field, such as `max`.
    pub name: String,
    /// Its value. Empty if the field is removed.
    pub value: String,
}

/// The reason why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct WhatIfError {
    /// The name of the invalid field. `None` if no field is the cause.
    pub field: Option<String>,
    /// The cause, and advice to the user.
    pub message: String,
}

impl WhatIfError {
    /// Creates an error that no field causes.
    pub fn general(message: impl Into<String>) -> Self {
        Self { field: None, message: message.into() }
    }

    /// Creates an error of a field.
    pub fn of(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), message: message.into() }
    }
}

/// Simulates what an HPA would have done with other fields. It writes nothing.
pub trait WhatIf: Debug + Send + Sync + 'static {
    /// Returns the answer as a JSON document. Dropping the future stops the simulation.
    fn ask(&self, question: Question) -> BoxFuture<'static, Result<Vec<u8>, WhatIfError>>;
}

/// Reads the fields of a query. `+` is a space, as in a form.
///
/// # Errors
/// Returns an error if a field is not UTF-8, or if the query has too many fields.
pub fn fields(query: &str) -> Result<Vec<Field>, WhatIfError> {
    let parts: Vec<_> = query.split('&').filter(|part| !part.is_empty()).collect();
    if parts.len() > MAX_FIELDS {
        return Err(WhatIfError::general(format!("a question has at most {MAX_FIELDS} fields")));
    }
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8().ok().map(std::borrow::Cow::into_owned)
    };
    let field = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let (name, value) = (decoded(name), decoded(value));
        let (Some(name), Some(value)) = (name, value) else {
            return Err(WhatIfError::general("a field of the question is not UTF-8"));
        };
        Ok(Field { name, value })
    };
    parts.into_iter().map(field).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn field(name: &str, value: &str) -> Field {
        Field { name: name.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn query_is_read_like_a_form() {
        let read = fields("max=20&policy=a%3A+b%0Ac%26d%3D1&min=&x&&downPolicies=Pods%3A4%3A60").unwrap();
        let expected = [
            field("max", "20"),
            field("policy", "a: b\nc&d=1"),
            field("min", ""),
            field("x", ""),
            field("downPolicies", "Pods:4:60"),
        ];
        assert_eq!(read, expected);
        assert_eq!(fields("").unwrap(), []);
    }

    #[test]
    fn query_that_is_not_utf8_or_too_long_is_refused() {
        assert_eq!(fields("a=%ff").unwrap_err().message, "a field of the question is not UTF-8");
        let many = "a=1&".repeat(MAX_FIELDS + 1);
        assert!(fields(&many).unwrap_err().message.contains("at most 128 fields"));
    }
}
