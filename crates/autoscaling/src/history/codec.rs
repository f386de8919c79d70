//! Encodes a history as bytes: compact, exact to the nanosecond, and validated when it is decoded.
//!
//! The format has a version, flags, the entries in the order of their slots, and the uncertain rescales.
//! Numbers are base-128 with the lowest seven bits first. Signed numbers are zigzag-encoded, so that small
//! numbers of either sign are short. Syncs are a period apart, so each time is encoded as the change of its
//! distance to the previous time (delta of deltas). Counts rarely change, so they are encoded as differences.

use jiff::Timestamp;

use super::{History, PendingWrite, RECOMMENDATIONS, Recommendation, SCALE_EVENTS, ScaleEvent};

/// The format version that this build writes and reads.
const VERSION: u8 = 1;

const UNKNOWN_UP: u8 = 1;
const UNKNOWN_DOWN: u8 = 1 << 1;
const UNSETTLED: u8 = 1 << 2;
const INHERITED: u8 = 1 << 3;
const FLAGS: u8 = UNKNOWN_UP | UNKNOWN_DOWN | UNSETTLED | INHERITED;

/// The reason why bytes are not a valid history. The caller can ignore the bytes and rebuild the history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The format has another version.
    #[error("history has format version {0}, but this build reads version {VERSION}")]
    Version(u8),
    /// The bytes set flags that this version does not define.
    #[error("history has unknown flags {0:#010b}")]
    Flags(u8),
    /// The bytes end too early.
    #[error("history is truncated after {0} bytes")]
    Truncated(usize),
    /// Bytes follow the end of the history.
    #[error("history has {0} trailing bytes")]
    Trailing(usize),
    /// The history has more entries than the bounds allow.
    #[error("history has {count} {what}, but at most {most} are allowed")]
    TooMany {
        /// The kind of entries.
        what: &'static str,
        /// The number of entries.
        count: u128,
        /// The maximum number of entries.
        most: usize,
    },
    /// A number is out of range.
    #[error("history has a {0} out of range")]
    Range(&'static str),
}

impl History {
    /// Encodes the history.
    pub fn encode(&self) -> Vec<u8> {
        let mut flags = 0;
        let mut flag = |set, bit| flags |= if set { bit } else { 0 };
        flag(self.unknown_up.is_some(), UNKNOWN_UP);
        flag(self.unknown_down.is_some(), UNKNOWN_DOWN);
        flag(self.unsettled.is_some(), UNSETTLED);
        flag(self.inherited.is_some(), INHERITED);
        let mut to = Writer { bytes: vec![VERSION, flags], times: Times::default() };
        to.length(self.recommendations.len());
        let mut before = 0;
        for recommendation in &self.recommendations {
            to.time(recommendation.at);
            to.signed(i128::from(recommendation.replicas) - before);
            before = recommendation.replicas.into();
        }
        for events in [&self.scale_ups, &self.scale_downs] {
            to.length(events.len());
            for event in events {
                to.time(event.at);
                let change = u128::from(event.change.unsigned_abs()) << 1;
                to.number(change | u128::from(event.earliest.is_some()));
                if let Some(earliest) = event.earliest {
                    to.number(nanos(event.at).abs_diff(nanos(earliest)));
                }
            }
        }
        for unknown in [self.unknown_up, self.unknown_down].into_iter().flatten() {
            to.time(unknown);
        }
        if let Some(PendingWrite { at, from, to: written }) = self.unsettled {
            to.time(at);
            to.signed(from.into());
            to.signed(written.into());
        }
        if let Some(inherited) = self.inherited {
            to.time(inherited);
        }
        to.bytes
    }

