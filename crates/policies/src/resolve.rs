//! The rules of a policy at a time, and their next change. All HPAs with the same policy share the rules.
//!
//! The mode determines which changes of the count are allowed. It applies after the guards.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::bounds::ActiveBounds;
use crate::history::PolicyHistory;
use crate::merge::Policy;
use crate::spec::{Mode, ModeRule};

/// The rules of a policy at a time.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The policy.
    pub policy: Arc<Policy>,
    /// The mode.
    pub mode: ActiveMode,
    /// The floor and the ceiling of the active schedules.
    pub bounds: ActiveBounds,
    /// The time from which the rules apply.
    pub at: Timestamp,
    /// The time before which the rules do not change. `None` if they never change.
    pub next_edge: Option<Timestamp>,
}

/// The mode at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ActiveMode {
    /// The mode. `None` if it is invalid, so the count does not change.
    pub mode: Option<Mode>,
    /// The count of [`Mode::Pinned`].
    pub replicas: i32,
    /// The end of the mode. `None` if it never ends.
    pub until: Option<Timestamp>,
}

impl ActiveMode {
    /// The mode without a policy.
    pub const AUTO: Self = Self { mode: Some(Mode::Auto), replicas: 0, until: None };
}

/// Resolves a policy for a time.
pub fn resolve(policy: &Arc<Policy>, now: Timestamp) -> Rules {
    let rule = policy.spec.mode.filter(|rule| rule.until.is_none_or(|until| now < until));
    let mode = rule.map_or(ActiveMode::AUTO, |ModeRule { mode, replicas, until }| ActiveMode {
        mode,
        replicas: replicas.unwrap_or(0),
        until,
    });
    let (bounds, edge) = ActiveBounds::new(policy.spec.schedules.as_deref().unwrap_or_default(), now);
    let next_edge = mode.until.into_iter().chain(edge).min();
    Rules { policy: Arc::clone(policy), mode, bounds, at: now, next_edge }
}

impl Rules {
    /// Whether the rules apply at `now`. If not, call [`resolve`] again.
    pub fn apply_at(&self, now: Timestamp) -> bool {
        self.at <= now && self.next_edge.is_none_or(|edge| now < edge)
    }

    /// The next time at which the rules may change for an HPA with this history. Reasons are the edge of a schedule,
    /// the end of a mode, and the start of a fallback.
    pub fn next_edge(&self, history: &PolicyHistory, now: Timestamp) -> Option<Timestamp> {
        let fallbacks = self.policy.spec.fallback.as_deref().unwrap_or_default();
        self.next_edge.into_iter().chain(history.next_edge(fallbacks, now)).min()
    }

    /// The next change of the rules for an HPA with this history. `None` if the rules will not change.
    pub fn next_change(&self, history: &PolicyHistory, now: Timestamp) -> Option<NextChange> {
        let at = self.next_edge(history, now)?;
        let mut changes = Vec::new();
        if self.mode.until == Some(at) {
            changes.push(RuleChange::ModeEnds { mode: self.mode.mode });
        }
        for (field, bound) in [("minReplicas", &self.bounds.floor), ("maxReplicas", &self.bounds.ceiling)] {
            if let Some(bound) = bound.as_ref().filter(|bound| bound.until == Some(at)) {
                let (schedule, field) = (Arc::clone(&bound.schedule), field.into());
                changes.push(RuleChange::ScheduleEnds { schedule, field, replicas: bound.replicas });
            }
        }
        if self.next_edge != Some(at) {
            changes.push(RuleChange::FallbackStarts);
        }
        if changes.is_empty() {
            changes.push(RuleChange::Schedule);
        }
        Some(NextChange { at, changes })
    }
}

/// The next change of the rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextChange {
    /// The time of the change.
    pub at: Timestamp,
    /// The rules that start or end. Never empty.
    pub changes: Vec<RuleChange>,
}

