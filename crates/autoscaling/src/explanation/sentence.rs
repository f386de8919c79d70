//! The text of a decision in one sentence, and the step that limited its count.

use std::cmp::Ordering;

use jiff::Timestamp;
use serde::Serialize;

use super::{
    DecisionPath, Explanation, FailedMetric, LimitStep, MetricExplanation, MetricReading, PodGroup,
    ProposalReason, Span, StabilizationStep, amount, milli,
};
use crate::failure::{MetricFailureClass, ScaleFailureClass};
use crate::history::Direction;
use crate::spec::SelectPolicy;
use crate::status::Limit;

/// The last step that limited the count of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LimitingStep {
    /// No count could be computed: the Scale, its selector or a metric is unavailable, or other HPAs control the same
    /// pods.
    Failure,
    /// The ratio is within tolerance.
    Tolerance,
    /// The corrected ratio, with assumed values for missing or unready pods, prevented a change.
    MissingPods,
    /// The stabilization window for scaling up.
    ScaleUpWindow,
    /// The stabilization window for scaling down.
    ScaleDownWindow,
    /// The policies for scaling up.
    ScaleUpPolicy,
    /// The policies for scaling down.
    ScaleDownPolicy,
    /// `maxReplicas`.
    Maximum,
    /// `minReplicas`.
    Minimum,
}

impl LimitingStep {
    /// The name in logs and JSON, in camelCase.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Tolerance => "tolerance",
            Self::MissingPods => "missingPods",
            Self::ScaleUpWindow => "scaleUpWindow",
            Self::ScaleDownWindow => "scaleDownWindow",
            Self::ScaleUpPolicy => "scaleUpPolicy",
            Self::ScaleDownPolicy => "scaleDownPolicy",
            Self::Maximum => "maximum",
            Self::Minimum => "minimum",
        }
    }
}

impl Explanation {
    /// The last step that limited the count. `None` if no step limited the count, if autoscaling is disabled, or if the
    /// HPA was deleted.
    pub fn limiting_step(&self) -> Option<LimitingStep> {
        match self.path {
            DecisionPath::AboveMax => return Some(LimitingStep::Maximum),
            DecisionPath::BelowMin => return Some(LimitingStep::Minimum),
            DecisionPath::Disabled | DecisionPath::Deleted => return None,
            DecisionPath::NoScale | DecisionPath::NoSelector | DecisionPath::Ambiguous => {
                return Some(LimitingStep::Failure);
            }
            DecisionPath::Metrics if self.desired.is_none() => return Some(LimitingStep::Failure),
            DecisionPath::Metrics => {}
        }
        if self.lifted_to_min.is_some() {
            return Some(LimitingStep::Minimum);
        }
        if let Some(limit) = self.limit.as_ref().filter(|limit| limit.after != limit.before) {
            match limit.limit {
                Limit::WithinRange => {}
                Limit::ScaleUpRate => return Some(LimitingStep::ScaleUpPolicy),
                Limit::ScaleDownRate => return Some(LimitingStep::ScaleDownPolicy),
                Limit::Maximum => return Some(LimitingStep::Maximum),
                Limit::Minimum => return Some(LimitingStep::Minimum),
            }
        }
        if let Some(step) = self.stabilization.as_ref().filter(|step| step.after != step.before) {
            return Some(match self.bound_beyond(step) {
                Some(bound) => bound,
                None if step.after > step.before => LimitingStep::ScaleDownWindow,
                None => LimitingStep::ScaleUpWindow,
            });
        }
        match self.winning_metric().and_then(MetricExplanation::reading)?.why {
            ProposalReason::WithinTolerance => Some(LimitingStep::Tolerance),
            ProposalReason::CorrectedWithinTolerance
            | ProposalReason::DirectionReversed
            | ProposalReason::CountReversed => Some(LimitingStep::MissingPods),
            ProposalReason::Ratio
            | ProposalReason::CorrectedRatio
            | ProposalReason::PerPod
            | ProposalReason::FromZero => None,
        }
    }

