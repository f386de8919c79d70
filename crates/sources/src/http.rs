//! Requests with bounded time and size, over connections that a [`Dial`] opens.
//!
//! Redirects are not followed, because a pod could redirect requests to any address.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Request, StatusCode, Uri, request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tower::Service;

use crate::dial::{Dial, Io};

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

    /// Reads the whole body, up to `limit` bytes.
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

    /// Sends a GET request with the token of a file. Returns when the headers of the response have arrived. A redirect
    /// is an error.
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
