//! Tests of the discovery of resources by the mapper, and of API groups that serve the same types as the default
//! metrics groups.

use std::time::Duration;

use autoscaling::failure::MetricFailureClass;
use autoscaling::query::{Answer, Query, QueryError};
use tokio::time::Instant;

use super::*;
use crate::mapper::{MapError, Mapper};
use crate::metrics::{ApiMetrics, GroupMetrics, Metrics, MetricsOptions};
use fake_cluster::metrics::StaticMetrics;
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

const GROUP: &str = "models.example.com";

fn group(cluster: &Cluster, versions: &'static [&'static str], options: MetricsOptions) -> GroupMetrics {
    let adapter = StaticMetrics::new();
    adapter.set_external(json!({"queue": {"items": [{"metricLabels": {"q": "a"}, "value": "12"}]}}));
    adapter.set_custom(json!({"waiting": {"items": [{
        "describedObject": {"kind": "Service", "name": "front", "apiVersion": "v1"}, "value": "3",
    }]}}));
    cluster.set_metrics_group(GROUP, versions, Arc::new(adapter));
    let clients = clients(cluster);
    let mapper = Arc::new(Mapper::new(clients.discovery.clone()));
    GroupMetrics::new(&clients, mapper, &GROUP.into(), options)
}

fn external() -> Query {
    Query::External { namespace: "shop".into(), metric: "Queue".into(), selector: "q=a".into() }
}

fn pods() -> Query {
    Query::Pods {
        namespace: "shop".into(),
        metric: "waiting".into(),
        selector: "app=web".into(),
        metric_selector: "".into(),
    }
}

fn object(kind: &str) -> Query {
    Query::Object {
        namespace: "shop".into(),
        group: "".into(),
        kind: kind.into(),
        name: "front".into(),
        metric: "waiting".into(),
        metric_selector: "".into(),
    }
}

async fn error(metrics: &GroupMetrics, query: Query) -> QueryError {
    metrics.fetch(query).await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn group_is_read_in_the_first_known_version_that_it_serves() {
    for (versions, version) in [
        (&["v1beta2", "v1beta1"][..], "v1beta2"),
        (&["v1beta1", "v1beta2"], "v1beta1"),
        (&["v2", "v1beta1"], "v1beta1"),
    ] {
        let cluster = cluster();
        let metrics = group(&cluster, versions, MetricsOptions::default());
        metrics.fetch(pods()).await.unwrap();
        metrics.fetch(object("Namespace")).await.unwrap();
        let Answer::Custom(values) = metrics.fetch(object("Service")).await.unwrap() else { panic!() };
        assert_eq!(values[0].value.value(), 3);
        let paths: Vec<_> =
            log(&cluster).into_iter().filter(|line| line.contains("/namespaces/shop/")).collect();
        let base = format!("get /apis/{GROUP}/{version}/namespaces/shop");
        assert_eq!(
            paths,
            [
                format!("{base}/pods/*/waiting?labelSelector=app%3Dweb"),
                format!("{base}/metrics/waiting"),
                format!("{base}/services/front/waiting"),
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn external_metric_of_a_group_is_read_without_discovery() {
    let cluster = cluster();
    let metrics = group(&cluster, &["v1beta1"], MetricsOptions::default());
    let Answer::External(values) = metrics.fetch(external()).await.unwrap() else { panic!() };
    assert_eq!(values[0].value.value(), 12);
    assert_eq!(
        log(&cluster),
        [format!("list /apis/{GROUP}/v1beta1/namespaces/shop/queue?labelSelector=q%3Da")]
    );
}

#[tokio::test(start_paused = true)]
async fn errors_of_a_group_name_it() {
    let cluster = cluster();
    let metrics = group(&cluster, &["v1beta3"], MetricsOptions::default());
    assert_eq!(&*error(&metrics, pods()).await.message, "no known available metric versions found");
    let options = MetricsOptions::default();
    let metrics = group(&cluster, &["v1beta1"], options.clone());
    let no = FaultAction::Text { code: 503, body: "no".to_owned() };
    cluster.faults().add(FaultRule::new(no).path_prefix("/apis/models.example.com/v1beta1/").times(1));
    assert_eq!(
        &*error(&metrics, external()).await.message,
        "the server is currently unable to handle the request (get Queue.models.example.com)"
    );
    cluster.set_discovery(GROUP, false);
    let metrics = group(&cluster, &["v1beta1"], options);
    let QueryError { class, message } = error(&metrics, pods()).await;
    assert_eq!(&*message, "no custom metrics API (models.example.com) registered");
    assert_eq!(class, MetricFailureClass::ApiNotServed);
    assert_eq!(
        &*error(&metrics, external()).await.message,
        "the server could not find the requested resource (get Queue.models.example.com)"
    );
}

#[tokio::test(start_paused = true)]
async fn group_that_hangs_opens_its_own_circuit_only() {
    let cluster = cluster();
    let options = MetricsOptions { timeout: Duration::from_secs(5), per_api: 2, ..MetricsOptions::default() };
    let metrics = group(&cluster, &["v1beta1"], options.clone());
    let other = "other.example.com";
    cluster.set_metrics_group(other, &["v1beta1"], Arc::new(StaticMetrics::new()));
    let clients = clients(&cluster);
    let mapper = Arc::new(Mapper::new(clients.discovery.clone()));
    let other = GroupMetrics::new(&clients, mapper, &other.into(), options);
    cluster.faults().add(FaultRule::new(FaultAction::Silence).path_prefix("/apis/models.example.com/"));
    let asked = |n: u32| Query::External {
        namespace: format!("team-{n}").into(),
        metric: "queue".into(),
        selector: "".into(),
    };
    let waiting: Vec<_> = (0..6)
        .map(|n| {
            let metrics = metrics.clone();
            tokio::spawn(async move { metrics.fetch(asked(n)).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let start = Instant::now();
    other.fetch(external()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    let in_flight = cluster.requests().count(|request| request.path.contains(GROUP));
    assert_eq!(in_flight, 2, "the limit of the group");
    for query in waiting {
        query.await.unwrap().unwrap_err();
    }
    assert!(metrics.is_down() && !other.is_down());
    // One query is sent. After a second, the other query fails with its stored error.
    let start = Instant::now();
    let second = async {
        error(&metrics, asked(1)).await;
        start.elapsed()
    };
    let (_, waited) = futures::join!(error(&metrics, asked(0)), second);
    assert_eq!((waited, start.elapsed()), (Duration::from_secs(1), Duration::from_secs(5)));
}