    /// Decodes a history.
    ///
    /// # Errors
    /// Fails if the bytes are not an output of [`History::encode`], or if they exceed the bounds of a
    /// history.
    pub fn decode(bytes: &[u8]) -> Result<Self, HistoryError> {
        let mut from = Reader { bytes, at: 0, times: Times::default() };
        let version = from.byte()?;
        if version != VERSION {
            return Err(HistoryError::Version(version));
        }
        let flags = from.byte()?;
        if flags & !FLAGS != 0 {
            return Err(HistoryError::Flags(flags));
        }
        let mut history = Self::default();
        let mut before = 0;
        for _ in 0..from.length("recommendations", RECOMMENDATIONS)? {
            let at = from.time()?;
            before = from.signed()?.saturating_add(before);
            history.recommendations.push(Recommendation { at, replicas: count(before)? });
        }
        for events in [&mut history.scale_ups, &mut history.scale_downs] {
            for _ in 0..from.length("scale events", SCALE_EVENTS)? {
                events.push(from.scale_event()?);
            }
        }
        for (unknown, flag) in
            [(&mut history.unknown_up, UNKNOWN_UP), (&mut history.unknown_down, UNKNOWN_DOWN)]
        {
            if flags & flag != 0 {
                *unknown = Some(from.time()?);
            }
        }
        if flags & UNSETTLED != 0 {
            let at = from.time()?;
            let (before, to) = (count(from.signed()?)?, count(from.signed()?)?);
            history.unsettled = Some(PendingWrite { at, from: before, to });
        }
        if flags & INHERITED != 0 {
            history.inherited = Some(from.time()?);
        }
        match bytes.len() - from.at {
            0 => Ok(history),
            more => Err(HistoryError::Trailing(more)),
        }
    }
}

/// Delta-of-delta state for times, which have about equal distances.
#[derive(Debug, Default)]
struct Times {
    last: i128,
    distance: i128,
}

impl Times {
    /// Returns the change of the distance for `time`, the next time.
    fn change_of_distance(&mut self, time: i128) -> i128 {
        let distance = time - self.last;
        let change_of_distance = distance - self.distance;
        *self = Self { last: time, distance };
        change_of_distance
    }

    /// Returns the next time, for a change of the distance.
    fn follow(&mut self, change_of_distance: i128) -> Option<Timestamp> {
        self.distance = self.distance.checked_add(change_of_distance)?;
        self.last = self.last.checked_add(self.distance)?;
        Timestamp::from_nanosecond(self.last).ok()
    }
}

struct Writer {
    bytes: Vec<u8>,
    times: Times,
}

impl Writer {
    fn number(&mut self, mut number: u128) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                self.bytes.push(low & 0x7f);
                return;
            }
            self.bytes.push(low | 0x80);
        }
    }

    fn signed(&mut self, number: i128) {
        self.number(((number << 1) ^ (number >> 127)).cast_unsigned());
    }

    fn length(&mut self, length: usize) {
        self.number(u128::try_from(length).unwrap_or(u128::MAX));
    }

    fn time(&mut self, time: Timestamp) {
        let change_of_distance = self.times.change_of_distance(nanos(time));
        self.signed(change_of_distance);
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    times: Times,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, HistoryError> {
        let byte = *self.bytes.get(self.at).ok_or(HistoryError::Truncated(self.bytes.len()))?;
        self.at += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u128, HistoryError> {
        let mut number = 0;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            let bits = u128::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(HistoryError::Range("number"))
    }

    fn signed(&mut self) -> Result<i128, HistoryError> {
        let number = self.number()?;
        let half = (number >> 1).cast_signed();
        Ok(if number & 1 == 0 { half } else { !half })
    }

    fn length(&mut self, what: &'static str, most: usize) -> Result<usize, HistoryError> {
        let count = self.number()?;
        let length = usize::try_from(count).ok().filter(|length| *length <= most);
        length.ok_or(HistoryError::TooMany { what, count, most })
    }

    fn time(&mut self) -> Result<Timestamp, HistoryError> {
        let change_of_distance = self.signed()?;
        self.times.follow(change_of_distance).ok_or(HistoryError::Range("time"))
    }

    fn scale_event(&mut self) -> Result<ScaleEvent, HistoryError> {
        let at = self.time()?;
        let number = self.number()?;
        let change = i32::try_from(number >> 1).map_err(|_| HistoryError::Range("change"))?;
        let mut earliest = None;
        if number & 1 != 0 {
            let before = i128::try_from(self.number()?).ok();
            let time = before.and_then(|before| nanos(at).checked_sub(before));
            let time = time.and_then(|time| Timestamp::from_nanosecond(time).ok());
            earliest = Some(time.ok_or(HistoryError::Range("time"))?);
        }
        Ok(ScaleEvent { at, change, earliest })
    }
}

fn nanos(time: Timestamp) -> i128 {
    time.as_nanosecond()
}

fn count(number: i128) -> Result<i32, HistoryError> {
    i32::try_from(number).map_err(|_| HistoryError::Range("count"))
}
