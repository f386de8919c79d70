//! `schedules`: floors and ceilings for a time.

use std::sync::Arc;

use jiff::Timestamp;

use super::ProblemReason;
use super::reader::Reader;
use crate::schedule::{Phase, Recurrence};

/// Maximum bytes of the name of a schedule.
const MAX_NAME: usize = 63;
/// Maximum bytes of a time zone's name and of a cron expression. [`Recurrence::parse`] has a lower maximum for
/// expressions.
const MAX_TEXT: usize = 1024;

/// A floor or a ceiling, or both, for a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The name in conditions and events.
    pub name: Arc<str>,
    /// The floor.
    pub min_replicas: Option<i32>,
    /// The ceiling.
    pub max_replicas: Option<i32>,
    /// The time.
    pub when: When,
}

/// The time of a [`Schedule`].
#[derive(Debug, Clone, PartialEq)]
pub enum When {
    /// Once, from one time to another. The schedule is not active at `to`.
    Interval {
        /// The start.
        from: Timestamp,
        /// The end.
        to: Timestamp,
    },
    /// Repeatedly, from the times of one cron expression to the times of another.
    Recurring(Arc<Recurrence>),
}

impl When {
    /// Whether the schedule is active, and a time before which this does not change.
    pub fn phase(&self, now: Timestamp) -> Phase {
        match self {
            Self::Interval { from, to } => {
                let is_active = (*from..*to).contains(&now);
                let until = [*from, *to].into_iter().find(|edge| *edge > now);
                Phase { is_active, until }
            }
            Self::Recurring(recurrence) => recurrence.phase(now),
        }
    }
}

/// Reads one entry.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Schedule> {
    let name = reader.text("name", MAX_NAME);
    if name.is_none() && !reader.has("name") {
        reader.report("name", ProblemReason::Missing("conditions and events need it"));
    }
    let is_bound = reader.has("minReplicas") || reader.has("maxReplicas");
    let (min_replicas, max_replicas) = (reader.count("minReplicas"), reader.count("maxReplicas"));
    match (min_replicas, max_replicas) {
        (None, None) if !is_bound => {
            reader.report_whole(ProblemReason::Conflict("needs minReplicas or maxReplicas, or both"));
        }
        (Some(min), Some(max)) if min > max => {
            reader.report("minReplicas", ProblemReason::Conflict("is higher than maxReplicas"));
        }
        _ => {}
    }
    let is_interval = reader.has("from") || reader.has("to");
    let is_recurring = reader.has("start") || reader.has("end") || reader.has("timeZone");
    let (from, to) = (reader.time("from"), reader.time("to"));
    let mut text = |field| reader.text(field, MAX_TEXT);
    let (time_zone, start, end) = (text("timeZone"), text("start"), text("end"));
    let when = match (is_interval, is_recurring) {
        (true, false) => interval(reader, from, to),
        (false, true) => recurring(reader, time_zone.as_deref(), start.as_deref(), end.as_deref()),
        (true, true) => {
            reader.report_whole(ProblemReason::Conflict("has from or to, and also start, end or timeZone"));
            None
        }
        (false, false) => {
            reader.report_whole(ProblemReason::Conflict("needs from and to, or start and end"));
            None
        }
    };
    Some(Schedule { name: name?.into(), min_replicas, max_replicas, when: when? })
}

fn interval(reader: &mut Reader<'_>, from: Option<Timestamp>, to: Option<Timestamp>) -> Option<When> {
    match (from, to) {
        (Some(from), Some(to)) if from < to => Some(When::Interval { from, to }),
        (Some(_), Some(_)) => {
            reader.report("to", ProblemReason::Conflict("is not later than from"));
            None
        }
        (from, _) => {
            let field = if from.is_none() { "from" } else { "to" };
            reader.report(field, ProblemReason::Missing("a schedule needs from and to"));
            None
        }
    }
}

fn recurring(
    reader: &mut Reader<'_>,
    time_zone: Option<&str>,
    start: Option<&str>,
    end: Option<&str>,
) -> Option<When> {
    let time_zone = time_zone.unwrap_or("UTC");
    let (Some(start), Some(end)) = (start, end) else {
        let field = if start.is_none() { "start" } else { "end" };
        reader.report(field, ProblemReason::Missing("a schedule needs start and end"));
        return None;
    };
    match Recurrence::parse(time_zone, start, end) {
        Ok(recurrence) => Some(When::Recurring(Arc::new(recurrence))),
        Err(error) => {
            reader.report_whole(ProblemReason::Schedule(error));
            None
        }
    }
}
