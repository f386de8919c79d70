//! autoscaling/v1: HPAs with only a cpu target. `kubectl autoscale` and older manifests use it.
//!
//! Annotations contain the fields that v1 lacks. The annotations have Kubernetes' names, but their values are
//! encoded as in v2.

use serde_json::{Map, Value, json};

use crate::object;

pub(crate) const GROUP_VERSION: (&str, &str) = ("autoscaling", "v1");

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// Converts an HPA or a list of HPAs from v2 to v1. Other responses (a Status, a table) stay unchanged.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{from_v2, to_v2};

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
        let old = from_v2(hpa.clone());
        assert_eq!(old["apiVersion"], "autoscaling/v1");
        assert_eq!(old["spec"], json!({ "maxReplicas": 3, "targetCPUUtilizationPercentage": 60 }));
        assert_eq!(to_v2(old), hpa);
    }
}
