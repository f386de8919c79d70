//! The metrics pipeline from the pods to the API, as data: scrape times, averaging windows, delays, and outages with
//! missing samples or failing APIs.

use std::time::Duration;

use crate::workload::Span;
use crate::workload::model::Seed;
use crate::{Cluster, FaultAction, FaultId, FaultRule, MetricsApi};

/// The scraping for each of the three APIs, and the outages. Times count from the start of the run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pipeline {
    /// metrics.k8s.io, as served by metrics-server.
    pub resource: Scraping,
    /// custom.metrics.k8s.io, as served by an adapter.
    pub custom: Scraping,
    /// external.metrics.k8s.io, as served by an adapter.
    pub external: Scraping,
    /// The outages of the APIs.
    pub outages: Vec<Outage>,
}

impl Pipeline {
    /// Creates a pipeline with the same [`Scraping`] for all three APIs and without outages.
    pub fn all(scraping: Scraping) -> Self {
        Self { resource: scraping, custom: scraping, external: scraping, outages: Vec::new() }
    }

    /// Returns the scraping of one API.
    pub fn scraping(&self, api: MetricsApi) -> &Scraping {
        match api {
            MetricsApi::Resource => &self.resource,
            MetricsApi::Custom => &self.custom,
            MetricsApi::External => &self.external,
        }
    }
}

/// The sampling for one API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scraping {
    /// The time between two samples, at least a millisecond.
    pub interval: Duration,
    /// The time of the first sample.
    pub phase: Duration,
    /// The averaging window of rates and of cpu, at least the interval. For a younger pod, the window is the age of the
    /// pod.
    pub window: Duration,
    /// The delay from taking a sample to serving it.
    pub delay: Duration,
    /// The minimum run time of a container before its first sample.
    pub first_after: Duration,
    /// A second stage that reads the samples and serves its last reading until the next reading, as metrics-server does
    /// with the samples of kubelets. Without a relay, each sample is served when it is available.
    pub relay: Option<Relay>,
}

/// The times at which a second stage reads the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relay {
    /// The time between two readings, at least a millisecond.
    pub interval: Duration,
    /// The time of the first reading.
    pub phase: Duration,
}

impl Scraping {
    /// Creates a [`Scraping`] that samples every `interval`, averages over the interval, and has no delay.
    pub fn every(interval: Duration) -> Self {
        Self {
            interval,
            phase: Duration::ZERO,
            window: interval,
            delay: Duration::ZERO,
            first_after: FIRST_AFTER.min(interval),
            relay: None,
        }
    }

    /// Returns the longer of the window and the interval.
    pub(super) fn window_or_interval(&self) -> Duration {
        self.window.max(self.interval)
    }

    /// Returns the time whose samples are served at `now`: the last reading of the relay, or `now` without a relay.
    pub(super) fn served_at(&self, now: Duration) -> Duration {
        let Some(relay) = self.relay else { return now };
        let Some(since) = now.checked_sub(relay.phase) else { return Duration::ZERO };
        let interval = relay.interval.max(Duration::from_millis(1)).as_nanos();
        now.saturating_sub(Duration::from_nanos_u128(since.as_nanos() % interval))
    }

    /// Returns the time of the first scrape after `now`.
    pub(super) fn next_after(&self, now: Duration) -> Duration {
        let Some(since) = now.checked_sub(self.phase) else { return self.phase };
        let interval = self.interval.max(Duration::from_millis(1)).as_nanos();
        let scrapes = since.as_nanos() / interval + 1;
        self.phase.saturating_add(Duration::from_nanos_u128(scrapes.saturating_mul(interval)))
    }
}

/// The minimum run time before the first sample, by default. metrics-server has the same minimum for its rates.
const FIRST_AFTER: Duration = Duration::from_secs(10);

impl Default for Scraping {
    /// Returns the default of metrics-server: a sample every 15 s.
    fn default() -> Self {
        Self::every(super::SCRAPE_INTERVAL)
    }
}

/// A period in which one of the metrics APIs fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Outage {
    /// The API that fails.
    pub api: MetricsApi,
    /// The period of the outage.
    pub during: Span,
    /// The kind of failure.
    pub kind: OutageKind,
}

/// The failure of a metrics API.
#[derive(Debug, Clone, PartialEq)]
pub enum OutageKind {
    /// Every request gets an HTTP status such as 503 and a text, as from a proxy in front of an adapter that is down.
    Error {
        /// The status code.
        code: u16,
        /// The body.
        message: String,
    },
    /// Requests get no response.
    Timeout,
    /// Lists have no items.
    Empty,
    /// A fraction of the pods, objects or external series has no sample. The selection depends only on their names.
    Missing {
        /// The fraction without a sample, from 0 to 1.
        fraction: f64,
    },
    /// No new samples are taken. The last samples remain.
    Stale,
}

/// The fault rules of a pipeline's outages.
#[derive(Debug, Default)]
pub(super) struct OutageRules {
    /// One entry per outage. `None` while the outage is inactive, and if it needs no fault rule.
    rules: Vec<Option<FaultId>>,
}

impl OutageRules {
    /// Adds and removes the fault rules of outages that have started or ended.
    pub(super) fn update(&mut self, pipeline: &Pipeline, cluster: &Cluster, now: Duration) {
        self.rules.resize(pipeline.outages.len(), None);
        for (rule, outage) in self.rules.iter_mut().zip(&pipeline.outages) {
            match (action(outage).filter(|_| outage.during.contains(now)), *rule) {
                (Some(action), None) => {
                    let prefix = format!("/apis/{}/", outage.api.group());
                    *rule = Some(cluster.faults().add(FaultRule::new(action).path_prefix(&prefix)));
                }
                (None, Some(id)) => {
                    cluster.faults().remove(id);
                    *rule = None;
                }
                _ => {}
            }
        }
    }

    /// Returns the next time at which a fault rule is added or removed.
    pub(super) fn due(pipeline: &Pipeline, now: Duration) -> Option<Duration> {
        let failing = pipeline.outages.iter().filter(|outage| action(outage).is_some());
        let edges = failing.flat_map(|outage| [Some(outage.during.from), outage.during.until]);
        edges.flatten().filter(|edge| *edge > now).min()
    }
}

fn action(outage: &Outage) -> Option<FaultAction> {
    match &outage.kind {
        OutageKind::Error { code, message } => Some(FaultAction::Text { code: *code, body: message.clone() }),
        OutageKind::Timeout => Some(FaultAction::Silence),
        OutageKind::Empty | OutageKind::Missing { .. } | OutageKind::Stale => None,
    }
}

/// The data that one API lacks at an instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gaps<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) api: MetricsApi,
    pub(super) now: Duration,
}

impl Gaps<'_> {
    /// Returns whether sampling is suspended.
    pub(super) fn are_stale(&self) -> bool {
        self.outages().any(|(_, kind)| *kind == OutageKind::Stale)
    }

    /// Returns whether the sample of the named pod, object or series is missing.
    pub(super) fn hides(&self, name: &str) -> bool {
        self.outages().any(|(index, kind)| match kind {
            OutageKind::Empty => true,
            OutageKind::Missing { fraction } => Seed::new(index).for_name(name).share() < *fraction,
            _ => false,
        })
    }

    fn outages(&self) -> impl Iterator<Item = (u64, &OutageKind)> {
        let applies = |outage: &Outage| outage.api == self.api && outage.during.contains(self.now);
        let all = (0..).zip(&self.pipeline.outages);
        all.filter(move |(_, outage)| applies(outage)).map(|(index, outage)| (index, &outage.kind))
    }
}
