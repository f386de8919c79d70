//! The explanation of a decision as readable steps, for terminals and pages.
//!
//! [`Step`]s are computed from an [`Explanation`], the time of the decision and a time zone only. They contain the text
//! of the cluster unchanged. [`escape`] escapes the text for output.

pub mod escape;
mod limits;
mod metric;
mod show;
#[cfg(test)]
mod tests;

use autoscaling::explanation::{DecisionPath, Explanation, MetricExplanation, Span, Subject, milli};
use jiff::Timestamp;
use jiff::tz::TimeZone;

pub(crate) use self::show::{Cell, plain};
pub use self::show::{Line, Role, Step, Style, StyledSpan, terminal};
use crate::words::counted;

/// Maximum number of metrics with their own step. The winner always has a step.
const SHOWN_METRICS: usize = 100;

/// Returns the steps of a decision, in order. `at` is the time of the decision.
pub fn steps(explanation: &Explanation, at: Timestamp, zone: &Zone) -> Vec<Step> {
    let narrative = Narrative { explanation, at, zone };
    let mut steps = vec![narrative.current()];
    let shown = explanation.metrics.len().min(SHOWN_METRICS);
    let winner = explanation.winner.filter(|winner| *winner >= shown);
    for index in (0..shown).chain(winner) {
        steps.extend(narrative.metric(index));
    }
    steps.extend(narrative.more_metrics(shown + usize::from(winner.is_some())));
    steps.extend(narrative.winner());
    steps.extend(narrative.stabilization());
    steps.extend(narrative.rate());
    steps.extend(narrative.bounds());
    steps.push(narrative.result());
    steps
}

/// The context of the steps of one decision.
#[derive(Debug, Clone, Copy)]
struct Narrative<'a> {
    explanation: &'a Explanation,
    at: Timestamp,
    zone: &'a Zone,
}

