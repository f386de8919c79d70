//! Certificates and tokens of servers, over TCP.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fake_cluster::pages::{PageResponse, PageServers};
use policies::spec::{Level, MetricRule, parse};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use sources::{Dial, Form, Network, Sources, Target, Values};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// The address of the server behind TLS.
const INSIDE: &str = "prometheus:9090";

/// A TLS server on 127.0.0.1, and sources that read it.
struct Rig {
    servers: PageServers,
    sources: Arc<Sources>,
    folder: PathBuf,
    serving: JoinHandle<()>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.serving.abort();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn certificate(name: &str) -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(vec![name.to_owned()]).unwrap()
}

/// Serves TLS with a certificate. Returns the port and the task.
async fn serve(own: &CertifiedKey<KeyPair>, servers: PageServers) -> (u16, JoinHandle<()>) {
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            // The handshake fails if the client refuses the certificate.
            if let Ok(mut tls) = acceptor.accept(tcp).await {
                let mut inside = servers.dial(INSIDE).unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut tls, &mut inside).await });
            }
        }
    });
    (port, serving)
}

impl Rig {
    /// Starts a server with the certificate `own`, and sources that trust `trusted`.
    async fn new(own: &CertifiedKey<KeyPair>, trusted: &CertifiedKey<KeyPair>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("sources-tls-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let servers = PageServers::default();
        servers.serve(INSIDE, |_| PageResponse::vector(&[(&[], 4.0)]));
        let (port, serving) = serve(own, servers.clone()).await;
        let (ca, token) = (folder.join("ca.crt"), folder.join("token"));
        std::fs::write(&ca, trusted.cert.pem()).unwrap();
        std::fs::write(&token, "first\n").unwrap();
        let file = folder.join("sources.yaml");
        let text = format!(
            "prometheus: [{{name: main, url: 'https://localhost:{port}', caFile: {}, bearerTokenFile: {}}}]",
            ca.display(),
            token.display(),
        );
        std::fs::write(&file, text).unwrap();
        let sources = Arc::new(Sources::new(file, None).unwrap());
        Self { servers, sources, folder, serving }
    }

    /// Sends a query, which must differ from all earlier queries.
    async fn query(&self, query: &str) -> Result<Values, String> {
        let namespace: Arc<str> = "shop".into();
        let target = Target { namespace: &namespace, name: "web", pods: &[], secrets: None };
        let read = self.sources.read(&rule(query), Form::Single, &target, jiff::Timestamp::UNIX_EPOCH).await;
        read.map(|reading| reading.values).map_err(|failure| failure.error.to_string())
    }

    fn tokens(&self) -> Vec<String> {
        self.servers.requests().into_iter().map(|request| request.authorization).collect()
    }
}

fn rule(query: &str) -> MetricRule {
    let text = format!("metrics: [{{metric: a, prometheus: {{server: main, query: '{query}'}}}}]");
    parse(&text, Level::Annotation).spec.metrics.unwrap().first().unwrap().clone()
}

const FOUR: Result<Values, String> = Ok(Values::Single(Some(4.0)));

#[tokio::test]
async fn token_is_sent_to_the_trusted_server_and_read_for_each_request() {
    let own = certificate("localhost");
    let rig = Rig::new(&own, &own).await;
    assert_eq!(rig.query("a").await, FOUR);
    std::fs::write(rig.folder.join("token"), "second").unwrap();
    assert_eq!(rig.query("b").await, FOUR);
    assert_eq!(rig.tokens(), ["Bearer first", "Bearer second"]);
    std::fs::remove_file(rig.folder.join("token")).unwrap();
    let error = rig.query("c").await.unwrap_err();
    assert!(error.starts_with("cannot read the token: "), "{error}");
    std::fs::write(rig.folder.join("token"), "two\nlines").unwrap();
    let error = rig.query("d").await.unwrap_err();
    assert!(error.ends_with("it is not a valid header value") && !error.contains("lines"), "{error}");
    assert_eq!(rig.tokens().len(), 2);
}

#[tokio::test]
async fn token_is_not_sent_to_a_server_of_another_name_or_authority() {
    let (own, other) = (certificate("localhost"), certificate("localhost"));
    let elsewhere = certificate("prometheus.example.com");
    for (own, trusted) in [(&elsewhere, &elsewhere), (&own, &other)] {
        let rig = Rig::new(own, trusted).await;
        let error = rig.query("a").await.unwrap_err();
        assert!(error.starts_with("the request failed: ") && error.contains("certificate"), "{error}");
        assert_eq!(rig.tokens(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn renewed_authority_is_trusted_after_the_next_read_of_the_file() {
    let (own, other) = (certificate("localhost"), certificate("localhost"));
    let rig = Rig::new(&own, &other).await;
    rig.query("a").await.unwrap_err();
    std::fs::write(rig.folder.join("ca.crt"), own.cert.pem()).unwrap();
    rig.query("b").await.unwrap_err();
    rig.sources.reload().unwrap();
    assert_eq!(rig.query("c").await, FOUR);
    // An unusable authority keeps the previous sources.
    std::fs::write(rig.folder.join("ca.crt"), "none").unwrap();
    rig.sources.reload().unwrap_err();
    assert_eq!(rig.query("d").await, FOUR);
}

#[tokio::test]
async fn certificate_of_a_kubelet_is_verified_unless_skipped() {
    let (own, other) = (certificate("localhost"), certificate("localhost"));
    let (servers, folder) = (PageServers::default(), std::env::temp_dir());
    servers.serve(INSIDE, |_| PageResponse::page(""));
    let (port, serving) = serve(&own, servers).await;
    let ca = folder.join(format!("sources-kubelet-ca-{}", std::process::id()));
    let dial = async |network: Network| {
        network.dial(format!("https://localhost:{port}").parse().unwrap()).await.map(drop)
    };
    std::fs::write(&ca, other.cert.pem()).unwrap();
    let error = dial(Network::tls(Some(&ca)).unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    std::fs::write(&ca, own.cert.pem()).unwrap();
    dial(Network::tls(Some(&ca)).unwrap()).await.unwrap();
    dial(Network::unverified().unwrap()).await.unwrap();
    std::fs::remove_file(ca).unwrap();
    serving.abort();
}