/// A rule that starts or ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RuleChange {
    /// A mode ends, so [`Mode::Auto`] applies.
    ModeEnds {
        /// The mode that ends. `None` if it is invalid.
        mode: Option<Mode>,
    },
    /// The schedule of an active bound ends.
    ScheduleEnds {
        /// The name of the schedule.
        schedule: Arc<str>,
        /// `minReplicas` or `maxReplicas`.
        field: Arc<str>,
        /// The bound of the schedule.
        replicas: i32,
    },
    /// A schedule without an active bound starts or ends.
    Schedule,
    /// The failure duration of a fallback has elapsed, so the fallback applies.
    FallbackStarts,
}

impl fmt::Display for RuleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ModeEnds { mode: Some(mode) } => write!(f, "the mode {mode:?} ends"),
            Self::ModeEnds { mode: None } => f.write_str("the invalid mode ends"),
            Self::ScheduleEnds { schedule, field, replicas } => {
                write!(f, "{field} {replicas} of schedule {schedule} ends")
            }
            Self::Schedule => f.write_str("a schedule changes the bounds"),
            Self::FallbackStarts => f.write_str("the fallback of a failed metric starts"),
        }
    }
}

impl fmt::Display for NextChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes: Vec<String> = self.changes.iter().map(ToString::to_string).collect();
        f.write_str(&changes.join(" and "))
    }
}

/// The effect of a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModeStep {
    /// The mode. `None` if it is invalid, so the count does not change.
    pub mode: Option<Mode>,
    /// The end of the mode. `None` if it never ends.
    pub until: Option<Timestamp>,
    /// The current count.
    pub current: i32,
    /// The count without the mode. `None` if no count could be computed.
    pub recommended: Option<i32>,
    /// The count with the mode. `None` if no count is applied.
    pub applied: Option<i32>,
}

impl fmt::Display for ModeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, until, current, recommended, applied } = self;
        match mode {
            None => write!(f, "the mode is invalid, so the count stays at {current}")?,
            Some(Mode::Auto) => f.write_str("automatic")?,
            Some(Mode::Paused) => write!(f, "paused at {current}")?,
            Some(Mode::ScaleUpOnly) => f.write_str("only scale-ups are allowed")?,
            Some(Mode::ScaleDownOnly) => f.write_str("only scale-downs are allowed")?,
            Some(Mode::Pinned) => write!(f, "pinned at {}", applied.unwrap_or(*current))?,
            Some(Mode::DryRun) => write!(f, "dry run, the count stays at {current}")?,
        }
        if let Some(until) = until {
            write!(f, " until {until}")?;
        }
        match recommended.filter(|count| Some(*count) != *applied) {
            Some(count) => write!(f, ", the recommendation is {count}"),
            None => Ok(()),
        }
    }
}

