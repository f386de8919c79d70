//! The inputs of a decision that a policy replaces: the bounds of the HPA, and the settings of the controller.
//!
//! Of all active schedules, the highest floor and the lowest ceiling apply. A ceiling takes precedence over a floor,
//! and the bounds of the HPA take precedence over the schedules.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::settings::Settings;
use autoscaling::spec::Spec;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::spec::{PolicySpec, Schedule};

/// The floor and the ceiling of the active schedules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActiveBounds {
    /// The highest floor.
    pub floor: Option<ActiveBound>,
    /// The lowest ceiling.
    pub ceiling: Option<ActiveBound>,
}

/// A bound of an active schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveBound {
    /// `minReplicas` or `maxReplicas` of the schedule.
    pub replicas: i32,
    /// The name of the schedule.
    pub schedule: Arc<str>,
    /// The end of the schedule. `None` if it never ends.
    pub until: Option<Timestamp>,
}

/// A bound of the HPA that a schedule changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStep {
    /// The name of the schedule.
    pub schedule: Arc<str>,
    /// `minReplicas` or `maxReplicas`.
    pub field: Arc<str>,
    /// The bound of the HPA.
    pub from: i32,
    /// The bound that applies.
    pub to: i32,
    /// The bound of the schedule. `None` if it is equal to the bound that applies.
    pub requested: Option<i32>,
    /// The end of the schedule. `None` if it never ends.
    pub until: Option<Timestamp>,
}

impl fmt::Display for ScheduleStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedule, field, from, to, requested, until } = self;
        write!(f, "schedule {schedule} sets {field} to {to} instead of {from}")?;
        if let Some(requested) = requested {
            write!(f, " ({requested} is out of bounds)")?;
        }
        until.map_or(Ok(()), |until| write!(f, " until {until}"))
    }
}

/// The bounds that apply to an HPA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounded {
    /// The effective `minReplicas`.
    pub min: i32,
    /// The effective `maxReplicas`.
    pub max: i32,
    /// The changes of the HPA's bounds.
    pub steps: Vec<ScheduleStep>,
}

impl ActiveBounds {
    /// Returns the bounds at a time, and the next time at which they may change.
    pub fn new(schedules: &[Schedule], now: Timestamp) -> (Self, Option<Timestamp>) {
        let mut bounds = Self::default();
        let mut edge = None::<Timestamp>;
        for schedule in schedules {
            let phase = schedule.when.phase(now);
            edge = edge.into_iter().chain(phase.until).min();
            if !phase.is_active {
                continue;
            }
            let bound = |replicas: i32| ActiveBound {
                replicas,
                schedule: Arc::clone(&schedule.name),
                until: phase.until,
            };
            // Of equal bounds, the bound with the latest end is used. If the ends are also equal, the bound with the
            // first name is used. The order of the schedules does not matter.
            let rest = |bound: &ActiveBound| {
                (bound.until.unwrap_or(Timestamp::MAX), std::cmp::Reverse(Arc::clone(&bound.schedule)))
            };
            let higher = |bound: &ActiveBound| (bound.replicas, rest(bound));
            let lower = |bound: &ActiveBound| (std::cmp::Reverse(bound.replicas), rest(bound));
            let floor = schedule.min_replicas.map(bound);
            bounds.floor = bounds.floor.into_iter().chain(floor).max_by_key(higher);
            let ceiling = schedule.max_replicas.map(bound);
            bounds.ceiling = bounds.ceiling.into_iter().chain(ceiling).max_by_key(lower);
        }
        (bounds, edge)
    }

    /// Applies the bounds within those of an HPA. Invalid bounds, with `min` above `max`, do not change.
    pub fn apply(&self, min: i32, max: i32) -> Bounded {
        let mut bounded = Bounded { min, max, steps: Vec::new() };
        if min > max {
            return bounded;
        }
        if let Some(ceiling) = &self.ceiling {
            bounded.max = ceiling.replicas.clamp(min, max);
        }
        if let Some(floor) = &self.floor {
            bounded.min = floor.replicas.clamp(min, bounded.max);
        }
        let step = |bound: &Option<ActiveBound>, field: &str, from: i32, to: i32| {
            let bound = bound.as_ref().filter(|_| from != to)?;
            Some(ScheduleStep {
                schedule: Arc::clone(&bound.schedule),
                field: field.into(),
                from,
                to,
                requested: (bound.replicas != to).then_some(bound.replicas),
                until: bound.until,
            })
        };
        let steps = [
            step(&self.floor, "minReplicas", min, bounded.min),
            step(&self.ceiling, "maxReplicas", max, bounded.max),
        ];
        bounded.steps.extend(steps.into_iter().flatten());
        bounded
    }

