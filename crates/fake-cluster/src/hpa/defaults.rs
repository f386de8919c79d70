//! Defaults of an HPA (`pkg/apis/autoscaling/v2/defaults.go` of Kubernetes 1.37).

use serde_json::{Map, Value, json};

use crate::object;

/// Sets `minReplicas`, `metrics` and, if there is a `behavior`, the rules of both directions, field by field.
pub(crate) fn apply(hpa: &mut Value) {
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
        let up = rules(behavior, "scaleUp");
        object::default(up, "stabilizationWindowSeconds", 0);
        object::default(
            up,
            "policies",
            json!([
                { "type": "Pods", "value": 4, "periodSeconds": 15 },
                { "type": "Percent", "value": 100, "periodSeconds": 15 },
            ]),
        );
        let down = rules(behavior, "scaleDown");
        object::default(down, "policies", json!([{ "type": "Percent", "value": 100, "periodSeconds": 15 }]));
    }
}

fn rules<'a>(behavior: &'a mut Map<String, Value>, direction: &str) -> &'a mut Map<String, Value> {
    let rules = object::map(behavior.entry(direction).or_insert(Value::Null));
    object::default(rules, "selectPolicy", "Max");
    rules
}
