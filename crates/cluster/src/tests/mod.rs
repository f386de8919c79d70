//! Tests of the clients against the embedded cluster, over HTTP and in virtual time.

mod discovery;
mod events;
mod hostile;
mod metrics;
mod requests;
mod watches;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::client::{ClientOptions, Clients};
use super::mapper::Mapping;
use clock::{SharedClock, VirtualClock};
use fake_cluster::{Cluster, LoggedRequest};

fn clock() -> SharedClock {
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    Arc::new(VirtualClock::starting_at(epoch))
}

fn cluster() -> Cluster {
    Cluster::new(clock())
}

fn clients_with(cluster: &Cluster, options: &ClientOptions) -> Clients {
    Clients::over(cluster.connector(), options).unwrap()
}

fn clients(cluster: &Cluster) -> Clients {
    clients_with(cluster, &ClientOptions::default())
}

fn deployment(name: &str, replicas: i32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
          "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app", "image": "i"}]}}}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": "i"}]}})
}

fn hpa(name: &str) -> Value {
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default", "labels": {"team": "a"}, "annotations": {"note": "x"},
          "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1"}],
          "finalizers": ["example.com/keep"]},
        "spec": {"maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}}})
}

fn deployments() -> Mapping {
    Mapping {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        kind: "Deployment".to_owned(),
        namespaced: true,
        scale_version: Some("autoscaling/v1".to_owned()),
    }
}

/// Returns the requests so far, as `verb path?query`.
fn log(cluster: &Cluster) -> Vec<String> {
    let text = |request: LoggedRequest| match request.query.as_str() {
        "" => format!("{} {}", request.verb, request.path),
        query => format!("{} {}?{query}", request.verb, request.path),
    };
    cluster.requests().entries().into_iter().map(text).collect()
}
