//! A compact encoding of explanations, with variable-length numbers and without field names. The part that
//! changes only with the spec is encoded separately, because many decisions share one copy of it.
//!
//! The encoding never leaves the process, so it has no versions. No field or variant can be missing:
//! [`fields!`] and [`variants!`] compile only if they name all of them.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// Maximum bytes of a text. Longer texts are cut, because foreign messages must not fill the memory.
const MAX_TEXT: usize = 1024;

/// Endings of the texts in most records, each encoded as one byte. The first entry is the empty ending. The
/// second marks a cut text.
const ENDINGS: [&str; 12] = [
    "",
    "…",
    " resource utilization (percentage of request)",
    "Resource",
    "External",
    "Object",
    "Pods",
    "cpu",
    "memory",
    "SuccessfulRescale",
    "FailedGetResourceMetric",
    "FailedComputeMetricsReplicas",
];

/// Encodes values.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The part that changes only with the spec.
    pub(super) frame: Vec<u8>,
    /// The rest.
    pub(super) body: Vec<u8>,
    /// The instant from which times are written as distances.
    at: Timestamp,
    to_frame: bool,
}

/// Decodes values in the order in which they were written.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    frame: &'a [u8],
    body: &'a [u8],
    at: Timestamp,
    from_frame: bool,
}

/// A type with a compact encoding.
pub(super) trait Code: Sized {
    /// Writes the value.
    fn put(&self, to: &mut Writer);

    /// Reads a value. `None` if the bytes do not encode one.
    fn take(from: &mut Reader<'_>) -> Option<Self>;
}

impl Writer {
    /// Clears both parts.
    pub(super) fn clear(&mut self) {
        self.frame.clear();
        self.body.clear();
        self.at = Timestamp::default();
        self.to_frame = false;
    }

    /// Writes a time that later times are close to.
    pub(super) fn base(&mut self, at: Timestamp) {
        at.put(self);
        self.at = at;
    }

    /// Writes to the frame for the duration of `write`.
    pub(super) fn frame(&mut self, write: impl FnOnce(&mut Self)) {
        self.part(true, write);
    }

    /// Writes to the body for the duration of `write`.
    pub(super) fn body(&mut self, write: impl FnOnce(&mut Self)) {
        self.part(false, write);
    }

    fn part(&mut self, frame: bool, write: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.to_frame, frame);
        write(self);
        self.to_frame = before;
    }

    /// Writes bytes unchanged.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        if self.to_frame { &mut self.frame } else { &mut self.body }.extend_from_slice(bytes);
    }

    /// Writes a number in groups of seven bits, lowest first.
    fn unsigned(&mut self, mut number: u128) {
        let mut bytes = [0; 19];
        let mut used = 0;
        for byte in &mut bytes {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            used += 1;
            *byte = low & 0x7f;
            if number == 0 {
                break;
            }
            *byte |= 0x80;
        }
        self.bytes(bytes.get(..used).unwrap_or_default());
    }

    /// Writes a signed number. Small numbers of either sign are short.
    fn signed(&mut self, number: i128) {
        self.unsigned(((number << 1) ^ (number >> 127)).cast_unsigned());
    }

    /// Writes at most the first [`MAX_TEXT`] bytes of a text.
    pub(super) fn text(&mut self, text: &str) {
        let cut = text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or(text);
        let (stem, ending) = if cut.len() < text.len() {
            (cut, 1)
        } else {
            let mut usual = ENDINGS.iter().enumerate().skip(2);
            usual.find_map(|(code, ending)| Some((text.strip_suffix(ending)?, code))).unwrap_or((text, 0))
        };
        ending.put(self);
        stem.len().put(self);
        self.bytes(stem.as_bytes());
    }
}

impl<'a> Reader<'a> {
    /// Reads the parts of a [`Writer`].
    pub(super) fn new(frame: &'a [u8], body: &'a [u8]) -> Self {
        Self { frame, body, at: Timestamp::default(), from_frame: false }
    }

    /// Reads the time that [`Writer::base`] wrote.
    pub(super) fn base(&mut self) -> Option<Timestamp> {
        self.at = Code::take(self)?;
        Some(self.at)
    }

