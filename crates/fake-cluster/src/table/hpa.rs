//! The table row of an HPA.

use serde_json::Value;

use super::{Cell, cell};
use crate::object::{at, int, list, text};

/// Maximum number of metrics before `+ N more...`.
const SHOWN: usize = 2;

/// Returns the cells of one HPA.
pub(super) fn cells(hpa: &Value, name: Cell, age: Cell) -> Vec<Cell> {
    let target = |key: &str| text(hpa, &["spec", "scaleTargetRef", key]);
    let min = int(hpa, &["spec", "minReplicas"]).map_or_else(|| "<unset>".to_owned(), |min| min.to_string());
    vec![
        name,
        cell("Reference", format!("{}/{}", target("kind"), target("name"))),
        cell("Targets", targets(hpa)),
        cell("MinPods", min),
        cell("MaxPods", int(hpa, &["spec", "maxReplicas"]).unwrap_or(0)),
        cell("Replicas", int(hpa, &["status", "currentReplicas"]).unwrap_or(0)),
        age,
    ]
}

fn targets(hpa: &Value) -> String {
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
    // For some kinds of metrics, Kubernetes prints Go's nil if the metric exists without the value. For the
    // others, it prints `<unknown>`.
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
