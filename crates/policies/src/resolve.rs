//! The rules of a policy at a time. The rules are equal for all HPAs with the same policy, and do not change before the
//! next edge.

use std::sync::Arc;

use jiff::Timestamp;

use crate::bounds::ActiveBounds;
use crate::history::PolicyHistory;
use crate::merge::Policy;
use crate::spec::{Mode, ModeRule};

/// The rules of a policy at a time.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The policy.
    pub policy: Arc<Policy>,
    /// The mode.
    pub mode: ActiveMode,
    /// Floor and ceiling of the schedules.
    pub bounds: ActiveBounds,
    /// The time for which the policy was resolved.
    pub at: Timestamp,
    /// The next time at which the rules may change. `None` if they never change.
    pub next_edge: Option<Timestamp>,
}

/// The mode at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActiveMode {
    /// The mode. `None` if it is invalid, which holds the count.
    pub mode: Option<Mode>,
    /// The count of [`Mode::Pinned`].
    pub replicas: i32,
    /// The end of the mode.
    pub until: Option<Timestamp>,
}

impl ActiveMode {
    /// The mode without a policy.
    pub const AUTO: Self = Self { mode: Some(Mode::Auto), replicas: 0, until: None };
}

/// Resolves a policy for a time.
pub fn resolve(policy: &Arc<Policy>, now: Timestamp) -> Rules {
    let rule = policy.spec.mode.filter(|rule| rule.until.is_none_or(|until| now < until));
    let mode = rule.map_or(ActiveMode::AUTO, |ModeRule { mode, replicas, until }| ActiveMode {
        mode,
        replicas: replicas.unwrap_or(0),
        until,
    });
    let (bounds, edge) = ActiveBounds::new(policy.spec.schedules.as_deref().unwrap_or_default(), now);
    let next_edge = mode.until.into_iter().chain(edge).min();
    Rules { policy: Arc::clone(policy), mode, bounds, at: now, next_edge }
}

impl Rules {
    /// Whether the rules apply at `now`. If not, call [`resolve`] again.
    pub fn apply_at(&self, now: Timestamp) -> bool {
        self.at <= now && self.next_edge.is_none_or(|edge| now < edge)
    }

    /// The time from which the next sync may decide differently: an edge of a schedule, the end of a mode, or the end
    /// of a fallback's duration for a metric that fails.
    pub fn next_edge(&self, history: &PolicyHistory, now: Timestamp) -> Option<Timestamp> {
        let fallbacks = self.policy.spec.fallback.as_deref().unwrap_or_default();
        self.next_edge.into_iter().chain(history.next_edge(fallbacks, now)).min()
    }
}
