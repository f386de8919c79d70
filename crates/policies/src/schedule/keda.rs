//! The difference between a schedule and a cron trigger of KEDA with the same expressions.
//!
//! A schedule is active after its last start. A trigger of KEDA is active before its next end. Both agree if each start
//! is followed by an end, and each end by a start. KEDA also skips the local times that a clock change skips, and uses
//! both times of a repeated one (robfig/cron).

use std::fmt;

use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::cron::Cron;
use super::{Calendar, Recurrence, time_zone};

/// The period in which a schedule is compared with KEDA.
const COMPARED: SignedDuration = SignedDuration::from_hours(366 * 24);

/// A time at which a schedule and KEDA differ: the periods around it in which each of them is active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KedaDifference {
    keda: Period,
    schedule: Period,
}

/// A period of activity, as local times. An end is `None` if it is not within the compared year.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Period {
    Never,
    Between(Option<String>, Option<String>),
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never active in a year"),
            Self::Between(None, None) => f.write_str("active for a whole year"),
            Self::Between(Some(from), None) => write!(f, "active from {from}"),
            Self::Between(None, Some(to)) => write!(f, "active until {to}"),
            Self::Between(Some(from), Some(to)) => write!(f, "active from {from} to {to}"),
        }
    }
}

impl fmt::Display for KedaDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keda, schedule } = self;
        write!(f, "KEDA is {keda}, and the schedule is {schedule}")
    }
}

/// The times of an expression in ascending order, for a schedule and for KEDA.
#[derive(Default)]
struct Times {
    schedule: Vec<Timestamp>,
    keda: Vec<Timestamp>,
}

/// Whether both are active from a time on.
struct State {
    from: Timestamp,
    keda: bool,
    schedule: bool,
}

impl Recurrence {
    /// Returns the first difference from KEDA in the year after `now`. `None` if both are active at the same times.
    pub fn keda_difference(&self, now: Timestamp) -> Option<KedaDifference> {
        let zone = time_zone(self.zone)?;
        let states = Calendar { start: &self.start, end: &self.end, zone: zone.clone() }.states(now);
        let states = states.as_slice();
        let of_keda: fn(&State) -> bool = |state| state.keda;
        let of_schedule: fn(&State) -> bool = |state| state.schedule;
        let differs: Vec<usize> = (0..)
            .zip(states)
            .filter(|(_, state)| state.keda != state.schedule)
            .map(|(index, _)| index)
            .collect();
        let found = differs.iter().map(|index| {
            let (mut before, mut after) = ((0..=*index).rev(), *index..states.len());
            let is = |of: fn(&State) -> bool| move |index: &usize| states.get(*index).is_some_and(of);
            // KEDA is inactive because of its next start, and a schedule because of its last end.
            let keda = after.clone().find(is(of_keda)).or_else(|| before.clone().find(is(of_keda)));
            let schedule = before.find(is(of_schedule)).or_else(|| after.find(is(of_schedule)));
            KedaDifference {
                keda: period(states, keda, &zone, of_keda),
                schedule: period(states, schedule, &zone, of_schedule),
            }
        });
        // A difference with all its times is the easiest to understand.
        let mut found: Vec<KedaDifference> = found.take(MAX_EXAMINED).collect();
        let complete = found.iter().position(|found| {
            [&found.keda, &found.schedule]
                .iter()
                .all(|period| matches!(period, Period::Between(Some(_), Some(_))))
        });
        (!found.is_empty()).then(|| found.swap_remove(complete.unwrap_or(0)))
    }
}

/// Maximum number of differences from which the one to print is chosen.
const MAX_EXAMINED: usize = 16;

/// The period of activity that contains a state.
fn period(states: &[State], within: Option<usize>, zone: &TimeZone, is_active: fn(&State) -> bool) -> Period {
    let Some(within) = within else { return Period::Never };
    let active = |index: &usize| states.get(*index).is_some_and(is_active);
    let first = (0..within).rev().take_while(active).last().unwrap_or(within);
    let after = (within..states.len()).find(|index| !active(index));
    let text = |index: usize| {
        let local = zone.to_datetime(states.get(index)?.from);
        Some(local.strftime("%a %F %H:%M").to_string())
    };
    Period::Between(Some(first).filter(|first| *first > 0).and_then(text), after.and_then(text))
}