/// Applies a mode. `recommended` is the count that the guards allow, or `None` if no count could be computed. Returns
/// the count to apply, and the effect of a mode other than Auto. Without a recommendation, only the mode Pinned applies
/// a count.
pub fn apply(mode: &ActiveMode, current: i32, recommended: Option<i32>) -> (Option<i32>, Option<ModeStep>) {
    let applied = match mode.mode {
        Some(Mode::Auto) => return (recommended, None),
        Some(Mode::Pinned) => Some(mode.replicas),
        Some(Mode::ScaleUpOnly) => recommended.map(|count| count.max(current)),
        Some(Mode::ScaleDownOnly) => recommended.map(|count| count.min(current)),
        None | Some(Mode::Paused | Mode::DryRun) => recommended.map(|_| current),
    };
    let step = ModeStep { mode: mode.mode, until: mode.until, current, recommended, applied };
    (applied, Some(step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::{Policy, Source};
    use crate::spec::{Level, parse};

    #[test]
    fn next_change_names_what_ends() {
        let text = "
            mode: Paused
            until: 2026-11-24T08:00:00Z
            schedules:
            - {name: office, timeZone: Europe/Berlin, start: '0 8 * * 1-5', end: '0 19 * * 1-5', minReplicas: 10}
            - {name: sale, from: 2026-11-25T00:00:00Z, to: 2026-11-25T18:00:00Z, maxReplicas: 40}
            fallback: [{when: Error, failureDurationSeconds: 120, action: Hold}]";
        let source = Source {
            level: Level::Annotation,
            name: "".into(),
            created: None,
            parsed: Arc::new(parse(text, Level::Annotation)),
        };
        let policy = Arc::new(Policy::merge(vec![source]));
        for (now, at, expected) in [
            ("2026-11-24T06:00:00Z", "2026-11-24T07:00:00Z", "a schedule changes the bounds"),
            ("2026-11-24T07:00:00Z", "2026-11-24T08:00:00Z", "the mode Paused ends"),
            ("2026-11-24T08:00:00Z", "2026-11-24T18:00:00Z", "minReplicas 10 of schedule office ends"),
            (
                "2026-11-25T12:00:00Z",
                "2026-11-25T18:00:00Z",
                "minReplicas 10 of schedule office ends and maxReplicas 40 of schedule sale ends",
            ),
        ] {
            let now: Timestamp = now.parse().unwrap();
            let next = resolve(&policy, now).next_change(&PolicyHistory::default(), now).unwrap();
            assert_eq!((next.at.to_string().as_str(), next.to_string().as_str()), (at, expected));
        }
        let now: Timestamp = "2026-11-24T08:00:00Z".parse().unwrap();
        let mut history = PolicyHistory::default();
        let metric = history.metrics.entry("cpu".into()).or_default();
        metric.failing = Some((now, crate::spec::Cause::Error));
        let next = resolve(&policy, now).next_change(&history, now).unwrap();
        assert_eq!(next.to_string(), "the fallback of a failed metric starts");
        assert_eq!(next.at.to_string(), "2026-11-24T08:02:00Z");
    }

    #[test]
    fn mode_withholds_what_it_does_not_allow() {
        let until = "2026-12-01T08:00:00Z".parse().unwrap();
        let text = |mode, recommended| {
            let mode = ActiveMode { mode, replicas: 5, until: Some(until) };
            let (applied, step) = apply(&mode, 4, recommended);
            (applied, step.map(|step| step.to_string()).unwrap_or_default())
        };
        for (mode, recommended, applied, expected) in [
            (Some(Mode::Auto), Some(9), Some(9), ""),
            (Some(Mode::Auto), None, None, ""),
            (
                Some(Mode::Paused),
                Some(9),
                Some(4),
                "paused at 4 until 2026-12-01T08:00:00Z, the recommendation is 9",
            ),
            (Some(Mode::Paused), Some(4), Some(4), "paused at 4 until 2026-12-01T08:00:00Z"),
            (Some(Mode::Paused), None, None, "paused at 4 until 2026-12-01T08:00:00Z"),
            (
                Some(Mode::ScaleUpOnly),
                Some(2),
                Some(4),
                "only scale-ups are allowed until 2026-12-01T08:00:00Z, the recommendation is 2",
            ),
            (
                Some(Mode::ScaleUpOnly),
                Some(9),
                Some(9),
                "only scale-ups are allowed until 2026-12-01T08:00:00Z",
            ),
            (
                Some(Mode::ScaleDownOnly),
                Some(9),
                Some(4),
                "only scale-downs are allowed until 2026-12-01T08:00:00Z, the recommendation is 9",
            ),
            (
                Some(Mode::ScaleDownOnly),
                Some(2),
                Some(2),
                "only scale-downs are allowed until 2026-12-01T08:00:00Z",
            ),
            (
                Some(Mode::Pinned),
                Some(9),
                Some(5),
                "pinned at 5 until 2026-12-01T08:00:00Z, the recommendation is 9",
            ),
            (Some(Mode::Pinned), None, Some(5), "pinned at 5 until 2026-12-01T08:00:00Z"),
            (
                Some(Mode::DryRun),
                Some(9),
                Some(4),
                "dry run, the count stays at 4 until 2026-12-01T08:00:00Z, the recommendation is 9",
            ),
            (
                None,
                Some(9),
                Some(4),
                "the mode is invalid, so the count stays at 4 until 2026-12-01T08:00:00Z, the recommendation is 9",
            ),
        ] {
            assert_eq!(text(mode, recommended), (applied, expected.to_owned()), "{mode:?} {recommended:?}");
        }
    }
}
