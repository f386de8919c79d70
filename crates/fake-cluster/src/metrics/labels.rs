//! Labels of plain JSON objects, for selectors.

use autoscaling::selector::Labels;
use serde_json::Value;

use crate::object::at;

/// The labels in a JSON object of strings. Any other value, `null` included, has no labels.
#[derive(Debug, Clone, Copy)]
pub struct ObjectLabels<'a>(pub &'a Value);

impl<'a> ObjectLabels<'a> {
    /// Returns the labels of a Kubernetes object: `metadata.labels`.
    pub fn from_object(object: &'a Value) -> Self {
        Self::at(object, &["metadata", "labels"])
    }

    /// Returns the labels at a path of field names.
    pub fn at(object: &'a Value, path: &[&str]) -> Self {
        Self(at(object, path).unwrap_or(&Value::Null))
    }
}

impl Labels for ObjectLabels<'_> {
    fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str)
    }
}
