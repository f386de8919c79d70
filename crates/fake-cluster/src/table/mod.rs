//! The tables that `kubectl get` prints, with the columns of Kubernetes (`pkg/printers/internalversion`).

mod age;
mod hpa;
mod pods;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::format::partial;
use super::object::{at, int, list, meta, text};
use super::registry::ResourceType;
use super::scale::{labels_text, selector_text};
use super::store::StoredObject;

/// The part of the object that each row contains in addition to its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    /// The object's metadata.
    Metadata,
    /// The whole object.
    Object,
    /// Nothing.
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

/// Returns the cells of one object. An absent object also has all columns.
fn cells(ty: &ResourceType, object: &Value, now: Timestamp) -> Vec<Cell> {
    let name = cell("Name", meta(object, "name"));
    let age = cell("Age", age::since(meta(object, "creationTimestamp"), now));
    let count = |path: &[&str]| int(object, path).unwrap_or(0);
    let ready = || format!("{}/{}", count(&["status", "readyReplicas"]), count(&["spec", "replicas"]));
    let containers = |key: &str| {
        let containers = list(object, &["spec", "template", "spec", "containers"]);
        containers.iter().map(|container| text(container, &[key])).collect::<Vec<_>>().join(",")
    };
    let selector = || at(object, &["spec", "selector"]).map(selector_text).unwrap_or_default();
    let labels = || at(object, &["spec", "selector"]).map_or_else(|| "<none>".to_owned(), labels_text);
    match ty.kind {
        "HorizontalPodAutoscaler" => hpa::cells(object, name, age),
        "Pod" => pods::cells(object, now, name, age),
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

fn event_cells(event: &Value, now: Timestamp) -> Vec<Cell> {
    let first_time = match text(event, &["firstTimestamp"]) {
        "" => text(event, &["eventTime"]),
        time => time,
    };
    let first = age::since(first_time, now);
    let last = match text(event, &["lastTimestamp"]) {
        "" => first.clone(),
        time => age::since(time, now),
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
