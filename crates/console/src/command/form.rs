//! The fields of the page's what-if form: their current values, and an HPA with changed fields.

use std::sync::Arc;

use crate::whatif::{Field, WhatIfError};
use autoscaling::quantity::Quantity;
use clock::SystemClock;
use fake_cluster::Cluster;
use policies::spec::{Level, parse};
use rulebook::ANNOTATION;
use serde::Serialize;
use serde_json::{Value, json};

use terminal::values::{at, list, plain, set, text};

/// The fields of an entry in `spec.metrics` that can contain its source.
const SOURCES: [&str; 5] = ["resource", "containerResource", "pods", "object", "external"];
/// The fields of a metric's target that can contain its value.
const VALUES: [&str; 3] = ["averageUtilization", "averageValue", "value"];
/// Maximum number of rate policies of a direction.
const MAX_POLICIES: usize = 16;
/// The allowed range of the time to simulate, in hours.
const HOURS: std::ops::RangeInclusive<u32> = 1..=24;

/// The current values of all fields of the form.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Form {
    metrics: Vec<MetricField>,
    min: Option<i64>,
    max: Option<i64>,
    up: RuleFields,
    down: RuleFields,
    /// The text of the annotation `concertina.dev/policy`.
    policy: String,
}

/// The target of a metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct MetricField {
    /// The index in `spec.metrics`.
    index: usize,
    name: String,
    /// `averageUtilization`, `averageValue` or `value`.
    kind: String,
    value: String,
}

/// The fields of one direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct RuleFields {
    window: Option<i64>,
    tolerance: String,
    select: String,
    /// The rate policies, in the format of [`rates`].
    policies: String,
}

/// A question: the HPA with changed fields, and the time to simulate.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub(super) hpa: Value,
    pub(super) hours: u32,
}

impl Form {
    /// Reads the values from an HPA.
    pub(super) fn new(object: &Value) -> Self {
        let metrics = list(object, "/spec/metrics").iter().enumerate().filter_map(|(index, metric)| {
            let path = target_of(object, index)?;
            let parts: Vec<_> = path.split('/').collect();
            let (source, kind) = (parts.get(4)?, parts.last()?);
            let name = ["name", "metric/name"].map(|name| text(metric, &format!("/{source}/{name}")));
            let name = name.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
            Some(MetricField {
                index,
                name: name.to_owned(),
                kind: (*kind).to_owned(),
                value: plain(at(object, &path)),
            })
        });
        Self {
            metrics: metrics.collect(),
            min: at(object, "/spec/minReplicas").as_i64(),
            max: at(object, "/spec/maxReplicas").as_i64(),
            up: RuleFields::new(object, "scaleUp"),
            down: RuleFields::new(object, "scaleDown"),
            policy: at(object, "/metadata/annotations").get(ANNOTATION).map(plain).unwrap_or_default(),
        }
    }
}

impl RuleFields {
    fn new(object: &Value, rules: &str) -> Self {
        let field = |name: &str| at(object, &format!("/spec/behavior/{rules}/{name}"));
        let policies = list(object, &format!("/spec/behavior/{rules}/policies")).iter().map(|policy| {
            let [kind, value, period] =
                ["type", "value", "periodSeconds"].map(|name| plain(at(policy, &format!("/{name}"))));
            format!("{kind}:{value}:{period}")
        });
        Self {
            window: field("stabilizationWindowSeconds").as_i64(),
            tolerance: plain(field("tolerance")),
            select: plain(field("selectPolicy")),
            policies: policies.collect::<Vec<_>>().join(","),
        }
    }
}

/// Returns the pointer to the target value of a metric: `/spec/metrics/0/resource/target/averageUtilization`.
pub(super) fn target_of(object: &Value, index: usize) -> Option<String> {
    SOURCES.iter().find_map(|source| {
        let target = format!("/spec/metrics/{index}/{source}/target");
        let value = VALUES.iter().find(|value| !at(object, &format!("{target}/{value}")).is_null())?;
        Some(format!("{target}/{value}"))
    })
}

