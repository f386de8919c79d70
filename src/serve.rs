//! Serves health, metrics and decisions over HTTPS to authorized clients, like every component of Kubernetes.
//!
//! The secure port authenticates and authorizes clients ([`Access`]). An optional loopback port without TLS serves all
//! clients. Both ports limit the resources of unauthenticated clients: connections, and the size and time of a header.
//! The secure port also limits the time of a handshake, handshakes per second, and concurrent reviews. A client that
//! does not read its response in time is disconnected.
//!
//! | path | response | permission of the client |
//! |---|---|---|
//! | `/healthz`, `/livez` | `ok` while the process works | none |
//! | `/readyz` | `ok` once caches are synced, the API server responds and essential permissions are granted | none |
//! | `/metrics` | metrics in Prometheus' text format                | get on this path |
//! | `/version`, `/statusz`, `/flagz` | version, state and flags of the program | get on this path |
//! | `/decisions`, `/decisions/{namespace}/{name}` | the record of decisions | list or get on these HPAs |
//! | `/parity` | the comparison of a dry run | list on all HPAs |
//! | `/handover` | the state of each HPA in scope | list on all HPAs |
//!
//! `docs/reference/decisions-api.md` describes the JSON of decisions and comparisons.
//!
//! As in Kubernetes' components, the health paths accept `?verbose` and `?exclude=name`, and each check has a page such
//! as `/readyz/ping`. In contrast to Kubernetes' components, the pages show the reason of a failed check.

pub mod access;
mod connections;
mod error;
mod health;
mod pages;
#[cfg(test)]
mod tests;
pub mod tls;
pub mod webhook;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use self::access::Access;
use self::access::Denial;
use self::connections::{Activity, Admission, IDLE};
pub use self::error::ServeError;
pub use self::health::{Component, Health, NotReady, Scope};
pub use self::pages::Endpoints;
use self::tls::Certificates;
use flags::serving::Serving;
use journal::record::Answer;

/// Time limit of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time limit of a request header. hyper also closes idle connections after this time. The limit exceeds most scrape
/// intervals, so that consecutive scrapes share a connection.
const HEADER_TIMEOUT: Duration = IDLE;
/// The maximum size of a request header, which is the minimum in hyper. The token of a ServiceAccount has 1 kB, and the
/// token of an OpenID provider has up to 4 kB.
const MAX_HEADER_BYTES: usize = 8 * 1024;
const MAX_HEADERS: usize = 64;
/// Time limit for a client to read a response. The largest response about a single HPA has some megabytes.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// The bound ports before the start of the server.
#[derive(Debug)]
pub struct Server {
    secure: Option<Secure>,
    plain: Option<TcpListener>,
}

#[derive(Debug)]
struct Secure {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
}

impl Server {
    /// Binds the ports and reads the certificates. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Returns [`ServeError`] if a port is unavailable or a certificate is unusable.
    pub fn bind(serving: &Serving) -> Result<Self, ServeError> {
        let secure = if serving.port == 0 {
            None
        } else {
            let (tls, certificates) = tls::server(serving)?;
            let address = SocketAddr::new(serving.address, serving.port);
            let listener = connections::listen(address, serving.share_port)
                .map_err(|source| ServeError::Listen { address, source })?;
            Some(Secure { listener, tls, certificates })
        };
        let plain = match serving.plain {
            None => None,
            Some(address) => Some(
                connections::listen(address, false)
                    .map_err(|source| ServeError::ListenPlain { address, source })?,
            ),
        };
        Ok(Self { secure, plain })
    }

    /// Returns the address of the HTTPS port, or `None` if the port is disabled.
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.secure.as_ref()?.listener.local_addr().ok()
    }

    /// Returns the address of the port without TLS, or `None` if the port is disabled.
    pub fn plain_address(&self) -> Option<SocketAddr> {
        self.plain.as_ref()?.local_addr().ok()
    }

    /// Serves until `stop`. Then waits at most five seconds for the requests in flight.
    pub async fn run(self, endpoints: Endpoints, access: Access, stop: CancellationToken) {
        let secure = async {
            let Some(Secure { listener, tls, certificates }) = self.secure else {
                return stop.cancelled().await;
            };
            let upkeep = async { tokio::join!(certificates.keep_current(), access.keep_current()) };
            let accepting = connections::accept(listener, Admission::limited(), &stop, |stream| {
                let (acceptor, endpoints) = (TlsAcceptor::from(Arc::clone(&tls)), endpoints.clone());
                let (access, stop) = (access.clone(), stop.clone());
                async move {
                    let activity = Arc::clone(&stream.activity);
                    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => {
                            let certificates = stream.get_ref().1.peer_certificates();
                            let certificates = certificates.map(<[_]>::to_vec).unwrap_or_default();
                            let guard = Guard { access, certificates, activity };
                            serve_with(stream, endpoints, Some(guard), stop).await;
                        }
                        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                        Err(_) => tracing::debug!(limit = ?HANDSHAKE, "TLS handshake timed out"),
                    }
                }
            });
            tokio::select! {
                biased;
                () = accepting => {}
                _ = upkeep => {}
            }
        };
        let plain = async {
            let Some(listener) = self.plain else { return };
            let serve = |stream| serve_connection(stream, endpoints.clone(), stop.clone());
            connections::accept(listener, Admission::unlimited(), &stop, serve).await;
        };
        tokio::join!(secure, plain);
    }
}

