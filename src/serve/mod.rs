//! Health, metrics and decisions, over HTTPS to whoever may see them, as every component of Kubernetes serves them.
//!
//! The secure port asks who somebody is and what that one may see ([`Access`]); a loopback port without TLS, if one is
//! asked for, answers everybody. What a stranger can do is bounded on both: connections, header size, the time of a
//! handshake and of a header, and reviews at once.
//!
//! | path | answer | to whom |
//! |---|---|---|
//! | `/healthz`, `/livez` | `ok` as long as the process works | everybody |
//! | `/readyz` | `ok` once the caches are filled and the API server answers | everybody |
//! | `/metrics` | Prometheus' text format | who may get this path |
//! | `/version`, `/statusz`, `/flagz` | the program, its state, its flags | who may get this path |
//! | `/decisions`, `/decisions/{namespace}/{name}` | the record of decisions, as JSON (`docs/decisions.md`) | who may list or get these HPAs |
//! | `/parity` | what a dry run has compared, as JSON (`docs/shadow.md`) | who may list all HPAs |
//! | `/history` | what the leader remembers of HPAs, for replicas that stand by (`docs/history.md`) | who may list all HPAs |
//!
//! The health paths take `?verbose` and `?exclude=name`, and have a page per check (`/readyz/ping`), in the format of
//! Kubernetes' components. Unlike there, a failed check names its reason.

pub mod access;
mod component;
mod connections;
mod error;
mod health;
mod pages;
#[cfg(test)]
mod tests;
pub mod tls;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
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
pub use self::component::Component;
use self::connections::{Activity, IDLE};
pub use self::error::ServeError;
pub use self::health::{Condition, Health, Scope};
pub use self::pages::{Endpoints, HeldPage, JsonPage, PARITY, Reply};
use self::tls::Certificates;
use crate::cli::config::Serving;
use crate::history::replica::link::Fingerprint;
use crate::record::Answer;

/// A client that has not shaken hands by then means no good.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The same for a header. Also ends idle connections, as hyper does not tell the two apart: longer than most pauses
/// between scrapes, and no multiple of them, so that a scrape does not meet the end of its connection.
const HEADER_TIMEOUT: Duration = IDLE;
/// hyper's least buffer. A token of a ServiceAccount has one kilobyte, one of an OpenID provider up to four.
const MAX_HEADER_BYTES: usize = 8 * 1024;
const MAX_HEADERS: usize = 64;

/// The ports, taken but not answered yet.
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
    /// Takes the ports and reads the certificates. Must be called within a tokio runtime.
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

    /// Where HTTPS is served, if it is.
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.secure.as_ref()?.listener.local_addr().ok()
    }

    /// The fingerprint of the certificate that is shown now to a client that names no host.
    pub fn certificate(&self) -> impl Fn() -> Option<Fingerprint> + Send + Sync + use<> {
        let certificates = self.secure.as_ref().map(|secure| Arc::clone(&secure.certificates));
        move || certificates.as_ref()?.fingerprint()
    }

    /// Where it is served without TLS, if it is.
    pub fn plain_address(&self) -> Option<SocketAddr> {
        self.plain.as_ref()?.local_addr().ok()
    }

    /// Serves until `stop`; then ends after the requests under way, or five seconds.
    pub async fn run(self, endpoints: Endpoints, access: Access, stop: CancellationToken) {
        let secure = async {
            let Some(Secure { listener, tls, certificates }) = self.secure else { return };
            let upkeep = async { tokio::join!(certificates.keep_current(), access.keep_current()) };
            let accepting = connections::accept(listener, &stop, |stream| {
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
                        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                        Err(_) => tracing::debug!("a TLS handshake took more than {HANDSHAKE:?}"),
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
            connections::accept(listener, &stop, serve).await;
        };
        tokio::join!(secure, plain);
    }
}

/// What stands before the pages on one connection.
#[derive(Debug)]
struct Guard {
    access: Access,
    certificates: Vec<CertificateDer<'static>>,
    activity: Arc<Activity>,
}

impl Guard {
    /// The refusal, if somebody may not see what is asked for.
    async fn refuses(
        &self,
        endpoints: &Endpoints,
        request: &Request<Incoming>,
    ) -> Option<Response<Full<Bytes>>> {
        if self.access.open_paths().contain(request.uri().path()) {
            return None;
        }
        let allowed = async {
            let user = self.access.user(&self.certificates, request.headers()).await?;
            for action in endpoints.actions(request.method(), request.uri()) {
                self.access.allow(&user, &action).await?;
            }
            Ok::<_, Denial>(())
        };
        match allowed.await {
            Ok(()) => {
                self.activity.is_welcome();
                None
            }
            Err(denial) => Some(pages::json(Answer::failure(denial.status, denial.message))),
        }
    }
}

/// Serves one connection, whoever asks, until its other side ends it, or after `stop` until the request under way is
/// answered.
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
    let service = service_fn(|request: Request<Incoming>| {
        let (endpoints, guard) = (&endpoints, &guard);
        async move {
            let refusal = match guard {
                Some(guard) => guard.refuses(endpoints, &request).await,
                None => None,
            };
            Ok::<_, Infallible>(match refusal {
                Some(refusal) => refusal,
                None => pages::answer(endpoints, &request).await,
            })
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
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection for health, metrics and decisions broke");
    }
}
