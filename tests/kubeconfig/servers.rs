//! An embedded API server behind TLS, and a proxy. The server and the proxy record the data that clients send.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clock::SystemClock;
use fake_cluster::Cluster;
use parking_lot::Mutex;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A host name without a DNS entry, so that clients reach the server by this name only through a proxy.
pub(crate) const NAME: &str = "api.concertina.test";

/// Recorded texts, in order of arrival.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordedTexts(Arc<Mutex<Vec<String>>>);

impl RecordedTexts {
    fn add(&self, text: String) {
        self.0.lock().push(text);
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

/// A self-signed certificate for `names`, with its key.
pub(crate) fn certificate(names: &[&str]) -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

fn acceptor(certified_key: &CertifiedKey<KeyPair>, clients: &[CertificateDer<'static>]) -> TlsAcceptor {
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if clients.is_empty() {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(clients.iter().cloned());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
        builder.with_client_cert_verifier(verifier.build().unwrap())
    };
    let key = PrivateKeyDer::Pkcs8(certified_key.signing_key.serialize_der().into());
    TlsAcceptor::from(Arc::new(
        builder.with_single_cert(vec![certified_key.cert.der().clone()], key).unwrap(),
    ))
}

/// The API server behind TLS.
pub(crate) struct Server {
    pub(crate) cluster: Cluster,
    pub(crate) address: SocketAddr,
    certified_key: CertifiedKey<KeyPair>,
    acceptor: Arc<Mutex<TlsAcceptor>>,
    connections: Arc<Mutex<JoinSet<()>>>,
    /// The data that clients sent, as text, with one entry per read.
    pub(crate) requests: RecordedTexts,
    /// The client certificates as base64, with one entry per connection.
    pub(crate) certificates: RecordedTexts,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::trusting(&[]).await
    }

    /// A server that accepts only clients with one of the certificates in `clients`.
    pub(crate) async fn trusting(clients: &[CertificateDer<'static>]) -> Self {
        let cluster = Cluster::new(Arc::new(SystemClock));
        let certified_key = certificate(&["127.0.0.1", NAME]);
        let acceptor = Arc::new(Mutex::new(acceptor(&certified_key, clients)));
        let connections = Arc::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, certificates) = (RecordedTexts::default(), RecordedTexts::default());
        let server = Self { cluster, address, certified_key, acceptor, connections, requests, certificates };
        let (cluster, requests) = (server.cluster.clone(), server.requests.clone());
        let (acceptor, connections) = (Arc::clone(&server.acceptor), Arc::clone(&server.connections));
        let certificates = server.certificates.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, cluster) = (acceptor.lock().clone(), cluster.clone());
                let (requests, certificates) = (requests.clone(), certificates.clone());
                connections.lock().spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                    certificates.add(shown.map_or_else(String::new, |shown| STANDARD.encode(shown)));
                    relay(stream, cluster.dial(), requests).await;
                });
            }
        });
        server
    }

    /// Restarts the server with a new certificate and with another list of accepted clients. Closes open
    /// connections.
    pub(crate) fn restart(&mut self, clients: &[CertificateDer<'static>]) {
        self.certified_key = certificate(&["127.0.0.1", NAME]);
        *self.acceptor.lock() = acceptor(&self.certified_key, clients);
        self.connections.lock().abort_all();
    }

    /// The certificate authority as PEM.
    pub(crate) fn authority(&self) -> String {
        self.certified_key.cert.pem()
    }

    /// The fields of a kubeconfig's cluster, with the given host.
    pub(crate) fn fields(&self, host: &str) -> String {
        let authority = STANDARD.encode(self.authority());
        format!("server: 'https://{host}:{}', certificate-authority-data: {authority}", self.address.port())
    }
}

/// Copies bytes between client and server and records what the client sends.
async fn relay<C, S>(client: C, server: S, recorded: RecordedTexts)
where
    C: AsyncRead + AsyncWrite,
    S: AsyncRead + AsyncWrite,
{
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let up = async {
        let mut piece = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from_client.read(&mut piece).await {
            recorded.add(String::from_utf8_lossy(&piece[..length]).into_owned());
            if to_server.write_all(&piece[..length]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = up => {}
        _ = copy(&mut from_server, &mut to_client) => {}
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ProxyBehavior {
    /// Opens tunnels for CONNECT requests, and answers plain HTTP requests with `{}`.
    Tunnel,
    /// Refuses every request with this status line.
    Refuse(&'static str),
    /// Supports SOCKS 5 and requires user and password.
    Socks,
}

/// A proxy that connects every client to one server, whatever destination the client requests.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// Heads of the HTTP requests to the proxy. With SOCKS, texts of the form `user:password@host:port`.
    pub(crate) heads: RecordedTexts,
}

impl Proxy {
    pub(crate) async fn start(to: SocketAddr, behavior: ProxyBehavior) -> Self {
        Self::listen(to, behavior, None).await
    }

    /// A proxy that listens with TLS and the certificate of the server.
    pub(crate) async fn over_tls(to: &Server) -> Self {
        Self::listen(to.address, ProxyBehavior::Tunnel, Some(acceptor(&to.certified_key, &[]))).await
    }

    async fn listen(to: SocketAddr, behavior: ProxyBehavior, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = RecordedTexts::default();
        let proxy = Self { address, heads: heads.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, heads) = (tls.clone(), heads.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => serve(tls.accept(stream).await.unwrap(), to, behavior, heads).await,
                        None => serve(stream, to, behavior, heads).await,
                    }
                });
            }
        });
        proxy
    }
}

async fn serve<IO: AsyncRead + AsyncWrite + Unpin>(
    mut client: IO,
    to: SocketAddr,
    behavior: ProxyBehavior,
    heads: RecordedTexts,
) {
    if behavior == ProxyBehavior::Socks {
        socks(&mut client, &heads).await;
    } else {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match client.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        heads.add(head.clone());
        if let ProxyBehavior::Refuse(answer) = behavior {
            let _ =
                client.write_all(format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n").as_bytes()).await;
            return;
        }
        if !head.starts_with("CONNECT ") {
            // Requests to an http:// URL need no tunnel. The proxy answers them itself.
            let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
            let _ = client.write_all(answer).await;
            return;
        }
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    }
    let mut server = TcpStream::connect(to).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

/// Performs the handshake of SOCKS 5 (RFC 1928) with user and password (RFC 1929).
async fn socks<IO: AsyncRead + AsyncWrite + Unpin>(client: &mut IO, heads: &RecordedTexts) {
    async fn text<IO: AsyncRead + Unpin>(client: &mut IO) -> String {
        let length = client.read_u8().await.unwrap();
        let mut text = vec![0; usize::from(length)];
        client.read_exact(&mut text).await.unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }
    assert_eq!(client.read_u8().await.unwrap(), 5);
    text(client).await;
    client.write_all(&[5, 2]).await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), 1);
    let (user, password) = (text(client).await, text(client).await);
    client.write_all(&[1, 0]).await.unwrap();
    let mut request = [0; 4];
    client.read_exact(&mut request).await.unwrap();
    assert_eq!(request, [5, 1, 0, 3], "expected a CONNECT request with a domain name");
    let host = text(client).await;
    let port = client.read_u16().await.unwrap();
    heads.add(format!("{user}:{password}@{host}:{port}"));
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
}