    /// Prints the decision in one sentence without a full stop. `now` is the time of the decision.
    ///
    /// Example: `stays at 5: cpu asks for 3, but the 5 min scale-down window still holds 5, for another 2 min 10 s`.
    pub fn sentence(&self, now: Timestamp) -> String {
        let failure = self.failure.as_deref().unwrap_or("the cause is unknown");
        let (current, min, max) = (self.current, self.min, self.max);
        match self.path {
            DecisionPath::NoScale if self.scale_failure() == ScaleFailureClass::TooManyMetrics => {
                format!("does nothing: {failure}")
            }
            DecisionPath::NoScale => format!("does nothing: the target's scale cannot be read: {failure}"),
            DecisionPath::Disabled => {
                "stays at 0: the target was set to 0 replicas, which disables autoscaling".to_owned()
            }
            DecisionPath::AboveMax => format!("goes from {current} to {max}: maxReplicas is {max}"),
            DecisionPath::BelowMin => format!("goes from {current} to {min}: minReplicas is {min}"),
            DecisionPath::NoSelector => format!("stays at {current}: the target's scale has no selector"),
            DecisionPath::Ambiguous => format!("stays at {current}: {failure}"),
            DecisionPath::Deleted => "was deleted during the sync".to_owned(),
            DecisionPath::Metrics => match self.desired {
                None => format!("stays at {current}: {}", self.failed_metrics()),
                Some(desired) if desired == current => format!("stays at {current}: {}", self.reasons(now)),
                Some(desired) => format!("goes from {current} to {desired}: {}", self.reasons(now)),
            },
        }
    }

    fn failed_metrics(&self) -> String {
        let failed = self.metrics.iter().find_map(|metric| match metric {
            MetricExplanation::Failed(failed) => Some(failed),
            MetricExplanation::Valid(_) => None,
        });
        let Some(failed) = failed else {
            return "it has no metrics".to_owned();
        };
        let (subject, error) = (&failed.subject, failed.cause());
        match self
            .metrics
            .iter()
            .filter_map(MetricExplanation::reading)
            .max_by_key(|reading| reading.proposal)
        {
            None => format!("{subject} cannot be read: {error}"),
            Some(best) => format!(
                "{} asks for {}, but nothing is scaled down while {subject} cannot be read: {error}",
                best.subject, best.proposal
            ),
        }
    }

    /// The proposal of the winning metric, followed by its limits. Without limits, the value of the metric and its
    /// target.
    fn reasons(&self, now: Timestamp) -> String {
        let mut obstacles = Vec::new();
        if let Some(step) = self.stabilization.as_ref().filter(|step| step.after != step.before) {
            obstacles.extend(match self.bound_beyond(step) {
                None => Some(window(step, now)),
                Some(LimitingStep::Minimum) => Some(format!("minReplicas is {}", self.min)),
                // The limit step below mentions `maxReplicas`.
                Some(_) => None,
            });
        }
        if let Some(limit) = self.limit.as_ref().filter(|limit| limit.after != limit.before) {
            obstacles.push(self.bound(limit, now));
        }
        if let Some(min) = self.lifted_to_min {
            obstacles.push(format!("minReplicas is {min}"));
        }
        let reading = self.winning_metric().and_then(MetricExplanation::reading);
        if obstacles.is_empty() {
            return reading.map(|reading| self.unlimited(reading)).unwrap_or_default();
        }
        let proposal = reading.map(proposal_text).unwrap_or_default();
        format!("{proposal}, but {}", obstacles.join(", and "))
    }

    /// The value of the winning metric and its target, for a proposal without limits.
    fn unlimited(&self, reading: &MetricReading) -> String {
        let subject = &reading.subject;
        if !reading.why.gives_count() {
            return proposal_text(reading);
        }
        let target = amount(reading.target, subject);
        let value = match reading.total {
            // There is no value per pod at zero replicas.
            Some(total) if self.status_replicas == 0 => format!("{} in total", milli(total, subject)),
            _ => amount(reading.value, subject),
        };
        let proposal = reading.proposal;
        if self.current == 0 {
            return format!("{subject} is at {value}, its target is {target}");
        }
        match proposal.cmp(&self.current) {
            Ordering::Greater if reading.ratio > 1.0 => {
                format!("{subject} is at {value}, above its target of {target}")
            }
            Ordering::Less if reading.ratio < 1.0 => {
                format!("{subject} is at {value}, below its target of {target}")
            }
            Ordering::Equal => {
                format!("{subject} is at {value}, which still requires {proposal} for its target of {target}")
            }
            // The ratio and the proposal have different directions, because the number of counted pods differs from the
            // current count.
            _ => match reading.counted() {
                Some(counted) => format!(
                    "{subject} is at {value} of its target of {target}, but over {counted} pods, which requires {proposal}"
                ),
                None => {
                    format!("{subject} is at {value} of its target of {target}, which requires {proposal}")
                }
            },
        }
    }

    /// The bound that would limit the proposal to the same count without the window.
    fn bound_beyond(&self, step: &StabilizationStep) -> Option<LimitingStep> {
        if step.before < step.after && step.after <= self.min {
            Some(LimitingStep::Minimum)
        } else if step.before > step.after && step.after >= self.max {
            Some(LimitingStep::Maximum)
        } else {
            None
        }
    }

