//! What the three lists have in common.

use std::str::FromStr;

use autoscaling::quantity::Quantity;
use jiff::Timestamp;
use serde_json::value::RawValue;

use crate::api::call::Call;
use crate::api::client::Client;
use crate::api::decode::{DecodeError, Text};
use crate::api::error::ApiError;

/// Reads a list item by item and checks what kind of list it is.
pub(super) async fn list<T>(
    client: &Client,
    call: &Call,
    kind: &str,
    mut decode: impl FnMut(&[u8]) -> Result<T, DecodeError>,
) -> Result<Vec<T>, ApiError> {
    let mut items = Vec::new();
    let envelope = client
        .items(call, |item| {
            items.push(decode(item)?);
            Ok(())
        })
        .await?;
    // Go fills in a kind that is left out.
    if envelope.kind == kind || envelope.kind.is_empty() {
        return Ok(items);
    }
    let message = if envelope.kind == "Status" && envelope.status == "Failure" {
        envelope.message
    } else {
        let found = if envelope.api_version.is_empty() { "v1" } else { &envelope.api_version };
        format!(
            "no kind {} is registered for version {}: a {kind} was asked for",
            autoscaling::go::quote(cut(&envelope.kind)),
            autoscaling::go::quote(cut(found))
        )
    };
    Err(ApiError::Decode(DecodeError::new(message)))
}

/// Bounds a text from outside that becomes part of a condition.
fn cut(text: &str) -> &str {
    text.char_indices().nth(128).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

/// A quantity, written as a string or as a number; absent and `null` are zero, as in Go.
pub(super) fn quantity(raw: Option<&RawValue>) -> Result<Quantity, DecodeError> {
    let raw = raw.map_or("null", RawValue::get);
    if raw == "null" {
        return Ok(Quantity::default());
    }
    let unquoted;
    let text = if raw.starts_with('"') {
        unquoted = serde_json::from_str::<Text<'_>>(raw)?;
        &*unquoted
    } else {
        raw
    };
    Quantity::from_str(text).map_err(|error| DecodeError::new(error.to_string()))
}

/// A time; absent, `null` and empty are the zero time.
pub(super) fn time(text: Option<&Text<'_>>) -> Result<Option<Timestamp>, DecodeError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let time = text.parse().map_err(|error| {
        DecodeError::new(format!(
            "parsing time {} as \"2006-01-02T15:04:05Z07:00\": {error}",
            autoscaling::go::quote(cut(text))
        ))
    })?;
    Ok(Some(time))
}
