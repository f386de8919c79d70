//! Validation of HPAs, with the order and texts of `pkg/apis/autoscaling/validation` of Kubernetes 1.37.

use autoscaling::selector::faults_of_key;
use serde_json::Value;

use crate::hpa::sign;
use crate::names::{dns_label_problems, path_segment_problems};
use crate::object::{at, int, list, text};
use crate::status::{Causes as _, FieldError};

/// The maximum period of a rate policy, in seconds.
const MAX_PERIOD: i64 = 1800;
/// The maximum stabilization window, in seconds.
const MAX_WINDOW: i64 = 3600;

/// The field and the type of each metric source, in the order in which Kubernetes checks them.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];

/// The validation rule for the `apiVersion` of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApiVersion {
    /// The apiVersion must contain a group.
    WithGroup,
    /// The apiVersion must have valid syntax.
    Any,
    /// The apiVersion is not validated, because the stored value is already accepted.
    Kept,
}

/// Validates the spec of a new or changed HPA.
pub(crate) fn spec(hpa: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let Some(spec) = at(hpa, &["spec"]) else { return causes };
    let min = int(spec, &["minReplicas"]);
    let max = int(spec, &["maxReplicas"]).unwrap_or(0);
    if min.is_some_and(|min| max < min) {
        causes.invalid("spec.maxReplicas", max, "must be greater than or equal to `minReplicas`");
    }
    let target = at(spec, &["scaleTargetRef"]).unwrap_or(&Value::Null);
    reference(target, "spec.scaleTargetRef", target_rule(target, old), &mut causes);
    metrics(spec, min, described_rule(old), &mut causes);
    for direction in ["scaleUp", "scaleDown"] {
        if let Some(rules) = at(spec, &["behavior", direction]) {
            scaling_rules(rules, &format!("spec.behavior.{direction}"), &mut causes);
        }
    }
    // In 1.37, declarative validation reports the errors of `minReplicas` and `maxReplicas` after all others.
    if let Some(min) = min.filter(|min| *min < 0) {
        causes.invalid("spec.minReplicas", min, "must be greater than or equal to 0");
    }
    if max == 0 {
        causes.required("spec.maxReplicas", "");
    } else if max < 0 {
        causes.invalid("spec.maxReplicas", max, "must be greater than or equal to 1");
    }
    causes
}

pub(crate) fn status(hpa: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let mut not_negative = |field: String, value: Option<i64>| {
        if let Some(value) = value.filter(|value| *value < 0) {
            causes.invalid(field, value, "must be greater than or equal to 0");
        }
    };
    for (index, condition) in list(hpa, &["status", "conditions"]).iter().enumerate() {
        not_negative(
            format!("status.conditions[{index}].observedGeneration"),
            int(condition, &["observedGeneration"]),
        );
    }
    for field in ["currentReplicas", "desiredReplicas"] {
        not_negative(format!("status.{field}"), int(hpa, &["status", field]));
    }
    causes
}

fn target_rule(target: &Value, old: Option<&Value>) -> ApiVersion {
    let same = |key: &str| {
        old.is_some_and(|old| text(old, &["spec", "scaleTargetRef", key]) == text(target, &[key]))
    };
    if same("apiVersion") && same("kind") {
        ApiVersion::Kept
    } else if text(target, &["kind"]) == "ReplicationController" {
        ApiVersion::Any
    } else {
        ApiVersion::WithGroup
    }
}

fn described_rule(old: Option<&Value>) -> ApiVersion {
    let invalid_before = old.into_iter().flat_map(|old| list(old, &["spec", "metrics"])).any(|metric| {
        let version = text(metric, &["object", "describedObject", "apiVersion"]);
        text(metric, &["type"]) == "Object" && api_version(version, ApiVersion::Any).is_some()
    });
    if invalid_before { ApiVersion::Kept } else { ApiVersion::Any }
}

fn api_version(version: &str, rule: ApiVersion) -> Option<String> {
    if rule == ApiVersion::Kept {
        return None;
    }
    if version != "/" && version.matches('/').count() > 1 {
        return Some(format!("unexpected GroupVersion string: {version}"));
    }
    let group = version.split_once('/').map_or("", |(group, _)| group);
    (rule == ApiVersion::WithGroup && group.is_empty())
        .then(|| "apiVersion must specify API group".to_owned())
}

