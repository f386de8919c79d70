//! What the objects of a cluster tell about a workload: requests, start-up times, present load.

use std::collections::BTreeMap;
use std::time::Duration;

use autoscaling::quantity::Quantity;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Seen;

/// A pod whose Ready condition changed so much later than its containers started has lost it in between.
const LONGEST_START: Duration = Duration::from_hours(1);
/// Of so many pods are start-up times listed.
const MOST_TIMES: usize = 20;
/// How much more than the target a pod is taken to be able to do.
const MARGIN: f64 = 1.25;

/// The fields of a scenario; null where nothing is known.
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
    pub(super) fn of(seen: &Seen) -> Self {
        let cpu: f64 = seen.usage.iter().map(|pod| used(pod, "cpu")).sum();
        let memory: f64 = seen.usage.iter().map(|pod| used(pod, "memory")).sum();
        let pods = seen.usage.len().max(1) as f64;
        let is_read = !seen.usage.is_empty();
        let mut loads = custom_loads(seen);
        match loads.first_mut() {
            // What the pods use is what the first work costs.
            Some((demand, Value::Object(first))) if is_read && *demand > 0.0 => {
                first.insert("cpuPerUnit".to_owned(), json!(cores(cpu / *demand)));
            }
            None if is_read => loads.push((cpu, json!({"cpu": cores(cpu)}))),
            _ => {}
        }
        Self {
            containers: containers(seen),
            startup: distribution(seen.pods.iter().filter_map(start_up)),
            image_pull: image_pull(seen),
            cpu: json!({"base": 0}),
            memory: if is_read { json!({"base": bytes(memory / pods)}) } else { Value::Null },
            rolling_update: rolling_update(seen),
            loads: loads.into_iter().map(|(_, load)| load).collect(),
        }
    }
}

fn at<'a>(object: &'a Value, pointer: &str) -> &'a Value {
    object.pointer(pointer).unwrap_or(&Value::Null)
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    at(object, pointer).as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).as_str().unwrap_or_default()
}

/// A quantity, as text or as a number.
fn quantity(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.parse::<Quantity>().ok().map(Quantity::as_f64),
        number => number.as_f64(),
    }
}

/// What all containers of a pod use of a resource.
fn used(pod: &Value, resource: &str) -> f64 {
    list(pod, "/containers")
        .iter()
        .filter_map(|container| quantity(at(container, &format!("/usage/{resource}"))))
        .sum()
}

/// To a millicore, or finer where that would be nothing.
fn cores(amount: f64) -> String {
    if amount >= 0.001 { format!("{:.0}m", amount * 1e3) } else { format!("{:.0}u", amount * 1e6) }
}

fn bytes(amount: f64) -> String {
    format!("{:.0}Mi", amount / (1024.0 * 1024.0))
}

/// Requests and limits, from the template, or from a pod where the template is not known.
fn containers(seen: &Seen) -> Value {
    let of = |object: &Value, pointer: &str| {
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
    let found = match (&seen.target, seen.pods.first()) {
        (Some(target), _) => of(target, "/spec/template/spec/containers"),
        (None, Some(pod)) => of(pod, "/spec/containers"),
        (None, None) => Vec::new(),
    };
    if found.is_empty() { Value::Null } else { json!(found) }
}

fn rolling_update(seen: &Seen) -> Value {
    let Some(target) = &seen.target else { return Value::Null };
    let rolling = at(target, "/spec/strategy/rollingUpdate");
    let fields: serde_json::Map<_, _> = ["maxSurge", "maxUnavailable"]
        .into_iter()
        .filter_map(|field| rolling.get(field).map(|value| (field.to_owned(), value.clone())))
        .collect();
    if fields.is_empty() { Value::Null } else { Value::Object(fields) }
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// When the last container of a pod started; none if one was restarted, whose first start is not known.
fn started(pod: &Value) -> Option<Timestamp> {
    let start = |container: &Value| {
        let is_first = at(container, "/restartCount").as_u64().unwrap_or(0) == 0;
        time(text(container, "/state/running/startedAt")).filter(|_| is_first)
    };
    list(pod, "/status/containerStatuses").iter().map(start).collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// When a condition of a pod became true.
fn became(pod: &Value, condition: &str) -> Option<Timestamp> {
    let is_it = |found: &&Value| text(found, "/type") == condition && text(found, "/status") == "True";
    time(text(list(pod, "/status/conditions").iter().find(is_it)?, "/lastTransitionTime"))
}

fn between(from: Timestamp, to: Timestamp) -> Option<Duration> {
    Duration::try_from(to.duration_since(from)).ok().filter(|length| *length <= LONGEST_START)
}

/// From the start of its containers until a pod was ready.
fn start_up(pod: &Value) -> Option<Duration> {
    between(started(pod)?, became(pod, "Ready")?)
}

/// From being on a node until its containers started: pulling, mounting and whatever else comes before.
fn image_pull(seen: &Seen) -> Value {
    let pull = |pod: &Value| between(became(pod, "PodScheduled")?, started(pod)?);
    match distribution(seen.pods.iter().filter_map(pull)) {
        Value::Null => Value::Null,
        pulls if pulls == json!("0s") => Value::Null,
        pulls => json!({"everyPod": pulls}),
    }
}

/// Times as a scenario has them: one, or one of several, without those far beyond the others: of pods that were ready, lost
/// it and are ready again.
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

/// The loads behind custom and external metrics, each with its demand: what the HPA's status says of them now.
fn custom_loads(seen: &Seen) -> Vec<(f64, Value)> {
    let current = list(&seen.hpa, "/status/currentMetrics");
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
        let is_it = |status: &&Value| {
            text(status, "/type") == kind && text(status, &format!("/{field}/metric/name")) == name
        };
        let now = at(current.iter().find(is_it)?, &format!("/{field}/current"));
        let pods = f64::from(seen.replicas.max(1));
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
    list(&seen.hpa, "/spec/metrics").iter().filter_map(load).collect()
}

/// To a thousandth.
fn rounded(amount: f64) -> f64 {
    (amount * 1_000.0).round() / 1_000.0
}
