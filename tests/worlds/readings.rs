//! The responses of the three metrics APIs, by namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::clock;
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
                "timestamp": clock::before_now(*age), "window": "30s", "containers": containers,
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
