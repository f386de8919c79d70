//! `/openapi/v3`: as much as `kubectl` needs to apply and explain, not a description of every field.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::discovery::{KUBERNETES, groups};
use super::hpa;
use super::registry::{ResourceType, TYPES};

/// The index of the documents, one per group and version.
pub(crate) fn index(hidden: &BTreeSet<String>) -> Value {
    let old_hpas = (!hidden.contains(hpa::v1::GROUP_VERSION.0)).then(|| "apis/autoscaling/v1".to_owned());
    let core = std::iter::once("api/v1".to_owned()).chain(old_hpas);
    let others = groups(hidden).into_iter().map(|(group, version)| format!("apis/{group}/{version}"));
    let paths: Map<String, Value> = core
        .chain(others)
        .map(|path| {
            let url = format!("/openapi/v3/{path}");
            (path, json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

/// The document of one group and version.
pub(crate) fn document(group: &str, version: &str) -> Option<Value> {
    let mut types: Vec<ResourceType> =
        TYPES.iter().filter(|ty| ty.group == group && ty.version == version).copied().collect();
    if (group, version) == hpa::v1::GROUP_VERSION {
        let now = TYPES.iter().filter(|ty| ty.group == group);
        types.extend(now.map(|ty| ResourceType { version: hpa::v1::GROUP_VERSION.1, ..*ty }));
    }
    if types.is_empty() {
        return None;
    }
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for ty in &types {
        let (all, one) = locations(ty);
        paths.insert(all, json!({ "get": operation(ty, "list"), "post": operation(ty, "post") }));
        paths.insert(
            one,
            json!({
                "get": operation(ty, "get"),
                "put": operation(ty, "put"),
                "patch": operation(ty, "patch"),
                "delete": operation(ty, "delete"),
            }),
        );
        schemas.insert(schema_name(ty), schema(ty));
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": KUBERNETES },
        "paths": paths,
        "components": { "schemas": schemas },
    }))
}

/// The paths of a collection and of one object in it.
fn locations(ty: &ResourceType) -> (String, String) {
    let root = if ty.group.is_empty() { "/api" } else { "/apis" };
    let place = if ty.namespaced { "/namespaces/{namespace}" } else { "" };
    let all = format!("{root}/{}{place}/{}", ty.api_version(), ty.resource);
    let one = format!("{all}/{{name}}");
    (all, one)
}

fn schema_name(ty: &ResourceType) -> String {
    let group = if ty.group.is_empty() { "core" } else { ty.group };
    format!("io.k8s.api.{}.{}.{}", group.replace('.', "_"), ty.version, ty.kind)
}

fn gvk(ty: &ResourceType) -> Value {
    json!({ "group": ty.group, "version": ty.version, "kind": ty.kind })
}

fn operation(ty: &ResourceType, action: &str) -> Value {
    let parameter = |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "string" } });
    let answer = json!({
        "description": "OK",
        "content": { "application/json": {
            "schema": { "$ref": format!("#/components/schemas/{}", schema_name(ty)) },
        } },
    });
    json!({
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk(ty),
        "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
        "responses": { "200": answer },
    })
}

fn schema(ty: &ResourceType) -> Value {
    let section = |description: &str, properties: Value| {
        json!({
            "description": description,
            "type": "object",
            "properties": properties,
            "x-kubernetes-preserve-unknown-fields": true,
        })
    };
    let text = |description: &str| json!({ "description": description, "type": "string" });
    json!({
        "description": format!("{} of {}.", ty.kind, ty.api_version()),
        "type": "object",
        "x-kubernetes-group-version-kind": [gvk(ty)],
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "apiVersion": text("Group and version of this object's schema."),
            "kind": text("The kind of this object."),
            "metadata": section("Name, namespace, labels, annotations and what the server records.", json!({
                "name": text("Unique within its namespace."),
                "namespace": text("Where the object lives."),
            })),
            "spec": section("What is wanted.", spec_properties(ty)),
            "status": section("What was observed last.", json!({})),
        },
    })
}

fn spec_properties(ty: &ResourceType) -> Value {
    let integer =
        |description: &str| json!({ "description": description, "type": "integer", "format": "int32" });
    let any = |kind: &str, description: &str| {
        let mut property = json!({ "description": description, "type": kind });
        if kind == "array" {
            let item = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
            super::object::map(&mut property).insert("items".to_owned(), item);
        }
        property
    };
    match ty.kind {
        "HorizontalPodAutoscaler" => json!({
            "scaleTargetRef": any("object", "What is scaled."),
            "minReplicas": integer("Lower bound of the replicas; 1 if it is left out."),
            "maxReplicas": integer("Upper bound of the replicas."),
            "metrics": any("array", "What decides about the replicas; the highest proposal wins."),
            "behavior": any("object", "How fast it may grow and shrink, and how long it waits."),
        }),
        _ if ty.scale.is_some() => json!({
            "replicas": integer("How many pods are wanted."),
            "selector": any("object", "Which pods belong to it."),
            "template": any("object", "What its pods look like."),
        }),
        _ => json!({}),
    }
}
