//! What a dry run beside another controller adds to the syncs: those that a rescale by the other one calls for.

use std::fmt;
use std::sync::Arc;

use autoscaling::history::{Changes, History};
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, QueryError};
use autoscaling::spec::Spec;
use autoscaling::{Answers, Decision, Scale};
use jiff::Timestamp;

use super::Concluded;
use crate::store::HpaRecord;

/// Whoever compares this controller's decisions with what another one does. Asked and told within the sync: it must not
/// wait.
pub trait Beside: fmt::Debug + Send + Sync + 'static {
    /// Whether the next sync of an HPA is one of a target that has changed just now.
    fn before(&self, hpa: &HpaRecord) -> Option<Before>;

    /// The metrics as the other controller saw them a moment ago, where they have moved since; `None` if what was read
    /// will do.
    fn as_seen(
        &self,
        hpa: &HpaRecord,
        scale: &Scale,
        answers: &Answers<'_>,
        decision: &Decision,
    ) -> Option<Vec<Option<Result<Answer, QueryError>>>>;

    /// A sync was concluded.
    fn compared(&self, sync: &Compared<'_>);
}

/// A target as it was before another controller rescaled it. A sync that sees it so decides what this controller would
/// have done in the other one's place.
#[derive(Debug, Clone, PartialEq)]
pub struct Before {
    /// When the rescale was seen.
    pub seen: Timestamp,
    /// `spec.replicas` before it.
    pub from: i32,
    /// `spec.replicas` after it.
    pub to: i32,
    /// The pods when the rescale was seen; `None` if the selector is not known.
    pub pods: Option<Vec<Arc<Pod>>>,
}

/// A concluded sync, with what it was decided from.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// The sync.
    pub sync: &'a Concluded<'a>,
    /// The Scale that it saw; `None` if there was none to be had.
    pub scale: Option<&'a Scale>,
    /// What was remembered when it was decided.
    pub history: &'a History,
    /// The rescale that it is to be compared with.
    pub before: Option<&'a Before>,
}

impl Before {
    /// Remembers the other controller's rescale, as it does itself, in the place of an own one.
    pub(super) fn remember(&self, spec: &Spec, changes: &mut Changes) {
        if let Some(behavior) = &spec.behavior {
            changes.scale_event = Changes::rescaled(behavior, self.from, self.to, self.seen).scale_event;
        }
    }
}
