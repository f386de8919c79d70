//! Tests of the webhook over real TLS, with the embedded API server behind it.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::spec::Spec;
use clock::{SharedClock, SystemClock};
use cluster::client::{ClientOptions, Clients};
use coexist::handover::admission::MAX_BODY;
use coexist::handover::charges::Charges;
use coexist::handover::scope::ControllerName;
use concertina::handover::certificate::Certificate;
use concertina::handover::{Plurals, Review};
use concertina::serve::webhook::Webhook;
use engine::store::{HpaRecord, Key};
use engine::telemetry::metrics::Metrics;
use fake_cluster::Cluster;
use flags::tls::TlsOptions;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::sync::CancellationToken;

use crate::harness::{client, connect};

const USER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";
const SERVICE: &str = "concertina-handover.concertina-system.svc";

struct Rig {
    address: SocketAddr,
    certificate: Arc<Certificate>,
    telemetry: Metrics,
    charges: Arc<Charges>,
    stop: CancellationToken,
}

impl Rig {
    /// A webhook with HPA `shop/web-hpa` of Deployment `shop/web` in scope.
    async fn start() -> Self {
        let rig = Self::before_sync().await;
        rig.charges.set_synced();
        rig
    }

    /// Like [`Self::start`], but before the first lists are complete.
    async fn before_sync() -> Self {
        let clock: SharedClock = Arc::new(SystemClock);
        let cluster = Cluster::new(Arc::clone(&clock));
        let metadata = json!({"namespace": "concertina-system", "name": "concertina-handover"});
        cluster.create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})).unwrap();
        let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
        let provider = Arc::new(default_provider());
        let certificate = Certificate::signed(
            &clients.guard,
            "concertina-system",
            "concertina-handover",
            Arc::clone(&clock),
            provider,
        );
        let task = Arc::clone(&certificate);
        tokio::spawn(async move { task.keep_current().await });
        while certificate.bundle().is_none() {
            tokio::task::yield_now().await;
        }
        let charges = Charges::new(ControllerName::default(), Duration::from_secs(15), false, clock);
        charges.sort(&hpa(), false);
        let telemetry = Metrics::new();
        let review = Review {
            charges: Arc::clone(&charges),
            built_in_users: BTreeSet::from([USER.to_owned()]),
            lease: None,
            plurals: Arc::new(Plurals::default()),
            telemetry: telemetry.clone(),
        };
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let webhook = Webhook::bind(any, &TlsOptions::default(), Arc::clone(&certificate) as Arc<_>).unwrap();
        let (address, stop) = (webhook.address().unwrap(), CancellationToken::new());
        tokio::spawn(webhook.run(review.reviewer(), telemetry.clone(), stop.clone()));
        Self { address, certificate, telemetry, charges, stop }
    }

    /// A connection of a client that trusts the bundle, as the API server does.
    async fn connect(&self) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        let bundle = self.certificate.bundle().unwrap();
        roots
            .add_parsable_certificates(CertificateDer::pem_slice_iter(bundle.as_bytes()).map(Result::unwrap));
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        connect(self.address, SERVICE, config).await.unwrap()
    }

    /// Waits until the counts of unanswered requests by reason equal `expected`.
    async fn unanswered(&self, expected: &[(&str, u32)]) {
        let family = "concertina_handover_unanswered_total{";
        let expected: BTreeSet<_> =
            expected.iter().map(|(reason, count)| format!("{family}reason=\"{reason}\"}} {count}")).collect();
        let mut counted = BTreeSet::new();
        for _ in 0..1_000 {
            let text = self.telemetry.render();
            counted = text.lines().filter(|line| line.starts_with(family)).map(str::to_owned).collect();
            if counted == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("expected {expected:?}, counted {counted:?}");
    }

    async fn post(&self, body: &[u8]) -> (u16, String) {
        let mut stream = self.connect().await;
        send(&mut stream, &format!("POST /handover HTTP/1.1\r\nContent-Length: {}\r\n", body.len()), body)
            .await
    }
}

fn hpa() -> HpaRecord {
    let spec: Spec = serde_json::from_value(json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 3,
    }))
    .unwrap();
    let metadata = json!({"labels": {"concertina.dev/controller": "concertina"}});
    HpaRecord {
        key: Key::new("shop", "web-hpa"),
        uid: "1".into(),
        generation: None,
        resource_version: "1".to_owned(),
        metadata: RawValue::from_string(metadata.to_string()).unwrap(),
        spec_raw: RawValue::from_string("{}".to_owned()).unwrap().into(),
        spec: Arc::new(spec),
        status: Arc::default(),
        status_writers: Vec::new(),
    }
}

/// A review of a scale PUT by the built-in controller.
fn review(name: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "operation": "UPDATE", "namespace": "shop", "name": name, "subResource": "scale",
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
            "userInfo": {"username": USER},
        },
    })
}

