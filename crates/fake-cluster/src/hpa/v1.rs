//! HPAs of autoscaling/v1, which have only a cpu target. Annotations hold the other fields, in the form of the alpha API
//! (`pkg/apis/autoscaling/v1/conversion.go`, Kubernetes 1.37).

use autoscaling::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::object;

/// The group and version. Earlier versions of `kubectl autoscale` use this API.
pub(crate) const V1: (&str, &str) = ("autoscaling", "v1");

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
/// Encoded without the names of the fields in JSON: `{"ScaleUp":{"SelectPolicy":"Max"}}`.
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
/// The annotations that a conversion removes. The last two are removed without effect.
const ALL: [&str; 6] = [
    METRICS,
    BEHAVIOR,
    CURRENT_METRICS,
    CONDITIONS,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// The types of metrics, as fields.
const SOURCES: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

/// The names of the fields of a value in both APIs.
struct Names {
    /// The field of v2.
    values: &'static str,
    utilization: &'static str,
    average: &'static str,
    value: &'static str,
}

const TARGET: Names = Names {
    values: "target",
    utilization: "targetAverageUtilization",
    average: "targetAverageValue",
    value: "targetValue",
};
const CURRENT: Names = Names {
    values: "current",
    utilization: "currentAverageUtilization",
    average: "currentAverageValue",
    value: "currentValue",
};

/// A field of an annotation has the wrong type, so the whole annotation has no effect.
struct WrongType;

/// Converts an HPA or a list of HPAs from v2. Does not change other responses, such as a Status or a table.
pub(crate) fn from_v2(mut answer: Value) -> Value {
    match object::text(&answer, &["kind"]) {
        "HorizontalPodAutoscaler" => one_from_v2(&mut answer),
        "HorizontalPodAutoscalerList" => {
            let items = answer.get_mut("items").and_then(Value::as_array_mut);
            items.into_iter().flatten().for_each(one_from_v2);
        }
        _ => return answer,
    }
    object::map(&mut answer).insert("apiVersion".to_owned(), "autoscaling/v1".into());
    answer
}

fn one_from_v2(hpa: &mut Value) {
    let mut kept = Vec::new();
    let list = |metrics: &[Value], names: &Names| {
        let metrics: Vec<Value> = metrics.iter().map(|metric| metric_from_v2(metric, names)).collect();
        (!metrics.is_empty()).then(|| Value::from(metrics))
    };
    let spec = object::section(hpa, "spec");
    if let Some(Value::Array(mut metrics)) = spec.remove("metrics") {
        let percent = metrics.iter().find_map(|metric| cpu(metric, "target"));
        object::put(spec, "targetCPUUtilizationPercentage", percent.map(Value::from));
        metrics.retain(|metric| cpu(metric, "target").is_none());
        kept.push((METRICS, list(&metrics, &TARGET)));
    }
    kept.push((BEHAVIOR, spec.remove("behavior").map(capitalized)));
    let status = object::section(hpa, "status");
    if let Some(Value::Array(metrics)) = status.remove("currentMetrics") {
        let percent = metrics.iter().find_map(|metric| cpu(metric, "current"));
        object::put(status, "currentCPUUtilizationPercentage", percent.map(Value::from));
        kept.push((CURRENT_METRICS, list(&metrics, &CURRENT)));
    }
    kept.push((CONDITIONS, status.remove("conditions")));
    object::default(status, "currentReplicas", 0);
    let annotations =
        object::map(object::section(hpa, "metadata").entry("annotations").or_insert(Value::Null));
    annotations.retain(|name, _| !ALL.contains(&name.as_str()));
    for (name, value) in kept.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        annotations.insert(name.to_owned(), value.to_string().into());
    }
    if annotations.is_empty() {
        object::section(hpa, "metadata").remove("annotations");
    }
}

/// Converts an HPA to v2. An annotation that cannot be decoded has no effect. The status is dropped, because v1 requests
/// do not write it.
pub(crate) fn to_v2(mut hpa: Value) -> Value {
    let (mut metrics, mut behavior) = (Vec::new(), None);
    if let Some(annotations) = hpa.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        let decoded = |name: &str| serde_json::from_str::<Value>(annotations.get(name)?.as_str()?).ok();
        if let Some(Value::Array(others)) = decoded(METRICS) {
            metrics = others.iter().map(metric_to_v2).collect::<Result<_, _>>().unwrap_or_default();
        }
        behavior = decoded(BEHAVIOR).and_then(|behavior| behavior_to_v2(&behavior).ok().flatten());
        annotations.retain(|name, _| !ALL.contains(&name.as_str()));
        if annotations.is_empty() {
            object::section(&mut hpa, "metadata").remove("annotations");
        }
    }
    let spec = object::section(&mut hpa, "spec");
    if let Some(percent) = spec.remove("targetCPUUtilizationPercentage").filter(|percent| !percent.is_null())
    {
        let target = json!({ "type": "Utilization", "averageUtilization": percent });
        metrics.push(json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } }));
    }
    spec.insert("metrics".to_owned(), metrics.into());
    object::put(spec, "behavior", behavior);
    let fields = object::map(&mut hpa);
    fields.remove("status");
    fields.insert("apiVersion".to_owned(), "autoscaling/v2".into());
    hpa
}

