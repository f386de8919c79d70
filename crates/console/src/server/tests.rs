#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clock::SystemClock;
use cluster::client::{ClientOptions, Clients};
use fake_cluster::{Cluster, FaultAction, FaultRule};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Console, Providers, Record};
use crate::access::Access;
use crate::controller::{ControllerState, Inspect, Missing};
use crate::row::{Decisions, LastDecision};
use crate::store::Store;
use crate::whatif::{Question, WhatIf, WhatIfError};
use crate::{Explain, Subject, Unavailable};

/// A provider that explains an HPA by its namespace and name, and fails for the name `broken`.
#[derive(Debug)]
struct Echo;

impl Explain for Echo {
    fn explain(&self, subject: Subject) -> BoxFuture<'static, Result<Vec<u8>, Unavailable>> {
        let Subject { namespace, name, .. } = subject;
        let result = match name.as_str() {
            "broken" => Err("the HPA cannot be read".into()),
            _ => Ok(json!({"namespace": namespace, "name": name}).to_string().into_bytes()),
        };
        Box::pin(std::future::ready(result))
    }

    fn style(&self) -> String {
        "svg { }".to_owned()
    }
}

impl Inspect for Echo {
    fn inspect(&self) -> BoxFuture<'static, ControllerState> {
        let missing =
            Missing { part: "metrics", reason: "no permission".to_owned(), advice: "a role".to_owned() };
        let state = ControllerState { missing: vec![missing], ..ControllerState::default() };
        Box::pin(std::future::ready(state))
    }
}

/// A provider that returns the names of the fields. With the field `wait`, a simulation runs until it is dropped. The
/// field `bad` is invalid.
#[derive(Debug, Default, Clone)]
struct Simulation {
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

/// A guard that counts a running simulation until the guard is dropped.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl WhatIf for Simulation {
    fn ask(&self, question: Question) -> BoxFuture<'static, Result<Vec<u8>, WhatIfError>> {
        let own = self.clone();
        Box::pin(async move {
            let now = own.running.fetch_add(1, Ordering::SeqCst) + 1;
            let _running = Running(Arc::clone(&own.running));
            own.most.fetch_max(now, Ordering::SeqCst);
            let names: Vec<_> = question.fields.iter().map(|field| field.name.as_str()).collect();
            if names.contains(&"wait") {
                std::future::pending::<()>().await;
            }
            if names.contains(&"bad") {
                return Err(WhatIfError::of("bad", "must be a whole number"));
            }
            tokio::task::yield_now().await;
            Ok(json!({"name": question.subject.name, "fields": names}).to_string().into_bytes())
        })
    }
}

/// A record with a decision about the HPA `decided`.
#[derive(Debug)]
struct Recorded;

impl Record for Recorded {
    fn last_decisions(&self) -> BoxFuture<'static, Result<Option<Decisions>, Unavailable>> {
        let since = jiff::Timestamp::UNIX_EPOCH;
        let decision = LastDecision { sentence: "stays at 1".to_owned(), since, late_since: None };
        let by_key = [(("shop".to_owned(), "decided".to_owned()), decision)].into();
        Box::pin(std::future::ready(Ok(Some(Decisions { by_key }))))
    }
}

struct World {
    cluster: Cluster,
    simulation: Simulation,
    port: u16,
    path: String,
    _stop: DropGuard,
}

fn hpa(name: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "minReplicas": 1, "maxReplicas": 9},
    })
}

async fn world(names: &[&str]) -> World {
    let clock = Arc::new(SystemClock);
    let cluster = Cluster::new(clock.clone());
    for name in names {
        cluster.create(hpa(name)).unwrap();
    }
    let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let access = Access::new(port, [7; 16]);
    let path = access.url().split_once(&format!(":{port}")).unwrap().1.to_owned();
    let simulation = Simulation::default();
    let providers = Providers {
        explain: Arc::new(Echo),
        inspect: Arc::new(Echo),
        what_if: Arc::new(simulation.clone()),
        record: Arc::new(Recorded),
    };
    let (console, watch) = Console::new(access, &Store::new(clock), clients.watch, None, providers);
    let stop = CancellationToken::new();
    tokio::spawn(stop.clone().run_until_cancelled_owned(watch));
    let serving = stop.clone();
    tokio::spawn(async move { console.serve(listener, serving).await });
    World { cluster, simulation, port, path, _stop: stop.drop_guard() }
}

impl World {
    async fn send(&self, request: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let request = request.replace("PATH/", &self.path).replace("PORT", &self.port.to_string());
        stream.write_all(request.replace('\n', "\r\n").as_bytes()).await.unwrap();
        BufReader::new(stream)
    }

    /// Sends a request and returns the whole response.
    async fn answer(&self, request: &str) -> String {
        let mut text = String::new();
        self.send(request).await.read_to_string(&mut text).await.unwrap();
        text
    }

