//! One replica asks another one, over real TCP and TLS.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use concertina::api::client::{ClientOptions, Clients};
use concertina::api::peers::{LARGEST, Peers};
use concertina::history::replica::link::{Fingerprint, Link, LinkError, Peer};
use concertina::serve::{HeldPage, Reply};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::rig::{Rig, SOON};

const HPAS: &str = "horizontalpodautoscalers.autoscaling";
const REPLICA: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

/// A replica with this token.
fn replica(token: &str) -> Peers {
    let mut config = kube::Config::new("https://127.0.0.1:6443".parse().unwrap());
    config.auth_info.token = Some(token.to_owned().into());
    of(&config)
}

fn of(config: &kube::Config) -> Peers {
    let clients = Clients::new(config, &ClientOptions::default()).unwrap();
    Peers::new(&clients, &config.cluster_url, None).unwrap()
}

/// A page that tells what it was asked for, and how often it was asked.
fn page() -> (HeldPage, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let page: HeldPage = Arc::new(move |query| {
        counted.fetch_add(1, Ordering::Relaxed);
        let body = format!("asked for {}", query.unwrap_or_default()).into_bytes();
        Box::pin(async move { Reply { status: http::StatusCode::OK, content_type: "text/plain", body } })
    });
    (page, asked)
}

/// A leader that serves it, and who may see it.
fn leader(page: HeldPage) -> Rig {
    let rig = Rig::serving(|_| {}, |_| {}, |endpoints| endpoints.with_history(page, None));
    rig.reviews().add_token("good", REPLICA, &[]);
    rig.reviews().allow_resource(REPLICA, "list", HPAS, None);
    rig
}

fn at(rig: &Rig) -> Peer {
    Peer { address: rig.address, certificate: rig.certificate }
}

