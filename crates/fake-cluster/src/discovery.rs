//! Discovery of groups, versions and resources, and `/openapi/v3`.
//!
//! Only the plain form of discovery is served. Clients that request the aggregated form recognize the plain form by its
//! content type, as with API servers before 1.26. The OpenAPI documents contain the part that `kubectl apply` and
//! `kubectl explain` need, and do not describe every field.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::registry::{AUTHORIZATION, METRICS_GROUPS, ResourceType, TYPES, group_version};
use super::{MetricsGroup, hpa, object};

/// The Kubernetes version of the cluster.
const KUBERNETES: &str = "v1.37.1";

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Returns the served groups with their preferred version, in Kubernetes' order of preference.
fn groups(hidden: &BTreeSet<String>) -> Vec<(&'static str, &'static str)> {
    let mut groups: Vec<(&'static str, &'static str)> = Vec::new();
    let types = TYPES.iter().map(|ty| (ty.group, ty.version)).filter(|(group, _)| !group.is_empty());
    for group in types.chain([AUTHORIZATION]).chain(METRICS_GROUPS.iter().copied()) {
        if !groups.contains(&group) && !hidden.contains(group.0) {
            groups.push(group);
        }
    }
    groups
}

/// Returns `/version`.
pub(crate) fn version() -> Value {
    json!({
        "major": "1",
        "minor": "37",
        "gitVersion": KUBERNETES,
        "gitCommit": "embedded",
        "gitTreeState": "clean",
        "buildDate": "2000-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": "embedded",
    })
}

/// Returns `/api`.
pub(crate) fn core_versions() -> Value {
    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })
}

/// Returns `/apis`.
pub(crate) fn group_list(hidden: &BTreeSet<String>, others: &BTreeMap<String, MetricsGroup>) -> Value {
    let others = others.iter().map(|(group, served)| metrics_group_json(group, served));
    let groups: Vec<Value> =
        groups(hidden).into_iter().map(|(group, version)| group_json(group, version)).chain(others).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// Returns `/apis/{group}`.
pub(crate) fn group(hidden: &BTreeSet<String>, name: &str) -> Option<Bytes> {
    static ALL: LazyLock<BTreeMap<&str, Bytes>> = LazyLock::new(|| {
        let all = groups(&BTreeSet::new()).into_iter();
        all.map(|(group, version)| (group, object::encode(&api_group(group_json(group, version))).into()))
            .collect()
    });
    if hidden.contains(name) { None } else { ALL.get(name).cloned() }
}

/// Returns `/api/v1` or `/apis/{group}/{version}`.
pub(crate) fn resources(hidden: &BTreeSet<String>, group: &str, version: &str) -> Option<Bytes> {
    static ALL: LazyLock<BTreeMap<(&str, &str), Bytes>> = LazyLock::new(|| {
        let all = groups(&BTreeSet::new()).into_iter().chain([("", "v1"), hpa::v1::V1]);
        all.map(|(group, version)| ((group, version), object::encode(&resource_list(group, version)).into()))
            .collect()
    });
    if hidden.contains(group) { None } else { ALL.get(&(group, version)).cloned() }
}

/// Returns `/apis/{group}` or `/apis/{group}/{version}` of a further metrics group.
pub(crate) fn metrics_group(group: &str, version: Option<&str>, served: &MetricsGroup) -> Option<Value> {
    let Some(version) = version else {
        return Some(api_group(metrics_group_json(group, served)));
    };
    served.versions.contains(&version).then(|| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version(group, version),
            "resources": [{
                "name": "*", "singularName": "", "namespaced": true, "kind": "MetricValueList", "verbs": ["get"],
            }],
        })
    })
}

/// Converts an item of an `APIGroupList` to an `APIGroup`.
fn api_group(mut item: Value) -> Value {
    let fields = object::map(&mut item);
    fields.insert("kind".to_owned(), "APIGroup".into());
    fields.insert("apiVersion".to_owned(), "v1".into());
    item
}

fn metrics_group_json(group: &str, served: &MetricsGroup) -> Value {
    let one = |version: &&str| json!({ "groupVersion": group_version(group, version), "version": version });
    let versions: Vec<Value> = served.versions.iter().map(one).collect();
    json!({ "name": group, "versions": versions, "preferredVersion": versions.first() })
}

