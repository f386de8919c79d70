//! Requests over connections that a [`Dial`] opens, and the reasons why a source has no number. The callers limit the
//! time and size of responses.
//!
//! Redirects are not followed, because a pod could redirect requests to any address.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use exposition::kubelet::KubeletError;
use exposition::{InvalidValue, PageError};
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Request, StatusCode, Uri, request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use promql::{AnswerError, QueryError};
use tower::Service;

use crate::dial::{Dial, Io, TlsProblem};
use crate::secrets::SecretProblem;

/// Lifetime of an idle connection.
pub(crate) const IDLE: Duration = Duration::from_secs(30);
/// Maximum size of response headers in bytes.
const MAX_HEADERS: usize = 32 << 10;
/// The value of the `User-Agent` header.
pub(crate) const USER: HeaderValue = HeaderValue::from_static("concertina");
/// Maximum size of a token file in bytes.
const MAX_TOKEN: u64 = 64 << 10;
/// Maximum number of characters of an error in messages.
const SHOWN: usize = 200;

/// Adapts a [`Dial`] to hyper's client.
#[derive(Debug, Clone)]
struct Connector(Arc<dyn Dial>);

/// A connection of hyper's client.
struct Stream(TokioIo<Box<dyn Io>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl hyper::rt::Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl hyper::rt::Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Stream>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.0.dial(to);
        Box::pin(async move { connecting.await.map(|io| Stream(TokioIo::new(io))) })
    }
}

/// The reason why a request has no usable response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The response was not complete within the time limit.
    #[error("no complete response within {0:?}")]
    Timeout(Duration),
    /// The connection failed, or broke.
    #[error("the request failed: {0}")]
    Connection(String),
    /// The server answers with a redirect.
    #[error("the server answers {0}: redirects are not followed")]
    Redirect(StatusCode),
    /// The server answers with an unexpected status.
    #[error("the server answers {0}")]
    Status(StatusCode),
    /// The response is too large. Holds the limit in bytes.
    #[error("the response has more than {0} bytes")]
    TooLarge(usize),
    /// The token file cannot be read.
    #[error("cannot read the token: {0}")]
    Token(String),
    /// The URL is invalid.
    #[error("the request is invalid: {0}")]
    Invalid(String),
}

