//! From group and kind to resources.

use std::time::Duration;

use super::*;
use crate::api::mapper::{MapError, Mapper};
use crate::embedded::{FaultAction, FaultRule};

#[tokio::test(start_paused = true)]
async fn a_kind_is_found_at_the_preferred_version_and_kept_for_half_a_minute() {
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
async fn the_core_group_and_gos_other_spellings_are_known() {
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
async fn what_does_not_exist_is_told_in_gos_words_and_remembered() {
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
async fn all_who_ask_at_once_share_one_fetch() {
    let cluster = cluster();
    let mapper = Mapper::new(clients(&cluster).discovery);
    let asked = (0..20).map(|_| mapper.mappings("apps", "Deployment"));
    assert!(futures::future::join_all(asked).await.iter().all(Result::is_ok));
    assert_eq!(cluster.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_leaves_what_was_known() {
    let cluster = cluster();
    let mapper = Mapper::new(clients(&cluster).discovery);
    mapper.mappings("apps", "Deployment").await.unwrap();
    cluster.faults().add(FaultRule::new(FaultAction::Text { code: 503, body: "no".to_owned() }));
    tokio::time::advance(Duration::from_secs(31)).await;
    assert!(mapper.mappings("apps", "Deployment").await.is_ok());
    let error = mapper.mappings("batch", "Job").await.unwrap_err();
    assert_eq!(error.to_string(), "the server is currently unable to handle the request");
}
