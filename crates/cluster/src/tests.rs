//! Tests of the clients against the embedded cluster, over HTTP and in virtual time. This file tests scale and status
//! requests, errors, the gate, and time limits.

mod discovery;
mod events;
mod hostile;
mod metrics;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use autoscaling::status::Status;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::call::Call;
use crate::client::{ClientOptions, Clients, RatePermit};
use crate::decode;
use crate::error::ApiError;
use crate::gate::{Gate, Refusal};
use crate::mapper::Mapping;
use crate::permission;
use crate::scale::Scales;
use crate::status::{StatusTarget, Statuses};
use clock::{SharedClock, VirtualClock};
use fake_cluster::{Cluster, FaultAction, FaultRule, LoggedRequest};

fn clock() -> SharedClock {
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    Arc::new(VirtualClock::starting_at(epoch))
}

fn cluster() -> Cluster {
    Cluster::new(clock())
}

fn clients_with(cluster: &Cluster, options: &ClientOptions) -> Clients {
    Clients::over(cluster.connector(), options).unwrap()
}

fn clients(cluster: &Cluster) -> Clients {
    clients_with(cluster, &ClientOptions::default())
}

fn deployment(name: &str, replicas: i32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
          "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app", "image": "i"}]}}}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": "i"}]}})
}

fn hpa(name: &str) -> Value {
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default", "labels": {"team": "a"}, "annotations": {"note": "x"},
          "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1"}],
          "finalizers": ["example.com/keep"]},
        "spec": {"maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}}})
}

fn deployments() -> Mapping {
    Mapping {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        kind: "Deployment".to_owned(),
        namespaced: true,
        scale_version: Some("autoscaling/v1".to_owned()),
    }
}

/// Returns the requests so far, as `verb path?query`.
fn log(cluster: &Cluster) -> Vec<String> {
    let text = |request: LoggedRequest| match request.query.as_str() {
        "" => format!("{} {}", request.verb, request.path),
        query => format!("{} {}?{query}", request.verb, request.path),
    };
    cluster.requests().entries().into_iter().map(text).collect()
}

async fn turn(scales: &Scales) -> RatePermit {
    scales.turn("default").await
}

#[tokio::test(start_paused = true)]
async fn scale_is_written_with_the_version_that_was_read() {
    let cluster = cluster();
    cluster.create(deployment("web", 3)).unwrap();
    let scales = Scales::new(clients(&cluster).scale);
    let mut scale = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap();
    assert_eq!((scale.spec_replicas, scale.selector.as_str()), (3, "app=web"));
    scale.spec_replicas = 7;
    let written = scales.put(turn(&scales).await, &deployments(), "default", "web", &scale).await.unwrap();
    assert_eq!(written.spec_replicas, 7);
    assert_eq!(cluster.get("apps/deployments", "default", "web").unwrap()["spec"]["replicas"], 7);
    let conflict =
        scales.put(turn(&scales).await, &deployments(), "default", "web", &scale).await.unwrap_err();
    assert!(conflict.is_conflict() && !conflict.outcome_unknown());
    assert_eq!(
        conflict.to_string(),
        "Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; \
         please apply your changes to the latest version and try again"
    );
    assert_eq!(
        log(&cluster)[1],
        "update /apis/apps/v1/namespaces/default/deployments/web/scale?fieldManager=kube-controller-manager"
    );
}

#[tokio::test(start_paused = true)]
async fn missing_target_has_upstreams_error() {
    let cluster = cluster();
    let scales = Scales::new(clients(&cluster).scale);
    let error = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), "deployments.apps \"web\" not found");
}

#[tokio::test(start_paused = true)]
async fn name_of_dots_is_refused_as_in_client_go() {
    let cluster = cluster();
    let scales = Scales::new(clients(&cluster).scale);
    for (name, error) in [
        (".", "invalid resource name \".\": [may not be '.']"),
        ("..", "invalid resource name \"..\": [may not be '..']"),
        ("...", "deployments.apps \"...\" not found"),
    ] {
        let refused = scales.get(turn(&scales).await, &deployments(), "default", name).await.unwrap_err();
        assert_eq!(refused.to_string(), error);
    }
    assert_eq!(log(&cluster).len(), 1, "only the last request was sent");
}

#[tokio::test(start_paused = true)]
async fn status_write_repeats_metadata_as_received() {
    let cluster = cluster();
    cluster.create(hpa("web")).unwrap();
    let before = cluster.get("autoscaling/horizontalpodautoscalers", "default", "web").unwrap();
    let object = decode::hpa(before.to_string().as_bytes()).unwrap();
    let target = StatusTarget {
        namespace: &object.namespace,
        name: &object.name,
        metadata: &object.metadata,
        spec: &object.spec_raw,
    };
    let statuses = Statuses::new(clients(&cluster).core, "concertina");
    let status = Status { desired_replicas: 4, current_replicas: 2, ..Status::default() };
    let written = statuses.put(statuses.turn("default").await, target, &status).await.unwrap();
    let after = cluster.get("autoscaling/horizontalpodautoscalers", "default", "web").unwrap();
    assert_eq!(after["status"]["desiredReplicas"], 4);
    assert_eq!(after["metadata"]["resourceVersion"], written.as_str());
    for field in ["labels", "annotations", "ownerReferences", "finalizers", "uid", "creationTimestamp"] {
        assert_eq!(before["metadata"][field], after["metadata"][field], "{field}");
    }
    assert_eq!(before["spec"], after["spec"]);
    let conflict = statuses.put(statuses.turn("default").await, target, &status).await.unwrap_err();
    assert!(conflict.is_conflict(), "{conflict}");
}