/// The reason why a source has no number for a metric of an HPA.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SourceError {
    /// The source file has no server with this name.
    #[error("the source file has no such server")]
    UnknownServer,
    /// The source file has no such API group.
    #[error("the source file does not list this API group under adapters")]
    UnknownGroup,
    /// The source is an API group, which is read through the API server.
    #[error("this source is an API group, which the API server serves")]
    OfApiServer,
    /// The HPA's namespace may not use the source.
    #[error("the source file does not allow this namespace to use it")]
    Namespace,
    /// The source file does not enable the scraper of pods.
    #[error("the source file does not enable scraping of pods: set pods.enabled")]
    Disabled,
    /// The source file does not enable the scraper of kubelets.
    #[error("the source file does not enable scraping of kubelets: set kubelet.enabled")]
    KubeletDisabled,
    /// The metric is not of type Resource or ContainerResource.
    #[error("kubelets are read for metrics of type Resource and ContainerResource only")]
    NotResource,
    /// The source file does not allow TLS for pods.
    #[error("the source file does not allow TLS for pods: set pods.tls")]
    TlsDisabled,
    /// The source file does not allow Secrets of the namespace.
    #[error("the source file does not allow Secrets of this namespace: add it to pods.secretNamespaces")]
    SecretsDisabled,
    /// A Secret has no usable value. Holds its name and the cause.
    #[error("Secret {0} {1}")]
    Secret(Arc<str>, SecretProblem),
    /// The certificate authorities cannot be used.
    #[error("tlsConfig.ca cannot be used: {0}")]
    Authorities(TlsProblem),
    /// The namespace names too many Secrets. Holds the limit.
    #[error("the namespace names more than {0} Secrets for pages of pods")]
    TooManySecrets(usize),
    /// The namespace uses too many combinations of TLS settings and authorization. Holds the limit.
    #[error("the namespace has more than {0} different tlsConfig and authorization")]
    TooManyTransports(usize),
    /// No sync has recently prepared the TLS settings of the page.
    #[error("certificate authorities and token of the page are not ready: retrying with the next sync")]
    NotPrepared,
    /// The metric is not of type Pods.
    #[error("pods are scraped for metrics of type Pods only")]
    NotPods,
    /// The query is refused.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The request has no usable response.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The response contains no usable number.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The page is refused.
    #[error("the page is invalid: {0}")]
    Page(#[from] PageError),
    /// The page of a kubelet is refused.
    #[error("the page is invalid: {0}")]
    Kubelet(#[from] KubeletError),
    /// The content type of the page is not that of Prometheus' text format. Holds `Content-Type`.
    #[error("the page has the type {0:?}: it must be text/plain, the text format of Prometheus")]
    ContentType(String),
    /// A value is NaN or infinite.
    #[error(transparent)]
    Value(#[from] InvalidValue),
    /// The pod has no address.
    #[error("the pod has no address yet")]
    NoAddress,
    /// The pod's address is the address of its node, or outside of pod networks.
    #[error("the pod uses the address of its node, or an address outside of pod networks")]
    Address,
    /// The pod declares no such port.
    #[error("the pod declares no such port")]
    NoPort,
    /// The namespace has too many pages. Holds the limit.
    #[error("the namespace has more than {0} pages of pods that are scraped")]
    TooManyPages(usize),
    /// The page has too many metrics. Holds the limit.
    #[error("more than {0} metrics are read from one page")]
    TooManyMetrics(usize),
    /// Too many counters are kept. Holds the scope of the limit.
    #[error("too many counters are kept for {0}: select fewer series, or scrape less often")]
    TooManyCounters(&'static str),
    /// The pod is not bound to a node yet, or its node has an address that is not scraped.
    #[error("the node of the pod has no address, or an address outside of node networks")]
    NodeAddress,
    /// The node has no usable page. Holds its address and the cause.
    #[error("node {0}: {1}")]
    Node(IpAddr, Arc<Self>),
    /// Too many nodes are scraped. Holds the limit.
    #[error("more than {0} nodes are scraped")]
    TooManyNodes(usize),
    /// No pod has a number. Holds the number of pods, and the name and the error of one pod.
    #[error("none of {0} pods has a number; {1}: {2}")]
    AllPods(usize, Arc<str>, Arc<Self>),
    /// The number is too old. Holds its age and the limit, in seconds.
    #[error("the number is {0} s old, at most {1} s are allowed")]
    TooOld(u64, u32),
    /// A range query returns no value.
    #[error("the query returns no series of the target in this time")]
    NoPast,
    /// The request panicked.
    #[error("the request panicked: see the log")]
    Panicked,
}

impl SourceError {
    /// Returns the value of the label `reason` in Concertina's metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownServer
            | Self::UnknownGroup
            | Self::OfApiServer
            | Self::Namespace
            | Self::Disabled
            | Self::KubeletDisabled
            | Self::TlsDisabled
            | Self::SecretsDisabled
            | Self::NotPods
            | Self::NotResource => "NotAllowed",
            Self::Query(_) => "InvalidQuery",
            Self::Request(RequestError::Timeout(_)) => "Timeout",
            Self::Request(_) => "Request",
            Self::Answer(AnswerError::Partial(_)) => "Partial",
            Self::Answer(_) | Self::Value(_) => "InvalidAnswer",
            Self::Page(_) | Self::Kubelet(_) | Self::ContentType(_) => "InvalidPage",
            Self::NoAddress | Self::Address | Self::NoPort | Self::NodeAddress => "NoAddress",
            Self::Secret(..) | Self::Authorities(_) | Self::NotPrepared => "Credentials",
            Self::TooManyPages(_)
            | Self::TooManyMetrics(_)
            | Self::TooManyCounters(_)
            | Self::TooManySecrets(_)
            | Self::TooManyTransports(_)
            | Self::TooManyNodes(_) => "TooMany",
            Self::AllPods(_, _, error) | Self::Node(_, error) => error.reason(),
            Self::TooOld(..) => "TooOld",
            Self::NoPast => "NoPast",
            Self::Panicked => "Panicked",
        }
    }
}

/// A response whose body is read in pieces.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    /// `Content-Type`, or empty.
    pub(crate) content_type: String,
    body: Incoming,
}

