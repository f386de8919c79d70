//! Reading and changing fields of an object that is a plain JSON value.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The JSON of an object.
pub(crate) fn encode(object: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    append(object, &mut out);
    out
}

/// Appends the JSON of an object.
pub(crate) fn append(object: &impl Serialize, out: &mut Vec<u8>) {
    // Neither a buffer in memory nor an object whose keys are strings can fail.
    let _ = serde_json::to_writer(out, object);
}

/// The value at a path of field names.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// The text at a path; absent and other types are empty.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("")
}

/// The integer at a path.
pub(crate) fn int(object: &Value, path: &[&str]) -> Option<i64> {
    at(object, path).and_then(Value::as_i64)
}

/// The list at a path; absent is empty.
pub(crate) fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A text under `metadata`.
pub(crate) fn meta<'a>(object: &'a Value, key: &str) -> &'a str {
    text(object, &["metadata", key])
}

/// The map at a top-level key, made if it is absent or no map.
pub(crate) fn section<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    let fields = map(object);
    map(fields.entry(key).or_insert_with(|| Value::Object(Map::new())))
}

/// The value as a map; anything else is replaced by an empty one.
pub(crate) fn map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        _ => unreachable!("the line above made it an object"),
    }
}

/// Sets a field to a value, or removes it.
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

/// A time as `metav1.Time` writes it: RFC 3339 in UTC, whole seconds.
pub(crate) fn time_text(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// Removes fields that are null, at every depth, as decoding into Go's types and back does.
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

/// Reads these top-level fields of an object and passes over all others; `None` if it is no JSON object.
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
