//! Decoding, defaults, conversion and validation of HorizontalPodAutoscalers.

use autoscaling::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::object;
use crate::status::Status;

pub(crate) mod v1;
pub(crate) mod validation;

/// Sets the defaults of `pkg/apis/autoscaling/v2/defaults.go` (Kubernetes 1.37): `minReplicas`, `metrics` and,
/// if there is a `behavior`, the rules of both directions, field by field.
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

/// Integer fields. All have 32 bits, except for `observedGeneration`.
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

/// Prints quantities canonically (`0.5` becomes `500m`). Fails with 400 for values of the wrong type.
pub(crate) fn canonical(hpa: &mut Value) -> Result<(), Status> {
    for section in ["spec", "status"] {
        if let Some(value) = hpa.get_mut(section) {
            walk(section, value)?;
        }
    }
    Ok(())
}

/// Converts the status to the form that Go encodes. `desiredReplicas` and `currentMetrics` are always
/// present: an absent count is 0, and an empty list is null. A `currentReplicas` of 0 and an empty list of
/// conditions are omitted.
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

/// Whether a stored quantity is positive.
pub(crate) fn is_positive(value: &Value) -> bool {
    sign(value).is_gt()
}

/// Whether a stored quantity is negative.
pub(crate) fn is_negative(value: &Value) -> bool {
    sign(value).is_lt()
}

fn sign(value: &Value) -> std::cmp::Ordering {
    let quantity = object::text(value, &[]).parse::<Quantity>().unwrap_or_default();
    quantity.cmp(&Quantity::default())
}
