//! One version of an object as JSON text.

use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::object;
use crate::registry::ResourceType;

/// One immutable version of one object.
#[derive(Debug)]
pub(crate) struct StoredObject {
    pub(crate) ty: &'static ResourceType,
    pub(crate) key: Key,
    pub(crate) uid: Box<str>,
    pub(crate) resource_version: u64,
    labels: Box<[(Box<str>, Box<str>)]>,
    pub(crate) owners: Box<[Box<str>]>,
    /// The object's JSON without `apiVersion` and `kind`.
    text: Bytes,
    /// The position of `metadata` in the text.
    metadata: Span,
    /// The position of `status` in the text.
    status: Span,
}

/// The position of a value in a text. Empty if the value is absent.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn new(start: usize, end: usize) -> Self {
        match (u32::try_from(start), u32::try_from(end)) {
            (Ok(start), Ok(end)) => Self { start, end },
            _ => Self::default(),
        }
    }

    fn range(self) -> Range<usize> {
        usize::try_from(self.start).unwrap_or(0)..usize::try_from(self.end).unwrap_or(0)
    }
}

/// Key of an object within its resource type. Sorts by namespace, then name, as lists do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl StoredObject {
    pub(crate) fn new(ty: &'static ResourceType, mut object: Value) -> Self {
        let fields = object::map(&mut object);
        fields.remove("apiVersion");
        fields.remove("kind");
        let (mut metadata, mut status) = (Span::default(), Span::default());
        let mut text = Vec::with_capacity(1024);
        for (key, value) in fields.iter() {
            text.push(if text.is_empty() { b'{' } else { b',' });
            object::append(key, &mut text);
            text.push(b':');
            let start = text.len();
            object::append(value, &mut text);
            match key.as_str() {
                "metadata" => metadata = Span::new(start, text.len()),
                "status" => status = Span::new(start, text.len()),
                _ => {}
            }
        }
        text.push(b'}');
        Self::from_text(ty, &object, text, metadata, status)
    }

    /// Builds an object from its metadata and the JSON texts of its spec and status.
    pub(crate) fn from_parts(ty: &'static ResourceType, object: &Value, spec: &str, status: &[u8]) -> Self {
        let mut text = Vec::with_capacity(spec.len() + status.len() + 1024);
        text.extend_from_slice(b"{\"metadata\":");
        let start = text.len();
        object::append(object.get("metadata").unwrap_or(&Value::Null), &mut text);
        let metadata = Span::new(start, text.len());
        text.extend_from_slice(b",\"spec\":");
        text.extend_from_slice(spec.as_bytes());
        let mut status_span = Span::default();
        if !status.is_empty() {
            text.extend_from_slice(b",\"status\":");
            let start = text.len();
            text.extend_from_slice(status);
            status_span = Span::new(start, text.len());
        }
        text.push(b'}');
        Self::from_text(ty, object, text, metadata, status_span)
    }

    /// Builds an object from its text. The other fields come from the metadata in `object`.
    fn from_text(
        ty: &'static ResourceType,
        object: &Value,
        text: Vec<u8>,
        metadata: Span,
        status: Span,
    ) -> Self {
        let labels = object::at(object, &["metadata", "labels"]).and_then(Value::as_object);
        Self {
            ty,
            key: Key::new(object::meta(object, "namespace"), object::meta(object, "name")),
            uid: object::meta(object, "uid").into(),
            resource_version: object::meta(object, "resourceVersion").parse().unwrap_or(0),
            labels: labels
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or("").into()))
                .collect(),
            owners: object::list(object, &["metadata", "ownerReferences"])
                .iter()
                .map(|owner| object::text(owner, &["uid"]).into())
                .collect(),
            // Boxing the text frees the spare capacity of the buffer.
            text: Bytes::from(text.into_boxed_slice()),
            metadata,
            status,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.key.name
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.key.namespace
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(other, _)| **other == *key).map(|(_, value)| &**value)
    }

    /// Appends the whole object with `apiVersion` and `kind`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"apiVersion\":\"");
        if !self.ty.group.is_empty() {
            out.extend_from_slice(self.ty.group.as_bytes());
            out.push(b'/');
        }
        out.extend_from_slice(self.ty.version.as_bytes());
        out.extend_from_slice(b"\",\"kind\":\"");
        out.extend_from_slice(self.ty.kind.as_bytes());
        out.extend_from_slice(b"\",");
        out.extend_from_slice(self.text.get(1..).unwrap_or_default());
    }

    /// Appends the object as an item of a list. Items of built-in types have no `apiVersion` and `kind`.
    pub(crate) fn write_item(&self, out: &mut Vec<u8>) {
        if self.ty.custom { self.write(out) } else { out.extend_from_slice(&self.text) }
    }

    pub(crate) fn metadata(&self) -> Value {
        let text = self.text.get(self.metadata.range()).unwrap_or_default();
        serde_json::from_slice(text).unwrap_or_default()
    }

    /// Returns the JSON text of `status`. Empty if the object has no status.
    pub(crate) fn status_text(&self) -> &[u8] {
        self.text.get(self.status.range()).unwrap_or_default()
    }

    /// Returns this object with the metadata and the status of `changed`. Copies the other text unchanged.
    pub(crate) fn with_status(&self, mut changed: Value) -> Self {
        let (metadata, status) = (self.metadata.range(), self.status.range());
        let around = (self.text.get(..metadata.start), self.text.get(metadata.end..status.start));
        let ((Some(before), Some(between)), Some(new)) = (around, changed.get("status")) else {
            // The status is absent before or after the change.
            let mut object = self.value();
            for key in ["metadata", "status"] {
                object::put(object::map(&mut object), key, changed.get_mut(key).map(Value::take));
            }
            return Self::new(self.ty, object);
        };
        let mut text = Vec::with_capacity(self.text.len() + 256);
        text.extend_from_slice(before);
        object::append(changed.get("metadata").unwrap_or(&Value::Null), &mut text);
        let metadata = Span::new(before.len(), text.len());
        text.extend_from_slice(between);
        let start = text.len();
        object::append(new, &mut text);
        let new_status = Span::new(start, text.len());
        text.extend_from_slice(self.text.get(status.end..).unwrap_or_default());
        Self::from_text(self.ty, &changed, text, metadata, new_status)
    }

    /// Returns the approximate number of bytes that [`Self::write`] appends.
    pub(crate) fn size(&self) -> usize {
        self.text.len() + 128
    }

    /// Decodes the object into a type with some of its fields. `apiVersion` and `kind` are absent. Returns the default
    /// if the object has another shape.
    pub(crate) fn read<'a, T: Deserialize<'a> + Default>(&'a self) -> T {
        serde_json::from_slice(&self.text).unwrap_or_default()
    }

    /// Returns the whole object as a value.
    pub(crate) fn value(&self) -> Value {
        let mut object: Value = serde_json::from_slice(&self.text).unwrap_or_default();
        let fields = object::map(&mut object);
        fields.insert("apiVersion".to_owned(), self.ty.api_version().into());
        fields.insert("kind".to_owned(), self.ty.kind.into());
        object
    }
}
