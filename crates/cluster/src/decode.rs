//! Decoders of wire bytes. Unused fields are skipped without building their values.

mod cursor;
mod hpas;
mod items;
mod nesting;
mod pods;
mod strings;

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use self::cursor::Cursor;
use super::text::{MAX_MESSAGE, cut};
pub use hpas::{CachedHpa, HpaObject, decode_cached_hpa, hpa};
pub(crate) use items::{Envelope, ItemScanner};
pub use nesting::Nesting;
pub use pods::{WireContainer, WirePod, pod};
pub(crate) use strings::end_of_plain;

/// A decoding error, with a text of bounded size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    /// The error text.
    pub message: String,
}

impl DecodeError {
    /// Creates an error with the text `message`, truncated to 16 KiB.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: cut(message.into(), MAX_MESSAGE) }
    }

    /// Creates Go's error for an object without `kind` or `apiVersion`.
    pub(crate) fn missing(field: &str, object: &[u8]) -> Self {
        // The error text is truncated in any case.
        let object = object.get(..MAX_MESSAGE).unwrap_or(object);
        Self::new(format!("Object '{field}' is missing in '{}'", String::from_utf8_lossy(object)))
    }

    /// Creates Go's error for JSON that ends too early.
    fn cut_short() -> Self {
        Self::new("couldn't get version/kind; json parse error: unexpected end of JSON input")
    }
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        let mut message = match error.classify() {
            serde_json::error::Category::Eof => return Self::cut_short(),
            serde_json::error::Category::Syntax => {
                format!("couldn't get version/kind; json parse error: {error}")
            }
            _ => error.to_string(),
        };
        if let Some((at, _)) = message.char_indices().nth(512) {
            message.truncate(at);
        }
        Self { message }
    }
}

/// A JSON string, which is borrowed from the wire bytes unless it contains escapes.
///
/// serde deserializes a `Cow` within an `Option`, a `Vec` or a map as an owned string. This type stays borrowed there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text)))
    }
}

/// A JSON object as pairs of key and value, in wire order. As in Go, `null` is the empty object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pairs<'a, V>(pub(crate) Vec<(Text<'a>, V)>);

impl<V> Default for Pairs<'_, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Pairs<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(std::marker::PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = Pairs<'de, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(Pairs::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_any(Entries(std::marker::PhantomData))
    }
}

/// The identity of an object, from its metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// Whether the annotation `k8s.io/initial-events-end` of bookmarks is `true`.
    initial_events_end: bool,
}

impl Meta {
    /// Returns whether the object is the bookmark that ends the initial events of a streaming list.
    pub fn ends_initial_events(&self) -> bool {
        self.initial_events_end
    }

    fn read(metadata: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let mut meta = Self::default();
        metadata.fields(|key, value| {
            let text = match key {
                b"namespace" => &mut meta.namespace,
                b"name" => &mut meta.name,
                b"uid" => &mut meta.uid,
                b"resourceVersion" => &mut meta.resource_version,
                b"annotations" => {
                    return value.fields(|key, value| {
                        if key != b"k8s.io/initial-events-end" {
                            return value.skip();
                        }
                        meta.initial_events_end = &*value.text()? == "true";
                        Ok(())
                    });
                }
                _ => return value.skip(),
            };
            *text = value.text()?.0.into_owned();
            Ok(())
        })?;
        Ok(meta)
    }
}

/// Decodes the identity of an object and skips all other fields.
pub fn meta(object: &[u8]) -> Result<Meta, DecodeError> {
    let (mut cursor, mut meta) = (Cursor::new(object), None);
    cursor.fields(|key, value| {
        if key != b"metadata" {
            return value.skip();
        }
        meta = Some(Meta::read(value)?);
        Ok(())
    })?;
    cursor.finish()?;
    meta.ok_or_else(|| DecodeError::new("an object without metadata"))
}

/// Decodes the identity of an object from its `metadata`.
pub fn meta_of(metadata: &RawValue) -> Result<Meta, DecodeError> {
    Meta::read(&mut Cursor::new(metadata.get().as_bytes()))
}

/// A line of a watch.
#[derive(Debug)]
pub struct WatchEvent<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`. Newer servers may send other types.
    pub kind: Text<'a>,
    /// The JSON of the object.
    pub object: &'a [u8],
}

/// Decodes the envelope of a watch event without decoding its object.
pub fn watch_event(line: &[u8]) -> Result<WatchEvent<'_>, DecodeError> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow, rename = "type")]
        kind: Text<'a>,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    // Go always writes the envelope in this form. Stripping the envelope saves one pass over the object. The JSON of
    // the object is validated when the object is decoded.
    for kind in ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"] {
        let object = line
            .strip_prefix(b"{\"type\":\"")
            .and_then(|rest| rest.strip_prefix(kind.as_bytes()))
            .and_then(|rest| rest.strip_prefix(b"\",\"object\":"))
            .and_then(|rest| rest.trim_ascii_end().strip_suffix(b"}"));
        if let Some(object) = object {
            return Ok(WatchEvent { kind: kind.into(), object });
        }
    }
    let envelope: Envelope<'_> = serde_json::from_slice(line)?;
    Ok(WatchEvent { kind: envelope.kind, object: envelope.object.get().as_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelope_is_decoded_in_any_field_order() {
        for line in [
            "{\"type\":\"ADDED\",\"object\":{\"a\":{}}}\n",
            "{ \"object\": {\"a\":{}}, \"type\": \"ADDED\" }",
            "{\"type\":\"ADDED\", \"object\":{\"a\":{}}}",
        ] {
            let event = watch_event(line.as_bytes()).unwrap();
            assert_eq!((&*event.kind, event.object), ("ADDED", &b"{\"a\":{}}"[..]), "{line}");
        }
        assert!(watch_event(b"{\"type\":\"ADDED\"").is_err());
    }

    #[test]
    fn identity_is_rejected_when_the_object_is_truncated() {
        let object = r#"{"metadata":{"name":"web"},"spec":{"replicas":2}}"#;
        assert_eq!(meta(object.as_bytes()).unwrap().name, "web");
        for end in 0..object.len() {
            assert!(meta(&object.as_bytes()[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn last_initial_bookmark_is_recognised() {
        let object = br#"{"kind":"Pod","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
        let meta = meta(object).unwrap();
        assert!(meta.ends_initial_events());
        assert_eq!(meta.resource_version, "7");
        assert!(!super::meta(br#"{"metadata":{"resourceVersion":"8"}}"#).unwrap().ends_initial_events());
    }
}
