//! Serves the webhook that refuses writes of the built-in controller, on a separate HTTPS port.
//!
//! The API server verifies the certificate of the webhook, and sends no credentials by default. The webhook therefore
//! serves every client and limits the resources of a client. The limits apply to connections, handshakes per second,
//! the time of a handshake, and the size and time of headers and bodies. A request above a limit fails, and the API
//! server then allows the write. The webhook and the API server count every request without a timely response.

mod bodies;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use coexist::handover::admission::{MAX_BODY, ReviewError};
use coexist::handover::objects::PATH;
use controller::page::JSON;
use engine::telemetry::metrics::Metrics as Telemetry;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::server::ResolvesServerCert;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::bodies::{Bodies, Body};
use super::connections::Admission;
use super::error::ServeError;
use super::{HANDSHAKE, connections, http1_builder, pages};
use flags::tls::TlsOptions;

/// Time limit of a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// The default of [`patience`]: `timeoutSeconds` in the shipped manifests.
const PATIENCE: Duration = Duration::from_secs(1);
/// The maximum `timeoutSeconds` that the API server permits.
const LONGEST_PATIENCE: u64 = 30;
/// The part of each body that needs no permit, in bytes. The reviews of all but the largest HPAs are smaller, so clients
/// that send large bodies slowly cannot displace them. All connections together hold at most 16 MiB of such parts.
/// [`bodies`] limits the other parts.
const FREE: usize = 64 << 10;
const KIB: usize = 1 << 10;

/// The function that decides about an AdmissionReview. Its argument is the body of the request, and its result is the
/// body of the response.
pub type Reviewer = dyn Fn(&[u8]) -> Result<Vec<u8>, ReviewError> + Send + Sync;

/// The bound port before the start of the webhook.
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
    /// Binds the port. Must be called within a tokio runtime, which may differ from the runtime that serves.
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

    /// Returns the address of the port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves until `stop`. Then waits at most five seconds for the requests in flight. Counts requests without a
    /// timely response in `telemetry`.
    pub async fn run(self, reviewer: Arc<Reviewer>, telemetry: Telemetry, stop: CancellationToken) {
        let listener = match TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "failed to serve the webhook");
                return stop.cancelled().await;
            }
        };
        let bodies = Arc::<Bodies>::default();
        connections::accept(listener, Admission::limited(), &stop, |stream| {
            let acceptor = TlsAcceptor::from(Arc::clone(&self.tls));
            let answers = Answers {
                reviewer: Arc::clone(&reviewer),
                bodies: Arc::clone(&bodies),
                source: stream.source(),
                is_proven: AtomicBool::new(false),
                telemetry: telemetry.clone(),
            };
            let stop = stop.clone();
            async move {
                match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => return serve(stream, &answers, stop).await,
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake of a webhook client failed"),
                    Err(_) => {
                        tracing::debug!(limit = ?HANDSHAKE, "TLS handshake of a webhook client timed out");
                    }
                }
                Unanswered::Handshake.count(&answers.telemetry);
            }
        })
        .await;
    }
}

/// The inputs of the responses on one connection.
struct Answers {
    reviewer: Arc<Reviewer>,
    /// The memory of bodies beyond [`FREE`].
    bodies: Arc<Bodies>,
    /// The address of the client.
    source: IpAddr,
    /// Whether a review on this connection was answered.
    is_proven: AtomicBool,
    telemetry: Telemetry,
}

/// The reason why the API server receives no usable response. The API server then allows the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unanswered {
    /// The TLS handshake failed or timed out.
    Handshake,
    /// The connection ended before the response.
    Closed,
    /// The response came after the time limit of the API server.
    Late,
    /// The response was an error.
    Error,
}

impl Unanswered {
    fn count(self, telemetry: &Telemetry) {
        telemetry.handover_unanswered(match self {
            Self::Handshake => "handshake",
            Self::Closed => "closed",
            Self::Late => "late",
            Self::Error => "error",
        });
    }
}

/// A request that waits for its response. A drop before the response means that the connection has ended. The drop
/// counts the request as [`Unanswered::Closed`].
struct Open<'a> {
    telemetry: &'a Telemetry,
    since: Instant,
    patience: Duration,
    is_answered: bool,
}

impl<'a> Open<'a> {
    /// Creates the state of a request. Returns `None` for a request that the API server does not send.
    fn new(telemetry: &'a Telemetry, request: &Request<Incoming>) -> Option<Self> {
        let patience = patience(request.uri().query());
        let is_review = request.method() == Method::POST && request.uri().path() == PATH;
        is_review.then(|| Self { telemetry, since: Instant::now(), patience, is_answered: false })
    }

