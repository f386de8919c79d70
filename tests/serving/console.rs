//! Tests of the page that `--console` serves on the secure port.

use std::sync::Arc;

use clock::SystemClock;
use cluster::watch::Informer;
use concertina::serve::ConsolePages;
use console::controller::{ControllerState, Inspect};
use console::pages::Pages;
use console::store::Store;
use console::{Explain, Subject};
use fake_cluster::Cluster;
use futures::future::BoxFuture;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;

use crate::harness::{Authority, Harness, SOON, ask, bearer, client};

const HPAS: &str = "horizontalpodautoscalers.autoscaling";

/// Explains each HPA by its name, and reports an empty state of the controller.
#[derive(Debug)]
struct Echo;

impl Explain for Echo {
    fn explain(&self, subject: Subject) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        Box::pin(std::future::ready(Ok(subject.name.into_bytes())))
    }

    fn style(&self) -> String {
        String::new()
    }
}

impl Inspect for Echo {
    fn inspect(&self) -> BoxFuture<'static, ControllerState> {
        Box::pin(std::future::ready(ControllerState::default()))
    }
}

/// A server whose console shows the HPAs `shop/web` and `bank/web`.
fn start() -> Harness {
    start_in(|_| {})
}

/// Like [`start`], but `fill` creates objects in the cluster first.
fn start_in(fill: impl FnOnce(&Cluster)) -> Harness {
    let store = Store::new(Arc::new(SystemClock));
    for namespace in ["shop", "bank"] {
        let hpa = json!({"metadata": {"namespace": namespace, "name": "web"}, "spec": {"maxReplicas": 3}});
        store.put(&cluster::decode::hpa(hpa.to_string().as_bytes()).unwrap());
    }
    let pages = Pages::new(store, Informer::new([]), Arc::new(Echo), Arc::new(Echo));
    Harness::serving(|_| {}, fill, |endpoints| endpoints.with_console(Some(ConsolePages::new(pages))))
}

/// Permits the user `jane`, with the token `tenant`, to open the console and to read the HPAs of `shop`.
fn allow_tenant(rig: &Harness) {
    rig.reviews().add_token("tenant", "jane", &["shop-developers"]);
    rig.reviews().allow_path("jane", "get", "/console");
    rig.reviews().allow_resource("shop-developers", "list", HPAS, Some("shop"));
    rig.reviews().allow_resource("shop-developers", "get", HPAS, Some("shop"));
}

/// Requests the event stream of the console, without waiting for the response.
async fn stream(rig: &Harness, token: &str) -> TlsStream<TcpStream> {
    let mut stream = rig.connect(client(None)).await.unwrap();
    let request = format!("GET /console/stream HTTP/1.1\r\nHost: localhost\r\n{}\r\n", bearer(token));
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads from the stream until the received text contains `wanted`. Returns that text.
async fn until(stream: &mut TlsStream<TcpStream>, wanted: &str) -> String {
    let mut text = String::new();
    let reading = async {
        while !text.contains(wanted) {
            let mut piece = vec![0; 4096];
            let read = stream.read(&mut piece).await.unwrap();
            assert!(read > 0, "the stream ended: {text}");
            text.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
    };
    let within = timeout(SOON, reading).await;
    assert!(within.is_ok(), "no {wanted}: {text}");
    text
}

#[tokio::test]
async fn console_shows_what_its_client_may_read() {
    let rig = start();
    allow_tenant(&rig);
    let (status, page) = rig.get("/console/", "tenant").await;
    assert!(status == 200 && page.contains("main.js"), "{status} {page}");
    let mut tenant = stream(&rig, "tenant").await;
    let text = until(&mut tenant, "event: rows").await;
    assert!(text.contains("\"namespaces\":1"), "{text}");
    let text = if text.contains("\"shop\"") { text } else { until(&mut tenant, "\"shop\"").await };
    assert!(!text.contains("\"bank\""), "{text}");
    assert_eq!(rig.get("/console/hpas/shop/web", "tenant").await, (200, "web".to_owned()));
    for forbidden in ["/console/hpas/bank/web", "/console/controller"] {
        assert_eq!(rig.get(forbidden, "tenant").await.0, 403, "{forbidden}");
    }
    rig.reviews().add_token("admin", "root", &["system:masters"]);
    let mut admin = stream(&rig, "admin").await;
    until(&mut admin, "\"bank\"").await;
    let (status, state) = rig.get("/console/controller", "admin").await;
    assert!(status == 200 && state.contains("\"replicas\":[]"), "{status} {state}");
    rig.shut_down().await;
}

#[tokio::test]
async fn console_without_credentials_or_permission_shows_nothing() {
    let rig = start();
    rig.reviews().add_token("useless", "jack", &[]);
    rig.reviews().allow_resource("jack", "list", HPAS, None);
    for path in ["/console", "/console/", "/console/main.js", "/console/stream", "/console/hpas/shop/web"] {
        assert_eq!(rig.ask("GET", path, "").await.0, 401, "{path}");
        let (status, body) = rig.get(path, "useless").await;
        assert_eq!(status, 403, "{path}");
        assert!(body.contains("User \"jack\" cannot get path \"/console\""), "{body}");
    }
    assert_eq!(rig.get("/consoles", "useless").await.0, 403);
    rig.shut_down().await;
}

#[tokio::test]
async fn console_accepts_a_client_certificate() {
    let authority = Authority::new("cluster");
    let pem = authority.pem.clone();
    let rig = start_in(|cluster| {
        cluster.put_raw(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "kube-system", "name": "extension-apiserver-authentication"},
            "data": {"client-ca-file": pem},
        }));
    });
    rig.reviews().allow_path("viewers", "get", "/console");
    let start = Instant::now();
    // The server reads the certificate authorities after its start. Until then, it refuses the client certificate.
    loop {
        let identity = authority.sign("jane", "viewers", 2099);
        let (status, _) = rig.ask_with_certificate(identity, "/console/", "").await;
        if status == 200 {
            break;
        }
        assert!(status == 401 && start.elapsed() < SOON, "{status}");
    }
    rig.shut_down().await;
}

