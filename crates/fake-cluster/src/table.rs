//! The tables that `kubectl get` prints, with the columns of Kubernetes (`pkg/printers/internalversion`).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::hpa;
use super::object::{at, int, list, meta, partial, text};
use super::registry::ResourceType;
use super::scale::{labels_text, selector_text};
use super::store::StoredObject;

/// The part of the object that each row contains in addition to its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Metadata,
    Object,
    Nothing,
}

impl Include {
    /// Parses the query parameter `includeObject`.
    pub(crate) fn from_parameter(parameter: &str) -> Self {
        match parameter {
            "Object" => Self::Object,
            "None" => Self::Nothing,
            _ => Self::Metadata,
        }
    }
}

/// A cell of a row, with the definition of its column.
struct Cell {
    name: &'static str,
    kind: &'static str,
    /// Whether only `-o wide` shows the column.
    wide: bool,
    value: Value,
}

fn cell(name: &'static str, value: impl Into<Value>) -> Cell {
    Cell { name, kind: "string", wide: false, value: value.into() }
}

fn integer(name: &'static str, value: i64) -> Cell {
    Cell { kind: "integer", ..cell(name, value) }
}

fn wide(name: &'static str, value: impl Into<Value>) -> Cell {
    Cell { wide: true, ..cell(name, value) }
}

/// Returns the cells of one object. A null object also has a cell for each column.
fn cells(ty: &ResourceType, object: &Value, now: Timestamp) -> Vec<Cell> {
    let name = cell("Name", meta(object, "name"));
    let age = cell("Age", age_since(meta(object, "creationTimestamp"), now));
    let count = |path: &[&str]| int(object, path).unwrap_or(0);
    let ready = || format!("{}/{}", count(&["status", "readyReplicas"]), count(&["spec", "replicas"]));
    let containers = |key: &str| {
        let containers = list(object, &["spec", "template", "spec", "containers"]);
        containers.iter().map(|container| text(container, &[key])).collect::<Vec<_>>().join(",")
    };
    let selector = || at(object, &["spec", "selector"]).map(selector_text).unwrap_or_default();
    let labels = || at(object, &["spec", "selector"]).map_or_else(|| "<none>".to_owned(), labels_text);
    match ty.kind {
        "HorizontalPodAutoscaler" => hpa_cells(object, name, age),
        "Pod" => pod_cells(object, now, name, age),
        "Deployment" => vec![
            name,
            cell("Ready", ready()),
            cell("Up-to-date", count(&["status", "updatedReplicas"])),
            cell("Available", count(&["status", "availableReplicas"])),
            age,
            wide("Containers", containers("name")),
            wide("Images", containers("image")),
            wide("Selector", selector()),
        ],
        "StatefulSet" => vec![
            name,
            cell("Ready", ready()),
            age,
            wide("Containers", containers("name")),
            wide("Images", containers("image")),
        ],
        "ReplicaSet" | "ReplicationController" => vec![
            name,
            integer("Desired", count(&["spec", "replicas"])),
            integer("Current", count(&["status", "replicas"])),
            integer("Ready", count(&["status", "readyReplicas"])),
            age,
            wide("Containers", containers("name")),
            wide("Images", containers("image")),
            wide("Selector", if ty.kind == "ReplicaSet" { selector() } else { labels() }),
        ],
        "Event" => event_cells(object, now),
        "Namespace" => vec![name, cell("Status", text(object, &["status", "phase"])), age],
        "Lease" => vec![name, cell("Holder", text(object, &["spec", "holderIdentity"])), age],
        "ConfigMap" => {
            let entries = |key| at(object, &[key]).and_then(Value::as_object).map_or(0, serde_json::Map::len);
            vec![name, cell("Data", entries("data") + entries("binaryData")), age]
        }
        "Service" => {
            let ports = list(object, &["spec", "ports"]).iter().map(|port| {
                let number = int(port, &["port"]).unwrap_or(0);
                format!("{number}/{}", text(port, &["protocol"]))
            });
            let ports = ports.collect::<Vec<_>>().join(",");
            vec![
                name,
                cell("Type", text(object, &["spec", "type"])),
                cell("Cluster-IP", or_none(text(object, &["spec", "clusterIP"]))),
                cell("External-IP", "<none>"),
                cell("Port(s)", or_none(&ports)),
                age,
                wide("Selector", labels()),
            ]
        }
        _ => vec![name, age],
    }
}

fn hpa_cells(hpa: &Value, name: Cell, age: Cell) -> Vec<Cell> {
    let target = |key: &str| text(hpa, &["spec", "scaleTargetRef", key]);
    let min = int(hpa, &["spec", "minReplicas"]).map_or_else(|| "<unset>".to_owned(), |min| min.to_string());
    vec![
        name,
        cell("Reference", format!("{}/{}", target("kind"), target("name"))),
        cell("Targets", hpa::targets(hpa)),
        cell("MinPods", min),
        cell("MaxPods", int(hpa, &["spec", "maxReplicas"]).unwrap_or(0)),
        cell("Replicas", int(hpa, &["status", "currentReplicas"]).unwrap_or(0)),
        age,
    ]
}

