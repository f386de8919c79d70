//! The memory of an autoscaler: the load of the last seconds, and the highest of the last results.

use std::collections::VecDeque;

/// Averages are rounded to multiples of 1 / `PRECISION`.
const PRECISION: f64 = 1e6;
/// The length of an interval in seconds, equal to Knative's interval between decisions. Only the highest result of an
/// interval counts.
const INTERVAL: i64 = 2;

/// The load of the last seconds, with one bucket per second. The load of a second without a sample is 0, if it is
/// between two samples.
///
/// As in Knative, each change of a bucket updates the total, and reads do not add up the buckets. The order of these
/// updates determines the last bits of an average, which can change a count that is rounded up.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    buckets: Vec<f64>,
    total: f64,
    /// `None` before the first sample.
    written: Option<Written>,
}

#[derive(Debug, Clone, Copy)]
struct Written {
    first: i64,
    last: i64,
}

/// An average and the time that it covers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Average {
    /// The average load, rounded to six decimal places.
    pub(crate) value: f64,
    /// The number of seconds that the average covers. 0 if the window has no sample.
    pub(crate) seconds: u32,
}

impl Window {
    /// Creates an empty window of `seconds`, at least 1.
    pub(crate) fn new(seconds: u32) -> Self {
        let length = usize::try_from(seconds.max(1)).unwrap_or(usize::MAX);
        Self { buckets: vec![0.0; length], total: 0.0, written: None }
    }

    /// Adds `value` to the bucket of `second`. Ignores a sample that is older than the last sample by at least the
    /// length of the window.
    pub(crate) fn record(&mut self, second: i64, value: f64) {
        match self.written {
            Some(written) if second <= written.last => {
                if written.last.saturating_sub(second) >= self.length() {
                    return;
                }
                self.written = Some(Written { first: written.first.min(second), ..written });
            }
            Some(written) if second.saturating_sub(written.last) < self.length() => {
                for skipped in written.last.saturating_add(1)..=second {
                    if let Some(bucket) = bucket(&mut self.buckets, skipped) {
                        self.total -= *bucket;
                        *bucket = 0.0;
                    }
                }
                self.written = Some(Written { last: second, ..written });
            }
            _ => {
                self.buckets.fill(0.0);
                self.total = 0.0;
                self.written = Some(Written { first: second, last: second });
            }
        }
        if let Some(bucket) = bucket(&mut self.buckets, second) {
            *bucket += value;
        }
        self.total += value;
    }

    /// Returns whether the window has no sample, or its last sample is older than the window.
    pub(crate) fn is_empty(&self, now: i64) -> bool {
        self.written.is_none_or(|written| now.saturating_sub(written.last) > self.length())
    }

    /// Returns the average at `now`. It covers the seconds from the first sample, or from the start of the window, to
    /// the last sample.
    pub(crate) fn average(&self, now: i64) -> Average {
        let none = Average { value: 0.0, seconds: 0 };
        let Some(Written { first, last }) = self.written else { return none };
        let silent = now.saturating_sub(last).max(0);
        if silent >= self.length() {
            return none;
        }
        let mut total = self.total;
        for second in last.saturating_add(1)..=last.saturating_add(silent) {
            total -= self.buckets.get(ring_index(second, self.buckets.len())).copied().unwrap_or(0.0);
        }
        let covered = last.saturating_sub(first).saturating_add(1).min(self.length() - silent);
        let seconds = u32::try_from(covered).unwrap_or(u32::MAX);
        Average { value: (total / f64::from(seconds) * PRECISION).round() / PRECISION, seconds }
    }

    fn length(&self) -> i64 {
        i64::try_from(self.buckets.len()).unwrap_or(i64::MAX)
    }
}

fn bucket(buckets: &mut [f64], second: i64) -> Option<&mut f64> {
    let index = ring_index(second, buckets.len());
    buckets.get_mut(index)
}

/// Returns the position of `second` in a ring of `length` buckets. `length` is not 0.
fn ring_index(second: i64, length: usize) -> usize {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    usize::try_from(second.rem_euclid(length.max(1))).unwrap_or(0)
}

/// The results of the last intervals, without those that a later result has reached or exceeded.
#[derive(Debug, Clone)]
pub(crate) struct Delay {
    /// The length of the delay in intervals.
    length: i64,
    /// Intervals and results. Intervals ascend, results descend.
    highest: VecDeque<(i64, i32)>,
}

