//! Load as data: the work of a workload, what it costs, and under which metrics it shows.

use std::collections::BTreeMap;

use super::curve::Curve;

/// The work of one set of pods, and what it does to them. A pod belongs to the first load that it matches.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The namespace of the pods.
    pub namespace: String,
    /// The labels that the pods have.
    pub labels: BTreeMap<String, String>,
    /// The container that does the work; the first one if none is named. The others idle.
    pub container: Option<String>,
    /// What there is to do.
    pub work: Vec<Work>,
    /// Cpu beside what the work costs.
    pub cpu: CpuModel,
    /// Memory beside what the work costs.
    pub memory: MemoryModel,
    /// How unevenly work is spread: by which fraction a pod's share may differ from the mean, up or down, at most 0.5. The
    /// closer pods are to their capacity, the less they differ.
    pub skew: f64,
    /// Decides which pods get more.
    pub seed: u64,
}

impl Load {
    /// A load without any work, of the pods with one label.
    pub fn of(namespace: &str, label: &str, value: &str) -> Self {
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

/// One stream of work: a demand over time that the ready pods take, each up to its capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// Units per second that come in: requests, items, or whatever the pods work on.
    pub demand: Curve,
    /// Units per second that one ready pod can do. A cpu limit lowers it to what the limit allows.
    pub capacity: f64,
    /// What happens to units that come in beyond the capacity.
    pub excess: Excess,
    /// Millicores that a pod uses for one unit per second.
    pub cpu_per_unit: f64,
    /// Bytes that a pod uses for one unit per second.
    pub memory_per_unit: f64,
    /// The metrics that show this work.
    pub metrics: Vec<Metric>,
}

impl Work {
    /// Cpu itself as the work: a demand of so many millicores, of which each pod takes up to its limit.
    pub fn cpu(millicores: impl Into<Curve>, limit: f64) -> Self {
        Self { cpu_per_unit: 1.0, ..Self::requests(millicores, limit) }
    }

    /// Requests per second, refused when there are too many; at no cost.
    pub fn requests(per_second: impl Into<Curve>, capacity: f64) -> Self {
        Self {
            demand: per_second.into(),
            capacity,
            excess: Excess::Lost,
            cpu_per_unit: 0.0,
            memory_per_unit: 0.0,
            metrics: Vec::new(),
        }
    }

    /// A queue: items that wait until they are taken; at no cost.
    pub fn queue(arrivals: impl Into<Curve>, drain_per_pod: f64) -> Self {
        Self { excess: Excess::Waits, ..Self::requests(arrivals, drain_per_pod) }
    }

    /// The work at a cost in millicores for one unit per second.
    #[must_use]
    pub fn with_cpu(self, per_unit: f64) -> Self {
        Self { cpu_per_unit: per_unit, ..self }
    }

    /// The work at a cost in bytes for one unit per second.
    #[must_use]
    pub fn with_memory(self, per_unit: f64) -> Self {
        Self { memory_per_unit: per_unit, ..self }
    }

    /// The work, shown under one more metric.
    #[must_use]
    pub fn shown_as(mut self, metric: Metric) -> Self {
        self.metrics.push(metric);
        self
    }
}

/// What happens to units beyond the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// They are unserved, as requests that are refused.
    Lost,
    /// They wait in a queue until pods have time for them.
    Waits,
}

/// Cpu of a pod, in millicores.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CpuModel {
    /// Of a pod that has started, at any time.
    pub base: f64,
    /// Of a pod that starts and is not ready yet, instead of all else.
    pub start_up: f64,
    /// More than this is never used.
    pub limit: Option<f64>,
}

/// Memory of a pod, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryModel {
    /// Of a container that has just started.
    pub base: f64,
    /// What each second adds until the container starts anew.
    pub growth: f64,
}

impl Default for MemoryModel {
    /// 12 MiB that do not grow.
    fn default() -> Self {
        Self { base: 12.0 * 1024.0 * 1024.0, growth: 0.0 }
    }
}

/// A metric of the custom or external metrics API.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// Of which amount.
    pub measure: Measure,
    /// Of what it is a metric.
    pub shown: Shown,
}

/// What a metric measures of its work. Rates are means over the window of the API's scraping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Units per second that come in. For pods, an even share.
    Demand,
    /// Units per second that are done.
    Served,
    /// Units that wait, at the instant of the scrape. For pods, an even share.
    Waiting,
    /// How long the last unit would wait, in seconds, if nothing changed: what waits by the capacity. Without capacity it
    /// counts as that of one pod. For pods, the same for each.
    WaitingTime,
    /// What is done by what could be done, from 0 to 1.
    Saturation,
}

/// Where a metric shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// For each pod: `pods/*` of custom.metrics.k8s.io.
    Pods,
    /// In all on an object: of custom.metrics.k8s.io.
    Object {
        /// Such as `networking.k8s.io/v1`.
        api_version: String,
        /// Such as `Ingress`.
        kind: String,
        /// The object's name; its namespace is that of the pods.
        name: String,
    },
    /// In all, with labels: of external.metrics.k8s.io.
    External {
        /// The labels of the series.
        labels: BTreeMap<String, String>,
    },
}

impl Metric {
    /// A metric that each pod has.
    pub fn of_pods(name: &str, measure: Measure) -> Self {
        Self { name: name.to_owned(), measure, shown: Shown::Pods }
    }

    /// A metric of an object.
    pub fn of_object(name: &str, measure: Measure, api_version: &str, kind: &str, object: &str) -> Self {
        let shown = Shown::Object {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: object.to_owned(),
        };
        Self { name: name.to_owned(), measure, shown }
    }

    /// An external metric with labels.
    pub fn external<const N: usize>(name: &str, measure: Measure, labels: [(&str, &str); N]) -> Self {
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Self { name: name.to_owned(), measure, shown: Shown::External { labels } }
    }
}
