//! Checks that a controller acts as the answer announces, for each path of a sync. Also compares predictions from the
//! rebuilt history with the actions of a controller that has the real history.

use fake_cluster::{FaultAction, Status};
use serde_json::{Value, json};
use why::Diagnosis;

use super::{ask, codes, document, queue, sentence};
use crate::support::objects::{cpu, external, hpa, pod};
use crate::support::{Fixture, Harness};

fn with(stage: Fixture, change: impl FnOnce(&mut Value)) -> Fixture {
    stage.edit("web", change);
    stage
}

/// Creates a Deployment with one ready pod for each number in `millicores`. The number is the usage of the pod. Each
/// pod requests 100 millicores.
fn pods(millicores: &[u32]) -> Fixture {
    let stage = Fixture::new();
    stage.target("web", i64::try_from(millicores.len()).unwrap());
    for index in 0..millicores.len() {
        stage.cluster.put_raw(pod("web", index));
    }
    stage.cpu("web", millicores);
    stage.create(hpa("web", &[cpu(50)]));
    stage
}

fn condition(document: &Value, kind: &str) -> String {
    let found = document["conditions"].as_array().unwrap().iter().find(|found| found["type"] == kind);
    found.map_or_else(String::new, |found| {
        ["status", "reason", "message"].map(|field| found[field].as_str().unwrap()).join(" ")
    })
}

/// Checks the answer, then runs a controller on the same cluster, which must act accordingly.
async fn check_decision(stage: Fixture, course: &str, verdict: &str, reason: &str) {
    let answer = document(&stage, &["web"]).await;
    let sentence = answer["sentence"].as_str().unwrap();
    assert_eq!(answer["explanation"]["course"], course, "{sentence}");
    assert!(sentence.starts_with(verdict) && sentence.ends_with(reason), "{sentence}");
    let rig = Harness::start(stage);
    rig.pass(1.0).await;
    for kind in ["AbleToScale", "ScalingActive", "ScalingLimited", "ScaledToZero"] {
        assert_eq!(condition(&answer, kind), rig.condition("web", kind), "{sentence}");
    }
    let events: Vec<_> = answer["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| format!("{} {}", event["reason"].as_str().unwrap(), event["message"].as_str().unwrap()))
        .collect();
    assert_eq!(rig.events("web"), events, "{sentence}");
    let is_able = rig.condition("web", "AbleToScale").starts_with("True");
    if let (Some(desired), true) = (answer["desired"].as_i64(), is_able) {
        assert_eq!(rig.replicas("web"), desired, "{sentence}");
    }
}

#[tokio::test(start_paused = true)]
async fn controller_acts_as_the_answer_announces() {
    check_decision(queue("80"), "metrics", "goes from 4 to 8: ", "above its target of 10 per pod").await;
    check_decision(queue("40"), "metrics", "stays at 4: ", "queue is at its target of 10 per pod").await;
    check_decision(queue("400"), "metrics", "goes from 4 to 8: ", "at most doubles the count, to 8").await;
    check_decision(
        queue("5"),
        "metrics",
        "stays at 4: ",
        "asks for 1, but the 5 min scale-down window still holds 4, for another 5 min",
    )
    .await;
    check_decision(pods(&[100, 100]), "metrics", "goes from 2 to 4: ", "above its target of 50 %").await;
    check_decision(
        with(queue("40"), |hpa| hpa["spec"]["maxReplicas"] = json!(3)),
        "aboveMax",
        "goes from 4 to 3: ",
        "maxReplicas is 3",
    )
    .await;
    check_decision(
        with(queue("40"), |hpa| hpa["spec"]["minReplicas"] = json!(6)),
        "belowMin",
        "goes from 4 to 6: ",
        "minReplicas is 6",
    )
    .await;
    let policy = json!({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}});
    check_decision(
        with(queue("80"), |hpa| hpa["spec"]["behavior"] = policy),
        "metrics",
        "goes from 4 to 5: ",
        "asks for 8, but the scale-up policies allow 5",
    )
    .await;
    let stage = queue("40");
    stage.target("web", 0);
    check_decision(stage, "disabled", "stays at 0: ", "which disables autoscaling").await;
}