impl Narrative<'_> {
    fn current(&self) -> Step {
        let Explanation { current, status_replicas, min, max, .. } = self.explanation;
        let mut step = Step::new("Current");
        if self.explanation.path == DecisionPath::NoScale {
            step.push(Line::new("replicas").bad("unknown: the target's scale cannot be read"));
        } else {
            let line =
                Line::new("replicas").strong(current.to_string()).plain(" in spec.replicas of the target");
            step.push(if status_replicas == current {
                line.plain(", the same in status.replicas")
            } else {
                line.plain(", ").warn(format!("{status_replicas}")).plain(" in status.replicas")
            });
        }
        step.push(Line::new("bounds").plain(format!("minReplicas {min}, maxReplicas {max}")));
        step
    }

    /// Returns the step with the number of metrics that have no step.
    fn more_metrics(&self, shown: usize) -> Option<Step> {
        let more = self.explanation.metric_count().checked_sub(shown).filter(|more| *more > 0)?;
        let mut step = Step::new("Metrics");
        step.push(Line::new("").plain(format!("and {more} more")));
        Some(step)
    }

    /// Returns the step about the winning metric, if the HPA has several metrics.
    fn winner(&self) -> Option<Step> {
        let proposal = self.explanation.proposal?;
        let winner = self.explanation.winning_metric()?;
        let total = self.explanation.metric_count();
        if total < 2 {
            return None;
        }
        let mut proposals: Vec<String> = self
            .explanation
            .metrics
            .iter()
            .take(SHOWN_METRICS)
            .map(|metric| match metric {
                MetricExplanation::Valid(reading) => format!("{} {}", reading.subject, reading.proposal),
                MetricExplanation::Failed(failed) => format!("{} failed", failed.subject),
            })
            .collect();
        let more = total.saturating_sub(proposals.len());
        if more > 0 {
            proposals.push(format!("and {more} more"));
        }
        let mut step = Step::new("Winner");
        step.push(
            Line::new("")
                .strong(format!("{} with {proposal}", winner.subject()))
                .plain(", the highest of ")
                .plain(proposals.join(", ")),
        );
        Some(step)
    }

    fn result(&self) -> Step {
        let explanation = self.explanation;
        let (current, min, max) = (explanation.current, explanation.min, explanation.max);
        let mut step = Step::new("Result");
        let line = Line::new("");
        let failure = explanation.failure.as_deref().unwrap_or("the cause is unknown");
        step.push(match explanation.path {
            DecisionPath::NoScale => line.bad("the HPA does not scale: ").plain(failure),
            DecisionPath::Disabled => line
                .warn("0: autoscaling is disabled")
                .plain(": another writer set spec.replicas of the target to 0"),
            DecisionPath::AboveMax => {
                line.strong(format!("{current} → {max}")).plain(", at once: more than maxReplicas")
            }
            DecisionPath::BelowMin => {
                line.strong(format!("{current} → {min}")).plain(", at once: fewer than minReplicas")
            }
            DecisionPath::NoSelector => line
                .bad(format!("{current}, not scaled: "))
                .plain("the scale of the target has no selector, so its pods are unknown"),
            DecisionPath::Ambiguous => line.bad(format!("{current}, not scaled: ")).plain(failure),
            DecisionPath::Deleted => line.plain("none: the HPA was deleted during the sync"),
            DecisionPath::Metrics => match explanation.desired {
                None => line.bad(format!("{current}, not scaled: ")).plain(self.failed()),
                Some(desired) if desired == current => line.strong(format!("stays at {current}")),
                Some(desired) => line.strong(format!("{current} → {desired}")),
            },
        });
        step
    }

    /// Returns the reason why the metrics have no proposal.
    fn failed(&self) -> String {
        let (failed, total) = (self.explanation.failed_count(), self.explanation.metric_count());
        if failed == total {
            return "no metric can be read".to_owned();
        }
        format!(
            "{failed} of {total} metrics cannot be read, and the others ask for fewer replicas; the HPA does not scale \
             down while a metric fails"
        )
    }

    /// Formats a time. A time in the future includes the wait.
    fn time_text(&self, when: Timestamp) -> String {
        let time = self.zone.time(when, self.at);
        if when > self.at { format!("{time} (in {})", Span::between(self.at, when)) } else { time }
    }
}

/// Formats a usage and the request to which it is compared: `1200m of 500m`. A usage of cpu is in millicores if the
/// request is below one core.
pub fn share_of(usage: i64, request: i64, subject: &Subject) -> String {
    let in_milli = &*subject.name == "cpu" && request.unsigned_abs() < 1000;
    let usage = if in_milli { format!("{usage}m") } else { milli(usage, subject) };
    format!("{usage} of {}", milli(request, subject))
}

/// The time zone of printed times. Every printed time includes its offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Returns UTC, whose times have the form `14:03:20Z`.
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Returns UTC if `utc` is set, or else the time zone of the system.
    pub(crate) fn local(utc: bool) -> Self {
        if utc { Self::utc() } else { Self(TimeZone::system()) }
    }

    #[cfg(test)]
    pub(crate) fn new(zone: TimeZone) -> Self {
        Self(zone)
    }

    /// Formats the time of day, with the date unless `near` is on the same day.
    pub fn time(&self, at: Timestamp, near: Timestamp) -> String {
        let same_day = at.to_zoned(self.0.clone()).date() == near.to_zoned(self.0.clone()).date();
        self.format(at, if same_day { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" })
    }

    /// Formats date and time of day.
    pub fn full(&self, at: Timestamp) -> String {
        self.format(at, "%Y-%m-%d %H:%M:%S")
    }

    fn format(&self, at: Timestamp, format: &str) -> String {
        let local = at.to_zoned(self.0.clone());
        // The zone of the system may be UTC by another name, such as Etc/UTC in a container.
        let offset =
            if local.offset().is_zero() { "Z".to_owned() } else { local.strftime("%:z").to_string() };
        format!("{}{offset}", local.strftime(format))
    }
}
