//! The same local minutes of earlier days, and the weights of these days.
//!
//! The same minute of an earlier day is the one that its wall clock showed. A local time that a clock change skipped
//! is replaced by the time after the change, and of a local time that occurred twice, the first is used.

use std::collections::BTreeSet;

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use crate::peaks::{BUCKET, DAYS, HOUR};

/// Minutes for which [`Days`] are equal: clocks change at whole quarters of an hour.
pub(crate) const QUARTER: i64 = 15;
/// Loss of weight per day.
const DECAY: f32 = 0.97;

/// The wall clock of a workload's users, and their holidays.
#[derive(Debug, Clone, PartialEq)]
pub struct Calendar {
    /// The time zone.
    pub zone: TimeZone,
    /// Days that count as Sundays.
    pub holidays: BTreeSet<Date>,
}

impl Default for Calendar {
    fn default() -> Self {
        Self { zone: TimeZone::UTC, holidays: BTreeSet::new() }
    }
}

/// An earlier day as seen from a quarter of an hour.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Day {
    /// The number of buckets back to the same local time.
    pub(crate) ago: i64,
    /// 0 if the day has no such time.
    pub(crate) weight: f32,
    pub(crate) weekday: Option<Weekday>,
}

/// The 14 days before a quarter of an hour, from yesterday back.
pub(crate) type Days = [Day; DAYS];

impl Calendar {
    /// The weekday that the load of a date follows.
    fn weekday(&self, date: Date) -> Weekday {
        if self.holidays.contains(&date) { Weekday::Sunday } else { date.weekday() }
    }

    /// The days before a minute since the Unix epoch.
    pub(crate) fn days(&self, minute: i64) -> Days {
        let mut days = Days::default();
        let Ok(now) = Timestamp::from_second(minute.saturating_mul(60)) else { return days };
        let local = self.zone.to_datetime(now);
        let weekday = self.weekday(local.date());
        let is_weekend = |day| matches!(day, Weekday::Saturday | Weekday::Sunday);
        for (day, back) in days.iter_mut().zip(1..) {
            let then = local.checked_sub(Span::new().days(back)).ok();
            let same = then.and_then(|then| Some((then, self.zone.to_timestamp(then).ok()?)));
            let Some((then, at)) = same else { continue };
            let ago = (now.as_second() - at.as_second()).div_euclid(60 * BUCKET);
            let then = self.weekday(then.date());
            let alike = match then {
                then if then == weekday => 1.0,
                then if is_weekend(then) == is_weekend(weekday) => 0.5,
                _ => 0.05,
            };
            // Where the date line moves, the same local time of an earlier date can be now.
            if ago >= HOUR {
                *day = Day { ago, weight: DECAY.powi(back - 1) * alike, weekday: Some(then) };
            }
        }
        days
    }
}
