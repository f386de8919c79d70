//! Detects earlier rescales in the Scale: a rescale with a lost response, or a rescale by the process that
//! owned the history before.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::commit::{AddedEntry, moved, scale_event};
use super::{Direction, History, PendingWrite, ScaleEvent, after};
use crate::condition::{ABLE_TO_SCALE, FAILED_UPDATE_SCALE, SUCCEEDED_GET_SCALE, whole_seconds};
use crate::plan::Hpa;
use crate::status::{Condition, Status};

/// Maximum time that the last request of the previous process may have been in flight. No request takes
/// longer.
const MAX_IN_FLIGHT: SignedDuration = SignedDuration::from_secs(30);

/// Earlier rescales that a sync detected.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reconciliation {
    /// The write with a lost response that the sync settled.
    pub settled: Option<PendingWrite>,
    /// Whether the history now belongs to this process.
    pub owned: bool,
    /// A rescale that was missing from the history.
    pub scale_event: Option<(Direction, AddedEntry<ScaleEvent>)>,
    /// The time of a rescale of unknown size and direction.
    pub unknown: Option<Timestamp>,
}

impl Reconciliation {
    /// Moves all times by the size of a wall-clock jump.
    pub(super) fn shift(&mut self, by: SignedDuration) {
        if let Some(settled) = &mut self.settled {
            settled.at = moved(settled.at, by);
        }
        if let Some((_, added)) = &mut self.scale_event {
            added.shift(by);
        }
        self.unknown = self.unknown.map(|at| moved(at, by));
    }
}

impl History {
    /// Compares the Scale with the uncertain rescales. Returns `None` if the history has none.
    pub(crate) fn reconcile(&self, hpa: &Hpa<'_>, replicas: i32, now: Timestamp) -> Option<Reconciliation> {
        if self.unsettled.is_none() && self.inherited.is_none() {
            return None;
        }
        let owned = self.inherited.is_some();
        let mut found = Reconciliation { settled: self.unsettled, owned, ..Reconciliation::default() };
        // Without `behavior`, rescales are not stored, because no policy needs them.
        let Some(behavior) = &hpa.spec.behavior else { return Some(found) };
        if let Some(PendingWrite { at, from, to }) = self.unsettled
            && replicas != from
        {
            let (direction, mut added) = scale_event(behavior, from, to, at);
            if replicas != to {
                // Another client changed the count, before or after this write. The write may not have
                // happened.
                added.entry.earliest = Some(Timestamp::MIN);
            }
            found.scale_event = Some((direction, added));
        }
        if let Some(inherited) = self.inherited {
            let known = self.known_rescales(&found, hpa.status);
            found.unknown = known.missing_last_scale(hpa.status, now);
            let last = status_count(hpa.status);
            if has_count(hpa.status) && replicas != last && i64::from(replicas) != known.expected {
                // The previous process may have rescaled after a manual change, so direction and size are both unknown.
                // A target that was missing for a while delays the detection, but not the latest time of the rescale.
                found.unknown = Some(after(inherited, MAX_IN_FLIGHT).min(now));
            }
        }
        Some(found)
    }

    /// A copy of the history with the detected rescales.
    pub(crate) fn with(&self, found: &Reconciliation) -> Self {
        let mut history = self.clone();
        history.apply(found);
        history
    }

    /// Commits the detected rescales.
    pub(super) fn apply(&mut self, found: &Reconciliation) {
        if found.settled.is_some() && found.settled == self.unsettled {
            self.unsettled = None;
        }
        self.inherited.take_if(|_| found.owned);
        if let Some((direction, added)) = found.scale_event {
            self.remember(direction, added);
        }
        self.unknown_rescale(found.unknown);
    }

    /// Stores a rescale of unknown size and direction.
    pub(super) fn unknown_rescale(&mut self, at: Option<Timestamp>) {
        self.unknown_up = self.unknown_up.max(at);
        self.unknown_down = self.unknown_down.max(at);
    }

    /// Summarizes the stored and the detected rescales, relative to `status`.
    fn known_rescales(&self, found: &Reconciliation, status: &Status) -> KnownRescales {
        let all = self
            .scale_ups
            .iter()
            .map(|event| (Direction::Up, event))
            .chain(self.scale_downs.iter().map(|event| (Direction::Down, event)))
            .chain(found.scale_event.iter().map(|(direction, added)| (*direction, &added.entry)));
        let mut known = KnownRescales {
            last: self.unknown_up.max(self.unknown_down),
            expected: status_count(status).into(),
        };
        for (direction, event) in all {
            known.last = known.last.max(Some(event.at));
            if status.last_scale_time.is_none_or(|last| whole_seconds(event.earliest()) > last) {
                known.expected += match direction {
                    Direction::Up => i64::from(event.change),
                    Direction::Down => -i64::from(event.change),
                };
            }
        }
        known
    }
}

/// The count at the end of the sync that wrote the status. If that sync failed to write the Scale, or ended
/// without a result after it read the Scale, the count is `currentReplicas`. `desiredReplicas` is older in
/// both cases.
fn status_count(status: &Status) -> i32 {
    let is_older = |condition: &Condition| {
        condition.kind == ABLE_TO_SCALE
            && [FAILED_UPDATE_SCALE, SUCCEEDED_GET_SCALE].contains(&&*condition.reason)
    };
    if status.conditions.iter().any(is_older) { status.current_replicas } else { status.desired_replicas }
}

/// Whether any earlier sync computed a count. A failed sync writes a status too.
fn has_count(status: &Status) -> bool {
    status.last_scale_time.is_some() || status.current_replicas != 0 || status.desired_replicas != 0
}

/// A summary of the known rescales, relative to a status.
#[derive(Debug, Clone, Copy)]
struct KnownRescales {
    /// Time of the last known rescale.
    last: Option<Timestamp>,
    /// The count of the status, plus all known rescales that are newer than the last rescale of the status.
    expected: i64,
}

impl KnownRescales {
    /// Time of the last rescale of the status, if that rescale is not among the known ones.
    fn missing_last_scale(self, status: &Status, now: Timestamp) -> Option<Timestamp> {
        let last_scale = status.last_scale_time?;
        self.last
            .is_none_or(|last| whole_seconds(last) < last_scale)
            .then(|| end_of_second(last_scale).min(now))
    }
}

/// The last nanosecond within the same second as `at`.
pub(super) fn end_of_second(at: Timestamp) -> Timestamp {
    after(whole_seconds(at), SignedDuration::from_nanos(999_999_999))
}