/// Sends a request, reads until the connection closes, and returns status and body of the response.
async fn send(stream: &mut TlsStream<TcpStream>, head: &str, body: &[u8]) -> (u16, String) {
    let head = format!("{head}Host: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may refuse the request before it has read the whole body.
    let _ = stream.write_all(body).await;
    let mut text = Vec::new();
    let ended = stream.read_to_end(&mut text).await;
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() != ErrorKind::InvalidInput));
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn webhook_refuses_with_a_certificate_that_the_bundle_verifies() {
    let rig = Rig::start().await;
    let (status, body) = rig.post(review("web").to_string().as_bytes()).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &answer["response"]["allowed"]), (200, &json!(false)));
    assert!(answer["response"]["status"]["message"].as_str().unwrap().contains("\"shop/web-hpa\""));
    let (status, body) = rig.post(review("other").to_string().as_bytes()).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &answer["response"]), (200, &json!({"uid": "7", "allowed": true})));
    let mut dry_run = review("web");
    dry_run["request"]["dryRun"] = json!(true);
    let (_, body) = rig.post(dry_run.to_string().as_bytes()).await;
    assert!(body.contains("\"allowed\":false"), "{body}");
    // A refused dry run is not counted as a refused write.
    let counted = "concertina_handover_refused_total{resource=\"scale\"} 1\n";
    assert!(rig.telemetry.render().contains(counted), "{}", rig.telemetry.render());
    assert!(rig.charges.rows()[0].last_refused_write.is_some());
    rig.stop.cancel();
}

#[tokio::test]
async fn all_replicas_answer_the_same_write_at_once() {
    let rigs = [Rig::start().await, Rig::start().await, Rig::before_sync().await];
    let body = review("web").to_string();
    let posts = (0..8).flat_map(|_| rigs.iter().map(|rig| rig.post(body.as_bytes())));
    let answers = futures::future::join_all(posts).await;
    for (number, (status, answer)) in answers.iter().enumerate() {
        // A replica that is not synced allows the writes.
        let is_refused = number % 3 != 2;
        assert_eq!((*status, answer.contains("\"allowed\":false")), (200, is_refused), "{answer}");
    }
    for (rig, refused) in rigs.iter().zip([8, 8, 0]) {
        let counted = format!("concertina_handover_refused_total{{resource=\"scale\"}} {refused}\n");
        let text = rig.telemetry.render();
        assert!(text.contains(&counted) || refused == 0 && !text.contains("refused_total{"), "{text}");
        assert_eq!(rig.charges.rows()[0].last_refused_write.is_some(), refused > 0);
        rig.stop.cancel();
    }
}

#[tokio::test]
async fn webhook_survives_invalid_requests() {
    let rig = Rig::start().await;
    for (body, status) in [(&b"{"[..], 400), (b"", 400), (b"\xff\0", 400), (b"[[[[[[", 400)] {
        assert_eq!(rig.post(body).await.0, status, "{body:?}");
    }
    let mut stream = rig.connect().await;
    assert_eq!(send(&mut stream, "GET /handover HTTP/1.1\r\n", b"").await.0, 405);
    let mut stream = rig.connect().await;
    assert_eq!(send(&mut stream, "POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n", b"").await.0, 404);
    let mut stream = rig.connect().await;
    let large = format!("POST /handover HTTP/1.1\r\nContent-Length: {}\r\n", MAX_BODY + 1);
    assert_eq!(send(&mut stream, &large, b"").await.0, 413);
    // A chunked body has no declared length.
    let mut stream = rig.connect().await;
    let mut chunks = Vec::new();
    for _ in 0..=MAX_BODY >> 16 {
        chunks.extend_from_slice(b"10000\r\n");
        chunks.extend_from_slice(&vec![b' '; 1 << 16]);
        chunks.extend_from_slice(b"\r\n");
    }
    assert_eq!(
        send(&mut stream, "POST /handover HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", &chunks).await.0,
        413
    );
    assert_eq!(rig.post(review("web").to_string().as_bytes()).await.0, 200);
    rig.stop.cancel();
}

#[tokio::test]
async fn requests_without_an_answer_in_time_are_counted() {
    let rig = Rig::start().await;
    assert_eq!(rig.post(review("web").to_string().as_bytes()).await.0, 200);
    let mut stream = rig.connect().await;
    assert_eq!(send(&mut stream, "GET /handover HTTP/1.1\r\n", b"").await.0, 405);
    rig.unanswered(&[]).await;
    assert_eq!(rig.post(b"{").await.0, 400);
    rig.unanswered(&[("error", 1)]).await;
    let mut plain = TcpStream::connect(rig.address).await.unwrap();
    plain.write_all(b"POST /handover HTTP/1.1\r\n\r\n").await.unwrap();
    rig.unanswered(&[("error", 1), ("handshake", 1)]).await;
    // The client closes the connection before it has sent the whole body.
    let mut stream = rig.connect().await;
    let head = "POST /handover?timeout=1s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    drop(stream);
    rig.unanswered(&[("closed", 1), ("error", 1), ("handshake", 1)]).await;
    rig.stop.cancel();
}