fn reference(reference: &Value, path: &str, rule: ApiVersion, causes: &mut Vec<FieldError>) {
    for key in ["kind", "name"] {
        named(reference, path, key, "", causes);
    }
    let version = text(reference, &["apiVersion"]);
    if let Some(problem) = api_version(version, rule) {
        causes.invalid(format!("{path}.apiVersion"), version, &problem);
    }
}

/// Checks the field `key`, which must be a valid path segment.
fn named(object: &Value, path: &str, key: &str, detail: &str, causes: &mut Vec<FieldError>) {
    let name = text(object, &[key]);
    let field = format!("{path}.{key}");
    if name.is_empty() {
        causes.required(field, detail);
        return;
    }
    for problem in path_segment_problems(name) {
        causes.invalid(field.clone(), name, &problem);
    }
}

fn metrics(spec: &Value, min: Option<i64>, rule: ApiVersion, causes: &mut Vec<FieldError>) {
    let metrics = list(spec, &["metrics"]);
    for (index, metric) in metrics.iter().enumerate() {
        metric_spec(metric, &format!("spec.metrics[{index}]"), rule, causes);
    }
    let zero_capable = metrics.iter().any(|metric| matches!(text(metric, &["type"]), "Object" | "External"));
    if min == Some(0) && !zero_capable {
        causes.forbidden(
            "spec.metrics",
            "must specify at least one Object or External metric to support scaling to zero replicas",
        );
    }
}

fn metric_spec(metric: &Value, path: &str, rule: ApiVersion, causes: &mut Vec<FieldError>) {
    let kind = text(metric, &["type"]);
    let unknown = FieldError::unsupported(
        format!("{path}.type"),
        &kind.into(),
        &["ContainerResource", "External", "Object", "Pods", "Resource"],
    );
    if kind.is_empty() {
        causes.required(format!("{path}.type"), "must specify a metric source type");
    }
    let expected = SOURCES.iter().find(|(_, name)| *name == kind).map(|(field, _)| *field);
    if expected.is_none() {
        causes.push(unknown.clone());
    }
    let present: Vec<&str> =
        SOURCES.iter().map(|(field, _)| *field).filter(|field| at(metric, &[field]).is_some()).collect();
    if let Some(first) = present.first()
        && let Some(source) = at(metric, &[first])
    {
        metric_source(first, source, &format!("{path}.{first}"), rule, causes);
    }
    match expected {
        Some(field) if !present.contains(&field) => causes
            .required(format!("{path}.{field}"), "must populate information for the given metric source"),
        Some(_) => {}
        None => causes.push(unknown),
    }
    if present.len() != 1 {
        for field in present.iter().filter(|field| Some(**field) != expected) {
            causes.forbidden(format!("{path}.{field}"), "must populate the given metric source only");
        }
    }
}

fn metric_source(field: &str, source: &Value, path: &str, rule: ApiVersion, causes: &mut Vec<FieldError>) {
    let target = format!("{path}.target");
    let metric = at(source, &["metric"]).unwrap_or(&Value::Null);
    let has = |key: &str| at(source, &["target", key]).is_some();
    match field {
        "resource" | "containerResource" => {
            resource_source(field, source, path, causes);
            metric_target(source, &target, causes);
            let (utilization, average) = (has("averageUtilization"), has("averageValue"));
            if !utilization && !average {
                causes.required(
                    format!("{target}.averageUtilization"),
                    "must set either a target raw value or a target utilization",
                );
            } else if utilization && average {
                causes.forbidden(
                    format!("{target}.averageValue"),
                    "may not set both a target raw value and a target utilization",
                );
            }
        }
        _ => {
            if field == "object" {
                let described = at(source, &["describedObject"]).unwrap_or(&Value::Null);
                reference(described, &format!("{path}.describedObject"), rule, causes);
            }
            named(metric, &format!("{path}.metric"), "name", "must specify a metric name", causes);
            metric_target(source, &target, causes);
            let missing = match field {
                "pods" => (!has("averageValue")).then_some("must specify a positive target averageValue"),
                _ if has("value") || has("averageValue") => None,
                "object" => Some("must set either a target value or averageValue"),
                _ => Some("must set either a target value for metric or a per-pod target"),
            };
            if let Some(detail) = missing {
                causes.required(format!("{target}.averageValue"), detail);
            }
            if field == "external" && has("value") && has("averageValue") {
                causes.forbidden(
                    format!("{target}.value"),
                    "may not set both a target value for metric and a per-pod target",
                );
            }
        }
    }
}

