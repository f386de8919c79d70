//! The reads that the decision does not need: owners, field managers, the server's time.

use std::sync::Arc;

use clock::{SharedClock, ShiftedClock};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::command::{ask_until, codes, document};
use crate::support::Fixture;
use crate::support::objects::{cpu, deployment, external, hpa, pod};

fn owned(mut object: Value, kind: &str, name: &str, uid: &str) -> Value {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true,
    }]);
    object
}

/// A Deployment with a ReplicaSet and two pods, and a third pod with the same labels and another owner.
fn shared_labels(third: &str) -> Fixture {
    let stage = Fixture::new();
    let target = stage.create(deployment("web", 2));
    let uid = target["metadata"]["uid"].as_str().unwrap().to_owned();
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"namespace": "shop", "name": "web-7d9"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}},
    });
    let set = stage.cluster.put_raw(owned(set, "Deployment", "web", &uid));
    let set_uid = set["metadata"]["uid"].as_str().unwrap().to_owned();
    for index in 0..2 {
        stage.cluster.put_raw(owned(pod("web", index), "ReplicaSet", "web-7d9", &set_uid));
    }
    if !third.is_empty() {
        stage.cluster.put_raw(owned(pod("web", 2), "StatefulSet", third, "another"));
    }
    stage.cpu("web", &[40, 40, 40]);
    stage.create(hpa("web", &[cpu(50)]));
    stage
}

#[tokio::test(start_paused = true)]
async fn pods_of_another_workload_are_found_by_their_owners() {
    let answer = document(&shared_labels(""), &["web"]).await;
    assert!(!codes(&answer).iter().any(|code| code.contains("foreign")), "{:?}", codes(&answer));
    let answer = document(&shared_labels("db"), &["web"]).await;
    let findings = answer["findings"].to_string();
    assert!(findings.contains("StatefulSet/db"), "{findings}");
}

#[tokio::test(start_paused = true)]
async fn servers_clock_is_used_when_the_local_clock_is_off() {
    let stage = Fixture::new();
    stage.target("web", 4);
    stage.external("queue", "40");
    stage.create(hpa("web", &[external("queue", "10")]));
    let ask = async |seconds| {
        let ahead = SignedDuration::from_secs(seconds);
        let clock: SharedClock = Arc::new(ShiftedClock { clock: Arc::clone(&stage.clock), ahead });
        let words = ["-n", "shop", "web", "-o", "json"];
        let (found, text) = ask_until(&stage, &words, clock, CancellationToken::new()).await;
        found.unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let skewed = ask(90).await;
    let off = skewed["clockSkewSeconds"].as_i64().unwrap();
    assert!((-90..=-89).contains(&off), "{off}");
    let at = skewed["at"].as_str().unwrap();
    assert!(at.starts_with("2030-01-01T00:00:0"), "{at}");
    assert!(codes(&skewed).iter().any(|code| code.contains("skew")), "{:?}", codes(&skewed));
    let near = ask(2).await;
    assert!(near["at"].as_str().unwrap().starts_with("2030-01-01T00:00:02"), "{near}");
    assert!(!codes(&near).iter().any(|code| code.contains("skew")), "{:?}", codes(&near));
}

#[tokio::test(start_paused = true)]
async fn other_field_manager_of_the_replicas_is_found() {
    let stage = shared_labels("");
    let mut target = stage.cluster.get("apps/deployments", "shop", "web").unwrap();
    target["metadata"]["managedFields"] = json!([{
        "manager": "helm", "operation": "Apply", "time": "2029-12-31T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }]);
    stage.cluster.put_raw(target);
    let answer = document(&stage, &["web"]).await;
    let findings = answer["findings"].to_string();
    assert!(findings.contains("helm"), "{findings}");
}
