//! Traces of the actions of a controller, from the audit log of the API server, and the comparison of two traces.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::plan::{Plan, PlannedHpa, Trait};

/// The audit policy: the writes of the autoscaler with their bodies, and the ConfigMaps with which traces end.
pub(crate) fn audit_policy() -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "omitManagedFields": true,
        "rules": [
            {"level": "RequestResponse", "users": [crate::audit::AUTOSCALER],
             "verbs": ["create", "update", "patch"]},
            {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["configmaps"]}]},
            {"level": "None"},
        ],
    })
    .to_string()
}

/// The name of the ConfigMap that marks the end of the trace of a namespace.
pub(crate) const END: &str = "end";

/// The actions of a controller for one HPA, as lines of text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Trace {
    /// Writes of the Scale and of the status, in their order.
    pub(crate) writes: Vec<String>,
    /// Events, sorted, with the number of their occurrences.
    pub(crate) events: Vec<String>,
}

impl Trace {
    /// Removes the numbers of occurrences of the events.
    pub(crate) fn remove_counts(&mut self) {
        for event in &mut self.events {
            event.truncate(event.rfind(" (").unwrap_or(event.len()));
        }
    }
}

/// The traces of HPAs, by namespace and name.
pub(crate) type Traces = BTreeMap<(String, String), Trace>;

/// Events by namespace and name. The value has the HPA, the text and the count.
type Events = BTreeMap<(String, String), (String, String, u64)>;

/// Reads the traces of the HPAs of all plans. `server` is the URL of the API server in the kubeconfig of the
/// controller.
pub(crate) fn read(log: &str, plans: &[Plan], server: &str) -> Traces {
    let mut traces = Traces::new();
    let mut scales = BTreeMap::new();
    for plan in plans {
        for hpa in &plan.hpas {
            let key = (plan.namespace.clone(), hpa.name.clone());
            if let Some(scale) = &hpa.scale {
                scales.insert(scale.clone(), key.clone());
            }
            traces.insert(key, Trace::default());
        }
    }
    let mut events = Events::new();
    let mut ended = BTreeSet::new();
    for line in log.lines() {
        // The URL of the server differs between runs.
        let line = sorted_names(&line.replace(server, "https://API"));
        let Ok(entry) = serde_json::from_str::<Value>(&line) else { continue };
        let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/objectRef/namespace"), text("/objectRef/name"));
        let code = entry["responseStatus"]["code"].as_u64().unwrap_or_default();
        let path = text("/requestURI").split('?').next().unwrap_or_default();
        if ended.contains(namespace) {
            continue;
        }
        match (text("/objectRef/resource"), text("/objectRef/subresource")) {
            ("configmaps", _) => {
                ended.insert(namespace.to_owned());
            }
            (_, "scale") => {
                let Some(trace) = scales.get(path).and_then(|key| traces.get_mut(key)) else { continue };
                let replicas = &entry["requestObject"]["spec"]["replicas"];
                trace.writes.push(format!("scale to {}: {code}", replicas.as_i64().unwrap_or_default()));
            }
            ("horizontalpodautoscalers", "status") => {
                let Some(trace) = traces.get_mut(&(namespace.to_owned(), name.to_owned())) else { continue };
                if code >= 300 {
                    trace.writes.push(format!("status: {code}"));
                    continue;
                }
                let lines = status_lines(&entry["responseObject"]["status"]);
                trace.writes.push(lines.join("\n      "));
            }
            ("events", _) => record_event(&mut events, &entry, namespace, name, code),
            _ => {}
        }
    }
    let mut counts = BTreeMap::<_, u64>::new();
    for ((namespace, _), (hpa, text, count)) in events {
        *counts.entry((namespace, hpa, text)).or_default() += count;
    }
    for ((namespace, hpa, text), count) in counts {
        if let Some(trace) = traces.get_mut(&(namespace, hpa)) {
            trace.events.push(format!("{text} ({count} times)"));
        }
    }
    for trace in traces.values_mut() {
        // A status that repeats the previous status is no difference.
        trace.writes.dedup();
    }
    traces
}

fn record_event(events: &mut Events, entry: &Value, namespace: &str, name: &str, code: u64) {
    let body = &entry["requestObject"];
    let text = |pointer| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let count = body["count"].as_u64().unwrap_or(1);
    if entry["verb"] == "patch" {
        if let Some((_, message, sum)) = events.get_mut(&(namespace.to_owned(), name.to_owned())) {
            *sum = count;
            if !text("/message").is_empty()
                && let Some((kind, _)) = message.clone().split_once(": ")
            {
                *message = format!("{kind}: {}", text("/message"));
            }
        }
        return;
    }
    let mut line = format!("event {} {}: {}", text("/type"), text("/reason"), text("/message"));
    if code >= 300 {
        line = format!("refused ({code}) {line}");
    }
    let hpa = text("/involvedObject/name").to_owned();
    events.insert((namespace.to_owned(), text("/metadata/name").to_owned()), (hpa, line, count));
}