/// Applies the fields of a question to an HPA, and checks the result by the rules of the API server.
///
/// # Errors
/// Returns a [`WhatIfError`] if a field is unknown or invalid.
pub(super) fn apply(hpa: &Value, fields: &[Field]) -> Result<Asked, WhatIfError> {
    let mut asked = Asked { hpa: hpa.clone(), hours: 1 };
    for Field { name, value } in fields {
        let value = value.trim();
        let of = |message: &str| WhatIfError::of(name.clone(), format!("{value:?}: {message}"));
        match name.as_str() {
            "hours" => {
                let hours = value.parse().ok().filter(|hours| HOURS.contains(hours));
                asked.hours = hours.ok_or_else(|| of("must be a number of hours from 1 to 24"))?;
            }
            "min" => set(&mut asked.hpa, "/spec/minReplicas", optional(value, whole).map_err(of)?),
            "max" => set(&mut asked.hpa, "/spec/maxReplicas", Some(whole(value).map_err(of)?)),
            "policy" => {
                if let Some(problem) = parse(value, Level::Annotation).problems.first() {
                    return Err(WhatIfError::of(name.clone(), problem.to_string()));
                }
                let policy = (!value.is_empty()).then(|| json!(format!("{value}\n")));
                let path = format!("/metadata/annotations/{}", ANNOTATION.replace('/', "~1"));
                set(&mut asked.hpa, &path, policy);
            }
            other => {
                let (path, new) = rule_or_target(hpa, other, value)
                    .ok_or_else(|| WhatIfError::general(format!("unknown field {other:?}")))?
                    .map_err(of)?;
                set(&mut asked.hpa, &path, new);
            }
        }
    }
    check(&asked.hpa)?;
    Ok(asked)
}

type Change = Result<(String, Option<Value>), &'static str>;

/// Returns the path and the value of a field of `behavior` or of a target. `None` for an unknown field.
fn rule_or_target(hpa: &Value, name: &str, value: &str) -> Option<Change> {
    if let Some(index) = name.strip_prefix("metric") {
        let path = target_of(hpa, index.parse().ok()?)?;
        let is_percent = path.ends_with("/averageUtilization");
        let new = if is_percent { whole(value) } else { quantity(value) };
        return Some(new.map(|new| (path, Some(new))));
    }
    let (rules, field) = match (name.strip_prefix("up"), name.strip_prefix("down")) {
        (Some(field), _) => ("scaleUp", field),
        (_, Some(field)) => ("scaleDown", field),
        _ => return None,
    };
    let (field, new) = match field {
        "Window" => ("stabilizationWindowSeconds", optional(value, whole)),
        "Tolerance" => ("tolerance", optional(value, quantity)),
        "Select" => ("selectPolicy", optional(value, select)),
        "Policies" => ("policies", optional(value, rates)),
        _ => return None,
    };
    Some(new.map(|new| (format!("/spec/behavior/{rules}/{field}"), new)))
}

/// Reads a value. Returns `None` for an empty text, which removes the field.
fn optional(
    text: &str,
    read: impl Fn(&str) -> Result<Value, &'static str>,
) -> Result<Option<Value>, &'static str> {
    if text.is_empty() { Ok(None) } else { read(text).map(Some) }
}

fn whole(text: &str) -> Result<Value, &'static str> {
    text.parse::<i32>().map(Value::from).map_err(|_| "must be a whole number")
}

fn quantity(text: &str) -> Result<Value, &'static str> {
    match text.parse::<Quantity>() {
        Ok(_) => Ok(json!(text)),
        Err(_) => Err("must be a quantity, such as 100, 250m or 0.1"),
    }
}

fn select(text: &str) -> Result<Value, &'static str> {
    let known = ["Max", "Min", "Disabled"].contains(&text);
    if known { Ok(json!(text)) } else { Err("must be Max, Min or Disabled") }
}

