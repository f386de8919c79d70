//! Observers of concluded syncs and of the watch: the record of decisions, a simulation, `why`.

use std::fmt;
use std::sync::Arc;

use autoscaling::history::History;
use autoscaling::{Answers, Conclusion, Plan, WriteOutcome};
use jiff::{SignedDuration, Timestamp};

use super::sources::SourceReading;
use crate::store::{HpaRecord, Key};
use policies::resolve::Rules;
use policies::steps::PolicyEffect;

/// Observes every concluded sync before its status is written. The methods run within the sync and must not
/// block.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Handles a concluded sync.
    fn concluded(&self, sync: &ConcludedSync<'_>);

    /// Handles the same sync with the rest of its inputs, right after [`Self::concluded`]. For observers that
    /// replay the sync.
    fn evaluated(&self, sync: &ConcludedSync<'_>, plan: &Plan, history: &History) {
        let _ = (sync, plan, history);
    }

    /// Handles an HPA from the watch or a list. `old` is the previous version of the same object, or `None`
    /// for a new object. Called in the order of the watch, before the update has any effect. Must not block.
    fn seen(&self, old: Option<&HpaRecord>, new: &HpaRecord) {
        let _ = (old, new);
    }

    /// Handles a status write that failed because the HPA has changed since its read.
    fn conflicted(&self, key: &Key) {
        let _ = key;
    }

    /// Handles the end of an HPA that was deleted, or replaced by another HPA of its name.
    fn forgotten(&self, key: &Key, uid: &str) {
        let _ = (key, uid);
    }
}

/// One concluded sync.
#[derive(Debug, Clone, Copy)]
pub struct ConcludedSync<'a> {
    /// The HPA at the start of the sync.
    pub hpa: &'a HpaRecord,
    /// Time of the decision.
    pub at: Timestamp,
    /// Time of the conclusion.
    pub ended: Timestamp,
    /// Sum of all clock jumps before the decision, since the first sync of this process.
    pub set: SignedDuration,
    /// Metrics and pods that the sync read.
    pub answers: &'a Answers<'a>,
    /// The outcome of the scale write.
    pub outcome: &'a WriteOutcome,
    /// The conclusion.
    pub conclusion: &'a Conclusion,
    /// The effect of the scaling policy. `None` for an HPA without one.
    pub policy: Option<&'a PolicyEffect>,
    /// The rules of the scaling policy. `None` for an HPA without one.
    pub rules: Option<&'a Arc<Rules>>,
    /// What was read from the sources that the policy names.
    pub sources: &'a [SourceReading],
}

/// The observers, in the order of their calls.
pub type Observers = Vec<Arc<dyn Observer>>;
