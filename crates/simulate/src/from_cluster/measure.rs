//! Derives the requests, the startup times and the current load of a workload from the cluster's objects. Also derives
//! the loads of a what-if simulation, with their origins, from the past of an HPA.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use autoscaling::spec::{MetricSource, ResourceTarget};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use sources::PastReading;

use super::ClusterObjects;
use crate::past::Past;
use terminal::values::{self, at, list, quantity, text};

/// The longest plausible startup or image pull. If the Ready condition changed later, the pod became ready again after
/// a failure.
const LONGEST_START: Duration = Duration::from_hours(1);
/// The maximum number of times in a list of startup or pull times.
const MOST_TIMES: usize = 20;
/// The assumed capacity of a pod, as a multiple of the metric's target.
const MARGIN: f64 = 1.25;

/// The measured fields of a scenario, in the format of a scenario file. A value that is unavailable is null.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) containers: Value,
    pub(super) startup: Value,
    pub(super) image_pull: Value,
    pub(super) cpu: Value,
    pub(super) memory: Value,
    pub(super) rolling_update: Value,
    pub(super) loads: Vec<Value>,
}

impl Measured {
    pub(super) fn from_objects(objects: &ClusterObjects) -> Self {
        let cpu: f64 = objects.usage.iter().map(|pod| used(pod, "cpu")).sum();
        let memory: f64 = objects.usage.iter().map(|pod| used(pod, "memory")).sum();
        let pods = objects.usage.len().max(1) as f64;
        let is_read = !objects.usage.is_empty();
        let mut loads = custom_loads(objects);
        match loads.first_mut() {
            // The whole cpu usage of the pods is assumed to be the cost of the first load.
            Some((demand, Value::Object(first))) if is_read && *demand > 0.0 => {
                first.insert("cpuPerUnit".to_owned(), json!(cores(cpu / *demand)));
            }
            None if is_read => loads.push((cpu, json!({"cpu": cores(cpu)}))),
            _ => {}
        }
        Self {
            containers: containers(objects),
            startup: distribution(objects.pods.iter().filter_map(start_up)),
            image_pull: image_pull(objects),
            cpu: json!({"base": 0}),
            memory: if is_read { json!({"base": bytes(memory / pods)}) } else { Value::Null },
            rolling_update: rolling_update(objects),
            loads: loads.into_iter().map(|(_, load)| load).collect(),
        }
    }
}

/// Returns the usage of a resource by all containers of a pod.
fn used(pod: &Value, resource: &str) -> f64 {
    list(pod, "/containers")
        .iter()
        .filter_map(|container| quantity(at(container, &format!("/usage/{resource}"))))
        .sum()
}

/// Formats cores in millicores, or in microcores below one millicore.
fn cores(amount: f64) -> String {
    if amount >= 0.001 { format!("{:.0}m", amount * 1e3) } else { format!("{:.0}u", amount * 1e6) }
}

fn bytes(amount: f64) -> String {
    format!("{:.0}Mi", amount / (1024.0 * 1024.0))
}

/// Returns the containers with their requests and limits, from the pod template, or from a pod if the template is
/// unavailable.
fn containers(objects: &ClusterObjects) -> Value {
    let containers_of = |object: &Value, pointer: &str| {
        let container = |container: &Value| {
            let mut out = BTreeMap::from([("name", at(container, "/name").clone())]);
            for (field, pointer) in [("requests", "/resources/requests"), ("limits", "/resources/limits")] {
                if let Some(amounts) =
                    at(container, pointer).as_object().filter(|amounts| !amounts.is_empty())
                {
                    out.insert(field, json!(amounts));
                }
            }
            json!(out)
        };
        list(object, pointer).iter().map(container).collect::<Vec<_>>()
    };
    let found = match (&objects.target, objects.pods.first()) {
        (Some(target), _) => containers_of(target, "/spec/template/spec/containers"),
        (None, Some(pod)) => containers_of(pod, "/spec/containers"),
        (None, None) => Vec::new(),
    };
    if found.is_empty() { Value::Null } else { json!(found) }
}

fn rolling_update(objects: &ClusterObjects) -> Value {
    let Some(target) = &objects.target else { return Value::Null };
    let rolling = at(target, "/spec/strategy/rollingUpdate");
    let fields: serde_json::Map<_, _> = ["maxSurge", "maxUnavailable"]
        .into_iter()
        .filter_map(|field| rolling.get(field).map(|value| (field.to_owned(), value.clone())))
        .collect();
    if fields.is_empty() { Value::Null } else { Value::Object(fields) }
}