/// Converts a metric to the alpha form.
fn metric_from_v2(metric: &Value, names: &Names) -> Value {
    let mut alpha = metric.clone();
    for source in SOURCES {
        let Some(fields) = alpha.get_mut(source).and_then(Value::as_object_mut) else { continue };
        let values = fields.remove(names.values).unwrap_or_default();
        let mut set = |name: &str, value: Option<&Value>| {
            object::put(fields, name, value.filter(|value| !value.is_null()).cloned());
        };
        let zero = json!("0");
        let required = |name: &str| Some(values.get(name).unwrap_or(&zero));
        match source {
            "object" => {
                set("averageValue", values.get("averageValue"));
                set(names.value, required("value"));
            }
            "pods" => set(names.average, required("averageValue")),
            "external" => {
                let is_current = names.values == "current";
                set(names.value, if is_current { required("value") } else { values.get("value") });
                set(names.average, values.get("averageValue"));
            }
            _ => {
                let is_current = names.values == "current";
                set(names.utilization, values.get("averageUtilization"));
                let average = values.get("averageValue");
                set(names.average, if is_current { required("averageValue") } else { average });
            }
        }
        if let Some(described) = fields.remove("describedObject") {
            fields.insert("target".to_owned(), described);
        }
        if let Some(Value::Object(mut named)) = fields.remove("metric") {
            object::put(fields, "metricName", named.remove("name"));
            let selector = if source == "external" { "metricSelector" } else { "selector" };
            object::put(fields, selector, named.remove("selector"));
        }
    }
    alpha
}

/// Converts a metric from the alpha form.
fn metric_to_v2(alpha: &Value) -> Result<Value, WrongType> {
    let mut metric = json!({ "type": text(alpha, "type")? });
    for name in SOURCES {
        let Some(source) = field(alpha, name) else { continue };
        source.as_object().ok_or(WrongType)?;
        let (average, value) = (quantity(source, TARGET.average)?, quantity(source, TARGET.value)?);
        let zero = || Some(json!("0"));
        let mut target = Map::new();
        let mut converted = Map::new();
        let kind = match name {
            "object" => {
                let average = quantity(source, "averageValue")?;
                let kind = if average.is_some() { "AverageValue" } else { "Value" };
                let value = if average.is_none() {
                    value.or_else(zero)
                } else {
                    value.filter(|value| !is_zero(value))
                };
                object::put(&mut target, "value", value);
                object::put(&mut target, "averageValue", average);
                object::put(&mut converted, "describedObject", described(source)?);
                kind
            }
            "pods" => {
                object::put(&mut target, "averageValue", average.or_else(zero));
                "AverageValue"
            }
            "external" => {
                let kind = if value.is_some() { "Value" } else { "AverageValue" };
                object::put(&mut target, "value", value);
                object::put(&mut target, "averageValue", average);
                kind
            }
            _ => {
                let utilization = integer(source, TARGET.utilization)?;
                let kind = if utilization.is_some() { "Utilization" } else { "AverageValue" };
                object::put(&mut target, "averageUtilization", utilization);
                object::put(&mut target, "averageValue", average);
                for field in ["name", "container"] {
                    let text = text(source, field)?;
                    object::put(&mut converted, field, Some(text.into()).filter(|_| !text.is_empty()));
                }
                kind
            }
        };
        target.insert("type".to_owned(), kind.into());
        converted.insert("target".to_owned(), target.into());
        if !name.to_ascii_lowercase().contains("resource") {
            let mut named = json!({ "name": text(source, "metricName")? });
            let selector = if name == "external" { "metricSelector" } else { "selector" };
            object::put(object::map(&mut named), "selector", field(source, selector).cloned());
            converted.insert("metric".to_owned(), named);
        }
        object::map(&mut metric).insert(name.to_owned(), converted.into());
    }
    Ok(metric)
}

