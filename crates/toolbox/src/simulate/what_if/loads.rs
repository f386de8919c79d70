//! The loads of a what-if simulation, and their origins.

use std::collections::BTreeMap;
use std::fmt;

use autoscaling::spec::{MetricSource, ResourceTarget};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use sources::PastReading;

use crate::simulate::past::Past;
use crate::values;

/// The past values of metrics in Prometheus, by the index of the metric in the spec.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourceLoads {
    pub(crate) by_metric: BTreeMap<usize, Result<PastReading, PastError>>,
}

/// The reason why Prometheus provides no past values of a metric, although the scaling policy names a server for it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum PastError {
    /// The command has no file with sources. The text describes the source of the metric.
    #[error("{0}: name the server in the file of --metric-sources-file to replay its values")]
    NoFile(String),
    /// The HPA has more metrics of Prometheus than this limit.
    #[error("the past of at most {0} metrics is read from Prometheus")]
    TooManyMetrics(usize),
    /// The query for the past values failed.
    #[error("{0}")]
    Source(#[from] sources::Failure),
}

/// A metric and the origin of its load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MetricLoad {
    /// The short name of the metric.
    pub(crate) metric: String,
    pub(crate) origin: LoadOrigin,
    /// The reason why the load does not come from the Prometheus server that the scaling policy names. `None` without
    /// such a reason or server.
    pub(crate) problem: Option<String>,
}

/// The origin of the load of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoadOrigin {
    /// The result of a range query to the Prometheus server with this name.
    Prometheus(String),
    /// The recorded decisions of the controller. Before the first decision, the values come from the watch.
    Record,
    /// The values in the HPA's status that the watch observed since the command started.
    Seen,
    /// The current value, because no value of the past is known.
    Constant,
}

impl LoadOrigin {
    /// Whether the load follows the past.
    pub(crate) fn is_past(&self) -> bool {
        *self != Self::Constant
    }
}

impl fmt::Display for LoadOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prometheus(server) => write!(f, "Prometheus server {server}"),
            Self::Record => f.write_str("the record of the controller"),
            Self::Seen => f.write_str("its observed values"),
            Self::Constant => f.write_str("its current value, constant"),
        }
    }
}

impl Serialize for LoadOrigin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Derives the loads of a scenario from the past.
pub(super) struct Loads<'a> {
    pub(super) past: &'a Past,
    pub(super) sources: &'a SourceLoads,
    pub(super) start: Timestamp,
    /// The scenario with constant loads.
    pub(super) plain: &'a Value,
    /// Whether the past is long enough. Otherwise, all loads stay constant.
    pub(super) is_known: bool,
}

