//! Acts as every kubelet: pods that are bound to the test's node run and become ready, and pods with a
//! deletion timestamp are deleted.
//!
//! The kubelet also keeps a list of the pods. The metrics server reports only pods in the list, because it can measure
//! no other pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::outcome::Outcome;
use crate::rest::Rest;

/// Pod templates name this node, so that deletions wait for the kubelet as they do in a cluster.
pub(crate) const NODE: &str = "test-node";

/// The annotation of a pod with an address of its own.
pub(crate) const ADDRESS: &str = "example.com/address";

/// The annotation of a pod whose node has an address.
pub(crate) const NODE_ADDRESS: &str = "example.com/node-address";

const POLL_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Clone, Debug)]
pub(crate) struct ListedPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) containers: Vec<String>,
    pub(crate) running: bool,
}

pub(crate) type ListedPods = Arc<Mutex<Vec<ListedPod>>>;

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
                // A failing round is retried. If the control plane has stopped, the scenarios fail.
                if let Ok(now) = update_pods(&api).await {
                    *listed.lock() = now;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
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
    // The API server answers from its cache, which is cheap. The list may be slightly stale.
    for (index, pod) in api.list("/api/v1/pods?resourceVersion=0").await?.iter().enumerate() {
        let text = |pointer| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        if pod.pointer("/metadata/deletionTimestamp").is_some() {
            api.delete_now(&path).await?;
            continue;
        }
        let labels = string_map(pod.pointer("/metadata/labels"));
        let mut running = text("/status/phase") == "Running";
        if text("/status/phase") == "Pending" && text("/spec/nodeName") == NODE {
            // A pod that was deleted between the list and this patch is handled in the next round.
            running = api.merge(&format!("{path}/status"), &running_status(pod, index)).await.is_ok();
        }
        listed.push(ListedPod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            containers: container_names(pod),
            labels,
            running,
        });
    }
    Ok(listed)
}

fn running_status(pod: &Value, index: usize) -> Value {
    let now = crate::metrics::now();
    let conditions = ["Initialized", "PodScheduled", "ContainersReady", "Ready"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now}));
    let address = pod["metadata"]["annotations"][ADDRESS].as_str().map(str::to_owned);
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
    if let Some(node) = pod["metadata"]["annotations"][NODE_ADDRESS].as_str() {
        status["status"]["hostIP"] = json!(node);
        status["status"]["hostIPs"] = json!([{"ip": node}]);
    }
    status
}

fn container_names(pod: &Value) -> Vec<String> {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    let names = containers.into_iter().flatten().filter_map(|container| container.get("name")?.as_str());
    names.map(str::to_owned).collect()
}

fn string_map(value: Option<&Value>) -> BTreeMap<String, String> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