fn described(source: &Value) -> Result<Option<Value>, WrongType> {
    let Some(target) = field(source, "target") else { return Ok(None) };
    let mut described = Map::new();
    for name in ["kind", "name", "apiVersion"] {
        let text = text(target, name)?;
        object::put(&mut described, name, Some(text.into()).filter(|_| !text.is_empty()));
    }
    Ok(Some(described.into()))
}

/// Converts a behavior from the annotation. `None` if it is empty.
fn behavior_to_v2(encoded: &Value) -> Result<Option<Value>, WrongType> {
    let mut behavior = Map::new();
    for direction in ["scaleUp", "scaleDown"] {
        let Some(rules) = field(encoded, direction) else { continue };
        rules.as_object().ok_or(WrongType)?;
        let mut decoded = Map::new();
        object::put(
            &mut decoded,
            "stabilizationWindowSeconds",
            integer(rules, "stabilizationWindowSeconds")?,
        );
        object::put(&mut decoded, "tolerance", quantity(rules, "tolerance")?);
        if field(rules, "selectPolicy").is_some() {
            object::put(&mut decoded, "selectPolicy", Some(text(rules, "selectPolicy")?.into()));
        }
        if let Some(policies) = field(rules, "policies") {
            let policy = |policy: &Value| {
                let number = |name| integer(policy, name).map(Option::unwrap_or_default);
                let (value, period) = (number("value")?, number("periodSeconds")?);
                Ok(json!({ "type": text(policy, "type")?, "value": value, "periodSeconds": period }))
            };
            let policies = policies.as_array().ok_or(WrongType)?.iter();
            let policies = policies.map(policy).collect::<Result<Vec<_>, _>>()?;
            decoded.insert("policies".to_owned(), policies.into());
        }
        behavior.insert(direction.to_owned(), decoded.into());
    }
    Ok((!behavior.is_empty()).then(|| behavior.into()))
}

