//! A minimal protobuf editor, which changes a few fields of an object from the API server.
//!
//! In the wire format, a key with a number and a wire type precedes each field. The field is a varint, bytes with their
//! length, or 4 or 8 bytes. Kubernetes puts a magic number of four bytes before the envelope `runtime.Unknown`. The
//! second field of the envelope contains the object.

use crate::Failure;

pub(super) const MEDIA: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: [u8; 4] = *b"k8s\0";
/// The field number of the object in `runtime.Unknown`.
const RAW: u64 = 2;
/// Field numbers of an HPA of autoscaling/v2 and of its metadata.
pub(super) const METADATA: u64 = 1;
pub(super) const SPEC: u64 = 2;
pub(super) const MANAGED_FIELDS: u64 = 17;
/// The path of `status.currentMetrics.resource.current.averageUtilization`, as field numbers.
pub(super) const UTILIZATION: [u64; 5] = [3, 5, 4, 2, 3];

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// Returns the encoded object within the envelope.
pub(super) fn object(body: &[u8]) -> Result<&[u8], Failure> {
    let mut rest = body.strip_prefix(&MAGIC).ok_or("the response is not Kubernetes protobuf")?;
    while !rest.is_empty() {
        let field = Field::first(&mut rest).ok_or("the envelope is malformed")?;
        if field.number == RAW {
            return Ok(field.content);
        }
    }
    Err("the envelope is empty".into())
}

/// Returns a copy of the envelope with another object.
pub(super) fn envelope(original: &[u8], object: &[u8]) -> Result<Vec<u8>, Failure> {
    let rest = original.strip_prefix(&MAGIC).ok_or("the response is not Kubernetes protobuf")?;
    let mut body = MAGIC.to_vec();
    body.extend(edit(rest, &[RAW], &Edit::Bytes(object)).ok_or("the envelope is malformed")?);
    Ok(body)
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Edit<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Removes the field.
    Absent,
}

/// Returns a copy of the message with all fields at a path changed. Returns `None` if the message is not protobuf.
pub(super) fn edit(message: &[u8], path: &[u64], change: &Edit<'_>) -> Option<Vec<u8>> {
    let (mut rest, mut out) = (message, Vec::with_capacity(message.len() + 8));
    while !rest.is_empty() {
        let field = Field::first(&mut rest)?;
        match path {
            [number, deeper @ ..] if *number == field.number => {
                let inner;
                let change = match deeper {
                    [] => *change,
                    deeper => {
                        inner = edit(field.content, deeper, change)?;
                        Edit::Bytes(&inner)
                    }
                };
                write(&mut out, field.number, change);
            }
            _ => out.extend_from_slice(field.whole),
        }
    }
    Some(out)
}

/// A field of a message.
struct Field<'a> {
    number: u64,
    /// All bytes of the field, with its key.
    whole: &'a [u8],
    /// The bytes after the key and the length. Empty for a varint.
    content: &'a [u8],
}

impl<'a> Field<'a> {
    /// Splits off the first field of a message.
    fn first(rest: &mut &'a [u8]) -> Option<Self> {
        let start = *rest;
        let key = varint(rest)?;
        let length = match key & 7 {
            VARINT => {
                varint(rest)?;
                0
            }
            FIXED64 => 8,
            FIXED32 => 4,
            BYTES => usize::try_from(varint(rest)?).ok()?,
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(length)?;
        *rest = after;
        let whole = start.get(..start.len() - after.len())?;
        Some(Self { number: key >> 3, whole, content })
    }
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn write(out: &mut Vec<u8>, number: u64, change: Edit<'_>) {
    match change {
        Edit::Varint(value) => {
            write_varint(out, number << 3 | VARINT);
            write_varint(out, value);
        }
        Edit::Bytes(bytes) => {
            write_varint(out, number << 3 | BYTES);
            write_varint(out, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            out.extend_from_slice(bytes);
        }
        Edit::Absent => {}
    }
}

fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.extend((value & 0x7f | 0x80).to_le_bytes().first());
        value >>= 7;
    }
    out.extend(value.to_le_bytes().first());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_nested_field_changes() {
        // The fields are 1: "name", 3: { 5: { 3: 150 } } and 9: four bytes.
        let object_ =
            [b"\x0a\x04name\x1a\x05\x2a\x03\x18\x96\x01".as_slice(), b"\x4d\x01\x02\x03\x04"].concat();
        let changed = [b"\x0a\x04name\x1a\x04\x2a\x02\x18\x07".as_slice(), b"\x4d\x01\x02\x03\x04"].concat();
        assert_eq!(edit(&object_, &[3, 5, 3], &Edit::Varint(7)), Some(changed));
        assert_eq!(edit(&object_, &[3], &Edit::Absent).unwrap(), b"\x0a\x04name\x4d\x01\x02\x03\x04");
        let enveloped = [MAGIC.as_slice(), b"\x0a\x02v2\x12\x01x\x1a\x00"].concat();
        let other = envelope(&enveloped, &object_).unwrap();
        assert_eq!(object(&enveloped).unwrap(), b"x");
        assert_eq!(object(&other).unwrap(), object_);
        assert_eq!(edit(b"\x0a\x09name", &[1], &Edit::Absent), None);
    }
}
