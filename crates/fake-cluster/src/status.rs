//! `metav1.Status`: the failures of the API server, with the texts of Kubernetes.

use serde_json::{Value, json};

/// A failure as the API server returns it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, such as `NotFound`.
    pub reason: String,
    /// The text for users.
    pub message: String,
    /// The field `details`, if any.
    pub details: Option<Value>,
    /// The `Retry-After` header in seconds, if any.
    pub retry_after: Option<u32>,
}

/// Returns a resource's name in messages: `deployments.apps`, or `pods` in the core group.
pub(crate) fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

impl Status {
    /// Creates a Status with a code, a reason and a message only.
    pub fn new(code: u16, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), details: None, retry_after: None }
    }

    /// Returns 404, such as `deployments.apps "web" not found`.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", qualified(group, resource)))
            .about(group, resource, name)
    }

    /// Returns 404 for a resource that is not served.
    pub fn unknown_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// Returns 409, such as `deployments.apps "web" already exists`.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", qualified(group, resource)))
            .about(group, resource, name)
    }

    /// Returns 409 `Operation cannot be fulfilled on …: CAUSE`.
    pub fn conflict_because(group: &str, resource: &str, name: &str, cause: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {cause}", qualified(group, resource));
        Self::new(409, "Conflict", message).about(group, resource, name)
    }

    /// Returns 409 for a request with an outdated resourceVersion.
    pub fn conflict(group: &str, resource: &str, name: &str) -> Self {
        Self::conflict_because(
            group,
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Returns 403, such as `events "web.1" is forbidden: CAUSE`.
    pub fn forbidden(group: &str, resource: &str, name: &str, cause: &str) -> Self {
        let resource_name = qualified(group, resource);
        let message = if name.is_empty() {
            format!("{resource_name} is forbidden: {cause}")
        } else {
            format!("{resource_name} {name:?} is forbidden: {cause}")
        };
        Self::new(403, "Forbidden", message).about(group, resource, name)
    }

    /// Returns 422 with one cause per invalid field.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for cause in causes {
            let text = cause.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let all = match texts.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let mut status =
            Self::new(422, "Invalid", format!("{} {name:?} is invalid: {all}", qualified(group, kind)))
                .about(group, kind, name);
        if let Some(Value::Object(details)) = &mut status.details {
            details.insert("causes".to_owned(), causes.iter().map(FieldError::to_json).collect());
        }
        status
    }

    /// Returns 400 with a message.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Returns 405 for a resource that does not support the verb.
    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    /// Returns 410 for a resourceVersion that is older than the history.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Returns 415 for a body with an unsupported media type.
    pub fn unsupported_media_type(accepted: &str) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    /// Returns 413 for a body of more than `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// Returns 429 with `Retry-After`.
    pub fn too_many_requests(retry_after: u32) -> Self {
        let mut status = Self::new(
            429,
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        );
        status.details = Some(json!({ "retryAfterSeconds": retry_after }));
        status.retry_after = Some(retry_after);
        status
    }

    /// Returns 504 for a resourceVersion that is newer than the current resourceVersion.
    pub fn resource_version_too_large(requested: u64, newest: u64) -> Self {
        let mut status = Self::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {requested}, current: {newest}"),
        );
        status.details = Some(json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        }));
        status.retry_after = Some(1);
        status
    }

    /// Returns 500 for an internal error.
    pub fn internal(message: &str) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// Encodes the `metav1.Status` object.
    pub fn to_json(&self) -> Value {
        let mut object = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if let (Some(details), Some(fields)) = (&self.details, object.as_object_mut()) {
            fields.insert("details".to_owned(), details.clone());
        }
        object
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let mut details = serde_json::Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), value.into());
            }
        }
        self.details = Some(Value::Object(details));
        self
    }
}

/// The error of one field, as `field.Error` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field, such as `spec.maxReplicas`.
    pub field: String,
    /// The machine-readable kind, such as `FieldValueInvalid`.
    pub kind: &'static str,
    /// The text after the path of the field.
    pub body: String,
}

impl FieldError {
    /// Returns `Required value: DETAIL`.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::with("FieldValueRequired", "Required value", field.into(), detail)
    }

    /// Returns `Forbidden: DETAIL`.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::with("FieldValueForbidden", "Forbidden", field.into(), detail)
    }

    /// Returns `Invalid value: VALUE: DETAIL`. A text is quoted. Other values are printed as JSON.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::with("FieldValueInvalid", &format!("Invalid value: {}", printed(value)), field.into(), detail)
    }

    /// Returns `Unsupported value: VALUE: supported values: "A", "B"`.
    pub fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ");
        Self::with(
            "FieldValueNotSupported",
            &format!("Unsupported value: {}", printed(value)),
            field.into(),
            &format!("supported values: {list}"),
        )
    }

    fn with(kind: &'static str, head: &str, field: String, detail: &str) -> Self {
        let body = if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") };
        Self { field, kind, body }
    }

    fn to_json(&self) -> Value {
        json!({ "reason": self.kind, "message": self.body, "field": self.field })
    }
}

/// Adds errors to the causes of a failed validation.
pub(crate) trait Causes {
    fn required(&mut self, field: impl Into<String>, detail: &str);
    fn forbidden(&mut self, field: impl Into<String>, detail: &str);
    fn invalid(&mut self, field: impl Into<String>, value: impl Into<Value>, detail: &str);
    fn unsupported(&mut self, field: impl Into<String>, value: impl Into<Value>, supported: &[&str]);
}

impl Causes for Vec<FieldError> {
    fn required(&mut self, field: impl Into<String>, detail: &str) {
        self.push(FieldError::required(field, detail));
    }

    fn forbidden(&mut self, field: impl Into<String>, detail: &str) {
        self.push(FieldError::forbidden(field, detail));
    }

    fn invalid(&mut self, field: impl Into<String>, value: impl Into<Value>, detail: &str) {
        self.push(FieldError::invalid(field, &value.into(), detail));
    }

    fn unsupported(&mut self, field: impl Into<String>, value: impl Into<Value>, supported: &[&str]) {
        self.push(FieldError::unsupported(field, &value.into(), supported));
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.body)
    }
}

fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}
