//! The evaluation of an HPA's metrics, one at a time and in any order. A caller with many metrics can yield
//! between two metrics, and drop each answer after its evaluation.
//!
//! The memory for the results is bounded: beyond a maximum, pods are only counted.

use std::sync::Arc;

use jiff::Timestamp;

use crate::conclude::Decision;
use crate::explanation::{FailedMetric, LISTED_PODS, MetricReading};
use crate::history::History;
use crate::hpa::Hpa;
use crate::metric::{MetricFailure, Proposal, compute};
use crate::plan::{Case, Plan, PlannedMetric};
use crate::pod::Pod;
use crate::query::{Answer, QueryError};
use crate::replicas::{Calculator, Tolerance};
use crate::settings::Settings;
use crate::status::MetricStatus;

/// Maximum number of pods in the explanation of one decision, for all metrics together. Further pods are only counted.
const MAX_LISTED_PODS: usize = 20_000;

/// The metrics of one HPA, with the results so far. [`crate::decide()`] evaluates all metrics at once.
#[derive(Debug)]
pub struct Evaluation<'a> {
    pub(crate) hpa: Hpa<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) settings: &'a Settings,
    /// The results, indexed like the metrics of the spec.
    pub(crate) results: Vec<Option<MetricResult>>,
    /// The first failure in the order of the spec: the index of the metric, and the failure with its complete text.
    pub(crate) first_failure: Option<(usize, MetricFailure)>,
    pub(crate) choice: Option<Choice>,
    /// The number of pods that the explanation may still list.
    pods_left: usize,
}

/// A proposal that replaces upstream's choice, the highest proposal of all metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The proposed count.
    pub replicas: i32,
    /// The index of the metric in the spec. `None` if the proposal comes from no metric.
    pub winner: Option<usize>,
    /// The origin of the proposal in the condition and the event: `external metric queue(nil)`.
    pub name: Arc<str>,
}

