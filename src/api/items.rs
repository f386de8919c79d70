//! Lists decoded item by item while they arrive, so that memory holds one item and not the list.
//!
//! A small scanner finds the elements of the top-level `items` array by counting brackets; whether an item is sound
//! JSON is seen when it is decoded. Everything around the items is the envelope.

use serde::Deserialize;

use super::decode::{DecodeError, Nesting};

/// The largest envelope (`kind`, `metadata` and what else surrounds the items), in bytes.
const MAX_ENVELOPE: usize = 1 << 20;
/// The largest single item, in bytes; far above what etcd holds.
const MAX_ITEM: usize = 16 << 20;

/// What surrounds the items of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::api) struct Envelope {
    /// `kind`.
    pub(super) kind: String,
    /// `apiVersion`.
    pub(super) api_version: String,
    /// `metadata`.
    pub(super) metadata: ListMeta,
    /// `status` and `message` of a Status in the place of a list.
    pub(super) status: serde_json::Value,
    pub(super) message: String,
}

/// `metadata` of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListMeta {
    /// The state that the list shows.
    pub(super) resource_version: String,
    /// Asks for the next page; empty at the last.
    pub(super) r#continue: String,
}

/// Cuts a list into its items.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is one fact about the byte before")]
pub(super) struct ItemScanner {
    place: Place,
    /// The beginning of an item that did not end with its piece.
    partial: Vec<u8>,
    envelope: Vec<u8>,
    /// Brackets open in the envelope.
    depth: usize,
    /// In a string of the envelope, or in one that is an item.
    in_string: bool,
    escaped: bool,
    /// At depth 1 of the envelope: the next string is a key.
    key_next: bool,
    /// Where the current or last top-level key begins in the envelope.
    key_at: usize,
    /// The top-level key just read is `items`.
    items_next: bool,
}

/// Where the scanner is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Around the items.
    #[default]
    Envelope,
    /// In the array, before an item or its end.
    Between,
    /// In an object or array of the array.
    Item(Nesting),
    /// In a string of the array.
    Text,
    /// In a number, `true`, `false` or `null` of the array.
    Scalar,
}

impl ItemScanner {
    /// Takes the next piece and hands out each item that it completes.
    pub(super) fn push(
        &mut self,
        piece: &[u8],
        mut item: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let (mut start, mut at) = (0, 0);
        while let Some(&byte) = piece.get(at) {
            match self.place {
                Place::Envelope => self.step_envelope(byte),
                Place::Between => match byte {
                    b' ' | b'\t' | b'\r' | b'\n' | b',' => {}
                    b']' => self.leave_items(),
                    _ => {
                        start = at;
                        self.in_string = byte == b'"';
                        self.place = match byte {
                            b'{' | b'[' => Place::Item(Nesting::opened()),
                            b'"' => Place::Text,
                            _ => Place::Scalar,
                        };
                    }
                },
                Place::Item(mut nesting) => {
                    let Some(more) = nesting.end(piece.get(at..).unwrap_or_default()) else {
                        self.place = Place::Item(nesting);
                        break;
                    };
                    at += more;
                    self.place = Place::Between;
                    self.complete(piece.get(start..=at).unwrap_or_default(), &mut item)?;
                }
                Place::Text => {
                    if self.step_string(byte) {
                        self.place = Place::Between;
                        self.complete(piece.get(start..=at).unwrap_or_default(), &mut item)?;
                    }
                }
                Place::Scalar => {
                    if matches!(byte, b',' | b']' | b' ' | b'\t' | b'\r' | b'\n') {
                        self.complete(piece.get(start..at).unwrap_or_default(), &mut item)?;
                        self.place = Place::Between;
                        if byte == b']' {
                            self.leave_items();
                        }
                    }
                }
            }
            at += 1;
        }
        if matches!(self.place, Place::Item(_) | Place::Text | Place::Scalar) {
            self.partial.extend_from_slice(piece.get(start..).unwrap_or_default());
        }
        if self.partial.len() > MAX_ITEM || self.envelope.len() > MAX_ENVELOPE {
            return Err(DecodeError::new("an item of the list is too large"));
        }
        Ok(())
    }

    /// Takes the end of the array.
    fn leave_items(&mut self) {
        self.place = Place::Envelope;
        self.envelope.push(b']');
        self.depth = 1;
    }

    /// The envelope, after the last piece.
    pub(super) fn finish(self) -> Result<Envelope, DecodeError> {
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

    /// Whether the string ends with this byte.
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
            b'[' if self.items_next => self.place = Place::Between,
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
    fn items_are_found_however_the_bytes_are_cut() {
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
    fn absent_null_and_empty_items_are_no_items() {
        for list in [r#"{"kind":"L"}"#, r#"{"kind":"L","items":null}"#, r#"{"items":[],"kind":"L"}"#] {
            let (items, envelope) = cut(list, 3);
            assert!(items.is_empty());
            assert_eq!(envelope.unwrap().kind, "L");
        }
    }

    #[test]
    fn a_list_that_breaks_off_is_an_error() {
        for list in [r#"{"kind":"L","items":[{"a":1},{"b"#, r#"{"kind":"L","items":[{"a":1}]"#, ""] {
            let (_, envelope) = cut(list, 4);
            let message = envelope.unwrap_err().message;
            assert_eq!(message, "couldn't get version/kind; json parse error: unexpected end of JSON input");
        }
    }
}
