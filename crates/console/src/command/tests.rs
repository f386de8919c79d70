use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::whatif::{Field, Question, WhatIf as _};
use crate::{Observation, Subject};
use clock::Clock as _;
use fake_cluster::pages::{PageResponse, PageServers};
use jiff::Timestamp;
use serde_json::{Value, json};
use sources::{InMemory, Sources};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::explain::Explainer;
use super::past::LeaderChanges;
use super::{Browser, Listening, Scene, directory};
use autoscaling::settings::{Settings, Version};
use clock::SystemClock;
use cluster::client::Clients;
use fake_cluster::Cluster;
use flags::DecisionFlags;
use journal::record::wire::ControllerInfo;
use why::{Refusals, client_options};

/// Returns the body of the explanation of `shop/web` in a cluster.
async fn explanation(cluster: &Cluster) -> String {
    answer(cluster, "").await
}

fn scene(clients: &Clients, refusals: Arc<Refusals>) -> Scene<'_> {
    Scene {
        clients,
        refusals,
        namespace: None,
        leaders: Vec::new(),
        flags: DecisionFlags::default(),
        sources: None,
        advice: None,
        clock: Arc::new(SystemClock),
    }
}

/// Returns the body of the response to a path below the explanation of `shop/web`.
async fn answer(cluster: &Cluster, rest: &str) -> String {
    let refusals = Refusals::new();
    let clients = Clients::over(cluster.connector(), &client_options(&refusals)).unwrap();
    let scene = scene(&clients, refusals);
    let listening = Listening::start(scene, 0).await.unwrap();
    let (stop, url) = (CancellationToken::new(), listening.url.clone());
    let serving = tokio::spawn(listening.serve(stop.clone()));
    let text = get(&url, &format!("hpas/shop/web{rest}")).await;
    stop.cancel();
    serving.await.unwrap();
    text
}

/// Returns the body of the response to a path below the address of the page.
async fn get(url: &str, path: &str) -> String {
    let (host, token) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let request = format!("GET /{token}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

fn hpa() -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 9,
        },
    })
}

#[tokio::test]
async fn explanation_has_findings_steps_and_yaml() {
    let cluster = Cluster::new(Arc::new(SystemClock));
    cluster.create(hpa()).unwrap();
    let document: Value = serde_json::from_str(&explanation(&cluster).await).unwrap();
    assert_eq!(document["findings"][0]["code"], "missing-target");
    assert!(document["text"].as_str().unwrap().contains("missing-target"), "{}", document["text"]);
    assert!(document["yaml"].as_str().unwrap().contains("maxReplicas: 9"), "{}", document["yaml"]);
    assert_eq!(document["recentEvents"], json!([]));
    let markup = document["timeline"]["markup"].as_str().unwrap();
    assert!(markup.contains("<path class=\"s-desired\"") && !markup.contains("s-ready"), "{markup}");
    assert_eq!(document["timeline"]["data"]["courses"].as_array().unwrap().len(), 1);
    assert_eq!((&document["recorded"], &document["form"]["max"]), (&json!(false), &json!(9)));
}

#[tokio::test]
async fn workload_of_another_kind_with_the_name_of_the_target_is_named() {
    let cluster = Cluster::new(Arc::new(SystemClock));
    cluster.create(hpa()).unwrap();
    let container = json!({"name": "app", "image": "a"});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    cluster
        .create(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"replicas": 3, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
                "template": template},
        }))
        .unwrap();
    let document: Value = serde_json::from_str(&explanation(&cluster).await).unwrap();
    let message = document["findings"][0]["message"].as_str().unwrap();
    assert!(message.ends_with("; StatefulSet/web exists"), "{message}");
}

#[tokio::test]
async fn explanation_of_a_missing_hpa_is_the_error_of_why() {
    let cluster = Cluster::new(Arc::new(SystemClock));
    assert_eq!(explanation(&cluster).await, "HPA web not found in namespace shop");
}

