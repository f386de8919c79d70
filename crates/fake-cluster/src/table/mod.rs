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

/// A column: name, type, and whether only `-o wide` shows it.
type Column = (&'static str, &'static str, bool);

const NAME: Column = ("Name", "string", false);
const AGE: Column = ("Age", "string", false);
const CONTAINERS: Column = ("Containers", "string", true);
const IMAGES: Column = ("Images", "string", true);
const SELECTOR: Column = ("Selector", "string", true);

fn columns(ty: &ResourceType) -> &'static [Column] {
    match ty.kind {
        "HorizontalPodAutoscaler" => hpa::COLUMNS,
        "Pod" => pods::COLUMNS,
        "Deployment" => &[
            NAME,
            ("Ready", "string", false),
            ("Up-to-date", "string", false),
            ("Available", "string", false),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        "StatefulSet" => &[NAME, ("Ready", "string", false), AGE, CONTAINERS, IMAGES],
        "ReplicaSet" | "ReplicationController" => &[
            NAME,
            ("Desired", "integer", false),
            ("Current", "integer", false),
            ("Ready", "integer", false),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        "Event" => &[
            ("Last Seen", "string", false),
            ("Type", "string", false),
            ("Reason", "string", false),
            ("Object", "string", false),
            ("Subobject", "string", true),
            ("Source", "string", true),
            ("Message", "string", false),
            ("First Seen", "string", true),
            ("Count", "string", true),
            ("Name", "string", true),
        ],
        "Namespace" => &[NAME, ("Status", "string", false), AGE],
        "Lease" => &[NAME, ("Holder", "string", false), AGE],
        "ConfigMap" => &[NAME, ("Data", "string", false), AGE],
        "Service" => &[
            NAME,
            ("Type", "string", false),
            ("Cluster-IP", "string", false),
            ("External-IP", "string", false),
            ("Port(s)", "string", false),
            AGE,
            SELECTOR,
        ],
        _ => &[NAME, AGE],
    }
}

fn cells(ty: &ResourceType, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = meta(object, "name").into();
    let age: Value = age::since(meta(object, "creationTimestamp"), now).into();
    let count = |path: &[&str]| int(object, path).unwrap_or(0);
    let ready =
        || Value::from(format!("{}/{}", count(&["status", "readyReplicas"]), count(&["spec", "replicas"])));
    let containers = |key: &str| -> Value {
        let containers = list(object, &["spec", "template", "spec", "containers"]);
        containers.iter().map(|container| text(container, &[key])).collect::<Vec<_>>().join(",").into()
    };
    let selector = || at(object, &["spec", "selector"]).map(selector_text).unwrap_or_default().into();
    let labels = || at(object, &["spec", "selector"]).map_or_else(|| "<none>".to_owned(), labels_text).into();
    match ty.kind {
        "HorizontalPodAutoscaler" => hpa::cells(object, age),
        "Pod" => pods::cells(object, now, age),
        "Deployment" => vec![
            name,
            ready(),
            count(&["status", "updatedReplicas"]).into(),
            count(&["status", "availableReplicas"]).into(),
            age,
            containers("name"),
            containers("image"),
            selector(),
        ],
        "StatefulSet" => vec![name, ready(), age, containers("name"), containers("image")],
        "ReplicaSet" | "ReplicationController" => vec![
            name,
            count(&["spec", "replicas"]).into(),
            count(&["status", "replicas"]).into(),
            count(&["status", "readyReplicas"]).into(),
            age,
            containers("name"),
            containers("image"),
            if ty.kind == "ReplicaSet" { selector() } else { labels() },
        ],
        "Event" => event_cells(object, now),
        "Namespace" => vec![name, text(object, &["status", "phase"]).into(), age],
        "Lease" => vec![name, text(object, &["spec", "holderIdentity"]).into(), age],
        "ConfigMap" => {
            let entries = |key| at(object, &[key]).and_then(Value::as_object).map_or(0, serde_json::Map::len);
            vec![name, (entries("data") + entries("binaryData")).into(), age]
        }
        "Service" => {
            let ports = list(object, &["spec", "ports"]).iter().map(|port| {
                let number = int(port, &["port"]).unwrap_or(0);
                format!("{number}/{}", text(port, &["protocol"]))
            });
            let ports = ports.collect::<Vec<_>>().join(",");
            vec![
                name,
                text(object, &["spec", "type"]).into(),
                or_none(text(object, &["spec", "clusterIP"])).into(),
                "<none>".into(),
                or_none(&ports).into(),
                age,
                labels(),
            ]
        }
        _ => vec![name, age],
    }
}

fn event_cells(event: &Value, now: Timestamp) -> Vec<Value> {
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
        last.into(),
        text(event, &["type"]).into(),
        text(event, &["reason"]).into(),
        if name.is_empty() { kind } else { format!("{kind}/{name}") }.into(),
        text(event, &["involvedObject", "fieldPath"]).into(),
        source.into(),
        text(event, &["message"]).trim().into(),
        first.into(),
        int(event, &["count"]).unwrap_or(1).into(),
        meta(event, "name").into(),
    ]
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

fn definitions(ty: &ResourceType) -> Value {
    columns(ty)
        .iter()
        .map(|(name, kind, wide)| {
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
    let cells = cells(stored.ty, &object, now);
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
        "columnDefinitions": if header { definitions(ty) } else { Value::Null },
        "rows": objects.map(|stored| row(stored, include, now)).collect::<Vec<_>>(),
    })
}