#[tokio::test(start_paused = true)]
async fn missing_target_has_the_servers_error() {
    let stage = queue("40");
    stage.remove_target("web");
    let answer = document(&stage, &["web"]).await;
    assert_eq!(answer["explanation"]["course"], "noScale");
    assert!(answer["sentence"].as_str().unwrap().contains("deployments.apps \"web\" not found"), "{answer}");
    assert_eq!(answer["explanation"]["failure"], answer["events"][0]["message"]);
    check_decision(stage, "noScale", "does nothing", "").await;
}

#[tokio::test(start_paused = true)]
async fn failing_metric_has_the_servers_error() {
    let stage = queue("40");
    stage.edit("web", |hpa| hpa["spec"]["metrics"] = json!([external("absent", "10")]));
    let answer = document(&stage, &["web"]).await;
    assert!(answer["desired"].is_null());
    check_decision(stage, "metrics", "stays at 4", "").await;
}

#[tokio::test(start_paused = true)]
async fn hpas_that_share_pods_name_each_other() {
    let stage = pods(&[40, 40]);
    let mut other = hpa("other", &[cpu(50)]);
    other["spec"]["scaleTargetRef"]["name"] = json!("web");
    stage.create(other);
    let answer = document(&stage, &["web"]).await;
    assert_eq!(answer["explanation"]["course"], "ambiguous");
    assert_eq!(
        answer["sentence"],
        "stays at 2: pods by selector app=web are controlled by more than one HPA (e.g. [shop/other shop/web])"
    );
    assert!(!codes(&answer).is_empty());
    // The table of all HPAs shows the ambiguity as well.
    let (_, table) = ask(&stage, &[]).await;
    assert_eq!(table.matches("controlled by more than one HPA").count(), 2, "{table}");
}

#[tokio::test(start_paused = true)]
async fn missing_hpa_is_named_with_the_existing_ones() {
    let stage = queue("40");
    stage.create(hpa("api", &[external("queue", "10")]));
    let (found, text) = ask(&stage, &["wbe"]).await;
    assert_eq!(found.unwrap_err().to_string(), "HPA wbe not found in namespace shop (existing: api, web)");
    assert_eq!(text, "");
    let (found, text) = ask(&stage, &["web"]).await;
    assert!(text.contains("stays at 4: queue is at its target of 10 per pod"), "{text}");
    assert_eq!(found.unwrap(), Diagnosis::Healthy, "{text}");
}

#[tokio::test(start_paused = true)]
async fn namespace_has_one_line_per_hpa_with_findings_first() {
    let stage = queue("40");
    stage.create(hpa("absent", &[external("queue", "10")]));
    stage.target("busy", 3);
    stage.create(hpa("busy", &[external("queue", "1")]));
    let (found, table) = ask(&stage, &[]).await;
    assert_eq!(found.unwrap(), Diagnosis::Findings);
    let (rows, summary) = table.trim_end().rsplit_once('\n').unwrap();
    let names: Vec<_> = rows.lines().map(|line| line.split_whitespace().nth(2).unwrap().to_owned()).collect();
    assert_eq!(names, ["NAME", "absent", "busy", "web"], "{table}");
    assert_eq!(summary, "3 HPAs: 1 error, 2 ok");
    let elsewhere = ask(&stage, &["-A"]).await.1;
    assert_eq!(elsewhere, table);
    // Lists of the whole cluster are read only with -A.
    ask(&stage, &[]).await.0.unwrap();
    let entries = stage.cluster.requests().entries();
    let outside: Vec<_> = entries
        .iter()
        .filter(|request| request.verb == "list" && !request.path.contains("/namespaces/shop/"))
        .collect();
    assert!(outside.is_empty(), "{outside:?}");
}

