//! The samples of one series name.

use std::collections::BTreeSet;

use crate::entry::Series;
use crate::error::PageError;
use crate::format::Format;
use crate::page::{Limits, Page};

/// The series that a scrape keeps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SeriesSelector {
    /// The name of the series, as on the page: `http_requests_total`, `request_seconds_count`.
    pub series: String,
    /// Labels that a series must have with these values. An empty value matches a missing label, too.
    pub labels: Vec<(String, String)>,
}

/// A value with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The labels, without the name of the series, in the order of their names.
    pub labels: Labels,
    /// The value.
    pub value: f64,
    /// The timestamp of the page in milliseconds since the Unix epoch.
    pub timestamp: Option<i64>,
}

/// Names and values of labels, in the order of names.
pub type Labels = Box<[(Box<str>, Box<str>)]>;

/// A page of which the samples of one series name are kept.
#[derive(Debug)]
pub struct Scrape {
    page: Page,
    found: Found,
}

#[derive(Debug)]
struct Found {
    selector: SeriesSelector,
    limit: usize,
    samples: Vec<Sample>,
    seen: BTreeSet<Labels>,
}

impl Scrape {
    /// An empty page.
    pub const fn new(format: Format, limits: Limits, selector: SeriesSelector) -> Self {
        let found = Found { selector, limit: limits.series, samples: Vec::new(), seen: BTreeSet::new() };
        Self { page: Page::new(format, limits), found }
    }

    /// Adds a piece of the page.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), PageError> {
        self.page.push(piece, |series| self.found.add(&series))
    }

    /// Ends the page, and returns its samples in the order of the page.
    pub fn finish(mut self) -> Result<Vec<Sample>, PageError> {
        self.page.finish(|series| self.found.add(&series))?;
        Ok(self.found.samples)
    }
}

impl Found {
    fn add(&mut self, series: &Series<'_>) -> Result<(), PageError> {
        if *series.name() != *self.selector.series.as_bytes() || !self.matches(series) {
            return Ok(());
        }
        if self.samples.len() >= self.limit {
            return Err(PageError::TooManySeries(self.limit));
        }
        let mut labels: Vec<(Box<str>, Box<str>)> = series
            .labels()
            .map(|(name, value)| (String::from_utf8_lossy(&name).into(), value.into()))
            .collect();
        labels.sort_unstable();
        let labels: Labels = labels.into();
        if !self.seen.insert(labels.clone()) {
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
