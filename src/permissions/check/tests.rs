//! Tests against the embedded cluster, with a fault rule in place of a role.

use std::sync::Arc;

use super::*;
use crate::cli::Config;
use crate::permissions::needed;
use clock::VirtualClock;
use cluster::client::ClientOptions;
use controller::options::Options;
use fake_cluster::{Cluster, FaultAction, FaultRule, Status as Failure};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

fn cluster() -> (Cluster, Clients) {
    let cluster = Cluster::new(Arc::new(VirtualClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())));
    let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
    (cluster, clients)
}

fn denied() -> FaultRule {
    FaultRule::new(FaultAction::Body(r#"{"status": {"allowed": false, "reason": "no"}}"#.to_owned()))
        .path_prefix(REVIEWS)
}

fn texts(missing: &[Missing]) -> Vec<String> {
    missing.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn check_reviews_each_verb_and_finds_granted_ones_not_missing() {
    let (cluster, clients) = cluster();
    let needed = needed(&Config::default());
    let checked = check(&clients, &needed, &[]).await;
    assert!(checked.missing.is_empty() && checked.error.is_none(), "{checked:?}");
    let verbs: usize = needed.iter().map(|permission| permission.verbs.len()).sum();
    assert_eq!(cluster.requests().entries().len(), verbs);
}

#[tokio::test(start_paused = true)]
async fn missing_permission_names_verbs_resource_and_namespace() {
    let (cluster, clients) = cluster();
    cluster.faults().add(denied());
    let config =
        Config::from(Options { watch_namespaces: Some(["shop".to_owned()].into()), ..Options::default() });
    let checked = check(&clients, &needed(&config), &[]).await;
    let texts = texts(&checked.missing);
    for text in [
        "not allowed to list, watch horizontalpodautoscalers.autoscaling in namespace shop",
        "not allowed to list, watch pods in namespace shop",
        "not allowed to get, update */scale in namespace shop",
        "not allowed to get, update, watch leases.coordination.k8s.io concertina in namespace kube-system",
        "not allowed to create tokenreviews.authentication.k8s.io in the whole cluster",
    ] {
        assert!(texts.iter().any(|known| known == text), "{text} in {texts:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn check_keeps_previous_state_when_a_review_fails() {
    let (cluster, clients) = cluster();
    let needed = needed(&Config::default());
    cluster.faults().add(denied());
    let known = check(&clients, &needed, &[]).await.missing;
    cluster.faults().clear();
    let broken = FaultAction::Status(Failure::new(503, "ServiceUnavailable", "later"));
    cluster.faults().add(FaultRule::new(broken).path_prefix(REVIEWS));
    let checked = check(&clients, &needed, &[]).await;
    assert!(checked.missing.is_empty() && checked.error.is_some());
    assert_eq!(check(&clients, &needed, &known).await.missing, known);
}

#[tokio::test(start_paused = true)]
async fn process_is_ready_once_essential_permissions_are_granted() {
    let (cluster, clients) = cluster();
    cluster.faults().add(denied());
    let findings = Findings::default();
    assert_eq!(findings.ready(), Err(Unready::NotChecked));
    let checking = tokio::spawn(run(clients, needed(&Config::default()), findings.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let error = findings.ready().unwrap_err().to_string();
    assert!(error.contains("leases.coordination.k8s.io concertina") && !error.contains("events"), "{error}");
    cluster.faults().clear();
    tokio::time::sleep(AGAIN).await;
    assert_eq!(findings.ready(), Ok(()));
    checking.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn process_is_ready_without_access_to_metrics_apis() {
    let (cluster, clients) = cluster();
    cluster.faults().add(denied());
    let all = needed(&Config::default());
    let metrics: Vec<_> = all.into_iter().filter(|row| row.group.ends_with("metrics.k8s.io")).collect();
    let findings = Findings::default();
    let checking = tokio::spawn(run(clients, metrics, findings.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(texts(&findings.missing()).len(), 3);
    assert_eq!(findings.ready(), Ok(()));
    cluster.faults().clear();
    tokio::time::sleep(AGAIN).await;
    assert_eq!(findings.missing().len(), 3, "optional permissions are rechecked at the longer interval");
    tokio::time::sleep(SELDOM).await;
    assert_eq!(findings.missing(), []);
    checking.await.unwrap();
}