/// Returns a cluster with a Deployment of 3 replicas and its HPA.
fn running() -> Cluster {
    let cluster = Cluster::new(Arc::new(SystemClock));
    let container = json!({"name": "app", "image": "a", "resources": {"requests": {"cpu": "500m"}}});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    cluster
        .create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        }))
        .unwrap();
    let mut hpa = hpa();
    let target = json!({"type": "Utilization", "averageUtilization": 60});
    hpa["spec"]["metrics"] = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
    cluster.create(hpa).unwrap();
    cluster
}

#[tokio::test]
async fn question_is_answered_with_a_patch_and_a_difference() {
    let cluster = running();
    let writes = || cluster.requests().count(|request| !["get", "list", "watch"].contains(&request.verb));
    let before = writes();
    let text = answer(&cluster, "/whatif?hours=1&max=20&downWindow=60").await;
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(
        document["command"],
        "kubectl patch hpa web --namespace shop --type=merge --patch \
         '{\"spec\":{\"behavior\":{\"scaleDown\":{\"stabilizationWindowSeconds\":60}},\"maxReplicas\":20}}'"
    );
    let diff = document["diff"].as_str().unwrap();
    for line in ["-  maxReplicas: 9\n", "+  maxReplicas: 20\n", "+      stabilizationWindowSeconds: 60\n"] {
        assert!(diff.contains(line), "{diff}");
    }
    assert_eq!(document["rows"].as_array().unwrap().len(), 2);
    assert_eq!(writes(), before, "a question writes nothing");
}

#[tokio::test]
async fn advice_of_an_hpa_has_a_command() {
    let (cluster, path) = (running(), directory("-advice.json"));
    let measured =
        json!({"podHoursAWeek": 400.0, "unservedPpm": 0.0, "minutesAbove80AWeek": 0.0, "rescalesAWeek": 1.0});
    let compared = json!({"today": measured, "advised": measured});
    let settings = |target: i32| json!({"target": target, "minReplicas": 2, "maxReplicas": 9, "scaleDownWindowSeconds": 300});
    let advice = json!({"settings": settings(70), "fitted": compared, "judged": compared, "sureness": "low", "lookAt": "x"});
    let web = json!({"namespace": "shop", "name": "web", "target": "Deployment/web", "today": settings(60), "advice": advice});
    let report = json!({"kind": "AdviceReport", "to": "2030-01-15T00:00:00Z", "hpas": [web]});
    fs::write(&path, report.to_string()).unwrap();
    let refusals = Refusals::new();
    let clients = Clients::over(cluster.connector(), &client_options(&refusals)).unwrap();
    let scene = Scene { advice: Some(path.clone()), ..scene(&clients, refusals) };
    let listening = Listening::start(scene, 0).await.unwrap();
    let stop = CancellationToken::new();
    let url = listening.url.clone();
    let serving = tokio::spawn(listening.serve(stop.clone()));
    let mut advice = Value::Null;
    // The file is read while the first requests are in flight.
    for _ in 0..1_000 {
        let document: Value = serde_json::from_str(&get(&url, "hpas/shop/web").await).unwrap();
        advice = document["advice"].clone();
        if !advice.is_null() {
            break;
        }
    }
    stop.cancel();
    serving.await.unwrap();
    fs::remove_file(path).unwrap();
    assert_eq!(
        advice["command"],
        "kubectl patch hpa web --namespace shop --type=merge --patch '{\"spec\":{\"metrics\":[{\"resource\":{\"name\":\"cpu\",\
         \"target\":{\"averageUtilization\":70,\"type\":\"Utilization\"}},\"type\":\"Resource\"}]}}'"
    );
    assert_eq!(advice["rows"][0], json!(["cpu", "60 %", "70 %"]));
}

#[tokio::test]
async fn invalid_question_names_its_field() {
    let cluster = running();
    let text = answer(&cluster, "/whatif?hours=1&max=1").await;
    let error: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(error["field"], "max", "{error}");
    let text = answer(&cluster, "/whatif?hours=1&nothing=1").await;
    assert!(text.contains("unknown field"), "{text}");
}

