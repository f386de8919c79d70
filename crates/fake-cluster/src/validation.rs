//! Defaults and validation of the built-in types, limited to the fields that `kubectl get` and `describe` show. `hpa`
//! and `hpa_validation` contain the rules of HPAs.

use autoscaling::selector::{faults_of_key, faults_of_value};
use serde_json::{Map, Value, json};

use super::hpa_validation;
use super::names::{dns_label_problems, dns_subdomain_problems};
use super::object;
use super::registry::{ResourceType, ScaleSelector};
use super::status::{Causes as _, FieldError};

/// Validates an object before its creation.
pub(crate) fn create(ty: &ResourceType, object: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let name = object::meta(object, "name");
    if name.is_empty() {
        causes.required("metadata.name", "name or generateName is required");
    } else {
        let problems = match ty.kind {
            "Namespace" | "Service" => dns_label_problems(name),
            _ => dns_subdomain_problems(name),
        };
        for problem in problems {
            causes.invalid("metadata.name", name, &problem);
        }
    }
    metadata(object, &mut causes);
    spec(ty, object, None, &mut causes);
    causes
}

/// Validates an object before its update.
pub(crate) fn update(ty: &ResourceType, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    metadata(object, &mut causes);
    spec(ty, object, Some(old), &mut causes);
    causes
}

/// Validates an object before an update of its status.
pub(crate) fn update_status(ty: &ResourceType, object: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    metadata(object, &mut causes);
    if ty.kind == "HorizontalPodAutoscaler" {
        causes.extend(hpa_validation::status(object));
    }
    causes
}

fn metadata(object: &Value, causes: &mut Vec<FieldError>) {
    let labels = object::at(object, &["metadata", "labels"]).and_then(Value::as_object);
    for (key, value) in labels.into_iter().flatten() {
        for problem in faults_of_key(key) {
            causes.invalid("metadata.labels", key.as_str(), &problem);
        }
        for problem in faults_of_value(value.as_str().unwrap_or("")) {
            causes.invalid("metadata.labels", value.clone(), &problem);
        }
    }
    let annotations = object::at(object, &["metadata", "annotations"]).and_then(Value::as_object);
    for (key, _) in annotations.into_iter().flatten() {
        for problem in faults_of_key(&key.to_lowercase()) {
            causes.invalid("metadata.annotations", key.as_str(), &problem);
        }
    }
}

fn spec(ty: &ResourceType, object: &Value, old: Option<&Value>, causes: &mut Vec<FieldError>) {
    match (ty.kind, ty.scale) {
        ("HorizontalPodAutoscaler", _) => causes.extend(hpa_validation::spec(object, old)),
        ("Event", _) if old.is_none() => event(object, causes),
        (_, Some(ScaleSelector::Structured)) => workload(object, old, causes),
        _ => {}
    }
}

/// Checks that an event is in the namespace of its object. Events of cluster-scoped objects belong to `default`.
fn event(object: &Value, causes: &mut Vec<FieldError>) {
    let object_namespace = object::text(object, &["involvedObject", "namespace"]);
    let namespace = object::meta(object, "namespace");
    let fits =
        if object_namespace.is_empty() { namespace == "default" } else { namespace == object_namespace };
    if !fits && object::text(object, &["eventTime"]).is_empty() {
        let detail = "does not match event.namespace";
        causes.invalid("involvedObject.namespace", object_namespace, detail);
    }
}

