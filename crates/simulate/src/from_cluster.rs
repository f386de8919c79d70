//! Builds a scenario from the state of an HPA and its target in a cluster, with read-only requests.
//!
//! The load is constant: the current usage of the pods, and the values of custom and external metrics in the HPA's
//! status. Startup times come from the status of the pods. The scaling policies that apply to the HPA are part of the
//! scenario. With policies, the scenario starts at the current time, because schedules depend on the time.
//! `--print-scenario` prints the scenario as a file to edit.

pub(super) mod measure;

use std::collections::BTreeMap;
use std::sync::Arc;

use clock::{Clock, SystemClock};
use jiff::Timestamp;
use rulebook::{ANNOTATION, GROUP, Kind, VERSION};
use serde_json::{Map, Value, json};

use self::measure::Measured;
use super::scenario::{CLUSTER, Node};
use cluster::call::Call;
use cluster::client::{ClientError, Clients};
use cluster::decode::DecodeError;
use cluster::error::ApiError;
use cluster::kubeconfig::{ClusterOptions, KubeconfigError, load_for_user};
use cluster::mapper::{MapError, Mapper};
use cluster::scale::Scales;
use cluster::watch::{Collection, Watched, each};
use terminal::options;
use terminal::values::{at, text};

/// The maximum size of a list of pods or PodMetrics, in bytes.
const LIMIT: usize = 64 << 20;

/// The reason why a scenario could not be built from a cluster.
#[derive(Debug, thiserror::Error)]
pub enum FromClusterError {
    /// The kubeconfig cannot be read or has no usable cluster.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The API clients cannot be built.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The credentials are unavailable.
    #[error("{0}")]
    LogIn(String),
    /// The async runtime cannot be built.
    #[error("failed to start the async runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// An object cannot be read.
    #[error("{what} cannot be read: {source}")]
    Read {
        /// The object in words, such as `the HPA shop/web`.
        what: String,
        /// The cause.
        source: ApiError,
    },
    /// The target's kind cannot be resolved to a resource.
    #[error("failed to resolve the target's kind: {0}")]
    Kind(#[from] MapError),
    /// The HPA's target has no scale subresource.
    #[error("{0} has no scale subresource")]
    NoScale(String),
}

/// Builds a scenario from the HPA `name` in the cluster that the options select.
pub(super) fn read(options: &ClusterOptions, name: &str) -> Result<Node, FromClusterError> {
    let cluster = load_for_user(options)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let clients = options::cluster::clients(&cluster, options::cluster::reads_only())?;
        clients.log_in().await.map_err(|error| FromClusterError::LogIn(error.to_string()))?;
        let objects = read_objects(&clients, &cluster.namespace, name).await?;
        for note in &objects.policies.notes {
            eprintln!("{note}");
        }
        Ok(scenario(&objects, SystemClock.now()))
    })
}

/// The objects that were read from the cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct ClusterObjects {
    pub(super) hpa: Value,
    /// The Deployment, StatefulSet or ReplicaSet that the HPA scales. `None` for any other kind of target.
    pub(super) target: Option<Value>,
    /// `spec.replicas` of the target's scale.
    pub(super) replicas: i32,
    /// The pods of the target.
    pub(super) pods: Vec<Value>,
    /// The PodMetrics. Empty if they are unavailable.
    pub(super) usage: Vec<Value>,
    pub(super) policies: Policies,
}

