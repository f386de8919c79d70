//! Cron expressions as CronJobs of Kubernetes know them: the standard parser of robfig/cron, without `@` descriptors.
//!
//! No library is used. Those for Rust also accept `L`, `W`, `#` and `+`, whose matches can be thousands of years apart,
//! and search day by day. Here the fields are sets of bits, and a search looks at each month once. The distance of two
//! matching days is at most eight years, from 29 February 2096 to 29 February 2104.

use std::str::FromStr;

use jiff::ToSpan;
use jiff::civil::{Date, DateTime, Time};
use limits::schedule::{BYTES as MAX_EXPRESSION, MONTHS};

/// The most days of each month, from January.
const LONGEST: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
const MONTH_NAMES: &[&str] =
    &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAY_NAMES: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [FieldKind; 5] = [
    FieldKind { name: "minute", minimum: 0, maximum: 59, names: &[] },
    FieldKind { name: "hour", minimum: 0, maximum: 23, names: &[] },
    FieldKind { name: "day of the month", minimum: 1, maximum: 31, names: &[] },
    FieldKind { name: "month", minimum: 1, maximum: 12, names: MONTH_NAMES },
    FieldKind { name: "day of the week", minimum: 0, maximum: 6, names: WEEKDAY_NAMES },
];

/// The kind of a field, with its valid numbers. The first of its names stands for the minimum.
struct FieldKind {
    name: &'static str,
    minimum: u32,
    maximum: u32,
    names: &'static [&'static str],
}

/// A cron expression. Each field has a bit for each of its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether a day must match both fields of days, because one of them contains `*`. Otherwise one is enough.
    needs_both_days: bool,
}

/// The reason why a cron expression is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// The expression is too long. Contains the length in bytes.
    #[error("it has {0} bytes, at most {MAX_EXPRESSION} are allowed")]
    TooLong(usize),
    /// The expression has another number of fields.
    #[error("it has {0} fields")]
    Fields(usize),
    /// A part of a field is neither a number, a name nor `*`.
    #[error(
        "{part:?} is not a {field}: numbers from {minimum} to {maximum}, *, lists, ranges and steps are allowed"
    )]
    Part {
        /// The kind of the field.
        field: &'static str,
        /// The part, possibly truncated.
        part: String,
        /// The lowest number of the field.
        minimum: u32,
        /// The highest number of the field.
        maximum: u32,
    },
    /// No month has the day.
    #[error("no time matches")]
    NeverMatches,
}

impl Cron {
    /// Parses an expression of five fields. Fails if no time matches it.
    pub(super) fn parse(text: &str) -> Result<Self, CronError> {
        if text.len() > MAX_EXPRESSION {
            return Err(CronError::TooLong(text.len()));
        }
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let &[minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(CronError::Fields(fields.len()));
        };
        let [minute, hour, day, month, weekday] = &FIELDS;
        let (days, any_day) = day.parse(days)?;
        let (weekdays, any_weekday) = weekday.parse(weekdays)?;
        let cron = Self {
            minutes: minute.parse(minutes)?.0,
            hours: hour.parse(hours)?.0,
            days,
            months: month.parse(months)?.0,
            weekdays,
            needs_both_days: any_day || any_weekday,
        };
        // A field with `*` contains all its numbers. So days match each week, or depend on the day of the month only.
        let exists = |(month, longest): (u32, u32)| {
            cron.months & bit(month) != 0 && cron.days & up_to(longest) & !bit(0) != 0
        };
        if any_weekday && !(1..).zip(LONGEST).any(exists) {
            return Err(CronError::NeverMatches);
        }
        Ok(cron)
    }

    /// The first local time after `after` within eight years that matches this expression, but not `except`.
    pub(super) fn next(&self, after: DateTime, except: Option<&Self>) -> Option<DateTime> {
        let from = after.checked_add(1.minute()).ok()?;
        let start = from.date();
        let today = minute_of(from.time());
        if self.days_of(start) & bit(day_of(start)) != 0
            && let Some(minute) = self.first_minute(start, today, except)
        {
            return at(start, minute);
        }
        let mut month = start.first_of_month();
        let mut past = up_to(day_of(start));
        for _ in 0..MONTHS {
            let days = self.days_with_time(month, except) & !past;
            if days != 0 {
                let date = month.with().day(i8::try_from(days.trailing_zeros()).ok()?).build().ok()?;
                return at(date, self.first_minute(date, 0, except)?);
            }
            past = 0;
            month = month.checked_add(1.month()).ok()?;
        }
        None
    }

    /// The last matching local time up to `until` within eight years. Excludes `until` if `is_inclusive` is false.
    pub(super) fn last(&self, until: DateTime, is_inclusive: bool) -> Option<DateTime> {
        let is_whole_minute = until.second() == 0 && until.subsec_nanosecond() == 0;
        let until =
            if is_whole_minute && !is_inclusive { until.checked_sub(1.minute()).ok()? } else { until };
        let end = until.date();
        if self.days_of(end) & bit(day_of(end)) != 0
            && let Some(minute) = self.last_minute(minute_of(until.time()))
        {
            return at(end, minute);
        }
        let mut month = end.first_of_month();
        let mut allowed = up_to(day_of(end)) & !bit(day_of(end));
        for _ in 0..MONTHS {
            let days = self.days_of(month) & allowed;
            if let Some(day) = days.checked_ilog2() {
                let date = month.with().day(i8::try_from(day).ok()?).build().ok()?;
                return at(date, self.last_minute(24 * 60 - 1)?);
            }
            allowed = u64::MAX;
            month = month.checked_sub(1.month()).ok()?;
        }
        None
    }

