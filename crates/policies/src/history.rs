//! The history of metrics that a policy needs: the start of the current failure of each metric, its last proposal, and
//! the time of its last value other than 0. The caller stores this history with the history of the HPA.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::metrics::{MetricState, Outcome};
use crate::spec::{Cause, Fallback};

/// Metrics that drop to 0 within this time count as dropping at once. Metrics of different adapters are not read at the
/// same time.
const AT_ONCE: SignedDuration = SignedDuration::from_mins(2);

/// The metrics of earlier syncs. Bounded by the number of metrics of the HPA.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyHistory {
    /// By [`MetricState::key`].
    pub metrics: BTreeMap<Arc<str>, MetricHistory>,
    /// The time at which all metrics dropped to 0 at once, until one of them has another value.
    pub zero_since: Option<Timestamp>,
}

/// The history of one metric.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricHistory {
    /// The name of the metric.
    pub name: Arc<str>,
    /// The time of the first failure after the last value, and the cause of the last failure. `None` if the metric has
    /// a value.
    pub failing: Option<(Timestamp, Cause)>,
    /// The last proposal.
    pub last_proposal: Option<i32>,
    /// The time of the last value other than 0.
    pub last_nonzero: Option<Timestamp>,
}

impl PolicyHistory {
    /// The history after a sync that evaluated these metrics. Metrics that the HPA no longer has are dropped.
    #[must_use]
    pub fn observe(&self, states: &[MetricState], now: Timestamp) -> Self {
        let mut metrics = BTreeMap::new();
        for state in states {
            let mut metric = self.metrics.get(&state.key).cloned().unwrap_or_default();
            metric.name = Arc::clone(&state.name);
            match state.outcome {
                Outcome::Proposal { replicas, is_zero } => {
                    metric.failing = None;
                    metric.last_proposal = Some(replicas);
                    if !is_zero {
                        metric.last_nonzero = Some(now);
                    }
                }
                Outcome::Failed(cause) => {
                    // A clock that was set back must not prolong the wait.
                    let since = metric.failing.map_or(now, |(since, _)| since.min(now));
                    metric.failing = Some((since, cause));
                }
            }
            metrics.insert(Arc::clone(&state.key), metric);
        }
        let zero_since = self.zero(states, now);
        Self { metrics, zero_since }
    }

    /// Moves all times by the size of a wall-clock jump.
    pub fn shift(&mut self, by: SignedDuration) {
        let moved = |time: Timestamp| time.saturating_add(by).unwrap_or(time);
        for metric in self.metrics.values_mut() {
            metric.failing = metric.failing.map(|(since, cause)| (moved(since), cause));
            metric.last_nonzero = metric.last_nonzero.map(moved);
        }
        self.zero_since = self.zero_since.map(moved);
    }

    fn zero(&self, states: &[MetricState], now: Timestamp) -> Option<Timestamp> {
        let is = |state: &MetricState, zero: bool| matches!(state.outcome, Outcome::Proposal { is_zero, .. } if is_zero == zero);
        if states.iter().any(|state| is(state, false)) {
            return None;
        }
        if let Some(since) = self.zero_since {
            return Some(since.min(now));
        }
        let dropped = |state: &MetricState| {
            let last = self.metrics.get(&state.key).and_then(|metric| metric.last_nonzero);
            is(state, true) && last.is_some_and(|last| now.duration_since(last) <= AT_ONCE)
        };
        (!states.is_empty() && states.iter().all(dropped)).then_some(now)
    }

    /// The next time at which a fallback starts to apply to a metric that fails.
    pub fn next_edge(&self, fallbacks: &[Fallback], now: Timestamp) -> Option<Timestamp> {
        let starts = self.metrics.values().filter_map(|metric| {
            let (since, cause) = metric.failing?;
            let fallback = matching(fallbacks, &metric.name, cause)?;
            since.checked_add(SignedDuration::from_secs(fallback.failure_duration_seconds.into())).ok()
        });
        starts.filter(|start| *start > now).min()
    }
}

/// The fallback of a metric for a cause: the first one with its name, otherwise the first one without a name.
pub(crate) fn matching<'a>(fallbacks: &'a [Fallback], metric: &str, cause: Cause) -> Option<&'a Fallback> {
    let of_cause = || fallbacks.iter().filter(|fallback| fallback.when == cause);
    let named = of_cause().find(|fallback| fallback.metric.as_deref() == Some(metric));
    named.or_else(|| of_cause().find(|fallback| fallback.metric.is_none()))
}
