//! The steps between the proposal of the metrics and the result: stabilization windows, rate policies and bounds.

use std::cmp::Ordering;

use autoscaling::explanation::{PolicyUse, Span, StabilizationStep, WindowEntry};
use autoscaling::history::Direction;
use autoscaling::spec::{PolicyKind, SelectPolicy};
use autoscaling::status::Limit;

use super::{Line, Narrative, Role, Step, counted};

/// Maximum number of runs of equal recommendations to list. Only the newest runs are listed.
const RUNS: usize = 8;

/// Consecutive recommendations with the same count.
struct Run<'a> {
    first: &'a WindowEntry,
    last: &'a WindowEntry,
    number: usize,
}

impl Narrative<'_> {
    pub(super) fn stabilization(&self) -> Option<Step> {
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

    pub(super) fn rate(&self) -> Option<Step> {
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

    pub(super) fn bounds(&self) -> Option<Step> {
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
