//! Measured curves, as pairs of a time and a value, for example from a CSV file.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use autoscaling::duration::GoDuration;

/// One or more points in order of time, and the interpolation between them. Before the first and after the last point,
/// the value is constant.
#[derive(Debug, Clone, PartialEq)]
pub struct Points {
    points: Arc<[(Duration, f64)]>,
    between: Interpolation,
}

/// The interpolation between two points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interpolation {
    /// A straight line.
    #[default]
    Linear,
    /// The value of the earlier point.
    Step,
}

/// The reason why points do not form a curve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PointsError {
    /// A line of a CSV is invalid, or its point is out of order.
    #[error("line {line}: {problem}")]
    Line {
        /// The line number, counted from 1.
        line: usize,
        /// The problem of the line.
        problem: LineProblem,
    },
    /// The load has no points.
    #[error("the load has no points; provide at least one line with a time and a value")]
    Empty,
}

/// The problem of a line of a CSV.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineProblem {
    /// The line does not have two columns.
    #[error("{0} columns, expected two: time and value")]
    Columns(usize),
    /// The first column is not a time.
    #[error(
        "{0:?} is not a time; expected seconds, a duration such as 1h30m, or a date and time such as 2030-01-01T09:00:00Z"
    )]
    Time(String),
    /// The form of the time differs from the form of the first time.
    #[error("the time {0:?} has a different form from the times before it; use one form")]
    Form(String),
    /// The time is earlier than the previous time.
    #[error("the time {0:?} is earlier than the time of the previous point; sort the lines by time")]
    Order(String),
    /// The second column is not a value.
    #[error("{0:?} is not a value; expected a number that is not negative")]
    Value(String),
}

/// Smallest number that is parsed as seconds since 1970. No curve is this long.
const FIRST_STAMP: f64 = 1e9;

/// A parsed time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Time {
    /// Time since the curve's start.
    Elapsed(Duration),
    /// Time of day.
    Stamp(Timestamp),
}

impl Points {
    /// Creates a curve from ordered points. The line in an error is the number of the point, counted from 1.
    pub fn new(
        points: impl IntoIterator<Item = (Duration, f64)>,
        between: Interpolation,
    ) -> Result<Self, PointsError> {
        let points: Arc<[_]> = points.into_iter().collect();
        if points.is_empty() {
            return Err(PointsError::Empty);
        }
        let mut last = Duration::ZERO;
        for (index, (time, value)) in points.iter().enumerate() {
            let problem = if *time < last {
                LineProblem::Order(format!("{time:?}"))
            } else if !is_value(*value) {
                LineProblem::Value(value.to_string())
            } else {
                last = *time;
                continue;
            };
            return Err(PointsError::Line { line: index + 1, problem });
        }
        Ok(Self { points, between })
    }

    /// Parses lines of time and value, separated by a comma, a semicolon or a tab. The first line may name the columns.
    /// Empty lines and lines that start with `#` are skipped.
    ///
    /// Times are seconds, Go's durations, or dates with times (without an offset: UTC). Dates and seconds since 1970
    /// are converted to the time since the first point. Two points at the same time form a jump.
    pub fn from_csv(text: &str, between: Interpolation) -> Result<Self, PointsError> {
        let mut points = Vec::new();
        let mut first = None;
        let mut last = Duration::ZERO;
        for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let at_line = |problem| PointsError::Line { line: index + 1, problem };
            let (time_text, value_text) = columns(line).map_err(at_line)?;
            let Some(value) = value_text.parse().ok().filter(|value| is_value(*value)) else {
                if index == 0 && value_text.parse::<f64>().is_err() {
                    continue;
                }
                return Err(at_line(LineProblem::Value(value_text.to_owned())));
            };
            let time =
                read_time(time_text).ok_or_else(|| at_line(LineProblem::Time(time_text.to_owned())))?;
            let elapsed = match (time, *first.get_or_insert(time)) {
                (Time::Elapsed(time), Time::Elapsed(_)) => Some(time),
                (Time::Stamp(time), Time::Stamp(first)) => {
                    Duration::try_from(time.duration_since(first)).ok()
                }
                _ => return Err(at_line(LineProblem::Form(time_text.to_owned()))),
            };
            last = elapsed
                .filter(|elapsed| *elapsed >= last)
                .ok_or_else(|| at_line(LineProblem::Order(time_text.to_owned())))?;
            points.push((last, value));
        }
        Self::new(points, between)
    }

    /// Returns the time of the last point.
    pub fn length(&self) -> Duration {
        self.points.last().map_or(Duration::ZERO, |(time, _)| *time)
    }

    /// Returns the value at a time.
    pub(super) fn at(&self, time: Duration) -> f64 {
        let next = self.points.partition_point(|(at, _)| *at <= time);
        let (before, after) = (next.checked_sub(1).and_then(|at| self.points.get(at)), self.points.get(next));
        match (before, after) {
            (Some((from, low)), Some((to, high))) if self.between == Interpolation::Linear => {
                let since = |time: Duration| time.saturating_sub(*from).as_secs_f64();
                let share = since(time) / since(*to);
                low + (high - low) * share
            }
            (Some((_, value)), _) | (None, Some((_, value))) => *value,
            (None, None) => 0.0,
        }
    }
}

