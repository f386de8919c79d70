//! A decision in one sentence, and the step that limited it in one word.

use std::fmt;

use jiff::Timestamp;

use super::{
    Course, Explanation, LimitStep, Measure, MetricExplanation, MetricReading, ProposalReason,
    StabilizationStep, Subject,
};
use crate::condition::Limit;
use crate::history::Direction;
use crate::spec::SelectPolicy;

/// The step of a decision that kept the count from being what the metrics ask for; of several, the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitingStep {
    /// The Scale, the selector or a metric could not be read.
    Failure,
    /// The ratio is within tolerance.
    Tolerance,
    /// Missing or unready pods, filled in, took the change back.
    MissingPods,
    /// The stabilization window for growing.
    ScaleUpWindow,
    /// The stabilization window for shrinking.
    ScaleDownWindow,
    /// The policies for growing.
    ScaleUpPolicy,
    /// The policies for shrinking.
    ScaleDownPolicy,
    /// maxReplicas.
    Maximum,
    /// minReplicas.
    Minimum,
}

impl LimitingStep {
    /// One word, for logs and JSON.
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
    /// The last step that limited the count; `None` if it is what the metrics ask for.
    pub fn limiting_step(&self) -> Option<LimitingStep> {
        match self.course {
            Course::AboveMax => return Some(LimitingStep::Maximum),
            Course::BelowMin => return Some(LimitingStep::Minimum),
            Course::Disabled | Course::Deleted => return None,
            Course::NoScale | Course::NoSelector | Course::Ambiguous => return Some(LimitingStep::Failure),
            Course::Metrics if self.desired.is_none() => return Some(LimitingStep::Failure),
            Course::Metrics => {}
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
        match self.stabilization.as_ref().map(|step| step.after.cmp(&step.before)) {
            Some(std::cmp::Ordering::Less) => return Some(LimitingStep::ScaleUpWindow),
            Some(std::cmp::Ordering::Greater) => return Some(LimitingStep::ScaleDownWindow),
            _ => {}
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

    /// The verdict in one sentence, without a full stop: `stays at 5: cpu asks for 3, but the 5 min scale-down window
    /// still holds 5, for another 2 min 10 s`. `now` is when the decision was made.
    pub fn sentence(&self, now: Timestamp) -> String {
        let failure = self.failure.as_deref().unwrap_or("no reason is known");
        let (current, min, max) = (self.current, self.min, self.max);
        match self.course {
            Course::NoScale => format!("does nothing: the target's scale cannot be read: {failure}"),
            Course::Disabled => "stays at 0: a target that somebody set to 0 is not scaled".to_owned(),
            Course::AboveMax => format!("goes from {current} to {max}: maxReplicas is {max}"),
            Course::BelowMin => format!("goes from {current} to {min}: minReplicas is {min}"),
            Course::NoSelector => format!("stays at {current}: the target's scale has no selector"),
            Course::Ambiguous => format!("stays at {current}: {failure}"),
            Course::Deleted => "was deleted while the sync ran".to_owned(),
            Course::Metrics => match self.desired {
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
        let (subject, error) = (&failed.subject, &failed.error);
        match self
            .metrics
            .iter()
            .filter_map(MetricExplanation::reading)
            .max_by_key(|reading| reading.proposal)
        {
            None => format!("{subject} cannot be had: {error}"),
            Some(best) => format!(
                "{} asks for {}, but nothing is scaled down while {subject} cannot be had: {error}",
                best.subject, best.proposal
            ),
        }
    }

    /// What the winner asks for, then whatever stands in its way.
    fn reasons(&self, now: Timestamp) -> String {
        let mut text =
            self.winning_metric().and_then(MetricExplanation::reading).map(asks).unwrap_or_default();
        let mut link = ", but ";
        let mut add = |clause: String| {
            text.push_str(link);
            text.push_str(&clause);
            link = ", and ";
        };
        if let Some(step) = self.stabilization.as_ref().filter(|step| step.after != step.before) {
            add(window(step, now));
        }
        if let Some(limit) = self.limit.as_ref().filter(|limit| limit.after != limit.before) {
            add(self.bound(limit, now));
        }
        if let Some(min) = self.lifted_to_min {
            add(format!("minReplicas is {min}"));
        }
        text
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
            return format!("without a behavior one sync may not go beyond {}", step.after);
        }
        if step.select == Some(SelectPolicy::Disabled) {
            return format!("{verb} is disabled");
        }
        let frees = step.policies.iter().filter_map(|policy| policy.frees_at).filter(|at| *at > now).min();
        let wait = frees.map(|at| format!(", for another {}", Span::between(now, at))).unwrap_or_default();
        format!("the {name} policies allow {}{wait}", step.after)
    }
}

/// What a metric asks for.
fn asks(reading: &MetricReading) -> String {
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

/// An amount with its unit, as people read it: `80 %`, `250m`, `12.5`, `316 Mi`.
pub(super) fn amount(measure: Measure, subject: &Subject) -> String {
    match measure {
        Measure::Percent(percent) => format!("{percent} %"),
        Measure::Milli(amount) => milli(amount, subject),
        Measure::MilliPerPod(amount) => format!("{} per pod", milli(amount, subject)),
    }
}

/// Milli-units as people read them: cpu below one core in milli-cores, memory in binary units, anything else as a number.
pub fn milli(amount: i64, subject: &Subject) -> String {
    let is_resource = matches!(&*subject.kind, "Resource" | "ContainerResource");
    match &*subject.name {
        "cpu" if is_resource && amount.unsigned_abs() < 1000 => format!("{amount}m"),
        "memory" if is_resource => binary(amount as f64 / 1000.0),
        _ => trimmed(amount as f64 / 1000.0, 3),
    }
}

fn binary(bytes: f64) -> String {
    let mut rest = bytes;
    for unit in ["", " Ki", " Mi", " Gi", " Ti"] {
        if rest.abs() < 1024.0 || unit == " Ti" {
            return format!("{}{unit}", trimmed(rest, 1));
        }
        rest /= 1024.0;
    }
    trimmed(bytes, 0)
}

/// A number with at most `places` decimal places, none of them a trailing zero.
fn trimmed(number: f64, places: usize) -> String {
    let text = format!("{number:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A length of time as people read it, in whole seconds rounded up: `45 s`, `2 min 10 s`, `1 h 5 min`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    seconds: u64,
}

impl Span {
    /// Of this many seconds; none if negative.
    pub fn seconds(seconds: i64) -> Self {
        Self { seconds: u64::try_from(seconds).unwrap_or(0) }
    }

    /// From one instant to a later one; none if it is not later.
    pub fn between(from: Timestamp, to: Timestamp) -> Self {
        let length = to.duration_since(from);
        let begun = i64::from(length.subsec_nanos() > 0);
        Self::seconds(length.as_secs().saturating_add(begun))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (self.seconds / 86_400, "d"),
            (self.seconds / 3600 % 24, "h"),
            (self.seconds / 60 % 60, "min"),
            (self.seconds % 60, "s"),
        ];
        let first = units.iter().position(|(amount, _)| *amount > 0).unwrap_or(units.len() - 1);
        let mut separator = "";
        for (place, (amount, unit)) in units.iter().enumerate().skip(first).take(2) {
            if *amount > 0 || place == first {
                write!(f, "{separator}{amount} {unit}")?;
                separator = " ";
            }
        }
        Ok(())
    }
}