    /// Reads from the frame for the duration of `read`.
    pub(super) fn frame<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        self.part(true, read)
    }

    /// Reads from the body for the duration of `read`.
    pub(super) fn body<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        self.part(false, read)
    }

    fn part<T>(&mut self, frame: bool, read: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.from_frame, frame);
        let value = read(self);
        self.from_frame = before;
        value
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let part = if self.from_frame { &mut self.frame } else { &mut self.body };
        let (bytes, rest) = part.split_at_checked(count)?;
        *part = rest;
        Some(bytes)
    }

    /// Reads one byte.
    pub(super) fn byte(&mut self) -> Option<u8> {
        self.bytes(1)?.first().copied()
    }

    fn unsigned(&mut self) -> Option<u128> {
        let mut number = 0;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            number |= u128::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i128> {
        let number = self.unsigned()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

macro_rules! integers {
    ($($type:ident as $write:ident into $wide:ident),*) => {
        $(impl Code for $type {
            fn put(&self, to: &mut Writer) {
                // The conversion always succeeds, because the target is the widest integer.
                to.$write($wide::try_from(*self).unwrap_or_default());
            }

            fn take(from: &mut Reader<'_>) -> Option<Self> {
                Self::try_from(from.$write()?).ok()
            }
        })*
    };
}

integers!(u32 as unsigned into u128, usize as unsigned into u128, i32 as signed into i128, i64 as signed into i128);

impl Code for f64 {
    fn put(&self, to: &mut Writer) {
        to.bytes(&self.to_le_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self::from_le_bytes(from.bytes(8)?.try_into().ok()?))
    }
}

impl Code for bool {
    fn put(&self, to: &mut Writer) {
        to.bytes(&[u8::from(*self)]);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        match from.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Code for Arc<str> {
    fn put(&self, to: &mut Writer) {
        to.text(self);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let ending = ENDINGS.get(usize::take(from)?)?;
        let length = usize::take(from)?;
        let stem = std::str::from_utf8(from.bytes(length)?).ok()?;
        Some([stem, ending].concat().into())
    }
}

/// Encoded as a distance in nanoseconds.
impl Code for Timestamp {
    fn put(&self, to: &mut Writer) {
        to.signed(to.at.as_nanosecond() - self.as_nanosecond());
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let distance = SignedDuration::try_from_nanos_i128(from.signed()?)?;
        from.at.checked_sub(distance).ok()
    }
}

impl<T: Code> Code for Option<T> {
    fn put(&self, to: &mut Writer) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        if bool::take(from)? { T::take(from).map(Some) } else { Some(None) }
    }
}

impl<T: Code> Code for Vec<T> {
    fn put(&self, to: &mut Writer) {
        self.len().put(to);
        for value in self {
            value.put(to);
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let count = usize::take(from)?;
        (0..count).map(|_| T::take(from)).collect()
    }
}

/// Encodes a struct field by field, each field in the named part.
macro_rules! fields {
    ($type:ty: $($part:ident $field:ident),* $(,)?) => {
        impl $crate::record::code::Code for $type {
            fn put(&self, to: &mut $crate::record::code::Writer) {
                let Self { $($field),* } = self;
                $(to.$part(|to| $crate::record::code::Code::put($field, to));)*
            }

            fn take(from: &mut $crate::record::code::Reader<'_>) -> Option<Self> {
                $(let $field = from.$part($crate::record::code::Code::take)?;)*
                Some(Self { $($field),* })
            }
        }
    };
}

/// Encodes an enum without data as one byte.
macro_rules! variants {
    ($type:ty: $($variant:ident = $code:literal),* $(,)?) => {
        impl $crate::record::code::Code for $type {
            fn put(&self, to: &mut $crate::record::code::Writer) {
                to.bytes(&[match self { $(Self::$variant => $code),* }]);
            }

            fn take(from: &mut $crate::record::code::Reader<'_>) -> Option<Self> {
                Some(match from.byte()? { $($code => Self::$variant,)* _ => return None })
            }
        }
    };
}

pub(super) use {fields, variants};

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Code>(value: &T, at: Timestamp) -> Option<T> {
        let mut writer = Writer::default();
        writer.clear();
        writer.base(at);
        value.put(&mut writer);
        assert!(writer.frame.is_empty());
        let mut reader = Reader::new(&[], &writer.body);
        assert_eq!(reader.base(), Some(at));
        T::take(&mut reader)
    }

    #[test]
    fn extreme_values_round_trip() {
        let now = "2030-01-01T00:00:00.123456789Z".parse().unwrap();
        for number in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN] {
            assert_eq!(round_trip(&number, now), Some(number));
        }
        for number in [i32::MAX, i32::MIN] {
            assert_eq!(round_trip(&number, now), Some(number));
        }
        for at in [Timestamp::MIN, Timestamp::MAX, now, Timestamp::UNIX_EPOCH] {
            for from in [Timestamp::MIN, Timestamp::MAX, now] {
                assert_eq!(round_trip(&at, from), Some(at));
            }
        }
        for number in [0.0, -0.0, 0.1, f64::MAX, f64::INFINITY] {
            assert_eq!(round_trip(&number, now), Some(number));
        }
        assert!(round_trip(&f64::NAN, now).unwrap().is_nan());
        assert_eq!(round_trip(&vec![Some(true), None], now), Some(vec![Some(true), None]));
    }

    #[test]
    fn long_text_is_cut_between_two_characters() {
        let text: Arc<str> = format!("x{}", "ü".repeat(1000)).into();
        let cut = round_trip(&text, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(cut.strip_suffix('…').unwrap(), &text[..1023]);
        let text: Arc<str> = "x".repeat(1024).into();
        assert_eq!(round_trip(&text, Timestamp::UNIX_EPOCH), Some(text));
    }

    #[test]
    fn usual_texts_are_short() {
        for text in
            ["Resource", "ContainerResource", "cpu", "cpu resource utilization (percentage of request)", ""]
        {
            let mut writer = Writer::default();
            writer.clear();
            writer.text(text);
            assert!(writer.body.len() <= 11, "{text}: {}", writer.body.len());
            assert_eq!(<Arc<str>>::take(&mut Reader::new(&[], &writer.body)).as_deref(), Some(text));
        }
    }

    #[test]
    fn small_numbers_take_one_byte() {
        let mut writer = Writer::default();
        for number in [-64, -1, 0, 63] {
            writer.clear();
            number.put(&mut writer);
            assert_eq!(writer.body.len(), 1);
        }
    }

    #[test]
    fn invalid_bytes_are_refused() {
        let all = [0xff; 30];
        let mut reader = Reader::new(&all, &all[..3]);
        assert_eq!(i64::take(&mut reader), None);
        assert_eq!(reader.frame(i64::take), None);
        assert_eq!(reader.frame(bool::take), None);
        let mut long = Reader::new(&[], &[0, 0x7f, b'x']);
        assert_eq!(<Arc<str>>::take(&mut long), None);
    }
}
