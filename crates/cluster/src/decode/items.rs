//! Splits a list into its items while the list arrives in pieces.
//!
//! A scanner finds the elements of the top-level `items` array by counting brackets. The decoder of an item validates
//! its JSON. The envelope consists of all other fields.

use serde::Deserialize;

use super::{DecodeError, Nesting};

/// Maximum size of the envelope (all fields except `items`), in bytes.
const MAX_ENVELOPE: usize = 1 << 20;
/// Maximum size of an item, in bytes, far above the maximum object size in etcd.
const MAX_ITEM: usize = 16 << 20;

/// The fields of a list except `items`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Envelope {
    pub(crate) kind: String,
    pub(crate) api_version: String,
    pub(crate) metadata: ListMeta,
    /// `status` of a Status that was sent instead of a list, such as `Failure`.
    pub(crate) status: serde_json::Value,
    pub(crate) message: String,
}

/// `metadata` of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListMeta {
    /// The resourceVersion of the list.
    pub(crate) resource_version: String,
    /// The token of the next page. Empty on the last page.
    pub(crate) r#continue: String,
}

/// A scanner that splits a list into its items.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact about the previous byte")]
pub(crate) struct ItemScanner {
    position: Position,
    /// The start of an item that continues in the next piece.
    partial: Vec<u8>,
    envelope: Vec<u8>,
    /// The number of open brackets in the envelope.
    depth: usize,
    /// Whether the scanner is within a string of the envelope, or within an item that is a string.
    in_string: bool,
    escaped: bool,
    /// Whether the next string at depth 1 of the envelope is a key.
    key_next: bool,
    /// The start of the current or last top-level key in the envelope.
    key_at: usize,
    /// Whether the last top-level key is `items`.
    items_next: bool,
}

/// The position of the scanner in the list.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Outside of the array of items.
    #[default]
    Envelope,
    /// In the array of items, before an item or the closing bracket.
    Interpolation,
    /// In an item that is an object or array.
    Item(Nesting),
    /// In an item that is a string.
    Text,
    /// In an item that is a number, `true`, `false` or `null`.
    Scalar,
}

impl ItemScanner {
    /// Consumes the next piece. Passes each completed item to `item`.
    pub(crate) fn push(
        &mut self,
        piece: &[u8],
        mut item: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let (mut start, mut at) = (0, 0);
        while let Some(&byte) = piece.get(at) {
            match self.position {
                Position::Envelope => self.step_envelope(byte),
                Position::Interpolation => match byte {
                    b' ' | b'\t' | b'\r' | b'\n' | b',' => {}
                    b']' => self.leave_items(),
                    _ => {
                        start = at;
                        self.in_string = byte == b'"';
                        self.position = match byte {
                            b'{' | b'[' => Position::Item(Nesting::opened()),
                            b'"' => Position::Text,
                            _ => Position::Scalar,
                        };
                    }
                },
                Position::Item(mut nesting) => {
                    let Some(more) = nesting.end(piece.get(at..).unwrap_or_default()) else {
                        self.position = Position::Item(nesting);
                        break;
                    };
                    at += more;
                    self.position = Position::Interpolation;
                    self.complete(piece.get(start..=at).unwrap_or_default(), &mut item)?;
                }
                Position::Text => {
                    if self.step_string(byte) {
                        self.position = Position::Interpolation;
                        self.complete(piece.get(start..=at).unwrap_or_default(), &mut item)?;
                    }
                }
                Position::Scalar => {
                    if matches!(byte, b',' | b']' | b' ' | b'\t' | b'\r' | b'\n') {
                        self.complete(piece.get(start..at).unwrap_or_default(), &mut item)?;
                        self.position = Position::Interpolation;
                        if byte == b']' {
                            self.leave_items();
                        }
                    }
                }
            }
            at += 1;
        }
        if matches!(self.position, Position::Item(_) | Position::Text | Position::Scalar) {
            self.partial.extend_from_slice(piece.get(start..).unwrap_or_default());
        }
        if self.partial.len() > MAX_ITEM || self.envelope.len() > MAX_ENVELOPE {
            return Err(DecodeError::new("an item or the envelope of the list exceeds the size limit"));
        }
        Ok(())
    }

