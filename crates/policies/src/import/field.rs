//! A field of an object, with its path.

use serde_json::Value;

/// A field that may be absent.
#[derive(Debug, Clone)]
pub(super) struct Field<'a> {
    value: Option<&'a Value>,
    path: String,
}

impl<'a> Field<'a> {
    /// The object itself. Its path is empty.
    pub(super) fn root(value: &'a Value) -> Self {
        Self { value: Some(value), path: String::new() }
    }

    /// The path: `spec.triggers[0].metadata.start`.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The value. Null is absent.
    pub(super) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    pub(super) fn is_set(&self) -> bool {
        self.value.is_some()
    }

    /// A field of a mapping. A name such as that of an annotation stands in brackets.
    pub(super) fn at(&self, name: &str) -> Self {
        let value = self.value.and_then(|value| value.get(name)).filter(|value| !value.is_null());
        let path = match name.contains(['.', '/']) {
            true => format!("{}[{name}]", self.path),
            false if self.path.is_empty() => name.to_owned(),
            false => format!("{}.{name}", self.path),
        };
        Self { value, path }
    }

    /// The entries of a list.
    pub(super) fn items(&self) -> Vec<Self> {
        let entries = self.value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let entry = |(index, value)| Self { value: Some(value), path: format!("{}[{index}]", self.path) };
        entries.iter().enumerate().map(entry).collect()
    }

    /// The fields of a mapping that are set, with their names.
    pub(super) fn fields(&self) -> Vec<(&'a str, Self)> {
        let names = self.value.and_then(Value::as_object).into_iter().flatten();
        names.map(|(name, _)| (name.as_str(), self.at(name))).filter(|(_, field)| field.is_set()).collect()
    }
}