#[tokio::test]
async fn request_of_a_client_that_left_is_counted_and_proves_nothing() {
    let rig = Rig::start().await;
    let mut stream = rig.connect().await;
    let body = review("web").to_string();
    let length = body.len();
    let request =
        format!("POST /handover HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}");
    // The webhook does not run before the connection is closed, as if its process were paused.
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    drop(stream);
    rig.unanswered(&[("closed", 1)]).await;
    // Without an answer, the API server allows the write, so no write was refused.
    assert_eq!(rig.charges.rows()[0].last_refused_write, None);
    rig.stop.cancel();
}

#[tokio::test]
async fn answers_after_the_time_limit_of_the_api_server_are_counted() {
    let rig = Rig::start().await;
    let body = review("web").to_string();
    for (query, counted) in
        [("", true), ("?timeout=10s", false), ("?timeout=1s", true), ("?timeout=99s", true)]
    {
        let mut stream = rig.connect().await;
        let length = body.len();
        let head =
            format!("POST /handover{query} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        tokio::time::pause();
        stream.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        tokio::time::resume();
        stream.write_all(body.as_bytes()).await.unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(start.get(9..), Some(&b"200"[..]));
        let expected = if counted { "unanswered_total{reason=\"late\"}" } else { "\n" };
        assert!(rig.telemetry.render().contains(expected), "{query}: {}", rig.telemetry.render());
    }
    rig.unanswered(&[("late", 3)]).await;
    rig.stop.cancel();
}

/// The time is real, because slow bodies would time out at once in virtual time.
#[tokio::test]
async fn slow_large_bodies_leave_room_for_reviews_of_usual_size() {
    let rig = Rig::start().await;
    let head = format!("POST /handover HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MAX_BODY}\r\n\r\n");
    let part = vec![b' '; MAX_BODY - 1];
    let mut slow = Vec::new();
    // Together 16 MiB, all of the memory for large bodies.
    for length in [part.len(), part.len(), part.len(), part.len(), part.len(), (1 << 20) - 1] {
        let mut stream = connect(rig.address, SERVICE, client(None)).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&part[..length]).await.unwrap();
        slow.push(stream);
    }
    for _ in 0..20 {
        assert_eq!(rig.post(review("web").to_string().as_bytes()).await.0, 200);
    }
    rig.stop.cancel();
}

/// Only on Linux does every loopback address belong to the machine.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn slow_large_bodies_of_one_address_leave_room_for_large_reviews_of_others() {
    use tokio::net::TcpSocket;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::ServerName;

    let rig = Rig::start().await;
    let head = format!("POST /handover HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MAX_BODY}\r\n\r\n");
    let part = vec![b' '; MAX_BODY - 1];
    let mut slow = Vec::new();
    for length in [part.len(), part.len(), part.len(), part.len(), part.len(), (1 << 20) - 1] {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
        let stream = socket.connect(rig.address).await.unwrap();
        let name = ServerName::try_from(SERVICE).unwrap();
        let mut stream = TlsConnector::from(Arc::new(client(None))).connect(name, stream).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // The webhook may refuse the body before it has read all of it.
        let _ = stream.write_all(&part[..length]).await;
        slow.push(stream);
    }
    let mut large = review("web");
    large["request"]["object"] = json!({"metadata": {"annotations": {"text": "x".repeat(2 << 20)}}});
    // In virtual time, a pause ends when the webhook has read all that was sent.
    tokio::time::pause();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::resume();
    assert_eq!(rig.post(large.to_string().as_bytes()).await.0, 200);
    rig.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn webhook_bounds_the_memory_and_time_of_bodies() {
    let rig = Rig::start().await;
    let head = format!("POST /handover HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MAX_BODY}\r\n\r\n");
    let part = vec![b' '; MAX_BODY - 1];
    let mut slow = Vec::new();
    for _ in 0..6 {
        let mut stream = connect(rig.address, SERVICE, client(None)).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let _ = stream.write_all(&part).await;
        slow.push(stream);
    }
    // All bodies together may use 16 MiB and a little for each, so five of 3 MiB fit. The sixth is refused, unless
    // others have timed out by then.
    let mut statuses = Vec::new();
    for mut stream in slow {
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        statuses.push(String::from_utf8_lossy(&start[9..]).into_owned());
    }
    assert!(statuses.iter().all(|status| matches!(status.as_str(), "408" | "429")), "{statuses:?}");
    assert_eq!(rig.post(review("web").to_string().as_bytes()).await.0, 200);
    rig.stop.cancel();
}
