//! What would have to change for another result: found by deciding again with other values, with the same pure core.
//!
//! So it is exact: rounding, pods that are missing or not ready, windows, rates, bounds and the other metrics all have
//! their say. Values are searched by halving, as a higher value never asks for fewer pods.

mod text;
mod trial;

use autoscaling::explanation::{Course, Explanation, LimitingStep, Measure, MetricExplanation, Subject};
use autoscaling::history::Direction;
use jiff::Timestamp;
use serde::Serialize;

use self::trial::{Past, Trial};
use super::Situation;

/// What would have to change, and what holds against any change of the metrics.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counterfactual {
    /// Each alone gives another result.
    pub changes: Vec<Change>,
    /// In a direction named here, no value of any metric gives another result.
    pub holds: Vec<Hold>,
}

/// One change that gives another result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum Change {
    /// Metrics beyond these values, all of them at once.
    Metrics {
        /// Above or below.
        direction: Direction,
        /// The values.
        thresholds: Vec<Threshold>,
        /// For how long, in seconds; 0 if the next sync is enough.
        for_seconds: i64,
        /// The count that follows; not the last that follows, if values move further.
        to: i32,
    },
    /// Metrics at these values or beyond them, all of them at once, would keep the count, which now changes.
    Keep {
        /// At most, or at least.
        direction: Direction,
        /// The values.
        thresholds: Vec<Threshold>,
        /// The count that would stay.
        to: i32,
    },
    /// Time alone, if the metrics stay as they are.
    Wait {
        /// Until then.
        until: Timestamp,
        /// What gives way.
        step: LimitingStep,
        /// The count that follows.
        to: i32,
    },
    /// Another value of a field of the HPA.
    Field {
        /// The field.
        path: &'static str,
        /// Its value now.
        now: String,
        /// What it must be.
        must_be: String,
        /// The count that follows.
        to: i32,
    },
    /// Something must be put right first.
    Repair {
        /// What must be.
        what: String,
    },
}

/// A value that a metric must pass.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Threshold {
    /// Which metric.
    pub subject: Subject,
    /// Its value now.
    pub now: Measure,
    /// The last value that gives the same result as now.
    pub last: Measure,
    /// The first value that gives another result.
    pub first: Measure,
    /// Of a value that is divided by the replicas: now, last and first undivided, in milli-units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<[i64; 3]>,
    /// For a target in percent: what the counted pods request on average, in milli-units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<i64>,
}

/// What no value of a metric overcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// More pods, or fewer.
    pub direction: Direction,
    /// What holds.
    pub by: LimitingStep,
}

/// What would have to change for another result than that of this situation. `None` if what it was decided from is not
/// at hand: a controller's record has the steps alone.
pub fn counterfactual(situation: &Situation) -> Option<Counterfactual> {
    let explanation = &situation.explanation;
    let mut found = Counterfactual::default();
    if explanation.course != Course::Metrics {
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
        // What a field opens needs no word on why metrics cannot.
        found.holds.retain(|hold| match (&field, hold.direction) {
            (Change::Field { to, .. }, Direction::Up) => *to <= current,
            (Change::Field { to, .. }, Direction::Down) => *to >= current,
            _ => true,
        });
        found.changes.push(field);
    }
    Some(found)
}

/// Where metrics were not asked.
fn without_metrics(explanation: &Explanation) -> Option<Change> {
    let (current, min, max) = (explanation.current, explanation.min, explanation.max);
    let field = |path, now: i32, or: &str| {
        let must_be = format!("{current} or {or}");
        Some(Change::Field { path, now: now.to_string(), must_be, to: current })
    };
    let repair = |what: &str| Some(Change::Repair { what: what.to_owned() });
    match explanation.course {
        Course::AboveMax => field("spec.maxReplicas", max, "more"),
        Course::BelowMin => field("spec.minReplicas", min, "less"),
        Course::Disabled => {
            repair("somebody must set the target to 1 replica or more; then autoscaling goes on")
        }
        Course::NoScale => repair("the target must exist, and its scale be readable"),
        Course::NoSelector => repair(
            "the scale of the target must have a selector (of a custom resource: labelSelectorPath in its definition)",
        ),
        Course::Ambiguous => repair("no other HPA may select the same pods"),
        Course::Deleted | Course::Metrics => None,
    }
}

impl Trial<'_> {
    /// The values of metrics at which the count would be kept, of a decision that changes it.
    fn kept(&self, direction: Direction) -> Option<Change> {
        let current = self.explanation.current;
        let found = match direction {
            // Every metric that asks for more would have to ask for less.
            Direction::Down => self.together(Past::Known, |desired| desired <= current),
            // One metric that asks for as many is enough.
            Direction::Up => {
                let winner = self.explanation.winner?;
                self.alone(winner, Past::Known, |desired| desired >= current).into_iter().collect()
            }
        };
        let thresholds: Vec<Threshold> = found.into_iter().map(|found| found.threshold).collect();
        (!thresholds.is_empty()).then_some(Change::Keep { direction, thresholds, to: current })
    }

    /// What gives more pods, where the count stays: any metric.
    fn more(&self, found: &mut Counterfactual) {
        let direction = Direction::Up;
        let current = self.explanation.current;
        let window =
            self.explanation.stabilization.as_ref().and_then(|step| step.up_window_seconds).unwrap_or(0);
        let mut any = false;
        for place in self.readings() {
            let tried =
                [(Past::Known, 0), (Past::Settled, window)].into_iter().find_map(|(past, for_seconds)| {
                    // Where it would grow as things are, time is what is missing.
                    let grows = |desired| desired > current;
                    if self.desired(&[], past).is_some_and(grows) {
                        return None;
                    }
                    let beyond = self.alone(place, past, grows)?;
                    let to = self.desired(&[(place, beyond.level)], past)?;
                    Some(Change::Metrics { direction, thresholds: vec![beyond.threshold], for_seconds, to })
                });
            any |= tried.is_some();
            found.changes.extend(tried);
        }
        let waits = self.desired(&[], Past::Settled).is_some_and(|desired| desired > current);
        if !any && !waits {
            found.holds.extend(self.limit_at_extreme(direction).map(|by| Hold { direction, by }));
        }
    }

    /// What gives fewer pods, where the count stays: all metrics that still ask for as many.
    fn fewer(&self, found: &mut Counterfactual) {
        let direction = Direction::Down;
        let current = self.explanation.current;
        let lowest = self.levels(trial::LOWEST);
        if self.desired(&lowest, Past::Settled).is_none_or(|desired| desired >= current) {
            found.holds.extend(self.limit_at_extreme(direction).map(|by| Hold { direction, by }));
            return;
        }
        let needed = self.together(Past::Settled, |desired| desired < current);
        let levels: Vec<(usize, f64)> = needed.iter().map(|beyond| (beyond.place, beyond.level)).collect();
        let Some(to) = self.desired(&levels, Past::Settled).filter(|_| !needed.is_empty()) else {
            return;
        };
        let at_once = self.desired(&levels, Past::Known).is_some_and(|desired| desired < current);
        let window = self.explanation.stabilization.as_ref().map_or(0, |step| step.down_window_seconds);
        let thresholds = needed.into_iter().map(|beyond| beyond.threshold).collect();
        let for_seconds = if at_once { 0 } else { window };
        found.changes.push(Change::Metrics { direction, thresholds, for_seconds, to });
    }
}

#[cfg(test)]
mod tests;
