//! Encodes a history as bytes: compact, exact to the nanosecond, and validated when it is decoded.
//!
//! The encoding is a version byte and `StoredHistory`. Syncs are a period apart, so each time is stored as
//! the change of its distance to the previous time (delta of deltas).

use autoscaling::history::{
    History, PendingWrite, RECOMMENDATIONS, Recommendation, SCALE_EVENTS, ScaleEvent,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::codec;

/// The format version that this build writes and reads.
const VERSION: u8 = 2;
/// Maximum bytes of an encoded history. A history with all allowed entries has at most 35 KB.
const MAX_BYTES: usize = 64 << 10;

/// The reason why bytes are not a valid history. The caller can ignore the bytes and rebuild the history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The bytes exceed the size of any history.
    #[error("history has {0} bytes, but at most {MAX_BYTES} are allowed")]
    TooLarge(usize),
    /// The format has another version.
    #[error("history has format version {0}, but this build reads version {VERSION}")]
    Version(u8),
    /// The bytes end too early, or a value is invalid.
    #[error("history is truncated or invalid: {0}")]
    Invalid(postcard::Error),
    /// Bytes follow the end of the history.
    #[error("history has {0} trailing bytes")]
    Trailing(usize),
    /// The history has more entries than the bounds allow.
    #[error("history has {count} {what}, but at most {most} are allowed")]
    TooMany {
        /// The kind of entries.
        what: &'static str,
        /// The number of entries.
        count: usize,
        /// The maximum number of entries.
        most: usize,
    },
    /// A number is out of range.
    #[error("history has a {0} out of range")]
    Range(&'static str),
}

/// A history as it is encoded. Each `i128` is a time in the form of [`Times`].
#[derive(Debug, Serialize, Deserialize)]
struct StoredHistory {
    recommendations: Vec<(i128, i32)>,
    scale_ups: Vec<StoredEvent>,
    scale_downs: Vec<StoredEvent>,
    unknown_up: Option<i128>,
    unknown_down: Option<i128>,
    unsettled: Option<(i128, i32, i32)>,
    inherited: Option<i128>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredEvent {
    at: i128,
    change: i32,
    /// Distance of the earliest possible time to `at`, in nanoseconds.
    uncertain: Option<u128>,
}

/// Encodes a history.
pub fn encode(history: &History) -> Vec<u8> {
    let times = &mut Times::default();
    let events = |events: &[ScaleEvent], times: &mut Times| {
        let stored = events.iter().map(|event| StoredEvent {
            at: times.encode(event.at),
            change: event.change,
            uncertain: event
                .earliest
                .map(|earliest| event.at.as_nanosecond().abs_diff(earliest.as_nanosecond())),
        });
        stored.collect()
    };
    // The fields are evaluated in this order, and each time depends on the previous one.
    let stored = StoredHistory {
        recommendations: history
            .recommendations
            .iter()
            .map(|recommendation| (times.encode(recommendation.at), recommendation.replicas))
            .collect(),
        scale_ups: events(&history.scale_ups, times),
        scale_downs: events(&history.scale_downs, times),
        unknown_up: history.unknown_up.map(|at| times.encode(at)),
        unknown_down: history.unknown_down.map(|at| times.encode(at)),
        unsettled: history.unsettled.map(|PendingWrite { at, from, to }| (times.encode(at), from, to)),
        inherited: history.inherited.map(|at| times.encode(at)),
    };
    codec::append(&stored, vec![VERSION])
}

/// Decodes an output of [`encode`]. Fails for any other bytes, and beyond the bounds of a history.
pub fn decode(bytes: &[u8]) -> Result<History, HistoryError> {
    if bytes.len() > MAX_BYTES {
        return Err(HistoryError::TooLarge(bytes.len()));
    }
    let (version, rest) = codec::take::<u8>(bytes).map_err(HistoryError::Invalid)?;
    if version != VERSION {
        return Err(HistoryError::Version(version));
    }
    let (stored, rest) = codec::take::<StoredHistory>(rest).map_err(HistoryError::Invalid)?;
    if !rest.is_empty() {
        return Err(HistoryError::Trailing(rest.len()));
    }
    bounded("recommendations", stored.recommendations.len(), RECOMMENDATIONS)?;
    bounded("scale events", stored.scale_ups.len().max(stored.scale_downs.len()), SCALE_EVENTS)?;
    let times = &mut Times::default();
    let recommendations = stored.recommendations.into_iter();
    Ok(History {
        recommendations: recommendations
            .map(|(at, replicas)| Ok(Recommendation { at: times.decode(at)?, replicas }))
            .collect::<Result<_, _>>()?,
        scale_ups: scale_events(stored.scale_ups, times)?,
        scale_downs: scale_events(stored.scale_downs, times)?,
        unknown_up: stored.unknown_up.map(|at| times.decode(at)).transpose()?,
        unknown_down: stored.unknown_down.map(|at| times.decode(at)).transpose()?,
        unsettled: stored
            .unsettled
            .map(|(at, from, to)| Ok(PendingWrite { at: times.decode(at)?, from, to }))
            .transpose()?,
        inherited: stored.inherited.map(|at| times.decode(at)).transpose()?,
    })
}

fn scale_events(stored: Vec<StoredEvent>, times: &mut Times) -> Result<Vec<ScaleEvent>, HistoryError> {
    let event = |StoredEvent { at, change, uncertain }| {
        let at = times.decode(at)?;
        if change < 0 {
            return Err(HistoryError::Range("change"));
        }
        let earliest = |distance: u128| {
            let nanos = at.as_nanosecond().checked_sub_unsigned(distance);
            nanos.and_then(|nanos| Timestamp::from_nanosecond(nanos).ok()).ok_or(HistoryError::Range("time"))
        };
        Ok(ScaleEvent { at, change, earliest: uncertain.map(earliest).transpose()? })
    };
    stored.into_iter().map(event).collect()
}

fn bounded(what: &'static str, count: usize, most: usize) -> Result<(), HistoryError> {
    if count > most { Err(HistoryError::TooMany { what, count, most }) } else { Ok(()) }
}

/// Delta-of-delta state for times, which have about equal distances.
#[derive(Debug, Default)]
struct Times {
    last: i128,
    distance: i128,
}

impl Times {
    /// Returns the change of the distance for `time`, the next time.
    fn encode(&mut self, time: Timestamp) -> i128 {
        let distance = time.as_nanosecond() - self.last;
        let change_of_distance = distance - self.distance;
        *self = Self { last: time.as_nanosecond(), distance };
        change_of_distance
    }

    /// Returns the next time, for a change of the distance.
    fn decode(&mut self, change_of_distance: i128) -> Result<Timestamp, HistoryError> {
        let mut next = || {
            self.distance = self.distance.checked_add(change_of_distance)?;
            self.last = self.last.checked_add(self.distance)?;
            Timestamp::from_nanosecond(self.last).ok()
        };
        next().ok_or(HistoryError::Range("time"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection;
    use proptest::prelude::*;

    use super::*;

    fn times() -> impl Strategy<Value = Timestamp> {
        let any = Timestamp::MIN.as_nanosecond()..=Timestamp::MAX.as_nanosecond();
        let usual = 1_700_000_000_000_000_000_i128..1_700_010_000_000_000_000;
        prop_oneof![1 => any, 9 => usual].prop_map(|nanos| Timestamp::from_nanosecond(nanos).unwrap())
    }

    fn events() -> impl Strategy<Value = Vec<ScaleEvent>> {
        let event = (times(), 0..=i32::MAX, any::<bool>(), times()).prop_map(|(at, change, exact, other)| {
            ScaleEvent { at: at.max(other), change, earliest: (!exact).then(|| at.min(other)) }
        });
        collection::vec(event, 0..=20)
    }

    fn histories() -> impl Strategy<Value = History> {
        let recommendation =
            (times(), any::<i32>()).prop_map(|(at, replicas)| Recommendation { at, replicas });
        let unsettled =
            (times(), any::<i32>(), any::<i32>()).prop_map(|(at, from, to)| PendingWrite { at, from, to });
        let doubts = (
            proptest::option::of(times()),
            proptest::option::of(times()),
            proptest::option::of(unsettled),
            proptest::option::of(times()),
        );
        (collection::vec(recommendation, 0..=20), events(), events(), doubts).prop_map(
            |(recommendations, scale_ups, scale_downs, (unknown_up, unknown_down, unsettled, inherited))| {
                History {
                    recommendations,
                    scale_ups,
                    scale_downs,
                    unknown_up,
                    unknown_down,
                    unsettled,
                    inherited,
                }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_history_survives_a_round_trip(history in histories()) {
            prop_assert_eq!(decode(&encode(&history)), Ok(history));
        }

        #[test]
        fn any_bytes_decode_to_a_bounded_history_or_an_error(
            mut bytes in collection::vec(any::<u8>(), 1..200), valid_version: bool,
        ) {
            if valid_version {
                bytes[0] = VERSION;
            }
            if let Ok(history) = decode(&bytes) {
                prop_assert!(history.recommendations.len() <= RECOMMENDATIONS);
                prop_assert!(history.scale_ups.len().max(history.scale_downs.len()) <= SCALE_EVENTS);
                prop_assert!(history.scale_ups.iter().chain(&history.scale_downs).all(|event| event.change >= 0));
                prop_assert_eq!(decode(&encode(&history)), Ok(history));
            }
        }

        #[test]
        fn truncated_history_is_an_error(history in histories(), cut: prop::sample::Index) {
            let bytes = encode(&history);
            let kept = &bytes[..cut.index(bytes.len())];
            prop_assert_eq!(decode(kept), Err(HistoryError::Invalid(postcard::Error::DeserializeUnexpectedEnd)));
        }
    }

    #[test]
    fn decode_errors_name_the_cause() {
        let error = |stored: &StoredHistory| decode(&codec::append(stored, vec![VERSION])).unwrap_err();
        let none = || StoredHistory {
            recommendations: Vec::new(),
            scale_ups: Vec::new(),
            scale_downs: Vec::new(),
            unknown_up: None,
            unknown_down: None,
            unsettled: None,
            inherited: None,
        };
        let event = |at, change, uncertain| StoredEvent { at, change, uncertain };
        let events = |count| (0..count).map(|_| event(0, 1, None)).collect();

        assert_eq!(
            decode(&[1]).unwrap_err().to_string(),
            "history has format version 1, but this build reads version 2"
        );
        assert_eq!(decode(&vec![0; MAX_BYTES + 1]), Err(HistoryError::TooLarge(MAX_BYTES + 1)));
        assert_eq!(
            decode(&[&encode(&History::default())[..], &[7]].concat()),
            Err(HistoryError::Trailing(1))
        );
        assert_eq!(
            error(&StoredHistory { recommendations: vec![(0, 1); 513], ..none() }).to_string(),
            "history has 513 recommendations, but at most 512 are allowed"
        );
        assert_eq!(
            error(&StoredHistory { scale_downs: events(257), ..none() }).to_string(),
            "history has 257 scale events, but at most 256 are allowed"
        );
        let negative = StoredHistory { scale_ups: vec![event(0, -1, None)], ..none() };
        assert_eq!(error(&negative).to_string(), "history has a change out of range");
        for far in [i128::MAX, i128::MIN, Timestamp::MAX.as_nanosecond() + 1] {
            assert_eq!(error(&StoredHistory { inherited: Some(far), ..none() }), HistoryError::Range("time"));
        }
        for before in [u128::MAX, 1 << 100] {
            let early = StoredHistory { scale_ups: vec![event(0, 1, Some(before))], ..none() };
            assert_eq!(error(&early), HistoryError::Range("time"));
        }
    }

    #[test]
    fn announced_length_beyond_the_end_is_an_error() {
        let endless = [&[VERSION][..], &[0xff; 4], &[0x0f, 0, 0]].concat();
        assert_eq!(decode(&endless), Err(HistoryError::Invalid(postcard::Error::DeserializeUnexpectedEnd)));
    }

    /// Syncs are 15 s apart, with a few milliseconds of jitter. Every fourth sync is a rescale.
    #[test]
    fn history_takes_about_six_bytes_per_entry() {
        for (entries, most) in [(20_i64, 160), (240, 1700)] {
            let mut history = History::default();
            for sync in 0..entries {
                let nanos = 1_700_000_000_123_456_789 + sync * 15_000_000_000 + sync * 7_919_773 % 6_000_011;
                let at = Timestamp::from_nanosecond(nanos.into()).unwrap();
                let replicas = 20 + i32::try_from(sync * 37 % 11).unwrap() / 4;
                history.recommendations.push(Recommendation { at, replicas });
                if sync % 4 == 0 {
                    history.scale_ups.push(ScaleEvent::new(at, 1));
                }
            }
            let bytes = encode(&history).len();
            assert!(bytes <= most, "{bytes}");
        }
    }
}
