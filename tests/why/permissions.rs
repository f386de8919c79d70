//! Forbidden reads and missing APIs are reported, and the rest of the answer is complete. Also covers the reads that
//! the decision does not need: owners, field managers, and the time of the server.

use std::sync::Arc;

use clock::{SharedClock, ShiftedClock};
use fake_cluster::{FaultAction, FaultRule, Status};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use why::WhyError;

use super::{ask, ask_until, codes, document};
use crate::support::Fixture;
use crate::support::objects::{cpu, deployment, external, hpa, pod};

/// Creates a cluster with an HPA on cpu and on an external metric.
fn both() -> Fixture {
    let stage = Fixture::new();
    stage.target("web", 2);
    for index in 0..2 {
        stage.cluster.put_raw(pod("web", index));
    }
    stage.cpu("web", &[40, 40]);
    stage.external("queue", "20");
    stage.create(hpa("web", &[cpu(50), external("queue", "10")]));
    stage
}

/// Creates the cluster of [`both`], with a rule that forbids the reads of `resource`.
fn without(rule: impl FnOnce(FaultRule) -> FaultRule, resource: &str) -> Fixture {
    let stage = both();
    let message = format!("{resource} is forbidden: User \"viewer\" cannot read resource \"{resource}\"");
    let action = FaultAction::Status(Status::new(403, "Forbidden", &message));
    stage.cluster.faults().add(rule(FaultRule::new(action)));
    stage
}

fn refused(document: &Value) -> Vec<(&str, &str, bool)> {
    let all = document["refused"].as_array().unwrap();
    let refusals = all.iter().map(|refused| {
        let text = |field: &str| refused[field].as_str().unwrap();
        assert!(text("message").contains("is forbidden: User \"viewer\""), "{refused}");
        (text("verb"), text("resource"), refused["decides"].as_bool().unwrap())
    });
    refusals.collect()
}

#[tokio::test(start_paused = true)]
async fn forbidden_metrics_leave_the_rest_of_the_answer() {
    let stage = without(|rule| rule.path_prefix("/apis/metrics.k8s.io/"), "pods.metrics.k8s.io");
    let answer = document(&stage, &["web"]).await;
    assert_eq!(refused(&answer), [("list", "pods", true)]);
    assert_eq!(answer["refused"][0]["group"], "metrics.k8s.io");
    assert_eq!(answer["sound"], false);
    assert_eq!(answer["unknowns"][0]["code"], "reads");
    assert!(answer["explanation"]["metrics"][0]["failed"].is_object(), "{answer}");
    assert_eq!(answer["explanation"]["metrics"][1]["valid"]["proposal"], 2);
}

#[tokio::test(start_paused = true)]
async fn decision_is_unsound_without_pods_or_scale() {
    let stage = without(|rule| rule.path_suffix("/namespaces/shop/pods").path_prefix("/api/"), "pods");
    let answer = document(&stage, &["web"]).await;
    assert_eq!((refused(&answer), &answer["sound"]), (vec![("list", "pods", true)], &json!(false)));

    let stage = without(|rule| rule.subresource("scale"), "deployments/scale");
    let answer = document(&stage, &["web"]).await;
    assert_eq!(refused(&answer), [("get", "deployments/scale", true)]);
    assert_eq!(answer["refused"][0]["name"], "web");
    assert_eq!(answer["explanation"]["course"], "noScale");
}

#[tokio::test(start_paused = true)]
async fn decision_is_sound_without_optional_reads() {
    let stage = without(|rule| rule.path_suffix("/events"), "events");
    let answer = document(&stage, &["web"]).await;
    assert_eq!((refused(&answer), &answer["sound"]), (vec![("list", "events", false)], &json!(true)));

    let stage = without(|rule| rule.path_suffix("/deployments/web"), "deployments");
    let answer = document(&stage, &["web"]).await;
    assert_eq!((refused(&answer), &answer["sound"]), (vec![("get", "deployments", false)], &json!(true)));
}

#[tokio::test(start_paused = true)]
async fn single_hpa_is_read_if_the_list_is_forbidden() {
    let stage = without(
        |rule| rule.verb("list").path_suffix("/horizontalpodautoscalers"),
        "horizontalpodautoscalers.autoscaling",
    );
    let answer = document(&stage, &["web"]).await;
    assert_eq!(refused(&answer), [("list", "horizontalpodautoscalers", false)]);
    assert!(answer["sentence"].as_str().unwrap().starts_with("stays at 2"), "{answer}");
    let (found, _) = ask(&stage, &["api"]).await;
    assert!(matches!(found, Err(WhyError::NotFound { .. })), "{found:?}");
    let (found, _) = ask(&stage, &[]).await;
    assert!(found.unwrap_err().to_string().starts_with("cannot read HPAs: "));
}

#[tokio::test(start_paused = true)]
async fn missing_api_differs_from_a_missing_permission() {
    let stage = both();
    stage.cluster.set_discovery("metrics.k8s.io", false);
    let answer = document(&stage, &["web"]).await;
    assert_eq!(refused(&answer), []);
    let all = codes(&answer);
    assert!(all.iter().any(|code| code.contains("api")), "{all:?}");
    // The findings name only the API that is not served.
    let messages = answer["findings"].to_string();
    assert!(messages.contains("metrics.k8s.io") && !messages.contains("external.metrics"), "{messages}");
}

#[tokio::test(start_paused = true)]
async fn only_the_namespace_is_read_with_rights_of_view() {
    let stage = both();
    ask(&stage, &["web"]).await.0.unwrap();
    let entries = stage.cluster.requests().entries();
    let paths: Vec<_> = entries.iter().map(|request| (request.verb, request.path.as_str())).collect();
    for (verb, path) in &paths {
        let discovery = *verb == "get" && !path.contains("/namespaces/");
        // The namespace itself has the label of the controller in charge.
        let own = path.contains("/namespaces/shop/") || path.ends_with("/namespaces/shop");
        assert!(discovery || own, "{verb} {path}");
        assert!(!path.contains("secrets") && !path.contains("reviews"), "{verb} {path}");
    }
    assert!(paths.len() < 20, "{paths:?}");
}

/// Sets the managing controller of an object.
pub(crate) fn owned(mut object: Value, kind: &str, name: &str, uid: &str) -> Value {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true,
    }]);
    object
}

/// Creates a Deployment with a ReplicaSet and two pods. A third pod has the same labels and another owner.
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
