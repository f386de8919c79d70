//! A standby's copy of the leader's histories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::history::History;
use jiff::SignedDuration;
use tokio::time::Instant;

use super::wire::Part;
use crate::controller::{Controller, Revision};

/// An HPA that this process does not know yet may be new: so long its history is kept all the same. It comes again with
/// its next change.
const UNKNOWN: Duration = Duration::from_mins(1);

/// What becomes of the histories of the leader before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inheritance {
    /// Nothing of them is known here.
    Nothing,
    /// They are known up to a moment before that leader ended; whatever came after is missing.
    CutOff,
    /// That leader handed over: all that it knew is known here.
    HandedOver,
}

/// The histories of one leader after the other, by UID and encoded.
#[derive(Debug, Default)]
pub(super) struct Copy {
    kept: BTreeMap<Arc<str>, Kept>,
    /// A copy that begins anew, until it is complete.
    coming: Option<BTreeMap<Arc<str>, Kept>>,
    /// How far it goes.
    upto: Option<Revision>,
    /// How far this process's clock is ahead of the leader's, if they differ.
    ahead: SignedDuration,
    /// The term of the leader that said that nothing will follow.
    handed_over: Option<i32>,
}

#[derive(Debug)]
struct Kept {
    bytes: Box<[u8]>,
    /// Since when it is known that no HPA has this UID here.
    unknown: Option<Instant>,
}

impl Copy {
    /// What is asked for next; `None`: everything.
    pub(super) fn upto(&self) -> Option<Revision> {
        self.upto
    }

    /// Whether a leader has said that nothing will follow.
    pub(super) fn is_final(&self) -> bool {
        self.handed_over.is_some()
    }

    /// Another one leads: what is there is of no process that could add to it.
    pub(super) fn another_leads(&mut self) {
        self.upto = None;
        self.handed_over = None;
    }

    /// Takes in what the leader of a term answered, whose clock differs by so much.
    pub(super) fn take(&mut self, part: Part, term: i32, ahead: SignedDuration) {
        let Part { anew, more, last, upto, histories, .. } = part;
        self.ahead = ahead;
        if anew {
            self.coming = Some(BTreeMap::new());
        }
        let to = self.coming.as_mut().unwrap_or(&mut self.kept);
        to.extend(histories.into_iter().map(|(uid, bytes)| (uid, Kept { bytes, unknown: None })));
        self.upto = Some(upto);
        if !more && let Some(complete) = self.coming.take() {
            self.kept = complete;
        }
        self.handed_over = (last && !more).then_some(term);
    }

    /// Drops what belongs to no HPA that this process has known for a while.
    pub(super) fn sweep(&mut self, known: &BTreeSet<Arc<str>>, now: Instant) {
        for kept in [Some(&mut self.kept), self.coming.as_mut()].into_iter().flatten() {
            kept.retain(|uid, kept| {
                kept.unknown = if known.contains(uid) { None } else { kept.unknown.or(Some(now)) };
                kept.unknown.is_none_or(|since| now.duration_since(since) < UNKNOWN)
            });
        }
    }

    /// Gives the histories of the HPAs that this controller knows to it, which leads in this term now. `set`: by how
    /// much its clock has been set since it was compared with the leader's.
    pub(super) fn adopt(self, controller: &Controller, term: i32, set: SignedDuration) -> Inheritance {
        let Self { kept, coming, ahead, handed_over, .. } = self;
        // With each new holder the number of the term grows by one: nobody has led in between.
        let in_order = handed_over.is_some_and(|before| before.checked_add(1) == Some(term));
        let mut inheritance = if in_order { Inheritance::HandedOver } else { Inheritance::Nothing };
        let now = controller.clock.now();
        let mut copied: BTreeMap<_, _> = kept;
        copied.extend(coming.into_iter().flatten());
        for uid in uids(controller) {
            let history = copied.remove(&uid).and_then(|kept| History::decode(&kept.bytes).ok());
            // As old by this clock as by the leader's.
            let history = history.map(|mut history| {
                history.shift(ahead.saturating_add(set));
                history
            });
            match history {
                Some(history) if in_order => controller.histories.seed(&uid, history),
                Some(history) => {
                    inheritance = Inheritance::CutOff;
                    controller.histories.inherit(&uid, history.inherit(now));
                }
                // What that leader did not know, nobody needs to.
                None if in_order => controller.histories.forget(&uid),
                None => {}
            }
        }
        inheritance
    }

    /// How many histories there are.
    pub(super) fn len(&self) -> usize {
        self.kept.len().max(self.coming.as_ref().map_or(0, BTreeMap::len))
    }
}

/// The UIDs of all HPAs that this controller sees.
pub(super) fn uids(controller: &Controller) -> BTreeSet<Arc<str>> {
    controller.hpas.all().values().map(|hpa| Arc::clone(&hpa.uid)).collect()
}
