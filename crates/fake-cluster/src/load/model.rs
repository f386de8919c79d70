//! Load as data: the work of a workload, its cost and its metrics. Also the metrics pipeline from the pods to the API:
//! scrape times, averaging windows, delays, and outages with missing samples or failing APIs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::curve::Curve;
use crate::MetricsApi;
use crate::workload::Span;

/// The work of one set of pods and its cost. A pod belongs to the first load that matches it.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The namespace of the pods.
    pub namespace: String,
    /// The labels of the pods.
    pub labels: BTreeMap<String, String>,
    /// The container that does the work. `None` for the first container. The other containers idle.
    pub container: Option<String>,
    /// The streams of work.
    pub work: Vec<Work>,
    /// Cpu in addition to the cost of the work.
    pub cpu: CpuModel,
    /// Memory in addition to the cost of the work.
    pub memory: MemoryModel,
    /// Unevenness of the work: the maximum fraction, at most 0.5, by which a pod's share differs from the mean. The
    /// differences shrink as pods approach their capacity.
    pub skew: f64,
    /// Random seed that selects the pods with a larger share.
    pub seed: u64,
}

impl Load {
    /// Creates a load without work for the pods with one label.
    pub fn new(namespace: &str, label: &str, value: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            labels: BTreeMap::from([(label.to_owned(), value.to_owned())]),
            container: None,
            work: Vec::new(),
            cpu: CpuModel::default(),
            memory: MemoryModel::default(),
            skew: 0.04,
            seed: 0,
        }
    }
}

/// One stream of work: a demand over time. The ready pods serve it, each up to its capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// Incoming units per second: requests, items, or another unit of work.
    pub demand: Curve,
    /// Capacity of one ready pod in units per second. A cpu limit can lower it.
    pub capacity: f64,
    /// The handling of units beyond the capacity.
    pub excess: OverflowPolicy,
    /// Millicores that a pod uses for one unit per second.
    pub cpu_per_unit: f64,
    /// Bytes that a pod uses for one unit per second.
    pub memory_per_unit: f64,
    /// The metrics of the work.
    pub metrics: Vec<Metric>,
}

impl Work {
    /// Creates work with a demand in millicores. Each pod uses at most `limit` millicores.
    pub fn cpu(millicores: impl Into<Curve>, limit: f64) -> Self {
        Self { cpu_per_unit: 1.0, ..Self::requests(millicores, limit) }
    }

    /// Creates work with a demand in requests per second, without a cost. Excess requests are lost.
    pub fn requests(per_second: impl Into<Curve>, capacity: f64) -> Self {
        Self {
            demand: per_second.into(),
            capacity,
            excess: OverflowPolicy::Lost,
            cpu_per_unit: 0.0,
            memory_per_unit: 0.0,
            metrics: Vec::new(),
        }
    }

    /// Creates a queue of items that wait until pods process them, without a cost.
    pub fn queue(arrivals: impl Into<Curve>, drain_per_pod: f64) -> Self {
        Self { excess: OverflowPolicy::Waits, ..Self::requests(arrivals, drain_per_pod) }
    }

    /// Sets the cost in millicores for one unit per second.
    #[must_use]
    pub fn with_cpu(self, per_unit: f64) -> Self {
        Self { cpu_per_unit: per_unit, ..self }
    }

    /// Sets the cost in bytes for one unit per second.
    #[must_use]
    pub fn with_memory(self, per_unit: f64) -> Self {
        Self { memory_per_unit: per_unit, ..self }
    }

    /// Adds a metric.
    #[must_use]
    pub fn with_metric(mut self, metric: Metric) -> Self {
        self.metrics.push(metric);
        self
    }
}

/// The handling of units beyond the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverflowPolicy {
    /// Excess units are unserved, like refused requests.
    Lost,
    /// Excess units wait in a queue until pods have capacity.
    Waits,
}

/// Cpu of a pod, in millicores.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CpuModel {
    /// Usage of a started pod, in addition to its work.
    pub base: f64,
    /// Usage of a pod that is starting, instead of all other usage.
    pub start_up: f64,
    /// Maximum usage.
    pub limit: Option<f64>,
}

/// Memory of a pod, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryModel {
    /// Usage of a container that has just started.
    pub base: f64,
    /// Growth per second until the container restarts.
    pub growth: f64,
}

impl Default for MemoryModel {
    /// Returns 12 MiB without growth.
    fn default() -> Self {
        Self { base: 12.0 * 1024.0 * 1024.0, growth: 0.0 }
    }
}

/// A metric of the custom or external metrics API.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// The metric's name.
    pub name: String,
    /// The measured amount.
    pub measure: Measure,
    /// The API and object that expose the metric.
    pub shown: Shown,
}

/// The amount that a metric measures. Rates are means over the window of the API's scraping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Incoming units per second. A pod's value is an even share.
    Demand,
    /// Served units per second.
    Served,
    /// Waiting units at the instant of the scrape. A pod's value is an even share.
    Waiting,
    /// Time in seconds until the last waiting unit is served at the current capacity: waiting units divided by the
    /// capacity. Without ready pods, the capacity of one pod is used. All pods have the same value.
    WaitingTime,
    /// Served units divided by the capacity, from 0 to 1.
    Saturation,
}

/// The API and object that expose a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// Each pod: `pods/*` of custom.metrics.k8s.io.
    Pods,
    /// The total, on an object: custom.metrics.k8s.io.
    Object {
        /// The apiVersion, such as `networking.k8s.io/v1`.
        api_version: String,
        /// The kind, such as `Ingress`.
        kind: String,
        /// The object's name. Its namespace is the pods' namespace.
        name: String,
    },
    /// The total, with labels: external.metrics.k8s.io.
    External {
        /// The labels of the series.
        labels: BTreeMap<String, String>,
    },
}

impl Metric {
    /// Creates a metric of each pod.
    pub fn for_pods(name: &str, measure: Measure) -> Self {
        Self { name: name.to_owned(), measure, shown: Shown::Pods }
    }

    /// Creates a metric of an object.
    pub fn for_object(name: &str, measure: Measure, api_version: &str, kind: &str, object: &str) -> Self {
        let shown = Shown::Object {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: object.to_owned(),
        };
        Self { name: name.to_owned(), measure, shown }
    }

    /// Creates an external metric with labels.
    pub fn external<const N: usize>(name: &str, measure: Measure, labels: [(&str, &str); N]) -> Self {
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Self { name: name.to_owned(), measure, shown: Shown::External { labels } }
    }
}

/// The scraping for each of the three APIs, and the outages. Times are relative to the start of the run.
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