impl Loads<'_> {
    /// Returns the origin of each metric's load, and the field `load` of the scenario.
    pub(super) fn read(&self) -> (Vec<MetricLoad>, Value) {
        let mut loads: Vec<Value> = values::list(self.plain, "/load").to_vec();
        if loads.is_empty() && self.is_known && self.cpu().is_some() {
            // Without readable PodMetrics, the scenario has no load of cpu. The past of the HPA contains its values.
            loads.push(json!({"cpu": "0"}));
        }
        let mut origins: BTreeMap<usize, LoadOrigin> = BTreeMap::new();
        for load in loads.iter_mut().filter(|_| self.is_known) {
            let is_cpu = load.get("cpu").is_some();
            let name = values::text(load, "/metrics/0/name").to_owned();
            let found = if is_cpu { self.cpu() } else { self.custom(&name) };
            let Some((index, factor)) = found else { continue };
            let Some((origin, points)) = self.points(index, factor) else { continue };
            if let Some(fields) = load.as_object_mut() {
                fields.insert(if is_cpu { "cpu" } else { "demand" }.to_owned(), json!({ "points": points }));
            }
            origins.insert(index, origin);
        }
        let metrics = self.past.spec.metrics.iter().enumerate().map(|(index, metric)| {
            let problem = match self.sources.by_metric.get(&index) {
                Some(Err(problem)) => Some(problem.to_string()),
                Some(Ok(reading)) if !matches!(origins.get(&index), Some(LoadOrigin::Prometheus(_))) => {
                    let server = &reading.server;
                    Some(format!("prometheus {server:?} has fewer than two values in this time"))
                }
                _ => None,
            };
            let origin = origins.remove(&index).unwrap_or(LoadOrigin::Constant);
            MetricLoad { metric: metric.subject().to_string(), origin, problem }
        });
        (metrics.collect(), Value::Array(loads))
    }

    /// Returns the index of the first cpu metric, and the number of cores per unit of its total.
    fn cpu(&self) -> Option<(usize, f64)> {
        let containers = values::list(self.plain, "/workloads/0/containers");
        let request = |only: Option<&str>| {
            let requests = containers
                .iter()
                .filter(|container| only.is_none_or(|name| values::text(container, "/name") == name))
                .filter_map(|container| values::quantity(values::at(container, "/requests/cpu")));
            Some(requests.sum::<f64>()).filter(|cores| *cores > 0.0)
        };
        let cores = |target: &ResourceTarget, only: Option<&str>| match target {
            ResourceTarget::Utilization(_) => request(only).map(|cores| cores / 100.0),
            ResourceTarget::AverageValue(_) => Some(1.0),
        };
        self.past.spec.metrics.iter().enumerate().find_map(|(index, metric)| match metric {
            MetricSource::Resource { resource, target } if &**resource == "cpu" => {
                Some((index, cores(target, None)?))
            }
            MetricSource::ContainerResource { resource, container, target } if &**resource == "cpu" => {
                Some((index, cores(target, Some(&**container))?))
            }
            _ => None,
        })
    }

    fn custom(&self, name: &str) -> Option<(usize, f64)> {
        let has_name = |metric: &MetricSource| match metric {
            MetricSource::Pods { metric, .. }
            | MetricSource::Object { metric, .. }
            | MetricSource::External { metric, .. } => &*metric.name == name,
            _ => false,
        };
        self.past.spec.metrics.iter().position(has_name).map(|index| (index, 1.0))
    }

    /// Returns the origin and the points of a metric's total: from Prometheus, or else from the record or the watch.
    /// `None` if fewer than two values are known.
    fn points(&self, index: usize, factor: f64) -> Option<(LoadOrigin, Vec<Value>)> {
        let from_source = self.sources.by_metric.get(&index).and_then(|reading| {
            let PastReading { server, totals } = reading.as_ref().ok()?;
            Some((LoadOrigin::Prometheus(server.clone()), self.curve(totals, factor)?))
        });
        from_source.or_else(|| {
            let curve = self.curve(&self.past.totals(index), factor)?;
            let origin = if self.past.decisions.is_empty() { LoadOrigin::Seen } else { LoadOrigin::Record };
            Some((origin, curve))
        })
    }

    /// Converts totals to the points of a curve that starts with the last total before the start of the scenario.
    fn curve(&self, totals: &[(Timestamp, f64)], factor: f64) -> Option<Vec<Value>> {
        let usable = || totals.iter().filter(|(_, total)| total.is_finite() && *total >= 0.0);
        let before = usable().rev().find(|(at, _)| *at <= self.start).map(|(_, total)| (0, *total));
        let later = usable().filter(|(at, _)| *at > self.start);
        let later = later.map(|(at, total)| (at.duration_since(self.start).as_secs(), *total));
        let mut points: Vec<(i64, f64)> = before.into_iter().chain(later).collect();
        points.dedup_by_key(|(second, _)| *second);
        let rounded = |total: f64| (total * factor * 1e6).round() / 1e6;
        let point =
            |(second, total): &(i64, f64)| json!({"at": format!("{second}s"), "value": rounded(*total)});
        (points.len() >= 2).then(|| points.iter().map(point).collect())
    }
}