/// Reads rate policies such as `Pods:4:60,Percent:100:15`.
fn rates(text: &str) -> Result<Value, &'static str> {
    const FORM: &str = "must be rates as TYPE:VALUE:SECONDS, such as Pods:4:60,Percent:100:15";
    let rate = |text: &str| {
        let mut parts = text.split(':').map(str::trim);
        let (kind, value, period) = (parts.next(), parts.next(), parts.next());
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<i32>().ok());
        match (kind, number(value), number(period), parts.next()) {
            (Some(kind @ ("Pods" | "Percent")), Some(value), Some(period), None) => {
                Ok(json!({"type": kind, "value": value, "periodSeconds": period}))
            }
            _ => Err(FORM),
        }
    };
    let rates: Vec<Value> = text.split(',').map(rate).collect::<Result<_, _>>()?;
    if rates.len() > MAX_POLICIES { Err("must have at most 16 rates") } else { Ok(Value::Array(rates)) }
}

/// Checks an HPA by the rules of the API server, which the embedded cluster implements.
fn check(hpa: &Value) -> Result<(), WhatIfError> {
    let mut object = hpa.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        fields.insert("apiVersion".to_owned(), json!("autoscaling/v2"));
        fields.insert("kind".to_owned(), json!("HorizontalPodAutoscaler"));
    }
    let Err(status) = Cluster::new(Arc::new(SystemClock)).create(object) else { return Ok(()) };
    let details = status.details.clone().unwrap_or_default();
    let cause = |field: &str| text(&details, &format!("/causes/0/{field}")).to_owned();
    let (path, message) = (cause("field"), cause("message"));
    let message = if message.is_empty() { status.message } else { format!("{path}: {message}") };
    Err(WhatIfError { field: field_of(&path), message })
}

