//! The response of the leader: histories, each with the UID of its HPA.
//!
//! `cchist`, 0, the version of the format, [`Head`], and then for each history its UID and its encoding as bytes, all
//! in postcard's format.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::codec::{append, take};
use crate::history::codec::{self, HistoryError};
use crate::reconcile::{Changed, Revision};

/// The start of a response: the format and its version.
const MAGIC: [u8; 8] = *b"cchist\0\x02";

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
    #[error("format of another version; run all replicas at the same version")]
    Format,
    /// The response is truncated, or a value is invalid.
    #[error("truncated or invalid: {0}")]
    Invalid(#[from] postcard::Error),
    /// Bytes follow the last history.
    #[error("has {0} trailing bytes")]
    Trailing(usize),
    /// A history cannot be decoded.
    #[error("invalid history of the HPA with UID {uid}: {source}")]
    History {
        /// The HPA.
        uid: Arc<str>,
        /// The cause.
        source: HistoryError,
    },
}

/// The start of a response, after its format.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    full: bool,
    more: bool,
    last: bool,
    /// By the leader's clock.
    #[serde(with = "jiff::fmt::serde::timestamp::nanosecond::required")]
    now: Timestamp,
    epoch: u64,
    change: u64,
    /// Number of histories.
    count: u32,
}

/// A response under construction, initially without histories.
#[derive(Debug, Default)]
pub(super) struct Writer {
    histories: Vec<u8>,
    count: u32,
    full: bool,
}

impl Writer {
    /// Returns whether the response has reached [`ENOUGH`].
    pub(super) fn is_full(&self) -> bool {
        self.histories.len() >= ENOUGH
    }

    /// Adds changes.
    pub(super) fn add(&mut self, changed: &Changed) {
        self.full |= changed.full;
        for (uid, history) in &changed.histories {
            let entry = (&**uid, &*codec::encode(history));
            self.histories = append(&entry, std::mem::take(&mut self.histories));
            self.count += 1;
        }
    }

    /// Completes the response, which brings a copy to the revision `upto`. `now`: the leader's time of day.
    pub(super) fn finish(self, now: Timestamp, upto: Revision, more: bool, last: bool) -> Vec<u8> {
        let Self { histories, count, full } = self;
        let Revision { epoch, change } = upto;
        let mut bytes = append(&Head { full, more, last, now, epoch, change, count }, MAGIC.to_vec());
        bytes.extend(histories);
        bytes
    }
}

impl Part {
    /// Decodes a response. Every history in it is validated.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, PartError> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(PartError::Format)?;
        let (head, mut rest) = take::<Head>(rest)?;
        let Head { full, more, last, now, epoch, change, count } = head;
        let mut histories = Vec::new();
        // Decode one history at a time, so that invalid histories do not fill the memory.
        for _ in 0..count {
            let (entry, after) = take::<(&str, &[u8])>(rest)?;
            rest = after;
            let (uid, encoded): (Arc<str>, _) = (entry.0.into(), entry.1);
            codec::decode(encoded).map_err(|source| PartError::History { uid: Arc::clone(&uid), source })?;
            histories.push((uid, encoded.into()));
        }
        if !rest.is_empty() {
            return Err(PartError::Trailing(rest.len()));
        }
        Ok(Self { full, more, last, now, upto: Revision { epoch, change }, histories })
    }
}

/// Decodes a response and encodes it again, for the fuzz targets. `None` if the response is invalid.
#[cfg(fuzzing)]
pub fn again(bytes: &[u8]) -> Option<Vec<u8>> {
    let part = Part::read(bytes).ok()?;
    let histories = part
        .histories
        .iter()
        .map(|(uid, bytes)| Some((Arc::clone(uid), codec::decode(bytes).ok()?)))
        .collect::<Option<_>>()?;
    let mut writer = Writer::default();
    writer.add(&Changed { full: part.full, upto: part.upto, more: part.more, histories });
    Some(writer.finish(part.now, part.upto, part.more, part.last))
}

#[cfg(test)]
mod tests {
    use autoscaling::history::{History, ScaleEvent};

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_893_456_000, 123_456_789);

    fn history(change: i32) -> History {
        History { scale_ups: vec![ScaleEvent::new(NOW, change)], ..History::default() }
    }

    fn answer() -> Vec<u8> {
        let upto = Revision { epoch: u64::MAX, change: 9 };
        let histories =
            [("one", 1), ("other", 2)].map(|(uid, change)| (Arc::from(uid), history(change).into()));
        let mut writer = Writer::default();
        writer.add(&Changed { full: true, upto, more: false, histories: histories.into() });
        writer.finish(NOW, upto, false, true)
    }

    #[test]
    fn response_round_trips() {
        let part = Part::read(&answer()).unwrap();
        assert_eq!((part.full, part.more, part.last), (true, false, true));
        assert_eq!((part.now, part.upto), (NOW, Revision { epoch: u64::MAX, change: 9 }));
        let read = part.histories.iter().map(|(uid, bytes)| (&**uid, codec::decode(bytes).unwrap()));
        assert_eq!(read.collect::<Vec<_>>(), [("one", history(1).into()), ("other", history(2).into())]);
    }

    #[test]
    fn truncated_or_extended_response_is_refused() {
        let whole = answer();
        for length in 0..whole.len() {
            assert!(Part::read(&whole[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(Part::read(&[&whole[..], &[0]].concat()), Err(PartError::Trailing(1)));
        assert_eq!(Part::read(b"<html>"), Err(PartError::Format));
        let mut next_version = whole;
        next_version[7] += 1;
        assert_eq!(Part::read(&next_version), Err(PartError::Format));
    }

    #[test]
    fn response_with_an_invalid_history_is_refused() {
        let mut bytes = answer();
        let uid = bytes.windows(3).position(|bytes| bytes == b"one").unwrap();
        // The version of the history follows its UID and its length.
        bytes[uid + "one".len() + 1] = 0xff;
        assert!(matches!(Part::read(&bytes), Err(PartError::History { uid, .. }) if &*uid == "one"));
    }
}
