#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use cluster::decode;
use serde_json::{Value, json};

use super::*;

fn object(conditions: &Value) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "web", "labels": {"app": "web"}},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
            "minReplicas": 2, "maxReplicas": 12,
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
                {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "8"}}},
                {"type": "Other"},
            ],
        },
        "status": {
            "currentReplicas": 12, "desiredReplicas": 12, "lastScaleTime": "2030-01-01T00:00:00Z",
            "currentMetrics": [
                {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 120, "averageValue": "120m"}}},
                {"type": ""},
            ],
            "conditions": conditions,
        },
    })
}

fn row(object: &Value, history: Vec<Count>) -> Row {
    Row::new(&decode::hpa(object.to_string().as_bytes()).unwrap(), history)
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "text", "lastTransitionTime": "2030-01-01T00:01:00Z"})
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn row_has_target_bounds_counts_and_labels() {
    let row = row(&object(&json!([])), Vec::new());
    assert_eq!((row.target.as_str(), row.min, row.max), ("Deployment/web", 2, 12));
    assert_eq!((row.current, row.desired), (12, 12));
    assert_eq!(row.labels["app"], "web");
    assert_eq!(row.state, State::Undecided);
}

#[test]
fn metrics_are_compared_with_their_targets() {
    let metrics = row(&object(&json!([])), Vec::new()).metrics;
    assert_eq!(metrics[0].name, "cpu");
    assert_eq!((metrics[0].value.as_deref(), metrics[0].target.as_deref()), (Some("120 %"), Some("80 %")));
    assert_eq!(metrics[0].ratio, Some(1.5));
    // The second metric has failed, and the third metric is invalid.
    assert_eq!((metrics[1].value.as_deref(), metrics[1].target.as_deref()), (None, Some("8 per pod")));
    assert_eq!((metrics[2].target.as_deref(), metrics[2].ratio), (None, None));
}

#[test]
fn state_is_the_most_severe_condition() {
    let able = |reason| condition("AbleToScale", "True", reason);
    let active = condition("ScalingActive", "True", "ValidMetricFound");
    let limited = |reason| condition("ScalingLimited", "True", reason);
    let policy = |status, reason| condition(CONDITION, status, reason);
    for (conditions, state) in [
        (json!([condition("AbleToScale", "False", "FailedGetScale")]), State::Unable),
        (
            json!([
                able("SucceededGetScale"),
                condition("ScalingActive", "False", "FailedGetResourceMetric")
            ]),
            State::Unable,
        ),
        (
            json!([able("SucceededGetScale"), condition("ScalingActive", "False", "ScalingDisabled")]),
            State::Paused,
        ),
        (json!([able("ReadyForNewScale"), active, limited("TooManyReplicas")]), State::Maximum),
        (json!([able("SucceededRescale"), active, limited("ScaleUpLimit")]), State::Held),
        (json!([able("ScaleDownStabilized"), active]), State::Held),
        (json!([able("ReadyForNewScale"), active, limited("TooFewReplicas")]), State::Fine),
        (json!([able("ScaleDownStabilized"), active, policy("True", "Paused")]), State::Policy),
        (json!([able("ReadyForNewScale"), active, policy("True", "FallbackActive")]), State::Policy),
        (json!([able("ReadyForNewScale"), active, policy("True", "ScheduleActive")]), State::Fine),
        (json!([able("ReadyForNewScale"), active, policy("True", "Unknown")]), State::Fine),
        (json!([able("ReadyForNewScale"), active, policy("False", "NoEffect")]), State::Fine),
        (
            json!([able("ReadyForNewScale"), limited("TooManyReplicas"), policy("True", "Paused")]),
            State::Maximum,
        ),
        (json!([able("ReadyForNewScale"), active]), State::Fine),
    ] {
        assert_eq!(row(&object(&conditions), Vec::new()).state, state, "{conditions}");
    }
    assert!(State::Unable < State::Maximum && State::Held < State::Fine);
}

