//! Load as data: the work of a workload, its cost and its metrics.

use std::collections::BTreeMap;

use super::curve::Curve;

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
