//! The metrics of a sync and of earlier syncs, as inputs of a policy. The caller stores the history of metrics with the
//! history of the HPA.

use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::explanation::{Measure, MetricReading, ProposalReason, Subject};
use autoscaling::failure::MetricFailureClass;
use autoscaling::{Evaluation, MetricOutcome};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::spec::{Cause, Fallback};

/// A metric of an HPA in one sync.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricState {
    /// The key in the history: the type and the short name, and a number if an earlier metric has the same type and
    /// name.
    pub key: Arc<str>,
    /// The name of the metric in the spec.
    pub name: Arc<str>,
    /// The short name for sentences: `cpu of container app`.
    pub subject: Arc<str>,
    /// The name in conditions. Empty for a failed metric.
    pub label: Arc<str>,
    /// The proposal, or the cause of the failure.
    pub outcome: Outcome,
    /// Whether the proposal is `status.replicas` of the Scale, because an AverageValue target is within tolerance.
    pub keeps_status_replicas: bool,
    /// Whether `burst` has replaced the proposal of the reference.
    pub is_replaced: bool,
}

/// The result of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The metric has a value.
    Proposal {
        /// The proposed count.
        replicas: i32,
        /// Whether the value is 0.
        is_zero: bool,
    },
    /// The metric has no value.
    Failed(Cause),
}

impl Cause {
    /// The cause of a failure of a class. It is [`Self::Empty`] if the metrics API returned no value, or no usable
    /// sample.
    pub fn new(class: Option<MetricFailureClass>) -> Self {
        match class {
            Some(MetricFailureClass::NoValues | MetricFailureClass::NoSamples) => Self::Empty,
            _ => Self::Error,
        }
    }
}

/// Returns the metrics of an evaluation, in the order of the spec. Empty if the sync reads no metrics. A metric that
/// was not evaluated has failed.
pub fn states(evaluation: &Evaluation<'_>) -> Vec<MetricState> {
    let mut counts = BTreeMap::<String, usize>::new();
    (0..evaluation.metrics())
        .map(|index| {
            let outcome = evaluation.outcome(index);
            let mut state = match outcome {
                Some(MetricOutcome::Valid(reading)) => valid(reading),
                Some(MetricOutcome::Failed(metric)) => failed(&metric.subject, Cause::new(metric.class)),
                None => failed(&Subject::default(), Cause::Error),
            };
            let count = counts.entry(state.key.to_string()).or_default();
            *count += 1;
            if *count > 1 {
                state.key = format!("{}#{count}", state.key).into();
            }
            state
        })
        .collect()
}

fn valid(reading: &MetricReading) -> MetricState {
    let value = match reading.value {
        Measure::Percent(percent) => percent.into(),
        Measure::Milli(milli) | Measure::MilliPerPod(milli) => milli,
    };
    let is_single = matches!(&*reading.subject.kind, "Object" | "External");
    MetricState {
        label: Arc::clone(&reading.name),
        outcome: Outcome::Proposal {
            replicas: reading.proposal,
            is_zero: reading.total.unwrap_or(value) == 0,
        },
        keeps_status_replicas: is_single
            && matches!(reading.target, Measure::MilliPerPod(_))
            && reading.why == ProposalReason::WithinTolerance,
        ..failed(&reading.subject, Cause::Error)
    }
}

fn failed(subject: &Subject, cause: Cause) -> MetricState {
    let text = subject.to_string();
    MetricState {
        key: format!("{}/{text}", subject.kind).into(),
        name: Arc::clone(&subject.name),
        subject: text.into(),
        label: Arc::default(),
        outcome: Outcome::Failed(cause),
        keeps_status_replicas: false,
        is_replaced: false,
    }
}

/// All metrics drop to 0 at once if each metric had a value other than 0 within this time, or in the last sync in which
/// any metric had one. Different adapters read their metrics at different times, and a sync may be late.
const AT_ONCE: SignedDuration = SignedDuration::from_mins(2);

/// The history of an HPA's metrics, with one entry per metric of the last sync.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyHistory {
    /// The history of each metric, by [`MetricState::key`].
    pub metrics: BTreeMap<Arc<str>, MetricHistory>,
    /// The time at which all metrics dropped to 0 at once. `None` after any metric has another value.
    pub zero_since: Option<Timestamp>,
}

/// The history of one metric.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricHistory {
    /// The name of the metric in the spec.
    pub name: Arc<str>,
    /// The time of the first failure after the last value, and the cause of the last failure. `None` if the metric had
    /// a value in the last sync.
    pub failing: Option<(Timestamp, Cause)>,
    /// The last proposal.
    pub last_proposal: Option<i32>,
    /// The time of the last value other than 0.
    pub last_nonzero: Option<Timestamp>,
}

impl PolicyHistory {
    /// Returns the history after a sync with these metrics, without the metrics that the HPA no longer has.
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
                    // After the clock is set back, the failure duration must not become longer.
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
        let latest = self.metrics.values().filter_map(|metric| metric.last_nonzero).max();
        let dropped = |state: &MetricState| {
            let last = self.metrics.get(&state.key).and_then(|metric| metric.last_nonzero);
            let at_once =
                last.is_some_and(|last| now.duration_since(last) <= AT_ONCE || Some(last) == latest);
            is(state, true) && at_once
        };
        (!states.is_empty() && states.iter().all(dropped)).then_some(now)
    }

    /// The next time from which a fallback applies to a failing metric.
    pub fn next_edge(&self, fallbacks: &[Fallback], now: Timestamp) -> Option<Timestamp> {
        let starts = self.metrics.values().filter_map(|metric| {
            let (since, cause) = metric.failing?;
            let fallback = matching(fallbacks, &metric.name, cause)?;
            since.checked_add(SignedDuration::from_secs(fallback.failure_duration_seconds.into())).ok()
        });
        starts.filter(|start| *start > now).min()
    }
}

/// Returns the fallback of a metric for a cause: the first entry for this metric, otherwise the first entry for all
/// metrics.
pub(crate) fn matching<'a>(fallbacks: &'a [Fallback], metric: &str, cause: Cause) -> Option<&'a Fallback> {
    let of_cause = || fallbacks.iter().filter(|fallback| fallback.when == cause);
    let named = of_cause().find(|fallback| fallback.metric.as_deref() == Some(metric));
    named.or_else(|| of_cause().find(|fallback| fallback.metric.is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn average_of_a_single_value_within_tolerance_keeps_the_status() {
        let state = |kind: &str, target: serde_json::Value, why: &str| {
            let reading: MetricReading = serde_json::from_value(serde_json::json!({
                "subject": {"type": kind, "name": "queue"}, "name": "external metric queue", "target": target,
                "value": {"milli": 5_000}, "ratio": 1.0, "lowestTolerated": 0.9, "highestTolerated": 1.1,
                "corrected": null, "why": why, "proposal": 3,
            }))
            .unwrap();
            valid(&reading)
        };
        let average = || serde_json::json!({"milliPerPod": 5_000});
        for kind in ["External", "Object"] {
            assert!(state(kind, average(), "withinTolerance").keeps_status_replicas, "{kind}");
        }
        assert!(!state("Pods", average(), "withinTolerance").keeps_status_replicas);
        assert!(
            !state("External", serde_json::json!({"milli": 5_000}), "withinTolerance").keeps_status_replicas
        );
        assert!(!state("External", average(), "perPod").keeps_status_replicas);
        let state = state("External", average(), "withinTolerance");
        assert_eq!((&*state.label, &*state.name), ("external metric queue", "queue"));
        assert_eq!(state.outcome, Outcome::Proposal { replicas: 3, is_zero: false });
    }
}