/// Returns the field of the form for the path in an error of the API server.
fn field_of(path: &str) -> Option<String> {
    let direction = if path.contains("scaleUp") { "up" } else { "down" };
    let rule = |name: &str| Some(format!("{direction}{name}"));
    match path {
        _ if path.ends_with("minReplicas") => Some("min".to_owned()),
        _ if path.ends_with("maxReplicas") => Some("max".to_owned()),
        _ if path.contains("stabilizationWindowSeconds") => rule("Window"),
        _ if path.contains("tolerance") => rule("Tolerance"),
        _ if path.contains("selectPolicy") => rule("Select"),
        _ if path.contains("policies") => rule("Policies"),
        _ => {
            let index = path.strip_prefix("spec.metrics[")?.split_once(']')?.0;
            Some(format!("metric{index}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hpa() -> Value {
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "7"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 2, "maxReplicas": 12,
                "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
                    {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "100"}}},
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300, "selectPolicy": "Min",
                    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}, {"type": "Percent", "value": 10, "periodSeconds": 15}]}},
            },
            "status": {"currentReplicas": 3, "desiredReplicas": 3},
        })
    }

    fn asked(fields: &[(&str, &str)]) -> Result<Asked, (Option<String>, String)> {
        let field = |(name, value): &(&str, &str)| Field { name: (*name).into(), value: (*value).into() };
        let fields: Vec<_> = fields.iter().map(field).collect();
        apply(&hpa(), &fields).map_err(|error| (error.field, error.message))
    }

    #[test]
    fn form_has_the_values_of_the_hpa() {
        let form = serde_json::to_value(Form::new(&hpa())).unwrap();
        let expected = json!({
            "metrics": [
                {"index": 0, "name": "cpu", "kind": "averageUtilization", "value": "60"},
                {"index": 1, "name": "rps", "kind": "averageValue", "value": "100"},
            ],
            "min": 2, "max": 12,
            "up": {"window": null, "tolerance": "", "select": "", "policies": ""},
            "down": {"window": 300, "tolerance": "", "select": "Min", "policies": "Pods:4:60,Percent:10:15"},
            "policy": "",
        });
        assert_eq!(form, expected);
    }

    #[test]
    fn every_field_changes_its_path_only() {
        for (name, value, path, expected) in [
            ("min", "1", "/spec/minReplicas", json!(1)),
            ("min", "", "/spec/minReplicas", Value::Null),
            ("max", " 20 ", "/spec/maxReplicas", json!(20)),
            ("metric0", "70", "/spec/metrics/0/resource/target/averageUtilization", json!(70)),
            ("metric1", "250m", "/spec/metrics/1/pods/target/averageValue", json!("250m")),
            ("downWindow", "60", "/spec/behavior/scaleDown/stabilizationWindowSeconds", json!(60)),
            ("upWindow", "30", "/spec/behavior/scaleUp/stabilizationWindowSeconds", json!(30)),
            ("upTolerance", "0.05", "/spec/behavior/scaleUp/tolerance", json!("0.05")),
            ("downSelect", "Disabled", "/spec/behavior/scaleDown/selectPolicy", json!("Disabled")),
            ("downSelect", "", "/spec/behavior/scaleDown/selectPolicy", Value::Null),
            (
                "upPolicies",
                "Pods:8:30",
                "/spec/behavior/scaleUp/policies",
                json!([{"type": "Pods", "value": 8, "periodSeconds": 30}]),
            ),
            (
                "policy",
                "mode: Paused",
                "/metadata/annotations/concertina.dev~1policy",
                json!("mode: Paused\n"),
            ),
        ] {
            let Ok(asked) = asked(&[(name, value)]) else { panic!("{name}: {:?}", asked(&[(name, value)])) };
            assert_eq!(*at(&asked.hpa, path), expected, "{name}={value}");
            let (mut changed, mut before) = (asked.hpa, hpa());
            for object in [&mut changed, &mut before] {
                set(object, path, Some(json!("same")));
            }
            assert_eq!(changed, before, "{name}={value} changes something else");
        }
        assert_eq!(asked(&[]).unwrap(), Asked { hpa: hpa(), hours: 1 });
        assert_eq!(asked(&[("hours", "24")]).unwrap().hours, 24);
        // Removing a field that is absent adds no parents.
        assert_eq!(asked(&[("upWindow", ""), ("policy", "")]).unwrap().hpa, hpa());
    }

    #[test]
    fn error_names_the_field() {
        for (name, value, field, message) in [
            ("max", "x", "max", "\"x\": must be a whole number"),
            ("max", "", "max", "\"\": must be a whole number"),
            ("max", "1", "max", "spec.maxReplicas: "),
            ("min", "99", "max", "spec.maxReplicas: "),
            ("min", "-1", "min", "spec.minReplicas: "),
            ("hours", "25", "hours", "must be a number of hours from 1 to 24"),
            ("hours", "-1", "hours", "must be a number of hours"),
            ("metric0", "0", "metric0", "spec.metrics[0]"),
            ("metric0", "6x", "metric0", "must be a whole number"),
            ("metric1", "many", "metric1", "must be a quantity"),
            ("downWindow", "3601", "downWindow", "stabilizationWindowSeconds"),
            ("upWindow", "99999999999", "upWindow", "must be a whole number"),
            ("upTolerance", "-1", "upTolerance", "tolerance"),
            ("downSelect", "Most", "downSelect", "must be Max, Min or Disabled"),
            ("upPolicies", "Pods:4", "upPolicies", "TYPE:VALUE:SECONDS"),
            ("upPolicies", "Pods:0:60", "upPolicies", "policies"),
            ("downPolicies", "Pods:4:60:1", "downPolicies", "TYPE:VALUE:SECONDS"),
            ("policy", "a: [", "policy", "the policy"),
            ("policy", "nothing: 1", "policy", "nothing"),
        ] {
            let Err((found, text)) = asked(&[(name, value)]) else { panic!("{name}={value} is accepted") };
            assert_eq!(found.as_deref(), Some(field), "{name}={value}: {text}");
            assert!(text.contains(message), "{name}={value}: {text}");
        }
        for name in ["metric7", "metric", "sideWindow", "upWindows", "spec", ""] {
            let (field, text) = asked(&[(name, "1")]).unwrap_err();
            assert_eq!(field, None, "{name}");
            assert_eq!(text, format!("unknown field {name:?}"));
        }
    }
}
