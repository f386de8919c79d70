//! Reads and changes fields of an object that is a plain JSON value.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

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

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