pub(super) async fn read_objects(
    clients: &Clients,
    namespace: &str,
    name: &str,
) -> Result<ClusterObjects, FromClusterError> {
    let hpa = ["apis", "autoscaling", "v2", "namespaces", namespace, "horizontalpodautoscalers", name];
    let hpa = Call::get(hpa).about("horizontalpodautoscalers.autoscaling", name);
    let hpa = get(clients, &hpa, format!("the HPA {namespace}/{name}")).await?;
    let reference = at(&hpa, "/spec/scaleTargetRef");
    let (version, kind) = (text(reference, "/apiVersion"), text(reference, "/kind"));
    let target_name = text(reference, "/name");
    let what = format!("{kind} {namespace}/{target_name}");

    let group = version.split_once('/').map_or("", |(group, _)| group);
    let mapper = Mapper::new(clients.discovery.clone());
    let mappings = mapper.mappings(group, kind).await?;
    let mapping = mappings.first().ok_or_else(|| FromClusterError::NoScale(what.clone()))?;
    let scales = Scales::new(clients.scale.clone());
    let scale = scales
        .get(scales.turn(namespace).await, mapping, namespace, target_name)
        .await
        .map_err(|source| FromClusterError::Read { what: format!("the scale of {what}"), source })?;

    let built_in = ["Deployment", "StatefulSet", "ReplicaSet"];
    let target = match built_in.iter().find(|named| **named == kind) {
        None => None,
        Some(named) => {
            let resource = format!("{}s", named.to_lowercase());
            let path = ["apis", "apps", "v1", "namespaces", namespace, &resource, target_name];
            let call = Call::get(path).about(format!("{resource}.apps"), target_name);
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
    // An error is ignored. The usage is unavailable without metrics-server, and the HPA may not need it.
    let usage = get(clients, &usage.at_most(LIMIT), String::new()).await.unwrap_or_default();
    let policies = Policies::read(clients, &hpa).await;
    let (pods, usage) = (items(pods), items(usage));
    Ok(ClusterObjects { hpa, target, replicas: scale.spec_replicas, pods, usage, policies })
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

/// Builds the scenario. `now` is the start of a scenario with policies.
pub(super) fn scenario(objects: &ClusterObjects, now: Timestamp) -> Node {
    let source: Arc<str> = CLUSTER.into();
    let (namespace, name) = (text(&objects.hpa, "/metadata/namespace"), text(&objects.hpa, "/metadata/name"));
    let measured = Measured::from_objects(objects);
    let map = |fields: Vec<(&str, Value)>| {
        let mut node = Node::from_json(&source, &json!({}));
        for (key, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
            node.put(key, Node::from_json(&source, &value));
        }
        node
    };

    let mut spec = objects.hpa.get("spec").cloned().unwrap_or_default();
    let kind = text(&objects.hpa, "/spec/scaleTargetRef/kind");
    let target = text(&objects.hpa, "/spec/scaleTargetRef/name");
    let is_workload = ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"].contains(&kind);
    if !is_workload && let Some(reference) = spec.get_mut("scaleTargetRef") {
        // The embedded cluster does not support the kind of the target. A Deployment replaces the target.
        *reference = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": target});
    }
    let kind = if is_workload { kind } else { "Deployment" };
    let metadata = metadata(&objects.hpa);
    let has_policy = metadata.get("annotations").is_some() || !objects.policies.manifests.is_empty();
    let hpa = map(vec![("metadata", metadata), ("spec", spec)]);
    let workload = map(vec![
        ("name", json!(target)),
        ("namespace", json!(namespace)),
        ("kind", json!(kind)),
        ("replicas", json!(objects.replicas)),
        ("containers", measured.containers),
        ("startup", measured.startup),
        ("imagePull", measured.image_pull),
        ("cpu", measured.cpu),
        ("memory", measured.memory),
        ("rollingUpdate", measured.rolling_update),
    ]);
    let mut document = map(vec![("title", json!(format!("{namespace}/{name}"))), ("duration", json!("1h"))]);
    if has_policy {
        let whole_seconds = Timestamp::from_second(now.as_second()).unwrap_or(now);
        document.put("start", Node::from_json(&source, &json!(whole_seconds.to_string())));
    }
    document.put("hpas", Node::list(&source, vec![hpa]));
    document.put("workloads", Node::list(&source, vec![workload]));
    let loads: Vec<_> = measured.loads.into_iter().map(|load| Node::from_json(&source, &load)).collect();
    if !loads.is_empty() {
        document.put("load", Node::list(&source, loads));
    }
    let manifests = objects.policies.manifests.iter().map(|policy| Node::from_json(&source, policy));
    let manifests: Vec<_> = manifests.collect();
    if !manifests.is_empty() {
        document.put("policies", Node::list(&source, manifests));
    }
    document
}

/// The scaling policies that apply to an HPA.
#[derive(Debug, Clone, Default)]
pub(super) struct Policies {
    /// The manifests. `namespaceSelector` is already applied and therefore removed, because the namespaces of a
    /// scenario have no labels.
    pub(super) manifests: Vec<Value>,
    /// Sentences about policies that could not be read. The run ignores these policies.
    pub(super) notes: Vec<String>,
}

type LabelMap = BTreeMap<String, String>;

impl Policies {
    /// Reads the policies that apply to an HPA. A cluster without the CRDs of policies has no policies.
    async fn read(clients: &Clients, hpa: &Value) -> Self {
        let mut policies = Self::default();
        let namespace = text(hpa, "/metadata/namespace");
        let labels = labels(hpa);
        // The labels of the namespace are read only if a policy selects namespaces.
        let mut namespace_labels = None;
        for kind in Kind::ALL {
            let found = match policies_of(clients, kind, namespace).await {
                Ok(found) => found,
                Err(error) if error.is_not_found() => continue,
                Err(error) => {
                    let resource = kind.resource();
                    policies.notes.push(format!("the run has no {resource}, which cannot be read: {error}"));
                    continue;
                }
            };
            for object in found {
                let Ok(policy) = kind.decode(object.to_string().as_bytes()) else { continue };
                let selects_namespaces =
                    policy.namespace_selector.as_ref().is_ok_and(|selector| !selector.is_empty());
                if kind == Kind::Cluster && selects_namespaces && namespace_labels.is_none() {
                    namespace_labels = Some(policies.namespace_labels(clients, namespace).await);
                }
                if policy.selects(&labels, namespace_labels.as_ref().unwrap_or(&LabelMap::new())) {
                    policies.manifests.push(manifest(kind, &object));
                }
            }
        }
        policies
    }

    async fn namespace_labels(&mut self, clients: &Clients, namespace: &str) -> LabelMap {
        let call = Call::get(["api", "v1", "namespaces", namespace]).about("namespaces", namespace);
        match clients.core.json::<Value>(&call).await {
            Ok(namespace) => labels(&namespace),
            Err(error) => {
                self.notes.push(format!(
                    "the run has no ClusterScalingPolicy with a namespaceSelector, because the namespace cannot be \
                     read: {error}"
                ));
                LabelMap::new()
            }
        }
    }
}

/// Returns the `metadata` of an HPA's manifest: name, namespace, labels, and the annotation with the policy.
fn metadata(hpa: &Value) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), at(hpa, "/metadata/name").clone());
    metadata.insert("namespace".to_owned(), at(hpa, "/metadata/namespace").clone());
    let labels = at(hpa, "/metadata/labels");
    if !labels.is_null() {
        metadata.insert("labels".to_owned(), labels.clone());
    }
    if let Some(policy) = at(hpa, "/metadata/annotations").get(ANNOTATION) {
        metadata.insert("annotations".to_owned(), json!({ (ANNOTATION): policy }));
    }
    Value::Object(metadata)
}