    async fn get(&self, path: &str) -> String {
        self.answer(&format!("GET PATH/{path} HTTP/1.1\nHost: 127.0.0.1:PORT\nConnection: close\n\n")).await
    }

    async fn events(&self) -> Events {
        Events(self.send("GET PATH/stream HTTP/1.1\nHost: 127.0.0.1:PORT\n\n").await)
    }
}

struct Events(BufReader<TcpStream>);

impl Events {
    /// Returns the data of the next event of type `event` for which `is_wanted` returns true.
    async fn next(&mut self, event: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let mut found = false;
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).await.unwrap() > 0, "the stream ended");
            if let Some(name) = line.strip_prefix("event: ") {
                found = name.trim() == event;
            } else if let Some(data) = line.strip_prefix("data: ").filter(|_| found) {
                let data: Value = serde_json::from_str(data).unwrap();
                if is_wanted(&data) {
                    return data;
                }
            }
        }
    }
}

fn has(name: &str) -> impl Fn(&Value) -> bool {
    let name = name.to_owned();
    move |data| data["rows"].as_array().unwrap().iter().any(|row| row["name"] == name)
}

#[tokio::test]
async fn every_response_has_the_headers_that_protect_the_page() {
    let world = world(&[]).await;
    for path in ["", "console.css", "main.js", "figure.css", "nothing", "../nothing", "hpas/a", "hpas/%ff/a"]
    {
        let text = world.get(path).await;
        let policy = "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'";
        assert!(text.contains(policy) && !text.contains("unsafe-inline"), "{path}: {text}");
        for header in
            ["cache-control: no-store", "referrer-policy: no-referrer", "x-content-type-options: nosniff"]
        {
            assert!(text.contains(header), "{path}: {text}");
        }
        assert!(!text.to_lowercase().contains("set-cookie"), "{path}");
    }
    assert!(world.get("").await.starts_with("HTTP/1.1 200 "));
    assert!(world.get("nothing").await.starts_with("HTTP/1.1 404 "));
    assert!(world.get("hpas/%ff/a").await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn foreign_requests_are_refused() {
    let world = world(&["web"]).await;
    for (request, status) in [
        ("GET PATH/stream HTTP/1.1\nHost: evil.example\nConnection: close\n\n", "421"),
        (
            "GET PATH/stream HTTP/1.1\nHost: 127.0.0.1:PORT\nOrigin: http://evil.example\nConnection: close\n\n",
            "403",
        ),
        ("GET /0123/stream HTTP/1.1\nHost: 127.0.0.1:PORT\nConnection: close\n\n", "403"),
        ("GET /stream HTTP/1.1\nHost: 127.0.0.1:PORT\nConnection: close\n\n", "403"),
        ("POST PATH/stream HTTP/1.1\nHost: 127.0.0.1:PORT\nConnection: close\nContent-Length: 0\n\n", "405"),
        ("GET PATH/ HTTP/1.1\nHost: 127.0.0.1:PORT\nConnection: close\nContent-Length: 2\n\n{}", "413"),
    ] {
        let text = world.answer(request).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {text}");
        assert!(!text.contains("web"), "{text}");
    }
}

#[tokio::test]
async fn long_headers_end_the_connection() {
    let world = world(&[]).await;
    let long = "a".repeat(super::MAX_HEADERS);
    let text = world.answer(&format!("GET PATH/ HTTP/1.1\nHost: 127.0.0.1:PORT\nX-Long: {long}\n\n")).await;
    assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
}

#[tokio::test]
async fn explanation_is_that_of_the_named_hpa() {
    let world = world(&[]).await;
    let text = world.get("hpas/shop/a%20b").await;
    assert!(text.ends_with(r#"{"name":"a b","namespace":"shop"}"#), "{text}");
    let text = world.get("hpas/shop/broken").await;
    assert!(text.starts_with("HTTP/1.1 502 ") && text.ends_with("the HPA cannot be read"), "{text}");
}

#[tokio::test]
async fn state_of_the_controller_names_what_is_missing() {
    let world = world(&[]).await;
    let text = world.get("controller").await;
    let missing = r#""missing":[{"part":"metrics","reason":"no permission","advice":"a role"}]"#;
    assert!(text.starts_with("HTTP/1.1 200 ") && text.contains(missing), "{text}");
}

#[tokio::test]
async fn stream_has_all_rows_and_then_the_changes() {
    let world = world(&["a", "b"]).await;
    let mut events = world.events().await;
    events.next("status", |status| status["synced"] == true).await;
    let mut late = world.events().await;
    let all = late.next("rows", has("b")).await;
    assert_eq!((&all["all"], all["rows"].as_array().unwrap().len()), (&json!(true), 2));
    world.cluster.create(hpa("c")).unwrap();
    let change = late.next("rows", has("c")).await;
    assert_eq!((&change["all"], change["rows"].as_array().unwrap().len()), (&json!(false), 1));
    world.cluster.delete("autoscaling/horizontalpodautoscalers", "shop", "a").unwrap();
    let removed = late.next("rows", |data| data["removed"] != json!([])).await;
    assert_eq!(removed["removed"], json!([["shop", "a"]]));
}

#[tokio::test]
async fn many_rows_are_sent_in_parts() {
    let names: Vec<String> = (0..1_200).map(|number| format!("web-{number:04}")).collect();
    let world = world(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut first = world.events().await;
    first.next("status", |status| status["synced"] == true).await;
    let mut events = world.events().await;
    let mut sizes = Vec::new();
    while sizes.iter().sum::<usize>() < names.len() {
        let part = events.next("rows", |_| true).await;
        assert_eq!(part["all"], sizes.is_empty());
        sizes.push(part["rows"].as_array().unwrap().len());
    }
    assert_eq!(sizes, [500, 500, 200]);
}

#[tokio::test]
async fn lost_api_server_is_reported_and_rows_stay() {
    let world = world(&["web"]).await;
    let mut events = world.events().await;
    events.next("status", |status| status["synced"] == true).await;
    world.cluster.faults().add(FaultRule::new(FaultAction::Close));
    world.cluster.faults().add(FaultRule::new(FaultAction::WatchClose));
    let status = events.next("status", |status| status["error"] != Value::Null).await;
    assert_eq!(status["synced"], true);
    let mut again = world.events().await;
    again.next("rows", has("web")).await;
}

#[tokio::test]
async fn server_ends_with_open_streams_when_it_stops() {
    let world = world(&["web"]).await;
    let mut events = world.events().await;
    events.next("rows", |_| true).await;
    drop(world);
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(30), events.0.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection stays open");
}

#[tokio::test]
async fn question_has_the_fields_of_its_query() {
    let world = world(&[]).await;
    let text = world.get("hpas/shop/web/whatif?max=20&policy=a%3A+b").await;
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    assert!(text.ends_with(r#"{"fields":["max","policy"],"name":"web"}"#), "{text}");
    let text = world.get("hpas/shop/web/whatif?bad=x").await;
    assert!(text.starts_with("HTTP/1.1 422 "), "{text}");
    assert!(text.ends_with(r#"{"field":"bad","message":"must be a whole number"}"#), "{text}");
    let text = world.get("hpas/shop/web/whatif?bad=%ff").await;
    assert!(text.ends_with(r#"{"field":null,"message":"a field of the question is not UTF-8"}"#), "{text}");
    let long = "a".repeat(super::MAX_HEADERS);
    assert!(world.get(&format!("hpas/shop/web/whatif?policy={long}")).await.starts_with("HTTP/1.1 4"));
    for request in [
        "POST PATH/hpas/shop/web/whatif HTTP/1.1\nHost: 127.0.0.1:PORT\nConnection: close\nContent-Length: 0\n\n",
        "GET /0/hpas/shop/web/whatif?max=2 HTTP/1.1\nHost: 127.0.0.1:PORT\nConnection: close\n\n",
        "GET PATH/hpas/shop/web/whatif HTTP/1.1\nHost: 127.0.0.1:PORT\nOrigin: http://evil.example\nConnection: close\n\n",
    ] {
        let text = world.answer(request).await;
        assert!(text.starts_with("HTTP/1.1 4") && !text.contains("fields"), "{text}");
    }
}

#[tokio::test]
async fn one_simulation_runs_at_a_time_and_ends_with_its_connection() {
    let world = world(&[]).await;
    let running = || world.simulation.running.load(Ordering::SeqCst);
    let request = "GET PATH/hpas/shop/web/whatif?wait HTTP/1.1\nHost: 127.0.0.1:PORT\n\n";
    let first = world.send(request).await;
    while running() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The second simulation waits until the first connection closes, which stops the first simulation.
    let second = world.get("hpas/shop/api/whatif?max=3");
    let close = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(first);
    };
    let (text, ()) = tokio::time::timeout(Duration::from_secs(30), async { tokio::join!(second, close) })
        .await
        .expect("the first simulation does not end");
    assert!(text.ends_with(r#"{"fields":["max"],"name":"api"}"#), "{text}");
    assert_eq!(world.simulation.most.load(Ordering::SeqCst), 1);
    assert_eq!(running(), 0);
}

#[tokio::test]
async fn rows_have_the_last_decision_of_the_record() {
    let world = world(&["decided", "other"]).await;
    let mut events = world.events().await;
    let has_decision =
        |data: &Value| data["rows"].as_array().unwrap().iter().any(|row| row["decision"] == "stays at 1");
    let data = events.next("rows", has_decision).await;
    let rows = data["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "decided").unwrap();
    assert_eq!((&row["decided"], row["late"].is_null()), (&json!("1970-01-01T00:00:00Z"), true));
    assert!(rows.iter().all(|row| row["name"] == "decided" || row["decision"].is_null()));
}
