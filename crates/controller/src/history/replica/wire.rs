//! The response of the leader: histories in the core's encoding, each with the UID of its HPA.
//!
//! Numbers have fixed lengths, big-endian.
//!
//! | bytes | |
//! |---|---|
//! | 8 | `cchist`, 0, the version of the format |
//! | 1 | flags: 1 a full copy starts, 2 more changes follow, 4 final: the leader starts no more syncs |
//! | 8 | the leader's time of day, in nanoseconds since 1970, because the two clocks may differ |
//! | 8 + 8 | the revision of the copy after this response: epoch and change |
//! | 4 | number of histories |
//! | 1 + n | for each: its UID |
//! | 4 + n | and its encoded history |

use std::sync::Arc;

use autoscaling::history::{History, HistoryError};
use jiff::Timestamp;

use crate::reconcile::{Changed, Revision};

/// The start of a response: the format and its version.
const MAGIC: [u8; 8] = *b"cchist\0\x01";
const FULL: u8 = 1;
const MORE: u8 = 2;
const FINAL: u8 = 4;

/// The content type of a response.
pub(super) const CONTENT_TYPE: &str = "application/vnd.concertina.history";
/// Size in bytes after which the leader ends a response. The next request continues.
pub(super) const ENOUGH: usize = 4 << 20;

/// A decoded response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Whether a full copy starts with this response.
    pub(super) full: bool,
    /// Whether more changes follow.
    pub(super) more: bool,
    /// Whether the leader starts no more syncs.
    pub(super) last: bool,
    /// The leader's time of day at the response.
    pub(super) now: Timestamp,
    /// The revision of the copy after this response.
    pub(super) upto: Revision,
    /// Encoded histories by UID. All of them can be decoded.
    pub(super) histories: Vec<(Arc<str>, Box<[u8]>)>,
}

/// The reason why bytes are not a valid response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PartError {
    /// The bytes have another format or another version.
    #[error("not in the format of this version; run replicas of one version")]
    Format,
    /// The response is too short or too long.
    #[error("truncated, or longer than its content")]
    Length,
    /// A history cannot be decoded.
    #[error("invalid history of the HPA with UID {uid}: {source}")]
    History {
        /// The HPA.
        uid: Arc<str>,
        /// The cause.
        source: HistoryError,
    },
}

/// A response under construction.
#[derive(Debug)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    count: u32,
    full: bool,
}

/// Offset of the flags.
const FLAGS: usize = MAGIC.len();
const HEAD: usize = FLAGS + 1 + 8 + 8 + 8 + 4;

impl Writer {
    /// Creates a response without histories.
    pub(super) fn new() -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.resize(HEAD, 0);
        Self { bytes, count: 0, full: false }
    }

    /// Whether the response has reached its maximum size.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= ENOUGH
    }

    /// Adds changes.
    pub(super) fn add(&mut self, changed: &Changed) {
        self.full |= changed.full;
        for (uid, history) in &changed.histories {
            let encoded = history.encode();
            let lengths = (u8::try_from(uid.len()), u32::try_from(encoded.len()));
            // A UID has 36 bytes, and a history is bounded.
            let (Ok(name), Ok(length)) = lengths else { continue };
            self.bytes.push(name);
            self.bytes.extend_from_slice(uid.as_bytes());
            self.bytes.extend_from_slice(&length.to_be_bytes());
            self.bytes.extend_from_slice(&encoded);
            self.count += 1;
        }
    }

    /// Completes the response, which brings a copy to the revision `upto`. `now`: the leader's time of day.
    pub(super) fn finish(mut self, now: Timestamp, upto: Revision, more: bool, last: bool) -> Vec<u8> {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = [flag(self.full, FULL) | flag(more, MORE) | flag(last, FINAL)];
        let (epoch, change, count) =
            (upto.epoch.to_be_bytes(), upto.change.to_be_bytes(), self.count.to_be_bytes());
        // The value fits until the year 2262.
        let now = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX).to_be_bytes();
        let head = flags.iter().chain(&now).chain(&epoch).chain(&change).chain(&count);
        for (slot, byte) in self.bytes.iter_mut().skip(FLAGS).zip(head) {
            *slot = *byte;
        }
        self.bytes
    }
}

