//! Samples of the selected series of a page, and numbers and rates computed from them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use limits::page::{COMPARISONS, METRICS};

use crate::entry::Series;
use crate::format::PageError;
use crate::page::{Limits, Page};

/// Maximum number of scrapes that are kept for each series. With more scrapes in a window, the oldest scrapes are
/// dropped.
const MAX_SCRAPES: usize = 128;

/// Maximum length of the name of a label in an error.
const SHOWN: usize = 64;

/// The name and the labels of the series that a scrape keeps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeriesSelector {
    /// The name of the series, as on the page, such as `http_requests_total`.
    pub series: Arc<str>,
    /// The labels that a series must have, as names and values. An empty value also matches a missing label.
    pub labels: Arc<[(String, String)]>,
}

/// A value with the hash of its labels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The labels, without the name of the series.
    pub labels: LabelsHash,
    /// The value, which may be NaN or infinite.
    pub value: f64,
    /// The timestamp on the page, in milliseconds since the Unix epoch.
    pub timestamp: Option<i64>,
}

/// The samples of a selector in the order of the page, or the reason why they are refused.
pub type Samples = Result<Vec<Sample>, PageError>;

/// A page that is read once for all selectors. Only the selected samples are kept.
#[derive(Debug)]
pub struct Scrape {
    page: Page,
    found: AllFound,
}

#[derive(Debug)]
struct AllFound {
    all: Vec<Found>,
    /// The number of comparisons that the page may still take.
    comparisons: usize,
}

#[derive(Debug)]
struct Found {
    selector: SeriesSelector,
    limit: usize,
    samples: Vec<Sample>,
    seen: BTreeSet<LabelsHash>,
    error: Option<PageError>,
}

impl Scrape {
    /// Creates an empty page.
    pub fn new(limits: Limits, selectors: impl IntoIterator<Item = SeriesSelector>) -> Self {
        let found = |selector| Found {
            selector,
            limit: limits.series,
            samples: Vec::new(),
            seen: BTreeSet::new(),
            error: None,
        };
        let found = AllFound { all: selectors.into_iter().map(found).collect(), comparisons: COMPARISONS };
        Self { page: Page::new(limits), found }
    }

    /// Adds a piece of the page. Fails if the page is invalid, or once all selectors have failed.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), PageError> {
        self.page.push(piece, |series| self.found.add(&series))
    }

    /// Finishes the page. Returns the samples of each selector.
    pub fn finish(mut self) -> Result<Vec<Samples>, PageError> {
        self.page.finish(|series| self.found.add(&series))?;
        Ok(self.found.all.into_iter().map(|found| found.error.map_or(Ok(found.samples), Err)).collect())
    }
}

impl AllFound {
    fn add(&mut self, series: &Series<'_>) -> Result<(), PageError> {
        if let Some(label) = series.repeated_label() {
            let label = String::from_utf8_lossy(&label).chars().take(SHOWN).collect();
            return Err(PageError::RepeatedLabel { line: series.line, label });
        }
        let name = series.name();
        let mut taken = METRICS;
        for index in 0..self.all.len() {
            let Some(found) = self.all.get_mut(index) else { break };
            if *name == *found.selector.series.as_bytes()
                && found.error.is_none()
                && let Err(error) = found.add(series, &mut taken)
            {
                (found.samples, found.seen) = (Vec::new(), BTreeSet::new());
                found.error = Some(error.clone());
                if self.all.iter().all(|found| found.error.is_some()) {
                    return Err(error);
                }
            }
        }
        self.comparisons =
            self.comparisons.checked_sub(taken).ok_or(PageError::TooManyComparisons(COMPARISONS))?;
        Ok(())
    }
}

impl Found {
    /// Adds a series if it matches. Adds the number of comparisons to `taken`.
    fn add(&mut self, series: &Series<'_>, taken: &mut usize) -> Result<(), PageError> {
        if !self.matches(series, taken) {
            return Ok(());
        }
        if self.samples.len() >= self.limit {
            return Err(PageError::TooManySeries(self.limit));
        }
        let labels = LabelsHash::new(series.labels());
        if !self.seen.insert(labels) {
            return Err(PageError::DuplicateSeries(series.line));
        }
        self.samples.push(Sample { labels, value: series.value, timestamp: series.timestamp });
        Ok(())
    }

    fn matches(&self, series: &Series<'_>, taken: &mut usize) -> bool {
        self.selector.labels.iter().all(|(name, expected)| {
            *taken += 1;
            let value = series.label(name.as_bytes(), taken);
            value.map_or_else(|| expected.is_empty(), |value| value == **expected)
        })
    }
}

/// A hash of a set of labels. The order of the labels is irrelevant. As in Prometheus, a label with an empty value is
/// equivalent to a missing label.
///
/// The hash replaces the labels, which may be 64 KiB for each series. A scrape keeps 1,000 series per selector by
/// default. The probability of equal hashes of two of these series is 1,000² / 2¹²⁹, less than 2 in 10³³. Such a
/// collision would invalidate the samples of one selector, or one rate, of one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelsHash([u64; 2]);

