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
        ("policy", "mode: Paused", "/metadata/annotations/concertina.dev~1policy", json!("mode: Paused\n")),
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