/// Capitalises the first letter of each name.
fn capitalized(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let capital = |mut name: String| {
                if let Some(first) = name.get_mut(..1) {
                    first.make_ascii_uppercase();
                }
                name
            };
            fields.into_iter().map(|(name, value)| (capital(name), capitalized(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(capitalized).collect(),
        value => value,
    }
}

/// A field that is not null. As in Go, an exact name takes precedence over one with another case.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let fields = value.as_object()?;
    let other = || fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    fields.get(name).or_else(other).filter(|value| !value.is_null())
}

/// A text, or an empty text if it is absent.
fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str, WrongType> {
    field(value, name).map_or(Ok(""), |found| found.as_str().ok_or(WrongType))
}

/// An integer of 32 bits. `None` if it is absent.
fn integer(value: &Value, name: &str) -> Result<Option<Value>, WrongType> {
    let Some(found) = field(value, name) else { return Ok(None) };
    let fits = found.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
    if fits { Ok(Some(found.clone())) } else { Err(WrongType) }
}

/// A quantity in its canonical form. `None` if it is absent.
fn quantity(value: &Value, name: &str) -> Result<Option<Value>, WrongType> {
    let text = match field(value, name) {
        None => return Ok(None),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(_) => return Err(WrongType),
    };
    let quantity = text.parse::<Quantity>().map_err(|_| WrongType)?;
    Ok(Some(quantity.to_string().into()))
}

fn is_zero(quantity: &Value) -> bool {
    super::sign(quantity).is_eq()
}

/// Returns the cpu utilization of a metric. `key` is `target` or `current`.
fn cpu(metric: &Value, key: &str) -> Option<i64> {
    let resource = object::at(metric, &["resource"])?;
    let is_cpu = object::text(resource, &["name"]) == "cpu";
    object::int(resource, &[key, "averageUtilization"]).filter(|_| is_cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(annotations: &Value) -> Value {
        to_v2(json!({
            "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
            "metadata": { "name": "web", "annotations": annotations },
            "spec": { "maxReplicas": 6, "targetCPUUtilizationPercentage": 70 },
        }))
    }

    #[test]
    fn alpha_annotations_are_decoded_in_any_case() {
        let metrics = json!([
            { "type": "Resource", "resource": { "name": "memory", "TargetAverageUtilization": 80 } },
            { "type": "ContainerResource",
              "containerResource": { "name": "cpu", "container": "app", "targetAverageValue": "0.5" } },
            { "Type": "Pods", "pods": { "metricname": "sessions", "targetAverageValue": 40 } },
            { "type": "Object", "object": { "metricName": "hits", "targetValue": "2k",
              "target": { "kind": "Service", "name": "web", "apiVersion": "v1" } } },
            { "type": "External", "external": { "metricName": "queue", "targetAverageValue": "5",
              "metricSelector": { "matchLabels": { "a": "b" } } } },
        ]);
        let behavior = json!({
            "ScaleDown": { "StabilizationWindowSeconds": 60, "SelectPolicy": "Min", "Tolerance": null,
                "Policies": [{ "Type": "Pods", "Value": 1, "PeriodSeconds": 120 }] },
            "scaleup": { "selectPolicy": "Disabled" },
        });
        let hpa =
            with(&json!({ METRICS: metrics.to_string(), BEHAVIOR: behavior.to_string(), "kept": "yes" }));
        let expected = json!([
            { "type": "Resource",
              "resource": { "name": "memory", "target": { "type": "Utilization", "averageUtilization": 80 } } },
            { "type": "ContainerResource", "containerResource": { "name": "cpu", "container": "app",
              "target": { "type": "AverageValue", "averageValue": "500m" } } },
            { "type": "Pods", "pods": { "metric": { "name": "sessions" },
              "target": { "type": "AverageValue", "averageValue": "40" } } },
            { "type": "Object", "object": { "metric": { "name": "hits" },
              "describedObject": { "kind": "Service", "name": "web", "apiVersion": "v1" },
              "target": { "type": "Value", "value": "2k" } } },
            { "type": "External", "external": {
              "metric": { "name": "queue", "selector": { "matchLabels": { "a": "b" } } },
              "target": { "type": "AverageValue", "averageValue": "5" } } },
            { "type": "Resource",
              "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 70 } } },
        ]);
        assert_eq!(hpa["spec"]["metrics"], expected);
        let policies = json!([{ "type": "Pods", "value": 1, "periodSeconds": 120 }]);
        let down = json!({ "stabilizationWindowSeconds": 60, "selectPolicy": "Min", "policies": policies });
        let expected = json!({ "scaleDown": down, "scaleUp": { "selectPolicy": "Disabled" } });
        assert_eq!(hpa["spec"]["behavior"], expected);
        assert_eq!(hpa["metadata"]["annotations"], json!({ "kept": "yes" }));
        // And back.
        let old = from_v2(hpa.clone());
        assert_eq!(old["spec"], json!({ "maxReplicas": 6, "targetCPUUtilizationPercentage": 70 }));
        let encoded = old["metadata"]["annotations"][BEHAVIOR].as_str().unwrap();
        assert!(encoded.contains(r#""SelectPolicy":"Disabled""#), "{encoded}");
        let encoded = old["metadata"]["annotations"][METRICS].as_str().unwrap();
        assert!(encoded.contains(r#""targetAverageUtilization":80"#), "{encoded}");
        assert_eq!(to_v2(old), hpa);
    }

    #[test]
    fn annotation_that_cannot_be_decoded_has_no_effect() {
        for metrics in [
            "[",
            "{}",
            r#"[{"type":5}]"#,
            r#"[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":"80"}}]"#,
            r#"[{"type":"Pods","pods":{"metricName":"a","targetAverageValue":"x"}}]"#,
        ] {
            let hpa = with(&json!({ METRICS: metrics, BEHAVIOR: "{}", CONDITIONS: "[]" }));
            assert_eq!(hpa["spec"]["metrics"].as_array().unwrap().len(), 1, "{metrics}");
            assert_eq!(hpa["spec"].get("behavior"), None);
            assert_eq!(hpa["metadata"].get("annotations"), None);
        }
    }

    #[test]
    fn status_is_kept_in_annotations() {
        let old = from_v2(json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": { "name": "web" }, "spec": {},
            "status": { "desiredReplicas": 2, "conditions": [{ "type": "AbleToScale" }], "currentMetrics": [
                { "type": "Resource", "resource": { "name": "cpu",
                  "current": { "averageUtilization": 50, "averageValue": "5m" } } },
            ] },
        }));
        let expected =
            json!({ "desiredReplicas": 2, "currentReplicas": 0, "currentCPUUtilizationPercentage": 50 });
        assert_eq!(old["status"], expected);
        let annotations = &old["metadata"]["annotations"];
        let current: Value = serde_json::from_str(annotations[CURRENT_METRICS].as_str().unwrap()).unwrap();
        let resource = json!({ "name": "cpu", "currentAverageUtilization": 50, "currentAverageValue": "5m" });
        assert_eq!(current, json!([{ "type": "Resource", "resource": resource }]));
        assert_eq!(annotations[CONDITIONS], r#"[{"type":"AbleToScale"}]"#);
    }
}