fn is_value(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

/// Splits a line into its two columns, without quotes.
fn columns(line: &str) -> Result<(&str, &str), LineProblem> {
    let separator = [';', '\t'].into_iter().find(|separator| line.contains(*separator)).unwrap_or(',');
    let mut columns = line.split(separator).map(|column| column.trim().trim_matches('"').trim());
    match (columns.next(), columns.next(), columns.count()) {
        (Some(time), Some(value), 0) => Ok((time, value)),
        (_, second, more) => Err(LineProblem::Columns(1 + usize::from(second.is_some()) + more)),
    }
}

fn read_time(text: &str) -> Option<Time> {
    if let Ok(seconds) = text.parse::<f64>() {
        let elapsed = Duration::try_from_secs_f64(seconds).ok()?;
        if seconds < FIRST_STAMP {
            return Some(Time::Elapsed(elapsed));
        }
        return Timestamp::UNIX_EPOCH.checked_add(elapsed).ok().map(Time::Stamp);
    }
    if let Ok(duration) = text.parse::<GoDuration>() {
        return duration.unsigned().map(Time::Elapsed);
    }
    if let Ok(stamp) = text.parse::<Timestamp>() {
        return Some(Time::Stamp(stamp));
    }
    let utc = text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?;
    Some(Time::Stamp(utc.timestamp()))
}

/// Interpolates from 0 to 1 with zero slope at both ends.
pub(super) fn smooth(share: f64) -> f64 {
    share * share * (3.0 - 2.0 * share)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Interpolation, Points};

    fn read(text: &str) -> Points {
        Points::from_csv(text, Interpolation::Linear).expect("points")
    }

    fn error(text: &str) -> String {
        Points::from_csv(text, Interpolation::Linear).expect_err("points are valid").to_string()
    }

    fn values(points: &Points, times: impl IntoIterator<Item = u64>) -> Vec<f64> {
        times.into_iter().map(|time| points.at(Duration::from_secs(time))).collect()
    }

    #[test]
    fn points_are_interpolated_linearly_and_extended_as_constants() {
        let points = read("10,100\n20,200\n");
        assert_eq!(values(&points, [0, 10, 15, 20, 500]), [100.0, 100.0, 150.0, 200.0, 200.0]);
        assert_eq!(points.length(), Duration::from_secs(20));
    }

    #[test]
    fn step_interpolation_keeps_each_value_until_the_next() {
        let points = Points::from_csv("0,1\n60,5\n", Interpolation::Step).expect("points");
        assert_eq!(values(&points, [0, 59, 60]), [1.0, 1.0, 5.0]);
    }

    #[test]
    fn two_points_at_the_same_time_form_a_jump() {
        assert_eq!(values(&read("0,0\n10,10\n10,50\n20,50"), [5, 9, 10, 15]), [5.0, 9.0, 50.0, 50.0]);
    }

    #[test]
    fn csv_times_can_be_seconds_durations_or_dates() {
        let expected = read("0,1\n90.5,2");
        for same in [
            "0s,1\n1m30.5s,2",
            "2030-01-01T09:00:00Z,1\n2030-01-01T10:01:30.5+01:00,2",
            "2030-01-01 09:00:00,1\n2030-01-01 09:01:30.5,2",
            "1893456000,1\n1893456090.5,2",
        ] {
            assert_eq!(read(same), expected, "{same}");
        }
    }

    #[test]
    fn csv_accepts_column_names_quotes_comments_and_separators() {
        let expected = read("0,1\n60,2");
        for same in [
            "time,value\n0,1\n60,2\n",
            "\u{feff}\"Time\",\"Value\"\r\n\"0\",\"1\"\r\n\"60\",\"2\"\r\n",
            "0; 1\n\n# the peak\n1m0s; 2",
            "0\t1\n60\t2",
        ] {
            let points =
                Points::from_csv(&same.replace("0; 1", "0s; 1"), Interpolation::Linear).expect("points");
            assert_eq!(points, expected, "{same}");
        }
    }

    #[test]
    fn csv_errors_name_the_invalid_line() {
        for (text, expected) in [
            ("", "the load has no points; provide at least one line with a time and a value"),
            ("time,value\n", "the load has no points; provide at least one line with a time and a value"),
            ("time,value\n0,1\n5", "line 3: 1 columns, expected two: time and value"),
            ("0,1,2", "line 1: 3 columns, expected two: time and value"),
            (
                "0,1\nnoon,2",
                "line 2: \"noon\" is not a time; expected seconds, a duration such as 1h30m, or a date and time such as \
                 2030-01-01T09:00:00Z",
            ),
            ("0,1\n5,many", "line 2: \"many\" is not a value; expected a number that is not negative"),
            ("0,-1", "line 1: \"-1\" is not a value; expected a number that is not negative"),
            ("0,NaN", "line 1: \"NaN\" is not a value; expected a number that is not negative"),
            (
                "10,1\n5,2",
                "line 2: the time \"5\" is earlier than the time of the previous point; sort the lines by time",
            ),
            (
                "0,1\n2030-01-01T09:00:00Z,2",
                "line 2: the time \"2030-01-01T09:00:00Z\" has a different form from the times before it; use one form",
            ),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
    }
}
