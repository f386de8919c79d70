//! The latency of the handover webhook: `cargo bench --bench webhook`.
//!
//! As in the product, the webhook serves TLS on a separate thread. 10,000 HPAs are in scope. A client on another thread
//! sends 1,000 requests per second over 16 connections. The latency of a request includes the wait for the previous
//! response on the connection. Rounds with reviews alternate with rounds of `GET /livez`, to which the port responds
//! with 404. The rounds of `GET /livez` show the cost of TLS, HTTP and the machine without a decision. The last column
//! has the ratios to this cost.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "the inputs are in this file"
)]
#![expect(clippy::disallowed_methods, reason = "latencies are measured in real time")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use autoscaling::spec::Spec;
use clock::{SharedClock, SystemClock};
use cluster::client::{ClientOptions, Clients};
use coexist::handover::charges::Charges;
use coexist::handover::objects::{BUILT_IN_USERS, service_name};
use coexist::handover::scope::{ControllerName, LABEL};
use concertina::handover::certificate::Certificate;
use concertina::handover::{Plurals, Review};
use concertina::serve::webhook::Webhook;
use engine::store::{HpaRecord, Key};
use engine::telemetry::metrics::Metrics;
use fake_cluster::Cluster;
use flags::tls::TlsOptions;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

const HPAS: usize = 10_000;
const RATE: u32 = 1_000;
const CONNECTIONS: u32 = 16;
const ROUND: Duration = Duration::from_secs(2);
const ROUNDS: u32 = 10;
const NAMESPACE: &str = "concertina-system";
const SERVICE: &str = "concertina-handover";

/// A kind of request, with its latencies.
struct Kind {
    name: &'static str,
    requests: Vec<Vec<u8>>,
    latencies: Vec<Duration>,
}

fn main() {
    let (sender, receiver) = oneshot::channel();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let server = std::thread::spawn(move || runtime().block_on(serve(sender, stopped)));
    runtime().block_on(async {
        let (address, bundle) = receiver.await.expect("the webhook must start");
        measure(address, &bundle).await;
    });
    stop.cancel();
    server.join().expect("the webhook must end");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Serves the webhook with [`HPAS`] HPAs in scope until `stop`.
async fn serve(ready: oneshot::Sender<(SocketAddr, String)>, stop: CancellationToken) {
    let clock: SharedClock = Arc::new(SystemClock);
    let cluster = Cluster::new(Arc::clone(&clock));
    let metadata = json!({"namespace": NAMESPACE, "name": SERVICE});
    cluster.create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})).unwrap();
    let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
    let provider = Arc::new(default_provider());
    let certificate = Certificate::signed(&clients.guard, NAMESPACE, SERVICE, Arc::clone(&clock), provider);
    let task = Arc::clone(&certificate);
    tokio::spawn(async move { task.keep_current().await });
    let bundle = loop {
        match certificate.bundle() {
            Some(bundle) => break bundle,
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    let charges = Charges::new(ControllerName::default(), Duration::from_secs(15), false, clock);
    charges.set_synced();
    for number in 0..HPAS {
        charges.sort(&hpa(number), true);
    }
    assert_eq!(charges.counts().claiming, HPAS);
    let telemetry = Metrics::new();
    let review = Review {
        charges,
        built_in_users: BUILT_IN_USERS.map(str::to_owned).into(),
        lease: None,
        plurals: Arc::new(Plurals::default()),
        telemetry: telemetry.clone(),
    };
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let webhook = Webhook::bind(any, &TlsOptions::default(), certificate).unwrap();
    ready.send((webhook.address().unwrap(), bundle)).unwrap();
    webhook.run(review.reviewer(), telemetry, stop).await;
}

async fn measure(address: SocketAddr, bundle: &str) {
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        streams.push(connect(address, bundle).await);
    }
    let mut kinds = [
        Kind::new("GET /livez", |_| b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        Kind::new("scale, refused", |number| post(&scale(&name(number)))),
        Kind::new("status, refused", |number| post(&status(&name(number)))),
        Kind::new("scale, out of scope", |number| post(&scale(&format!("free-{number}")))),
    ];
    // The latencies of the first round are dropped, because it warms up the connections and caches.
    for round in 0..=ROUNDS {
        for kind in &mut kinds {
            let mut latencies = Vec::new();
            streams = play(streams, &kind.requests, &mut latencies).await;
            if round > 0 {
                kind.latencies.append(&mut latencies);
            }
        }
    }
    println!("{HPAS} HPAs in scope, {RATE} requests a second over {CONNECTIONS} connections");
    println!(
        "request             |  bytes | requests | p50 µs | p99 µs | max µs | p50, p99 as multiples of GET /livez"
    );
    let [base, ..] = &mut kinds;
    let base = base.quantiles();
    for kind in &mut kinds {
        let [p50, p99, most] = kind.quantiles();
        println!(
            "{:19} | {:6} | {:8} | {:6.0} | {:6.0} | {:6.0} | {:4.2}, {:4.2}",
            kind.name,
            kind.requests[0].len(),
            kind.latencies.len(),
            p50 * 1e6,
            p99 * 1e6,
            most * 1e6,
            p50 / base[0],
            p99 / base[1],
        );
    }
}

impl Kind {
    fn new(name: &'static str, request: impl Fn(usize) -> Vec<u8>) -> Self {
        // Each request is for a different HPA, as in a cluster.
        let requests = (0..1009).map(|number| request(number * 7919 % HPAS)).collect();
        Self { name, requests, latencies: Vec::new() }
    }

    /// Returns the 50th and 99th percentiles and the maximum of the latencies, in seconds.
    fn quantiles(&mut self) -> [f64; 3] {
        self.latencies.sort_unstable();
        let last = self.latencies.len() - 1;
        [last / 2, last * 99 / 100, last].map(|at| self.latencies[at].as_secs_f64())
    }
}

/// Sends requests for [`ROUND`] at [`RATE`], spread over the connections. Adds the latencies to `latencies`, and
/// returns the connections.
async fn play(
    streams: Vec<TlsStream<TcpStream>>,
    requests: &[Vec<u8>],
    latencies: &mut Vec<Duration>,
) -> Vec<TlsStream<TcpStream>> {
    let start = Instant::now() + Duration::from_millis(20);
    let requests: Arc<[Vec<u8>]> = requests.into();
    let tasks = streams.into_iter().enumerate().map(|(number, mut stream)| {
        let requests = Arc::clone(&requests);
        let number = u32::try_from(number).unwrap();
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            let mut turn = number;
            loop {
                let after = Duration::from_secs(1) * turn / RATE;
                if after >= ROUND {
                    return (stream, latencies);
                }
                let planned = start + after;
                // The latency of a request that waits for the previous response starts at the planned time. Otherwise,
                // it starts at the send, because the timer has a resolution of a millisecond.
                let is_late = Instant::now() > planned;
                tokio::time::sleep_until(planned.into()).await;
                let sent = if is_late { planned } else { Instant::now() };
                exchange(&mut stream, &requests[turn as usize % requests.len()]).await;
                latencies.push(sent.elapsed());
                turn += CONNECTIONS;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut streams = Vec::new();
    for task in tasks {
        let (stream, mut some) = task.await.expect("a connection must not fail");
        streams.push(stream);
        latencies.append(&mut some);
    }
    streams
}

/// Sends a request and reads its response.
async fn exchange(stream: &mut TlsStream<TcpStream>, request: &[u8]) {
    stream.write_all(request).await.unwrap();
    stream.flush().await.unwrap();
    let (mut response, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut part).await.unwrap();
        assert!(length > 0, "the webhook closed a connection");
        response.extend_from_slice(&part[..length]);
        let text = String::from_utf8_lossy(&response);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_ascii_lowercase();
        let (_, declared) = head.split_once("content-length: ").expect("a response has a length");
        let declared: usize = declared.lines().next().unwrap().trim().parse().unwrap();
        if body.len() >= declared {
            return;
        }
    }
}

async fn connect(address: SocketAddr, bundle: &str) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle.as_bytes()).map(Result::unwrap));
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let server = ServerName::try_from(service_name(NAMESPACE, SERVICE)).unwrap();
    TlsConnector::from(Arc::new(config)).connect(server, stream).await.unwrap()
}

