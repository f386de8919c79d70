//! The story of a decision: its explanation as steps that people read, for terminals and pages.
//!
//! Everything here is pure: an [`Explanation`], the instant at which it is told and a time zone give [`Step`]s. What
//! they quote from the cluster stays as it is; whatever shows them goes through [`escape`].

pub mod escape;
mod limits;
mod line;
mod metric;
mod pods;
mod show;
#[cfg(test)]
mod tests;
mod zone;

use autoscaling::explanation::{Course, Explanation, MetricExplanation, Span, Subject, milli};
use jiff::Timestamp;

pub use self::line::{Line, Piece, Role, Step};
pub use self::show::{Style, html, page, terminal};
pub use self::zone::Zone;

/// The steps of a decision, in the order in which they were taken. `at` is when it was made: waits are told from there.
pub fn steps(explanation: &Explanation, at: Timestamp, zone: &Zone) -> Vec<Step> {
    let telling = Telling { explanation, at, zone };
    let mut steps = vec![telling.current()];
    for place in 0..explanation.metrics.len() {
        steps.extend(telling.metric(place));
    }
    steps.extend(telling.winner());
    steps.extend(telling.stabilization());
    steps.extend(telling.rate());
    steps.extend(telling.bounds());
    steps.push(telling.result());
    steps
}

/// One decision being told.
#[derive(Debug, Clone, Copy)]
struct Telling<'a> {
    explanation: &'a Explanation,
    at: Timestamp,
    zone: &'a Zone,
}

impl Telling<'_> {
    fn current(&self) -> Step {
        let Explanation { current, status_replicas, min, max, .. } = self.explanation;
        let mut step = Step::new("Current");
        if self.explanation.course == Course::NoScale {
            step.push(Line::new("replicas").bad("not known: the target's scale cannot be read"));
        } else {
            let line =
                Line::new("replicas").strong(current.to_string()).plain(" in spec.replicas of the target");
            step.push(if status_replicas == current {
                line.plain(", as many exist")
            } else {
                line.plain(", ").warn(format!("{status_replicas} exist")).plain(" (status.replicas)")
            });
        }
        step.push(Line::new("bounds").plain(format!("minReplicas {min}, maxReplicas {max}")));
        step
    }

    /// Which metric won, where there is a choice.
    fn winner(&self) -> Option<Step> {
        let proposal = self.explanation.proposal?;
        let winner = self.explanation.winning_metric()?;
        if self.explanation.metrics.len() < 2 {
            return None;
        }
        let asked: Vec<String> = self
            .explanation
            .metrics
            .iter()
            .map(|metric| match metric {
                MetricExplanation::Valid(reading) => format!("{} {}", reading.subject, reading.proposal),
                MetricExplanation::Failed(failed) => format!("{} nothing", failed.subject),
            })
            .collect();
        let mut step = Step::new("Winner");
        step.push(
            Line::new("")
                .strong(format!("{} with {proposal}", winner.subject()))
                .plain(", the highest of ")
                .plain(asked.join(", ")),
        );
        Some(step)
    }

    fn result(&self) -> Step {
        let explanation = self.explanation;
        let (current, min, max) = (explanation.current, explanation.min, explanation.max);
        let mut step = Step::new("Result");
        let line = Line::new("");
        let failure = explanation.failure.as_deref().unwrap_or("no reason is known");
        step.push(match explanation.course {
            Course::NoScale => line.bad("nothing is scaled: ").plain(failure),
            Course::Disabled => line
                .warn("0: autoscaling is off")
                .plain(" while somebody else's 0 stands in spec.replicas of the target"),
            Course::AboveMax => {
                line.strong(format!("{current} → {max}")).plain(", at once: more than maxReplicas")
            }
            Course::BelowMin => {
                line.strong(format!("{current} → {min}")).plain(", at once: fewer than minReplicas")
            }
            Course::NoSelector => line
                .bad(format!("{current}, not scaled: "))
                .plain("the scale of the target has no selector, so its pods are not known"),
            Course::Ambiguous => line.bad(format!("{current}, not scaled: ")).plain(failure),
            Course::Deleted => line.plain("none: the HPA was deleted meanwhile"),
            Course::Metrics => match explanation.desired {
                None => line.bad(format!("{current}, not scaled: ")).plain(self.failed()),
                Some(desired) if desired == current => line.strong(format!("stays at {current}")),
                Some(desired) => line.strong(format!("{current} → {desired}")),
            },
        });
        step
    }

    /// Why metrics gave no count.
    fn failed(&self) -> String {
        let failed = self.explanation.metrics.iter().filter(|metric| metric.reading().is_none()).count();
        let total = self.explanation.metrics.len();
        if failed == total {
            return "no metric can be read".to_owned();
        }
        format!(
            "{failed} of {total} metrics cannot be read, and the others ask for fewer replicas; that is not done then"
        )
    }

    /// A moment, with the wait for it if it lies ahead.
    fn moment(&self, when: Timestamp) -> String {
        let time = self.zone.time(when, self.at);
        if when > self.at { format!("{time} (in {})", Span::between(self.at, when)) } else { time }
    }
}

/// A usage and the request it is a share of, in the same unit: `1200m of 500m`.
pub fn share_of(usage: i64, request: i64, subject: &Subject) -> String {
    let in_milli = &*subject.name == "cpu" && request.unsigned_abs() < 1000;
    let usage = if in_milli { format!("{usage}m") } else { milli(usage, subject) };
    format!("{usage} of {}", milli(request, subject))
}

/// `1 pod`, `2 pods`.
fn counted(number: impl TryInto<u64>, what: &str) -> String {
    match number.try_into() {
        Ok(1) => format!("1 {what}"),
        Ok(number) => format!("{number} {what}s"),
        Err(_) => format!("no {what}s"),
    }
}
