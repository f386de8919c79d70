//! Who is told of concluded syncs and of what the watch shows: the record of decisions, a simulation, `why`.

use std::fmt;
use std::sync::Arc;

use autoscaling::history::History;
use autoscaling::{Answers, Conclusion, Plan, WriteOutcome};
use jiff::{SignedDuration, Timestamp};

use crate::store::{HpaRecord, Key};

/// Told of every sync that was concluded, before its status is written. Called within the sync: it must not wait.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// A sync was concluded.
    fn concluded(&self, sync: &Concluded<'_>);

    /// The same sync, told right after [`Self::concluded`], with all else that it was decided from: for who decides again.
    fn weighed(&self, sync: &Concluded<'_>, plan: &Plan, history: &History) {
        let _ = (sync, plan, history);
    }

    /// The watch, or a list, showed an HPA. `old` is the same object as it was known before; none if it is new. Called
    /// in the order of the watch, before anything else is done with it: it must not wait.
    fn seen(&self, old: Option<&HpaRecord>, new: &HpaRecord) {
        let _ = (old, new);
    }

    /// The status of an HPA could not be written because the HPA has changed since it was read.
    fn conflicted(&self, key: &Key) {
        let _ = key;
    }

    /// An HPA is gone, or was replaced by another of its name.
    fn forgotten(&self, key: &Key, uid: &str) {
        let _ = (key, uid);
    }
}

/// One concluded sync.
#[derive(Debug, Clone, Copy)]
pub struct Concluded<'a> {
    /// The HPA as it was when the sync began.
    pub hpa: &'a HpaRecord,
    /// When it was decided.
    pub at: Timestamp,
    /// When it was concluded.
    pub ended: Timestamp,
    /// By how much the clock had been set until then, since the first sync of this process.
    pub set: SignedDuration,
    /// What was read: metrics and pods.
    pub answers: &'a Answers<'a>,
    /// What became of the write.
    pub outcome: &'a WriteOutcome,
    /// What follows.
    pub conclusion: &'a Conclusion,
}

/// Those who are told, in order.
pub type Observers = Vec<Arc<dyn Observer>>;
