//! The past, rebuilt from outside, against a controller that remembers it.

use serde_json::{Value, json};

use super::ask::document;
use crate::support::objects::{external, hpa};
use crate::support::{Rig, Stage};

fn queue(items: &str, behavior: Value) -> Stage {
    let stage = Stage::new();
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

/// While a controller works under a load that changes once a minute, asks before every sync what it will do.
async fn foretold(behavior: Value, loads: &[u32]) -> (usize, usize, Vec<String>) {
    let rig = Rig::start(queue("20", behavior));
    let (mut right, mut all, mut wrong) = (0, 0, Vec::new());
    // A first rescale, so that the count before the next one is known.
    rig.until("it scales down", 900.0, |stage| stage.replicas("web") == 2).await;
    rig.pass(14.0).await;
    for load in loads {
        rig.external("queue", &load.to_string());
        for _ in 0..4 {
            let told = document(&rig, &["web"]).await;
            rig.pass(15.0).await;
            let does = rig.replicas("web");
            all += 1;
            if told["desired"] == does {
                right += 1;
            } else {
                wrong.push(format!("{:?}: {} but {does}", rig.now(), told["sentence"]));
            }
        }
    }
    (right, all, wrong)
}

const LOADS: &[u32] =
    &[40, 80, 80, 60, 30, 30, 30, 30, 30, 30, 30, 90, 20, 20, 20, 20, 20, 20, 20, 40, 200, 10];

#[tokio::test(start_paused = true)]
async fn a_window_that_holds_is_foretold_without_the_controllers_memory() {
    let (right, all, wrong) = foretold(Value::Null, LOADS).await;
    assert!(right * 100 >= all * 90, "{right} of {all}: {wrong:#?}");
}

#[tokio::test(start_paused = true)]
async fn policies_and_windows_of_a_behavior_are_foretold() {
    let behavior = json!({
        "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]},
        "scaleDown": {
            "stabilizationWindowSeconds": 60,
            "policies": [{"type": "Percent", "value": 50, "periodSeconds": 120}],
        },
    });
    let (right, all, wrong) = foretold(behavior, LOADS).await;
    assert!(right * 100 >= all * 90, "{right} of {all}: {wrong:#?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_rebuilt_says_where_it_comes_from() {
    let rig = Rig::start(queue("80", json!({})));
    rig.pass(5.0).await;
    rig.external("queue", "120");
    rig.pass(30.0).await;
    rig.external("queue", "60");
    rig.pass(16.0).await;
    let told = document(&rig, &["web"]).await;
    let history = told["history"].as_array().unwrap();
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
        told["unknowns"].as_array().unwrap().iter().map(|unknown| &unknown["code"]).collect();
    assert_eq!(unknowns, ["recommendations", "amounts", "flags", "version"]);
    // It was recommended until later than the rescale, which left no trace.
    assert!(told["sentence"].as_str().unwrap().contains("still holds 12, for at least another"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_window_of_which_the_beginning_is_unknown_holds_at_most_so_long() {
    let rig = Rig::start(queue("40", Value::Null));
    rig.pass(61.0).await;
    rig.external("queue", "10");
    rig.pass(60.0).await;
    let told = document(&rig, &["web"]).await;
    let sentence = told["sentence"].as_str().unwrap();
    assert!(sentence.ends_with("still holds 4, for at most another 5 min"), "{sentence}");
}
