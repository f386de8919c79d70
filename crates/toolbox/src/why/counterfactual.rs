//! Finds the changes that would give another result, by repeated decisions with other values.
//!
//! The results are exact, because each decision includes rounding, missing and unready pods, windows, rates, bounds and
//! the other metrics. A higher value never gives a lower proposal, so values are found by bisection.

mod text;
mod trial;

use autoscaling::explanation::{
    DecisionPath, Explanation, LimitingStep, Measure, MetricExplanation, Subject,
};
use autoscaling::history::Direction;
use jiff::Timestamp;
use serde::Serialize;

use self::trial::{Past, Trial};
use super::Situation;

/// The changes that would give another result, and the limits that no metric value can overcome.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counterfactual {
    /// The changes, each of which gives another result.
    pub changes: Vec<Change>,
    /// The directions in which no metric value gives another result.
    pub holds: Vec<Hold>,
}

/// A change that gives another result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum Change {
    /// The listed metrics cross their thresholds at the same time.
    Metrics {
        /// Up for values above the thresholds, down for values below them.
        direction: Direction,
        /// The thresholds of the metrics.
        thresholds: Vec<Threshold>,
        /// The required duration in seconds. 0 if the next sync is enough.
        for_seconds: i64,
        /// The next count, which may change further if the values change.
        to: i32,
    },
    /// The current values change the count. The count would stay if the listed metrics were at or beyond their
    /// thresholds at the same time.
    Keep {
        /// Up for values at or above the thresholds, down for values at or below them.
        direction: Direction,
        /// The thresholds of the metrics.
        thresholds: Vec<Threshold>,
        /// The kept count.
        to: i32,
    },
    /// Time passes, and the metrics stay unchanged.
    Wait {
        /// The end of the wait.
        until: Timestamp,
        /// The step that expires at the end of the wait.
        step: LimitingStep,
        /// The next count.
        to: i32,
    },
    /// A field of the HPA has another value.
    Field {
        /// The path of the field, such as `spec.maxReplicas`.
        path: &'static str,
        /// The current value.
        now: String,
        /// The required value.
        must_be: String,
        /// The next count.
        to: i32,
    },
    /// The rules of the scaling policy change, and the metrics stay unchanged.
    Policy {
        /// The time of the change.
        at: Timestamp,
        /// The rules that start or end, such as `the mode Paused ends`.
        what: String,
        /// The count after the change. `None` if it depends on inputs at that time.
        to: Option<i32>,
    },
    /// The correction of a fault. Without the correction, no other change has an effect.
    Repair {
        /// The required state, such as `requests must be readable`.
        what: String,
    },
}

/// A threshold that a metric must cross.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Threshold {
    /// The metric.
    pub subject: Subject,
    /// The current value.
    pub now: Measure,
    /// The last value with the current result.
    pub last: Measure,
    /// The first value with another result.
    pub first: Measure,
    /// The undivided `now`, `last` and `first` in milli-units, for a value that is divided by the replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<[i64; 3]>,
    /// The average request of the counted pods in milli-units, for a target in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<i64>,
}

/// A limit that no metric value can overcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// Up for more pods, down for fewer pods.
    pub direction: Direction,
    /// The limiting step.
    pub by: LimitingStep,
}

/// Finds the changes that would give another result in a situation. Returns `None` if the inputs of the
/// decision are missing, as in a controller's record, which contains only the steps.
pub fn counterfactual(situation: &Situation) -> Option<Counterfactual> {
    let mut found = of_metrics(situation)?;
    if let Some(next) = situation.policy.as_ref().and_then(|policy| policy.next.as_ref()) {
        let to = Trial::new(situation).and_then(|trial| trial.after_change(next));
        found.changes.push(Change::Policy { at: next.at, what: next.to_string(), to });
    }
    Some(found)
}

/// Finds the changes that would give another result, without changes of the scaling policy.
fn of_metrics(situation: &Situation) -> Option<Counterfactual> {
    let explanation = &situation.explanation;
    let mut found = Counterfactual::default();
    if explanation.path != DecisionPath::Metrics {
        found.changes.extend(without_metrics(explanation));
        return Some(found);
    }
    for metric in &explanation.metrics {
        if let MetricExplanation::Failed(failed) = metric {
            found.changes.push(Change::Repair { what: format!("{} must be readable", failed.subject) });
        }
    }
    let trial = Trial::new(situation)?;
    let current = explanation.current;
    match explanation.desired {
        Some(desired) if desired > current => found.changes.extend(trial.kept(Direction::Down)),
        Some(desired) if desired < current => found.changes.extend(trial.kept(Direction::Up)),
        _ => {
            found.changes.extend(trial.wait());
            if trial.readings().next().is_some() {
                trial.more(&mut found);
                trial.fewer(&mut found);
            }
        }
    }
    if let Some(field) = trial.field() {
        // If the change of a field moves the count in a direction, the hold in that direction is redundant.
        found.holds.retain(|hold| match (&field, hold.direction) {
            (Change::Field { to, .. }, Direction::Up) => *to <= current,
            (Change::Field { to, .. }, Direction::Down) => *to >= current,
            _ => true,
        });
        found.changes.push(field);
    }
    Some(found)
}

