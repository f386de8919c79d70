//! Replicates the histories of the leader to standbys, so that a failover does not change the decisions.
//!
//! The leader serves changes ([`Source`]). The Lease contains the leader's address and the fingerprint of its
//! certificate ([`crate::election::Peer`]). A standby fetches changes about once a second ([`Follower`]). When the
//! standby becomes leader, it continues with its copy. At shutdown, the leader waits for a limited time until its
//! standbys are up to date.

mod follow;
mod page;
pub mod peers;
#[cfg(test)]
mod tests;
pub mod transport;
mod wire;

pub use self::follow::{Follower, Parts};
pub use self::page::Source;
#[cfg(fuzzing)]
pub use self::wire::again;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

use self::wire::Part;
use super::codec;
use crate::reconcile::{Controller, Revision};

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
    /// leader's.
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
