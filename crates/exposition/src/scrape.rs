//! The samples of the selected series.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::entry::Series;
use crate::error::PageError;
use crate::format::Format;
use crate::labels::LabelsHash;
use crate::page::{Limits, Page, Receiver};

/// The series that a scrape keeps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeriesSelector {
    /// The name of the series, as on the page: `http_requests_total`, `request_seconds_count`.
    pub series: Arc<str>,
    /// Labels that a series must have with these values. An empty value matches a missing label, too.
    pub labels: Arc<[(String, String)]>,
}

/// A value with its labels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The labels, without the name of the series.
    pub labels: LabelsHash,
    /// The value.
    pub value: f64,
    /// The timestamp of the page in milliseconds since the Unix epoch.
    pub timestamp: Option<i64>,
}

/// The samples of a selector in the order of the page, or the reason why they are refused.
pub type Samples = Result<Vec<Sample>, PageError>;

/// A page that is read once for all selectors. Only the samples of the selectors are kept.
#[derive(Debug)]
pub struct Scrape {
    page: Page,
    found: AllFound,
}

#[derive(Debug)]
struct AllFound(Vec<Found>);

#[derive(Debug)]
struct Found {
    selector: SeriesSelector,
    limit: usize,
    samples: Vec<Sample>,
    seen: BTreeSet<LabelsHash>,
    error: Option<PageError>,
}

impl Scrape {
    /// An empty page.
    pub fn new(format: Format, limits: Limits, selectors: impl IntoIterator<Item = SeriesSelector>) -> Self {
        let found = |selector| Found {
            selector,
            limit: limits.series,
            samples: Vec::new(),
            seen: BTreeSet::new(),
            error: None,
        };
        let found = AllFound(selectors.into_iter().map(found).collect());
        Self { page: Page::new(format, limits), found }
    }

    /// Adds a piece of the page. Fails if the page is invalid, or once all selectors have failed.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), PageError> {
        self.page.push_to(piece, &mut self.found)
    }

    /// Finishes the page, and returns the samples of each selector.
    pub fn finish(mut self) -> Result<Vec<Samples>, PageError> {
        self.page.finish_to(&mut self.found)?;
        Ok(self.found.0.into_iter().map(|found| found.error.map_or(Ok(found.samples), Err)).collect())
    }
}

impl Receiver for AllFound {
    fn wants(&self, name: &[u8]) -> bool {
        self.0.iter().any(|found| *found.selector.series.as_bytes() == *name)
    }

    fn add(&mut self, series: Series<'_>) -> Result<(), PageError> {
        let name = series.name();
        for index in 0..self.0.len() {
            let Some(found) = self.0.get_mut(index) else { break };
            if *name == *found.selector.series.as_bytes()
                && found.error.is_none()
                && let Err(error) = found.add(&series)
            {
                (found.samples, found.seen) = (Vec::new(), BTreeSet::new());
                found.error = Some(error.clone());
                if self.0.iter().all(|found| found.error.is_some()) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl Found {
    fn add(&mut self, series: &Series<'_>) -> Result<(), PageError> {
        if !self.matches(series) {
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

    fn matches(&self, series: &Series<'_>) -> bool {
        self.selector.labels.iter().all(|(name, expected)| {
            let value = series.labels().find(|(found, _)| **found == *name.as_bytes());
            value.map_or_else(|| expected.is_empty(), |(_, value)| *value == **expected)
        })
    }
}
