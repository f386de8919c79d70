//! Interfaces for observers of concluded syncs and of the watch, and for the comparison in shadow mode. Observers are,
//! for example, the record of decisions, a simulation, and `why`.

use std::fmt;
use std::sync::Arc;

use autoscaling::history::{Changes, History};
use autoscaling::{Answers, Conclusion, Decision, Plan, Scale, WriteOutcome};
use jiff::{SignedDuration, Timestamp};

use super::sources::SourceReading;
use crate::store::{HpaRecord, Key};
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, QueryError};
use autoscaling::spec::Spec;
use policies::resolve::Rules;
use policies::steps::PolicyEffect;

/// Observes every concluded sync before its status is written, and the HPAs from the watch. The methods must not block.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Handles a concluded sync.
    fn concluded(&self, sync: &ConcludedSync<'_>);

    /// Handles the same sync with its plan and its history, right after [`Self::concluded`]. An observer that replays
    /// syncs needs these inputs.
    fn evaluated(&self, sync: &ConcludedSync<'_>, plan: &Plan, history: &History) {
        let _ = (sync, plan, history);
    }

    /// Handles an HPA from the watch or a list. `old` is the previous version of the same object, or `None` for a new
    /// object. Called in the order of the watch, after the update of the store and before any other reaction.
    fn seen(&self, old: Option<&HpaRecord>, new: &HpaRecord) {
        let _ = (old, new);
    }

    /// Handles a status write that failed because the HPA has changed since its read.
    fn conflicted(&self, key: &Key) {
        let _ = key;
    }

    /// Handles the deletion of an HPA, or its replacement by another HPA with the same name.
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
    /// Sum of all clock jumps before the decision, since the first reading of the clock.
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
    /// The readings of the sources that the policy names.
    pub sources: &'a [SourceReading],
}

/// The observers, in the order of their calls.
pub type Observers = Vec<Arc<dyn Observer>>;

/// Compares this controller's decisions with those of another controller. The methods run within the sync and must not
/// block.
pub trait ShadowComparator: fmt::Debug + Send + Sync + 'static {
    /// Returns whether another controller acts on an HPA, so that the syncs of the HPA are compared.
    fn compares(&self, key: &Key) -> bool;

    /// Returns the foreign rescale to compare with the next sync of an HPA, if there is one.
    fn before(&self, hpa: &HpaRecord) -> Option<ForeignRescale>;

    /// Returns the answers from which the other controller just decided, as its status shows them. `None` if the sync
    /// decides from its own answers.
    fn foreign_metrics(
        &self,
        hpa: &HpaRecord,
        scale: &Scale,
        answers: &Answers<'_>,
        decision: &Decision,
    ) -> Option<Vec<Option<Result<Answer, QueryError>>>>;

    /// Handles a concluded sync.
    fn compared(&self, sync: &ComparedSync<'_>);
}

/// A rescale by another controller, with the state of the target before it. From that state, a sync makes the decision
/// that this controller would have made instead.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignRescale {
    /// Time of the observation of the rescale.
    pub seen: Timestamp,
    /// `spec.replicas` before the rescale.
    pub from: i32,
    /// `spec.replicas` after the rescale.
    pub to: i32,
    /// The pods at the time of the observation. `None` if the selector is not known.
    pub pods: Option<Vec<Arc<Pod>>>,
}

/// A concluded sync with its inputs.
#[derive(Debug, Clone, Copy)]
pub struct ComparedSync<'a> {
    /// The sync.
    pub sync: &'a ConcludedSync<'a>,
    /// The Scale that the sync used. `None` if it could not be read.
    pub scale: Option<&'a Scale>,
    /// The history that the decision used.
    pub history: &'a History,
    /// The rescale to compare with the sync.
    pub before: Option<&'a ForeignRescale>,
}

impl ForeignRescale {
    /// Replaces the scale event of this controller's decision with the other controller's rescale, because only that
    /// rescale was written.
    pub(super) fn remember(&self, spec: &Spec, changes: &mut Changes) {
        if let Some(behavior) = &spec.behavior {
            changes.scale_event = Changes::rescaled(behavior, self.from, self.to, self.seen).scale_event;
        }
    }
}
