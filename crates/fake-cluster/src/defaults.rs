//! Defaults of the built-in types other than HPAs, limited to the fields that `kubectl get` and `describe`
//! show.

use serde_json::{Map, Value, json};

use super::object;
use super::registry::ResourceType;

/// Sets the defaults that the API server sets.
pub(crate) fn apply(ty: &ResourceType, object: &mut Value) {
    match ty.kind {
        "Deployment" => deployment(object::section(object, "spec")),
        "StatefulSet" => stateful_set(object::section(object, "spec")),
        "DaemonSet" => daemon_set(object::section(object, "spec")),
        "ReplicaSet" => replicated(object::section(object, "spec")),
        "ReplicationController" => replication_controller(object),
        "Pod" => pod(object),
        "Service" => service(object::section(object, "spec")),
        "Namespace" => namespace(object),
        "Event" => event(object::map(object)),
        _ => {}
    }
}

fn deployment(spec: &mut Map<String, Value>) {
    replicated(spec);
    object::default(spec, "progressDeadlineSeconds", 600);
    object::default(spec, "revisionHistoryLimit", 10);
    let strategy = object::map(spec.entry("strategy").or_insert(Value::Null));
    object::default(strategy, "type", "RollingUpdate");
    if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
        let rolling = object::map(strategy.entry("rollingUpdate").or_insert(Value::Null));
        object::default(rolling, "maxSurge", "25%");
        object::default(rolling, "maxUnavailable", "25%");
    }
}

fn stateful_set(spec: &mut Map<String, Value>) {
    replicated(spec);
    object::default(spec, "podManagementPolicy", "OrderedReady");
    object::default(spec, "revisionHistoryLimit", 10);
    object::default(spec, "serviceName", "");
    let strategy = object::map(spec.entry("updateStrategy").or_insert(Value::Null));
    object::default(strategy, "type", "RollingUpdate");
    if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
        let rolling = object::map(strategy.entry("rollingUpdate").or_insert(Value::Null));
        object::default(rolling, "partition", 0);
    }
}

fn daemon_set(spec: &mut Map<String, Value>) {
    object::default(spec, "revisionHistoryLimit", 10);
    template(spec);
}

fn replicated(spec: &mut Map<String, Value>) {
    object::default(spec, "replicas", 1);
    template(spec);
}

fn replication_controller(object: &mut Value) {
    let labels = object::at(object, &["spec", "template", "metadata", "labels"]).cloned();
    let spec = object::section(object, "spec");
    replicated(spec);
    if let Some(labels) = labels {
        object::default(spec, "selector", labels);
    }
}

fn template(spec: &mut Map<String, Value>) {
    if let Some(Value::Object(template)) = spec.get_mut("template") {
        pod_spec(object::map(template.entry("spec").or_insert(Value::Null)));
    }
}

fn pod_spec(spec: &mut Map<String, Value>) {
    object::default(spec, "restartPolicy", "Always");
    object::default(spec, "terminationGracePeriodSeconds", 30);
    object::default(spec, "dnsPolicy", "ClusterFirst");
    object::default(spec, "schedulerName", "default-scheduler");
    object::default(spec, "securityContext", json!({}));
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container_defaults(object::map(container));
        }
    }
}

fn container_defaults(container: &mut Map<String, Value>) {
    let latest = container.get("image").and_then(Value::as_str).is_some_and(|image| {
        let name = image.rsplit('/').next().unwrap_or(image);
        !image.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
    });
    object::default(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
    object::default(container, "terminationMessagePath", "/dev/termination-log");
    object::default(container, "terminationMessagePolicy", "File");
    let resources = object::map(container.entry("resources").or_insert(Value::Null));
    // A limit without a request also sets the request.
    if let Some(Value::Object(limits)) = resources.get("limits").cloned() {
        let requests = object::map(resources.entry("requests").or_insert(Value::Null));
        for (name, limit) in limits {
            object::default(requests, &name, limit);
        }
    }
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        object::default(object::map(port), "protocol", "TCP");
    }
}

fn pod(object: &mut Value) {
    let spec = object::section(object, "spec");
    pod_spec(spec);
    object::default(spec, "enableServiceLinks", true);
    object::default(object::section(object, "status"), "phase", "Pending");
}

fn service(spec: &mut Map<String, Value>) {
    object::default(spec, "type", "ClusterIP");
    object::default(spec, "sessionAffinity", "None");
    object::default(spec, "internalTrafficPolicy", "Cluster");
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let port = object::map(port);
        object::default(port, "protocol", "TCP");
        if let Some(number) = port.get("port").cloned() {
            object::default(port, "targetPort", number);
        }
    }
}

fn namespace(object: &mut Value) {
    let name = object::meta(object, "name").to_owned();
    object::default(object::section(object, "spec"), "finalizers", json!(["kubernetes"]));
    object::default(object::section(object, "status"), "phase", "Active");
    let labels = object::map(object::section(object, "metadata").entry("labels").or_insert(Value::Null));
    labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
}

fn event(fields: &mut Map<String, Value>) {
    object::default(fields, "reportingComponent", "");
    object::default(fields, "reportingInstance", "");
}
