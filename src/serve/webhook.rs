//! Serves the webhook that refuses writes of the built-in controller, on an HTTPS port of its own.
//!
//! The API server authenticates the webhook by its certificate, and sends no credentials of its own by default.
//! Every client is therefore served, and every resource that a client can use is bounded: connections,
//! handshakes per second, header size, the time of a handshake, a header and a body, the size of a body and of
//! all bodies together. A request beyond a limit fails, and the API server then allows the write.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use controller::handover::admission::{MAX_BODY, ReviewError};
use controller::handover::objects::PATH;
use controller::page::JSON;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::server::ResolvesServerCert;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::admission::Admission;
use super::error::ServeError;
use super::tls::options::TlsOptions;
use super::{HANDSHAKE, HEADER_TIMEOUT, MAX_HEADER_BYTES, MAX_HEADERS, connections, pages};

/// Time limit of a body. The API server waits one second for the response.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of all bodies in memory, in KiB.
const MAX_BODIES: usize = 16 << 10;
const KIB: usize = 1 << 10;

/// Decides about the body of an AdmissionReview, and returns the body of the response.
pub type Reviewer = dyn Fn(&[u8]) -> Result<Vec<u8>, ReviewError> + Send + Sync;

/// The bound port, before serving starts.
pub struct Webhook {
    listener: std::net::TcpListener,
    tls: Arc<ServerConfig>,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Webhook {
    /// Binds the port. Must be called within a tokio runtime, which may differ from the one that serves.
    ///
    /// # Errors
    /// Returns [`ServeError`] if the port is unavailable or the TLS options contradict each other.
    pub fn bind(
        address: SocketAddr,
        tls: &TlsOptions,
        certificates: Arc<dyn ResolvesServerCert>,
    ) -> Result<Self, ServeError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(tls.provider()))
            .with_protocol_versions(tls.versions())
            .map_err(|error| ServeError::Tls(error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(certificates);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = connections::listen(address, false)
            .and_then(TcpListener::into_std)
            .map_err(|source| ServeError::ListenWebhook { address, source })?;
        Ok(Self { listener, tls: Arc::new(config) })
    }

    /// The address of the port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves until `stop`. Then waits at most five seconds for the requests in flight.
    pub async fn run(self, reviewer: Arc<Reviewer>, stop: CancellationToken) {
        let listener = match TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "failed to serve the webhook");
                return stop.cancelled().await;
            }
        };
        let bodies = Arc::new(Semaphore::new(MAX_BODIES));
        connections::accept(listener, Admission::limited(), &stop, |stream| {
            let acceptor = TlsAcceptor::from(Arc::clone(&self.tls));
            let (reviewer, bodies, stop) = (Arc::clone(&reviewer), Arc::clone(&bodies), stop.clone());
            async move {
                match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => serve(stream, &reviewer, &bodies, stop).await,
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake with the webhook failed"),
                    Err(_) => tracing::debug!(limit = ?HANDSHAKE, "TLS handshake with the webhook timed out"),
                }
            }
        })
        .await;
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    reviewer: &Arc<Reviewer>,
    bodies: &Arc<Semaphore>,
    stop: CancellationToken,
) {
    let service = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(match answer(request, reviewer, bodies).await {
            Ok(body) => {
                let mut response = Response::new(Full::new(Bytes::from(body)));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
                response
            }
            Err((status, reason)) => {
                let mut response = pages::plain(status, format!("{reason}\n"));
                if status == StatusCode::METHOD_NOT_ALLOWED {
                    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
                }
                response
            }
        })
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
        tracing::debug!(%error, "connection of the webhook failed");
    }
}

async fn answer(
    request: Request<Incoming>,
    reviewer: &Arc<Reviewer>,
    bodies: &Arc<Semaphore>,
) -> Result<Vec<u8>, (StatusCode, String)> {
    if request.uri().path() != PATH {
        return Err((StatusCode::NOT_FOUND, "404 page not found".to_owned()));
    }
    if request.method() != Method::POST {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "405 only POST is supported".to_owned()));
    }
    let (head, body) = request.into_parts();
    let read = tokio::time::timeout(BODY_TIMEOUT, read(&head.headers, body, bodies)).await;
    let timed_out = || (StatusCode::REQUEST_TIMEOUT, format!("the body took more than {BODY_TIMEOUT:?}"));
    let (bytes, _permits) = read.map_err(|_| timed_out())??;
    reviewer(&bytes).map_err(|error| {
        tracing::debug!(%error, "rejected a review");
        (StatusCode::BAD_REQUEST, error.to_string())
    })
}

/// Reads a body within the limits. The permits belong to the bytes.
async fn read(
    headers: &HeaderMap,
    mut body: Incoming,
    bodies: &Arc<Semaphore>,
) -> Result<(Vec<u8>, Vec<OwnedSemaphorePermit>), (StatusCode, String)> {
    let too_large =
        |length: usize| (StatusCode::PAYLOAD_TOO_LARGE, ReviewError::TooLarge(length).to_string());
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if let Some(length) = declared.filter(|length| *length > MAX_BODY) {
        return Err(too_large(length));
    }
    let (mut bytes, mut permits) = (Vec::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| (StatusCode::BAD_REQUEST, format!("cannot read the body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > MAX_BODY {
            return Err(too_large(length));
        }
        let held: usize = permits.iter().map(OwnedSemaphorePermit::num_permits).sum();
        let missing = u32::try_from(length.div_ceil(KIB).saturating_sub(held)).unwrap_or(u32::MAX);
        let permit = Arc::clone(bodies).try_acquire_many_owned(missing).map_err(|_| {
            (StatusCode::TOO_MANY_REQUESTS, "the bodies in flight take too much memory".to_owned())
        })?;
        match permits.first_mut() {
            None => permits.push(permit),
            Some(held) => held.merge(permit),
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes, permits))
}
