//! Objects: the fields of an object that is a plain JSON value, and one version of an object as JSON text.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use jiff::Timestamp;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::registry::ResourceType;

/// Encodes an object as JSON.
pub(crate) fn encode(object: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    append(object, &mut out);
    out
}

/// Appends an object as JSON.
pub(crate) fn append(object: &impl Serialize, out: &mut Vec<u8>) {
    // Writing to memory cannot fail, and all keys of an object are strings.
    let _ = serde_json::to_writer(out, object);
}

/// Returns the value at a path of field names. A null value is handled as absent.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// Returns the text at a path. An absent value and a value of another type are empty.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("")
}

/// Returns the integer at a path.
pub(crate) fn int(object: &Value, path: &[&str]) -> Option<i64> {
    at(object, path).and_then(Value::as_i64)
}

/// Returns the list at a path. An absent list is empty.
pub(crate) fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns a text under `metadata`.
pub(crate) fn meta<'a>(object: &'a Value, key: &str) -> &'a str {
    text(object, &["metadata", key])
}

/// Returns the map at a top-level key. Creates an empty map if the value is absent or not a map.
pub(crate) fn section<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    let fields = map(object);
    map(fields.entry(key).or_insert_with(|| Value::Object(Map::new())))
}

/// Returns the value as a map. Replaces a value of another type by an empty map.
pub(crate) fn map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        _ => unreachable!("the line above made it an object"),
    }
}

/// Sets a field, or removes it if `value` is `None`.
pub(crate) fn put(fields: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(value) => {
            fields.insert(key.to_owned(), value);
        }
        None => {
            fields.remove(key);
        }
    }
}

/// Sets a field that is absent or null.
pub(crate) fn default(fields: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    let slot = fields.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = value.into();
    }
}

/// Formats a time as `metav1.Time` does: RFC 3339 in UTC, whole seconds.
pub(crate) fn time_text(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// Encodes the last digits of a number in the alphabet of Kubernetes' generated names, which has no vowels and no
/// look-alikes.
pub(crate) fn letters(mut number: u64, length: usize) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut text = String::with_capacity(length);
    for _ in 0..length {
        let letter = usize::try_from(number % 27).ok().and_then(|at| LETTERS.get(at)).copied();
        text.push(letter.map_or('x', char::from));
        number /= 27;
    }
    text
}

/// Removes null fields at every depth, as decoding into Go's types and encoding again does.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Returns an object's metadata as a `PartialObjectMetadata` object.
pub(crate) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_default(),
    })
}

/// Reads the `wanted` top-level fields of an object and skips all others. Returns `None` if `json` is not a JSON
/// object.
pub(crate) fn fields(json: &[u8], wanted: &[&str]) -> Option<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let fields = Fields(wanted).deserialize(&mut deserializer).ok()?;
    deserializer.end().ok()?;
    Some(Value::Object(fields))
}

struct Fields<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        #[derive(Deserialize)]
        struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
        let mut fields = Map::new();
        while let Some(Key(key)) = map.next_key()? {
            if self.0.contains(&&*key) {
                fields.insert(key.into_owned(), map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(fields)
    }
}

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
        let fields = map(&mut object);
        fields.remove("apiVersion");
        fields.remove("kind");
        let (mut metadata, mut status) = (Span::default(), Span::default());
        let mut text = Vec::with_capacity(1024);
        for (key, value) in fields.iter() {
            text.push(if text.is_empty() { b'{' } else { b',' });
            append(key, &mut text);
            text.push(b':');
            let start = text.len();
            append(value, &mut text);
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
        append(object.get("metadata").unwrap_or(&Value::Null), &mut text);
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
        let labels = at(object, &["metadata", "labels"]).and_then(Value::as_object);
        Self {
            ty,
            key: Key::new(meta(object, "namespace"), meta(object, "name")),
            uid: meta(object, "uid").into(),
            resource_version: meta(object, "resourceVersion").parse().unwrap_or(0),
            labels: labels
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or("").into()))
                .collect(),
            owners: list(object, &["metadata", "ownerReferences"])
                .iter()
                .map(|owner| self::text(owner, &["uid"]).into())
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
                put(map(&mut object), key, changed.get_mut(key).map(Value::take));
            }
            return Self::new(self.ty, object);
        };
        let mut text = Vec::with_capacity(self.text.len() + 256);
        text.extend_from_slice(before);
        append(changed.get("metadata").unwrap_or(&Value::Null), &mut text);
        let metadata = Span::new(before.len(), text.len());
        text.extend_from_slice(between);
        let start = text.len();
        append(new, &mut text);
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
        let fields = map(&mut object);
        fields.insert("apiVersion".to_owned(), self.ty.api_version().into());
        fields.insert("kind".to_owned(), self.ty.kind.into());
        object
    }
}
