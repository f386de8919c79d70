//! The interface between replicas: address and certificate of a process, and requests to it.
//!
//! [`Peers`] sends HTTPS requests from one replica to the secure port of another. It authenticates with a token for
//! this purpose, or with the client certificate of the API client. The token of the API client is sent only to the API
//! server, because a server that receives it could act as the controller.
//!
//! The Lease contains the leader's address and certificate fingerprint, and only the leader may write the Lease. The
//! certificate is therefore pinned: a peer with another certificate receives no request and no credentials. Replicas
//! connect directly, without a proxy.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, HOST, USER_AGENT};
use http::{HeaderValue, Request, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::election::Peer;
use crate::page::HISTORY_AUDIENCE;
use cluster::body;
use cluster::client::Clients;
use cluster::error::ApiError;
use cluster::user::{Credentials, Fingerprint, Trust, User, UserError, WrongCertificate};

/// A function that serves an in-memory connection from another process.
pub type Connect = dyn Fn(DuplexStream, CancellationToken) -> BoxFuture<'static, ()> + Send + Sync;

/// The pages of a process, and the ways to reach them.
pub struct ServedPages {
    /// Serves one connection within the process, until the connection closes or the token is cancelled.
    pub connect: Arc<Connect>,
    /// The HTTPS address, if the pages are served over HTTPS.
    pub address: Option<SocketAddr>,
    /// Returns the fingerprint of the current certificate for clients that send no host name.
    pub certificate: Arc<dyn Fn() -> Option<Fingerprint> + Send + Sync>,
}

impl fmt::Debug for ServedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedPages").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Connects the replicas with each other. Each process has one instance.
pub trait PeerTransport: fmt::Debug + Send + Sync + 'static {
    /// Registers the pages of this process. Called once, before the process becomes a candidate.
    fn register(&self, served: ServedPages);

    /// Returns the current address of this process for other replicas. `None` if they cannot reach it. Called at every
    /// write of the Lease.
    fn advertised(&self) -> Option<Peer>;

    /// Sends a GET for a path and its query, with the credentials of this process for other replicas. The caller limits
    /// the time.
    fn get<'a>(&'a self, peer: &'a Peer, path: &'a str) -> BoxFuture<'a, Result<Bytes, TransportError>>;
}

/// The reason for a failed request to a replica.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// No server listens at the address, or the connection broke.
    #[error("failed to reach {peer}: {reason}; the replicas must reach each other's secure ports")]
    Unreachable {
        /// The address of the replica.
        peer: SocketAddr,
        /// The cause.
        reason: String,
    },
    /// Another server listens at the address.
    #[error("{peer} presents another certificate ({shown}) than the Lease names ({pinned})")]
    Certificate {
        /// The address of the replica.
        peer: SocketAddr,
        /// The fingerprint of the certificate that the server presented.
        shown: Fingerprint,
        /// The fingerprint in the Lease.
        pinned: Fingerprint,
    },
    /// The replica responded with an error.
    #[error("{peer} responded with {code}: {message}")]
    Refused {
        /// The address of the replica.
        peer: SocketAddr,
        /// The HTTP status.
        code: u16,
        /// The message of the response.
        message: String,
    },
    /// The credentials of this process are missing or invalid.
    #[error("invalid credentials of this replica: {0}")]
    Credentials(String),
    /// The response is too large.
    #[error("{peer} responded with more than {limit} bytes")]
    TooLarge {
        /// The address of the replica.
        peer: SocketAddr,
        /// The maximum size in bytes.
        limit: usize,
    },
}

/// Maximum size of a response, in bytes. Regular responses are far smaller.
pub const LARGEST: usize = 16 << 20;
/// Maximum size of an error response that is read, in bytes.
const LARGEST_ERROR: usize = 16 << 10;
/// The interval between DNS lookups of the API server until a lookup succeeds.
const LOOK_UP: Duration = Duration::from_secs(5);

/// Connects to the other replicas.
#[derive(Debug)]
pub struct Peers {
    user: Arc<User>,
    /// `--history-token-file`.
    token: Option<PathBuf>,
    /// `--advertise-address`.
    advertised: Option<IpAddr>,
    /// Host and port of the API server. Without `--advertise-address`, this replica advertises the local address from
    /// which it reaches the server.
    server: (String, u16),
    resolved: Arc<OnceLock<SocketAddr>>,
    served: OnceLock<ServedPages>,
    /// The connection to the last peer.
    connection: Mutex<Option<Connection>>,
    warned: OnceLock<()>,
}

/// A connection to a replica.
#[derive(Debug)]
struct Connection {
    peer: Peer,
    sender: SendRequest<Empty<Bytes>>,
    _driver: AbortOnDropHandle<()>,
}

