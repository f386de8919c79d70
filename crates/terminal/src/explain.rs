//! The explanation of a decision as readable steps, for terminals and pages.
//!
//! [`Step`]s are computed from an [`Explanation`], the time of the decision and a time zone only. They contain the text
//! of the cluster unchanged. The module `words` escapes the text for output.

mod metric;
mod policy;
mod show;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use autoscaling::explanation::{
    DecisionPath, Explanation, MetricExplanation, PolicyUse, Span, StabilizationStep, Subject, WindowEntry,
    milli,
};
use autoscaling::history::Direction;
use autoscaling::spec::{PolicyKind, SelectPolicy};
use autoscaling::status::Limit;
use jiff::Timestamp;
use jiff::tz::TimeZone;

pub use self::policy::policy_step;
pub use self::show::{Cell, plain};
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
            DecisionPath::Disabled => {
                line.warn("0: autoscaling is disabled").plain(": the target has 0 replicas")
            }
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

    /// Returns the reason why the failed metrics prevent a decision.
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

    /// Formats a time. For a time after the decision, the text includes the wait.
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
    pub fn local(utc: bool) -> Self {
        if utc { Self::utc() } else { Self(TimeZone::system()) }
    }

    /// Returns the given time zone.
    pub fn new(zone: TimeZone) -> Self {
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

/// Maximum number of runs of equal recommendations to list. Only the newest runs are listed.
const RUNS: usize = 8;

/// Consecutive recommendations with the same count.
struct Run<'a> {
    first: &'a WindowEntry,
    last: &'a WindowEntry,
    number: usize,
}