#[test]
fn machine_without_a_browser_is_an_error_with_advice() {
    let url = "http://127.0.0.1:1/0a/";
    let error = Browser::open_with(directory("-none"), url, "concertina-no-such-program", &[]);
    let text = error.unwrap_err().to_string();
    assert!(text.starts_with("cannot open a browser: concertina-no-such-program: "), "{text}");
    assert!(text.ends_with("; open the address above"), "{text}");
    assert!(!directory("-none").exists());
}

#[test]
fn file_contains_the_address_until_the_end() {
    let browser = Browser::write(directory("-written"), "http://127.0.0.1:1/0a/").unwrap();
    let file = browser.file();
    assert!(fs::read_to_string(&file).unwrap().contains("url=http://127.0.0.1:1/0a/\""));
    drop(browser);
    assert!(!file.exists());
}

/// Returns the sources of a file with one Prometheus server, which `servers` provides.
fn sources(name: &str, servers: &PageServers) -> Arc<Sources> {
    let path = std::env::temp_dir().join(format!("console-{name}-{}.yaml", std::process::id()));
    let file = "prometheus: [{name: main, url: 'http://prometheus:9090', enforceNamespaceLabel: namespace}]";
    fs::write(&path, file).unwrap();
    let servers = servers.clone();
    let dial = InMemory::new(move |address: &str| servers.dial(address));
    let sources = Sources::new(path.clone(), Some(Arc::new(dial)));
    fs::remove_file(&path).unwrap();
    Arc::new(sources.unwrap())
}

/// Returns a cluster whose HPA scales by the metric `jobs`, which its policy reads from Prometheus.
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

/// Returns the simulation of the last hour with `maxReplicas: 20`.
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
        advice: None,
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
    // The range starts at the first observation.
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

#[tokio::test]
async fn past_has_the_sync_period_of_the_policy() {
    for (policy, period) in [("tolerance: 0.2", 15), ("syncPeriodSeconds: 2", 2)] {
        let cluster = running();
        let mut hpa = cluster.get("autoscaling/horizontalpodautoscalers", "shop", "web").unwrap();
        hpa["metadata"]["annotations"] = json!({"concertina.dev/policy": policy});
        cluster.put_raw(hpa);
        let refusals = Refusals::new();
        let clients = Clients::over(cluster.connector(), &client_options(&refusals)).unwrap();
        let changes = LeaderChanges::default();
        let explainer = Explainer::new(scene(&clients, refusals), changes.clone());
        let subject = Subject {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            history: Vec::new(),
            observations: [].into(),
            advice: None,
        };
        let refusals = explainer.refusals.lock().await;
        let situation = explainer.situation(&refusals, &subject).await.unwrap().situation;
        let past = super::past::past(&situation, None, &subject, &changes).unwrap();
        assert_eq!((past.period, situation.period), (Duration::from_secs(period), Duration::from_secs(15)));
    }
}

#[test]
fn decision_is_late_by_the_sync_period_of_the_policy() {
    let item = |name: &str, period: Option<&str>| {
        let mut item = json!({
            "namespace": "shop", "name": name, "uid": name, "firstAt": "2030-01-01T00:00:00Z",
            "lastAt": "2030-01-01T00:01:00Z", "syncs": 5, "sentence": "stays at 4: x", "action": "none",
            "limitingStep": null, "winner": null, "from": 4, "to": 4, "outcome": "notNeeded",
        });
        if let Some(period) = period {
            item["syncPeriod"] = json!(period);
        }
        item
    };
    let page = json!({
        "apiVersion": "concertina/v1", "kind": "DecisionSummaryList", "metadata": {}, "now": "2030-01-01T00:02:00Z",
        "controller": ControllerInfo {
            version: "0.1.0".to_owned(),
            sync_period: Duration::from_secs(15),
            settings: (&Settings::new(Version::default())).into(),
        },
        "items": [item("fast", Some("1s")), item("plain", None), item("slow", Some("5m0s"))],
    });
    let late = super::past::last_decisions(serde_json::from_value(page).unwrap());
    let late: Vec<_> =
        late.filter(|(_, decision)| decision.late_since.is_some()).map(|((_, name), _)| name).collect();
    assert_eq!(late, ["fast", "plain"]);
}