    fn bound(&self, step: &LimitStep, now: Timestamp) -> String {
        let direction = match step.limit {
            Limit::Maximum => return format!("maxReplicas is {}", self.max),
            Limit::Minimum => return format!("minReplicas is {}", self.min),
            Limit::WithinRange | Limit::ScaleUpRate => Direction::Up,
            Limit::ScaleDownRate => Direction::Down,
        };
        let (name, verb) = match direction {
            Direction::Up => ("scale-up", "scaling up"),
            Direction::Down => ("scale-down", "scaling down"),
        };
        if step.direction.is_none() {
            return format!("without a behavior one sync at most doubles the count, to {}", step.after);
        }
        if step.select == Some(SelectPolicy::Disabled) {
            return format!("{verb} is disabled");
        }
        let frees = step.policies.iter().filter_map(|policy| policy.frees_at).filter(|at| *at > now).min();
        let wait = frees.map(|at| format!(", for another {}", Span::between(now, at))).unwrap_or_default();
        let deciding = step.policies.iter().filter(|policy| Some(policy.allows) == step.rate_allows);
        let unknown = deciding.filter_map(|policy| policy.unknown_rescale).max();
        let why = unknown
            .map(|at| {
                let ago = Span::between(at, now);
                format!(" (a rescale of unknown size {ago} ago counts as the full allowance)")
            })
            .unwrap_or_default();
        format!("the {name} policies allow {}{why}{wait}", step.after)
    }
}

/// The proposal of a metric, or its value and target if a rule keeps the current count.
fn proposal_text(reading: &MetricReading) -> String {
    let subject = &reading.subject;
    match reading.why {
        ProposalReason::WithinTolerance => {
            let (value, target) = (amount(reading.value, subject), amount(reading.target, subject));
            if reading.value == reading.target {
                return format!("{subject} is at its target of {target}");
            }
            format!("{subject} is at {value}, within tolerance of its target of {target}")
        }
        ProposalReason::CorrectedWithinTolerance => format!(
            "{subject} is at {}, but within tolerance of its target of {} once missing and unready pods are filled in",
            amount(reading.value, subject),
            amount(reading.target, subject),
        ),
        ProposalReason::DirectionReversed | ProposalReason::CountReversed => format!(
            "{subject} is at {} of its target of {}, but points the other way once missing and unready pods are filled in",
            amount(reading.value, subject),
            amount(reading.target, subject),
        ),
        ProposalReason::Ratio
        | ProposalReason::CorrectedRatio
        | ProposalReason::PerPod
        | ProposalReason::FromZero => format!("{subject} asks for {}", reading.proposal),
    }
}

fn window(step: &StabilizationStep, now: Timestamp) -> String {
    let (name, seconds, verb) = if step.after > step.before {
        ("scale-down", step.down_window_seconds, "still holds")
    } else {
        ("scale-up", step.up_window_seconds.unwrap_or(0), "allows only")
    };
    let end =
        step.held_by.and_then(|held| held.at.checked_add(jiff::SignedDuration::from_secs(seconds)).ok());
    let rest = end.filter(|end| *end > now).map(|end| format!(", for another {}", Span::between(now, end)));
    let (after, rest) = (step.after, rest.unwrap_or_default());
    format!("the {} {name} window {verb} {after}{rest}", Span::seconds(seconds))
}

impl ProposalReason {
    /// Whether the metric computed its proposal, instead of keeping the current count.
    fn gives_count(self) -> bool {
        matches!(self, Self::Ratio | Self::CorrectedRatio | Self::PerPod | Self::FromZero)
    }
}

impl MetricReading {
    /// The number of pods by which the ratio was multiplied, even if the product was rejected. `None` if the ratio was
    /// not multiplied.
    pub fn counted(&self) -> Option<i64> {
        match self.why {
            ProposalReason::Ratio => Some(self.ready_pods.unwrap_or_else(|| {
                i64::try_from(self.count(|group| group == PodGroup::Ready)).unwrap_or(i64::MAX)
            })),
            ProposalReason::CorrectedRatio | ProposalReason::CountReversed => {
                self.corrected.map(|corrected| corrected.values)
            }
            _ => None,
        }
    }
}

impl FailedMetric {
    /// The class of the failure. Records of earlier versions lack the class, so this function classifies their text.
    pub fn class(&self) -> MetricFailureClass {
        self.class.unwrap_or_else(|| MetricFailureClass::from_text(self.cause()))
    }

    /// The cause at the end of the error, without the prefixes that name the metric and its API.
    pub fn cause(&self) -> &str {
        let error = &*self.error;
        if let Some((_, cause)) = error.split_once(" metrics API: ") {
            return cause;
        }
        if let Some(at) = error.find("no metrics returned") {
            return error.get(at..).unwrap_or(error);
        }
        let mut rest = error;
        while let Some((wrapping, cause)) = rest.split_once(": ") {
            if !wrapping.starts_with("failed to get ") && !wrapping.starts_with("unable to ") {
                break;
            }
            rest = cause;
        }
        rest
    }
}
