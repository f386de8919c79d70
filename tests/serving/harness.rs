//! A server on a free port with an embedded cluster behind it, and clients for it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use clock::{SharedClock, SystemClock};
use cluster::client::{ClientOptions, Clients};
use concertina::serve::{Access, Component, Endpoints, Health, ServeError, Server};
use engine::telemetry::metrics::Metrics;
use fake_cluster::{Cluster, FaultAction, FaultRule, Reviews};
use flags::Config;
use flags::serving::Serving;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio_util::sync::CancellationToken;

/// Maximum wait for a response, or for a condition that is normally met at once. Shorter than the time limit of a TLS
/// handshake, after which the server closes a connection in any case.
pub(crate) const SOON: Duration = Duration::from_secs(9);

pub(crate) struct Harness {
    pub(crate) cluster: Cluster,
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Harness {
    /// A server without permissions for any client.
    pub(crate) fn start() -> Self {
        Self::with(|_| {}, |_| {})
    }

    /// Like [`Self::start`], but `alter` changes the serving options, and `fill` creates objects in the cluster.
    pub(crate) fn with(alter: impl FnOnce(&mut Serving), fill: impl FnOnce(&Cluster)) -> Self {
        Self::serving(alter, fill, |endpoints| endpoints)
    }

    /// Like [`Self::with`], but with additional pages.
    pub(crate) fn serving(
        alter: impl FnOnce(&mut Serving),
        fill: impl FnOnce(&Cluster),
        pages: impl FnOnce(Endpoints) -> Endpoints,
    ) -> Self {
        let mut config = Config::default();
        config.serving.address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        alter(&mut config.serving);
        let server = loop {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
            config.serving.port = free.port();
            match Server::bind(&config.serving) {
                // A connection of a parallel test has taken the port.
                Err(ServeError::Listen { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {}
                bound => break bound.unwrap(),
            }
        };
        let clock: SharedClock = Arc::new(SystemClock);
        let cluster = Cluster::new(Arc::clone(&clock));
        fill(&cluster);
        let options = ClientOptions::default();
        let clients = Clients::over(cluster.connector(), &options).unwrap();
        let access =
            Access::new(&config.serving, config.own_kubeconfig(), &clients, &options, Arc::clone(&clock))
                .unwrap();
        let address = server.secure_address().unwrap();
        let endpoints = Endpoints::new(Health::new(), Metrics::new(), None).with_component(Component::new(
            config.controller.settings.version,
            config.flag_values(),
            clock,
        ));
        let endpoints = pages(endpoints);
        let stop = CancellationToken::new();
        let running = tokio::spawn(server.run(endpoints, access, stop.clone()));
        Self { cluster, address, stop, running }
    }

    pub(crate) fn reviews(&self) -> Reviews {
        self.cluster.reviews()
    }

    /// Makes the API server close every connection from now on.
    pub(crate) fn cut_off(&self) {
        self.cluster.faults().add(FaultRule::new(FaultAction::Close));
    }

    /// The number of TokenReview requests.
    pub(crate) fn token_reviews(&self) -> usize {
        self.cluster.requests().count(|request| request.path.ends_with("/tokenreviews"))
    }

    /// Sends a GET with a bearer token on a new connection. Returns status and body.
    pub(crate) async fn get(&self, path: &str, token: &str) -> (u16, String) {
        self.ask("GET", path, &bearer(token)).await
    }

    /// Sends a request on a new connection. Returns status and body.
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &str) -> (u16, String) {
        ask(&mut self.connect(client(None)).await.unwrap(), method, path, headers).await
    }

    /// Like [`Self::ask`], but with a client certificate.
    pub(crate) async fn ask_with_certificate(
        &self,
        identity: Identity,
        path: &str,
        headers: &str,
    ) -> (u16, String) {
        ask(&mut self.connect(client(Some(identity))).await.unwrap(), "GET", path, headers).await
    }

    pub(crate) async fn connect(&self, config: ClientConfig) -> io::Result<TlsStream<TcpStream>> {
        connect(self.address, "localhost", config).await
    }

    pub(crate) async fn shut_down(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

pub(crate) async fn connect(
    address: SocketAddr,
    name: &'static str,
    config: ClientConfig,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name).unwrap(), stream).await
}

/// Sends a request and returns status and body. The connection stays open.
pub(crate) async fn ask(
    stream: &mut TlsStream<TcpStream>,
    method: &str,
    path: &str,
    headers: &str,
) -> (u16, String) {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(text).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; if method == "HEAD" { 0 } else { length.unwrap_or(0) }];
    stream.read_exact(&mut body).await.unwrap();
    (head[9..12].parse().unwrap(), String::from_utf8(body).unwrap())
}

/// A certificate and its key.
pub(crate) type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

/// A client that accepts every server certificate.
pub(crate) fn client(identity: Option<Identity>) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer));
    match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
    }
}

/// A certificate authority for client certificates.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Signs a certificate for a user in a group. The certificate is valid until the end of the year `until`.
    pub(crate) fn sign(&self, name: &str, group: &str, until: i32) -> Identity {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = rcgen::date_time_ymd(until, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().clone(), PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }
}

#[derive(Debug)]
pub(crate) struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
