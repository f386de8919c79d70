//! The way of metrics from the pods to who asks, as data: when they are scraped, over what they are averaged, when they
//! show, and when something on the way is broken.

use std::time::Duration;

use crate::embedded::MetricsApi;
use crate::embedded::workload::Span;

/// How metrics are collected, for each of the three APIs, and what fails. Times are counted from the beginning of the run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pipeline {
    /// metrics.k8s.io: metrics-server.
    pub resource: Scraping,
    /// custom.metrics.k8s.io: an adapter.
    pub custom: Scraping,
    /// external.metrics.k8s.io: an adapter.
    pub external: Scraping,
    /// What fails.
    pub outages: Vec<Outage>,
}

impl Pipeline {
    /// The same for all three APIs, without outages.
    pub fn all(scraping: Scraping) -> Self {
        Self { resource: scraping, custom: scraping, external: scraping, outages: Vec::new() }
    }

    /// The scraping of one API.
    pub fn scraping(&self, api: MetricsApi) -> &Scraping {
        match api {
            MetricsApi::Resource => &self.resource,
            MetricsApi::Custom => &self.custom,
            MetricsApi::External => &self.external,
        }
    }
}

/// How one API gets its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scraping {
    /// From one sample to the next; at least a millisecond.
    pub interval: Duration,
    /// When the first sample is taken.
    pub phase: Duration,
    /// Over what time rates are averaged, cpu among them; at least the interval. A pod younger than the window has a
    /// sample over its age.
    pub window: Duration,
    /// From the taking of a sample until it shows.
    pub delay: Duration,
    /// How long a container must have run to be in a sample.
    pub first_after: Duration,
}

impl Scraping {
    /// A sample each `interval`, over that time, shown at once.
    pub fn every(interval: Duration) -> Self {
        Self {
            interval,
            phase: Duration::ZERO,
            window: interval,
            delay: Duration::ZERO,
            first_after: FIRST_AFTER.min(interval),
        }
    }
}

impl Scraping {
    /// The window, or the interval if that is longer.
    pub(super) fn window_or_interval(&self) -> Duration {
        self.window.max(self.interval)
    }

    /// When the first scrape behind `now` is due.
    pub(super) fn next_after(&self, now: Duration) -> Duration {
        let Some(since) = now.checked_sub(self.phase) else { return self.phase };
        let interval = self.interval.max(Duration::from_millis(1)).as_nanos();
        let scrapes = since.as_nanos() / interval + 1;
        self.phase.saturating_add(Duration::from_nanos_u128(scrapes.saturating_mul(interval)))
    }
}

/// metrics-server makes no rate over less than this.
const FIRST_AFTER: Duration = Duration::from_secs(10);

impl Default for Scraping {
    /// As metrics-server does it: every 15 s.
    fn default() -> Self {
        Self::every(super::SCRAPE_INTERVAL)
    }
}

/// A time in which one of the metrics APIs does not do what it should.
#[derive(Debug, Clone, PartialEq)]
pub struct Outage {
    /// Which API.
    pub api: MetricsApi,
    /// When.
    pub during: Span,
    /// How it fails.
    pub kind: OutageKind,
}

/// How a metrics API fails.
#[derive(Debug, Clone, PartialEq)]
pub enum OutageKind {
    /// Every request gets this HTTP status, as text, as from the proxy before an adapter that is down: 503, 404 and so on.
    Error {
        /// The status code.
        code: u16,
        /// The body.
        message: String,
    },
    /// Requests are never answered.
    Timeout,
    /// Lists are answered without items.
    Empty,
    /// No sample of so many of the pods, objects or external series, from 0 to 1; drawn by their names, so that it is
    /// always the same ones.
    Missing {
        /// How many.
        fraction: f64,
    },
    /// No new samples are taken; the old ones stay.
    Stale,
}