impl Calendar<'_> {
    /// The states in the year after `now`. The first one starts at `now`.
    fn states(&self, now: Timestamp) -> Vec<State> {
        let Ok(until) = now.checked_add(COMPARED) else { return Vec::new() };
        let starts = self.times(self.start, now, until);
        let ends = self.times(self.end, now, until);
        let mut changes = vec![now];
        for times in [&starts, &ends] {
            changes.extend(times.schedule.iter().chain(&times.keda));
        }
        changes.retain(|time| (now..until).contains(time));
        changes.sort_unstable();
        changes.dedup();
        let next =
            |times: &Times, at| times.keda.get(times.keda.partition_point(|time| *time <= at)).copied();
        let last = |times: &Times, at| {
            let before = times.schedule.partition_point(|time| *time <= at).checked_sub(1)?;
            times.schedule.get(before).copied()
        };
        let at_first = self.phase(now).is_active;
        let states = changes.into_iter().map(|from| State {
            from,
            keda: next(&ends, from).is_some_and(|end| next(&starts, from).is_none_or(|start| end <= start)),
            schedule: match (last(&starts, from), last(&ends, from)) {
                (None, None) => at_first,
                (started, ended) => started >= ended,
            },
        });
        let mut states: Vec<State> = states.collect();
        states.dedup_by(|next, state| (next.keda, next.schedule) == (state.keda, state.schedule));
        states
    }

    /// The times of an expression after `now`, up to at least the first one after `until`.
    fn times(&self, cron: &Cron, now: Timestamp, until: Timestamp) -> Times {
        let mut times = Times::default();
        let mut local = self.zone.to_datetime(now);
        while let Some(next) = cron.next(local, None) {
            local = next;
            let Some(schedule) = self.time(local) else { break };
            times.schedule.extend(Some(schedule).filter(|time| *time > now));
            let keda = self.times_in_keda(local);
            times.keda.extend(keda.into_iter().flatten());
            if schedule > until && keda != [None, None] {
                break;
            }
        }
        times.keda.sort_unstable();
        times
    }

    /// The times at which KEDA sees a local time: none if a clock change skips it, and two if it occurs twice.
    fn times_in_keda(&self, local: jiff::civil::DateTime) -> [Option<Timestamp>; 2] {
        match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => [offset.to_timestamp(local).ok(), None],
            AmbiguousOffset::Fold { before, after } => {
                [before.to_timestamp(local).ok(), after.to_timestamp(local).ok()]
            }
            AmbiguousOffset::Gap { .. } => [None, None],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-12-02T12:00:00Z";

    fn difference(zone: &str, start: &str, end: &str) -> Option<String> {
        let schedule = Recurrence::parse(zone, start, end).unwrap();
        schedule.keda_difference(NOW.parse().unwrap()).map(|difference| difference.to_string())
    }

    #[test]
    fn difference_is_found_where_starts_and_ends_do_not_alternate() {
        for (zone, start, end, expected) in [
            ("UTC", "0 8 * * 1-5", "0 20 * * 1-5", None),
            ("UTC", "30 22 * * MON-FRI", "15 5 * * TUE-SAT", None),
            ("UTC", "0 8 1 * *", "0 8 15 * *", None),
            (
                "Europe/Prague",
                "30 6 * * 1-5",
                "10 22 * * *",
                Some(
                    "KEDA is active from Fri 2026-12-04 06:30 to Sun 2026-12-06 22:10, and the schedule is active from \
                     Fri 2026-12-04 06:30 to Fri 2026-12-04 22:10",
                ),
            ),
            (
                "UTC",
                "0 8 * * *",
                "0 20 * * 5",
                Some(
                    "KEDA is active from Fri 2026-12-11 08:00 to Fri 2026-12-11 20:00, and the schedule is active from \
                     Sat 2026-12-05 08:00 to Fri 2026-12-11 20:00",
                ),
            ),
            (
                "Asia/Kolkata",
                "* * * * 1-5",
                "* * * * 6",
                Some(
                    "KEDA is active from Fri 2026-12-11 23:59 to Sat 2026-12-12 23:59, and the schedule is active from \
                     Mon 2026-12-07 00:00 to Sat 2026-12-12 00:00",
                ),
            ),
            (
                "UTC",
                "0 8 29 2 *",
                "0 20 * * *",
                Some("KEDA is active for a whole year, and the schedule is never active in a year"),
            ),
        ] {
            assert_eq!(difference(zone, start, end).as_deref(), expected, "{start} to {end}");
        }
    }

    #[test]
    fn times_that_a_clock_change_skips_or_repeats_differ() {
        let skipped = difference("Europe/Berlin", "30 2 * * *", "0 20 * * *").unwrap();
        assert!(
            skipped.starts_with("KEDA is active from Sat 2027-03-27 02:30 to Sun 2027-03-28 20:00"),
            "{skipped}"
        );
        assert_eq!(difference("UTC", "30 2 * * *", "0 20 * * *"), None);
    }

    #[test]
    fn states_are_those_of_a_search_in_each_minute() {
        for (zone, now, start, end) in [
            ("UTC", "2026-12-04T00:00:00Z", "0,30 8-10 * * 1-5", "*/45 9-11 * * *"),
            ("Europe/Berlin", "2027-03-27T12:00:00Z", "*/30 1-3 * * *", "15 2,4 * * *"),
            ("Europe/Berlin", "2027-10-30T12:00:00Z", "*/30 1-3 * * *", "15 2,4 * * *"),
            ("America/New_York", "2027-11-06T12:00:00Z", "30 1 * * *", "45 1 * * *"),
        ] {
            let schedule = Recurrence::parse(zone, start, end).unwrap();
            let zone = time_zone(schedule.zone).unwrap();
            let calendar = Calendar { start: &schedule.start, end: &schedule.end, zone: zone.clone() };
            let now: Timestamp = now.parse().unwrap();
            let states = calendar.states(now);
            let minutes: Vec<Timestamp> =
                (0..3 * 24 * 60).map(|minute| now + SignedDuration::from_mins(minute)).collect();
            let matches = |cron: &Cron, time: Timestamp| {
                let local = zone.to_datetime(time);
                cron.last(local, true) == Some(local)
            };
            let mut next_ends = false;
            for (index, at) in minutes.iter().enumerate().rev() {
                // The last day only shows which of the two expressions comes next.
                if index < 2 * 24 * 60 {
                    let state = &states[states.partition_point(|state| state.from <= *at) - 1];
                    let expected = (next_ends, calendar.phase(*at).is_active);
                    assert_eq!((state.keda, state.schedule), expected, "{at}");
                }
                let (starts, ends) = (matches(&schedule.start, *at), matches(&schedule.end, *at));
                next_ends = ends || (next_ends && !starts);
            }
        }
    }
}