    /// The matching days of the month of a date.
    fn days_of(&self, date: Date) -> u64 {
        if self.months & bit(u32::from(date.month().unsigned_abs())) == 0 {
            return 0;
        }
        let first = u32::from(date.first_of_month().weekday().to_sunday_zero_offset().unsigned_abs());
        // Bit 1 is the first day. Bit 0 of `week` is the weekday of the first day.
        let week = (self.weekdays >> first | self.weekdays << (7 - first)) & up_to(6);
        let weekdays = (0..5).fold(0, |days, number| days | week << (1 + 7 * number));
        let matching = if self.needs_both_days { self.days & weekdays } else { self.days | weekdays };
        matching & up_to(u32::from(date.days_in_month().unsigned_abs())) & !bit(0)
    }

    /// The days of the month of a date on which a minute matches this expression, but not `except`.
    fn days_with_time(&self, date: Date, except: Option<&Self>) -> u64 {
        match except {
            Some(except) if self.minutes & !except.minutes == 0 && self.hours & !except.hours == 0 => {
                self.days_of(date) & !except.days_of(date)
            }
            _ => self.days_of(date),
        }
    }

    /// The first minute of a matching day, from the minute `from` of the day, that does not match `except`.
    fn first_minute(&self, date: Date, from: u32, except: Option<&Self>) -> Option<u32> {
        let except = except.filter(|except| except.days_of(date) & bit(day_of(date)) != 0);
        (from / 60..24).filter(|hour| self.hours & bit(*hour) != 0).find_map(|hour| {
            let excepted =
                except.filter(|except| except.hours & bit(hour) != 0).map_or(0, |except| except.minutes);
            let past = if hour == from / 60 { bit(from % 60) - 1 } else { 0 };
            let minutes = self.minutes & !excepted & !past;
            (minutes != 0).then(|| hour * 60 + minutes.trailing_zeros())
        })
    }

    /// The last minute of a matching day, up to the minute `until` of the day.
    fn last_minute(&self, until: u32) -> Option<u32> {
        (0..=until / 60).rev().filter(|hour| self.hours & bit(*hour) != 0).find_map(|hour| {
            let allowed = if hour == until / 60 { up_to(until % 60) } else { u64::MAX };
            Some(hour * 60 + (self.minutes & allowed).checked_ilog2()?)
        })
    }
}

impl FieldKind {
    /// Returns the bits of a field, and whether it contains `*` or `?` without a step.
    fn parse(&self, text: &str) -> Result<(u64, bool), CronError> {
        text.split(',').try_fold((0, false), |(bits, any), part| {
            let (more, is_any) = self.part(part).ok_or_else(|| CronError::Part {
                field: self.name,
                part: part.chars().take(20).collect(),
                minimum: self.minimum,
                maximum: self.maximum,
            })?;
            Ok((bits | more, any || is_any))
        })
    }

    fn part(&self, part: &str) -> Option<(u64, bool)> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(number::<u32>(step).filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let is_any = matches!(range, "*" | "?");
        let (first, last) = match range.split_once('-') {
            _ if is_any => (self.minimum, self.maximum),
            Some((first, last)) => (self.value(first)?, self.value(last)?),
            // As in robfig/cron, `5/10` is `5-59/10`.
            None => (self.value(range)?, if step.is_some() { self.maximum } else { self.value(range)? }),
        };
        let step = step.unwrap_or(1);
        let is_valid = self.minimum <= first && first <= last && last <= self.maximum;
        let numbers = (first..=last).filter(|number| (number - first).is_multiple_of(step));
        is_valid.then(|| (numbers.fold(0, |bits, number| bits | bit(number)), is_any && step == 1))
    }

    fn value(&self, text: &str) -> Option<u32> {
        let named = (self.minimum..).zip(self.names).find(|(_, name)| name.eq_ignore_ascii_case(text));
        named.map(|(value, _)| value).or_else(|| number(text))
    }
}

/// Parses a whole number that has only digits.
pub(crate) fn number<T: FromStr>(text: &str) -> Option<T> {
    // The integers of the standard library accept a plus sign.
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The bit of a number below 64.
fn bit(number: u32) -> u64 {
    1_u64.checked_shl(number).unwrap_or(0)
}

/// The bits of the numbers from 0 to `number`.
fn up_to(number: u32) -> u64 {
    bit(number + 1).wrapping_sub(1)
}

fn day_of(date: Date) -> u32 {
    date.day().unsigned_abs().into()
}

fn minute_of(time: Time) -> u32 {
    u32::from(time.hour().unsigned_abs()) * 60 + u32::from(time.minute().unsigned_abs())
}

fn at(date: Date, minute: u32) -> Option<DateTime> {
    let (hour, minute) = (i8::try_from(minute / 60).ok()?, i8::try_from(minute % 60).ok()?);
    Some(date.to_datetime(Time::new(hour, minute, 0, 0).ok()?))
}
