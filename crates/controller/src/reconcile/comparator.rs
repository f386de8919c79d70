//! The interface of shadow mode to the syncs.

use std::fmt;
use std::sync::Arc;

use autoscaling::history::{Changes, History};
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, QueryError};
use autoscaling::spec::Spec;
use autoscaling::{Answers, Decision, Scale};
use jiff::Timestamp;

use super::ConcludedSync;
use crate::store::{HpaRecord, Key};

/// Compares this controller's decisions with those of another controller. The methods run within the sync and
/// must not block.
pub trait ShadowComparator: fmt::Debug + Send + Sync + 'static {
    /// Whether another controller acts on an HPA, so that its syncs are compared.
    fn compares(&self, key: &Key) -> bool;

    /// Returns the foreign rescale to compare with the next sync of an HPA, if there is one.
    fn before(&self, hpa: &HpaRecord) -> Option<ForeignRescale>;

    /// Returns the metrics as the other controller just read them. `None` if the sync uses the metrics that
    /// it read.
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

/// A target before another controller's rescale. A sync with this state decides what this controller would
/// have done in place of the other.
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
    /// Records the other controller's rescale in place of our own, as the other controller does itself.
    pub(super) fn remember(&self, spec: &Spec, changes: &mut Changes) {
        if let Some(behavior) = &spec.behavior {
            changes.scale_event = Changes::rescaled(behavior, self.from, self.to, self.seen).scale_event;
        }
    }
}
