//! A scenario out of a cluster: an HPA, its target, and what is there now, with GETs alone.
//!
//! The load is constant: what the pods use now, and what the HPA's status says of custom and external metrics. How long pods
//! take to be ready is what their conditions tell. All of it is a beginning; `--print-scenario` gives the file to go on
//! with.

mod measure;

use std::sync::Arc;

use serde_json::{Value, json};

use self::measure::Measured;
use super::scenario::Node;
use crate::api::call::Call;
use crate::api::client::{ClientError, ClientOptions, Clients};
use crate::api::error::ApiError;
use crate::api::gate::{Gate, Refusal};
use crate::api::kubeconfig::{ClusterOptions, KubeconfigError, load_for_user};
use crate::api::mapper::{MapError, Mapper};
use crate::api::scale::Scales;

/// The largest answer: the pods of one workload.
const LIMIT: usize = 64 << 20;

/// Why there is no scenario to be had from a cluster.
#[derive(Debug, thiserror::Error)]
pub enum FromClusterError {
    /// The way to the cluster is not known.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The clients cannot be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There are no credentials.
    #[error("{0}")]
    LogIn(String),
    /// There is no runtime to be had.
    #[error("no runtime for requests: {0}")]
    Runtime(#[from] std::io::Error),
    /// Something cannot be read.
    #[error("{what} cannot be read: {source}")]
    Read {
        /// What.
        what: String,
        /// Why.
        source: ApiError,
    },
    /// The target's kind is not known.
    #[error("the target's kind cannot be looked up: {0}")]
    Kind(#[from] MapError),
    /// The HPA's target is nothing that can be scaled.
    #[error("{0} has no scale subresource")]
    NoScale(String),
}

/// Reads a scenario from the cluster that the options lead to.
pub(super) fn read(options: &ClusterOptions, name: &str) -> Result<Node, FromClusterError> {
    let cluster = load_for_user(options)?;
    let mut client_options =
        ClientOptions { gate: Gate::refusing(Refusal::DryRun), ..ClientOptions::default() };
    if let Some(timeout) = cluster.request_timeout {
        client_options.request_timeout = timeout;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let clients = Clients::new(&cluster.config, &client_options)?;
        clients.log_in().await.map_err(|error| FromClusterError::LogIn(error.to_string()))?;
        let seen = see(&clients, &cluster.namespace, name).await?;
        Ok(scenario(&seen))
    })
}

/// What was read.
#[derive(Debug, Default)]
struct Seen {
    hpa: Value,
    /// The target itself, where it is a workload of Kubernetes.
    target: Option<Value>,
    replicas: i32,
    pods: Vec<Value>,
    /// PodMetrics; empty if there are none.
    usage: Vec<Value>,
}

async fn see(clients: &Clients, namespace: &str, name: &str) -> Result<Seen, FromClusterError> {
    let hpa = ["apis", "autoscaling", "v2", "namespaces", namespace, "horizontalpodautoscalers", name];
    let hpa = Call::get(hpa).about("horizontalpodautoscalers.autoscaling", name);
    let hpa = get(clients, &hpa, format!("the HPA {namespace}/{name}")).await?;
    let text = |pointer: &str| hpa.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (text("/spec/scaleTargetRef/apiVersion"), text("/spec/scaleTargetRef/kind"));
    let target_name = text("/spec/scaleTargetRef/name");
    let what = format!("{kind} {namespace}/{target_name}");

    let group = version.split_once('/').map_or("", |(group, _)| group);
    let mapper = Mapper::new(clients.discovery.clone());
    let mappings = mapper.mappings(group, &kind).await?;
    let mapping = mappings.first().ok_or_else(|| FromClusterError::NoScale(what.clone()))?;
    let scales = Scales::new(clients.scale.clone(), String::new());
    let scale = scales
        .get(mapping, namespace, &target_name)
        .await
        .map_err(|source| FromClusterError::Read { what: format!("the scale of {what}"), source })?;

    let plain = ["Deployment", "StatefulSet", "ReplicaSet"];
    let target = match plain.iter().find(|known| **known == kind) {
        None => None,
        Some(known) => {
            let resource = format!("{}s", known.to_lowercase());
            let path = ["apis", "apps", "v1", "namespaces", namespace, &resource, &target_name];
            let call = Call::get(path).about(format!("{resource}.apps"), &target_name);
            Some(get(clients, &call, what).await?)
        }
    };
    let pods = Call::get(["api", "v1", "namespaces", namespace, "pods"])
        .query("labelSelector", &scale.selector)
        .about("pods", "");
    let pods = get(clients, &pods.at_most(LIMIT), format!("the pods of {kind} {target_name}")).await?;
    let usage = Call::get(["apis", "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods"])
        .query("labelSelector", &scale.selector)
        .about("pods.metrics.k8s.io", "");
    // Without metrics-server there is no usage; the HPA may do without.
    let usage = get(clients, &usage.at_most(LIMIT), String::new()).await.unwrap_or_default();
    Ok(Seen { hpa, target, replicas: scale.spec_replicas, pods: items(pods), usage: items(usage) })
}

async fn get(clients: &Clients, call: &Call, what: String) -> Result<Value, FromClusterError> {
    clients.core.json(call).await.map_err(|source| FromClusterError::Read { what, source })
}

fn items(list: Value) -> Vec<Value> {
    match list {
        Value::Object(mut list) => match list.remove("items") {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// The scenario file of what was read, its fields in the order in which people write them.
fn scenario(seen: &Seen) -> Node {
    let source: Arc<str> = "the scenario from the cluster".into();
    let text = |object: &Value, pointer: &str| {
        object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (namespace, name) = (text(&seen.hpa, "/metadata/namespace"), text(&seen.hpa, "/metadata/name"));
    let measured = Measured::of(seen);
    let map = |fields: Vec<(&str, Value)>| {
        let mut node = Node::of(&source, &json!({}));
        for (key, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
            node.put(key, Node::of(&source, &value));
        }
        node
    };

    let mut spec = seen.hpa.get("spec").cloned().unwrap_or_default();
    let kind = text(&spec, "/scaleTargetRef/kind");
    let target = text(&spec, "/scaleTargetRef/name");
    let is_known = ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"].contains(&&*kind);
    if !is_known && let Some(reference) = spec.get_mut("scaleTargetRef") {
        // Pods come and go the same way, whoever owns them.
        *reference = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": target});
    }
    let kind = if is_known { kind } else { "Deployment".to_owned() };
    let hpa = map(vec![("metadata", json!({"name": name, "namespace": namespace})), ("spec", spec)]);
    let workload = map(vec![
        ("name", json!(target)),
        ("namespace", json!(namespace)),
        ("kind", json!(kind)),
        ("replicas", json!(seen.replicas)),
        ("containers", measured.containers),
        ("startup", measured.startup),
        ("imagePull", measured.image_pull),
        ("cpu", measured.cpu),
        ("memory", measured.memory),
        ("rollingUpdate", measured.rolling_update),
    ]);
    let mut document = map(vec![("title", json!(format!("{namespace}/{name}"))), ("duration", json!("1h"))]);
    document.put("hpas", Node::list(&source, vec![hpa]));
    document.put("workloads", Node::list(&source, vec![workload]));
    let loads: Vec<_> = measured.loads.into_iter().map(|load| Node::of(&source, &load)).collect();
    if !loads.is_empty() {
        document.put("load", Node::list(&source, loads));
    }
    document
}

#[cfg(test)]
mod tests;
