//! Replicates the histories of the leader to standbys, so that a failover does not change the decisions.
//!
//! The leader serves changes ([`Source`]). The Lease contains the leader's address and the fingerprint of its
//! certificate ([`crate::election::Peer`]). A standby fetches changes about once a second ([`Follower`]). When the
//! standby becomes leader, it continues with its copy. At shutdown, the leader waits for a limited time until its
//! standbys are up to date.
//!
//! A response of the leader starts with `cchist`, 0 and the version of the format. `Head`, and the UID and encoded
//! history of each HPA, follow in postcard's format.

mod follow;
mod page;
pub mod peers;
#[cfg(test)]
mod tests;

pub use self::follow::{Follower, Parts};
pub use self::page::Source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::codec::{self, HistoryError};
use crate::reconcile::{Changed, Controller, Revision};
use crate::record::{append, take};

/// Retention time of a history without a known HPA. A new HPA may arrive after its history. A dropped history arrives
/// again with its next change.
const UNKNOWN: Duration = Duration::from_mins(1);

/// Completeness of the histories that a new leader takes over from the previous leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// No copied history.
    Nothing,
    /// A copy that may lack the last changes of the previous leader.
    CutOff,
    /// A complete copy: the previous leader handed over.
    HandedOver,
}

/// The histories of the current or previous leader, by UID and encoded.
#[derive(Debug, Default)]
struct StandbyHistory {
    entries: BTreeMap<Arc<str>, CopiedHistory>,
    /// The next full copy, until it is complete.
    incoming: Option<BTreeMap<Arc<str>, CopiedHistory>>,
    /// The revision of the copy.
    upto: Option<Revision>,
    /// Lead of this process's clock over the leader's clock. Zero if the clocks agree.
    ahead: SignedDuration,
    /// The term of the leader that has handed over.
    handed_over: Option<i32>,
}

#[derive(Debug)]
struct CopiedHistory {
    bytes: Box<[u8]>,
    /// Time since which no HPA of this process has this UID.
    unknown: Option<Instant>,
}

impl StandbyHistory {
    /// Returns the revision from which the next request continues. `None` requests everything.
    fn upto(&self) -> Option<Revision> {
        self.upto
    }

    /// Returns whether the leader has handed over, so that no changes follow.
    fn is_final(&self) -> bool {
        self.handed_over.is_some()
    }

    /// Makes the next request fetch all histories, because another leader cannot continue the copy.
    fn reset(&mut self) {
        self.upto = None;
        self.handed_over = None;
    }

    /// Applies a response of the leader with the given term. `ahead`: the lead of this process's clock over the
    /// leader's clock.
    fn apply(&mut self, part: Part, term: i32, ahead: SignedDuration) {
        let Part { full, more, last, upto, histories, .. } = part;
        self.ahead = ahead;
        if full {
            self.incoming = Some(BTreeMap::new());
        }
        let target = self.incoming.as_mut().unwrap_or(&mut self.entries);
        target
            .extend(histories.into_iter().map(|(uid, bytes)| (uid, CopiedHistory { bytes, unknown: None })));
        self.upto = Some(upto);
        if !more && let Some(complete) = self.incoming.take() {
            self.entries = complete;
        }
        self.handed_over = (last && !more).then_some(term);
    }

    /// Drops histories that have had no HPA in this process for longer than [`UNKNOWN`].
    fn sweep(&mut self, known: &BTreeSet<Arc<str>>, now: Instant) {
        for entries in [Some(&mut self.entries), self.incoming.as_mut()].into_iter().flatten() {
            entries.retain(|uid, entry| {
                entry.unknown = if known.contains(uid) { None } else { entry.unknown.or(Some(now)) };
                entry.unknown.is_none_or(|since| now.duration_since(since) < UNKNOWN)
            });
        }
    }

