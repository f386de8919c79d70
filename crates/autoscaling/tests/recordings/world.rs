//! The cluster of a recording, as inputs of the core.

use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::failure::MetricFailureClass;
use autoscaling::pod::{
    ConditionStatus, ContainerRequests, LabelSet, Phase, Pod, PodRequests, ReadyCondition, ResourceList,
};
use autoscaling::query::{Answer, ContainerUsage, CustomValue, ExternalValue, PodUsage, Query, QueryError};
use autoscaling::selector::{Labels, Selector};
use autoscaling::settings::Version;
use autoscaling::{Scale, WriteOutcome};
use serde_json::Value;

/// The group, the kind and the resource of each type in discovery.
const RESOURCES: &[(&str, &str, &str)] = &[
    ("", "Pod", "pods"),
    ("", "Namespace", "namespaces"),
    ("", "Service", "services"),
    ("", "ReplicationController", "replicationcontrollers"),
    ("apps", "Deployment", "deployments"),
    ("apps", "StatefulSet", "statefulsets"),
    ("apps", "ReplicaSet", "replicasets"),
    ("apps", "DaemonSet", "daemonsets"),
    ("networking.k8s.io", "Ingress", "ingresses"),
    ("example.com", "Widget", "widgets"),
    ("example.com", "Gadget", "gadgets"),
];

/// The state of the cluster. Each sync of a recording contains the fields that change.
#[derive(Default)]
pub(crate) struct World {
    fields: BTreeMap<String, Value>,
    pods: Vec<Arc<Pod>>,
    put_faults: Vec<Value>,
    status_faults: Vec<Value>,
    selectors: BTreeMap<String, Arc<Selector>>,
}

impl World {
    pub(crate) fn update(&mut self, changes: &Value) {
        if let Some(changes) = changes.as_object() {
            for (name, value) in changes {
                self.fields.insert(name.clone(), value.clone());
            }
            if changes.contains_key("pods") {
                self.pods = list(&self.fields["pods"]).iter().map(|pod| Arc::new(pod_of(pod))).collect();
                self.pods.sort_by(|a, b| a.name.cmp(&b.name));
            }
        }
        self.status_faults = list(&changes["statusPutFaults"]).to_vec();
        self.status_faults.reverse();
        self.put_faults = list(self.field("targets"))
            .iter()
            .flat_map(|target| list(&target["putFaults"]).to_vec())
            .collect();
        self.put_faults.reverse();
    }

    fn field(&self, name: &str) -> &Value {
        self.fields.get(name).unwrap_or(&Value::Null)
    }

    /// Returns the path of a target if the target exists, and its Scale or the text of the error.
    pub(crate) fn scale(
        &self,
        group: &str,
        kind: &str,
        name: &str,
        version: Version,
    ) -> (Option<String>, Result<Scale, String>) {
        let Some(resource) = resource_of(group, kind) else {
            return (None, Err(format!("no matches for kind \"{kind}\" in group \"{group}\"")));
        };
        let found = list(self.field("targets")).iter().find(|target| {
            let parts: Vec<&str> = target["path"].as_str().unwrap().split('/').collect();
            let (target_group, rest) =
                if parts.len() == 4 { (parts[0], &parts[2..]) } else { ("", &parts[1..]) };
            (target_group == group || (group.is_empty() && target_group == "core"))
                && rest == [resource, name]
        });
        let Some(target) = found else {
            let dot = if group.is_empty() { "" } else { "." };
            return (None, Err(format!("{resource}{dot}{group} \"{name}\" not found")));
        };
        let path = target["path"].as_str().unwrap().to_owned();
        if target["getFault"].is_object() {
            return (Some(path), Err(fault_text(&target["getFault"], &format!("get {resource} {name}"))));
        }
        let count = |name: &str| i32::try_from(target[name].as_i64().unwrap_or(0)).unwrap();
        let selector = target["selector"].as_str().unwrap_or_default();
        let scale = Scale::new(count("specReplicas"), count("statusReplicas"), selector, version);
        (Some(path), scale.map_err(|error| error.to_string()))
    }

    pub(crate) fn put_scale(&mut self, path: &str, to: i32, writes: &mut Vec<Value>) -> WriteOutcome {
        let parts: Vec<&str> = path.split('/').collect();
        let what = format!("put {} {}", parts[parts.len() - 2], parts[parts.len() - 1]);
        for attempt in 1.. {
            let Some(fault) = self.put_faults.pop() else { break };
            writes.push(serde_json::json!([to, fault["code"]]));
            if fault["code"] != 409 || attempt == 5 {
                return WriteOutcome::Failed(fault_text(&fault, &what));
            }
        }
        writes.push(serde_json::json!([to, 200]));
        WriteOutcome::Done
    }