    /// Consumes the closing bracket of the array of items.
    fn leave_items(&mut self) {
        self.position = Position::Envelope;
        self.envelope.push(b']');
        self.depth = 1;
    }

    /// Decodes the envelope after the last piece.
    pub(crate) fn finish(self) -> Result<Envelope, DecodeError> {
        Ok(serde_json::from_slice(&self.envelope)?)
    }

    fn complete(
        &mut self,
        end: &[u8],
        item: &mut impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if self.partial.is_empty() {
            return item(end);
        }
        self.partial.extend_from_slice(end);
        let result = item(&self.partial);
        self.partial.clear();
        result
    }

    /// Consumes one byte of a string. Returns whether `byte` ends the string.
    fn step_string(&mut self, byte: u8) -> bool {
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            self.in_string = false;
            return true;
        }
        false
    }

    fn step_envelope(&mut self, byte: u8) {
        self.envelope.push(byte);
        if self.in_string {
            if self.step_string(byte) && self.depth == 1 && self.key_next {
                self.key_next = false;
                self.items_next = self.envelope.get(self.key_at..) == Some(b"\"items\"");
            }
            return;
        }
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b':' => return,
            b'"' => {
                self.in_string = true;
                if self.key_next {
                    self.key_at = self.envelope.len() - 1;
                }
            }
            b'[' if self.items_next => self.position = Position::Interpolation,
            b'{' | b'[' => {
                self.depth += 1;
                self.key_next = self.depth == 1 && byte == b'{';
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b',' => self.key_next = self.depth == 1,
            _ => {}
        }
        self.items_next = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, size: usize) -> (Vec<String>, Result<Envelope, DecodeError>) {
        let mut scanner = ItemScanner::default();
        let mut items = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            scanner
                .push(piece, |item| {
                    items.push(String::from_utf8(item.to_vec()).unwrap());
                    Ok(())
                })
                .unwrap();
        }
        (items, scanner.finish())
    }

    #[test]
    fn items_are_found_for_any_split_into_pieces() {
        let list = r#" {"kind":"PodList","metadata":{"items":[1],"resourceVersion":"7","continue":"c"},
            "items" : [ {"a":"]}\"","b":[{}]} , 12,"x,\"]",null,[1,2],{"items":[3]}],"apiVersion":"v1"}"#;
        for size in 1..list.len() {
            let (items, envelope) = cut(list, size);
            assert_eq!(
                items,
                [r#"{"a":"]}\"","b":[{}]}"#, "12", r#""x,\"]""#, "null", "[1,2]", r#"{"items":[3]}"#],
                "{size}"
            );
            let envelope = envelope.unwrap();
            assert_eq!(envelope.kind, "PodList");
            assert_eq!(envelope.api_version, "v1");
            assert_eq!(envelope.metadata.r#continue, "c");
            assert_eq!(envelope.metadata.resource_version, "7");
        }
    }

    #[test]
    fn absent_null_and_empty_items_give_no_items() {
        for list in [r#"{"kind":"L"}"#, r#"{"kind":"L","items":null}"#, r#"{"items":[],"kind":"L"}"#] {
            let (items, envelope) = cut(list, 3);
            assert!(items.is_empty());
            assert_eq!(envelope.unwrap().kind, "L");
        }
    }

    #[test]
    fn truncated_list_is_an_error() {
        for list in [r#"{"kind":"L","items":[{"a":1},{"b"#, r#"{"kind":"L","items":[{"a":1}]"#, ""] {
            let (_, envelope) = cut(list, 4);
            let message = envelope.unwrap_err().message;
            assert_eq!(message, "couldn't get version/kind; json parse error: unexpected end of JSON input");
        }
    }
}
