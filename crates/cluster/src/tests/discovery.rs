//! The mapper: from group and kind to resources.

use std::time::Duration;

use autoscaling::query::Query;
use tokio::time::Instant;

use super::*;
use crate::mapper::{MapError, Mapper};
use crate::metrics::{ApiMetrics, Metrics, MetricsOptions};
use fake_cluster::{FaultAction, FaultRule};

#[tokio::test(start_paused = true)]
async fn kind_is_found_at_the_preferred_version_and_cached_for_30_s() {
    let cluster = cluster();
    let mapper = Mapper::new(clients(&cluster).discovery);
    let found = mapper.mappings("apps", "Deployment").await.unwrap();
    assert_eq!(*found, [deployments()]);
    assert_eq!(found[0].group_resource(), "deployments.apps");
    mapper.mappings("apps", "StatefulSet").await.unwrap();
    assert_eq!(log(&cluster), ["get /apis/apps", "get /apis/apps/v1"]);
    tokio::time::advance(Duration::from_secs(30)).await;
    mapper.mappings("apps", "ReplicaSet").await.unwrap();
    assert_eq!(cluster.requests().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn core_group_and_gos_other_spellings_are_found() {
    let cluster = cluster();
    let mapper = Mapper::new(clients(&cluster).discovery);
    let found = mapper.mappings("", "ReplicationController").await.unwrap();
    assert_eq!(
        (found[0].group_resource().as_str(), found[0].version.as_str()),
        ("replicationcontrollers", "v1")
    );
    assert_eq!(mapper.mappings("apps", "deployment").await.unwrap()[0].resource, "deployments");
    assert_eq!(mapper.mappings("apps", "DeploymentList").await.unwrap()[0].resource, "deployments");
    assert!(mapper.mappings("apps", "deployments").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn missing_group_is_reported_in_gos_words_and_cached() {
    let cluster = cluster();
    let mapper = Mapper::new(clients(&cluster).discovery);
    for _ in 0..3 {
        let error = mapper.mappings("example.org", "Sprocket").await.unwrap_err();
        assert_eq!(error.to_string(), "no matches for kind \"Sprocket\" in group \"example.org\"");
        assert!(matches!(error, MapError::NoMatch { .. }));
    }
    assert_eq!(cluster.requests().len(), 1);
    let error = mapper.mappings("", "Sprocket").await.unwrap_err();
    assert_eq!(error.to_string(), "no matches for kind \"Sprocket\" in group \"\"");
}

#[tokio::test(start_paused = true)]
async fn concurrent_callers_share_one_fetch() {
    let cluster = cluster();
    let mapper = Mapper::new(clients(&cluster).discovery);
    let calls = (0..20).map(|_| mapper.mappings("apps", "Deployment"));
    assert!(futures::future::join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!(cluster.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn failed_refresh_keeps_the_stale_result() {
    let cluster = cluster();
    let mapper = Mapper::new(clients(&cluster).discovery);
    mapper.mappings("apps", "Deployment").await.unwrap();
    cluster.faults().add(FaultRule::new(FaultAction::Text { code: 503, body: "no".to_owned() }));
    tokio::time::advance(Duration::from_secs(31)).await;
    assert!(mapper.mappings("apps", "Deployment").await.is_ok());
    let error = mapper.mappings("batch", "Job").await.unwrap_err();
    assert_eq!(error.to_string(), "the server is currently unable to handle the request");
}

#[tokio::test(start_paused = true)]
async fn hanging_discovery_delays_all_callers_once() {
    let cluster = cluster();
    let clients = clients(&cluster);
    let timeout = ClientOptions::default().request_timeout;
    let mapper = Arc::new(Mapper::new(clients.discovery.clone()));
    cluster.faults().add(FaultRule::new(FaultAction::Silence));
    let start = Instant::now();
    let calls = (0..20).map(|_| mapper.mappings("apps", "Deployment"));
    assert!(futures::future::join_all(calls).await.iter().all(Result::is_err));
    assert_eq!((start.elapsed(), cluster.requests().len()), (timeout, 1));

    let metrics = ApiMetrics::new(&clients, mapper, MetricsOptions::default());
    let query = |n: u32| Query::Pods {
        namespace: "shop".into(),
        metric: format!("m{n}").into(),
        selector: "".into(),
        metric_selector: "".into(),
    };
    let start = Instant::now();
    let calls = (0..20).map(|n| metrics.fetch(query(n)));
    assert!(futures::future::join_all(calls).await.iter().all(Result::is_err));
    assert_eq!((start.elapsed(), cluster.requests().len()), (timeout, 2));
}

#[tokio::test(start_paused = true)]
async fn hanging_refresh_delays_only_its_caller() {
    let cluster = cluster();
    let mapper = Mapper::new(clients(&cluster).discovery);
    mapper.mappings("apps", "Deployment").await.unwrap();
    cluster.faults().add(FaultRule::new(FaultAction::Silence));
    tokio::time::advance(Duration::from_secs(31)).await;
    let start = Instant::now();
    let timed_call = || async {
        let found = mapper.mappings("apps", "Deployment").await;
        (found.is_ok(), start.elapsed())
    };
    let (refresh, other) = futures::join!(timed_call(), timed_call());
    assert_eq!(other, (true, Duration::ZERO));
    assert_eq!(refresh, (true, ClientOptions::default().request_timeout));
    assert_eq!(timed_call().await, refresh, "a pause after the failed refresh");
}

#[tokio::test(start_paused = true)]
async fn cached_groups_are_bounded_and_evicted_groups_are_fetched_again() {
    let cluster = cluster();
    let mapper = Mapper::new(clients(&cluster).discovery);
    for n in 0..1100 {
        assert!(mapper.mappings(&format!("g{n}.example.org"), "K").await.is_err());
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert_eq!(mapper.known_groups(), 1024);
    let before = cluster.requests().len();
    assert!(mapper.mappings("g0.example.org", "K").await.is_err());
    assert_eq!(cluster.requests().len(), before + 1);
    let long = "x".repeat(254);
    let error = mapper.mappings(&long, "K").await.unwrap_err();
    assert_eq!(error.to_string(), format!("no matches for kind \"K\" in group \"{long}\""));
    assert_eq!(cluster.requests().len(), before + 1, "too long for a group name");
    tokio::time::advance(Duration::from_mins(10)).await;
    mapper.mappings("apps", "Deployment").await.unwrap();
    assert_eq!(mapper.known_groups(), 1);
}