/// Checks the replicas and the selector. The selector must match the template's labels and must not change.
fn workload(object: &Value, old: Option<&Value>, causes: &mut Vec<FieldError>) {
    if let Some(replicas) = object::int(object, &["spec", "replicas"]).filter(|replicas| *replicas < 0) {
        let detail = "must be greater than or equal to 0";
        causes.invalid("spec.replicas", replicas, detail);
    }
    let selector = object::at(object, &["spec", "selector"]);
    let Some(selector) = selector else {
        causes.required("spec.selector", "");
        return;
    };
    if let Some(old) = old {
        if object::at(old, &["spec", "selector"]) != Some(selector) {
            causes.invalid("spec.selector", selector.clone(), "field is immutable");
        }
        return;
    }
    let selected = object::at(selector, &["matchLabels"]).and_then(Value::as_object);
    let labels = object::at(object, &["spec", "template", "metadata", "labels"]).unwrap_or(&Value::Null);
    if selected.into_iter().flatten().any(|(key, value)| labels.get(key) != Some(value)) {
        causes.invalid(
            "spec.template.metadata.labels",
            labels.clone(),
            "`selector` does not match template `labels`",
        );
    }
    if object::list(object, &["spec", "template", "spec", "containers"]).is_empty() {
        causes.required("spec.template.spec.containers", "");
    }
}

/// Sets the defaults that the API server sets.
pub(crate) fn apply_defaults(ty: &ResourceType, object: &mut Value) {
    match ty.kind {
        "Deployment" => default_deployment(object::section(object, "spec")),
        "StatefulSet" => default_stateful_set(object::section(object, "spec")),
        "DaemonSet" => default_daemon_set(object::section(object, "spec")),
        "ReplicaSet" => default_replicas(object::section(object, "spec")),
        "ReplicationController" => default_replication_controller(object),
        "Pod" => default_pod(object),
        "Service" => default_service(object::section(object, "spec")),
        "Namespace" => default_namespace(object),
        "Event" => default_event(object::map(object)),
        _ => {}
    }
}

fn default_deployment(spec: &mut Map<String, Value>) {
    default_replicas(spec);
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

fn default_stateful_set(spec: &mut Map<String, Value>) {
    default_replicas(spec);
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

fn default_daemon_set(spec: &mut Map<String, Value>) {
    object::default(spec, "revisionHistoryLimit", 10);
    default_template(spec);
}

fn default_replicas(spec: &mut Map<String, Value>) {
    object::default(spec, "replicas", 1);
    default_template(spec);
}

fn default_replication_controller(object: &mut Value) {
    let labels = object::at(object, &["spec", "template", "metadata", "labels"]).cloned();
    let spec = object::section(object, "spec");
    default_replicas(spec);
    if let Some(labels) = labels {
        object::default(spec, "selector", labels);
    }
}

fn default_template(spec: &mut Map<String, Value>) {
    if let Some(Value::Object(template)) = spec.get_mut("template") {
        default_pod_spec(object::map(template.entry("spec").or_insert(Value::Null)));
    }
}

fn default_pod_spec(spec: &mut Map<String, Value>) {
    object::default(spec, "restartPolicy", "Always");
    object::default(spec, "terminationGracePeriodSeconds", 30);
    object::default(spec, "dnsPolicy", "ClusterFirst");
    object::default(spec, "schedulerName", "default-scheduler");
    object::default(spec, "securityContext", json!({}));
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            default_container(object::map(container));
        }
    }
}

fn default_container(container: &mut Map<String, Value>) {
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

fn default_pod(object: &mut Value) {
    let spec = object::section(object, "spec");
    default_pod_spec(spec);
    object::default(spec, "enableServiceLinks", true);
    object::default(object::section(object, "status"), "phase", "Pending");
}

fn default_service(spec: &mut Map<String, Value>) {
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

fn default_namespace(object: &mut Value) {
    let name = object::meta(object, "name").to_owned();
    object::default(object::section(object, "spec"), "finalizers", json!(["kubernetes"]));
    object::default(object::section(object, "status"), "phase", "Active");
    let labels = object::map(object::section(object, "metadata").entry("labels").or_insert(Value::Null));
    labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
}

fn default_event(fields: &mut Map<String, Value>) {
    object::default(fields, "reportingComponent", "");
    object::default(fields, "reportingInstance", "");
}