impl LabelsHash {
    /// Computes the hash of labels, each with its name and value.
    pub fn new<'a>(labels: impl IntoIterator<Item = (Cow<'a, [u8]>, Cow<'a, str>)>) -> Self {
        let mut labels: Vec<_> = labels.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        labels.sort_unstable();
        let mut text = Vec::with_capacity(256);
        for (name, value) in &labels {
            for part in [name, value.as_bytes()] {
                // The length precedes each part, so different sets never give the same text.
                text.extend_from_slice(&part.len().to_ne_bytes());
                text.extend_from_slice(part);
            }
        }
        // The hash consists of two SipHashes whose inputs differ in the first byte.
        Self([0, 1].map(|first| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(first);
            hasher.write(&text);
            hasher.finish()
        }))
    }
}

/// The function that combines several samples of one pod into one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// The sum of the samples.
    Sum,
    /// The average of the samples.
    Average,
    /// The maximum of the samples.
    Max,
}

/// A value that is NaN or infinite, or a sum that is too large.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("the value {0} is not a finite number")]
pub struct InvalidValue(pub f64);

impl Reduce {
    /// Combines the values of samples into one number. `None`, not 0, without samples.
    pub fn samples(self, samples: &[Sample]) -> Result<Option<f64>, InvalidValue> {
        self.values(samples.iter().map(|sample| sample.value))
    }

    /// Combines values into one number. `None` without values.
    pub fn values(self, values: impl IntoIterator<Item = f64>) -> Result<Option<f64>, InvalidValue> {
        let (mut count, mut sum, mut max) = (0_u32, 0.0, f64::NEG_INFINITY);
        for value in values {
            if !value.is_finite() {
                return Err(InvalidValue(value));
            }
            count = count.saturating_add(1);
            sum += value;
            max = max.max(value);
        }
        if count == 0 {
            return Ok(None);
        }
        let result = match self {
            Self::Sum => sum,
            Self::Average => sum / f64::from(count),
            Self::Max => max,
        };
        if result.is_finite() { Ok(Some(result)) } else { Err(InvalidValue(result)) }
    }
}

/// The counters of one pod in a time window.
///
/// A series takes 100 bytes of memory, and 8 bytes for each scrape in the window. Of the labels, only the hash is kept.
#[derive(Debug, Clone)]
pub struct Rates {
    window: Duration,
    /// The times of the scrapes, oldest first.
    times: VecDeque<Duration>,
    /// The series of the last scrape. The n increases of a series belong to the last n scrapes.
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
    /// Creates counters without scrapes. `window` is the time over which a rate is computed.
    pub const fn new(window: Duration) -> Self {
        Self { window, times: VecDeque::new(), series: BTreeMap::new() }
    }

    /// Adds a scrape at `now`, the time since any fixed instant. Series that are missing from the scrape are dropped. A
    /// scrape that is not later than the last scrape is ignored.
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

    /// Combines the rates per second of all series into one number. Series with only one scrape within the window are
    /// ignored. `None` if no series has two scrapes within the window.
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
        // A counter that decreases has restarted at 0, so its whole value is an increase.
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
            // With a reset, the increases are 2 (from 10 to 12) and 4 (from 0 to 4).
            (&[(1, &[("a", 10.0)]), (2, &[("a", 12.0)]), (3, &[("a", 4.0)])], Some(3.0)),
            // Only scrapes within the window count.
            (&[(1, &[("a", 0.0)]), (8, &[("a", 700.0)]), (18, &[("a", 710.0)])], Some(1.0)),
            (&[(1, &[("a", 0.0)]), (12, &[("a", 700.0)])], None),
            // A new series has a rate from its second scrape on. A missing series has no rate.
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

    fn hash(labels: &[(&'static str, &'static str)]) -> LabelsHash {
        LabelsHash::new(labels.iter().map(|(name, value)| (name.as_bytes().into(), (*value).into())))
    }

    #[test]
    fn hash_is_that_of_the_set_of_labels() {
        let sets: [&[(&str, &str)]; 9] = [
            &[],
            &[("a", "b")],
            &[("a", "c")],
            &[("b", "a")],
            &[("ab", "")],
            &[("a", "b"), ("c", "d")],
            &[("a", "bc"), ("c", "d")],
            &[("a", "b"), ("a", "b")],
            &[("a", "b\u{1}c\u{1}d")],
        ];
        for (index, one) in sets.iter().enumerate() {
            for (other_index, other) in sets.iter().enumerate() {
                // A label with an empty value is equivalent to a missing label.
                let equal = index == other_index
                    || (one.len() + other.len() == 1 && [0, 4].contains(&index.max(other_index)));
                assert_eq!(hash(one) == hash(other), equal, "{one:?} {other:?}");
            }
        }
        assert_eq!(hash(&[("c", "d"), ("a", "b")]), hash(&[("a", "b"), ("e", ""), ("c", "d")]));
        let LabelsHash([low, high]) = hash(&[("a", "b")]);
        assert_ne!(low, high);
    }
}
