//! The node of the tests: a kubelet for all pods, and the responses of the three metrics APIs for the pods that the
//! kubelet runs. A test sets values and faults per namespace, so that parallel scenarios do not affect each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::outcome::Outcome;
use crate::rest::Rest;

pub(crate) const RESOURCE: &str = "metrics.k8s.io";
pub(crate) const CUSTOM: &str = "custom.metrics.k8s.io";
pub(crate) const EXTERNAL: &str = "external.metrics.k8s.io";

/// The APIs with their version, and with the resource and kind of their discovery documents.
pub(crate) const APIS: [(&str, &str, &str, &str); 3] = [
    (RESOURCE, "v1beta1", "pods", "PodMetrics"),
    (CUSTOM, "v1beta2", "pods/requests", "MetricValueList"),
    (EXTERNAL, "v1beta1", "queue", "ExternalMetricValueList"),
];

/// A load on all running pods of an application.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// A total that is split evenly among the pods, as by a load balancer. The text is the unit of the quantity.
    Total(i64, &'static str),
    /// The load of each pod, regardless of the number of pods.
    Each(i64, &'static str),
}

/// A faulty response that replaces the correct response.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) code: u16,
    pub(crate) media: &'static str,
    pub(crate) body: &'static str,
}

impl Fault {
    /// The response of a proxy without a backend.
    pub(crate) const UNAVAILABLE: Self =
        Self { code: 503, media: "text/plain", body: "no healthy upstream\n" };
    pub(crate) const TRUNCATED: Self = Self {
        code: 200,
        media: "application/json",
        body: r#"{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","items":[{"meta"#,
    };
    /// A Status of the API server with its own reason and message.
    pub(crate) const BROKEN: Self = Self {
        code: 500,
        media: "application/json",
        body: r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the store is on fire","reason":"InternalError","code":500}"#,
    };
}

#[derive(Default)]
struct State {
    /// Resource usage by namespace, application, container and resource.
    usage: BTreeMap<[String; 4], Load>,
    /// Metrics of pods by namespace, application and metric.
    per_pod: BTreeMap<[String; 3], Load>,
    /// Metrics of objects by namespace, resource, object and metric.
    objects: BTreeMap<[String; 4], String>,
    /// External metrics by namespace and metric.
    external: BTreeMap<[String; 2], Vec<String>>,
    /// Faults by namespace and API.
    faults: BTreeMap<[String; 2], Fault>,
}

#[derive(Clone)]
pub(crate) struct Metrics {
    state: Arc<Mutex<State>>,
    pods: ListedPods,
}

impl Metrics {
    pub(crate) fn new(pods: ListedPods) -> Self {
        Self { state: Arc::default(), pods }
    }

    pub(crate) fn usage(&self, namespace: &str, app: &str, container: &str, resource: &str, load: Load) {
        self.state.lock().usage.insert([namespace, app, container, resource].map(str::to_owned), load);
    }

    pub(crate) fn per_pod(&self, namespace: &str, app: &str, metric: &str, load: Load) {
        self.state.lock().per_pod.insert([namespace, app, metric].map(str::to_owned), load);
    }

    pub(crate) fn object(&self, namespace: &str, resource: &str, name: &str, metric: &str, value: &str) {
        let key = [namespace, resource, name, metric].map(str::to_owned);
        self.state.lock().objects.insert(key, value.to_owned());
    }

    /// Sets one value per series.
    pub(crate) fn external(&self, namespace: &str, metric: &str, values: &[&str]) {
        let values = values.iter().map(|&value| value.to_owned()).collect();
        self.state.lock().external.insert([namespace, metric].map(str::to_owned), values);
    }

    pub(crate) fn fault(&self, namespace: &str, api: &str, fault: Option<Fault>) {
        let key = [namespace, api].map(str::to_owned);
        match fault {
            Some(fault) => self.state.lock().faults.insert(key, fault),
            None => self.state.lock().faults.remove(&key),
        };
    }