#[test]
fn policy_is_named_only_while_it_has_an_effect() {
    let of = |status, reason| row(&object(&json!([condition(CONDITION, status, reason)])), Vec::new());
    assert_eq!(of("True", "ScheduleActive").policy.as_deref(), Some("text"));
    assert_eq!(of("False", "NoEffect").policy, None);
    let paused = of("True", "Paused");
    assert_eq!((paused.state, paused.reason.as_str()), (State::Policy, "Paused: text"));
    assert_eq!(paused.since, Some("2030-01-01T00:01:00Z".parse().unwrap()));
}

#[test]
fn reason_names_the_condition_and_its_time() {
    let row = row(&object(&json!([condition("AbleToScale", "False", "FailedGetScale")])), Vec::new());
    assert_eq!(row.reason, "FailedGetScale: text");
    assert_eq!(row.since, Some("2030-01-01T00:01:00Z".parse().unwrap()));
}

#[test]
fn four_direction_changes_are_flapping() {
    let counts = [2, 4, 2, 4, 2, 4];
    let history: Vec<_> = counts
        .iter()
        .zip(0..)
        .map(|(replicas, second)| Count { at: at(second), replicas: *replicas })
        .collect();
    let conditions = json!([condition("ScalingActive", "True", "ValidMetricFound")]);
    assert_eq!(row(&object(&conditions), history.clone()).state, State::Flapping);
    assert_eq!(row(&object(&conditions), history[1..].to_vec()).state, State::Fine);
}

#[test]
fn two_writers_within_two_minutes_are_a_contest() {
    let conditions = json!([condition("ScalingActive", "True", "ValidMetricFound")]);
    let mut object = object(&conditions);
    let writer = |manager: &str, time: &str| json!({"manager": manager, "operation": "Update", "subresource": "status", "time": time, "fieldsV1": {}});
    object["metadata"]["managedFields"] =
        json!([writer("kcm", "2030-01-01T00:00:00Z"), writer("concertina", "2030-01-01T00:01:00Z")]);
    let contested = row(&object, Vec::new());
    assert_eq!(contested.state, State::Contested);
    assert_eq!(contested.writers, ["concertina", "kcm"]);
    assert_eq!(contested.reason, "concertina and kcm wrote the status within two minutes");
    object["metadata"]["managedFields"][1]["time"] = "2030-01-01T00:10:00Z".into();
    assert_eq!(row(&object, Vec::new()).state, State::Fine);
}

#[test]
fn long_texts_and_many_metrics_are_cut() {
    let mut condition = condition("AbleToScale", "False", "FailedGetScale");
    condition["message"] = "é".repeat(2_000).into();
    let mut object = object(&json!([condition]));
    let one = object["spec"]["metrics"][0].clone();
    object["spec"]["metrics"] = vec![one; 100].into();
    let row = row(&object, Vec::new());
    assert_eq!(row.reason.chars().count(), MAX_TEXT + 1);
    assert_eq!(row.metrics.len(), MAX_METRICS);
}

fn decision(sentence: &str, last: i64, now: i64) -> LastDecision {
    let at = |second| Timestamp::from_second(second).unwrap();
    LastDecision::new(sentence, at(0), at(last), at(now), Duration::from_secs(15))
}

#[test]
fn decision_is_late_after_three_periods() {
    assert_eq!(decision("stays at 4", 100, 145).late_since, None);
    assert_eq!(decision("stays at 4", 100, 146).late_since, Some(Timestamp::from_second(100).unwrap()));
    assert_eq!(
        decision("stays at 4", 100, 0).late_since,
        None,
        "a clock that is behind makes no decision late"
    );
}

#[test]
fn sentence_has_no_time_that_passes() {
    let held =
        "stays at 7: cpu asks for 3, but the 5 min scale-down window still holds 7, for another 4 min 15 s";
    let expected = "stays at 7: cpu asks for 3, but the 5 min scale-down window still holds 7";
    assert_eq!(decision(held, 0, 0).sentence, expected);
    assert_eq!(decision("stays at 4: x", 0, 0).sentence, "stays at 4: x");
}