    pub(crate) fn put_status(&mut self) -> Option<String> {
        self.status_faults.pop().map(|fault| fault_text(&fault, "put horizontalpodautoscalers.autoscaling"))
    }

    pub(crate) fn select(&self, selector: &Selector) -> Vec<Arc<Pod>> {
        self.pods.iter().filter(|pod| selector.matches(&*pod.labels)).cloned().collect()
    }

    /// Stores the selector of the HPA `key`. Returns all HPAs that control any of its pods, sorted.
    pub(crate) fn claim(&mut self, key: &str, selector: &Arc<Selector>) -> Vec<String> {
        self.selectors.insert(key.to_owned(), Arc::clone(selector));
        let own: Vec<&Arc<Pod>> = self.pods.iter().filter(|pod| selector.matches(&*pod.labels)).collect();
        self.selectors
            .iter()
            .filter(|(_, other)| own.iter().any(|pod| other.matches(&*pod.labels)))
            .map(|(key, _)| key.clone())
            .collect()
    }

    pub(crate) fn answer(&self, query: &Query) -> Result<Answer, QueryError> {
        self.lookup(query)
            .map_err(|message| QueryError::new(MetricFailureClass::from_text(&message), message))
    }

    fn lookup(&self, query: &Query) -> Result<Answer, String> {
        match query {
            Query::Resource { selector, .. } => {
                let metrics = self.field("resourceMetrics");
                let what = "get pods.metrics.k8s.io";
                if metrics.is_null() {
                    return Err(format!("the server could not find the requested resource ({what})"));
                }
                let selector = Selector::parse(selector).unwrap();
                let items = items(metrics, what)?;
                let selected =
                    items.iter().filter(|item| selector.matches(&labels_of(&item["metadata"]["labels"])));
                Ok(Answer::Resource(selected.map(usage_of).collect()))
            }
            Query::Pods { metric, selector, metric_selector, .. } => {
                let metrics = self.custom(metric, "pods", "*")?;
                let items = items(metrics, "get pods.custom.metrics.k8s.io *")?;
                let pods = self.select(&Selector::parse(selector).unwrap());
                let metric_selector = Selector::parse(metric_selector).unwrap();
                let selected = items.iter().filter(|item| {
                    let object = &item["describedObject"];
                    object["kind"] == "Pod"
                        && pods.iter().any(|pod| object["name"] == *pod.name)
                        && metric_selector.matches(&labels_of(&item["metric"]["selector"]["matchLabels"]))
                });
                Ok(Answer::Custom(selected.map(custom_of).collect()))
            }
            Query::Object { group, kind, name, metric, metric_selector, .. } => {
                if self.field("customMetricsApiAbsent") == true {
                    return Err(NO_CUSTOM.to_owned());
                }
                let dot = if group.is_empty() { "" } else { "." };
                let Some(resource) = resource_of(group, kind) else {
                    return Err(format!(
                        "unable to map kind {kind}{dot}{group} to resource: \
                         no matches for kind \"{kind}\" in group \"{group}\""
                    ));
                };
                let resource = format!("{resource}{dot}{group}");
                let metrics = self.custom(metric, &resource, name)?;
                let items = items(metrics, &format!("get {resource}.custom.metrics.k8s.io {name}"))?;
                let metric_selector = Selector::parse(metric_selector).unwrap();
                let selected = items.iter().filter(|item| {
                    let object = &item["describedObject"];
                    object["kind"] == **kind
                        && object["name"] == **name
                        && metric_selector.matches(&labels_of(&item["metric"]["selector"]["matchLabels"]))
                });
                Ok(Answer::Custom(selected.map(custom_of).collect()))
            }
            Query::External { metric, selector, .. } => {
                let metrics = &self.field("externalMetrics")[&metric.to_lowercase()];
                let items = items(metrics, &format!("get {metric}.external.metrics.k8s.io"))?;
                let selector = Selector::parse(selector).unwrap();
                let selected =
                    items.iter().filter(|item| selector.matches(&labels_of(&item["metricLabels"])));
                Ok(Answer::External(
                    selected
                        .map(|item| ExternalValue {
                            timestamp: item["timestamp"].as_str().map(|at| at.parse().unwrap()),
                            value: quantity(&item["value"]),
                        })
                        .collect(),
                ))
            }
        }
    }