async fn policies_of(clients: &Clients, kind: Kind, namespace: &str) -> Result<Vec<Value>, ApiError> {
    let namespace = (kind == Kind::Namespaced).then_some(namespace);
    let resource = kind.resource();
    let mut objects = Vec::new();
    let collection = Collection { group: GROUP, version: VERSION, namespace, resource, fields: "" };
    each(&clients.core, collection, |object| -> Result<(), DecodeError> {
        objects.push(serde_json::from_slice(object)?);
        Ok(())
    })
    .await?;
    Ok(objects)
}

fn manifest(kind: Kind, object: &Value) -> Value {
    let mut spec = at(object, "/spec").clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("namespaceSelector");
    }
    let mut metadata = json!({"name": at(object, "/metadata/name")});
    // The time of creation is kept, because the older of two policies of the same level takes precedence.
    for field in ["namespace", "creationTimestamp"] {
        let value = at(object, &format!("/metadata/{field}"));
        if let Some(metadata) = metadata.as_object_mut().filter(|_| !value.is_null()) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind.as_str(), "metadata": metadata, "spec": spec})
}

fn labels(object: &Value) -> LabelMap {
    let labels = at(object, "/metadata/labels").as_object();
    let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    labels.into_iter().flatten().filter_map(text).collect()
}

#[cfg(test)]
mod tests;
