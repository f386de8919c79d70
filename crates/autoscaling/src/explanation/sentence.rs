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
use crate::number::ceil_to_count;
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

/// The texts of rules beyond those of the HPA, for the sentence of a decision. The default has no such rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Amendments {
    /// The source of the proposal as a clause, if it is not the winning metric's own proposal:
    /// `queue has failed since ..., so its fallback asks for 3`.
    pub origin: Option<String>,
    /// The remark after the clause of the winning metric: ` (the lowest proposal)`.
    pub remark: String,
    /// What sets `minReplicas` if it is not the HPA: ` by schedule office`.
    pub minimum_by: String,
    /// What sets `maxReplicas` if it is not the HPA.
    pub maximum_by: String,
    /// The count that replaces that of the HPA. `None` if no rule replaces it.
    pub replaced: Option<ReplacedCount>,
}

/// A count that replaces the count of the HPA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedCount {
    /// The count that is applied.
    pub to: i32,
    /// The reason as a clause: `paused`.
    pub reason: String,
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
        self.limits().last().copied().or_else(|| self.winning_reading()?.why.limiting_step())
    }

    /// The windows, rates and bounds that limited the count, in the order of the steps. A step whose result a later step
    /// overrides is not listed, because the count would be the same without it. If `selectPolicy: Disabled` and a bound
    /// limit the count equally, both are listed.
    pub fn limits(&self) -> Vec<LimitingStep> {
        let mut limits = Vec::new();
        let proposal = self.proposal.map(|proposal| proposal.max(0));
        // Steps in opposite directions may restore the proposal.
        if self.path != DecisionPath::Metrics || self.desired == proposal {
            return limits;
        }
        // The bounds alone would have this result. A window that raises the count further has no effect.
        if proposal.is_some_and(|proposal| proposal < self.min) && self.desired == Some(self.min) {
            return vec![LimitingStep::Minimum];
        }
        let limit = self.limit.as_ref().filter(|limit| limit.after != limit.before);
        if let Some(window) = self.stabilization.as_ref().filter(|step| step.after != step.before) {
            let is_down = window.after > window.before;
            // With `behavior`, the window keeps the direction of the change, so a rate or bound that limits the
            // stabilized count limits the proposal to the same count. Without `behavior`, this is so for the minimum,
            // and if the rates and bounds do not allow the proposal either.
            let is_overridden = match limit {
                None => false,
                Some(_) if window.up_window_seconds.is_some() => true,
                Some(limit) => limit.limit == Limit::Minimum || window.before >= limit.after,
            };
            match self.bound_beyond(window) {
                Some(bound) => limits.extend(limit.is_none().then_some(bound)),
                None if is_overridden => {}
                None if is_down => limits.push(LimitingStep::ScaleDownWindow),
                None => limits.push(LimitingStep::ScaleUpWindow),
            }
        }
        if let Some(limit) = limit {
            let is_disabled = limit.select == Some(SelectPolicy::Disabled);
            match limit.limit {
                Limit::WithinRange => {}
                Limit::ScaleUpRate => limits.push(LimitingStep::ScaleUpPolicy),
                Limit::ScaleDownRate => limits.push(LimitingStep::ScaleDownPolicy),
                Limit::Maximum => {
                    limits.extend(is_disabled.then_some(LimitingStep::ScaleUpPolicy));
                    limits.push(LimitingStep::Maximum);
                }
                Limit::Minimum => {
                    limits.extend(is_disabled.then_some(LimitingStep::ScaleDownPolicy));
                    limits.push(LimitingStep::Minimum);
                }
            }
        }
        limits.extend(self.lifted_to_min.map(|_| LimitingStep::Minimum));
        limits
    }

    /// Prints the decision in one sentence without a full stop. `now` is the time of the decision.
    ///
    /// Example: `stays at 5: cpu asks for 3, but the 5 min scale-down window still holds 5, for another 2 min 10 s`.
    pub fn sentence(&self, now: Timestamp) -> String {
        self.amended_sentence(&Amendments::default(), now)
    }

    /// Prints the decision in one sentence, with the rules beyond those of the HPA. They have no effect if the Scale is
    /// unavailable or the HPA was deleted.
    ///
    /// Example: `stays at 8: paused; the metrics ask for 9`.
    pub fn amended_sentence(&self, rules: &Amendments, now: Timestamp) -> String {
        let failure = self.failure.as_deref().unwrap_or("the cause is unknown");
        let (current, min, max) = (self.current, self.min, self.max);
        let reasons = match self.path {
            DecisionPath::NoScale if self.scale_failure() == ScaleFailureClass::TooManyMetrics => {
                return format!("does nothing: {failure}");
            }
            DecisionPath::NoScale => {
                return format!("does nothing: the target's scale cannot be read: {failure}");
            }
            DecisionPath::Deleted => return "was deleted during the sync".to_owned(),
            DecisionPath::Disabled => "the target has 0 replicas, which disables autoscaling".to_owned(),
            DecisionPath::AboveMax => format!("maxReplicas is {max}{}", rules.maximum_by),
            DecisionPath::BelowMin => format!("minReplicas is {min}{}", rules.minimum_by),
            DecisionPath::NoSelector => "the target's scale has no selector".to_owned(),
            DecisionPath::Ambiguous => failure.to_owned(),
            DecisionPath::Metrics => match (self.desired, &rules.replaced) {
                (None, _) => self.failed_metrics(),
                (Some(_), None) => self.reasons(rules, now),
                (Some(desired), Some(_)) => self.demand(rules, desired),
            },
        };
        let count = match (&rules.replaced, self.path) {
            (Some(replaced), _) => replaced.to,
            (None, DecisionPath::AboveMax) => max,
            (None, DecisionPath::BelowMin) => min,
            (None, _) => self.desired.unwrap_or(current),
        };
        let verdict = if count == current {
            format!("stays at {current}")
        } else {
            format!("goes from {current} to {count}")
        };
        match &rules.replaced {
            Some(replaced) => format!("{verdict}: {}; {reasons}", replaced.reason),
            None => format!("{verdict}: {reasons}"),
        }
    }

    fn winning_reading(&self) -> Option<&MetricReading> {
        self.winning_metric().and_then(MetricExplanation::reading)
    }

    /// The proposal of the metrics if another count is applied: `the metrics ask for 8, and the HPA would apply 4`.
    fn demand(&self, rules: &Amendments, desired: i32) -> String {
        let proposal = self.proposal.unwrap_or(desired);
        let asked = match &rules.origin {
            Some(origin) => origin.clone(),
            None if proposal == self.current => format!("the metrics ask for the current count {proposal}"),
            None => format!("the metrics ask for {proposal}"),
        };
        if desired == proposal.max(0) { asked } else { format!("{asked}, and the HPA would apply {desired}") }
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
    fn reasons(&self, rules: &Amendments, now: Timestamp) -> String {
        let limits: Vec<String> =
            self.limits().into_iter().filter_map(|step| self.limit_text(step, rules, now)).collect();
        let remark = &rules.remark;
        let proposal = self.proposal.or(self.desired).unwrap_or(self.current);
        let asked = match (&rules.origin, self.winning_reading()) {
            (Some(origin), _) => origin.clone(),
            (None, Some(reading)) => self.metric_text(reading, proposal, limits.is_empty()),
            // A record may lack the winner.
            (None, None) => format!("the metrics ask for {proposal}"),
        };
        if limits.is_empty() {
            format!("{asked}{remark}")
        } else {
            let asked = format!("{asked}{remark}");
            let but = if asked.contains(", but ") { "and" } else { "but" };
            format!("{asked}, {but} {}", limits.join(", and "))
        }
    }

    /// The value and the proposal of the winning metric. Without limits, the proposal is the count of the sentence.
    fn metric_text(&self, reading: &MetricReading, proposal: i32, is_unlimited: bool) -> String {
        let subject = &reading.subject;
        if !reading.why.gives_count() {
            let text = self.kept_text(reading);
            return if proposal == self.current {
                text
            } else {
                format!("{text}, so it asks for {proposal}, as in status.replicas")
            };
        }
        let target = amount(reading.target, subject);
        let value = self.value_text(reading);
        if self.current == 0 {
            return if is_unlimited {
                format!("{subject} is at {value}, its target is {target}")
            } else {
                format!("{subject} asks for {proposal}")
            };
        }
        let side = side(reading);
        // A record may lack the pods.
        let counted = reading.counted().filter(|pods| *pods > 0 || reading.ready_pods.is_some());
        let over = counted.map(|pods| format!(" over {}", pods_text(pods)));
        match proposal.cmp(&self.current) {
            Ordering::Greater if reading.ratio > 1.0 && is_unlimited => {
                format!("{subject} is at {value}, {side}")
            }
            Ordering::Less if reading.ratio < 1.0 && is_unlimited => {
                format!("{subject} is at {value}, {side}")
            }
            Ordering::Equal if is_unlimited => {
                let over = over.filter(|_| counted != Some(i64::from(self.current)));
                let over = over.unwrap_or_default();
                format!(
                    "{subject} is at {value}, which{over} still requires {proposal} for its target of {target}"
                )
            }
            // The ratio and the proposal have different directions, because the number of counted pods differs from the
            // current count.
            Ordering::Less if reading.ratio > 1.0 => {
                format!(
                    "{subject} is at {value}, {side}, but{} asks for {proposal}",
                    over.unwrap_or_default()
                )
            }
            Ordering::Greater if reading.ratio < 1.0 => {
                format!(
                    "{subject} is at {value}, {side}, but{} asks for {proposal}",
                    over.unwrap_or_default()
                )
            }
            _ => format!("{subject} asks for {proposal}"),
        }
    }

    /// The value and the target of a metric for which a rule keeps the current count.
    fn kept_text(&self, reading: &MetricReading) -> String {
        let subject = &reading.subject;
        let (value, target) = (self.value_text(reading), amount(reading.target, subject));
        if reading.why == ProposalReason::WithinTolerance {
            if reading.value == reading.target {
                return format!("{subject} is at its target of {target}");
            }
            return format!("{subject} is at {value}, within tolerance of its target of {target}");
        }
        let side = side(reading);
        let filled = filled_in(reading);
        match (reading.why, reading.corrected) {
            (ProposalReason::CorrectedWithinTolerance, _) => {
                format!("{subject} is at {value}, {side}, but within tolerance once {filled} filled in")
            }
            (ProposalReason::CountReversed, Some(corrected)) => {
                let count = ceil_to_count(corrected.ratio * corrected.values as f64);
                let way = if count > self.current { "up" } else { "down" };
                format!(
                    "{subject} is at {value}, {side}, but asks for {count} once {filled} filled in, which would scale {way}"
                )
            }
            _ => {
                let other = if reading.ratio > 1.0 { "below" } else { "above" };
                format!("{subject} is at {value}, {side}, but {other} it once {filled} filled in")
            }
        }
    }

    /// The value of a metric. There is no value per pod at zero replicas, so the value is then undivided.
    fn value_text(&self, reading: &MetricReading) -> String {
        match reading.total {
            Some(total) if self.status_replicas == 0 => {
                format!("{} in total", milli(total, &reading.subject))
            }
            _ => amount(reading.value, &reading.subject),
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

    /// The clause of a step in [`Self::limits`].
    fn limit_text(&self, step: LimitingStep, rules: &Amendments, now: Timestamp) -> Option<String> {
        Some(match step {
            LimitingStep::Failure | LimitingStep::Tolerance | LimitingStep::MissingPods => return None,
            LimitingStep::ScaleUpWindow | LimitingStep::ScaleDownWindow => {
                window(self.stabilization.as_ref()?, now)
            }
            LimitingStep::ScaleUpPolicy => self.rate(self.limit.as_ref()?, Direction::Up, now),
            LimitingStep::ScaleDownPolicy => self.rate(self.limit.as_ref()?, Direction::Down, now),
            LimitingStep::Maximum => format!("maxReplicas is {}{}", self.max, rules.maximum_by),
            LimitingStep::Minimum => {
                format!("minReplicas is {}{}", self.lifted_to_min.unwrap_or(self.min), rules.minimum_by)
            }
        })
    }

    fn rate(&self, step: &LimitStep, direction: Direction, now: Timestamp) -> String {
        let (name, verb) = match direction {
            Direction::Up => ("scale-up", "scaling up"),
            Direction::Down => ("scale-down", "scaling down"),
        };
        if step.direction.is_none() {
            // Twice the count, or 4 if that is higher.
            return match self.current {
                ..2 => format!(
                    "without a behavior one sync from {} goes to at most {}",
                    self.current, step.after
                ),
                _ => format!("without a behavior one sync at most doubles the count, to {}", step.after),
            };
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

/// The side of the target on which the value is: `above its target of 80 %`.
fn side(reading: &MetricReading) -> String {
    let subject = &reading.subject;
    let (value, target) = (amount(reading.value, subject), amount(reading.target, subject));
    // The printed amounts are rounded.
    let barely = if value == target { "just " } else { "" };
    match reading.ratio.partial_cmp(&1.0) {
        Some(Ordering::Greater) => format!("{barely}above its target of {target}"),
        Some(Ordering::Less) => format!("{barely}below its target of {target}"),
        Some(Ordering::Equal) => format!("at its target of {target}"),
        None => format!("its target is {target}"),
    }
}

/// The pods that are filled in, with a verb: `3 missing and 1 unready pods are`.
fn filled_in(reading: &MetricReading) -> String {
    let corrected = reading.corrected;
    let missing = reading.count(|group| group == PodGroup::Missing);
    let missing = if corrected.is_some_and(|corrected| corrected.missing.is_some()) { missing } else { 0 };
    let unready = reading.count(PodGroup::is_unready);
    let unready = if corrected.is_some_and(|corrected| corrected.unready) { unready } else { 0 };
    match (missing, unready) {
        (0, 0) => "missing and unready pods are".to_owned(),
        (1, 0) => "1 missing pod is".to_owned(),
        (0, 1) => "1 unready pod is".to_owned(),
        (missing, 0) => format!("{missing} missing pods are"),
        (0, unready) => format!("{unready} unready pods are"),
        (missing, unready) => format!("{missing} missing and {unready} unready pods are"),
    }
}

fn pods_text(number: i64) -> String {
    if number == 1 { "1 pod".to_owned() } else { format!("{number} pods") }
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

    /// The step that keeps the current count.
    fn limiting_step(self) -> Option<LimitingStep> {
        match self {
            Self::WithinTolerance => Some(LimitingStep::Tolerance),
            Self::CorrectedWithinTolerance | Self::DirectionReversed | Self::CountReversed => {
                Some(LimitingStep::MissingPods)
            }
            Self::Ratio | Self::CorrectedRatio | Self::PerPod | Self::FromZero => None,
        }
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