async fn ask(replica: &Peers, peer: &Peer) -> Result<String, LinkError> {
    let answer = timeout(SOON, replica.ask(peer, "/history?since=1.2&wait=900ms")).await.unwrap();
    answer.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn a_replica_is_told_what_it_asks_for_on_one_connection() {
    let (page, asked) = page();
    let (rig, replica) = (leader(page), replica("good"));
    for _ in 0..3 {
        assert_eq!(ask(&replica, &at(&rig)).await, Ok("asked for since=1.2&wait=900ms".to_owned()));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    assert_eq!(rig.token_reviews(), 1);
    rig.end().await;
}

#[tokio::test]
async fn whoever_shows_another_certificate_is_shown_no_token() {
    let (page, asked) = page();
    let (rig, replica) = (leader(page), replica("good"));
    let pinned = Fingerprint::of(b"another");
    let error = ask(&replica, &Peer { certificate: pinned, ..at(&rig) }).await.unwrap_err();
    assert_eq!(error, LinkError::Certificate { peer: rig.address, shown: rig.certificate, pinned });
    assert_eq!((asked.load(Ordering::Relaxed), rig.token_reviews()), (0, 0));
    // Nor is it after the right one was talked to.
    ask(&replica, &at(&rig)).await.unwrap();
    assert!(ask(&replica, &Peer { certificate: pinned, ..at(&rig) }).await.is_err());
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    rig.end().await;
}

#[tokio::test]
async fn a_replica_that_may_not_list_hpas_is_told_so() {
    let (page, asked) = page();
    let rig = leader(page);
    rig.reviews().add_token("useless", "nobody", &[]);
    for (token, code, reason) in [("useless", 403, "cannot list resource"), ("wrong", 401, "Unauthorized")] {
        match ask(&replica(token), &at(&rig)).await {
            Err(LinkError::Refused { code: answered, message, .. }) => {
                assert_eq!(answered, code);
                assert!(message.contains(reason), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    let nobody = of(&kube::Config::new("https://127.0.0.1:6443".parse().unwrap()));
    assert!(matches!(ask(&nobody, &at(&rig)).await, Err(LinkError::Credentials(_))));
    rig.end().await;
}

#[tokio::test]
async fn where_namespaces_are_watched_to_list_theirs_is_enough() {
    let (page, _) = page();
    let watched = ["shop", "web"].map(str::to_owned).into();
    let rig = Rig::serving(|_| {}, |_| {}, |endpoints| endpoints.with_history(page, Some(watched)));
    for (token, namespaces) in [("both", &["shop", "web"][..]), ("one", &["shop"])] {
        rig.reviews().add_token(token, token, &[]);
        for namespace in namespaces {
            rig.reviews().allow_resource(token, "list", HPAS, Some(namespace));
        }
    }
    assert!(ask(&replica("both"), &at(&rig)).await.is_ok());
    assert!(matches!(ask(&replica("one"), &at(&rig)).await, Err(LinkError::Refused { code: 403, .. })));
    rig.end().await;
}

#[tokio::test]
async fn a_leader_that_is_slow_can_be_left_and_asked_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
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
    let peer = at(&rig);
    {
        let mut asking = replica.ask(&peer, "/history");
        while asked.load(Ordering::Relaxed) == 0 {
            let step = tokio::task::yield_now();
            tokio::select! { biased; answer = &mut asking => panic!("{answer:?}"), () = step => {} }
        }
    }
    assert_eq!(ask(&replica, &peer).await, Ok("here".to_owned()));
    rig.end().await;
}

/// A server that shows a certificate and answers every connection with these bytes, again and again if `endless`.
async fn answers(answer: &'static [u8], endless: bool, own_key: bool) -> Peer {
    let certificate = |key: &KeyPair| CertificateParams::new(Vec::new()).unwrap().self_signed(key).unwrap();
    let keys = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
    let shown: CertificateDer<'static> = certificate(&keys[0]).der().clone();
    let fingerprint = Fingerprint::of(&shown);
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
async fn whoever_shows_the_certificate_without_having_its_key_is_not_believed() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    assert_eq!(ask(&replica("good"), &answers(answer, false, true).await).await, Ok("ok".to_owned()));
    let error = ask(&replica("good"), &answers(answer, false, false).await).await.unwrap_err();
    assert!(matches!(error, LinkError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn what_is_no_answer_or_has_no_end_is_given_up() {
    let chunk = b"10000\r\n";
    let chunked: &'static [u8] = Box::leak(
        [&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..], &many_chunks(chunk)].concat().into(),
    );
    let cases: [(&str, &'static [u8], bool); 4] = [
        ("garbage", b"SSH-2.0-OpenSSH_9.6\r\n", false),
        ("an early end", b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok", false),
        ("a header without end", b"HTTP/1.1 200 OK\r\nX: y\r\n", true),
        ("nothing", b"", false),
    ];
    for (what, answer, endless) in cases {
        let error = ask(&replica("good"), &answers(answer, endless, true).await).await.unwrap_err();
        assert!(matches!(error, LinkError::Unreachable { .. }), "{what}: {error:?}");
    }
    let huge = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n";
    for (what, answer) in [("a huge length", &huge[..]), ("chunks", chunked)] {
        let peer = answers(Box::leak(answer.into()), false, true).await;
        let error = ask(&replica("good"), &peer).await.unwrap_err();
        assert_eq!(error, LinkError::TooLarge { peer: peer.address, limit: LARGEST }, "{what}");
    }
}

/// More than the largest answer, in chunks of 64 KiB.
fn many_chunks(head: &[u8]) -> Vec<u8> {
    let chunk = [head, &vec![b'x'; 0x10000], b"\r\n"].concat();
    chunk.repeat(LARGEST / 0x10000 + 1)
}

#[tokio::test]
async fn nobody_is_there() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let peer = Peer { address, certificate: Fingerprint::of(b"") };
    let error = ask(&replica("good"), &peer).await.unwrap_err();
    assert!(matches!(error, LinkError::Unreachable { .. }), "{error:?}");
}
