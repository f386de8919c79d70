//! Serves health, metrics and decisions over HTTPS to authorized clients, like every component of Kubernetes.
//!
//! The secure port authenticates and authorizes clients ([`Access`]). An optional loopback port without TLS serves all
//! clients. Both ports bound the resources that an unauthenticated client can use: connections, and the size and time
//! of a header. The secure port also bounds the time of a handshake, handshakes per second, and concurrent reviews. A
//! client that does not read its response is disconnected.
//!
//! | path | response | for clients that |
//! |---|---|---|
//! | `/healthz`, `/livez` | `ok` as long as the process works | connect |
//! | `/readyz` | `ok` once caches are synced, the API server responds and essential permissions are granted | connect |
//! | `/metrics` | Prometheus' text format or OpenMetrics | may get this path |
//! | `/version`, `/statusz`, `/flagz` | the program, its state, its flags | may get this path |
//! | `/decisions`, `/decisions/{namespace}/{name}` | the record of decisions | may list or get these HPAs |
//! | `/parity` | the comparison of a dry run | may list all HPAs |
//! | `/handover` | the state of each HPA in scope | may list all HPAs |
//! | `/console` | the page with all HPAs, on the secure port | may get this path; its data needs further permissions |
//! | `/history` | the histories of the leader, for standby replicas | may list all watched HPAs |
//!
//! The pages for decisions and comparisons are JSON (`docs/reference/decisions-api.md`). `docs/concepts/history.md`
//! describes the histories.
//!
//! The health paths accept `?verbose` and `?exclude=name`. Each check has a page (`/readyz/ping`), in the
//! format of Kubernetes' components. In contrast to those components, a failed check shows its reason.

pub mod access;
mod admission;
mod component;
mod connections;
mod console;
mod error;
mod health;
pub mod options;
mod pages;
mod sending;
#[cfg(test)]
mod tests;
pub mod tls;
pub mod webhook;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use self::access::Access;
use self::access::Denial;
use self::admission::Admission;
pub use self::component::Component;
use self::connections::{Activity, IDLE};
pub use self::console::ConsolePages;
pub use self::error::ServeError;
pub use self::health::{Health, NotReady, Scope};
use self::options::Serving;
pub use self::pages::Endpoints;
use self::sending::Sending;
use self::tls::Certificates;
use cluster::fingerprint::Fingerprint;
use controller::record::Answer;

/// Time limit of a TLS handshake. A slower client is presumed hostile or broken.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time limit of a request header. The limit also closes idle connections, which hyper does not distinguish. The limit
/// exceeds most scrape intervals, so consecutive scrapes share a connection.
const HEADER_TIMEOUT: Duration = IDLE;
/// hyper's minimum buffer size. A ServiceAccount's token has 1 kB, an OpenID provider's token up to 4 kB.
const MAX_HEADER_BYTES: usize = 8 * 1024;
const MAX_HEADERS: usize = 64;

/// The bound ports, before serving starts.
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

    /// Returns the address of the HTTPS port, if the port is served.
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.secure.as_ref()?.listener.local_addr().ok()
    }

    /// Returns a function that reads the current fingerprint of the certificate for clients that send no
    /// server name.
    pub fn certificate(&self) -> impl Fn() -> Option<Fingerprint> + Send + Sync + use<> {
        let certificates = self.secure.as_ref().map(|secure| Arc::clone(&secure.certificates));
        move || certificates.as_ref()?.fingerprint()
    }

    /// Returns the address of the port without TLS, if the port is served.
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

/// Authorizes the requests of one connection.
#[derive(Debug)]
struct Guard {
    access: Access,
    certificates: Vec<CertificateDer<'static>>,
    activity: Arc<Activity>,
}

impl Guard {
    /// Returns the refusal if the client is not allowed to make the request.
    async fn refuses(
        &self,
        endpoints: &Endpoints,
        request: &Request<Incoming>,
    ) -> Option<Response<Full<Bytes>>> {
        if self.access.open_paths().contain(request.uri().path()) {
            return None;
        }
        let allowed = async {
            let audience = pages::audience(request.uri());
            let user = self.access.user(&self.certificates, request.headers(), audience).await?;
            for action in endpoints.actions(request.method(), request.uri()) {
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

/// Serves one connection without authorization until the client closes it. After `stop`, serves it until the
/// request in flight is complete.
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
            if let (Some(console), Some(guard)) = (&endpoints.console, guard)
                && ConsolePages::contains(request.uri().path())
            {
                let response = console.answer(guard, &request).await;
                // A stream has no time limit. If the client stops reading, the connection becomes idle and is closed.
                return Ok::<_, Infallible>(response.map(|body| match body {
                    Either::Left(body) => Either::Left(sending.begin(body)),
                    Either::Right(events) => Either::Right(events),
                }));
            }
            let refusal = match guard {
                Some(guard) => guard.refuses(endpoints, &request).await,
                None => None,
            };
            let response = match refusal {
                Some(refusal) => refusal,
                None => pages::answer(endpoints, &request).await,
            };
            Ok(response.map(|body| Either::Left(sending.begin(body))))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = sending.overdue() => {
            tracing::debug!(limit = ?sending::LIMIT, "closed a connection: the client did not read a response in time");
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