fn event_cells(event: &Value, now: Timestamp) -> Vec<Cell> {
    let first_time = match text(event, &["firstTimestamp"]) {
        "" => text(event, &["eventTime"]),
        time => time,
    };
    let first = age_since(first_time, now);
    let last = match text(event, &["lastTimestamp"]) {
        "" => first.clone(),
        time => age_since(time, now),
    };
    let name = text(event, &["involvedObject", "name"]);
    let kind = text(event, &["involvedObject", "kind"]).to_lowercase();
    let source = [text(event, &["source", "component"]), text(event, &["source", "host"])];
    let source = source.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    vec![
        cell("Last Seen", last),
        cell("Type", text(event, &["type"])),
        cell("Reason", text(event, &["reason"])),
        cell("Object", if name.is_empty() { kind } else { format!("{kind}/{name}") }),
        wide("Subobject", text(event, &["involvedObject", "fieldPath"])),
        wide("Source", source),
        cell("Message", text(event, &["message"]).trim()),
        wide("First Seen", first),
        wide("Count", int(event, &["count"]).unwrap_or(1)),
        wide("Name", meta(event, "name")),
    ]
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

fn definitions(ty: &ResourceType, now: Timestamp) -> Value {
    cells(ty, &Value::Null, now)
        .iter()
        .map(|Cell { name, kind, wide, .. }| {
            json!({
                "name": name,
                "type": kind,
                "format": if *name == "Name" { "name" } else { "" },
                "description": "",
                "priority": u8::from(*wide),
            })
        })
        .collect()
}

fn row(stored: &StoredObject, include: Include, now: Timestamp) -> Value {
    let object = stored.value();
    let cells = cells(stored.ty, &object, now).into_iter().map(|cell| cell.value);
    let cells: Vec<_> = cells.collect();
    let object = match include {
        Include::Nothing => Value::Null,
        Include::Metadata => partial(&object),
        Include::Object => object,
    };
    json!({ "cells": cells, "object": object })
}

/// Builds a table of objects. `header` adds the column definitions, which a watch sends once.
pub(crate) fn table<'a>(
    ty: &ResourceType,
    metadata: &Value,
    objects: impl Iterator<Item = &'a StoredObject>,
    include: Include,
    header: bool,
    now: Timestamp,
) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": if header { definitions(ty, now) } else { Value::Null },
        "rows": objects.map(|stored| row(stored, include, now)).collect::<Vec<_>>(),
    })
}

/// Returns the time since a timestamp, or `<unknown>` if the timestamp is absent or invalid.
fn age_since(timestamp: &str, now: Timestamp) -> String {
    let Ok(then) = timestamp.parse::<Timestamp>() else { return "<unknown>".to_owned() };
    human_duration(now.duration_since(then).as_secs())
}

/// Prints seconds as Kubernetes' `duration.HumanDuration` does.
fn human_duration(seconds: i64) -> String {
    let with_rest = |whole: String, rest: i64, unit: char| {
        if rest == 0 { whole } else { format!("{whole}{rest}{unit}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => with_rest(format!("{minutes}m"), seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => with_rest(format!("{hours}h"), minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => with_rest(format!("{days}d"), hours % 24, 'h'),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => with_rest(format!("{}y", days / 365), days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

fn pod_cells(pod: &Value, now: Timestamp, name: Cell, age: Cell) -> Vec<Cell> {
    let statuses = list(pod, &["status", "containerStatuses"]);
    let inits = list(pod, &["spec", "initContainers"]);
    let restartable = |name: &str| {
        inits.iter().any(|init| text(init, &["name"]) == name && text(init, &["restartPolicy"]) == "Always")
    };
    let sidecars: Vec<&Value> = list(pod, &["status", "initContainerStatuses"])
        .iter()
        .filter(|status| restartable(text(status, &["name"])))
        .collect();
    let is_ready = |status: &&&Value| {
        status.get("ready") == Some(&Value::Bool(true)) && at(status, &["state", "running"]).is_some()
    };
    let all: Vec<&Value> = statuses.iter().chain(sidecars).collect();
    let ready = all.iter().filter(is_ready).count();
    let total = list(pod, &["spec", "containers"]).len()
        + inits.iter().filter(|init| text(init, &["restartPolicy"]) == "Always").count();
    let restarts: i64 = all.iter().filter_map(|status| int(status, &["restartCount"])).sum();
    let last = all
        .iter()
        .filter_map(|status| at(status, &["lastState", "terminated", "finishedAt"])?.as_str())
        .max()
        .filter(|_| restarts > 0);
    let restarts = match last {
        Some(last) => format!("{restarts} ({} ago)", age_since(last, now)),
        None => restarts.to_string(),
    };
    vec![
        name,
        cell("Ready", format!("{ready}/{total}")),
        cell("Status", pod_reason(pod, statuses)),
        cell("Restarts", restarts),
        age,
        wide("IP", or_none(text(pod, &["status", "podIP"]))),
        wide("Node", or_none(text(pod, &["spec", "nodeName"]))),
        wide("Nominated Node", or_none(text(pod, &["status", "nominatedNodeName"]))),
        wide("Readiness Gates", "<none>"),
    ]
}

/// Returns the text of the column `Status`: the phase, or a more specific reason.
fn pod_reason(pod: &Value, statuses: &[Value]) -> String {
    let phase = text(pod, &["status", "phase"]);
    if at(pod, &["metadata", "deletionTimestamp"]).is_some() && !matches!(phase, "Succeeded" | "Failed") {
        return "Terminating".to_owned();
    }
    let mut reason = match text(pod, &["status", "reason"]) {
        "" => phase,
        reason => reason,
    }
    .to_owned();
    for status in statuses.iter().rev() {
        let waiting = text(status, &["state", "waiting", "reason"]);
        if !waiting.is_empty() {
            waiting.clone_into(&mut reason);
        } else if let Some(terminated) = at(status, &["state", "terminated"]) {
            reason = match text(terminated, &["reason"]) {
                "" => format!("ExitCode:{}", int(terminated, &["exitCode"]).unwrap_or(0)),
                specific => specific.to_owned(),
            };
        }
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::human_duration;

    #[test]
    fn durations_print_as_in_kubectl() {
        let cases = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (800_000, "9d"),
            (800 * 86_400, "2y70d"),
            (-5, "<invalid>"),
        ];
        for (seconds, text) in cases {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }
}