fn resource_source(field: &str, source: &Value, path: &str, causes: &mut Vec<FieldError>) {
    let name = text(source, &["name"]);
    if name.is_empty() {
        causes.required(format!("{path}.name"), "must specify a resource name");
    } else if field == "containerResource" {
        container_resource_name(name, &format!("{path}.name"), causes);
    }
    if field == "containerResource" {
        let container = text(source, &["container"]);
        if container.is_empty() {
            causes.required(format!("{path}.container"), "must specify a container");
        }
        for problem in dns_label_problems(container).into_iter().filter(|_| !container.is_empty()) {
            causes.invalid(format!("{path}.container"), container, &problem);
        }
    }
}

fn container_resource_name(name: &str, path: &str, causes: &mut Vec<FieldError>) {
    let before = causes.len();
    for problem in faults_of_key(name) {
        causes.invalid(path, name, &problem);
    }
    if causes.len() > before || name.contains('/') {
        return;
    }
    let standard = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if !standard {
        let unqualified = "must be a standard resource type or fully qualified";
        causes.invalid(path, name, unqualified);
        causes.invalid(path, name, "must be a standard resource for containers");
    }
}

fn metric_target(source: &Value, path: &str, causes: &mut Vec<FieldError>) {
    let target = at(source, &["target"]).unwrap_or(&Value::Null);
    let kind = text(target, &["type"]);
    if kind.is_empty() {
        causes.required(format!("{path}.type"), "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        causes.invalid(format!("{path}.type"), kind, detail);
    }
    for key in ["value", "averageValue"] {
        if let Some(value) = at(target, &[key]).filter(|value| !sign(value).is_gt()) {
            causes.invalid(format!("{path}.{key}"), value.clone(), "must be positive");
        }
    }
    if let Some(percent) = int(target, &["averageUtilization"]).filter(|percent| *percent < 1) {
        let field = format!("{path}.averageUtilization");
        causes.invalid(field, percent, "must be greater than 0");
    }
}

fn scaling_rules(rules: &Value, path: &str, causes: &mut Vec<FieldError>) {
    if let Some(window) = int(rules, &["stabilizationWindowSeconds"]) {
        let field = format!("{path}.stabilizationWindowSeconds");
        if window < 0 {
            causes.invalid(field, window, "must be greater than or equal to zero");
        } else if window > MAX_WINDOW {
            let detail = format!("must be less than or equal to {MAX_WINDOW}");
            causes.invalid(field, window, &detail);
        }
    }
    if let Some(select) = at(rules, &["selectPolicy"])
        && !matches!(select.as_str(), Some("Max" | "Min" | "Disabled"))
    {
        let field = format!("{path}.selectPolicy");
        causes.unsupported(field, select.clone(), &["Disabled", "Max", "Min"]);
    }
    let policies = list(rules, &["policies"]);
    if policies.is_empty() {
        causes.required(format!("{path}.policies"), "must specify at least one Policy");
    }
    for (index, policy) in policies.iter().enumerate() {
        scaling_policy(policy, &format!("{path}.policies[{index}]"), causes);
    }
    if let Some(tolerance) = at(rules, &["tolerance"]).filter(|tolerance| sign(tolerance).is_lt()) {
        let detail = "must be greater than or equal to 0";
        causes.invalid(format!("{path}.tolerance"), tolerance.clone(), detail);
    }
}

fn scaling_policy(policy: &Value, path: &str, causes: &mut Vec<FieldError>) {
    let kind = text(policy, &["type"]);
    if !matches!(kind, "Pods" | "Percent") {
        causes.unsupported(format!("{path}.type"), kind, &["Percent", "Pods"]);
    }
    let period = int(policy, &["periodSeconds"]).unwrap_or(0);
    for (key, value) in [("value", int(policy, &["value"]).unwrap_or(0)), ("periodSeconds", period)] {
        if value <= 0 {
            causes.invalid(format!("{path}.{key}"), value, "must be greater than zero");
        }
    }
    if period > MAX_PERIOD {
        let detail = format!("must be less than or equal to {MAX_PERIOD}");
        causes.invalid(format!("{path}.periodSeconds"), period, &detail);
    }
}
