//! *What if* with the past from an in-memory Prometheus server.

use std::path::PathBuf;
use std::time::Duration;

use ::console::Subject;
use ::console::observations::Observation;
use ::console::whatif::{Field, Question, WhatIf as _};
use clock::Clock as _;
use fake_cluster::pages::{PageResponse, PageServers};
use jiff::Timestamp;
use sources::{InMemory, Sources};

use super::super::explain::Explainer;
use super::super::leaders::LeaderChanges;
use super::*;

/// Reads a source file with one server, which `servers` provides.
fn sources(name: &str, servers: &PageServers) -> Arc<Sources> {
    let path: PathBuf = std::env::temp_dir().join(format!("console-{name}-{}.yaml", std::process::id()));
    let file = "prometheus: [{name: main, url: 'http://prometheus:9090', enforceNamespaceLabel: namespace}]";
    std::fs::write(&path, file).unwrap();
    let servers = servers.clone();
    let dial = InMemory::new(move |address: &str| servers.dial(address));
    let sources = Sources::new(path.clone(), Some(Arc::new(dial)));
    std::fs::remove_file(&path).unwrap();
    Arc::new(sources.unwrap())
}

/// A cluster whose HPA scales by the metric jobs, which its policy reads from Prometheus.
fn with_jobs() -> Cluster {
    let cluster = running();
    let policy = "metrics: [{metric: jobs, prometheus: {server: main, query: 'sum(jobs{app=\"$name\"})'}}]";
    let mut hpa = cluster.get("autoscaling/horizontalpodautoscalers", "shop", "web").unwrap();
    hpa["metadata"]["annotations"] = json!({"concertina.dev/policy": policy});
    let target = json!({"type": "AverageValue", "averageValue": "10"});
    hpa["spec"]["metrics"] =
        json!([{"type": "External", "external": {"metric": {"name": "jobs"}, "target": target}}]);
    let current = json!({"type": "External", "external": {"metric": {"name": "jobs"}, "current": {"averageValue": "10"}}});
    hpa["status"] = json!({"currentReplicas": 3, "desiredReplicas": 3, "currentMetrics": [current]});
    cluster.put_raw(hpa);
    cluster
}

/// Simulates the last hour with another maximum.
async fn ask(cluster: &Cluster, sources: Option<Arc<Sources>>) -> Value {
    let refusals = Refusals::new();
    let clients = Clients::over(cluster.connector(), &client_options(&refusals)).unwrap();
    let explainer = Explainer::new(Scene { sources, ..scene(&clients, refusals) }, LeaderChanges::default());
    let now = SystemClock.now();
    let observations = [3_000, 1_800, 600].map(|seconds| Observation {
        at: now - Duration::from_secs(seconds),
        current: 3,
        desired: 3,
        values: [Some(10.0), None, None, None],
    });
    let subject = Subject {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        history: Vec::new(),
        observations: observations.into(),
    };
    let field = |name: &str, value: &str| Field { name: name.to_owned(), value: value.to_owned() };
    let question = Question { subject, fields: vec![field("hours", "1"), field("max", "20")] };
    serde_json::from_slice(&explainer.ask(question).await.unwrap()).unwrap()
}

fn peak(document: &Value, row: usize) -> &Value {
    let heads = document["heads"].as_array().unwrap();
    let column = heads.iter().position(|head| head[0] == "peak").unwrap();
    &document["rows"][row]["cells"][column]
}

#[tokio::test]
async fn load_of_the_past_comes_from_the_server_of_the_policy() {
    let servers = PageServers::default();
    let now = SystemClock.now().as_second();
    servers.serve("prometheus:9090", move |_| {
        PageResponse::matrix(&[(&[], &[(now - 3_000, 30.0), (now - 1_500, 140.0), (now - 60, 30.0)])])
    });
    let document = ask(&with_jobs(), Some(sources("past", &servers))).await;
    let expected = json!([{"metric": "jobs", "origin": "Prometheus server main", "problem": null}]);
    assert_eq!(document["loads"], expected);
    assert_eq!((peak(&document, 1), peak(&document, 2)), (&json!("9"), &json!("14")), "{}", document["rows"]);
    let requests = servers.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].query, "sum(jobs{app=\"web\",namespace=\"shop\"})");
    let field = |name: &str| {
        let value = requests[0].fields.iter().find(|(field, _)| field == name).unwrap();
        value.1.parse::<i64>().unwrap()
    };
    // The time span of the known past.
    assert!((3_000..3_060).contains(&(field("end") - field("start"))), "{requests:?}");
    assert_eq!(field("step"), 15);
    let end = Timestamp::from_second(field("end")).unwrap();
    assert!(SystemClock.now().duration_since(end).as_secs() < 60);
}

#[tokio::test]
async fn unreachable_server_is_a_sentence_and_what_was_seen_is_played() {
    let cluster = with_jobs();
    for (sources, expected) in [
        (
            Some(sources("refused", &PageServers::default())),
            "prometheus \"main\", query \"sum(jobs{app=\\\"web\\\",namespace=\\\"shop\\\"})\": ",
        ),
        (None, "--metric-sources-file"),
    ] {
        let document = ask(&cluster, sources).await;
        assert_eq!(document["loads"][0]["origin"], "its observed values", "{document}");
        let problem = document["loads"][0]["problem"].as_str().unwrap();
        assert!(problem.contains(expected), "{problem}");
        assert_eq!(peak(&document, 2), "3", "{}", document["rows"]);
    }
}
