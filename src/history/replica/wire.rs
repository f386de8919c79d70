//! What the leader answers: histories in the core's encoding, each with the UID of its HPA.
//!
//! Numbers have fixed lengths and their highest byte first.
//!
//! | bytes | |
//! |---|---|
//! | 8 | `cchist`, 0, the version of the format |
//! | 1 | flags: 1 the copy begins anew, 2 there is more to be asked for, 4 it is final: the leader syncs no more |
//! | 8 | the time of day as the leader has it, in nanoseconds since 1970: the two clocks may differ |
//! | 8 + 8 | the revision that the copy has with this: epoch and change |
//! | 4 | how many histories follow |
//! | 1 + n | for each: its UID |
//! | 4 + n | and its history |

use std::sync::Arc;

use autoscaling::history::{History, HistoryError};
use jiff::Timestamp;

use crate::controller::{Changed, Revision};

/// What an answer begins with: the format and its version.
const MAGIC: [u8; 8] = *b"cchist\0\x01";
const ANEW: u8 = 1;
const MORE: u8 = 2;
const FINAL: u8 = 4;

/// The content type of an answer.
pub(super) const CONTENT_TYPE: &str = "application/vnd.concertina.history";
/// How many bytes a leader puts into one answer, or a few histories more. What is left is asked for again.
pub(super) const ENOUGH: usize = 4 << 20;

/// An answer that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The copy begins anew with it.
    pub(super) anew: bool,
    /// There is more to be asked for.
    pub(super) more: bool,
    /// The leader syncs no more.
    pub(super) last: bool,
    /// What time the leader had when it answered.
    pub(super) now: Timestamp,
    /// How far the copy goes with it.
    pub(super) upto: Revision,
    /// Encoded histories, which can be read, by UID.
    pub(super) histories: Vec<(Arc<str>, Box<[u8]>)>,
}

/// An answer is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PartError {
    /// Something else answered, or another version.
    #[error("it is not in the format of this version; run replicas of one version")]
    Format,
    /// It is too short, or too long.
    #[error("it is cut off or goes on after its end")]
    Length,
    /// A history cannot be read.
    #[error("the history of the HPA with UID {uid}: {source}")]
    History {
        /// The HPA.
        uid: Arc<str>,
        /// What is wrong.
        source: HistoryError,
    },
}

/// An answer that is being written.
#[derive(Debug)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    count: u32,
    anew: bool,
}

/// Where the flags are, and the numbers behind them.
const FLAGS: usize = MAGIC.len();
const HEAD: usize = FLAGS + 1 + 8 + 8 + 8 + 4;

impl Writer {
    /// An answer without histories.
    pub(super) fn new() -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.resize(HEAD, 0);
        Self { bytes, count: 0, anew: false }
    }

    /// Whether it has enough.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= ENOUGH
    }

    /// Adds what has changed.
    pub(super) fn add(&mut self, changed: &Changed) {
        self.anew |= changed.anew;
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

    /// The whole, which brings a copy to this revision. `now`: when it is answered.
    pub(super) fn finish(mut self, now: Timestamp, upto: Revision, more: bool, last: bool) -> Vec<u8> {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = [flag(self.anew, ANEW) | flag(more, MORE) | flag(last, FINAL)];
        let (epoch, change, count) =
            (upto.epoch.to_be_bytes(), upto.change.to_be_bytes(), self.count.to_be_bytes());
        // Until the year 2262.
        let now = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX).to_be_bytes();
        let head = flags.iter().chain(&now).chain(&epoch).chain(&change).chain(&count);
        for (place, byte) in self.bytes.iter_mut().skip(FLAGS).zip(head) {
            *place = *byte;
        }
        self.bytes
    }
}

impl Part {
    /// Reads an answer. Every history in it is looked into.
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
        Ok(Self { anew: is(ANEW), more: is(MORE), last: is(FINAL), now, upto, histories })
    }
}

/// An answer that is read and written again, for the fuzz targets.
#[cfg(fuzzing)]
pub fn again(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let part = Part::read(bytes).map_err(|error| error.to_string())?;
    let histories = part.histories.iter().map(|(uid, bytes)| {
        let history = History::decode(bytes).map_err(|error| error.to_string())?;
        Ok((Arc::clone(uid), Arc::new(history)))
    });
    let histories = histories.collect::<Result<_, String>>()?;
    let mut writer = Writer::new();
    writer.add(&Changed { anew: part.anew, upto: part.upto, more: part.more, histories });
    Ok(writer.finish(part.now, part.upto, part.more, part.last))
}

/// What is left to be read.
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
        writer.add(&Changed { anew: true, upto, more: false, histories: histories.into() });
        writer.finish(NOW, upto, false, true)
    }

    #[test]
    fn an_answer_is_read_as_it_is_written() {
        let part = Part::read(&answer()).unwrap();
        assert_eq!((part.anew, part.more, part.last), (true, false, true));
        assert_eq!((part.now, part.upto), (NOW, Revision { epoch: u64::MAX, change: 9 }));
        let read = part.histories.iter().map(|(uid, bytes)| (&**uid, History::decode(bytes).unwrap()));
        assert_eq!(read.collect::<Vec<_>>(), [("one", history(1)), ("other", history(2))]);
    }

    #[test]
    fn nothing_that_is_cut_off_or_goes_on_is_taken_for_an_answer() {
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
    fn a_history_that_cannot_be_read_spoils_the_answer() {
        let mut bytes = answer();
        let at = HEAD + 1 + "one".len() + 4;
        bytes[at] = 0xff;
        assert!(matches!(Part::read(&bytes), Err(PartError::History { uid, .. }) if &*uid == "one"));
    }
}