#[tokio::test(start_paused = true)]
async fn controller_in_charge_follows_from_labels_then_the_status() {
    let stage = Fixture::growing();
    let label = |name: &str| json!({"concertina.dev/controller": name});
    let charge = async || document(&stage, &["web"]).await["inCharge"].clone();
    assert_eq!(charge().await, Value::Null, "neither a label nor a status");
    let mut namespace = stage.cluster.get("namespaces", "", "shop").unwrap();
    namespace["metadata"]["labels"] = label("concertina");
    stage.cluster.update(namespace).unwrap();
    assert_eq!(charge().await, json!({"controller": "concertina", "by": "namespace"}));
    let (_, text) = ask(&stage, &["web"]).await;
    assert!(
        text.contains("in charge  instance concertina of Concertina, by the label of namespace shop\n"),
        "{text}"
    );
    stage.edit("web", |hpa| hpa["metadata"]["labels"] = label("built-in"));
    assert_eq!(charge().await, json!({"controller": "built-in", "by": "hpa"}));
    let forbidden = FaultAction::Status(Status::new(403, "Forbidden", "namespaces is forbidden"));
    stage.fault("/namespaces/shop", forbidden);
    let answer = document(&stage, &["web"]).await;
    assert_eq!((&answer["inCharge"]["by"], &answer["refused"]), (&json!("hpa"), &json!([])));
}

#[tokio::test(start_paused = true)]
async fn empty_namespace_has_an_answer() {
    let stage = Fixture::new();
    let (found, text) = ask(&stage, &[]).await;
    assert_eq!((found.unwrap(), text.as_str()), (Diagnosis::Healthy, ""));
    let list = document(&stage, &[]).await;
    assert_eq!((list["kind"].as_str(), list["items"].as_array().unwrap().len()), (Some("WhyList"), 0));
}

#[tokio::test(start_paused = true)]
async fn yaml_equals_json() {
    let stage = queue("80");
    let json = document(&stage, &["web"]).await;
    let (_, yaml) = ask(&stage, &["web", "-o", "yaml"]).await;
    let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(yaml, json);
}

#[tokio::test(start_paused = true)]
async fn controller_flags_change_the_decision() {
    let stage = queue("48");
    assert!(sentence(&stage, "web").await.starts_with("goes from 4 to 5"));
    let answer = document(&stage, &["web", "--horizontal-pod-autoscaler-tolerance=0.3"]).await;
    assert_eq!(answer["desired"], 4);
    let flags = answer["flags"].as_array().unwrap();
    let tolerance = &flags.iter().find(|flag| flag["name"] == "horizontal-pod-autoscaler-tolerance").unwrap();
    assert_eq!((tolerance["value"].as_str(), tolerance["origin"].as_str()), (Some("0.3"), Some("given")));
    let version = &flags.iter().find(|flag| flag["name"] == "emulated-version").unwrap();
    assert_eq!(version["origin"], "server");
}

fn queue_with(items: &str, behavior: Value) -> Fixture {
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

/// Runs a controller under a load that changes once a minute, and predicts every sync. Returns the number of correct
/// predictions, the number of all predictions, and a text for each wrong prediction.
async fn predict(behavior: Value, loads: &[u32]) -> (usize, usize, Vec<String>) {
    let rig = Harness::start(queue_with("20", behavior));
    let (mut right, mut all, mut wrong) = (0, 0, Vec::new());
    // An event names only the new count. After a first rescale, the size of the next rescale is known.
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
    let rig = Harness::start(queue_with("80", json!({})));
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
    // The recommendations after the last rescale left no trace in the cluster.
    assert!(
        answer["sentence"].as_str().unwrap().contains("still holds 12, for at least another"),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn window_with_unknown_start_holds_for_at_most_its_length() {
    let rig = Harness::start(queue_with("40", Value::Null));
    rig.pass(61.0).await;
    rig.external("queue", "10");
    rig.pass(60.0).await;
    let answer = document(&rig, &["web"]).await;
    let sentence = answer["sentence"].as_str().unwrap();
    assert!(sentence.ends_with("still holds 4, for at most another 5 min"), "{sentence}");
}
