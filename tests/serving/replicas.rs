//! Requests from one replica to another, over real TCP and TLS.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::client::{ClientOptions, Clients};
use cluster::user::Fingerprint;
use controller::election::Peer;
use controller::history::replica::peers::{LARGEST, PeerTransport, Peers, TransportError};
use controller::page::{HISTORY_AUDIENCE, HeldPage, Reply};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::harness::{Authority, Harness, SOON};

const HPAS: &str = "horizontalpodautoscalers.autoscaling";
const REPLICA: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

/// The token with which replicas use the API server.
const POWERFUL: &str = "powerful";

/// A configuration with a token for the API server.
fn config() -> kube::Config {
    let mut config = kube::Config::new("https://127.0.0.1:6443".parse().unwrap());
    config.auth_info.token = Some(POWERFUL.to_owned().into());
    config
}

/// A replica whose `--history-token-file` contains `token`.
fn replica(token: &str) -> Peers {
    peers_from(&config(), Some(file(token)))
}

fn peers_from(config: &kube::Config, token: Option<PathBuf>) -> Peers {
    let clients = Clients::new(config, &ClientOptions::default()).unwrap();
    Peers::new(&clients, token, &config.cluster_url, None).unwrap()
}

/// Writes a new file to the temporary folder of the tests.
fn file(content: &str) -> PathBuf {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let name = format!("replicas-{}-{number}", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// A page that returns its query, and a counter of its requests.
fn page() -> (HeldPage, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let page: HeldPage = Arc::new(move |query| {
        counted.fetch_add(1, Ordering::Relaxed);
        let body = format!("asked for {}", query.unwrap_or_default()).into_bytes();
        Box::pin(async move { Reply { status: http::StatusCode::OK, content_type: "text/plain", body } })
    });
    (page, requests)
}

/// A leader that serves the page to replicas.
fn leader(page: HeldPage) -> Harness {
    let rig = Harness::serving(|_| {}, |_| {}, |endpoints| endpoints.with_history(page, None));
    rig.reviews().add_token_for(&[HISTORY_AUDIENCE], "good", REPLICA, &[]);
    rig.reviews().add_token(POWERFUL, REPLICA, &[]);
    rig.reviews().allow_resource(REPLICA, "list", HPAS, None);
    rig
}

fn leader_peer(rig: &Harness) -> Peer {
    Peer { address: rig.address, certificate: rig.certificate }
}

async fn ask(replica: &Peers, peer: &Peer) -> Result<String, TransportError> {
    let answer = timeout(SOON, replica.get(peer, "/history?since=1.2&wait=900ms")).await.unwrap();
    answer.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn requests_of_a_replica_share_one_connection() {
    let (page, requests) = page();
    let (rig, replica) = (leader(page), replica("good"));
    for _ in 0..3 {
        assert_eq!(ask(&replica, &leader_peer(&rig)).await, Ok("asked for since=1.2&wait=900ms".to_owned()));
    }
    assert_eq!(requests.load(Ordering::Relaxed), 3);
    assert_eq!(rig.token_reviews(), 1);
    rig.shut_down().await;
}

#[tokio::test]
async fn token_is_not_sent_to_an_unpinned_certificate() {
    let (page, requests) = page();
    let (rig, replica) = (leader(page), replica("good"));
    let pinned = Fingerprint::from_der(b"another");
    let error = ask(&replica, &Peer { certificate: pinned, ..leader_peer(&rig) }).await.unwrap_err();
    assert_eq!(error, TransportError::Certificate { peer: rig.address, shown: rig.certificate, pinned });
    assert_eq!((requests.load(Ordering::Relaxed), rig.token_reviews()), (0, 0));
    // A wrong fingerprint is refused even after a successful connection.
    ask(&replica, &leader_peer(&rig)).await.unwrap();
    assert!(ask(&replica, &Peer { certificate: pinned, ..leader_peer(&rig) }).await.is_err());
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    rig.shut_down().await;
}

#[tokio::test]
async fn replica_without_list_permission_is_refused_with_the_reason() {
    let (page, requests) = page();
    let rig = leader(page);
    rig.reviews().add_token_for(&[HISTORY_AUDIENCE], "useless", "unprivileged", &[]);
    for (token, code, reason) in [("useless", 403, "cannot list resource"), ("wrong", 401, "Unauthorized")] {
        match ask(&replica(token), &leader_peer(&rig)).await {
            Err(TransportError::Refused { code: answered, message, .. }) => {
                assert_eq!(answered, code);
                assert!(message.contains(reason), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(requests.load(Ordering::Relaxed), 0);
    rig.shut_down().await;
}

#[tokio::test]
async fn token_of_the_api_server_is_never_sent_to_a_leader() {
    let (page, requests) = page();
    let rig = leader(page);
    rig.cluster.requests().keep_bodies();
    let peer = leader_peer(&rig);
    let missing = Path::new(env!("CARGO_TARGET_TMPDIR")).join("missing");
    for (token, part) in [
        (Some(missing), "missing does not exist"),
        (None, "set --history-token-file"),
        (Some(file(" ")), "is empty"),
    ] {
        match ask(&peers_from(&config(), token), &peer).await {
            Err(TransportError::Credentials(reason)) => assert!(reason.contains(part), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((requests.load(Ordering::Relaxed), rig.token_reviews()), (0, 0));

    ask(&replica("good"), &peer).await.unwrap();
    let reviewed = rig.cluster.requests().entries();
    let reviewed: Vec<_> =
        reviewed.iter().filter(|request| request.path.ends_with("/tokenreviews")).collect();
    let body: Value = serde_json::from_slice(&reviewed[0].body).unwrap();
    assert_eq!(body["spec"], json!({ "token": "good", "audiences": [HISTORY_AUDIENCE] }));
    assert_eq!(reviewed.len(), 1);
    rig.shut_down().await;
}

#[tokio::test]
async fn replaced_token_file_is_read_by_the_next_request() {
    let (page, _) = page();
    let rig = leader(page);
    rig.reviews().add_token_for(&[HISTORY_AUDIENCE], "next", REPLICA, &[]);
    let path = file("good");
    let replica = peers_from(&config(), Some(path.clone()));
    ask(&replica, &leader_peer(&rig)).await.unwrap();
    std::fs::write(&path, "next").unwrap();
    rig.reviews().remove_token("good");
    ask(&replica, &leader_peer(&rig)).await.unwrap();
    assert_eq!(rig.token_reviews(), 2);
    rig.shut_down().await;
}

#[tokio::test]
async fn replica_without_a_token_sends_its_client_certificate() {
    let (page, requests) = page();
    let authority = Authority::new("cluster");
    let path = file(&authority.pem);
    let rig = Harness::serving(
        |serving| serving.authentication.client_ca = Some(path),
        |_| {},
        |endpoints| endpoints.with_history(page, None),
    );
    rig.reviews().allow_resource("replicas", "list", HPAS, None);
    let mut config = config();
    let pem = |label: &str, der: &[u8]| {
        let text = STANDARD.encode(der);
        STANDARD.encode(format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n"))
    };
    let (certificate, key) = authority.sign("replica", "replicas", 4000);
    config.auth_info.client_certificate_data = Some(pem("CERTIFICATE", &certificate));
    config.auth_info.client_key_data = Some(pem("PRIVATE KEY", key.secret_der()).into());
    assert!(ask(&peers_from(&config, None), &leader_peer(&rig)).await.is_ok());
    assert_eq!((requests.load(Ordering::Relaxed), rig.token_reviews()), (1, 0));
    rig.shut_down().await;
}

#[tokio::test]
async fn history_accepts_only_tokens_of_its_audience() {
    let (page, requests) = page();
    let rig = leader(page);
    rig.reviews().allow_path(REPLICA, "get", "/metrics");
    // Each token is also tried on a page where it is valid, so that its review is cached.
    for _ in 0..2 {
        assert_eq!(rig.get("/metrics", POWERFUL).await.0, 200);
        assert_eq!(rig.get("/history", POWERFUL).await.0, 401);
        assert_eq!(rig.get("/history", "good").await.0, 200);
        assert_eq!(rig.get("/metrics", "good").await.0, 401);
    }
    assert_eq!((requests.load(Ordering::Relaxed), rig.token_reviews()), (2, 4));
    rig.shut_down().await;
}

#[tokio::test]
async fn review_that_confirms_no_audience_is_refused() {
    let (page, requests) = page();
    let rig = leader(page);
    rig.reviews().ignore_audiences();
    assert_eq!(rig.get("/history", POWERFUL).await.0, 401);
    assert_eq!(rig.get("/history", "good").await.0, 401);
    assert_eq!(requests.load(Ordering::Relaxed), 0);
    rig.shut_down().await;
}

#[tokio::test]
async fn list_permission_in_watched_namespaces_suffices() {
    let (page, _) = page();
    let watched = ["shop", "web"].map(str::to_owned).into();
    let rig = Harness::serving(|_| {}, |_| {}, |endpoints| endpoints.with_history(page, Some(watched)));
    for (token, namespaces) in [("both", &["shop", "web"][..]), ("one", &["shop"])] {
        rig.reviews().add_token_for(&[HISTORY_AUDIENCE], token, token, &[]);
        for namespace in namespaces {
            rig.reviews().allow_resource(token, "list", HPAS, Some(namespace));
        }
    }
    assert!(ask(&replica("both"), &leader_peer(&rig)).await.is_ok());
    assert!(matches!(
        ask(&replica("one"), &leader_peer(&rig)).await,
        Err(TransportError::Refused { code: 403, .. })
    ));
    rig.shut_down().await;
}

#[tokio::test]
async fn cancelled_request_can_be_repeated() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let slow: HeldPage = Arc::new(move |_| {
        let first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        Box::pin(async move {
            if first {
                std::future::pending::<()>().await;
            }
            Reply { status: http::StatusCode::OK, content_type: "text/plain", body: b"here".to_vec() }
        })
    });
    let (rig, replica) = (leader(slow), replica("good"));
    let peer = leader_peer(&rig);
    {
        let mut asking = replica.get(&peer, "/history");
        while requests.load(Ordering::Relaxed) == 0 {
            let step = tokio::task::yield_now();
            tokio::select! { biased; answer = &mut asking => panic!("{answer:?}"), () = step => {} }
        }
    }
    assert_eq!(ask(&replica, &peer).await, Ok("here".to_owned()));
    rig.shut_down().await;
}

/// Starts a server that presents a certificate. The server has the key of the certificate only if `own_key` is set. It
/// answers every connection with `answer`, repeatedly if `endless` is set.
async fn start_server(answer: &'static [u8], endless: bool, own_key: bool) -> Peer {
    let certificate = |key: &KeyPair| CertificateParams::new(Vec::new()).unwrap().self_signed(key).unwrap();
    let keys = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
    let shown: CertificateDer<'static> = certificate(&keys[0]).der().clone();
    let fingerprint = Fingerprint::from_der(&shown);
    let key = &keys[usize::from(!own_key)];
    let key = any_supported_type(&PrivateKeyDer::Pkcs8(key.serialize_der().into())).unwrap();
    let certified = CertifiedKey::new(vec![shown], key);
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            while stream.write_all(answer).await.is_ok() && endless {}
            let _ = stream.shutdown().await;
        }
    });
    Peer { address, certificate: fingerprint }
}

#[tokio::test]
async fn certificate_without_its_key_is_refused() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    assert_eq!(ask(&replica("good"), &start_server(answer, false, true).await).await, Ok("ok".to_owned()));
    let error = ask(&replica("good"), &start_server(answer, false, false).await).await.unwrap_err();
    assert!(matches!(error, TransportError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn invalid_and_endless_responses_fail() {
    let chunk = b"10000\r\n";
    let chunked: &'static [u8] = Box::leak(
        [&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..], &oversized_chunks(chunk)]
            .concat()
            .into(),
    );
    let cases: [(&str, &'static [u8], bool); 4] = [
        ("garbage", b"SSH-2.0-OpenSSH_9.6\r\n", false),
        ("an early end", b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok", false),
        ("a header without end", b"HTTP/1.1 200 OK\r\nX: y\r\n", true),
        ("nothing", b"", false),
    ];
    for (case, answer, endless) in cases {
        let error = ask(&replica("good"), &start_server(answer, endless, true).await).await.unwrap_err();
        assert!(matches!(error, TransportError::Unreachable { .. }), "{case}: {error:?}");
    }
    let huge = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n";
    for (case, answer) in [("a huge length", &huge[..]), ("chunks", chunked)] {
        let peer = start_server(Box::leak(answer.into()), false, true).await;
        let error = ask(&replica("good"), &peer).await.unwrap_err();
        assert_eq!(error, TransportError::TooLarge { peer: peer.address, limit: LARGEST }, "{case}");
    }
}

/// Chunks of 64 KiB that exceed the maximum response size in total.
fn oversized_chunks(head: &[u8]) -> Vec<u8> {
    let chunk = [head, &vec![b'x'; 0x10000], b"\r\n"].concat();
    chunk.repeat(LARGEST / 0x10000 + 1)
}

#[tokio::test]
async fn closed_port_is_unreachable() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let peer = Peer { address, certificate: Fingerprint::from_der(b"") };
    let error = ask(&replica("good"), &peer).await.unwrap_err();
    assert!(matches!(error, TransportError::Unreachable { .. }), "{error:?}");
}
