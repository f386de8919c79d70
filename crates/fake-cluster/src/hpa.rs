//! HorizontalPodAutoscalers: defaults, canonical quantities, and targets for tables.

pub(crate) mod v1;

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

    use super::targets;

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
