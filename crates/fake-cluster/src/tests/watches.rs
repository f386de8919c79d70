//! Watches: from a version, streaming lists, bookmarks, 410, filters.

use std::time::Duration;

use serde_json::json;

use super::{Client, cluster, pod};
use crate::{FaultAction, FaultRule, Status};

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(start_paused = true)]
async fn watch_reports_changes_after_its_version() {
    let cluster = cluster();
    cluster.create(pod("a", &json!({}))).unwrap();
    let from = cluster.resource_version();
    cluster.create(pod("b", &json!({}))).unwrap();
    let mut watch =
        Client::to(&cluster).await.watch(&format!("{PODS}?watch=true&resourceVersion={from}")).await;
    assert_eq!(watch.next_summary().await, "ADDED b");
    let mut a = cluster.get("pods", "default", "a").unwrap();
    a["metadata"]["labels"] = json!({ "x": "y" });
    cluster.update(a).unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("MODIFIED"), &json!("Pod")));
    cluster.delete("pods", "default", "a").unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], cluster.resource_version().to_string());
}

#[tokio::test(start_paused = true)]
async fn streaming_list_ends_with_its_bookmark() {
    let cluster = cluster();
    cluster.create(pod("a", &json!({}))).unwrap();
    cluster.create(pod("b", &json!({}))).unwrap();
    let path = format!(
        "{PODS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0&allowWatchBookmarks=true"
    );
    let mut watch = Client::to(&cluster).await.watch(&path).await;
    assert_eq!(watch.next_summary().await, "ADDED a");
    assert_eq!(watch.next_summary().await, "ADDED b");
    let end = watch.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(end["object"]["metadata"]["resourceVersion"], cluster.resource_version().to_string());
    cluster.create(pod("c", &json!({}))).unwrap();
    assert_eq!(watch.next_summary().await, "ADDED c");
    let start = tokio::time::Instant::now();
    assert_eq!(watch.next_summary().await, "BOOKMARK");
    assert_eq!(start.elapsed(), Duration::from_mins(1));
}

#[tokio::test(start_paused = true)]
async fn streaming_list_without_bookmarks_is_refused() {
    let cluster = cluster();
    let path = format!("{PODS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let refused = Client::to(&cluster).await.get(&path).await;
    assert_eq!((refused.code, &refused.json()["reason"]), (422, &json!("Invalid")));
}

#[tokio::test(start_paused = true)]
async fn watch_from_a_compacted_version_fails_with_410() {
    let cluster = cluster();
    let old = cluster.resource_version();
    cluster.create(pod("a", &json!({}))).unwrap();
    let mut running =
        Client::to(&cluster).await.watch(&format!("{PODS}?watch=1&resourceVersion={old}")).await;
    assert_eq!(running.next_summary().await, "ADDED a");
    cluster.compact();
    let mut watch = Client::to(&cluster).await.watch(&format!("{PODS}?watch=1&resourceVersion={old}")).await;
    let error = watch.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(watch.next_summary().await, "end");
    cluster.create(pod("b", &json!({}))).unwrap();
    assert_eq!(running.next_summary().await, "ADDED b", "an open watch continues");
}

#[tokio::test(start_paused = true)]
async fn filtered_watch_reports_objects_that_start_or_stop_matching() {
    let cluster = cluster();
    let from = cluster.resource_version();
    let path = format!("{PODS}?watch=1&resourceVersion={from}&labelSelector=app%3Dweb");
    let mut watch = Client::to(&cluster).await.watch(&path).await;
    let mut a = cluster.create(pod("a", &json!({ "app": "db" }))).unwrap();
    for app in ["web", "web2"] {
        a["metadata"]["labels"]["app"] = json!(app);
        cluster.update(a).unwrap();
        a = cluster.get("pods", "default", "a").unwrap();
    }
    assert_eq!(watch.next_summary().await, "ADDED a");
    let left = watch.next().await.unwrap();
    assert_eq!(
        (&left["type"], &left["object"]["metadata"]["labels"]["app"]),
        (&json!("DELETED"), &json!("web"))
    );
    assert_eq!(left["object"]["metadata"]["resourceVersion"], a["metadata"]["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn watch_ends_at_its_timeout() {
    let cluster = cluster();
    let start = tokio::time::Instant::now();
    let mut watch = Client::to(&cluster).await.watch(&format!("{PODS}?watch=1&timeoutSeconds=7")).await;
    assert_eq!(watch.next_summary().await, "end");
    assert_eq!(start.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn open_watches_obey_faults() {
    let cluster = cluster();
    let from = cluster.resource_version();
    let path = format!("{PODS}?watch=1&resourceVersion={from}");
    let mut watch = Client::to(&cluster).await.watch(&path).await;
    let faults = cluster.faults();
    faults.add(FaultRule::new(FaultAction::WatchDrop).times(1));
    faults.add(FaultRule::new(FaultAction::WatchDuplicate).times(1));
    for name in ["a", "b", "c"] {
        cluster.create(pod(name, &json!({}))).unwrap();
    }
    assert_eq!(watch.next_summary().await, "ADDED b");
    assert_eq!(watch.next_summary().await, "ADDED b");
    assert_eq!(watch.next_summary().await, "ADDED c");
    let silence = faults.add(FaultRule::new(FaultAction::WatchSilence));
    cluster.create(pod("d", &json!({}))).unwrap();
    assert!(tokio::time::timeout(Duration::from_mins(5), watch.next_summary()).await.is_err());
    faults.remove(silence);
    assert_eq!(watch.next_summary().await, "ADDED d");
    faults.add(FaultRule::new(FaultAction::WatchError(Status::expired("too old"))).times(1));
    assert_eq!(watch.next_summary().await, "ERROR");
    assert_eq!(watch.next_summary().await, "end");
    let mut watch = Client::to(&cluster).await.watch(&path).await;
    faults.add(FaultRule::new(FaultAction::WatchClose).path_suffix("/pods").times(1));
    let mut events = Vec::new();
    while let Some(event) = watch.next().await {
        events.push(event);
    }
    assert!(events.len() <= 4);
}
