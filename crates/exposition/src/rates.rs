//! Rates of counters over two or more scrapes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::labels::LabelsHash;
use crate::reduce::{InvalidValue, Reduce};
use crate::scrape::Sample;

/// Scrapes that are kept for each series. With more scrapes in a window, the oldest ones are dropped.
const MAX_SCRAPES: usize = 128;

/// The counters of one pod within a window.
///
/// The memory is 32 bytes for each series and scrape in the window, and 100 bytes for each series. Labels are kept as
/// their hash.
#[derive(Debug, Clone)]
pub struct Rates {
    window: Duration,
    series: BTreeMap<LabelsHash, Counter>,
}

#[derive(Debug, Clone)]
struct Counter {
    last: f64,
    /// Times, and the increase since the first scrape, without resets.
    points: VecDeque<(Duration, f64)>,
}

impl Rates {
    /// Counters without scrapes. `window` is the time over which a rate is computed.
    pub const fn new(window: Duration) -> Self {
        Self { window, series: BTreeMap::new() }
    }

    /// Adds a scrape at `now`, the time since any fixed instant. Series that the scrape lacks are dropped. A
    /// scrape that is not later than the last one replaces nothing and is ignored.
    pub fn record(&mut self, now: Duration, samples: Vec<Sample>) -> Result<(), InvalidValue> {
        if let Some(sample) = samples.iter().find(|sample| !sample.value.is_finite()) {
            return Err(InvalidValue(sample.value));
        }
        let newest =
            self.series.values().filter_map(|counter| counter.points.back()).map(|(at, _)| *at).max();
        if newest.is_some_and(|newest| newest >= now) {
            return Ok(());
        }
        let start = now.saturating_sub(self.window);
        let mut earlier = std::mem::take(&mut self.series);
        for Sample { labels, value, .. } in samples {
            let mut counter =
                earlier.remove(&labels).unwrap_or_else(|| Counter { last: value, points: VecDeque::new() });
            let increased = counter.points.back().map_or(0.0, |(_, increased)| *increased);
            // A counter that falls has started again at 0, so all of its value is new.
            let increase = if value < counter.last { value } else { value - counter.last };
            counter.last = value;
            counter.points.push_back((now, increased + increase));
            while counter.points.len() > MAX_SCRAPES
                || counter.points.front().is_some_and(|(at, _)| *at < start)
            {
                counter.points.pop_front();
            }
            self.series.insert(labels, counter);
        }
        Ok(())
    }

    /// One number from the rates per second of all series at the last scrape. `None` until a series has two
    /// scrapes within the window. A series with one scrape does not count.
    pub fn rate(&self, reduce: Reduce) -> Result<Option<f64>, InvalidValue> {
        reduce.values(self.series.values().filter_map(|counter| {
            let ((first, from), (last, to)) = (counter.points.front()?, counter.points.back()?);
            let seconds = last.checked_sub(*first)?.as_secs_f64();
            (seconds > 0.0).then(|| (to - from) / seconds)
        }))
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
            let samples = samples.iter().map(|(label, value)| sample(label, *value)).collect();
            rates.record(Duration::from_secs(*second), samples).unwrap();
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
            // A new series counts from its second scrape on, a missing one no longer.
            (&[(1, &[("a", 0.0)]), (3, &[("a", 4.0), ("b", 9.0)])], Some(2.0)),
            (&[(1, &[("a", 0.0), ("b", 0.0)]), (3, &[("a", 4.0)])], Some(2.0)),
            (&[(1, &[("a", 0.0), ("b", 0.0)]), (3, &[("a", 4.0), ("b", 2.0)])], Some(3.0)),
            // The same or an earlier time adds nothing.
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
        assert!(rates.record(Duration::ZERO, vec![sample("a", f64::NAN)]).is_err());
        assert_eq!(rates.rate(Reduce::Sum), Ok(None));
    }

    #[test]
    fn scrapes_of_a_series_are_bounded() {
        let mut rates = Rates::new(Duration::from_secs(1_000));
        for second in 0..1_000_u32 {
            rates.record(Duration::from_secs(second.into()), vec![sample("a", f64::from(second))]).unwrap();
        }
        assert_eq!(rates.series.values().map(|counter| counter.points.len()).sum::<usize>(), MAX_SCRAPES);
        assert_eq!(rates.rate(Reduce::Sum), Ok(Some(1.0)));
    }
}