fn resource_list(group: &str, version: &str) -> Value {
    let mut resources: Vec<Value> = Vec::new();
    for ty in TYPES.iter().filter(|ty| ty.group == group && ty.version == version) {
        entries(ty, &mut resources);
    }
    if (group, version) == hpa::v1::V1 {
        resources.push(json!({
            "name": "horizontalpodautoscalers",
            "singularName": "horizontalpodautoscaler",
            "shortNames": ["hpa"],
            "namespaced": true,
            "kind": "HorizontalPodAutoscaler",
            "verbs": ["create", "delete", "get", "list", "patch", "update"],
        }));
    }
    if (group, version) == AUTHORIZATION {
        resources.push(json!({
            "name": "selfsubjectaccessreviews",
            "singularName": "selfsubjectaccessreview",
            "namespaced": false,
            "kind": "SelfSubjectAccessReview",
            "verbs": ["create"],
        }));
    }
    // Metrics adapters list their metrics here. The cluster lists one placeholder, because kubectl reports an error for
    // a group with an empty list.
    let metrics = match group {
        "metrics.k8s.io" => Some(("pods", "PodMetrics", &["get", "list"][..])),
        "custom.metrics.k8s.io" => Some(("pods/*", "MetricValueList", &["get"][..])),
        "external.metrics.k8s.io" => Some(("*", "ExternalMetricValueList", &["get"][..])),
        _ => None,
    };
    if let Some((name, kind, verbs)) = metrics {
        resources.push(json!({
            "name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs,
        }));
    }
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version(group, version),
        "resources": resources,
    })
}

fn group_json(group: &str, version: &str) -> Value {
    let one = |version: &str| json!({ "groupVersion": group_version(group, version), "version": version });
    let mut versions = vec![one(version)];
    if group == hpa::v1::V1.0 {
        versions.push(one(hpa::v1::V1.1));
    }
    json!({ "name": group, "versions": versions, "preferredVersion": one(version) })
}

fn entries(ty: &ResourceType, resources: &mut Vec<Value>) {
    let mut entry = json!({
        "name": ty.resource,
        "singularName": ty.kind.to_lowercase(),
        "namespaced": ty.namespaced,
        "kind": ty.kind,
        "verbs": VERBS,
    });
    let fields = object::map(&mut entry);
    if !ty.short_names.is_empty() {
        fields.insert("shortNames".to_owned(), ty.short_names.into());
    }
    if !ty.categories.is_empty() {
        fields.insert("categories".to_owned(), ty.categories.into());
    }
    resources.push(entry);
    if ty.scale.is_some() {
        let (group, version) = ty.scale_version.split_once('/').unwrap_or(("", ty.scale_version));
        resources.push(json!({
            "name": format!("{}/scale", ty.resource),
            "singularName": "",
            "namespaced": ty.namespaced,
            "group": group,
            "version": version,
            "kind": "Scale",
            "verbs": ["get", "patch", "update"],
        }));
    }
    if ty.status.is_some() {
        resources.push(json!({
            "name": format!("{}/status", ty.resource),
            "singularName": "",
            "namespaced": ty.namespaced,
            "kind": ty.kind,
            "verbs": ["get", "patch", "update"],
        }));
    }
}

/// Returns `/openapi/v3`: the paths of the documents, one for each group and version.
pub(crate) fn openapi_index(hidden: &BTreeSet<String>) -> Value {
    let old_hpas = (!hidden.contains(hpa::v1::V1.0)).then(|| "apis/autoscaling/v1".to_owned());
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

/// Returns the OpenAPI document of one group and version.
pub(crate) fn openapi_document(group: &str, version: &str) -> Option<Value> {
    let mut types: Vec<ResourceType> =
        TYPES.iter().filter(|ty| ty.group == group && ty.version == version).copied().collect();
    if (group, version) == hpa::v1::V1 {
        let now = TYPES.iter().filter(|ty| ty.group == group);
        types.extend(now.map(|ty| ResourceType { version: hpa::v1::V1.1, ..*ty }));
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
            object::map(&mut property).insert("items".to_owned(), item);
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