/// Finds the change for a decision without metrics.
fn without_metrics(explanation: &Explanation) -> Option<Change> {
    let (current, min, max) = (explanation.current, explanation.min, explanation.max);
    let field = |path, now: i32, or: &str| {
        let must_be = format!("{current} or {or}");
        Some(Change::Field { path, now: now.to_string(), must_be, to: current })
    };
    let repair = |what: &str| Some(Change::Repair { what: what.to_owned() });
    match explanation.path {
        DecisionPath::AboveMax => field("spec.maxReplicas", max, "more"),
        DecisionPath::BelowMin => field("spec.minReplicas", min, "less"),
        DecisionPath::Disabled => {
            repair("the target must be set to 1 replica or more, which resumes autoscaling")
        }
        DecisionPath::NoScale => repair("the target must exist, and its scale must be readable"),
        DecisionPath::NoSelector => repair(
            "the scale of the target must have a selector (of a custom resource: labelSelectorPath in its definition)",
        ),
        DecisionPath::Ambiguous => repair("no other HPA may select the same pods"),
        DecisionPath::Deleted | DecisionPath::Metrics => None,
    }
}

impl Trial<'_> {
    /// Finds the metric values that would have kept the count, for a decision that changes the count.
    fn kept(&self, direction: Direction) -> Option<Change> {
        let current = self.explanation.current;
        let found = match direction {
            // The highest proposal is used, so every metric that proposes more than the current
            // count must propose less.
            Direction::Down => self.levels_of_all(Past::Known, |desired| desired <= current),
            // One metric that proposes the current count is enough.
            Direction::Up => {
                let winner = self.explanation.winner?;
                self.level_of(winner, Past::Known, |desired| desired >= current).into_iter().collect()
            }
        };
        let thresholds: Vec<Threshold> = found.into_iter().map(|found| found.threshold).collect();
        (!thresholds.is_empty()).then_some(Change::Keep { direction, thresholds, to: current })
    }

    /// Finds the values that give more pods, for a decision that keeps the count. One metric is enough.
    fn more(&self, found: &mut Counterfactual) {
        let direction = Direction::Up;
        let current = self.explanation.current;
        let window =
            self.explanation.stabilization.as_ref().and_then(|step| step.up_window_seconds).unwrap_or(0);
        let mut any = false;
        for index in self.readings() {
            let tried =
                [(Past::Known, 0), (Past::Settled, window)].into_iter().find_map(|(past, for_seconds)| {
                    // If the count grows with the current values after a wait, no other value is needed.
                    let grows = |desired| desired > current;
                    if self.desired(&[], past).is_some_and(grows) {
                        return None;
                    }
                    let critical = self.level_of(index, past, grows)?;
                    let to = self.desired(&[(index, critical.level)], past)?;
                    Some(Change::Metrics { direction, thresholds: vec![critical.threshold], for_seconds, to })
                });
            any |= tried.is_some();
            found.changes.extend(tried);
        }
        let waits = self.desired(&[], Past::Settled).is_some_and(|desired| desired > current);
        if !any && !waits {
            found.holds.extend(self.limit_at_extreme(direction).map(|by| Hold { direction, by }));
        }
    }

    /// Finds the values that give fewer pods, for a decision that keeps the count. All metrics that propose at least
    /// the current count must fall.
    fn fewer(&self, found: &mut Counterfactual) {
        let direction = Direction::Down;
        let current = self.explanation.current;
        let lowest = self.levels(trial::LOWEST);
        if self.desired(&lowest, Past::Settled).is_none_or(|desired| desired >= current) {
            found.holds.extend(self.limit_at_extreme(direction).map(|by| Hold { direction, by }));
            return;
        }
        let needed = self.levels_of_all(Past::Settled, |desired| desired < current);
        let levels: Vec<(usize, f64)> =
            needed.iter().map(|critical| (critical.index, critical.level)).collect();
        let Some(to) = self.desired(&levels, Past::Settled).filter(|_| !needed.is_empty()) else {
            return;
        };
        let at_once = self.desired(&levels, Past::Known).is_some_and(|desired| desired < current);
        let window = self.explanation.stabilization.as_ref().map_or(0, |step| step.down_window_seconds);
        let thresholds = needed.into_iter().map(|critical| critical.threshold).collect();
        let for_seconds = if at_once { 0 } else { window };
        found.changes.push(Change::Metrics { direction, thresholds, for_seconds, to });
    }
}

#[cfg(test)]
mod tests;