    /// Answers a GET of one of the three APIs.
    pub(crate) fn answer(&self, path: &str, query: &str) -> (u16, &'static str, String) {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let found = match parts.as_slice() {
            ["apis", group, version] => discovery(group, version),
            ["apis", group, _, "namespaces", namespace, rest @ ..] => {
                let key = [*namespace, *group].map(str::to_owned);
                if let Some(fault) = self.state.lock().faults.get(&key) {
                    return (fault.code, fault.media, fault.body.to_owned());
                }
                match (*group, rest) {
                    (RESOURCE, ["pods"]) => Some(self.resource_metrics(namespace, &selector(query))),
                    (CUSTOM, ["pods", "*", metric]) => {
                        Some(self.pod_metrics(namespace, metric, &selector(query)))
                    }
                    (CUSTOM, [resource, name, metric]) => {
                        self.object_metric(namespace, resource, name, metric)
                    }
                    (EXTERNAL, [metric]) => Some(self.external_metric(namespace, metric)),
                    _ => None,
                }
            }
            _ => None,
        };
        match found {
            Some(body) => (200, "application/json", body.to_string()),
            None => (404, "application/json", not_found(path).to_string()),
        }
    }

    fn selected(&self, namespace: &str, selector: &BTreeMap<String, String>) -> Vec<ListedPod> {
        let pods = self.pods.lock();
        let is_selected =
            |pod: &ListedPod| selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value));
        let in_namespace = pods.iter().filter(|pod| pod.running && pod.namespace == namespace);
        in_namespace.filter(|pod| is_selected(pod)).cloned().collect()
    }

    fn resource_metrics(&self, namespace: &str, selector: &BTreeMap<String, String>) -> Value {
        let pods = self.selected(namespace, selector);
        let state = self.state.lock();
        let mut items = Vec::new();
        for pod in &pods {
            // A list of the namespace also contains the pods of other applications.
            let app = pod.labels.get("app");
            let pods_of_app = pods.iter().filter(|other| other.labels.get("app") == app).count();
            let containers: Vec<_> = pod
                .containers
                .iter()
                .filter_map(|container| {
                    let usage: serde_json::Map<_, _> = state
                        .usage
                        .iter()
                        .filter(|([ns, app, name, _], _)| {
                            ns == namespace && name == container && pod.labels.get("app") == Some(app)
                        })
                        .map(|([.., resource], load)| (resource.clone(), share(*load, pods_of_app).into()))
                        .collect();
                    (!usage.is_empty()).then(|| json!({"name": container, "usage": usage}))
                })
                .collect();
            if containers.len() == pod.containers.len() {
                items.push(json!({
                    "metadata": {"name": pod.name, "namespace": namespace, "labels": pod.labels},
                    "timestamp": now(),
                    "window": "1s",
                    "containers": containers,
                }));
            }
        }
        json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items})
    }

    fn pod_metrics(&self, namespace: &str, metric: &str, selector: &BTreeMap<String, String>) -> Value {
        let pods = self.selected(namespace, selector);
        let state = self.state.lock();
        let values = pods.iter().filter_map(|pod| {
            let app = pod.labels.get("app")?;
            let load = state.per_pod.get(&[namespace, app, metric].map(str::to_owned))?;
            let value = share(*load, pods.len());
            Some(metric_value(
                &json!({"kind": "Pod", "namespace": namespace, "name": pod.name, "apiVersion": "/v1"}),
                metric,
                &value,
            ))
        });
        metric_values(&values.collect::<Vec<_>>())
    }

    fn object_metric(&self, namespace: &str, resource: &str, name: &str, metric: &str) -> Option<Value> {
        let key = [namespace, resource, name, metric].map(str::to_owned);
        let value = self.state.lock().objects.get(&key)?.clone();
        let object = json!({"kind": resource, "namespace": namespace, "name": name});
        Some(metric_values(&[metric_value(&object, metric, &value)]))
    }

    fn external_metric(&self, namespace: &str, metric: &str) -> Value {
        let state = self.state.lock();
        let values = state.external.get(&[namespace, metric].map(str::to_owned));
        external_values(metric, values.into_iter().flatten())
    }
}

/// The load of one of `pods` pods, as a quantity.
fn share(load: Load, pods: usize) -> String {
    match load {
        Load::Each(amount, unit) => format!("{amount}{unit}"),
        Load::Total(amount, unit) => format!("{}{unit}", amount / i64::try_from(pods.max(1)).unwrap_or(1)),
    }
}

pub(crate) fn metric_value(object: &Value, metric: &str, value: &str) -> Value {
    json!({"describedObject": object, "metric": {"name": metric}, "timestamp": now(), "value": value})
}

pub(crate) fn metric_values(items: &[Value]) -> Value {
    json!({
        "kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": {}, "items": items,
    })
}

pub(crate) fn external_values<'a>(metric: &str, values: impl Iterator<Item = &'a String>) -> Value {
    let items: Vec<_> = values
        .map(|value| json!({"metricName": metric, "metricLabels": {}, "timestamp": now(), "value": value}))
        .collect();
    json!({
        "kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {}, "items": items,
    })
}

pub(crate) fn discovery(group: &str, version: &str) -> Option<Value> {
    let (.., name, kind) = APIS.iter().find(|api| (api.0, api.1) == (group, version))?;
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{group}/{version}"),
        "resources": [{"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": ["get", "list"]}],
    }))
}