impl Response {
    /// Returns the next piece of the body. `None` at its end.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, RequestError> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(RequestError::Connection(chain(&error))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Reads the whole body. Fails if the body has more than `limit` bytes.
    pub(crate) async fn whole(mut self, limit: usize) -> Result<Vec<u8>, RequestError> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece().await? {
            if body.len().saturating_add(piece.len()) > limit {
                return Err(RequestError::TooLarge(limit));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}

/// An HTTP client. Clones share their connections.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Client<Connector, Full<Bytes>>,
}

impl Http {
    /// Creates a client that keeps at most `idle` idle connections for each host.
    pub(crate) fn new(dial: Arc<dyn Dial>, idle: usize) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(idle)
            .http1_max_buf_size(MAX_HEADERS)
            .build(Connector(dial));
        Self { client }
    }

    /// Sends a GET request, with the token from a file if `token` is set. Returns when the headers of the response have
    /// arrived. A redirect is an error.
    pub(crate) async fn get_authorized(
        &self,
        url: &str,
        accept: &str,
        token: Option<&Path>,
    ) -> Result<Response, RequestError> {
        self.send(Request::get(url).header(ACCEPT, accept), token, Bytes::new()).await
    }

    /// Sends a POST request with a form. URLs with parameters would exceed the limits of some proxies.
    pub(crate) async fn post_form(
        &self,
        url: &str,
        form: String,
        token: Option<&Path>,
    ) -> Result<Response, RequestError> {
        let request = Request::post(url)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request, token, form.into()).await
    }

    async fn send(
        &self,
        mut request: request::Builder,
        token: Option<&Path>,
        body: Bytes,
    ) -> Result<Response, RequestError> {
        if let Some(path) = token {
            request = request.header(AUTHORIZATION, bearer(path)?);
        }
        let request = request.header(USER_AGENT, USER).body(Full::new(body));
        let request = request.map_err(|error| RequestError::Invalid(error.to_string()))?;
        let sent = self.client.request(request).await;
        let (parts, body) = sent.map_err(|error| RequestError::Connection(chain(&error)))?.into_parts();
        if parts.status.is_redirection() {
            return Err(RequestError::Redirect(parts.status));
        }
        let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        Ok(Response { status: parts.status, content_type: content_type.unwrap_or_default().to_owned(), body })
    }
}

/// Reads a token from a file. Returns the value of the `Authorization` header.
fn bearer(path: &Path) -> Result<HeaderValue, RequestError> {
    let failed = |reason: String| RequestError::Token(format!("{}: {reason}", path.display()));
    let length = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if length > MAX_TOKEN {
        return Err(failed(format!("it has {length} bytes")));
    }
    let token = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    bearer_of(&token).ok_or_else(|| failed("it is not a valid header value".to_owned()))
}

/// Returns the value of the `Authorization` header. `None` if it would not be a valid header value.
pub(crate) fn bearer_of(token: &str) -> Option<HeaderValue> {
    let token = token.trim();
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok().filter(|_| !token.is_empty())?;
    value.set_sensitive(true);
    Some(value)
}

/// Formats an error with its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text.chars().take(SHOWN).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}
