//! Finds the changes that would give another result, by repeated decisions with other values.
//!
//! The results are exact, because each decision includes rounding, missing and unready pods, windows, rates, bounds, the
//! other metrics, and the guards and the mode of the scaling policy. On each side of the tolerance and within it, a
//! higher value never gives a lower proposal, so values are found by bisection.

mod search;
mod trial;

use autoscaling::explanation::{
    DecisionPath, Explanation, LimitingStep, Measure, MetricExplanation, Span, Subject, amount, milli,
};
use autoscaling::failure::ScaleFailureClass;
use autoscaling::history::Direction;
use jiff::Timestamp;
use policies::steps::Step as PolicyStep;
use serde::Serialize;

use self::search::CriticalLevel;
use self::trial::{Past, Trial, levels_of};
use super::Situation;
use terminal::explain::{Line, Step, Zone, share_of};

/// The changes that would give another result, and the limits that no metric value can overcome.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Counterfactual {
    /// The changes, each of which gives another result.
    pub changes: Vec<Change>,
    /// The directions in which no metric value gives another result.
    pub holds: Vec<Hold>,
}

/// A change that gives another result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Change {
    /// The listed metrics cross their thresholds at the same time.
    Metrics {
        /// Up for values above the thresholds, down for values below them.
        #[cfg_attr(test, schemars(with = "String"))]
        direction: Direction,
        /// The thresholds of the metrics.
        thresholds: Vec<Threshold>,
        /// The required duration in seconds. 0 if the next sync is enough.
        for_seconds: i64,
        /// The next count, which may change further if the values change.
        to: i32,
    },
    /// The current values change the count. The count would stay if the listed metrics were at their thresholds at the
    /// same time.
    Keep {
        /// Up for thresholds above the current values, down for thresholds below them.
        #[cfg_attr(test, schemars(with = "String"))]
        direction: Direction,
        /// The thresholds of the metrics.
        thresholds: Vec<Threshold>,
        /// The current count.
        to: i32,
    },
    /// Time passes, and the metrics stay unchanged.
    Wait {
        /// The end of the wait.
        #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
        until: Timestamp,
        /// The step that limits the count until the end of the wait.
        #[cfg_attr(test, schemars(with = "String"))]
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
        /// The required value, such as `12 or more`.
        must_be: String,
        /// The next count.
        to: i32,
    },
    /// The rules of the scaling policy change, and the metrics stay unchanged.
    Policy {
        /// The time of the change.
        #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
        at: Timestamp,
        /// The rules that start or end, such as `the mode Paused ends`.
        what: String,
        /// The count after the change. `None` if the current inputs do not determine the count.
        to: Option<i32>,
    },
    /// A fault is corrected, such as a metric that cannot be read.
    Repair {
        /// The required state, such as `requests must be readable`.
        what: String,
    },
}

/// A threshold that a metric must cross.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Threshold {
    /// The metric.
    #[cfg_attr(test, schemars(with = "crate::schemas::Object"))]
    pub subject: Subject,
    /// The current value.
    #[cfg_attr(test, schemars(with = "crate::schemas::Object"))]
    pub now: Measure,
    /// The last value with the current result.
    #[cfg_attr(test, schemars(with = "crate::schemas::Object"))]
    pub last: Measure,
    /// The first value with another result.
    #[cfg_attr(test, schemars(with = "crate::schemas::Object"))]
    pub first: Measure,
    /// The undivided `now`, `last` and `first` in milli-units, for a value that is divided by the replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<[i64; 3]>,
    /// The average request of the counted pods in milli-units, for a target in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<i64>,
    /// The average usage of the counted pods at `first` in milli-units, if `last` and `first` are the same percentage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<i64>,
    /// The end of the values with another result. Absent if all values beyond the threshold have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
}

/// The end of the values beyond a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Until {
    /// The last value with another result.
    #[cfg_attr(test, schemars(with = "crate::schemas::Object"))]
    pub last: Measure,
    /// The undivided `last` in milli-units, for a value that is divided by the replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// The average usage of the counted pods at `last` in milli-units, if the next value is the same percentage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<i64>,
}