    /// Returns the spec of an HPA with the bounds applied, and the changes. Without a change, the spec is shared.
    pub fn spec(&self, spec: &Arc<Spec>) -> (Arc<Spec>, Vec<ScheduleStep>) {
        let min = spec.min_replicas.unwrap_or(1);
        let bounded = self.apply(min, spec.max_replicas);
        if bounded.steps.is_empty() {
            return (Arc::clone(spec), bounded.steps);
        }
        let min_replicas = if bounded.min == min { spec.min_replicas } else { Some(bounded.min) };
        let spec = Spec { min_replicas, max_replicas: bounded.max, ..(**spec).clone() };
        (Arc::new(spec), bounded.steps)
    }
}

/// The period in which [`contradiction`] searches, which contains all edges of a yearly schedule.
const SEARCHED: SignedDuration = SignedDuration::from_hours(366 * 24);
/// Maximum number of edges that [`contradiction`] searches. An hourly schedule reaches it after three weeks.
const MAX_EDGES: usize = 1_000;

/// A contradiction between schedules: the lowest ceiling is below the highest floor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The start of the contradiction, or of the search.
    pub at: Timestamp,
    /// The highest floor.
    pub floor: ActiveBound,
    /// The lowest ceiling.
    pub ceiling: ActiveBound,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, floor, ceiling } = self;
        write!(
            f,
            "at {at}, minReplicas {} of schedule {} is above maxReplicas {} of schedule {}: maxReplicas applies",
            floor.replicas, floor.schedule, ceiling.replicas, ceiling.schedule
        )
    }
}

/// Returns the first contradiction of the schedules within a year from `now`, and within a thousand edges.
pub fn contradiction(schedules: &[Schedule], now: Timestamp) -> Option<Contradiction> {
    let (has_floor, has_ceiling) = (
        schedules.iter().any(|schedule| schedule.min_replicas.is_some()),
        schedules.iter().any(|schedule| schedule.max_replicas.is_some()),
    );
    if !has_floor || !has_ceiling {
        return None;
    }
    let end = now.checked_add(SEARCHED).unwrap_or(Timestamp::MAX);
    let mut at = now;
    for _ in 0..MAX_EDGES {
        let (bounds, edge) = ActiveBounds::new(schedules, at);
        if let Some((floor, ceiling)) = bounds.floor.zip(bounds.ceiling)
            && floor.replicas > ceiling.replicas
        {
            return Some(Contradiction { at, floor, ceiling });
        }
        at = edge.filter(|edge| *edge > at && *edge <= end)?;
    }
    None
}

/// Returns the settings of the controller, with the values that the policy sets. `behavior` of the HPA takes precedence
/// over `tolerance` and `downscaleStabilizationSeconds` of the policy, and over the flags.
pub fn settings(policy: &PolicySpec, settings: &Settings) -> Settings {
    let seconds = |seconds: Option<u32>, default| {
        seconds.map_or(default, |seconds| Duration::from_secs(seconds.into()))
    };
    Settings {
        tolerance: policy.tolerance.unwrap_or(settings.tolerance),
        downscale_stabilization: seconds(
            policy.downscale_stabilization_seconds,
            settings.downscale_stabilization,
        ),
        cpu_initialization_period: seconds(
            policy.cpu_initialization_period_seconds,
            settings.cpu_initialization_period,
        ),
        initial_readiness_delay: seconds(
            policy.initial_readiness_delay_seconds,
            settings.initial_readiness_delay,
        ),
        status_precision: policy.status_precision.unwrap_or(settings.status_precision),
        ..settings.clone()
    }
}

/// The time from one sync to the next. `None` means the sync period of the controller.
pub fn sync_period(policy: &PolicySpec) -> Option<Duration> {
    policy.sync_period_seconds.map(|seconds| Duration::from_secs(seconds.into()))
}
