//! What the user may not read, or the cluster does not have: told, and the rest of the story comes all the same.

use concertina::commands::why::WhyError;
use concertina::embedded::{FaultAction, FaultRule, Status};
use serde_json::{Value, json};

use super::ask::{ask, codes, document};
use crate::support::Stage;
use crate::support::objects::{cpu, external, hpa, pod};

fn both() -> Stage {
    let stage = Stage::new();
    stage.target("web", 2);
    for index in 0..2 {
        stage.cluster.put_raw(pod("web", index));
    }
    stage.cpu("web", &[40, 40]);
    stage.external("queue", "20");
    stage.create(hpa("web", &[cpu(50), external("queue", "10")]));
    stage
}

/// The cluster with a rule that one kind of read is forbidden.
fn without(rule: impl FnOnce(FaultRule) -> FaultRule, resource: &str) -> Stage {
    let stage = both();
    let message = format!("{resource} is forbidden: User \"viewer\" cannot read resource \"{resource}\"");
    let action = FaultAction::Status(Status::new(403, "Forbidden", &message));
    stage.cluster.faults().add(rule(FaultRule::new(action)));
    stage
}

fn refused(document: &Value) -> Vec<(&str, &str, bool)> {
    let all = document["refused"].as_array().unwrap();
    let told = all.iter().map(|refused| {
        let text = |field: &str| refused[field].as_str().unwrap();
        assert!(text("message").contains("is forbidden: User \"viewer\""), "{refused}");
        (text("verb"), text("resource"), refused["decides"].as_bool().unwrap())
    });
    told.collect()
}

#[tokio::test(start_paused = true)]
async fn without_metrics_the_rest_of_the_story_comes() {
    let stage = without(|rule| rule.path_prefix("/apis/metrics.k8s.io/"), "pods.metrics.k8s.io");
    let told = document(&stage, &["web"]).await;
    assert_eq!(refused(&told), [("list", "pods", true)]);
    assert_eq!(told["refused"][0]["group"], "metrics.k8s.io");
    assert_eq!(told["sound"], false);
    assert_eq!(told["unknowns"][0]["code"], "reads");
    assert!(told["explanation"]["metrics"][0]["failed"].is_object(), "{told}");
    assert_eq!(told["explanation"]["metrics"][1]["valid"]["proposal"], 2);
}

#[tokio::test(start_paused = true)]
async fn without_pods_or_the_scale_the_decision_is_not_sound() {
    let stage = without(|rule| rule.path_suffix("/namespaces/shop/pods").path_prefix("/api/"), "pods");
    let told = document(&stage, &["web"]).await;
    assert_eq!((refused(&told), &told["sound"]), (vec![("list", "pods", true)], &json!(false)));

    let stage = without(|rule| rule.subresource("scale"), "deployments/scale");
    let told = document(&stage, &["web"]).await;
    assert_eq!(refused(&told), [("get", "deployments/scale", true)]);
    assert_eq!(told["refused"][0]["name"], "web");
    assert_eq!(told["explanation"]["course"], "noScale");
}

#[tokio::test(start_paused = true)]
async fn what_the_decision_does_not_need_leaves_it_sound() {
    let stage = without(|rule| rule.path_suffix("/events"), "events");
    let told = document(&stage, &["web"]).await;
    assert_eq!((refused(&told), &told["sound"]), (vec![("list", "events", false)], &json!(true)));

    let stage = without(|rule| rule.path_suffix("/deployments/web"), "deployments");
    let told = document(&stage, &["web"]).await;
    assert_eq!((refused(&told), &told["sound"]), (vec![("get", "deployments", false)], &json!(true)));
}

#[tokio::test(start_paused = true)]
async fn an_hpa_may_be_readable_where_their_list_is_not() {
    let stage = without(
        |rule| rule.verb("list").path_suffix("/horizontalpodautoscalers"),
        "horizontalpodautoscalers.autoscaling",
    );
    let told = document(&stage, &["web"]).await;
    assert_eq!(refused(&told), [("list", "horizontalpodautoscalers", false)]);
    assert!(told["sentence"].as_str().unwrap().starts_with("stays at 2"), "{told}");
    let (found, _) = ask(&stage, &["api"]).await;
    assert!(matches!(found, Err(WhyError::NotFound { .. })), "{found:?}");
    let (found, _) = ask(&stage, &[]).await;
    assert!(found.unwrap_err().to_string().starts_with("cannot read HPAs: "));
}

#[tokio::test(start_paused = true)]
async fn an_api_that_the_cluster_does_not_have_is_told_apart_from_a_permission() {
    let stage = both();
    stage.cluster.set_discovery("metrics.k8s.io", false);
    let told = document(&stage, &["web"]).await;
    assert_eq!(refused(&told), []);
    let all = codes(&told);
    assert!(all.iter().any(|code| code.contains("api")), "{all:?}");
    // The other API is there.
    let messages = told["findings"].to_string();
    assert!(messages.contains("metrics.k8s.io") && !messages.contains("external.metrics"), "{messages}");
}

#[tokio::test(start_paused = true)]
async fn only_the_namespace_is_read_and_what_view_allows() {
    let stage = both();
    ask(&stage, &["web"]).await.0.unwrap();
    let entries = stage.cluster.requests().entries();
    let paths: Vec<_> = entries.iter().map(|request| (request.verb, request.path.as_str())).collect();
    for (verb, path) in &paths {
        let discovery = *verb == "get" && !path.contains("/namespaces/");
        assert!(discovery || path.contains("/namespaces/shop/"), "{verb} {path}");
        assert!(!path.contains("secrets") && !path.contains("reviews"), "{verb} {path}");
    }
    assert!(paths.len() < 20, "{paths:?}");
}