impl Peers {
    /// Creates a transport that authenticates with the token in the file `token`, or with the client certificate of
    /// `clients` if there is no such file. `None` if requests of `clients` carry no identity. `server`: the URL of the
    /// API server.
    pub fn new(
        clients: &Clients,
        token: Option<PathBuf>,
        server: &Uri,
        advertised: Option<IpAddr>,
    ) -> Option<Self> {
        let host = server.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let default = if server.scheme_str() == Some("http") { 80 } else { 443 };
        let port = server.port_u16().unwrap_or(default);
        Some(Self {
            user: clients.user.clone()?,
            token,
            advertised,
            server: (host.to_owned(), port),
            resolved: Arc::default(),
            served: OnceLock::new(),
            connection: Mutex::default(),
            warned: OnceLock::new(),
        })
    }

    /// Resolves the API server's address in the background. Retries after failures.
    fn resolve(&self) {
        let (host, port) = self.server.clone();
        if let Ok(address) = host.parse::<IpAddr>() {
            let _ = self.resolved.set(SocketAddr::new(address, port));
            return;
        }
        let resolved = Arc::downgrade(&self.resolved);
        // After a panic, the address stays unknown, and other replicas copy no histories from this replica.
        tokio::spawn(async move {
            loop {
                let found = tokio::net::lookup_host((host.as_str(), port)).await;
                let Some(resolved) = resolved.upgrade() else { return };
                if let Some(address) = found.ok().and_then(|mut found| found.next()) {
                    let _ = resolved.set(address);
                    return;
                }
                drop(resolved);
                tokio::time::sleep(LOOK_UP).await;
            }
        });
    }

    /// Returns the address at which other replicas reach a listener bound to `bound`.
    fn address(&self, bound: IpAddr) -> Option<IpAddr> {
        if self.advertised.is_some() {
            return self.advertised;
        }
        let local = if bound.is_unspecified() { facing(*self.resolved.get()?)? } else { bound };
        if local.is_loopback() {
            self.warned.get_or_init(|| {
                tracing::warn!(
                    address = %local,
                    "other replicas cannot reach this one to copy its histories; set --advertise-address"
                );
            });
            return None;
        }
        Some(local)
    }

    /// Returns the credentials for other replicas. The file is read for each request, because the token is replaced
    /// before it expires.
    async fn credentials(&self) -> Result<Credentials, TransportError> {
        let unusable = |error: UserError| TransportError::Credentials(error.to_string());
        let token = self.token.as_deref().map(Credentials::from_token_file).transpose().map_err(unusable)?;
        match token.flatten() {
            Some(token) => Ok(token),
            None => self.user.certificate_only().await.map_err(unusable)?.ok_or_else(|| {
                TransportError::Credentials(match &self.token {
                    Some(path) => format!(
                        "{} does not exist, and the kubeconfig user has no client certificate: mount a \
                         ServiceAccount token with the audience {HISTORY_AUDIENCE} there, or set \
                         --history-token-file",
                        path.display()
                    ),
                    None => format!(
                        "the kubeconfig user has no client certificate: set --history-token-file to a \
                         ServiceAccount token with the audience {HISTORY_AUDIENCE}"
                    ),
                })
            }),
        }
    }

    async fn request(&self, peer: &Peer, path: &str) -> Result<Bytes, TransportError> {
        let address = peer.address;
        let unreachable = |reason: String| TransportError::Unreachable { peer: address, reason };
        let broken = |error: hyper::Error| unreachable(deepest(&error));
        let mut credentials = self.credentials().await?;
        let authorization = credentials.authorization.take();
        let kept = self.connection.lock().take();
        let mut connection = match kept.filter(|kept| kept.peer == *peer && !kept.sender.is_closed()) {
            Some(connection) => connection,
            None => connect(*peer, &mut credentials).await?,
        };
        let mut request = Request::get(path)
            .header(HOST, address.to_string())
            .header(USER_AGENT, concat!("concertina/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = &authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::new()).map_err(|error| unreachable(error.to_string()))?;
        connection.sender.ready().await.map_err(broken)?;
        let answer = connection.sender.send_request(request).await.map_err(broken)?;
        if !answer.status().is_success() {
            let code = answer.status().as_u16();
            let text = body::prefix(answer.into_body(), LARGEST_ERROR).await;
            let message = body::error_text(&text).unwrap_or_else(|| "no reason given".to_owned());
            return Err(TransportError::Refused { peer: address, code, message });
        }
        let large = |header: &HeaderValue| header.to_str().ok()?.parse::<usize>().ok();
        let length = answer.headers().get(http::header::CONTENT_LENGTH).and_then(large);
        if length.is_some_and(|length| length > LARGEST) {
            return Err(TransportError::TooLarge { peer: address, limit: LARGEST });
        }
        let bytes = body::collect(answer.into_body(), LARGEST).await.map_err(|error| match error {
            ApiError::TooLarge { limit } => TransportError::TooLarge { peer: address, limit },
            error => unreachable(error.to_string()),
        })?;
        *self.connection.lock() = Some(connection);
        Ok(bytes)
    }
}

impl PeerTransport for Peers {
    fn register(&self, served: ServedPages) {
        if served.address.is_some() {
            self.resolve();
        } else {
            tracing::info!(
                "other replicas cannot copy histories from this one, because --secure-port=0 disables serving"
            );
        }
        // The value is set only once, because a process serves on one port.
        let _ = self.served.set(served);
    }

    fn advertised(&self) -> Option<Peer> {
        let served = self.served.get()?;
        let bound = served.address?;
        let address = self.address(bound.ip())?;
        Some(Peer { address: SocketAddr::new(address, bound.port()), certificate: (served.certificate)()? })
    }

    fn get<'a>(&'a self, peer: &'a Peer, path: &'a str) -> BoxFuture<'a, Result<Bytes, TransportError>> {
        Box::pin(self.request(peer, path))
    }
}