/// The status without its times.
fn status_lines(status: &Value) -> Vec<String> {
    let field = |name: &str| status.get(name).map_or_else(|| "absent".to_owned(), Value::to_string);
    let mut lines = vec![format!(
        "status: current {}, desired {}, generation {}, last scale time {}",
        field("currentReplicas"),
        field("desiredReplicas"),
        field("observedGeneration"),
        if status.get("lastScaleTime").is_some() { "set" } else { "absent" },
    )];
    let metrics = status["currentMetrics"].as_array();
    lines.extend(metrics.into_iter().flatten().map(|metric| format!("metric {metric}")));
    lines.extend(crate::rest::conditions(&json!({"status": status})));
    lines
}

/// Sorts the two HPAs that a text names as an example. The built-in controller names them in any order.
fn sorted_names(line: &str) -> String {
    let mut parts = line.split("(e.g. [");
    let mut sorted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (names, rest) = part.split_once("])").unwrap_or((part, ""));
        let mut names: Vec<_> = names.split(' ').collect();
        names.sort_unstable();
        sorted.extend(["(e.g. [", names.join(" ").as_str(), "])", rest]);
    }
    sorted
}

/// An intended difference, listed in `docs/reference/parity.md`. It explains all differences of an HPA, because it may
/// cause further differences.
pub(crate) struct Intended {
    pub(crate) reason: &'static str,
    /// The property of the HPAs that the difference affects.
    affects: Trait,
}

/// Every difference that is not in this table fails the test.
pub(crate) const INTENDED: [Intended; 4] = [
    Intended { reason: "values and sums beyond 2^63 saturate, upstream they wrap", affects: Trait::Overflow },
    Intended {
        reason: "an HPA that is created again starts without a history, upstream it inherits one",
        affects: Trait::Recreated,
    },
    Intended {
        reason: "a rescale with a lost response is verified and counts, upstream it has failed",
        affects: Trait::LostResponse,
    },
    Intended {
        reason: "pods that have succeeded are ignored, upstream they count",
        affects: Trait::SucceededPods,
    },
];

#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) hpas: usize,
    pub(crate) lines: usize,
    /// Number of HPAs by the reason of their difference.
    pub(crate) explained: BTreeMap<&'static str, usize>,
    pub(crate) differences: Vec<String>,
}

pub(crate) fn compare(plans: &[Plan], reference: &Traces, ours: &Traces) -> Comparison {
    let mut comparison = Comparison::default();
    for plan in plans {
        for hpa in &plan.hpas {
            let key = (plan.namespace.clone(), hpa.name.clone());
            let (Some(mut expected), Some(mut got)) = (reference.get(&key).cloned(), ours.get(&key).cloned())
            else {
                comparison.differences.push(format!("{key:?}: no trace"));
                continue;
            };
            if hpa.scale.is_none() {
                // The gate cannot block syncs without a read of a Scale, so their number depends on timing.
                expected.remove_counts();
                got.remove_counts();
            }
            comparison.hpas += 1;
            comparison.lines += expected.writes.len() + expected.events.len();
            if expected == got {
                continue;
            }
            if let Some(reason) = explain(hpa) {
                *comparison.explained.entry(reason).or_default() += 1;
                continue;
            }
            let all = |trace: &Trace| [trace.writes.clone(), trace.events.clone()].concat();
            let text = difference(&all(&expected), &all(&got));
            let faults: Vec<_> = plan.steps.iter().map(|step| &step.faults).collect();
            comparison.differences.push(format!("{}/{} with faults {faults:?}:\n{text}", key.0, key.1));
        }
    }
    comparison
}

/// The reason of the intended difference that affects an HPA.
fn explain(hpa: &PlannedHpa) -> Option<&'static str> {
    let intended = INTENDED.iter().find(|intended| hpa.traits.contains(&intended.affects))?;
    Some(intended.reason)
}

/// At most 12 lines of each side that the comparison does not find on the opposite side.
fn difference(expected: &[String], got: &[String]) -> String {
    let same = expected.iter().zip(got).take_while(|(one, other)| one == other).count();
    let mut text = format!("  after {same} equal lines\n");
    for (side, one, other) in [("built-in", expected, got), ("ours", got, expected)] {
        let lines = one.iter().skip(same).filter(|line| !other.contains(line));
        for line in lines.take(12) {
            text.extend(["    ", side, ": ", line.as_str(), "\n"]);
        }
    }
    text
}