impl Narrative<'_> {
    fn stabilization(&self) -> Option<Step> {
        let stabilization = self.explanation.stabilization.as_ref()?;
        let mut step = Step::new(format!("Stabilization: {}", windows(stabilization)));
        let runs = runs(&stabilization.recommendations);
        let hidden = runs.len().saturating_sub(RUNS);
        if hidden > 0 {
            step.push(Line::new("earlier").dim(format!("{hidden} earlier runs of recommendations")));
        }
        for run in runs.iter().skip(hidden) {
            step.push(self.run(run, stabilization));
        }
        step.push(self.stabilized(stabilization));
        Some(step)
    }

    fn run(&self, run: &Run<'_>, step: &StabilizationStep) -> Line {
        let replicas = run.first.replicas.to_string();
        let holds = step.held_by.is_some_and(|held| {
            held.replicas == run.first.replicas && (run.first.at..=run.last.at).contains(&held.at)
        });
        let line = Line::new("proposed");
        let line = if holds { line.strong(replicas) } else { line.plain(replicas) };
        let line = if run.number == 1 {
            line.plain(format!(" at {}", self.zone.time(run.first.at, self.at)))
        } else {
            line.plain(format!(
                " from {} to {}",
                self.zone.time(run.first.at, self.at),
                self.zone.time(run.last.at, self.at)
            ))
            .dim(format!(" ({} times)", run.number))
        };
        let leaves: Vec<String> = [("scale-up", run.last.expires_up), ("scale-down", run.last.expires_down)]
            .into_iter()
            .filter_map(|(window, when)| Some(format!("the {window} window at {}", self.time_text(when?))))
            .collect();
        let verb = if run.number == 1 { "leaves" } else { "the last leaves" };
        line.plain(format!("; {verb} {}", leaves.join(", ")))
    }

    fn stabilized(&self, step: &StabilizationStep) -> Line {
        let line = Line::new("result").strong(match step.after.cmp(&step.before) {
            Ordering::Equal => step.after.to_string(),
            _ => format!("{} → {}", step.before, step.after),
        });
        match step.after.cmp(&step.before) {
            Ordering::Equal => line.plain(": no window limits it"),
            Ordering::Greater => line
                .plain(": the highest recommendation in the scale-down window")
                .plain(self.until(step, Some(step.down_window_seconds))),
            Ordering::Less => line
                .plain(": the lowest recommendation in the scale-up window")
                .plain(self.until(step, step.up_window_seconds)),
        }
    }

    fn until(&self, step: &StabilizationStep, window: Option<i64>) -> String {
        let end =
            step.held_by.and_then(|held| held.at.checked_add(jiff::SignedDuration::from_secs(window?)).ok());
        end.map(|end| format!(", until {}", self.time_text(end))).unwrap_or_default()
    }

    fn rate(&self) -> Option<Step> {
        let limit = self.explanation.limit.as_ref()?;
        let allowed = limit.rate_allows?;
        let mut step = Step::new("Rate");
        let applies =
            matches!(limit.limit, Limit::ScaleUpRate | Limit::ScaleDownRate) && limit.before != limit.after;
        let allows = |label: &'static str| {
            let role = if applies { Role::Warn } else { Role::Plain };
            Line::new(label).with(role, format!("{allowed} allowed"))
        };
        let Some(direction) = limit.direction else {
            step.push(
                allows("").plain(": without a behavior, one sync scales to at most twice the count, or to 4"),
            );
            return Some(step);
        };
        let field = match direction {
            Direction::Up => "scaleUp",
            Direction::Down => "scaleDown",
        };
        if limit.select == Some(SelectPolicy::Disabled) {
            step.push(allows("").plain(format!(": behavior.{field}.selectPolicy is Disabled")));
            return Some(step);
        }
        for policy in &limit.policies {
            step.push(self.policy(policy, direction));
        }
        let which = match (limit.policies.len(), limit.select) {
            (..=1, _) => "the policy".to_owned(),
            (_, Some(SelectPolicy::Min)) => {
                "the policy with the smallest change (selectPolicy Min)".to_owned()
            }
            _ => "the policy with the largest change (selectPolicy Max)".to_owned(),
        };
        step.push(
            allows("result").plain(format!(" by {which} of behavior.{field}, {} requested", limit.before)),
        );
        Some(step)
    }

    fn policy(&self, policy: &PolicyUse, direction: Direction) -> Line {
        let amount = match policy.kind {
            PolicyKind::Pods => counted(policy.value, "pod"),
            PolicyKind::Percent => format!("{} %", policy.value),
            PolicyKind::Unknown => "of unknown type".to_owned(),
        };
        let period = Span::seconds(policy.period_seconds.into());
        let line = Line::new("policy").strong(format!("{amount} per {period}"));
        let used = match (policy.added, policy.removed) {
            (0, 0) => "unused".to_owned(),
            (added, 0) => format!("{added} added in that period"),
            (0, removed) => format!("{removed} removed in that period"),
            (added, removed) => format!("{added} added and {removed} removed in that period"),
        };
        let bound = if direction == Direction::Up { "up" } else { "down" };
        let line = match policy.unknown_rescale {
            Some(at) => line.plain(format!(
                ": at most {}, since a rescale of unknown size at {} counts as the full allowance",
                policy.allows,
                self.zone.time(at, self.at)
            )),
            None => line
                .plain(format!(": {used}, from {} at its start {bound} to {}", policy.start, policy.allows)),
        };
        match policy.frees_at {
            Some(frees) => line.plain(format!("; more from {}", self.time_text(frees))),
            None => line,
        }
    }

    fn bounds(&self) -> Option<Step> {
        let (min, max) = (self.explanation.min, self.explanation.max);
        let limit = self.explanation.limit.as_ref()?;
        let mut step = Step::new("Bounds");
        let line = Line::new("").strong(limit.after.to_string());
        step.push(match limit.limit {
            Limit::Maximum if limit.before > limit.after => {
                line.plain(": ").warn("maxReplicas").plain(format!(", instead of {}", limit.before))
            }
            Limit::Minimum if limit.before < limit.after => {
                line.plain(": minReplicas").plain(format!(", instead of {}", limit.before))
            }
            _ => line.plain(format!(": between {min} and {max}")),
        });
        if let Some(min) = self.explanation.lifted_to_min {
            step.lines =
                vec![Line::new("").strong(min.to_string()).plain(": from zero directly to minReplicas")];
        }
        Some(step)
    }
}

/// Formats the lengths of both stabilization windows.
fn windows(step: &StabilizationStep) -> String {
    let one = |seconds: i64| match seconds {
        ..=0 => "no window".to_owned(),
        seconds => format!("a window of {}", Span::seconds(seconds)),
    };
    let (up, down) = (one(step.up_window_seconds.unwrap_or(0)), one(step.down_window_seconds));
    if up == down {
        format!("{down} for scaling up and down")
    } else {
        format!("{down} for scaling down, {up} for scaling up")
    }
}

fn runs(recommendations: &[WindowEntry]) -> Vec<Run<'_>> {
    recommendations
        .chunk_by(|a, b| a.replicas == b.replicas)
        .filter_map(|run| Some(Run { first: run.first()?, last: run.last()?, number: run.len() }))
        .collect()
}
