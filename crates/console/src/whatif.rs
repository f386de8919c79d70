//! What-if questions: simulations of an HPA with other fields.
//!
//! A question is a GET with the fields in its query. The rules of [`crate::access`] therefore apply: a page of another
//! origin has no token, and no request has a body. The limit of a request's headers bounds the size of a question. Only
//! one simulation runs at a time.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Response, StatusCode};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::Subject;
use crate::pages::{Body, answer, decoded, protect};
use crate::store::Store;

/// Maximum number of fields of a question.
const MAX_FIELDS: usize = 128;
/// Time limit of a simulation, including the wait for the current simulation.
const WITHIN: Duration = Duration::from_mins(2);

/// A question about one HPA.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The HPA, with its history in the last hour.
    pub subject: Subject,
    /// The changed fields, in the order of the query.
    pub fields: Vec<Field>,
}

/// A field with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name of the field, such as `max`.
    pub name: String,
    /// The value of the field. Empty if the question removes the field.
    pub value: String,
}

/// The reason why the simulation has no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct WhatIfError {
    /// The name of the invalid field. `None` if no field is the cause.
    pub field: Option<String>,
    /// The cause and advice, for the user.
    pub message: String,
}

impl WhatIfError {
    /// Creates an error without a field.
    pub fn general(message: impl Into<String>) -> Self {
        Self { field: None, message: message.into() }
    }

    /// Creates an error of a field.
    pub fn of(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), message: message.into() }
    }
}

/// Simulates the decisions about an HPA with other fields. A simulation writes nothing.
pub trait WhatIf: Debug + Send + Sync + 'static {
    /// Returns the result as a JSON document. Dropping the future stops the simulation.
    fn ask(&self, question: Question) -> BoxFuture<'static, Result<Vec<u8>, WhatIfError>>;
}

/// Reads the fields of a query. As in an HTML form, `+` is a space.
///
/// # Errors
/// Returns an error if a field is not UTF-8, or if the query has too many fields.
pub fn fields(query: &str) -> Result<Vec<Field>, WhatIfError> {
    let parts: Vec<_> = query.split('&').filter(|part| !part.is_empty()).collect();
    if parts.len() > MAX_FIELDS {
        return Err(WhatIfError::general(format!("a question has at most {MAX_FIELDS} fields")));
    }
    let field = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        Some(Field { name: decoded(&name.replace('+', " "))?, value: decoded(&value.replace('+', " "))? })
    };
    let read: Option<Vec<_>> = parts.into_iter().map(field).collect();
    read.ok_or_else(|| WhatIfError::general("a field of the question is not UTF-8"))
}

/// The simulations of one console.
#[derive(Debug)]
pub(crate) struct Simulations {
    what_if: Arc<dyn WhatIf>,
    /// The permit of the running simulation.
    permits: Semaphore,
}

impl Simulations {
    pub(crate) fn new(what_if: Arc<dyn WhatIf>) -> Self {
        Self { what_if, permits: Semaphore::new(1) }
    }

    /// Returns the HPA of a path such as `hpas/shop/web/whatif`. `None` for any other path.
    pub(crate) fn subject(path: &str, store: &Store) -> Option<Subject> {
        match path.split('/').collect::<Vec<_>>()[..] {
            ["hpas", namespace, name, "whatif"] => Some(store.subject(decoded(namespace)?, decoded(name)?)),
            _ => None,
        }
    }

    /// Runs a simulation when the current simulation has finished. The connection polls the future, so a closed
    /// connection stops the simulation.
    pub(crate) async fn respond(&self, subject: Subject, query: &str) -> Response<Body> {
        let answering = async {
            let fields = fields(query)?;
            // The semaphore is never closed.
            let _permit = self.permits.acquire().await;
            self.what_if.ask(Question { subject, fields }).await
        };
        let late = || WhatIfError::general("the simulation did not end within 2 min: choose a shorter time");
        let result = timeout(WITHIN, answering).await.unwrap_or_else(|_| Err(late()));
        let (status, body) = match result {
            Ok(document) => (StatusCode::OK, document),
            Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, serde_json::to_vec(&error).unwrap_or_default()),
        };
        let mut response = answer(status, "application/json", body);
        protect(response.headers_mut());
        response
    }
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