/// Opens a TLS connection to a replica and checks its certificate.
async fn connect(peer: Peer, credentials: &mut Credentials) -> Result<Connection, TransportError> {
    let address = peer.address;
    let unreachable = |reason: String| TransportError::Unreachable { peer: address, reason };
    let stream = TcpStream::connect(address).await.map_err(|error| unreachable(error.to_string()))?;
    // Without this option, the system may delay small requests.
    let _ = stream.set_nodelay(true);
    let tls = credentials.connect(stream, Trust::Pinned(peer.certificate)).await.map_err(|error| {
        match WrongCertificate::in_handshake(&error) {
            Some(WrongCertificate { shown, pinned }) => {
                TransportError::Certificate { peer: address, shown, pinned }
            }
            None => unreachable(error.to_string()),
        }
    })?;
    let (sender, connection) =
        handshake(TokioIo::new(tls)).await.map_err(|error| unreachable(deepest(&error)))?;
    // A panic fails the request, and the next request opens another connection.
    let driver = AbortOnDropHandle::new(tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to another replica closed");
        }
    }));
    Ok(Connection { peer, sender, _driver: driver })
}

/// Returns the local address from which the system would reach `other`. Sends nothing.
fn facing(other: SocketAddr) -> Option<IpAddr> {
    let any =
        if other.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(other).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_unspecified())
}

fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| (*error).source())
        .last()
        .map_or_else(String::new, ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::client::ClientOptions;

    fn here(server: &str, advertised: Option<&str>, bound: Option<&str>) -> Option<String> {
        let config = kube::Config::new(server.parse().unwrap());
        let clients = Clients::new(&config, &ClientOptions::default()).unwrap();
        let advertised = advertised.map(|address| address.parse().unwrap());
        let peers = Peers::new(&clients, None, &config.cluster_url, advertised).unwrap();
        let connect: Arc<Connect> = Arc::new(|_, _| Box::pin(std::future::ready(())));
        let address = bound.map(|bound| bound.parse().unwrap());
        let certificate = Arc::new(|| Some(Fingerprint::from_der(b"certificate")));
        peers.register(ServedPages { connect, address, certificate });
        peers.advertised().map(|peer| peer.address.to_string())
    }

    #[tokio::test]
    async fn advertised_or_bound_address_is_used_except_loopback() {
        let server = "https://127.0.0.1:6443";
        let cases = [
            (None, None, None),
            (None, Some("[::]:10257"), None),
            (None, Some("127.0.0.1:10257"), None),
            (None, Some("[::1]:10257"), None),
            (None, Some("10.0.0.1:10257"), Some("10.0.0.1:10257")),
            (None, Some("[fd00::1]:10257"), Some("[fd00::1]:10257")),
            (Some("10.0.0.2"), Some("[::]:10257"), Some("10.0.0.2:10257")),
            (Some("fd00::2"), Some("0.0.0.0:1"), Some("[fd00::2]:1")),
            (Some("127.0.0.1"), Some("127.0.0.1:10257"), Some("127.0.0.1:10257")),
            (Some("10.0.0.2"), None, None),
        ];
        for (advertised, bound, expected) in cases {
            assert_eq!(here(server, advertised, bound).as_deref(), expected, "{advertised:?} {bound:?}");
        }
    }

    #[test]
    fn local_address_towards_another_host_is_determined() {
        let local_address = |other: &str| other.parse().ok().and_then(facing);
        assert_eq!(local_address("127.0.0.1:6443"), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }
}
