//! HorizontalPodAutoscalers: defaults, canonical quantities, conversion to autoscaling/v1, and targets for tables.

use autoscaling::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::object::{self, at, list, text};
use crate::status::Status;

/// Sets the defaults of `pkg/apis/autoscaling/v2/defaults.go` (Kubernetes 1.37): `minReplicas`, `metrics`, and the
/// fields of a present `behavior`.
pub(crate) fn apply_defaults(hpa: &mut Value) {
    let spec = object::section(hpa, "spec");
    object::default(spec, "minReplicas", 1);
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let cpu = json!([{
            "type": "Resource",
            "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 80 } },
        }]);
        spec.insert("metrics".to_owned(), cpu);
    }
    if let Some(Value::Object(behavior)) = spec.get_mut("behavior") {
        let up = default_rules(behavior, "scaleUp");
        object::default(up, "stabilizationWindowSeconds", 0);
        object::default(
            up,
            "policies",
            json!([
                { "type": "Pods", "value": 4, "periodSeconds": 15 },
                { "type": "Percent", "value": 100, "periodSeconds": 15 },
            ]),
        );
        let down = default_rules(behavior, "scaleDown");
        object::default(down, "policies", json!([{ "type": "Percent", "value": 100, "periodSeconds": 15 }]));
    }
}

fn default_rules<'a>(behavior: &'a mut Map<String, Value>, direction: &str) -> &'a mut Map<String, Value> {
    let rules = object::map(behavior.entry(direction).or_insert(Value::Null));
    object::default(rules, "selectPolicy", "Max");
    rules
}

/// The group and version of the older API, which has only a cpu target. Earlier versions of `kubectl autoscale` use
/// this API.
pub(crate) const V1: (&str, &str) = ("autoscaling", "v1");

/// The annotations with the fields that v1 lacks. They have Kubernetes' names, but values encoded as in v2.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// Maximum number of metrics in a table before `+ N more...`.
const SHOWN: usize = 2;

/// The integer fields. All except `observedGeneration` have 32 bits.
const INTEGERS: [&str; 8] = [
    "minReplicas",
    "maxReplicas",
    "averageUtilization",
    "stabilizationWindowSeconds",
    "periodSeconds",
    "currentReplicas",
    "desiredReplicas",
    "observedGeneration",
];

/// Converts quantities to their canonical form, such as `0.5` to `500m`. Fails with 400 for values of the wrong type.
pub(crate) fn canonical(hpa: &mut Value) -> Result<(), Status> {
    for section in ["spec", "status"] {
        if let Some(value) = hpa.get_mut(section) {
            walk(section, value)?;
        }
    }
    Ok(())
}

/// Converts the status to the form that Go encodes. `desiredReplicas` is always present. An empty `currentMetrics` is
/// null. A `currentReplicas` of 0 and empty `conditions` are omitted.
pub(crate) fn complete_status(hpa: &mut Value) {
    let status = object::section(hpa, "status");
    object::default(status, "desiredReplicas", 0);
    if status.get("currentMetrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        status.insert("currentMetrics".to_owned(), Value::Null);
    }
    if status.get("currentReplicas") == Some(&0.into()) {
        status.remove("currentReplicas");
    }
    if status.get("conditions").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        status.remove("conditions");
    }
}

fn walk(parent: &str, value: &mut Value) -> Result<(), Status> {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut().filter(|(_, value)| !value.is_null()) {
                let in_target = matches!(parent, "target" | "current");
                let quantity =
                    in_target && matches!(key.as_str(), "value" | "averageValue") || key == "tolerance";
                if quantity {
                    *value = quantity_text(value)?.into();
                } else if INTEGERS.contains(&key.as_str()) || parent == "policies" && key == "value" {
                    check_integer(key, value)?;
                } else {
                    walk(key, value)?;
                }
            }
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| walk(parent, item))?,
        _ => {}
    }
    Ok(())
}

fn quantity_text(value: &Value) -> Result<String, Status> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(wrong("unable to parse quantity's suffix")),
    };
    text.parse::<Quantity>().map(|quantity| quantity.to_string()).map_err(|error| wrong(&error.to_string()))
}

