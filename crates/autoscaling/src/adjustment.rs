//! Entry points for rules that upstream lacks: a choice that replaces upstream's choice among the metrics, and a count
//! that replaces the result. A decision without such rules is upstream's.

use std::sync::Arc;

use jiff::Timestamp;

use crate::decision::{Decision, Verdict};
use crate::evaluation::{Evaluation, MetricResult};
use crate::explanation::{FailedMetric, MetricReading};
use crate::history::History;

/// The result of one evaluated metric.
#[derive(Debug, Clone, Copy)]
pub enum MetricOutcome<'a> {
    /// The metric yields a proposal.
    Valid(&'a MetricReading),
    /// The metric failed.
    Failed(&'a FailedMetric),
}

/// A proposal that replaces upstream's choice, which is the highest proposal of all metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The proposed count.
    pub replicas: i32,
    /// The index of the metric in the spec. `None` if the proposal comes from no metric.
    pub winner: Option<usize>,
    /// The origin of the proposal, for condition and event: `external metric queue(nil)`.
    pub name: Arc<str>,
}

impl Evaluation<'_> {
    /// The outcome of the metric at `index` in the spec. `None` if the metric was not evaluated.
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

    /// Computes the decision that follows from a choice. Failed metrics are reported as usual, but do not prevent
    /// the decision. Stabilization, rates and bounds apply to the chosen proposal. Without metrics, the decision
    /// is that of [`Evaluation::decide`].
    pub fn decide_by(mut self, choice: Choice, history: &History, now: Timestamp) -> Decision {
        self.choice = Some(choice);
        self.decide(history, now)
    }
}

impl Decision {
    /// Replaces the count of the decision. The recommendation, the explanation, the conditions about metrics
    /// and the events about failures do not change. `reason` appears in the event of a rescale. Has no effect
    /// without a Scale.
    pub fn replace_count(&mut self, to: i32, reason: impl Into<String>) {
        if self.verdict == Verdict::NoScale {
            return;
        }
        self.verdict =
            if to == self.current { Verdict::Keep } else { Verdict::Rescale { to, reason: reason.into() } };
    }

    /// The count that the decision applies. `None` if it computes none.
    pub fn count(&self) -> Option<i32> {
        match self.verdict {
            Verdict::NoScale | Verdict::NoCount(_) => None,
            Verdict::Disabled => Some(0),
            Verdict::Keep => Some(self.current),
            Verdict::Rescale { to, .. } => Some(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::failure::MetricFailureClass;
    use crate::query::{Answer, ExternalValue, QueryError};
    use crate::settings::Settings;
    use crate::spec::Spec;
    use crate::status::Status;
    use crate::{Answers, Hpa, Overlap, Scale, WriteOutcome, conclude, plan};

    fn external(name: &str) -> serde_json::Value {
        json!({"type": "External", "external": {
            "metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "10"},
        }})
    }

    /// Two metrics: `queue` proposes 8, `other` fails. The target has 4 replicas.
    fn decided(choice: Option<Choice>) -> Decision {
        let spec: Spec = serde_json::from_value(json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 10, "metrics": [external("queue"), external("other")],
        }))
        .unwrap();
        let (status, settings, now) = (Status::default(), Settings::default(), Timestamp::UNIX_EPOCH);
        let hpa = Hpa { namespace: "shop", name: "web", generation: None, spec: &spec, status: &status };
        let plan = plan(&hpa, Ok(Scale::new(4, 4, "app=web").unwrap()), |_| Overlap::None, &settings);
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
        assert_eq!(decided(choice(60)).count(), Some(8), "doubled at most, as by the reference");
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
