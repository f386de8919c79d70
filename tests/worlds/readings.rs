//! The APIs that worlds serve in addition to the API server: the responses of the three metrics APIs, by
//! namespace, and an aggregated API with targets whose Scales have the kinds of earlier versions of
//! Kubernetes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::metrics::{self, CUSTOM, EXTERNAL, RESOURCE};
use crate::plan::{PodUsage, Readings};

#[derive(Clone, Default)]
pub(crate) struct Backend(Arc<Mutex<BTreeMap<String, Readings>>>);

impl Backend {
    pub(crate) fn set(&self, namespace: &str, readings: Readings) {
        self.0.lock().insert(namespace.to_owned(), readings);
    }

    /// Answers a GET of one of the three APIs.
    pub(crate) fn answer(&self, path: &str, query: &str) -> (u16, &'static str, String) {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let found = match parts.as_slice() {
            ["apis", group, version] => metrics::discovery(group, version),
            ["apis", group, _, "namespaces", namespace, rest @ ..] => {
                let all = self.0.lock();
                let readings = all.get(*namespace);
                if let Some(answer) = readings.and_then(|readings| readings.failures.get(group)) {
                    return (answer.code, answer.media, answer.body.clone());
                }
                readings.and_then(|readings| match (*group, rest) {
                    (RESOURCE, ["pods"]) => Some(usage(namespace, readings, &app(query)?)),
                    (CUSTOM, ["pods", "*", metric]) => pods(namespace, readings, metric, &app(query)?),
                    (CUSTOM, [resource, name, metric]) => object(namespace, readings, resource, name, metric),
                    (EXTERNAL, [metric]) => Some(external(readings, metric)),
                    _ => None,
                })
            }
            _ => None,
        };
        match found {
            Some(body) => (200, "application/json", body.to_string()),
            None => (404, "application/json", metrics::not_found(path).to_string()),
        }
    }
}

/// The application that a label selector selects.
fn app(query: &str) -> Option<String> {
    metrics::selector(query).remove("app")
}

fn usage(namespace: &str, readings: &Readings, app: &str) -> Value {
    let items: Vec<_> = readings
        .usage
        .iter()
        .filter(|usage| usage.app == app)
        .map(|PodUsage { pod, age, containers, .. }| {
            let containers: Vec<_> = containers
                .iter()
                .map(|(name, usage)| {
                    let usage: BTreeMap<_, _> = usage.iter().cloned().collect();
                    json!({"name": name, "usage": usage})
                })
                .collect();
            json!({
                "metadata": {"name": pod, "namespace": namespace, "labels": {"app": app}},
                "timestamp": metrics::before_now(*age), "window": "30s", "containers": containers,
            })
        })
        .collect();
    json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items})
}

fn pods(namespace: &str, readings: &Readings, metric: &str, app: &str) -> Option<Value> {
    let values = readings.pods.get(metric)?.iter().filter(|(_, of, _)| of == app);
    let items: Vec<_> = values
        .map(|(pod, _, value)| {
            let pod = json!({"kind": "Pod", "namespace": namespace, "name": pod, "apiVersion": "/v1"});
            metrics::metric_value(&pod, metric, value)
        })
        .collect();
    Some(metrics::metric_values(&items))
}

fn object(namespace: &str, readings: &Readings, resource: &str, name: &str, metric: &str) -> Option<Value> {
    let value = readings.objects.get(&format!("{resource}/{name}/{metric}"))?;
    let object = json!({"kind": resource, "namespace": namespace, "name": name});
    Some(metrics::metric_values(&[metrics::metric_value(&object, metric, value)]))
}

fn external(readings: &Readings, metric: &str) -> Value {
    metrics::external_values(metric, readings.external.get(metric).into_iter().flatten())
}

pub(crate) const GROUP: &str = "legacy.example.com";
pub(crate) const VERSION: &str = "v1";

/// Kind and resource of the target, version of its Scale in discovery and in responses.
pub(crate) const THINGS: [(&str, &str, &str, &str); 6] = [
    ("Autothing", "autothings", "autoscaling/v1", "autoscaling/v1"),
    ("Betathing", "betathings", "apps/v1beta1", "apps/v1beta1"),
    ("Extthing", "extthings", "extensions/v1beta1", "extensions/v1beta1"),
    ("Gammathing", "gammathings", "apps/v1beta2", "apps/v1beta2"),
    ("Mixedthing", "mixedthings", "apps/v1beta2", "extensions/v1beta1"),
    ("Oddthing", "oddthings", "scaling.example.com/v1", "scaling.example.com/v1"),
];

/// The Scales by path: the current count and the writes.
#[derive(Clone, Default)]
pub(crate) struct Things(Arc<Mutex<Scales>>);

type Scales = BTreeMap<String, (i64, Vec<String>)>;

impl Things {
    /// The kinds, counts and selectors that were written to a Scale.
    pub(crate) fn writes(&self, path: &str) -> Vec<String> {
        self.0.lock().get(path).map(|(_, writes)| writes.clone()).unwrap_or_default()
    }

    pub(crate) fn answer(&self, method: &str, path: &str, body: &[u8]) -> Option<(u16, Value)> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let ["apis", GROUP, VERSION, rest @ ..] = parts.as_slice() else { return None };
        let ["namespaces", namespace, resource, name, "scale"] = rest else {
            return rest.is_empty().then(|| (200, discovery()));
        };
        let (.., version) = THINGS.iter().find(|thing| thing.1 == *resource)?;
        let mut all = self.0.lock();
        let (replicas, writes) = all.entry(path.to_owned()).or_insert((3, Vec::new()));
        if method == "PUT" {
            let sent: Value = serde_json::from_slice(body).unwrap_or_default();
            *replicas = sent["spec"]["replicas"].as_i64().unwrap_or_default();
            let kind = format!("{} {}", sent["apiVersion"], sent["kind"]);
            writes.push(format!("{kind}: {} {}", sent["spec"], sent["status"]));
        }
        let selector = if version.starts_with("autoscaling") || version.starts_with("scaling") {
            json!({"replicas": 3, "selector": "app=web"})
        } else {
            json!({"replicas": 3, "selector": {"app": "web"}, "targetSelector": "app=web"})
        };
        let scale = json!({
            "kind": "Scale", "apiVersion": version,
            "metadata": {"name": name, "namespace": namespace, "resourceVersion": (writes.len() + 1).to_string(),
                "creationTimestamp": "2024-01-01T00:00:00Z", "uid": "6b4a5d3e-0000-4000-8000-000000000002"},
            "spec": {"replicas": replicas}, "status": selector,
        });
        Some((200, scale))
    }
}

fn discovery() -> Value {
    let resources = THINGS.iter().flat_map(|(kind, resource, scale, _)| {
        let (group, version) = scale.split_once('/').unwrap_or(("", scale));
        [
            json!({"name": resource, "singularName": "", "namespaced": true, "kind": kind,
                "verbs": ["get", "list"]}),
            json!({"name": format!("{resource}/scale"), "singularName": "", "namespaced": true,
                "kind": "Scale", "group": group, "version": version, "verbs": ["get", "update"]}),
        ]
    });
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": resources.collect::<Vec<_>>(),
    })
}
