//! Shared decoding of the three list types.

use std::borrow::Cow;
use std::str::FromStr;

use autoscaling::quantity::Quantity;
use jiff::Timestamp;
use serde_json::value::RawValue;

use crate::call::Call;
use crate::client::Client;
use crate::decode::{DecodeError, Envelope, Text};
use crate::error::ApiError;

/// Reads a list item by item into a `Vec` and checks its kind.
pub(super) async fn list<T>(
    client: &Client,
    call: &Call,
    kind: &str,
    mut decode: impl FnMut(&[u8]) -> Result<T, DecodeError>,
) -> Result<Vec<T>, ApiError> {
    let mut items = Vec::new();
    let keep = |item: &[u8]| {
        items.push(decode(item)?);
        Ok(())
    };
    read(client, call, kind, keep).await?;
    Ok(items)
}

/// Reads a list item by item and checks its kind. The caller keeps the items.
pub(super) async fn read(
    client: &Client,
    call: &Call,
    kind: &str,
    item: impl FnMut(&[u8]) -> Result<(), DecodeError>,
) -> Result<(), ApiError> {
    let envelope = client.items(call, item).await?;
    check_kind(envelope, kind)
}

/// Checks the kind of a list. Go accepts a missing kind.
pub(super) fn check_kind(envelope: Envelope, kind: &str) -> Result<(), ApiError> {
    if envelope.kind == kind || envelope.kind.is_empty() {
        return Ok(());
    }
    let message = if envelope.kind == "Status" && envelope.status == "Failure" {
        envelope.message
    } else {
        let found = if envelope.api_version.is_empty() { "v1" } else { &envelope.api_version };
        format!(
            "no kind {} is registered for version {}: expected a {kind}",
            autoscaling::go::quote(cut(&envelope.kind)),
            autoscaling::go::quote(cut(found))
        )
    };
    Err(ApiError::Decode(DecodeError::new(message)))
}

/// Truncates an external text to 128 characters, because it becomes part of a condition.
fn cut(text: &str) -> &str {
    text.char_indices().nth(128).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

/// A quantity, encoded as a string or a number. Absent and `null` are zero, as in Go.
pub(super) fn quantity(raw: Option<&RawValue>) -> Result<Quantity, DecodeError> {
    let raw = raw.map_or("null", RawValue::get);
    let text = match raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(plain) if !plain.contains('\\') => Cow::Borrowed(plain),
        Some(_) => serde_json::from_str::<Text<'_>>(raw)?.0,
        None if raw == "null" => return Ok(Quantity::default()),
        None => Cow::Borrowed(raw),
    };
    Quantity::from_str(&text).map_err(|error| DecodeError::new(error.to_string()))
}

/// A one-entry cache, because consecutive samples of one scrape have the same time.
#[derive(Debug, Default)]
pub(super) struct LastTime {
    text: String,
    time: Option<Timestamp>,
}

impl LastTime {
    /// Parses a time. Absent, `null` and empty are the zero time.
    pub(super) fn read(&mut self, text: Option<&str>) -> Result<Option<Timestamp>, DecodeError> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
        if *self.text != *text {
            let time = text.parse().map_err(|error| {
                DecodeError::new(format!(
                    "parsing time {} as \"2006-01-02T15:04:05Z07:00\": {error}",
                    autoscaling::go::quote(cut(text))
                ))
            })?;
            self.time = Some(time);
            text.clone_into(&mut self.text);
        }
        Ok(self.time)
    }
}