    fn custom(&self, metric: &str, resource: &str, object: &str) -> Result<&Value, String> {
        if self.field("customMetricsApiAbsent") == true {
            return Err(NO_CUSTOM.to_owned());
        }
        let metrics = &self.field("customMetrics")[metric];
        if metrics.is_null() {
            return Err(format!("the server could not find the metric {metric} for {resource} {object}"));
        }
        Ok(metrics)
    }
}

const NO_CUSTOM: &str = "no custom metrics API (custom.metrics.k8s.io) registered";

fn resource_of(group: &str, kind: &str) -> Option<&'static str> {
    RESOURCES.iter().find(|(g, k, _)| *g == group && *k == kind).map(|(_, _, resource)| *resource)
}

fn items<'a>(metrics: &'a Value, what: &str) -> Result<&'a [Value], String> {
    if metrics["fault"].is_object() {
        Err(fault_text(&metrics["fault"], what))
    } else {
        Ok(list(&metrics["items"]))
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn quantity(value: &Value) -> autoscaling::quantity::Quantity {
    value.as_str().unwrap().parse().unwrap()
}

fn fault_text(fault: &Value, what: &str) -> String {
    if let Some(message) = fault["message"].as_str() {
        return message.to_owned();
    }
    let body = fault["text"].as_str().unwrap().trim();
    let text = match fault["code"].as_u64().unwrap() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => body.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request"
            .to_owned(),
        _ => format!("an error on the server (\"{body}\") has prevented the request from succeeding"),
    };
    format!("{text} ({what})")
}

fn labels_of(labels: &Value) -> LabelSet {
    LabelSet::new(
        labels
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str().into(), value.as_str().unwrap().into())),
    )
}

fn resources(list: &Value) -> ResourceList {
    ResourceList::new(
        list.as_object().into_iter().flatten().map(|(name, amount)| (name.as_str().into(), quantity(amount))),
    )
}

fn pod_of(pod: &Value) -> Pod {
    let containers = |field: &str| {
        list(&pod["spec"][field])
            .iter()
            .map(|container| ContainerRequests {
                name: container["name"].as_str().unwrap().into(),
                restartable: container["restartPolicy"] == "Always",
                requests: resources(&container["resources"]["requests"]),
            })
            .collect()
    };
    let labels = labels_of(&pod["metadata"]["labels"]);
    assert!(labels.iter().all(|(key, _)| labels.value(key).is_some()));
    Pod {
        name: pod["metadata"]["name"].as_str().unwrap().into(),
        labels: Arc::new(labels),
        requests: Arc::new(PodRequests {
            containers: containers("containers"),
            init_containers: containers("initContainers"),
            pod_level: resources(&pod["spec"]["resources"]["requests"]),
        }),
        phase: Phase::parse(pod["status"]["phase"].as_str().unwrap_or_default()),
        terminating: pod["metadata"]["deletionTimestamp"].is_string(),
        ready: list(&pod["status"]["conditions"]).iter().find(|condition| condition["type"] == "Ready").map(
            |condition| ReadyCondition {
                status: ConditionStatus::parse(condition["status"].as_str().unwrap_or_default()),
                since: condition["lastTransitionTime"].as_str().map(|at| at.parse().unwrap()),
            },
        ),
        start_time: pod["status"]["startTime"].as_str().map(|at| at.parse().unwrap()),
    }
}

fn usage_of(item: &Value) -> PodUsage {
    let window = item["window"].as_str().unwrap_or("0s");
    let (minutes, seconds) = window.split_once('m').unwrap_or(("0", window));
    let seconds: f64 = seconds.strip_suffix('s').unwrap().parse().unwrap();
    #[expect(clippy::cast_possible_truncation, reason = "windows of recordings are a few minutes")]
    let window_nanos = ((minutes.parse::<f64>().unwrap() * 60.0 + seconds) * 1e9) as i64;
    PodUsage {
        pod: item["metadata"]["name"].as_str().unwrap().into(),
        timestamp: item["timestamp"].as_str().map(|at| at.parse().unwrap()),
        window_nanos,
        containers: list(&item["containers"])
            .iter()
            .map(|container| ContainerUsage {
                name: container["name"].as_str().unwrap().into(),
                usage: resources(&container["usage"]),
            })
            .collect(),
    }
}

fn custom_of(item: &Value) -> CustomValue {
    CustomValue {
        object: item["describedObject"]["name"].as_str().unwrap().into(),
        timestamp: item["timestamp"].as_str().map(|at| at.parse().unwrap()),
        window_seconds: item["windowSeconds"].as_i64(),
        value: quantity(&item["value"]),
    }
}