impl Part {
    /// Decodes a response. Every history in it is validated.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, PartError> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(PartError::Format)?;
        let mut rest = Reader(rest);
        let [flags] = rest.array()?;
        let now = i64::from_be_bytes(rest.array()?);
        let now = Timestamp::from_nanosecond(now.into()).map_err(|_| PartError::Format)?;
        let (epoch, change) = (u64::from_be_bytes(rest.array()?), u64::from_be_bytes(rest.array()?));
        let count = u32::from_be_bytes(rest.array()?);
        let mut histories = Vec::new();
        for _ in 0..count {
            let [length] = rest.array()?;
            let uid = std::str::from_utf8(rest.slice(length.into())?).map_err(|_| PartError::Format)?;
            let uid: Arc<str> = uid.into();
            let length = u32::from_be_bytes(rest.array()?);
            let encoded = rest.slice(usize::try_from(length).map_err(|_| PartError::Length)?)?;
            History::decode(encoded)
                .map_err(|source| PartError::History { uid: Arc::clone(&uid), source })?;
            histories.push((uid, encoded.into()));
        }
        if !rest.0.is_empty() {
            return Err(PartError::Length);
        }
        let is = |flag| flags & flag != 0;
        let upto = Revision { epoch, change };
        Ok(Self { full: is(FULL), more: is(MORE), last: is(FINAL), now, upto, histories })
    }
}

/// Decodes a response and encodes it again, for the fuzz targets.
#[cfg(fuzzing)]
pub fn again(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let part = Part::read(bytes).map_err(|error| error.to_string())?;
    let histories = part.histories.iter().map(|(uid, bytes)| {
        let history = History::decode(bytes).map_err(|error| error.to_string())?;
        Ok((Arc::clone(uid), Arc::new(history)))
    });
    let histories = histories.collect::<Result<_, String>>()?;
    let mut writer = Writer::new();
    writer.add(&Changed { full: part.full, upto: part.upto, more: part.more, histories });
    Ok(writer.finish(part.now, part.upto, part.more, part.last))
}

/// The remaining bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], PartError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(PartError::Length)?;
        self.0 = rest;
        Ok(*array)
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], PartError> {
        let (slice, rest) = self.0.split_at_checked(length).ok_or(PartError::Length)?;
        self.0 = rest;
        Ok(slice)
    }
}

#[cfg(test)]
mod tests {
    use autoscaling::history::ScaleEvent;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_893_456_000, 123_456_789);

    fn history(change: i32) -> History {
        History { scale_ups: vec![ScaleEvent::new(NOW, change)], ..History::default() }
    }

    fn answer() -> Vec<u8> {
        let upto = Revision { epoch: u64::MAX, change: 9 };
        let histories =
            [("one", 1), ("other", 2)].map(|(uid, change)| (Arc::from(uid), Arc::new(history(change))));
        let mut writer = Writer::new();
        writer.add(&Changed { full: true, upto, more: false, histories: histories.into() });
        writer.finish(NOW, upto, false, true)
    }

    #[test]
    fn response_round_trips() {
        let part = Part::read(&answer()).unwrap();
        assert_eq!((part.full, part.more, part.last), (true, false, true));
        assert_eq!((part.now, part.upto), (NOW, Revision { epoch: u64::MAX, change: 9 }));
        let read = part.histories.iter().map(|(uid, bytes)| (&**uid, History::decode(bytes).unwrap()));
        assert_eq!(read.collect::<Vec<_>>(), [("one", history(1)), ("other", history(2))]);
    }

    #[test]
    fn truncated_or_extended_response_is_refused() {
        let whole = answer();
        for length in 0..whole.len() {
            assert!(Part::read(&whole[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(Part::read(&[&whole[..], &[0]].concat()), Err(PartError::Length));
        assert_eq!(Part::read(b"<html>"), Err(PartError::Format));
        let mut next_version = whole;
        next_version[7] += 1;
        assert_eq!(Part::read(&next_version), Err(PartError::Format));
    }

    #[test]
    fn response_with_an_invalid_history_is_refused() {
        let mut bytes = answer();
        let at = HEAD + 1 + "one".len() + 4;
        bytes[at] = 0xff;
        assert!(matches!(Part::read(&bytes), Err(PartError::History { uid, .. }) if &*uid == "one"));
    }
}
