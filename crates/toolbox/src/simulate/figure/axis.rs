//! The axes of a figure, with ticks at round times of day or at round numbers.

use std::ops::Range;

use jiff::Timestamp;
use jiff::tz::Offset;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;

use crate::simulate::text;

/// The possible steps between two ticks of the time axis, in seconds. Longer steps are multiples of a week.
const STEPS: [u32; 19] = [
    1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200, 86_400,
    604_800,
];

/// The time since the start of a run, with ticks at round times of day in UTC.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct TimeAxis {
    start: Timestamp,
    /// The seconds from midnight to the start.
    into_day: f64,
    /// The length of the run, in seconds, at least 1.
    length: f64,
}

impl TimeAxis {
    /// Creates the axis of a run that starts at `start` and lasts `length` seconds.
    pub(in super::super) fn new(start: Timestamp, length: f64) -> Self {
        let time = Offset::UTC.to_datetime(start).time();
        let seconds =
            i32::from(time.hour()) * 3600 + i32::from(time.minute()) * 60 + i32::from(time.second());
        Self { start, into_day: f64::from(seconds), length: length.max(1.0) }
    }

    pub(in super::super) fn length(&self) -> f64 {
        self.length
    }

    /// Returns at most `most` ticks, as seconds since the start and label.
    pub(in super::super) fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        self.key_points(most).into_iter().map(|at| (at, self.format_ext(&at))).collect()
    }

    fn step(&self, most: usize) -> Option<f64> {
        let fits = |step: &f64| (self.length / step).floor() + 1.0 <= most as f64;
        let weeks = (1..u32::MAX).map(|weeks| f64::from(weeks) * 604_800.0);
        STEPS.iter().copied().map(f64::from).find(fits).or_else(|| weeks.take(10_000).find(fits))
    }
}

impl Ranged for TimeAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let most = hint.max_num_points();
        let Some(step) = self.step(most).filter(|_| most > 0) else { return Vec::new() };
        let first = (self.into_day / step).ceil() * step - self.into_day;
        let steps = (0..).map(|count| first + f64::from(count) * step);
        steps.take(most).take_while(|at| *at <= self.length).collect()
    }

    fn range(&self) -> Range<f64> {
        0.0..self.length
    }
}

impl ValueFormatter<f64> for TimeAxis {
    fn format_ext(&self, value: &f64) -> String {
        let after = jiff::SignedDuration::try_from_secs_f64(*value).unwrap_or_default();
        let at = self.start.checked_add(after).unwrap_or(self.start);
        let time = Offset::UTC.to_datetime(at).time();
        let is_midnight = time.hour() == 0 && time.minute() == 0 && time.second() == 0;
        let format = match (self.length, is_midnight) {
            // In runs of at least 36 hours, the label at midnight is the date, to distinguish the days.
            (129_600.0.., true) => "%-d %b",
            (..600.0, _) => "%H:%M:%S",
            _ => "%H:%M",
        };
        at.strftime(format).to_string()
    }
}

/// A value axis with ticks at round numbers.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct ValueAxis {
    /// The lower end: 0, or the lowest negative value.
    pub(in super::super) bottom: f64,
    /// The upper end, slightly above the highest value.
    pub(in super::super) top: f64,
    /// Whether ticks are limited to whole numbers.
    pub(in super::super) is_whole: bool,
}

impl ValueAxis {
    /// Creates an axis from 0, or from the lowest negative value, to slightly above the highest value.
    pub(in super::super) fn over(values: impl IntoIterator<Item = f64>, is_whole: bool) -> Self {
        let (mut bottom, mut top) = (0.0_f64, 0.0_f64);
        for value in values.into_iter().filter(|value| value.is_finite()) {
            bottom = bottom.min(value);
            top = top.max(value);
        }
        let top = if top <= bottom { bottom + 1.0 } else { top + (top - bottom) * 0.06 };
        Self { bottom, top, is_whole }
    }

    /// The height of a value on the axis: 0 at the bottom, 1 at the top. A value beyond the axis is clamped.
    pub(in super::super) fn fraction(&self, value: f64) -> f64 {
        ((value - self.bottom) / (self.top - self.bottom)).clamp(0.0, 1.0)
    }

    /// Returns at most `most` ticks, as value and label.
    pub(in super::super) fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        self.key_points(most).into_iter().map(|value| (value, text::short(value))).collect()
    }
}

impl Ranged for ValueAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range()).map(&value.clamp(self.bottom, self.top), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let mut points = RangedCoordf64::from(self.range()).key_points(hint.max_num_points());
        points.retain(|point| !self.is_whole || point.fract() == 0.0);
        points
    }

    fn range(&self) -> Range<f64> {
        self.bottom..self.top
    }
}

impl ValueFormatter<f64> for ValueAxis {
    fn format_ext(&self, value: &f64) -> String {
        text::short(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(start: &str, length: f64, most: usize) -> Vec<String> {
        TimeAxis::new(start.parse().unwrap(), length)
            .ticks(most)
            .into_iter()
            .map(|(_, label)| label)
            .collect()
    }

    #[test]
    fn time_axis_has_ticks_at_round_times_of_day() {
        assert_eq!(labels("2030-01-01T00:00:00Z", 86_400.0, 13)[..3], ["00:00", "02:00", "04:00"]);
        assert_eq!(
            labels("2030-01-01T09:10:00Z", 3600.0, 7),
            ["09:10", "09:20", "09:30", "09:40", "09:50", "10:00", "10:10"]
        );
        assert_eq!(labels("2030-01-01T12:00:00Z", 300.0, 4), ["12:00:00", "12:02:00", "12:04:00"]);
        assert_eq!(labels("2030-01-01T00:00:00Z", 259_200.0, 7)[..3], ["1 Jan", "12:00", "2 Jan"]);
        assert!(!labels("2030-01-01T00:00:00Z", 1e9, 7).is_empty());
    }

    #[test]
    fn value_axis_has_whole_ticks_when_values_are_counts() {
        let axis = ValueAxis::over([3.0], true);
        assert_eq!(
            axis.ticks(5).into_iter().map(|(_, label)| label).collect::<Vec<_>>(),
            ["0", "1", "2", "3"]
        );
        assert_eq!(ValueAxis::over([], false), ValueAxis { bottom: 0.0, top: 1.0, is_whole: false });
        assert_eq!(ValueAxis::over([f64::NAN, 2.0, -1.0], false).bottom, -1.0);
    }
}