#[tokio::test]
async fn requests_of_other_pages_and_other_methods_are_refused() {
    let rig = start();
    allow_tenant(&rig);
    let token = bearer("tenant");
    let get = async |path: &str, headers: &str| rig.ask("GET", path, &format!("{token}{headers}")).await.0;
    for foreign in [
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: https://evil.example\r\n",
    ] {
        assert_eq!(get("/console/hpas/shop/web", foreign).await, 403, "{foreign}");
        assert_eq!(get("/console/stream", foreign).await, 403, "{foreign}");
    }
    // A link on another site may open the page.
    assert_eq!(get("/console/", "Sec-Fetch-Site: cross-site\r\n").await, 200);
    assert_eq!(get("/console/hpas/shop/web", "Sec-Fetch-Site: same-origin\r\n").await, 200);
    assert_eq!(get("/console/hpas/shop/web", "Origin: https://localhost\r\n").await, 200);
    assert_eq!(rig.ask("POST", "/console/", &token).await.0, 405);
    assert_eq!(get("/console", "").await, 307);
    assert_eq!(get("/console/nothing", "").await, 404);
    rig.shut_down().await;
}

#[tokio::test]
async fn streams_of_a_user_are_bounded_and_leave_connections_for_others() {
    let rig = start();
    allow_tenant(&rig);
    rig.reviews().add_token("other", "jack", &[]);
    rig.reviews().allow_path("jack", "get", "/console");
    let mut open = Vec::new();
    for _ in 0..8 {
        let mut one = stream(&rig, "tenant").await;
        until(&mut one, "event: status").await;
        open.push(one);
    }
    let mut ninth = rig.connect(client(None)).await.unwrap();
    let (status, body) = ask(&mut ninth, "GET", "/console/stream", &bearer("tenant")).await;
    assert!(status == 429 && body.contains("too many pages"), "{status} {body}");
    let mut other = stream(&rig, "other").await;
    until(&mut other, "event: status").await;
    drop(open);
    // The server notices a closed connection only when it next reads or writes.
    let start = Instant::now();
    loop {
        let mut one = stream(&rig, "tenant").await;
        if until(&mut one, "HTTP/1.1 ").await.contains(" 200 ") {
            break;
        }
        assert!(start.elapsed() < SOON, "the streams are still counted");
    }
    rig.shut_down().await;
}

#[tokio::test]
async fn console_is_off_by_default() {
    let rig = Harness::start();
    rig.reviews().add_token("admin", "root", &["system:masters"]);
    for path in ["/console", "/console/", "/console/stream"] {
        assert_eq!(rig.get(path, "admin").await.0, 404, "{path}");
    }
    rig.shut_down().await;
}
