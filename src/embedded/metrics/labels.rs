//! Labels of plain JSON objects, as selectors want them.

use autoscaling::selector::Labels;
use serde_json::Value;

/// A JSON object of strings read as labels; anything else, `null` included, has no labels.
#[derive(Debug, Clone, Copy)]
pub struct ObjectLabels<'a>(pub &'a Value);

impl<'a> ObjectLabels<'a> {
    /// The labels of a Kubernetes object: `metadata.labels`.
    pub fn of(object: &'a Value) -> Self {
        Self(object.pointer("/metadata/labels").unwrap_or(&Value::Null))
    }
}

impl Labels for ObjectLabels<'_> {
    fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str)
    }
}
