//! Labels of plain JSON objects, as selectors want them.

use autoscaling::selector::Labels;
use serde_json::Value;

use crate::embedded::object::at;

/// A JSON object of strings read as labels; anything else, `null` included, has no labels.
#[derive(Debug, Clone, Copy)]
pub struct ObjectLabels<'a>(pub &'a Value);

impl<'a> ObjectLabels<'a> {
    /// The labels of a Kubernetes object: `metadata.labels`.
    pub fn of(object: &'a Value) -> Self {
        Self::at(object, &["metadata", "labels"])
    }

    /// The labels that are written at a path of field names.
    pub fn at(object: &'a Value, path: &[&str]) -> Self {
        Self(at(object, path).unwrap_or(&Value::Null))
    }
}

impl Labels for ObjectLabels<'_> {
    fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str)
    }
}