/// Returns the latest start time of a pod's containers. `None` if a container is not running or was restarted, because
/// the time of its first start is then unknown.
fn started(pod: &Value) -> Option<Timestamp> {
    let start = |container: &Value| {
        let is_first = at(container, "/restartCount").as_u64().unwrap_or(0) == 0;
        text(container, "/state/running/startedAt").parse().ok().filter(|_| is_first)
    };
    list(pod, "/status/containerStatuses").iter().map(start).collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Returns the time at which a condition of a pod became true.
fn became(pod: &Value, condition: &str) -> Option<Timestamp> {
    let matches = |found: &&Value| text(found, "/type") == condition && text(found, "/status") == "True";
    text(list(pod, "/status/conditions").iter().find(matches)?, "/lastTransitionTime").parse().ok()
}

fn between(from: Timestamp, to: Timestamp) -> Option<Duration> {
    Duration::try_from(to.duration_since(from)).ok().filter(|length| *length <= LONGEST_START)
}

/// Returns the time from the start of a pod's containers until the pod was ready.
fn start_up(pod: &Value) -> Option<Duration> {
    between(started(pod)?, became(pod, "Ready")?)
}

/// Returns the times from scheduling until the containers started, including pulls of images and mounts of volumes.
fn image_pull(objects: &ClusterObjects) -> Value {
    let pull = |pod: &Value| between(became(pod, "PodScheduled")?, started(pod)?);
    match distribution(objects.pods.iter().filter_map(pull)) {
        pulls if pulls.is_null() || pulls == json!("0s") => Value::Null,
        pulls => json!({"everyPod": pulls}),
    }
}

/// Formats times for a scenario file: a single time, or `oneOf` several. Times far above the median are dropped,
/// because such a pod probably became ready a second time. Null without times.
fn distribution(times: impl Iterator<Item = Duration>) -> Value {
    let mut times: Vec<_> = times.collect();
    times.sort();
    let Some(median) = times.get(times.len() / 2).copied() else { return Value::Null };
    let most = median.saturating_mul(5).max(Duration::from_secs(30));
    times.retain(|time| *time <= most);
    let step = times.len().div_ceil(MOST_TIMES).max(1);
    let texts: Vec<_> = times.iter().step_by(step).map(|time| format!("{}s", time.as_secs())).collect();
    match (texts.first(), texts.last()) {
        (Some(first), Some(last)) if first == last => json!(first),
        _ => json!({"oneOf": texts}),
    }
}

/// Returns the loads of the custom and external metrics, each with its demand. The demand comes from the values in the
/// HPA's status.
fn custom_loads(objects: &ClusterObjects) -> Vec<(f64, Value)> {
    let current = list(&objects.hpa, "/status/currentMetrics");
    let load = |metric: &Value| {
        let kind = text(metric, "/type");
        let field = match kind {
            "Pods" => "pods",
            "Object" => "object",
            "External" => "external",
            _ => return None,
        };
        let name = text(metric, &format!("/{field}/metric/name"));
        let target = at(metric, &format!("/{field}/target"));
        let matches = |status: &&Value| {
            text(status, "/type") == kind && text(status, &format!("/{field}/metric/name")) == name
        };
        let now = at(current.iter().find(matches)?, &format!("/{field}/current"));
        let pods = f64::from(objects.replicas.max(1));
        let per_pod = quantity(at(target, "/averageValue"));
        let demand = match quantity(at(now, "/averageValue")) {
            Some(average) => average * pods,
            None => quantity(at(now, "/value"))?,
        };
        let capacity = per_pod.or_else(|| quantity(at(target, "/value")).map(|value| value / pods))? * MARGIN;
        let mut shown = json!({"name": name});
        let described = at(metric, "/object/describedObject");
        if let Some(shown) = shown.as_object_mut() {
            if !described.is_null() {
                shown.insert("object".to_owned(), described.clone());
            } else if kind == "External" {
                let labels = at(metric, "/external/metric/selector/matchLabels").clone();
                let labels = if labels.is_null() { json!({}) } else { labels };
                shown.insert("external".to_owned(), json!({ "labels": labels }));
            }
        }
        let load = json!({
            "demand": rounded(demand),
            "capacityPerPod": rounded(capacity),
            "metrics": [shown],
        });
        Some((demand, load))
    };
    list(&objects.hpa, "/spec/metrics").iter().filter_map(load).collect()
}

/// Rounds to a thousandth.
fn rounded(amount: f64) -> f64 {
    (amount * 1_000.0).round() / 1_000.0
}

/// The past values of metrics from Prometheus, or the reason for their absence, by the metric's index in the spec.
#[derive(Debug, Clone, Default)]
pub struct SourceLoads {
    /// The values of each metric that has a server.
    pub by_metric: BTreeMap<usize, Result<PastReading, PastError>>,
}

/// The reason why Prometheus provides no past values of a metric, although the scaling policy names a server for it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PastError {
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
pub struct MetricLoad {
    /// The short name of the metric.
    pub metric: String,
    /// The origin of the load.
    pub origin: LoadOrigin,
    /// The reason why the load does not come from the Prometheus server that the scaling policy names. `None` without
    /// such a reason or server.
    pub problem: Option<String>,
}

/// The origin of the load of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadOrigin {
    /// The result of a range query to the Prometheus server with this name.
    Prometheus(String),
    /// The recorded decisions of the controller. Before the first decision, the values come from the watch.
    Record,
    /// The values in the HPA's status that the watch observed since the command started.
    Seen,
    /// The current value, because too few past values are known.
    Constant,
}

impl LoadOrigin {
    /// Returns whether the load follows the past.
    pub fn is_past(&self) -> bool {
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

/// The inputs from which the loads of a scenario are derived.
pub(crate) struct Loads<'a> {
    pub(crate) past: &'a Past,
    pub(crate) sources: &'a SourceLoads,
    pub(crate) start: Timestamp,
    /// The scenario with constant loads.
    pub(crate) plain: &'a Value,
    /// Whether the past is long enough. Otherwise, all loads stay constant.
    pub(crate) is_known: bool,
}

impl Loads<'_> {
    /// Returns the origin of each metric's load, and the field `load` of the scenario.
    pub(crate) fn read(&self) -> (Vec<MetricLoad>, Value) {
        let mut loads: Vec<Value> = values::list(self.plain, "/load").to_vec();
        if loads.is_empty() && self.is_known && self.cpu().is_some() {
            // Without readable PodMetrics, the scenario has no load of cpu. The values of this load come from the past
            // of the HPA.
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
            MetricLoad { metric: metric.subject(&self.past.namespace).to_string(), origin, problem }
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

    /// Converts totals to the points of a curve. The first point is the last total at or before the start of the
    /// scenario. `None` if the curve would have fewer than two points.
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
