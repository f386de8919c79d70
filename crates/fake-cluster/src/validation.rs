//! Validation common to all types, and some rules of workloads. `hpa::validation` contains the rules of HPAs.

use autoscaling::selector::{faults_of_key, faults_of_value};
use serde_json::Value;

use super::hpa;
use super::object;
use super::registry::{ResourceType, ScaleSelector};
use super::status::{Causes as _, FieldError};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// Validates an object before its creation.
pub(crate) fn create(ty: &ResourceType, object: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let name = object::meta(object, "name");
    if name.is_empty() {
        causes.required("metadata.name", "name or generateName is required");
    } else {
        for problem in name_problems(ty, name) {
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
        causes.extend(hpa::validation::status(object));
    }
    causes
}

fn name_problems(ty: &ResourceType, name: &str) -> Vec<String> {
    match ty.kind {
        "Namespace" | "Service" => is_dns_label(name),
        _ => is_dns_subdomain(name),
    }
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
        ("HorizontalPodAutoscaler", _) => causes.extend(hpa::validation::spec(object, old)),
        ("Event", _) if old.is_none() => event(object, causes),
        (_, Some(ScaleSelector::Structured)) => workload(object, old, causes),
        _ => {}
    }
}

/// Checks that an event is in the namespace of its object. Events of cluster-scoped objects belong to
/// `default`.
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

/// Returns the reasons why a text cannot be a path segment.
pub(crate) fn path_segment(name: &str) -> Vec<String> {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|letter| name.contains(**letter))
        .map(|letter| format!("may not contain '{letter}'"))
        .collect()
}

/// Returns the reasons why a text is not a DNS label.
pub(crate) fn is_dns_label(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 63);
    if !label(text) {
        problems.push(if text.split('.').all(label) {
            "must not contain dots".to_owned()
        } else {
            format!(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '{LABEL}')"
            )
        });
    }
    problems
}

/// Returns the reasons why a text is not a DNS subdomain.
fn is_dns_subdomain(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 253);
    if !text.split('.').all(label) {
        problems.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{LABEL}(\\.{LABEL})*')"
        ));
    }
    problems
}

fn too_long(text: &str, limit: usize) -> Vec<String> {
    if text.len() > limit { vec![format!("must be no more than {limit} bytes")] } else { Vec::new() }
}

fn label(text: &str) -> bool {
    let alphanumeric = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    !text.is_empty()
        && text.chars().all(|letter| alphanumeric(letter) || letter == '-')
        && text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
}
