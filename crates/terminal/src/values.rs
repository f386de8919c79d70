//! Values in JSON objects by their pointers, such as `/spec/maxReplicas`, and the YAML or JSON documents of a user's
//! file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use autoscaling::quantity::Quantity;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_saphyr::{Options, UserMessageFormatter};

/// Returns the value at a pointer. Null if the value is absent.
pub fn at<'a>(object: &'a Value, pointer: &str) -> &'a Value {
    object.pointer(pointer).unwrap_or(&Value::Null)
}

/// Returns the items of the list at a pointer. Empty for any other value.
pub fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    at(object, pointer).as_array().map_or(&[], Vec::as_slice)
}

/// Returns the string at a pointer. Empty for any other value.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).as_str().unwrap_or_default()
}

/// Parses a quantity from a string or a number.
pub fn quantity(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.parse::<Quantity>().ok().map(Quantity::as_f64),
        number => number.as_f64(),
    }
}

/// Formats a scalar without quotes. Null is empty.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

/// Sets the value at a pointer, or removes it if `value` is `None`. A new value creates the missing objects along its
/// path. A scalar along the path becomes an object. If a list item along the path is missing, nothing changes.
pub fn set(object: &mut Value, path: &str, value: Option<Value>) {
    let Some((parents, last)) = path.rsplit_once('/') else { return };
    if value.is_none() && object.pointer(parents).is_none_or(Value::is_null) {
        return;
    }
    let key = |part: &str| part.replace("~1", "/").replace("~0", "~");
    let mut node = object;
    for part in parents.split('/').skip(1) {
        node = match node {
            Value::Array(items) => match part.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                Some(item) => item,
                None => return,
            },
            other => {
                if !other.is_object() {
                    *other = Value::Object(Map::new());
                }
                match other.as_object_mut() {
                    Some(fields) => fields.entry(key(part)).or_insert(Value::Null),
                    None => return,
                }
            }
        };
    }
    if !node.is_object() {
        *node = Value::Object(Map::new());
    }
    let Some(fields) = node.as_object_mut() else { return };
    match value {
        Some(value) => drop(fields.insert(key(last), value)),
        None => drop(fields.remove(&key(last))),
    }
}

/// The reason why a user's file has no text.
#[derive(Debug, thiserror::Error)]
pub enum TextFileError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is too long.
    #[error("it has more than {} MiB", limit >> 20)]
    TooLarge {
        /// Maximum number of bytes.
        limit: usize,
    },
    /// The file is no text.
    #[error("it is not text in UTF-8")]
    NotText,
}

/// Reads a file of at most `limit` bytes, or standard input for the path `-`.
pub fn text_of_file(path: &Path, limit: usize) -> Result<String, TextFileError> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    if path.as_os_str() == "-" {
        io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(most).read_to_end(&mut bytes)?;
    }
    if bytes.len() > limit {
        return Err(TextFileError::TooLarge { limit });
    }
    String::from_utf8(bytes).map_err(|_| TextFileError::NotText)
}

/// The reason why a text cannot be read as YAML documents.
#[derive(Debug)]
pub struct YamlError {
    /// The line, counted from 1. 0 if it is unknown.
    pub line: u64,
    /// The first line of the error text.
    pub message: String,
}

/// Reads all YAML documents of a text.
pub fn documents<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, YamlError> {
    let mut options = Options::default();
    options.with_snippet = false;
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| YamlError {
        line: error.location().map_or(0, |location| location.line()),
        message: error
            .render_with_formatter(&UserMessageFormatter)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    })
}