    /// Moves the histories into `controller`, which now leads in the given term. `set`: the sum of the jumps of its
    /// clock since the last comparison with the leader's clock.
    fn take_over(self, controller: &Controller, term: i32, set: SignedDuration) -> Handover {
        let Self { entries, incoming, ahead, handed_over, .. } = self;
        // Each new holder increments the term by one, so no other replica has led in between.
        let in_order = handed_over.is_some_and(|before| before.checked_add(1) == Some(term));
        let mut inheritance = if in_order { Handover::HandedOver } else { Handover::Nothing };
        // If the clock has jumped, this reading shifts the rescales from the watch. The copies are shifted below.
        let now = controller.clock_reading().at;
        let mut copied: BTreeMap<_, _> = entries;
        copied.extend(incoming.into_iter().flatten());
        for uid in uids(controller) {
            let history = copied.remove(&uid).and_then(|entry| codec::decode(&entry.bytes).ok());
            // The entries keep the ages that they have by the leader's clock.
            let history = history.map(|mut history| {
                history.shift(ahead.saturating_add(set));
                history
            });
            match history {
                Some(history) if in_order => controller.histories.seed(&uid, history),
                Some(history) => {
                    inheritance = Handover::CutOff;
                    controller.histories.inherit(&uid, history.inherit(now));
                }
                // The previous leader had no history of this HPA, so none is needed.
                None if in_order => controller.histories.forget(&uid),
                None => {}
            }
        }
        inheritance
    }

    fn len(&self) -> usize {
        self.entries.len().max(self.incoming.as_ref().map_or(0, BTreeMap::len))
    }
}

/// Returns the UIDs of all HPAs in the controller's store.
fn uids(controller: &Controller) -> BTreeSet<Arc<str>> {
    controller.hpas.all().values().map(|hpa| Arc::clone(&hpa.uid)).collect()
}

/// The start of a response: the format and its version.
const MAGIC: [u8; 8] = *b"cchist\0\x02";

/// The content type of a response.
const CONTENT_TYPE: &str = "application/vnd.concertina.history";
/// Size in bytes after which the leader ends a response. The next request continues.
const ENOUGH: usize = 4 << 20;

/// A decoded response.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// Whether a full copy starts with this response.
    full: bool,
    /// Whether more changes follow.
    more: bool,
    /// Whether the leader starts no more syncs.
    last: bool,
    /// The leader's time of day at the response.
    now: Timestamp,
    /// The revision of the copy after this response.
    upto: Revision,
    /// Encoded histories by UID. All of them can be decoded.
    histories: Vec<(Arc<str>, Box<[u8]>)>,
}

/// The reason why bytes are not a valid response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum PartError {
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
        /// `metadata.uid` of the HPA.
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
    /// The time of the response, by the leader's clock.
    #[serde(with = "jiff::fmt::serde::timestamp::nanosecond::required")]
    now: Timestamp,
    epoch: u64,
    change: u64,
    /// Number of histories.
    count: u32,
}

/// A response under construction, initially without histories.
#[derive(Debug, Default)]
struct Writer {
    histories: Vec<u8>,
    count: u32,
    full: bool,
}

impl Writer {
    /// Returns whether the response has reached [`ENOUGH`].
    fn is_full(&self) -> bool {
        self.histories.len() >= ENOUGH
    }

    fn add(&mut self, changed: &Changed) {
        self.full |= changed.full;
        for (uid, history) in &changed.histories {
            let entry = (&**uid, &*codec::encode(history));
            self.histories = append(&entry, std::mem::take(&mut self.histories));
            self.count += 1;
        }
    }

    /// Completes the response, which brings a copy to the revision `upto`. `now`: the leader's time of day.
    fn finish(self, now: Timestamp, upto: Revision, more: bool, last: bool) -> Vec<u8> {
        let Self { histories, count, full } = self;
        let Revision { epoch, change } = upto;
        let mut bytes = append(&Head { full, more, last, now, epoch, change, count }, MAGIC.to_vec());
        bytes.extend(histories);
        bytes
    }
}

impl Part {
    /// Decodes a response. Every history in it is validated.
    fn read(bytes: &[u8]) -> Result<Self, PartError> {
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
