//! Discovery of groups, versions and resources.
//!
//! Only the plain form is served. Clients that request aggregated discovery recognize the plain form by its
//! content type and fall back to it, as with API servers before 1.26.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::{Value, json};

use super::registry::{AUTHORIZATION, METRICS_GROUPS, ResourceType, TYPES, group_version};
use super::{MetricsGroup, hpa, object};

/// The cluster's Kubernetes version.
pub(crate) const KUBERNETES: &str = "v1.37.1";

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Returns the served groups with their preferred version, in Kubernetes' order of preference.
pub(crate) fn groups(hidden: &BTreeSet<String>) -> Vec<(&'static str, &'static str)> {
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
        let all = groups(&BTreeSet::new()).into_iter().map(|(group, version)| {
            let mut object = group_json(group, version);
            let fields = object::map(&mut object);
            fields.insert("kind".to_owned(), "APIGroup".into());
            fields.insert("apiVersion".to_owned(), "v1".into());
            (group, object::encode(&object).into())
        });
        all.collect()
    });
    if hidden.contains(name) { None } else { ALL.get(name).cloned() }
}

/// Returns `/api/v1` or `/apis/{group}/{version}`.
pub(crate) fn resources(hidden: &BTreeSet<String>, group: &str, version: &str) -> Option<Bytes> {
    static ALL: LazyLock<BTreeMap<(&str, &str), Bytes>> = LazyLock::new(|| {
        let all = groups(&BTreeSet::new()).into_iter().chain([("", "v1"), hpa::v1::GROUP_VERSION]);
        all.map(|(group, version)| ((group, version), object::encode(&resource_list(group, version)).into()))
            .collect()
    });
    if hidden.contains(group) { None } else { ALL.get(&(group, version)).cloned() }
}

/// Returns `/apis/{group}` or `/apis/{group}/{version}` of a further metrics group.
pub(crate) fn metrics_group(group: &str, version: Option<&str>, served: &MetricsGroup) -> Option<Value> {
    let Some(version) = version else {
        let mut object = metrics_group_json(group, served);
        let fields = object::map(&mut object);
        fields.insert("kind".to_owned(), "APIGroup".into());
        fields.insert("apiVersion".to_owned(), "v1".into());
        return Some(object);
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
    if (group, version) == hpa::v1::GROUP_VERSION {
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
    // Metrics adapters list their metrics. Only the backend has that list, so a star means all metrics.
    // An empty list makes kubectl report an error for the group.
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
    if group == hpa::v1::GROUP_VERSION.0 {
        versions.push(one(hpa::v1::GROUP_VERSION.1));
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