fn post(body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "POST /handover?timeout=1s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn namespace(number: usize) -> String {
    format!("team-{:03}", number % 200)
}

fn name(number: usize) -> String {
    format!("workload-{number:05}")
}

fn hpa(number: usize) -> HpaRecord {
    let spec: Spec = serde_json::from_value(json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name(number)},
        "maxReplicas": 30,
    }))
    .unwrap();
    let metadata = json!({"labels": {LABEL: "concertina"}});
    HpaRecord {
        key: Key::new(namespace(number).as_str(), name(number).as_str()),
        uid: number.to_string().as_str().into(),
        generation: None,
        resource_version: "1".to_owned(),
        metadata: RawValue::from_string(metadata.to_string()).unwrap(),
        spec_raw: RawValue::from_string("{}".to_owned()).unwrap().into(),
        spec: Arc::new(spec),
        status: Arc::default(),
        status_writers: Vec::new(),
    }
}

/// Creates the AdmissionReview of an update by the built-in controller.
#[expect(clippy::needless_pass_by_value, reason = "callers pass literals")]
fn review(name: &str, resource: Value, subresource: &str, object: Value) -> Value {
    let number = name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "0df28fbd-5f5f-11e8-bc74-36e6bb280816", "resource": resource, "requestResource": resource,
            "subResource": subresource, "requestSubResource": subresource, "name": name,
            "namespace": namespace(number), "operation": "UPDATE", "dryRun": false,
            "userInfo": {
                "username": BUILT_IN_USERS[0], "uid": "0df28fbd-5f5f-11e8-bc74-36e6bb280817",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
            },
            "object": object, "oldObject": object,
            "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

fn scale(name: &str) -> Value {
    let resource = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    let object = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": name, "resourceVersion": "123456789", "creationTimestamp": "2030-01-01T00:00:00Z"},
        "spec": {"replicas": 7}, "status": {"replicas": 5, "selector": format!("app={name}")},
    });
    review(name, resource, "scale", object)
}

fn status(name: &str) -> Value {
    let resource = json!({"group": "autoscaling", "version": "v2", "resource": "horizontalpodautoscalers"});
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z", "reason": "ValidMetricFound",
            "message": "the HPA was able to successfully calculate a replica count from cpu resource utilization",
        })
    };
    let metric = |metric: &str, value: i32| {
        json!({"type": "Resource", "resource": {"name": metric, "current": {
            "averageUtilization": value, "averageValue": format!("{value}m"),
        }}})
    };
    let object = json!({
        "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2",
        "metadata": {"name": name, "resourceVersion": "123456789", "labels": {LABEL: "concertina"}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "maxReplicas": 30,
            "metrics": [metric("cpu", 70), metric("memory", 80)],
        },
        "status": {
            "currentReplicas": 5, "desiredReplicas": 7,
            "currentMetrics": [metric("cpu", 71), metric("memory", 60)],
            "conditions": [condition("AbleToScale"), condition("ScalingActive"), condition("ScalingLimited")],
        },
    });
    review(name, resource, "status", object)
}