fn check_integer(key: &str, value: &Value) -> Result<(), Status> {
    let fits =
        value.as_i64().is_some_and(|number| key == "observedGeneration" || i32::try_from(number).is_ok());
    if fits {
        return Ok(());
    }
    let got = match value {
        Value::String(_) => "string".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
        number => format!("number {number}"),
    };
    Err(wrong(&format!("json: cannot unmarshal {got} into Go struct field .{key} of type int32")))
}

fn wrong(cause: &str) -> Status {
    Status::bad_request(format!(
        "HorizontalPodAutoscaler in version \"v2\" cannot be handled as a HorizontalPodAutoscaler: {cause}"
    ))
}

/// Compares a stored quantity with 0.
pub(crate) fn sign(value: &Value) -> std::cmp::Ordering {
    let quantity = object::text(value, &[]).parse::<Quantity>().unwrap_or_default();
    quantity.cmp(&Quantity::default())
}

/// Converts an HPA or a list of HPAs from v2 to v1. Does not change other responses, such as a Status or a table.
pub(crate) fn to_v1(mut answer: Value) -> Value {
    match object::text(&answer, &["kind"]) {
        "HorizontalPodAutoscaler" => one_to_v1(&mut answer),
        "HorizontalPodAutoscalerList" => {
            let items = answer.get_mut("items").and_then(Value::as_array_mut);
            items.into_iter().flatten().for_each(one_to_v1);
        }
        _ => return answer,
    }
    object::map(&mut answer).insert("apiVersion".to_owned(), "autoscaling/v1".into());
    answer
}

fn one_to_v1(hpa: &mut Value) {
    let mut kept = Vec::new();
    let spec = object::section(hpa, "spec");
    if let Some(Value::Array(mut metrics)) = spec.remove("metrics") {
        if let Some(index) = metrics.iter().position(|metric| cpu(metric, "target").is_some()) {
            let percent = cpu(&metrics.remove(index), "target");
            object::put(spec, "targetCPUUtilizationPercentage", percent.map(Value::from));
        }
        kept.push((METRICS, (!metrics.is_empty()).then_some(Value::Array(metrics))));
    }
    kept.push((BEHAVIOR, spec.remove("behavior")));
    let status = object::section(hpa, "status");
    if let Some(Value::Array(metrics)) = status.remove("currentMetrics") {
        let percent = metrics.iter().find_map(|metric| cpu(metric, "current"));
        object::put(status, "currentCPUUtilizationPercentage", percent.map(Value::from));
        kept.push((CURRENT_METRICS, (!metrics.is_empty()).then_some(Value::Array(metrics))));
    }
    kept.push((CONDITIONS, status.remove("conditions")));
    object::default(status, "currentReplicas", 0);
    for (name, value) in kept.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        let annotations = object::section(hpa, "metadata").entry("annotations").or_insert(Value::Null);
        object::map(annotations).insert(name.to_owned(), value.to_string().into());
    }
}

/// Converts an HPA from v1 to v2. The status is dropped, because v1 requests do not write it.
pub(crate) fn to_v2(mut hpa: Value) -> Value {
    let mut kept = Map::new();
    let annotations = hpa.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        for name in [METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS] {
            let value = annotations.remove(name);
            let parsed = value.and_then(|value| serde_json::from_str(value.as_str()?).ok());
            object::put(&mut kept, name, parsed);
        }
    }
    let spec = object::section(&mut hpa, "spec");
    let mut metrics = Vec::new();
    if let Some(percent) = spec.remove("targetCPUUtilizationPercentage") {
        let target = json!({ "type": "Utilization", "averageUtilization": percent });
        metrics.push(json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } }));
    }
    if let Some(Value::Array(others)) = kept.remove(METRICS) {
        metrics.extend(others);
    }
    spec.insert("metrics".to_owned(), metrics.into());
    object::put(spec, "behavior", kept.remove(BEHAVIOR));
    let fields = object::map(&mut hpa);
    fields.remove("status");
    fields.insert("apiVersion".to_owned(), "autoscaling/v2".into());
    hpa
}

/// Returns the cpu utilization of a metric. `key` is `target` or `current`.
fn cpu(metric: &Value, key: &str) -> Option<i64> {
    let resource = object::at(metric, &["resource"])?;
    let is_cpu = object::text(resource, &["name"]) == "cpu";
    object::int(resource, &[key, "averageUtilization"]).filter(|_| is_cpu)
}