/// Authenticates and authorizes the requests of one connection.
#[derive(Debug)]
struct Guard {
    access: Access,
    certificates: Vec<CertificateDer<'static>>,
    activity: Arc<Activity>,
}

impl Guard {
    /// Returns the refusal of a request, or `None` if the client may make the request.
    async fn refuses(&self, request: &Request<Incoming>) -> Option<Response<Full<Bytes>>> {
        if self.access.open_paths().contain(request.uri().path()) {
            return None;
        }
        let allowed = async {
            let user = self.access.user(&self.certificates, request.headers()).await?;
            if let Some(action) = pages::action(request.method(), request.uri()) {
                self.access.allow(&user, &action).await?;
            }
            Ok::<_, Denial>(())
        };
        match allowed.await {
            Ok(()) => {
                self.activity.mark_authorized();
                None
            }
            Err(denial) => Some(pages::json(Answer::failure(denial.status, denial.message))),
        }
    }
}

/// Serves one connection without authorization until the client closes the connection. After `stop`, completes only the
/// request in flight.
pub async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    endpoints: Endpoints,
    stop: CancellationToken,
) {
    serve_with(stream, endpoints, None, stop).await;
}

async fn serve_with(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    endpoints: Endpoints,
    guard: Option<Guard>,
    stop: CancellationToken,
) {
    let sending = Sending::default();
    let service = service_fn(|request: Request<Incoming>| {
        let (endpoints, guard, sending) = (&endpoints, &guard, &sending);
        async move {
            let refusal = match guard {
                Some(guard) => guard.refuses(&request).await,
                None => None,
            };
            let response = match refusal {
                Some(refusal) => refusal,
                None => pages::answer(endpoints, &request),
            };
            Ok::<_, Infallible>(response.map(|body| sending.start(body)))
        }
    });
    let mut connection = pin!(http1_builder().serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = sending.overdue() => {
            tracing::debug!(limit = ?READ_LIMIT, "closed a connection: the client did not read a response in time");
            return;
        }
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection to the serving port failed");
    }
}

/// Returns the configuration of HTTP connections, with the limits of a header.
fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS);
    builder
}

/// The tracker of the unread responses of a connection, which enforces [`READ_LIMIT`]. An unread response takes memory,
/// and a large unread response blocks other large responses. Clones share one state.
#[derive(Debug, Clone, Default)]
struct Sending(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    unread: Mutex<Unread>,
    started: Notify,
}

#[derive(Debug, Default)]
struct Unread {
    count: usize,
    /// The start of the current period with unread responses. `None` without an unread response.
    since: Option<Instant>,
}

/// The body of a response. The response is unread until the operating system has accepted all bytes.
struct UnreadBody {
    body: Full<Bytes>,
    response: Option<UnreadResponse>,
}

/// The bytes of a body that the operating system has not accepted.
struct UnreadBytes {
    bytes: Bytes,
    _response: UnreadResponse,
}

/// An unread response in [`Sending`]. A drop removes the response.
struct UnreadResponse(Sending);

impl Sending {
    /// Counts a response as unread until the returned body is sent.
    fn start(&self, body: Full<Bytes>) -> UnreadBody {
        let mut unread = self.0.unread.lock();
        unread.count += 1;
        if unread.since.is_none() {
            unread.since = Some(Instant::now());
            self.0.started.notify_one();
        }
        drop(unread);
        UnreadBody { body, response: Some(UnreadResponse(self.clone())) }
    }

    /// Waits until the connection has had unread responses for [`READ_LIMIT`] without interruption.
    async fn overdue(&self) {
        loop {
            let since = self.0.unread.lock().since;
            let Some(since) = since else {
                self.0.started.notified().await;
                continue;
            };
            sleep_until(since + READ_LIMIT).await;
            if self.0.unread.lock().since == Some(since) {
                return;
            }
        }
    }
}

impl Drop for UnreadResponse {
    fn drop(&mut self) {
        let mut unread = self.0.0.unread.lock();
        unread.count = unread.count.saturating_sub(1);
        if unread.count == 0 {
            unread.since = None;
        }
    }
}

impl AsRef<[u8]> for UnreadBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Body for UnreadBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let response = self.response.take();
        Pin::new(&mut self.body).poll_frame(context).map(|frame| {
            let hold = |bytes| match response {
                Some(response) => Bytes::from_owner(UnreadBytes { bytes, _response: response }),
                None => bytes,
            };
            frame.map(|frame| frame.map(|frame| frame.map_data(hold)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
