//! Schedules that contradict each other: the floor of one is above the ceiling of another at some time.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use super::{ActiveBound, ActiveBounds};
use crate::spec::Schedule;

/// The time in which contradictions are searched. A yearly schedule has each of its edges in it.
const SEARCHED: SignedDuration = SignedDuration::from_hours(366 * 24);
/// Maximum number of edges that are searched. Hourly schedules reach it after three weeks.
const MAX_EDGES: usize = 1_000;

/// Two schedules of which the ceiling comes before the floor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The first time from the start of the search.
    pub at: Timestamp,
    /// The highest floor.
    pub floor: ActiveBound,
    /// The lowest ceiling, which is below the floor.
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

/// The first contradiction of the schedules from `now` on, within a year and a thousand edges.
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
