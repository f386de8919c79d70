//! The rebuilt history, compared with a controller that has the real one.

use serde_json::{Value, json};

use super::command::document;
use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

fn queue(items: &str, behavior: Value) -> Fixture {
    let stage = Fixture::new();
    stage.target("web", 4);
    stage.external("queue", items);
    let mut object = hpa("web", &[external("queue", "10")]);
    object["spec"]["maxReplicas"] = json!(100);
    if !behavior.is_null() {
        object["spec"]["behavior"] = behavior;
    }
    stage.create(object);
    stage
}

/// Runs a controller under a load that changes once a minute, and predicts every sync. Returns the number of
/// correct predictions, the number of all predictions, and the wrong ones.
async fn predict(behavior: Value, loads: &[u32]) -> (usize, usize, Vec<String>) {
    let rig = Harness::start(queue("20", behavior));
    let (mut right, mut all, mut wrong) = (0, 0, Vec::new());
    // The first rescale makes the size of the next one known.
    rig.until("the target is scaled down", 900.0, |stage| stage.replicas("web") == 2).await;
    rig.pass(14.0).await;
    for load in loads {
        rig.external("queue", &load.to_string());
        for _ in 0..4 {
            let answer = document(&rig, &["web"]).await;
            rig.pass(15.0).await;
            let actual = rig.replicas("web");
            all += 1;
            if answer["desired"] == actual {
                right += 1;
            } else {
                wrong.push(format!("{:?}: {} but {actual}", rig.now(), answer["sentence"]));
            }
        }
    }
    (right, all, wrong)
}

const LOADS: &[u32] =
    &[40, 80, 80, 60, 30, 30, 30, 30, 30, 30, 30, 90, 20, 20, 20, 20, 20, 20, 20, 40, 200, 10];

#[tokio::test(start_paused = true)]
async fn window_is_predicted_without_the_controllers_history() {
    let (right, all, wrong) = predict(Value::Null, LOADS).await;
    assert!(right * 100 >= all * 90, "{right} of {all}: {wrong:#?}");
}

#[tokio::test(start_paused = true)]
async fn policies_and_windows_of_a_behavior_are_predicted() {
    let behavior = json!({
        "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]},
        "scaleDown": {
            "stabilizationWindowSeconds": 60,
            "policies": [{"type": "Percent", "value": 50, "periodSeconds": 120}],
        },
    });
    let (right, all, wrong) = predict(behavior, LOADS).await;
    assert!(right * 100 >= all * 90, "{right} of {all}: {wrong:#?}");
}

#[tokio::test(start_paused = true)]
async fn rebuilt_history_has_origins() {
    let rig = Harness::start(queue("80", json!({})));
    rig.pass(5.0).await;
    rig.external("queue", "120");
    rig.pass(30.0).await;
    rig.external("queue", "60");
    rig.pass(16.0).await;
    let answer = document(&rig, &["web"]).await;
    let history = answer["history"].as_array().unwrap();
    let rescales: Vec<_> = history
        .iter()
        .filter(|entry| entry["type"] == "rescale")
        .map(|entry| (&entry["from"], &entry["to"], &entry["origin"]))
        .collect();
    assert_eq!(
        rescales,
        [(&Value::Null, &json!(8), &json!("event")), (&json!(8), &json!(12), &json!("event"))]
    );
    assert!(history.iter().any(|entry| entry["type"] == "recommendation" && entry["replicas"] == 12));
    let unknowns: Vec<_> =
        answer["unknowns"].as_array().unwrap().iter().map(|unknown| &unknown["code"]).collect();
    assert_eq!(unknowns, ["recommendations", "amounts", "flags", "version"]);
    // Recommendations after the rescale left no trace.
    assert!(
        answer["sentence"].as_str().unwrap().contains("still holds 12, for at least another"),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn window_with_unknown_start_holds_for_at_most_its_length() {
    let rig = Harness::start(queue("40", Value::Null));
    rig.pass(61.0).await;
    rig.external("queue", "10");
    rig.pass(60.0).await;
    let answer = document(&rig, &["web"]).await;
    let sentence = answer["sentence"].as_str().unwrap();
    assert!(sentence.ends_with("still holds 4, for at most another 5 min"), "{sentence}");
}