#[tokio::test(start_paused = true)]
async fn text_error_gets_verb_resource_and_name() {
    let cluster = cluster();
    cluster.create(deployment("web", 3)).unwrap();
    let scales = Scales::new(clients(&cluster).scale);
    let scale = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap();
    cluster.faults().add(FaultRule::new(FaultAction::Text { code: 500, body: "boom\n".to_owned() }));
    let error = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "an error on the server (\"boom\") has prevented the request from succeeding (get deployments web)"
    );
    let error = scales.put(turn(&scales).await, &deployments(), "default", "web", &scale).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "an error on the server (\"boom\") has prevented the request from succeeding (put deployments web)"
    );
    assert!(error.outcome_unknown());
}

#[tokio::test(start_paused = true)]
async fn closed_gate_refuses_writes_before_they_are_sent() {
    let cluster = cluster();
    cluster.create(deployment("web", 3)).unwrap();
    let gate = Gate::refusing(Refusal::DryRun);
    let options = ClientOptions { gate: Arc::clone(&gate), ..ClientOptions::default() };
    let scales = Scales::new(clients_with(&cluster, &options).scale);
    let scale = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap();
    let error = scales.put(turn(&scales).await, &deployments(), "default", "web", &scale).await.unwrap_err();
    assert_eq!(error, ApiError::Refused(Refusal::DryRun));
    assert!(error.is_refused() && !error.outcome_unknown());
    assert_eq!(cluster.requests().len(), 1);
    gate.open_for(Refusal::DryRun);
    scales.put(turn(&scales).await, &deployments(), "default", "web", &scale).await.unwrap();
    assert_eq!(
        gate.refused().into_iter().collect::<Vec<_>>(),
        [(("update", "deployments/scale".to_owned()), 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn request_to_a_silent_server_fails_at_the_time_limit() {
    let cluster = cluster();
    cluster.faults().add(FaultRule::new(FaultAction::Silence));
    let scales = Scales::new(clients(&cluster).scale);
    let start = Instant::now();
    let error = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    assert_eq!(
        error.to_string(),
        "Get \"http://embedded/apis/apps/v1/namespaces/default/deployments/web/scale\": context deadline exceeded"
    );
}

fn busy(code: u16, seconds: u32) -> FaultRule {
    FaultRule::new(FaultAction::RetryAfter { code, seconds })
}

#[tokio::test(start_paused = true)]
async fn request_is_repeated_when_the_server_asks_for_it() {
    let cluster = cluster();
    cluster.create(deployment("web", 3)).unwrap();
    let scales = Scales::new(clients(&cluster).scale);
    for code in [429, 500, 503] {
        cluster.faults().add(busy(code, 2).times(2));
        let start = Instant::now();
        let mut scale = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(4), "GET, {code}");
        cluster.faults().add(busy(code, 3).times(2));
        let start = Instant::now();
        scale.spec_replicas += 1;
        let written =
            scales.put(turn(&scales).await, &deployments(), "default", "web", &scale).await.unwrap();
        assert_eq!(written.spec_replicas, scale.spec_replicas);
        assert_eq!(start.elapsed(), Duration::from_secs(6), "PUT, {code}");
    }
    assert_eq!(cluster.requests().len(), 18);
}

#[tokio::test(start_paused = true)]
async fn request_is_repeated_ten_times_and_within_its_time_limit() {
    let cluster = cluster();
    cluster.create(deployment("web", 3)).unwrap();
    let scales = Scales::new(clients(&cluster).scale);
    let scale = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap();
    for (rule, seconds, requests) in [
        (busy(429, 2), 20, 11),
        (busy(503, 8), 24, 4),
        // The request fails at once if the wait exceeds its time limit.
        (busy(503, 31), 0, 1),
        (busy(409, 2), 0, 1),
        (FaultRule::new(FaultAction::Text { code: 503, body: "no".to_owned() }), 0, 1),
    ] {
        cluster.faults().add(rule.clone());
        cluster.requests().clear();
        let start = Instant::now();
        scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap_err();
        scales.put(turn(&scales).await, &deployments(), "default", "web", &scale).await.unwrap_err();
        assert_eq!(start.elapsed().as_secs(), 2 * seconds, "{rule:?}");
        assert_eq!(cluster.requests().len(), 2 * requests, "{rule:?}");
        cluster.faults().clear();
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_write_passes_the_gate_again() {
    for (code, is_unknown) in [(429, false), (503, true)] {
        let cluster = cluster();
        cluster.create(deployment("web", 3)).unwrap();
        let gate = Gate::open();
        let options = ClientOptions { gate: Arc::clone(&gate), ..ClientOptions::default() };
        let scales = Scales::new(clients_with(&cluster, &options).scale);
        let scale = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap();
        cluster.faults().add(busy(code, 2));
        gate.leads_until(Instant::now() + Duration::from_secs(5));
        let start = Instant::now();
        let error =
            scales.put(turn(&scales).await, &deployments(), "default", "web", &scale).await.unwrap_err();
        assert_eq!((cluster.requests().len(), start.elapsed().as_secs()), (4, 6), "{code}");
        // The first attempt may have been applied if its response is a 503.
        assert_eq!((error.is_refused(), error.outcome_unknown()), (!is_unknown, is_unknown), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn get_is_repeated_on_a_new_connection() {
    let cluster = cluster();
    cluster.create(deployment("web", 3)).unwrap();
    let scales = Scales::new(clients(&cluster).scale);
    cluster.faults().add(FaultRule::new(FaultAction::Close).times(3));
    let start = Instant::now();
    let scale = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap();
    assert_eq!((cluster.requests().len(), start.elapsed()), (4, Duration::from_secs(3)));
    cluster.faults().add(FaultRule::new(FaultAction::Close));
    cluster.requests().clear();
    let error = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap_err();
    assert_eq!((cluster.requests().len(), start.elapsed()), (11, Duration::from_secs(13)));
    assert!(error.to_string().ends_with("/scale\": EOF"), "{error}");
    cluster.requests().clear();
    let error = scales.put(turn(&scales).await, &deployments(), "default", "web", &scale).await.unwrap_err();
    assert_eq!(cluster.requests().len(), 1, "a write may have been applied");
    // The text contains no `fieldManager`, because upstream does not send it.
    assert!(error.to_string().ends_with("/scale\": EOF"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn broken_connections_and_invalid_responses_are_distinguished() {
    let cluster = cluster();
    cluster.create(deployment("web", 3)).unwrap();
    let scales = Scales::new(clients(&cluster).scale);
    cluster.faults().add(FaultRule::new(FaultAction::Close).times(11));
    let error = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap_err();
    assert!(matches!(error, ApiError::Transport { .. }), "{error:?}");
    assert!(error.to_string().ends_with("/scale\": EOF"), "{error}");
    assert!(error.is_transient() && error.outcome_unknown());
    cluster.faults().add(FaultRule::new(FaultAction::Truncate(20)).times(1));
    let error = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap_err();
    assert!(error.to_string().ends_with("unexpected EOF"), "{error}");
    cluster.faults().add(FaultRule::new(FaultAction::Body("{\"kind\":\"Sca".to_owned())).times(1));
    let error = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "couldn't get version/kind; json parse error: unexpected end of JSON input"
    );
    cluster.faults().add(FaultRule::new(FaultAction::Body(
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {}}).to_string(),
    )));
    let error = scales.get(turn(&scales).await, &deployments(), "default", "web").await.unwrap_err();
    assert!(error.to_string().starts_with("no kind \"Pod\" is registered for version \"v1\""), "{error}");
}

#[tokio::test(start_paused = true)]
async fn response_above_the_limit_is_an_error() {
    let cluster = cluster();
    let client = clients(&cluster).discovery;
    let error = client.bytes(&Call::get(["api", "v1"]).at_most(100)).await.unwrap_err();
    assert_eq!(error, ApiError::TooLarge { limit: 100 });
}

#[tokio::test]
async fn refused_connection_reads_as_in_go() {
    // The listener is closed at once, so the port refuses connections.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    let clients = Clients::new(&config, &ClientOptions::default()).unwrap();
    let error = clients.core.bytes(&Call::get(["version"])).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "Get \"https://127.0.0.1:{port}/version\": dial tcp 127.0.0.1:{port}: connect: connection refused"
        )
    );
    assert!(matches!(error, ApiError::Connect { .. }) && !error.outcome_unknown());
}

#[tokio::test(start_paused = true)]
async fn each_client_has_its_own_bucket() {
    let cluster = cluster();
    let clients = clients(&cluster);
    let start = Instant::now();
    let call = Call::get(["api"]);
    for _ in 0..30 {
        clients.scale.bytes(&call).await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    clients.core.bytes(&call).await.unwrap();
    clients.watch.bytes(&call).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    clients.scale.bytes(&call).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(49), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn reviews_of_made_up_tokens_have_a_rate() {
    let cluster = cluster();
    let clients = clients(&cluster);
    let start = Instant::now();
    let made_up = (0..230).map(|number| {
        let client = clients.reviews.clone();
        async move { permission::token(&client, &format!("token-{number}")).await.unwrap() }
    });
    assert!(futures::future::join_all(made_up).await.iter().all(Option::is_none));
    // The first 30 requests are a burst, and 20 requests per second follow.
    assert!((9_990..10_100).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
}
