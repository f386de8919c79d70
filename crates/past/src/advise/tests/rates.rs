//! Rate policies of `behavior` that cost pods or load.

use autoscaling::spec::Spec;

use super::*;
use crate::advise::rates::{Rates, complete, tried};

fn with_behavior(past: Past, behavior: Value) -> (Value, Spec) {
    let mut hpa = hpa(past);
    hpa["spec"]["behavior"] = behavior;
    let spec = serde_json::from_value(hpa["spec"].clone()).unwrap();
    (hpa, spec)
}

/// The row of a service under an HPA with `behavior`.
fn advised_with(past: Past, behavior: Value, load: impl Fn(usize) -> f64) -> Row {
    let (hpa, spec) = with_behavior(past, behavior);
    let start = "2026-11-02T00:00:00Z".parse().unwrap();
    // The API server adds the rates of the other direction.
    let choice = Hpa::new(&hpa).today.unwrap().choice;
    let behavior = spec.behavior.map(|behavior| complete(behavior, choice));
    row(&hpa, &services::record_with(past, Service::Linear, behavior, start, load))
}

#[test]
fn limit_of_scale_ups_that_makes_an_hpa_short_is_lifted() {
    // The load triples at nine within a minute, and one pod is added in five minutes.
    let steps = |minute: usize| if (9 * 60..17 * 60).contains(&(minute % DAY)) { 9.0 } else { 3.0 };
    let slow = json!({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}]}});
    let row = advised_with(PAST, slow, steps);
    let advice = row.advice.as_ref().unwrap_or_else(|| panic!("{:?}", row.why));
    let (settings, judged) = (advice.advised.settings, advice.advised.judged);
    assert_eq!((settings.scale_up_rates, settings.scale_down_rates), (Rates::Default, Rates::Kept));
    assert!(advice.is_short && judged.advised.unserved_ppm < 0.5 * judged.today.unserved_ppm, "{advice:?}");
    assert!(advice.sentences(&row).contains("; scale-ups at the default rates"), "{advice:?}");
    let document = serde_json::to_value(&row).unwrap();
    assert_eq!(document["advice"]["settings"]["scaleUpRates"], "default");
    assert_eq!(document["today"].get("scaleUpRates"), None);
}

#[test]
fn slow_scale_downs_that_cost_pods_are_not_kept() {
    // Each peak of two hours, which rises slowly, leaves pods that go one by one.
    let peaks = |minute: usize| if minute % 720 < 120 { 1.5 + (minute % 720) as f64 / 24.0 } else { 1.5 };
    let past = Past { target: 60, max: 20, ..PAST };
    let slow = json!({"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 900}]}});
    let row = advised_with(past, slow, peaks);
    let advice = row.advice.as_ref().unwrap_or_else(|| panic!("{:?}", row.why));
    assert_eq!(advice.advised.settings.scale_down_rates, Rates::Default, "{advice:?}");
    assert!(advice.advised.judged.saved_share() > 0.1, "{advice:?}");
}

#[test]
fn only_rates_that_limit_are_tried() {
    let (up, down) = ((Rates::Default, Rates::Kept), (Rates::Kept, Rates::Default));
    let rate = |kind: &str, value: i32| json!({"type": kind, "value": value, "periodSeconds": 15});
    let defaults = json!([rate("Pods", 4), rate("Percent", 100)]);
    for (behavior, is_short, expected) in [
        (json!({"scaleUp": {"policies": [rate("Pods", 1)]}}), true, vec![up]),
        (json!({"scaleUp": {"policies": [rate("Pods", 1)]}}), false, vec![]),
        (json!({"scaleUp": {"stabilizationWindowSeconds": 60}}), true, vec![up]),
        (json!({"scaleUp": {"policies": defaults}}), true, vec![]),
        (json!({"scaleUp": {"selectPolicy": "Min", "policies": defaults}}), true, vec![up]),
        (
            json!({"scaleUp": {"selectPolicy": "Disabled"}, "scaleDown": {"selectPolicy": "Disabled"}}),
            true,
            vec![],
        ),
        (json!({"scaleDown": {"policies": [rate("Percent", 100)]}}), true, vec![]),
        (
            json!({"scaleUp": {"policies": [rate("Pods", 1)]}, "scaleDown": {"policies": [rate("Percent", 10)]}}),
            true,
            vec![up, down, (Rates::Default, Rates::Default)],
        ),
    ] {
        let (_, spec) = with_behavior(PAST, behavior.clone());
        assert_eq!(tried(spec.behavior.as_ref(), is_short), expected, "{behavior}");
    }
}