/// A limit that no metric value can overcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hold {
    /// Up for more pods, down for fewer pods.
    #[cfg_attr(test, schemars(with = "String"))]
    pub direction: Direction,
    /// What limits the count at every metric value.
    #[cfg_attr(test, schemars(with = "String"))]
    pub by: HeldBy,
}

/// What limits the count at every metric value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum HeldBy {
    /// The scaling policy.
    Policy,
    /// A step of the HPA.
    #[serde(untagged)]
    Step(LimitingStep),
}

/// Finds the changes that would give another result in a situation. Returns `None` for a decision with metrics that
/// cannot be repeated. A decision of a record, for example, cannot be repeated, because a record contains only the
/// steps.
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
        found.changes.extend(without_metrics(situation));
        return Some(found);
    }
    for metric in &explanation.metrics {
        if let MetricExplanation::Failed(failed) = metric {
            found.changes.push(Change::Repair { what: format!("{} must be readable", failed.subject) });
        }
    }
    let trial = Trial::new(situation)?;
    let current = explanation.current;
    match trial.now() {
        Some(desired) if desired > current => found.changes.extend(trial.kept(Direction::Down)),
        Some(desired) if desired < current => found.changes.extend(trial.kept(Direction::Up)),
        _ => {
            found.changes.extend(trial.wait());
            if trial.readings().next().is_some() {
                trial.moved(Direction::Up, &mut found);
                trial.moved(Direction::Down, &mut found);
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
fn without_metrics(situation: &Situation) -> Option<Change> {
    let explanation = &situation.explanation;
    let (current, min, max) = (explanation.current, explanation.min, explanation.max);
    let schedule = |field: &str, or: &str| {
        let steps = situation.policy.iter().flat_map(|policy| &policy.steps);
        let schedule = steps.into_iter().find_map(|step| match step {
            PolicyStep::Schedule(step) if *step.field == *field => Some(&step.schedule),
            _ => None,
        })?;
        Some(Change::Repair {
            what: format!(
                "to stay {current}, schedule {schedule} must set {field} to {current} or {or}, or end"
            ),
        })
    };
    if situation.decided().count() == Some(current) && explanation.desired.is_some() {
        // The scaling policy keeps the count.
        return None;
    }
    let field = |path, now: i32, or: &str| {
        let must_be = format!("{current} or {or}");
        Some(Change::Field { path, now: now.to_string(), must_be, to: current })
    };
    let repair = |what: &str| Some(Change::Repair { what: what.to_owned() });
    match explanation.path {
        DecisionPath::AboveMax => {
            schedule("maxReplicas", "more").or_else(|| field("spec.maxReplicas", max, "more"))
        }
        DecisionPath::BelowMin => {
            schedule("minReplicas", "less").or_else(|| field("spec.minReplicas", min, "less"))
        }
        DecisionPath::Disabled => {
            repair("the target must be set to 1 replica or more, which resumes autoscaling")
        }
        DecisionPath::NoScale if explanation.scale_failure() == ScaleFailureClass::TooManyMetrics => {
            repair("the HPA must have fewer metrics")
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
    /// Finds the values that give more or fewer pods, or what prevents them, for a decision that keeps the count.
    fn moved(&self, direction: Direction, found: &mut Counterfactual) {
        let current = self.explanation.current;
        let wanted = match direction {
            Direction::Up => current.saturating_add(1)..=i32::MAX,
            Direction::Down => i32::MIN..=current.saturating_sub(1),
        };
        let mut tried = [(Past::Known, 0), (Past::Settled, self.settles_in(direction))].into_iter().map(
            |(past, for_seconds)| -> Vec<Change> {
                let alternatives = self.alternatives(direction, past, &wanted).into_iter();
                let changes = alternatives.filter_map(|(direction, needed)| {
                    let to = self.desired(&levels_of(&needed), past)?;
                    Some(Change::Metrics { direction, thresholds: thresholds(needed), for_seconds, to })
                });
                changes.collect()
            },
        );
        let changes = tried.find(|changes| !changes.is_empty()).unwrap_or_default();
        // If the count changes with the current values after a wait, no other value is found.
        let waits = || self.desired(&[], Past::Settled).is_some_and(|desired| wanted.contains(&desired));
        if changes.is_empty() && !waits() {
            found.holds.extend(self.limit_at_extreme(direction).map(|by| Hold { direction, by }));
        }
        found.changes.extend(changes);
    }
}

fn thresholds(found: Vec<CriticalLevel>) -> Vec<Threshold> {
    found.into_iter().map(|critical| critical.threshold).collect()
}

impl Counterfactual {
    /// Renders the changes and the holds as a step. Returns `None` if there are none.
    pub fn step(&self, explanation: &Explanation, at: Timestamp, zone: &Zone) -> Option<Step> {
        let mut step = Step::new("What would have to change for another result");
        step.lines.extend(self.changes.iter().map(|change| line(change, at, zone)));
        step.lines.extend(self.holds.iter().map(|hold| hold_line(*hold, explanation)));
        (!step.lines.is_empty()).then_some(step)
    }
}

fn line(change: &Change, at: Timestamp, zone: &Zone) -> Line {
    match change {
        Change::Metrics { direction, thresholds, for_seconds, to } => {
            let all = join(thresholds, *direction, Threshold::describe);
            let together = if thresholds.len() == 2 { ", both" } else { "" };
            let line = Line::new(format!("for {to}")).plain(all);
            match for_seconds {
                0 => line,
                seconds => line.plain(format!("{together} for {}", Span::seconds(*seconds))),
            }
        }
        Change::Keep { direction, thresholds, to } => {
            Line::new(format!("to stay {to}")).plain(join(thresholds, *direction, Threshold::describe_first))
        }
        Change::Wait { until, step, to } => {
            let wait =
                if *until > at { format!(" (in {})", Span::between(at, *until)) } else { String::new() };
            Line::new(format!("for {to}"))
                .plain("wait until ")
                .strong(zone.time(*until, at))
                .plain(format!("{wait}, when {}, if the metrics stay as they are", expiry(*step)))
        }
        Change::Field { path, now, must_be, to } => {
            Line::new(format!("for {to}")).plain(format!("{path} {must_be} (it is {now})"))
        }
        Change::Policy { at: from, what, to } => {
            let wait = if *from > at { format!(" (in {})", Span::between(at, *from)) } else { String::new() };
            let label = to.map_or_else(|| "policy".to_owned(), |to| format!("for {to}"));
            let metrics = if to.is_some() { ", if the metrics stay as they are" } else { "" };
            Line::new(label)
                .plain("at ")
                .strong(zone.time(*from, at))
                .plain(format!("{wait} {what}{metrics}"))
        }
        Change::Repair { what } => Line::new("needed").plain(what.as_str()),
    }
}

fn join(
    thresholds: &[Threshold],
    direction: Direction,
    describe: impl Fn(&Threshold, Direction) -> String,
) -> String {
    let whole = |threshold: &Threshold| describe(threshold, direction) + &threshold.end(direction);
    thresholds.iter().map(whole).collect::<Vec<_>>().join(" and ")
}

impl Threshold {
    /// Describes a threshold: `cpu above 88 % of request (440m of 500m per pod; now 86 %)`. The number is the last
    /// value with the same result, or the first value with another result if its text is shorter.
    fn describe(&self, direction: Direction) -> String {
        let subject = &self.subject;
        let (beyond, up_to) = match direction {
            Direction::Up => ("above", "at least"),
            Direction::Down => ("below", "at most"),
        };
        if let Some(exact) = self.exact(direction) {
            return exact;
        }
        let number = |value: Measure, total: Option<i64>| match total {
            Some(total) => milli(total, subject),
            None => amount(value, subject),
        };
        let last = number(self.last, self.totals.map(|[_, last, _]| last));
        let first = number(self.first, self.totals.map(|[.., first]| first));
        if last == first {
            // The values differ only by less than the precision of the printed number.
            self.phrase(beyond, self.first, &first)
        } else if last.len() < first.len() || (direction == Direction::Up && last.len() == first.len()) {
            // `above 88 %` reads better than `at least 89 %`.
            self.phrase(beyond, self.last, &last)
        } else {
            self.phrase(up_to, self.first, &first)
        }
    }

    /// Describes a threshold by the first value with another result: `cpu at most 88 % of request (...)`.
    fn describe_first(&self, direction: Direction) -> String {
        if let Some(exact) = self.exact(direction) {
            return exact;
        }
        let within_one = self.last == self.first && self.totals.is_none_or(|[_, last, first]| last == first);
        let word = match (direction, within_one) {
            (Direction::Up, false) => "at least",
            (Direction::Up, true) => "above",
            (Direction::Down, false) => "at most",
            (Direction::Down, true) => "below",
        };
        let number = match self.totals {
            Some([.., first]) => milli(first, &self.subject),
            None => amount(self.first, &self.subject),
        };
        self.phrase(word, self.first, &number)
    }

    /// Describes a threshold within one percent by its usage: `cpu at most 2.631 of 4 per pod, that is 65 % of request`.
    fn exact(&self, direction: Direction) -> Option<String> {
        let (usage, request) = self.usage.zip(self.request)?;
        let word = if direction == Direction::Up { "at least" } else { "at most" };
        let subject = &self.subject;
        Some(format!(
            "{subject} {word} {} per pod, that is {} of request (now {})",
            share_of(usage, request, subject),
            amount(self.first, subject),
            amount(self.now, subject)
        ))
    }

    /// Describes the end of the values beyond the threshold: `, but at most 55 %`.
    fn end(&self, direction: Direction) -> String {
        let Some(Until { last, total, usage }) = self.until else { return String::new() };
        let word = if direction == Direction::Up { "at most" } else { "at least" };
        let subject = &self.subject;
        let number = match (usage.zip(self.request), total) {
            (Some((usage, request)), _) => format!("{} per pod", share_of(usage, request, subject)),
            (None, Some(total)) => format!("{} in total", milli(total, subject)),
            (None, None) => amount(last, subject),
        };
        format!(", but {word} {number}")
    }

    fn phrase(&self, word: &str, value: Measure, number: &str) -> String {
        let subject = &self.subject;
        let now = amount(self.now, subject);
        match (value, self.request) {
            _ if self.totals.is_some() => {
                format!("{subject} {word} {number} in total, that is {} (now {now})", amount(value, subject))
            }
            (Measure::Percent(percent), Some(request)) => {
                let used = i128::from(request) * i128::from(percent) / 100;
                let used = share_of(i64::try_from(used).unwrap_or(i64::MAX), request, subject);
                format!("{subject} {word} {number} of request ({used} per pod; now {now})")
            }
            (Measure::Percent(_), None) => format!("{subject} {word} {number} of request (now {now})"),
            _ => format!("{subject} {word} {number} (now {now})"),
        }
    }
}

fn expiry(step: LimitingStep) -> &'static str {
    match step {
        LimitingStep::ScaleUpWindow => "the scale-up window expires",
        LimitingStep::ScaleDownWindow => "the scale-down window expires",
        LimitingStep::ScaleUpPolicy => "the scale-up policies allow more",
        LimitingStep::ScaleDownPolicy => "the scale-down policies allow more",
        _ => "the limit expires",
    }
}

fn hold_line(hold: Hold, explanation: &Explanation) -> Line {
    let (label, what) = match hold.direction {
        Direction::Up => ("for more", "adds a pod"),
        Direction::Down => ("for fewer", "removes a pod"),
    };
    let HeldBy::Step(by) = hold.by else {
        return Line::new(label).plain(format!("no metric value {what}: the scaling policy prevents it"));
    };
    let why = match by {
        LimitingStep::Failure => "while a metric cannot be read, nothing is scaled down".to_owned(),
        LimitingStep::Tolerance => "the tolerance hides every change".to_owned(),
        LimitingStep::MissingPods => "too many pods have no sample or are not ready".to_owned(),
        LimitingStep::ScaleUpWindow => "the scale-up window prevents it".to_owned(),
        LimitingStep::ScaleDownWindow => "the scale-down window prevents it".to_owned(),
        LimitingStep::ScaleUpPolicy => "behavior.scaleUp prevents it".to_owned(),
        LimitingStep::ScaleDownPolicy => "behavior.scaleDown prevents it".to_owned(),
        LimitingStep::Maximum => format!("maxReplicas is {}", explanation.max),
        LimitingStep::Minimum => format!("minReplicas is {}", explanation.min),
    };
    Line::new(label).plain(format!("no metric value {what}: {why}"))
}

#[cfg(test)]
mod tests;
