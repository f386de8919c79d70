//! The fields of the page's what-if form: their current values, and their changes of an HPA.

use std::sync::Arc;

use ::console::whatif::{Field, WhatIfError};
use autoscaling::quantity::Quantity;
use clock::SystemClock;
use controller::policy::ANNOTATION;
use fake_cluster::Cluster;
use policies::spec::{Level, parse};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::pointer::{at, list, text};

/// The fields of the metric sources.
const SOURCES: [&str; 5] = ["resource", "containerResource", "pods", "object", "external"];
/// The fields of a target with its value.
const VALUES: [&str; 3] = ["averageUtilization", "averageValue", "value"];
/// Maximum number of rate policies of a direction.
const MAX_POLICIES: usize = 16;
/// The allowed range of the time to simulate, in hours.
const HOURS: std::ops::RangeInclusive<u32> = 1..=24;

/// The current values of all fields.
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
    /// The index in the spec.
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

/// Formats a scalar without quotes. Null is empty.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        value => value.to_string(),
    }
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

/// Sets or removes the value at a pointer. Missing objects along the path are created.
fn set(object: &mut Value, path: &str, value: Option<Value>) {
    let Some((parents, last)) = path.rsplit_once('/') else { return };
    if value.is_none() && object.pointer(parents).is_none_or(Value::is_null) {
        return;
    }
    let key = |part: &str| part.replace("~1", "/").replace("~0", "~");
    let mut node = object;
    for part in parents.split('/').skip(1) {
        node = match node {
            Value::Array(items) => match part.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                Some(item) => item,
                None => return,
            },
            other => {
                if !other.is_object() {
                    *other = Value::Object(Map::new());
                }
                match other.as_object_mut() {
                    Some(fields) => fields.entry(key(part)).or_insert(Value::Null),
                    None => return,
                }
            }
        };
    }
    if !node.is_object() {
        *node = Value::Object(Map::new());
    }
    let Some(fields) = node.as_object_mut() else { return };
    match value {
        Some(value) => drop(fields.insert(key(last), value)),
        None => drop(fields.remove(&key(last))),
    }
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
mod tests;
