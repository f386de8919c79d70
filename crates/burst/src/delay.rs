//! The delay of scale-downs: the highest result of the last seconds.

use std::collections::VecDeque;

use crate::number::to_length;

/// The length of an interval in seconds, equal to Knative's interval between decisions. Only the highest result of an
/// interval counts.
const INTERVAL: i64 = 2;

/// Each result of the last intervals that is higher than all later results.
#[derive(Debug, Clone)]
pub(crate) struct Delay {
    intervals: usize,
    /// Intervals and results. Intervals ascend, results descend.
    highest: VecDeque<(i64, i32)>,
}

impl Delay {
    /// A delay of `seconds`, at least 1, rounded up to whole intervals.
    pub(crate) fn new(seconds: u32) -> Self {
        let intervals = to_length(seconds.div_ceil(2).max(1));
        Self { intervals, highest: VecDeque::new() }
    }

    /// Adds the result at `second`, and returns the highest result within the delay.
    pub(crate) fn record(&mut self, second: i64, result: i32) -> i32 {
        let interval = second.div_euclid(INTERVAL);
        while self.highest.pop_back_if(|(_, earlier)| *earlier <= result).is_some() {}
        let length = i64::try_from(self.intervals).unwrap_or(i64::MAX);
        while self.highest.pop_front_if(|(at, _)| interval.saturating_sub(*at) >= length).is_some() {}
        // Not stored after a higher result of the same interval, or after a result of a later interval if the clock was
        // set back.
        if self.highest.back().is_none_or(|(at, _)| *at < interval) {
            self.highest.push_back((interval, result));
        }
        self.highest.front().map_or(result, |(_, highest)| *highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
