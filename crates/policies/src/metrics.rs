//! The metrics of a sync, as input of a policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::explanation::{FailedMetric, Measure, MetricReading, ProposalReason, Subject};
use autoscaling::failure::MetricFailureClass;
use autoscaling::{Evaluation, MetricOutcome};

use crate::spec::Cause;

/// A metric of an HPA in one sync.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricState {
    /// The identity in the history: type and subject, with a number if several metrics share both.
    pub key: Arc<str>,
    /// The name of the metric, as in `metric` of a fallback.
    pub name: Arc<str>,
    /// The name for sentences: `cpu of container app`.
    pub subject: Arc<str>,
    /// The name in conditions, if the metric has a proposal.
    pub label: Arc<str>,
    /// The result.
    pub outcome: Outcome,
    /// Whether the proposal is `status.replicas`, because an AverageValue target is within tolerance.
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
    /// The cause of a failure. The cause is [`Self::Empty`] if the API has no value for the metric or for any counted
    /// pod.
    pub fn new(class: Option<MetricFailureClass>) -> Self {
        match class {
            Some(MetricFailureClass::NoValues | MetricFailureClass::NoSamples) => Self::Empty,
            _ => Self::Error,
        }
    }
}

/// The metrics of an evaluation, in the order of the spec. Empty if the sync reads no metrics. A metric that was not
/// evaluated counts as failed.
pub fn states(evaluation: &Evaluation<'_>) -> Vec<MetricState> {
    let mut counts = BTreeMap::<String, usize>::new();
    (0..evaluation.metrics())
        .map(|index| {
            let outcome = evaluation.outcome(index);
            let mut state = match outcome {
                Some(MetricOutcome::Valid(reading)) => valid(reading),
                Some(MetricOutcome::Failed(failed)) => failure(failed),
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

fn failure(metric: &FailedMetric) -> MetricState {
    failed(&metric.subject, Cause::new(metric.class))
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