impl Delay {
    /// Creates a delay of `seconds`, at least 1, rounded up to whole intervals.
    pub(crate) fn new(seconds: u32) -> Self {
        Self { length: i64::from(seconds.div_ceil(2).max(1)), highest: VecDeque::new() }
    }

    /// Adds the result at `second`, and returns the highest result within the delay.
    pub(crate) fn record(&mut self, second: i64, result: i32) -> i32 {
        let interval = second.div_euclid(INTERVAL);
        while self.highest.pop_back_if(|(_, earlier)| *earlier <= result).is_some() {}
        while self.highest.pop_front_if(|(at, _)| interval.saturating_sub(*at) >= self.length).is_some() {}
        // The result is not stored after a higher result of the same interval. If the clock was set back, it is not
        // stored after a higher result of a later interval either.
        if self.highest.back().is_none_or(|(at, _)| *at < interval) {
            self.highest.push_back((interval, result));
        }
        self.highest.front().map_or(result, |(_, highest)| *highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn average(samples: &[(i64, f64)], now: i64) -> (f64, u32) {
        let mut window = Window::new(5);
        for &(second, value) in samples {
            window.record(second, value);
        }
        let Average { value, seconds } = window.average(now);
        (value, seconds)
    }

    #[test]
    fn average_covers_first_to_last_sample_within_the_window() {
        for (samples, now, expected) in [
            (&[][..], 10, (0.0, 0)),
            (&[(10, 4.0)], 10, (4.0, 1)),
            // Samples of the same second add up.
            (&[(10, 4.0), (10, 2.0)], 10, (6.0, 1)),
            // A second without a sample has the load 0 between two samples, and is not covered after the last sample.
            (&[(10, 4.0), (12, 2.0)], 12, (2.0, 3)),
            (&[(10, 4.0), (12, 2.0)], 14, (2.0, 3)),
            // Seconds drop out of the window even without new samples.
            (&[(10, 4.0), (12, 2.0)], 15, (1.0, 2)),
            (&[(10, 4.0), (12, 2.0)], 16, (2.0, 1)),
            (&[(10, 4.0), (12, 2.0)], 17, (0.0, 0)),
            // A late sample within the window moves the start. An older sample is ignored.
            (&[(12, 2.0), (10, 4.0)], 12, (2.0, 3)),
            (&[(12, 2.0), (8, 8.0)], 12, (2.0, 5)),
            (&[(12, 2.0), (7, 8.0)], 12, (2.0, 1)),
            // A gap of the length of the window resets the window.
            (&[(10, 4.0), (14, 1.0)], 14, (1.0, 5)),
            (&[(10, 4.0), (15, 1.0)], 15, (1.0, 1)),
            // After the clock is set back, the average still covers all samples.
            (&[(10, 4.0), (12, 2.0)], 3, (2.0, 3)),
            // The average is rounded to six decimal places.
            (&[(10, 1.0), (11, 0.0), (12, 0.0)], 12, (0.333_333, 3)),
            (&[(10, 2.0), (11, 0.0), (12, 0.0)], 12, (0.666_667, 3)),
        ] {
            assert_eq!(average(samples, now), expected, "{samples:?} at {now}");
        }
    }

    #[test]
    fn window_is_empty_once_the_last_sample_is_older() {
        let mut window = Window::new(5);
        assert!(window.is_empty(0));
        window.record(10, 1.0);
        assert!(!window.is_empty(15));
        assert!(window.is_empty(16));
    }

    #[test]
    fn extreme_times_neither_overflow_nor_block() {
        let mut window = Window::new(5);
        for second in [i64::MIN, i64::MAX, i64::MIN, 0, i64::MAX] {
            window.record(second, 1.0);
            let _ = (window.average(i64::MIN), window.average(i64::MAX), window.is_empty(0));
        }
    }

    #[test]
    fn highest_result_within_the_delay_wins() {
        let mut delay = Delay::new(5);
        let results: Vec<i32> = [(0, 4), (2, 3), (3, 5), (4, 1), (6, 1), (8, 1), (10, 2)]
            .map(|(at, n)| delay.record(at, n))
            .into();
        assert_eq!(results, [4, 4, 5, 5, 5, 1, 2]);
    }

    #[test]
    fn results_of_one_interval_count_as_the_highest() {
        let mut delay = Delay::new(1);
        assert_eq!(delay.record(4, 3), 3);
        assert_eq!(delay.record(5, 2), 3);
        assert_eq!(delay.record(6, 2), 2);
    }
}