pub(crate) fn not_found(path: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
        "reason": "NotFound", "message": format!("no such metric: {path}"),
    })
}

/// Parses `labelSelector`. Scenarios use only equality terms.
pub(crate) fn selector(query: &str) -> BTreeMap<String, String> {
    let parameter = query.split('&').find_map(|pair| pair.strip_prefix("labelSelector=")).unwrap_or_default();
    let text = percent_encoding::percent_decode_str(parameter).decode_utf8_lossy();
    text.split(',')
        .filter_map(|term| term.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.trim_start_matches('=').to_owned()))
        .collect()
}

/// The current time in the format of the Kubernetes API.
pub(crate) fn now() -> String {
    before_now(0)
}

/// The time `seconds` before now, in the same format.
pub(crate) fn before_now(seconds: i64) -> String {
    #[allow(clippy::disallowed_methods, reason = "a real control plane runs in real time")]
    let now = Timestamp::now();
    format!("{:.0}", now - SignedDuration::from_secs(seconds))
}

/// The node in all pod templates. Pods on a node wait for the kubelet when they are deleted, as in a cluster.
pub(crate) const NODE: &str = "test-node";
/// The annotation with the address of a pod. Other pods get an address from 10.1.0.0/16.
pub(crate) const ADDRESS: &str = "example.com/address";
/// The annotation of a pod with the address of its node. Other pods report no such address.
pub(crate) const NODE_ADDRESS: &str = "example.com/node-address";

#[derive(Clone, Debug)]
pub(crate) struct ListedPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) containers: Vec<String>,
    pub(crate) running: bool,
}

/// The pods of the kubelet. The metrics APIs report only these pods.
pub(crate) type ListedPods = Arc<Mutex<Vec<ListedPod>>>;

/// Acts as the kubelet of every node: pods that are bound to [`NODE`] run and become ready, and pods with a deletion
/// timestamp are deleted.
pub(crate) struct Kubelet {
    pub(crate) pods: ListedPods,
    task: JoinHandle<()>,
}

impl Kubelet {
    pub(crate) fn start(api: Rest) -> Self {
        let pods = ListedPods::default();
        let listed = pods.clone();
        let task = tokio::spawn(async move {
            loop {
                // After a failed round, the next round retries. If the control plane has stopped, the scenarios fail.
                if let Ok(now) = update_pods(&api).await {
                    *listed.lock() = now;
                }
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        });
        Self { pods, task }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Lists all pods once and updates them.
async fn update_pods(api: &Rest) -> Outcome<Vec<ListedPod>> {
    let mut listed = Vec::new();
    // With this resourceVersion, the API server lists its cache, which is cheap. The list may be slightly stale.
    for (index, pod) in api.list("/api/v1/pods?resourceVersion=0").await?.iter().enumerate() {
        let text = |pointer| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        if pod.pointer("/metadata/deletionTimestamp").is_some() {
            api.delete_now(&path).await?;
            continue;
        }
        let mut running = text("/status/phase") == "Running";
        if text("/status/phase") == "Pending" && text("/spec/nodeName") == NODE {
            // The patch fails for a pod that was deleted after the list. The next round handles that pod.
            running = api.merge(&format!("{path}/status"), &running_status(pod, index)).await.is_ok();
        }
        listed.push(ListedPod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            containers: container_names(pod),
            labels: string_map(&pod["metadata"]["labels"]),
            running,
        });
    }
    Ok(listed)
}

fn running_status(pod: &Value, index: usize) -> Value {
    let now = now();
    let conditions = ["Initialized", "PodScheduled", "ContainersReady", "Ready"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now}));
    let annotations = &pod["metadata"]["annotations"];
    let address = annotations[ADDRESS].as_str().map(str::to_owned);
    let address = address.unwrap_or_else(|| format!("10.1.{}.{}", index / 250, index % 250 + 1));
    let containers: Vec<_> = container_names(pod)
        .into_iter()
        .map(|name| {
            json!({
                "name": name, "ready": true, "started": true, "restartCount": 0,
                "image": "example.com/app", "imageID": "",
                "state": {"running": {"startedAt": now}},
            })
        })
        .collect();
    let mut status = json!({"status": {
        "phase": "Running",
        "startTime": now,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": conditions,
        "containerStatuses": containers,
    }});
    if let Some(node) = annotations[NODE_ADDRESS].as_str() {
        status["status"]["hostIP"] = json!(node);
        status["status"]["hostIPs"] = json!([{"ip": node}]);
    }
    status
}

fn container_names(pod: &Value) -> Vec<String> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers.filter_map(|container| container["name"].as_str().map(str::to_owned)).collect()
}

fn string_map(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
