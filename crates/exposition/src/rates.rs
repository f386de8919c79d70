//! Rates of counters over two or more scrapes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::labels::LabelsHash;
use crate::reduce::{InvalidValue, Reduce};
use crate::scrape::Sample;

/// Maximum number of scrapes that are kept for each series. With more scrapes in a window, the oldest ones are dropped.
const MAX_SCRAPES: usize = 128;

/// The counters of one pod within a window.
///
/// The memory is 8 bytes for each series and scrape in the window, and 100 bytes for each series. Labels are kept as
/// their hash.
#[derive(Debug, Clone)]
pub struct Rates {
    window: Duration,
    /// The times of the scrapes, oldest first.
    times: VecDeque<Duration>,
    /// The series of the last scrape. The n increases of a series belong to the last n times.
    series: BTreeMap<LabelsHash, Counter>,
}

#[derive(Debug, Clone)]
struct Counter {
    last: f64,
    /// The increase from the first scrape to each scrape in the window. A reset does not reduce the increase.
    increases: VecDeque<f64>,
    /// The time of the last scrape with this series.
    seen: Duration,
}

impl Rates {
    /// Counters without scrapes. `window` is the time over which a rate is computed.
    pub const fn new(window: Duration) -> Self {
        Self { window, times: VecDeque::new(), series: BTreeMap::new() }
    }

    /// Adds a scrape at `now`, the time since any fixed instant. Series that the scrape lacks are dropped. A scrape
    /// that is not later than the last one is ignored.
    pub fn record(&mut self, now: Duration, samples: &[Sample]) -> Result<(), InvalidValue> {
        if let Some(sample) = samples.iter().find(|sample| !sample.value.is_finite()) {
            return Err(InvalidValue(sample.value));
        }
        if self.times.back().is_some_and(|newest| *newest >= now) {
            return Ok(());
        }
        let start = now.saturating_sub(self.window);
        self.times.push_back(now);
        while self.times.len() > MAX_SCRAPES || self.times.front().is_some_and(|at| *at < start) {
            self.times.pop_front();
        }
        for Sample { labels, value, .. } in samples {
            let counter = self.series.entry(*labels).or_insert_with(|| Counter::new(*value, now));
            counter.add(*value, now, self.times.len());
        }
        self.series.retain(|_, counter| counter.seen == now);
        Ok(())
    }

    /// One number from the rates per second of all series at the last scrape. `None` if no series has two scrapes
    /// within the window. A series with one scrape does not count.
    pub fn rate(&self, reduce: Reduce) -> Result<Option<f64>, InvalidValue> {
        reduce.values(self.series.values().filter_map(|counter| {
            let (from, to) = (counter.increases.front()?, counter.increases.back()?);
            let first = self.times.len().checked_sub(counter.increases.len())?;
            let seconds = self.times.back()?.checked_sub(*self.times.get(first)?)?.as_secs_f64();
            (seconds > 0.0).then(|| (to - from) / seconds)
        }))
    }
}

impl Counter {
    const fn new(value: f64, now: Duration) -> Self {
        Self { last: value, increases: VecDeque::new(), seen: now }
    }

    /// Adds the value of a scrape. `scrapes` is the number of scrapes in the window.
    fn add(&mut self, value: f64, now: Duration, scrapes: usize) {
        let increased = self.increases.back().copied().unwrap_or_default();
        // A counter that falls has restarted at 0, so its whole value is an increase.
        let increase = if value < self.last { value } else { value - self.last };
        self.increases.push_back(increased + increase);
        while self.increases.len() > scrapes {
            self.increases.pop_front();
        }
        (self.last, self.seen) = (value, now);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn sample(label: &str, value: f64) -> Sample {
        let labels = LabelsHash::new([(b"code".into(), label.into())]);
        Sample { labels, value, timestamp: None }
    }

    fn rate(scrapes: &[(u64, &[(&str, f64)])], reduce: Reduce) -> Option<f64> {
        let mut rates = Rates::new(Duration::from_secs(10));
        for (second, samples) in scrapes {
            let samples: Vec<_> = samples.iter().map(|(label, value)| sample(label, *value)).collect();
            rates.record(Duration::from_secs(*second), &samples).unwrap();
        }
        rates.rate(reduce).unwrap()
    }

    #[test]
    fn rate_is_the_increase_within_the_window() {
        for (scrapes, expected) in [
            (&[][..], None),
            (&[(1, &[("a", 5.0)][..])], None),
            (&[(1, &[("a", 5.0)]), (3, &[("a", 9.0)])], Some(2.0)),
            // A reset: 10 to 12 and 0 to 4.
            (&[(1, &[("a", 10.0)]), (2, &[("a", 12.0)]), (3, &[("a", 4.0)])], Some(3.0)),
            // Only scrapes within the window count.
            (&[(1, &[("a", 0.0)]), (8, &[("a", 700.0)]), (18, &[("a", 710.0)])], Some(1.0)),
            (&[(1, &[("a", 0.0)]), (12, &[("a", 700.0)])], None),
            // A new series counts from its second scrape. A missing series no longer counts.
            (&[(1, &[("a", 0.0)]), (3, &[("a", 4.0), ("b", 9.0)])], Some(2.0)),
            (&[(1, &[("a", 0.0), ("b", 0.0)]), (3, &[("a", 4.0)])], Some(2.0)),
            (&[(1, &[("a", 0.0), ("b", 0.0)]), (3, &[("a", 4.0), ("b", 2.0)])], Some(3.0)),
            // A scrape at the same or an earlier time is ignored.
            (&[(1, &[("a", 0.0)]), (3, &[("a", 4.0)]), (3, &[("a", 90.0)]), (2, &[("a", 9.0)])], Some(2.0)),
        ] {
            assert_eq!(rate(scrapes, Reduce::Sum), expected, "{scrapes:?}");
        }
        let two: &[(u64, &[(&str, f64)])] = &[(1, &[("a", 0.0), ("b", 0.0)]), (3, &[("a", 4.0), ("b", 2.0)])];
        assert_eq!(rate(two, Reduce::Average), Some(1.5));
        assert_eq!(rate(two, Reduce::Max), Some(2.0));
    }

    #[test]
    fn counters_that_are_no_numbers_are_refused() {
        let mut rates = Rates::new(Duration::from_secs(10));
        assert!(rates.record(Duration::ZERO, &[sample("a", f64::NAN)]).is_err());
        assert_eq!(rates.rate(Reduce::Sum), Ok(None));
    }

    #[test]
    fn scrapes_of_a_series_are_bounded() {
        let mut rates = Rates::new(Duration::from_secs(1_000));
        for second in 0..1_000_u32 {
            rates.record(Duration::from_secs(second.into()), &[sample("a", f64::from(second))]).unwrap();
        }
        assert_eq!(rates.series.values().map(|counter| counter.increases.len()).sum::<usize>(), MAX_SCRAPES);
        assert_eq!(rates.rate(Reduce::Sum), Ok(Some(1.0)));
    }
}
