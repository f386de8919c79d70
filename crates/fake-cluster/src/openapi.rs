//! `/openapi/v3`: the part that `kubectl apply` and `kubectl explain` need. The documents do not describe
//! every field.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::discovery::{KUBERNETES, groups};
use super::hpa;
use super::registry::{ResourceType, TYPES};

/// Returns the index of the documents, one per group and version.
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

/// Returns the document of one group and version.
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

/// Returns the paths of a collection and of one of its objects.
fn locations(ty: &ResourceType) -> (String, String) {
    let root = if ty.group.is_empty() { "/api" } else { "/apis" };
    let scope = if ty.namespaced { "/namespaces/{namespace}" } else { "" };
    let all = format!("{root}/{}{scope}/{}", ty.api_version(), ty.resource);
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
            "metadata": section("Name, namespace, labels, annotations and the fields that the server sets.", json!({
                "name": text("Unique within its namespace."),
                "namespace": text("Namespace of the object."),
            })),
            "spec": section("Desired state.", spec_properties(ty)),
            "status": section("Most recently observed state.", json!({})),
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
            "scaleTargetRef": any("object", "Reference to the scale target."),
            "minReplicas": integer("Lower bound of the replicas; defaults to 1."),
            "maxReplicas": integer("Upper bound of the replicas."),
            "metrics": any("array", "Metrics that determine the replica count. The highest proposal wins."),
            "behavior": any("object", "Rate limits and stabilization windows for scale-up and scale-down."),
        }),
        _ if ty.scale.is_some() => json!({
            "replicas": integer("Desired number of pods."),
            "selector": any("object", "Selector of its pods."),
            "template": any("object", "Template of its pods."),
        }),
        _ => json!({}),
    }
}