/// The result of one evaluated metric.
#[derive(Debug, Clone, Copy)]
pub enum MetricOutcome<'a> {
    /// The metric yielded a proposal.
    Valid(&'a MetricReading),
    /// The metric failed.
    Failed(&'a FailedMetric),
}

/// The result of one metric, without the pods beyond [`MAX_LISTED_PODS`].
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the explanation stores readings by value, too")]
pub(crate) enum MetricResult {
    Valid(MetricStatus, MetricReading),
    /// The reason of the event, whether the spec is invalid, and the failure.
    Failed(&'static str, bool, FailedMetric),
}

impl<'a> Evaluation<'a> {
    /// Creates an evaluation of the metrics that the plan reads, without results.
    pub fn new(hpa: &Hpa<'a>, plan: &'a Plan, settings: &'a Settings) -> Self {
        let mut evaluation = Self {
            hpa: *hpa,
            plan,
            settings,
            results: Vec::new(),
            first_failure: None,
            choice: None,
            pods_left: MAX_LISTED_PODS,
        };
        evaluation.results.resize_with(evaluation.planned().len(), || None);
        evaluation
    }

    /// The number of metrics to evaluate: all metrics of the spec, or 0 if the plan reads no metrics.
    pub fn metrics(&self) -> usize {
        self.results.len()
    }

    /// Whether the metric at `index` in the spec was evaluated.
    pub fn is_evaluated(&self, index: usize) -> bool {
        self.results.get(index).is_some_and(Option::is_some)
    }

    /// Returns the outcome of the metric at `index` in the spec. `None` if the metric was not evaluated.
    pub fn outcome(&self, index: usize) -> Option<MetricOutcome<'_>> {
        Some(match self.results.get(index)?.as_ref()? {
            MetricResult::Valid(_, reading) => MetricOutcome::Valid(reading),
            MetricResult::Failed(_, _, failed) => MetricOutcome::Failed(failed),
        })
    }

    /// The current count of the Scale. `None` without a Scale.
    pub fn current(&self) -> Option<i32> {
        self.plan.scale().map(|scale| scale.replicas)
    }

    /// Evaluates the metric at `index` in the spec. `answer` is the result of its query, or `None` if the metric has no
    /// query. `pods` contains the pods that the Scale's selector matches, sorted by name. Does nothing if the plan
    /// reads no metrics.
    pub fn evaluate(
        &mut self,
        index: usize,
        answer: Option<&Result<Answer, QueryError>>,
        pods: &[Arc<Pod>],
        now: Timestamp,
    ) {
        let (hpa, settings) = (self.hpa, self.settings);
        let (Some(scale), Some(planned), Some(metric)) =
            (&self.plan.scale, self.planned().get(index), hpa.spec.metrics.get(index))
        else {
            return;
        };
        let calculator = Calculator {
            current: scale.replicas,
            status_replicas: scale.status_replicas,
            pods,
            tolerance: Tolerance::new(hpa.spec.behavior.as_ref(), settings),
            settings,
            now,
        };
        let result = match compute(&hpa, metric, planned, answer, &calculator, settings) {
            Ok(Proposal { status, mut reading }) => {
                self.condense(&mut reading);
                MetricResult::Valid(status, reading)
            }
            Err(failure) => {
                let failed = FailedMetric {
                    subject: metric.subject(hpa.namespace),
                    reason: failure.reason.into(),
                    class: Some(failure.class),
                    error: failure.error.as_str().into(),
                };
                let result = MetricResult::Failed(failure.reason, failure.is_spec, failed);
                if self.first_failure.as_ref().is_none_or(|(first, _)| index <= *first) {
                    self.first_failure = Some((index, failure));
                }
                result
            }
        };
        if let Some(slot) = self.results.get_mut(index) {
            *slot = Some(result);
        }
    }

    /// Computes the decision. Metrics that were not evaluated fail.
    pub fn decide(mut self, history: &History, now: Timestamp) -> Decision {
        for index in 0..self.results.len() {
            if !self.is_evaluated(index) {
                self.evaluate(index, None, &[], now);
            }
        }
        Decision::new(self, history, now)
    }

    /// Computes the decision that follows from a choice, for rules that upstream lacks. Failed metrics are reported as
    /// usual, but do not prevent the decision. Stabilization, rates and bounds apply to the chosen proposal. If the
    /// plan reads no metrics, the choice has no effect.
    pub fn decide_by(mut self, choice: Choice, history: &History, now: Timestamp) -> Decision {
        self.choice = Some(choice);
        self.decide(history, now)
    }

    fn planned(&self) -> &'a [PlannedMetric] {
        match &self.plan.case {
            Case::Metrics(planned) => planned,
            _ => &[],
        }
    }

    /// If the pods exceed the number that may still be listed, lists at most [`LISTED_PODS`] of each group, or none,
    /// and counts the others.
    fn condense(&mut self, reading: &mut MetricReading) {
        for keep in [LISTED_PODS, 0] {
            if reading.pods.len() > self.pods_left {
                (reading.pods, reading.unlisted) = reading.condensed_pods(keep);
            }
        }
        reading.pods.shrink_to_fit();
        self.pods_left = self.pods_left.saturating_sub(reading.pods.len());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::conclude::Verdict;
    use crate::failure::MetricFailureClass;
    use crate::query::ExternalValue;
    use crate::spec::Spec;
    use crate::status::Status;
    use crate::{Answers, Hpa, Overlap, Scale, WriteOutcome, conclude, plan};

    fn external(name: &str) -> serde_json::Value {
        json!({"type": "External", "external": {
            "metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "10"},
        }})
    }

    /// The decision for two metrics and 4 current replicas: `queue` proposes 8, and `other` fails.
    fn decided(choice: Option<Choice>) -> Decision {
        let spec: Spec = serde_json::from_value(json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 10, "metrics": [external("queue"), external("other")],
        }))
        .unwrap();
        let (status, settings, now) = (Status::default(), Settings::default(), Timestamp::UNIX_EPOCH);
        let hpa = Hpa { namespace: "shop", name: "web", generation: None, spec: &spec, status: &status };
        let plan = plan(
            &hpa,
            Ok(Scale::new(4, 4, "app=web", crate::settings::Version::default()).unwrap()),
            |_| Overlap::None,
            &settings,
        );
        let value = ExternalValue { value: "80".parse().unwrap(), timestamp: Some(now) };
        let failed = QueryError::new(MetricFailureClass::Other, "no");
        let answers = Answers {
            metrics: vec![Some(Ok(Answer::External([value].into()))), Some(Err(failed))],
            pods: &[],
        };
        let mut evaluation = Evaluation::new(&hpa, &plan, &settings);
        for (index, answer) in answers.metrics.iter().enumerate() {
            evaluation.evaluate(index, answer.as_ref(), &[], now);
        }
        assert!(
            matches!(evaluation.outcome(0), Some(MetricOutcome::Valid(reading)) if reading.proposal == 8)
        );
        assert!(matches!(evaluation.outcome(1), Some(MetricOutcome::Failed(_))));
        assert!(evaluation.outcome(2).is_none());
        let mut decision = match choice {
            Some(choice) => evaluation.decide_by(choice, &History::default(), now),
            None => evaluation.decide(&History::default(), now),
        };
        let count = decision.count();
        decision.replace_count(count.unwrap_or(4), "unchanged");
        assert_eq!(decision.count(), Some(count.unwrap_or(4)));
        let concluded = conclude(&hpa, decision.clone(), &WriteOutcome::NotNeeded, &settings, now);
        assert_eq!(concluded.desired, decision.count());
        decision
    }

    #[test]
    fn choice_replaces_the_highest_proposal_and_passes_the_bounds() {
        assert_eq!(decided(None).count(), Some(8));
        let choice = |replicas| Some(Choice { replicas, winner: None, name: "the fallback".into() });
        assert_eq!(decided(choice(6)).count(), Some(6));
        assert_eq!(decided(choice(60)).count(), Some(8), "at most doubled, as in upstream");
        assert_eq!(
            decided(choice(2)).count(),
            Some(4),
            "the downscale window holds the first recommendation"
        );
        assert_eq!(decided(choice(6)).explanation().failed_count(), 1);
    }

    #[test]
    fn replaced_count_keeps_the_recommendation_and_the_explanation() {
        let mut decision = decided(None);
        let changes = decision.changes.clone();
        decision.replace_count(4, "paused");
        assert_eq!((decision.verdict(), decision.explanation().desired), (&Verdict::Keep, Some(8)));
        assert_eq!(decision.changes, changes);
        decision.replace_count(5, "pinned");
        assert_eq!(*decision.verdict(), Verdict::Rescale { to: 5, reason: "pinned".to_owned() });
    }
}