/// Returns the text of the column `Targets` of a table.
pub(crate) fn targets(hpa: &Value) -> String {
    let specs = list(hpa, &["spec", "metrics"]);
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let statuses = list(hpa, &["status", "currentMetrics"]);
    let shown: Vec<String> = specs
        .iter()
        .enumerate()
        .take(SHOWN)
        .map(|(index, spec)| metric(spec, statuses.get(index).unwrap_or(&Value::Null)))
        .collect();
    let shown = shown.join(", ");
    match specs.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

fn metric(spec: &Value, status: &Value) -> String {
    let field = match text(spec, &["type"]) {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        "External" => "external",
        _ => return "<unknown type>".to_owned(),
    };
    let (spec, status) = (at(spec, &[field]).unwrap_or(&Value::Null), at(status, &[field]));
    let target = |key: &str| at(spec, &["target", key]);
    let current = |key: &str| status.and_then(|status| at(status, &["current", key]));
    // As in Kubernetes, `loose` prints Go's nil if the status of the metric exists without the value. `strict` prints
    // `<unknown>`.
    let loose = |key: &str| match (status, current(key)) {
        (None, _) => "<unknown>".to_owned(),
        (_, value) => value.and_then(Value::as_str).unwrap_or("<nil>").to_owned(),
    };
    let strict = |key: &str| current(key).and_then(Value::as_str).unwrap_or("<unknown>").to_owned();
    let wanted = |key: &str| target(key).and_then(Value::as_str).unwrap_or("<nil>").to_owned();
    let averaged = target("averageValue").is_some();
    match field {
        "pods" => format!("{}/{}", loose("averageValue"), wanted("averageValue")),
        "object" | "external" if averaged => {
            format!("{}/{} (avg)", strict("averageValue"), wanted("averageValue"))
        }
        "object" | "external" => format!("{}/{}", loose("value"), wanted("value")),
        _ => {
            let name = text(spec, &["name"]);
            if averaged {
                return format!("{name}: {}/{}", loose("averageValue"), wanted("averageValue"));
            }
            let percent = |value: Option<&Value>, absent: &str| {
                value.and_then(Value::as_i64).map_or_else(|| absent.to_owned(), |value| format!("{value}%"))
            };
            let current = percent(current("averageUtilization"), "<unknown>");
            format!("{name}: {current}/{}", percent(target("averageUtilization"), "<auto>"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{targets, to_v1, to_v2};

    #[test]
    fn conversion_to_v1_and_back_keeps_fields_that_v1_lacks() {
        let cpu = json!({ "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 60 } });
        let queue = json!({ "metric": { "name": "q" }, "target": { "type": "Value", "value": "5" } });
        let hpa = json!({
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": { "name": "web", "annotations": {} },
            "spec": {
                "maxReplicas": 3,
                "metrics": [{ "type": "Resource", "resource": cpu }, { "type": "External", "external": queue }],
                "behavior": { "scaleUp": {} },
            },
        });
        let old = to_v1(hpa.clone());
        assert_eq!(old["apiVersion"], "autoscaling/v1");
        assert_eq!(old["spec"], json!({ "maxReplicas": 3, "targetCPUUtilizationPercentage": 60 }));
        assert_eq!(to_v2(old), hpa);
    }

    fn cpu(percent: i64) -> Value {
        json!({ "type": "Resource", "resource": { "name": "cpu", "target": { "averageUtilization": percent } } })
    }

    #[test]
    fn targets_show_current_and_target_values() {
        let external = json!({ "type": "External", "external": { "target": { "averageValue": "30" } } });
        let mut hpa = json!({ "spec": { "metrics": [cpu(80), external] } });
        assert_eq!(targets(&hpa), "cpu: <unknown>/80%, <unknown>/30 (avg)");
        hpa["status"]["currentMetrics"] = json!([
            { "type": "Resource", "resource": { "name": "cpu", "current": { "averageUtilization": 50 } } },
            { "type": "External", "external": { "current": { "averageValue": "1500m" } } },
        ]);
        assert_eq!(targets(&hpa), "cpu: 50%/80%, 1500m/30 (avg)");
    }

    #[test]
    fn targets_count_metrics_beyond_the_second() {
        let hpa = json!({ "spec": { "metrics": [cpu(1), cpu(2), cpu(3), cpu(4)] } });
        assert_eq!(targets(&hpa), "cpu: <unknown>/1%, cpu: <unknown>/2% + 2 more...");
        assert_eq!(targets(&json!({})), "<none>");
    }
}