    /// Records the result of a request. Counts a response that the API server does not use.
    fn answered(mut self, answer: &Result<Vec<u8>, Failure>) {
        let is_late = self.since.elapsed() > self.patience;
        self.is_answered = !matches!(answer, Err(Failure::Closed(_)));
        match answer {
            Ok(_) | Err(Failure::Answer(..)) if is_late => Unanswered::Late.count(self.telemetry),
            Err(Failure::Answer(..)) => Unanswered::Error.count(self.telemetry),
            Ok(_) | Err(Failure::Closed(_)) => {}
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            Unanswered::Closed.count(self.telemetry);
        }
    }
}

/// Returns the time limit of the API server for the response, from the query parameter `timeout`, such as `timeout=1s`.
fn patience(query: Option<&str>) -> Duration {
    let seconds = |parameter: &str| parameter.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok();
    let known = query.unwrap_or_default().split('&').find_map(seconds);
    known.filter(|seconds| (1..=LONGEST_PATIENCE).contains(seconds)).map_or(PATIENCE, Duration::from_secs)
}

/// The reason why a request has no review.
enum Failure {
    /// The connection closed before the end of the body.
    Closed(hyper::Error),
    /// The status and the text of an error response.
    Answer(StatusCode, String),
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, answers: &Answers, stop: CancellationToken) {
    let service = service_fn(|request: Request<Incoming>| {
        // `open` exists before the future, because a closed connection may drop the future before its first poll.
        let open = Open::new(&answers.telemetry, &request);
        async move {
            let answer = answer(request, answers).await;
            if let Some(open) = open {
                open.answered(&answer);
            }
            Ok::<_, Infallible>(match answer {
                Ok(body) => {
                    let mut response = Response::new(Full::new(Bytes::from(body)));
                    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
                    response
                }
                Err(Failure::Closed(error)) => {
                    pages::plain(StatusCode::BAD_REQUEST, format!("cannot read the body: {error}\n"))
                }
                Err(Failure::Answer(status, reason)) => {
                    let mut response = pages::plain(status, format!("{reason}\n"));
                    if status == StatusCode::METHOD_NOT_ALLOWED {
                        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
                    }
                    response
                }
            })
        }
    });
    let mut connection = pin!(http1_builder().serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "webhook connection failed");
    }
}

async fn answer(request: Request<Incoming>, answers: &Answers) -> Result<Vec<u8>, Failure> {
    if request.uri().path() != PATH {
        return Err(Failure::Answer(StatusCode::NOT_FOUND, "404 page not found".to_owned()));
    }
    if request.method() != Method::POST {
        let reason = "405 only POST is supported".to_owned();
        return Err(Failure::Answer(StatusCode::METHOD_NOT_ALLOWED, reason));
    }
    let (head, body) = request.into_parts();
    let read = tokio::time::timeout(BODY_TIMEOUT, read(&head.headers, body, answers)).await;
    let slow = || format!("the body took more than {BODY_TIMEOUT:?}");
    let (bytes, _memory) = read.map_err(|_| Failure::Answer(StatusCode::REQUEST_TIMEOUT, slow()))??;
    let answer = (answers.reviewer)(&bytes).map_err(|error| {
        tracing::debug!(%error, "failed to process an AdmissionReview, responding with an error");
        Failure::Answer(StatusCode::BAD_REQUEST, error.to_string())
    })?;
    answers.is_proven.store(true, Ordering::Relaxed);
    Ok(answer)
}

/// Reads a body within the limits. The caller must keep the memory as long as the bytes.
async fn read(
    headers: &HeaderMap,
    mut body: Incoming,
    answers: &Answers,
) -> Result<(Vec<u8>, Body), Failure> {
    let too_large = |length: usize| {
        Failure::Answer(StatusCode::PAYLOAD_TOO_LARGE, ReviewError::TooLarge(length).to_string())
    };
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if let Some(length) = declared.filter(|length| *length > MAX_BODY) {
        return Err(too_large(length));
    }
    let (mut bytes, mut memory) = (Vec::new(), Body::new(&answers.bodies, answers.source));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(Failure::Closed)?;
        let Ok(data) = frame.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > MAX_BODY {
            return Err(too_large(length));
        }
        let needed = length.saturating_sub(FREE).div_ceil(KIB);
        if !memory.grow(needed, answers.is_proven.load(Ordering::Relaxed)) {
            let reason = "the bodies in flight take too much memory".to_owned();
            return Err(Failure::Answer(StatusCode::TOO_MANY_REQUESTS, reason));
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes, memory))
}
