//! Derives requests, startup times and the current load of a workload from the cluster's objects.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::ClusterObjects;
use crate::values::{at, list, quantity, text};

/// The longest plausible startup or image pull. If the Ready condition changed later, the pod became ready again after
/// a failure.
const LONGEST_START: Duration = Duration::from_hours(1);
/// The maximum number of times in a list of startup or pull times.
const MOST_TIMES: usize = 20;
/// The assumed capacity of a pod, as a multiple of the metric's target.
const MARGIN: f64 = 1.25;

/// The measured fields of a scenario, in the format of a scenario file. A field is null if no value is available.
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

/// The usage of a resource by all containers of a pod.
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

/// The containers with their requests and limits, from the pod template, or from a pod if the template is unavailable.
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

/// The time at which the last container of a pod started. `None` if a container is not running, or was restarted. The
/// time of its first start is then unknown.
fn started(pod: &Value) -> Option<Timestamp> {
    let start = |container: &Value| {
        let is_first = at(container, "/restartCount").as_u64().unwrap_or(0) == 0;
        text(container, "/state/running/startedAt").parse().ok().filter(|_| is_first)
    };
    list(pod, "/status/containerStatuses").iter().map(start).collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// The time at which a condition of a pod became true.
fn became(pod: &Value, condition: &str) -> Option<Timestamp> {
    let matches = |found: &&Value| text(found, "/type") == condition && text(found, "/status") == "True";
    text(list(pod, "/status/conditions").iter().find(matches)?, "/lastTransitionTime").parse().ok()
}

fn between(from: Timestamp, to: Timestamp) -> Option<Duration> {
    Duration::try_from(to.duration_since(from)).ok().filter(|length| *length <= LONGEST_START)
}

/// The time from the start of a pod's containers until it was ready.
fn start_up(pod: &Value) -> Option<Duration> {
    between(started(pod)?, became(pod, "Ready")?)
}

/// The times from scheduling until the containers started, including pulls of images and mounts of volumes.
fn image_pull(objects: &ClusterObjects) -> Value {
    let pull = |pod: &Value| between(became(pod, "PodScheduled")?, started(pod)?);
    match distribution(objects.pods.iter().filter_map(pull)) {
        pulls if pulls.is_null() || pulls == json!("0s") => Value::Null,
        pulls => json!({"everyPod": pulls}),
    }
}

/// Formats times for a scenario file: a single time, or `oneOf` several. Outliers are dropped, because they come from
/// pods that became unready and then ready again. Null without times.
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

/// The loads of the custom and external metrics, each with its demand. The demand comes from the values in the HPA's
/// status.
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
