//! Encodes histories as bytes, compactly and exact to the nanosecond. Decoding validates the bytes.
//!
//! The encoding is a version byte and `StoredHistory`, followed by `StoredPolicy` if a scaling policy needs the metrics
//! of earlier syncs. Syncs are a period apart, so each time is stored as the change of its distance to the previous
//! time (delta of deltas).

use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::history::{
    History, PendingWrite, RECOMMENDATIONS, Recommendation, SCALE_EVENTS, ScaleEvent,
};
use jiff::Timestamp;
use policies::forecast::LONGEST;
use policies::history::{MetricHistory, PolicyHistory};
use policies::spec::Cause;
use serde::{Deserialize, Serialize};

use crate::record::{append, take};
use engine::reconcile::KeptHistory;

/// The format version without the metrics of earlier syncs. Earlier releases read and write it.
const VERSION: u8 = 2;
/// The format version with the metrics of earlier syncs.
const VERSION_WITH_POLICY: u8 = 3;
/// The format version of the state of a forecast, which has entries of its own.
const FORECAST: u8 = 4;
/// Maximum number of stored metrics. Further metrics are omitted, as if no earlier sync had read them.
const METRICS: usize = 64;
/// Maximum bytes of the key of a stored metric, and of its name.
const MAX_KEY: usize = 512;
/// Maximum bytes of an encoded history. A history with all allowed entries has at most 35 KB, and its metrics have at
/// most 70 KB.
const MAX_BYTES: usize = 128 << 10;

/// The initial buffer space for a history without entries and for an entry, in bytes.
const ROOM: usize = 32;
const ENTRY_ROOM: usize = 8;

/// The reason why bytes are not a valid history. The caller can ignore the bytes and rebuild the history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The bytes exceed the size of any history.
    #[error("history has {0} bytes, but at most {MAX_BYTES} are allowed")]
    TooLarge(usize),
    /// The format has another version.
    #[error(
        "history has format version {0}, but this build reads versions {VERSION} and {VERSION_WITH_POLICY}"
    )]
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

/// The metrics of earlier syncs.
#[derive(Debug, Serialize, Deserialize)]
struct StoredPolicy {
    metrics: Vec<StoredMetric>,
    zero_since: Option<i128>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredMetric {
    key: String,
    name: String,
    failing: Option<(i128, Cause)>,
    last_proposal: Option<i32>,
    last_nonzero: Option<i128>,
}

/// Encodes a history, without the state of a forecast.
pub fn encode(kept: &KeptHistory) -> Vec<u8> {
    let KeptHistory { history, policy, .. } = kept;
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
    // The fields are evaluated in this order, and each time depends on the previous time.
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
    let entries = stored.recommendations.len() + stored.scale_ups.len() + stored.scale_downs.len();
    let start = |version| {
        let mut bytes = Vec::with_capacity(ROOM + ENTRY_ROOM * entries);
        bytes.push(version);
        bytes
    };
    let Some(policy) = policy else { return append(&stored, start(VERSION)) };
    let PolicyHistory { metrics, zero_since } = &**policy;
    let metrics = metrics.iter().filter(|(key, metric)| is_stored(key, &metric.name)).take(METRICS).map(
        |(key, metric)| {
            let MetricHistory { name, failing, last_proposal, last_nonzero } = metric;
            StoredMetric {
                key: key.to_string(),
                name: name.to_string(),
                failing: failing.map(|(since, cause)| (times.encode(since), cause)),
                last_proposal: *last_proposal,
                last_nonzero: last_nonzero.map(|at| times.encode(at)),
            }
        },
    );
    let metrics = metrics.collect();
    let stored_policy = StoredPolicy { metrics, zero_since: zero_since.map(|at| times.encode(at)) };
    append(&(stored, stored_policy), start(VERSION_WITH_POLICY))
}

/// Encodes the state of a forecast.
pub fn encode_forecast(state: &[u8]) -> Vec<u8> {
    [&[FORECAST][..], state].concat()
}

/// Returns the state of a forecast from an output of [`encode_forecast`]. `None` for other bytes, and for a state that
/// is too long.
pub fn forecast(bytes: &[u8]) -> Option<&[u8]> {
    bytes.strip_prefix(&[FORECAST]).filter(|state| state.len() <= LONGEST)
}

/// Decodes an output of [`encode`]. Fails for other bytes, and for a history with too many entries.
pub fn decode(bytes: &[u8]) -> Result<KeptHistory, HistoryError> {
    if bytes.len() > MAX_BYTES {
        return Err(HistoryError::TooLarge(bytes.len()));
    }
    let (version, rest) = take::<u8>(bytes).map_err(HistoryError::Invalid)?;
    if version != VERSION && version != VERSION_WITH_POLICY {
        return Err(HistoryError::Version(version));
    }
    let (stored, rest) = take::<StoredHistory>(rest).map_err(HistoryError::Invalid)?;
    let (stored_policy, rest) = if version == VERSION {
        (None, rest)
    } else {
        let (stored, rest) = take::<StoredPolicy>(rest).map_err(HistoryError::Invalid)?;
        (Some(stored), rest)
    };
    if !rest.is_empty() {
        return Err(HistoryError::Trailing(rest.len()));
    }
    bounded("recommendations", stored.recommendations.len(), RECOMMENDATIONS)?;
    bounded("scale events", stored.scale_ups.len().max(stored.scale_downs.len()), SCALE_EVENTS)?;
    let times = &mut Times::default();
    let recommendations = stored.recommendations.into_iter();
    let history = History {
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
    };
    let policy = stored_policy.map(|stored| policy_history(stored, times)).transpose()?;
    Ok(KeptHistory { history: Arc::new(history), policy: policy.map(Arc::new), forecast: None })
}

/// Returns whether a metric is short enough to be stored.
fn is_stored(key: &str, name: &str) -> bool {
    key.len().max(name.len()) <= MAX_KEY
}

fn policy_history(stored: StoredPolicy, times: &mut Times) -> Result<PolicyHistory, HistoryError> {
    bounded("metrics", stored.metrics.len(), METRICS)?;
    let mut metrics = BTreeMap::new();
    for StoredMetric { key, name, failing, last_proposal, last_nonzero } in stored.metrics {
        if !is_stored(&key, &name) {
            return Err(HistoryError::Range("key"));
        }
        let metric = MetricHistory {
            name: name.into(),
            failing: failing.map(|(since, cause)| Ok((times.decode(since)?, cause))).transpose()?,
            last_proposal,
            last_nonzero: last_nonzero.map(|at| times.decode(at)).transpose()?,
        };
        metrics.insert(Arc::from(key), metric);
    }
    Ok(PolicyHistory { metrics, zero_since: stored.zero_since.map(|at| times.decode(at)).transpose()? })
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

/// Delta-of-delta state for times at about equal distances.
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
mod tests;
