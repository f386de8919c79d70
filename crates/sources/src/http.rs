//! Requests with bounded time and size, over connections that a [`Dial`] opens.
//!
//! Redirects are not followed, because a pod could redirect requests to any address.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
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
use kube::client::ConfigExt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::Service;

/// Lifetime of an idle connection.
const IDLE: Duration = Duration::from_secs(30);
/// Maximum bytes of response headers.
const MAX_HEADERS: usize = 32 << 10;
/// `User-Agent`.
pub(crate) const USER: HeaderValue = HeaderValue::from_static("concertina");
/// Maximum bytes of a token file.
const MAX_TOKEN: u64 = 64 << 10;
/// Maximum bytes of an error's text in messages.
const SHOWN: usize = 200;

/// A byte stream to a server.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Opens connections: over the network, or in memory.
pub trait Dial: fmt::Debug + Send + Sync {
    /// Opens a connection to the scheme, host and port of a URL.
    fn dial(&self, to: Uri) -> BoxFuture<'static, io::Result<Box<dyn Io>>>;
}

/// Connections over TCP, with TLS for `https`.
#[derive(Clone)]
pub struct Network {
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("tls", &self.tls.is_some()).finish()
    }
}

/// Unusable TLS settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {}: {reason}", .file.display())]
pub struct TlsError {
    /// The file.
    file: PathBuf,
    /// The cause.
    reason: String,
}

/// The reason why a client with TLS cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsProblem {
    /// The text is not PEM. Holds the cause.
    #[error("{0}")]
    Pem(String),
    /// The text has no certificate.
    #[error("it contains no PEM certificate")]
    NoCertificate,
    /// The authorities are refused. Holds the cause.
    #[error("{0}")]
    Refused(String),
    /// Certificates cannot contain the name of the server.
    #[error("serverName is not a valid TLS server name")]
    ServerName,
}

impl Network {
    /// Connections without TLS.
    pub const fn plain() -> Self {
        Self { tls: None }
    }

    /// Connections with TLS that accept any certificate.
    pub fn unverified() -> Result<Self, TlsError> {
        Self::configured(None, true)
    }

    /// Connections with TLS and the authorities of a file, or the system's authorities.
    pub fn tls(authorities: Option<&Path>) -> Result<Self, TlsError> {
        Self::configured(authorities, false)
    }

    fn configured(authorities: Option<&Path>, accepts_any: bool) -> Result<Self, TlsError> {
        let unusable = |reason: String| TlsError {
            file: authorities.unwrap_or_else(|| Path::new("the system's authorities")).to_owned(),
            reason,
        };
        // An error means that a provider is already installed, which is sufficient.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = kube::Config::new(Uri::default());
        config.accept_invalid_certs = accepts_any;
        // Without verification, the system's authorities are not needed.
        config.root_cert = accepts_any.then(Vec::new);
        if let Some(path) = authorities {
            let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
            config.root_cert = Some(certificates(&pem).map_err(|problem| unusable(problem.to_string()))?);
        }
        let tls = config.rustls_client_config().map_err(|error| unusable(error.to_string()))?;
        Ok(Self { tls: Some(Arc::new(tls)) })
    }
}

/// Parses the certificates of a PEM text, which must contain at least one.
fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, TlsProblem> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = parsed.map_err(|error| TlsProblem::Pem(error.to_string()))?;
    if certificates.is_empty() {
        return Err(TlsProblem::NoCertificate);
    }
    Ok(certificates.iter().map(|certificate| certificate.to_vec()).collect())
}

/// TLS over the connections of another [`Dial`], with a name that does not come from the URL.
#[derive(Debug)]
pub(crate) struct TlsDial {
    inner: Arc<dyn Dial>,
    config: Arc<rustls::ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl TlsDial {
    /// TLS to servers with a certificate for `name` that an authority in `pem` has signed. Without `pem`, certificates
    /// are not verified.
    pub(crate) fn new(
        inner: Arc<dyn Dial>,
        pem: Option<&[u8]>,
        name: Option<&str>,
    ) -> Result<Self, TlsProblem> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = kube::Config::new(Uri::from_static("https://pods"));
        config.accept_invalid_certs = pem.is_none();
        config.root_cert = Some(pem.map_or_else(|| Ok(Vec::new()), certificates)?);
        let refused = |error: kube::Error| TlsProblem::Refused(error.to_string());
        let config = config.rustls_client_config().map_err(refused)?;
        let name = name.map(|name| ServerName::try_from(name.to_owned())).transpose();
        let name = name.map_err(|_| TlsProblem::ServerName)?;
        Ok(Self { inner, config: Arc::new(config), name })
    }
}

impl Dial for TlsDial {
    fn dial(&self, to: Uri) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        let (config, name) = (Arc::clone(&self.config), self.name.clone());
        let host = to.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let connecting = self.inner.dial(to);
        Box::pin(async move {
            let invalid =
                |_| io::Error::new(io::ErrorKind::InvalidInput, "the host is not a valid TLS server name");
            let name = name.map_or_else(|| ServerName::try_from(host).map_err(invalid), Ok)?;
            let connection = connecting.await?;
            Ok(Box::new(TlsConnector::from(config).connect(name, connection).await?) as Box<dyn Io>)
        })
    }
}

impl Dial for Network {
    fn dial(&self, to: Uri) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        let tls = self.tls.clone();
        Box::pin(async move {
            let invalid = |text| io::Error::new(io::ErrorKind::InvalidInput, text);
            let host = to.host().ok_or_else(|| invalid("the URL has no host"))?;
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let is_https = to.scheme_str() == Some("https");
            let port = to.port_u16().unwrap_or(if is_https { 443 } else { 80 });
            let tcp = TcpStream::connect((host.as_str(), port)).await?;
            tcp.set_nodelay(true)?;
            if !is_https {
                return Ok(Box::new(tcp) as Box<dyn Io>);
            }
            let tls = tls.ok_or_else(|| invalid("TLS is not configured"))?;
            let name =
                ServerName::try_from(host).map_err(|_| invalid("the host is not a valid TLS server name"))?;
            Ok(Box::new(TlsConnector::from(tls).connect(name, tcp).await?) as Box<dyn Io>)
        })
    }
}

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
    /// No complete response in time.
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
    /// The status.
    pub(crate) status: StatusCode,
    /// `Content-Type`, or empty.
    pub(crate) content_type: String,
    body: Incoming,
}

impl Response {
    /// The next piece of the body. `None` at its end.
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

    /// The whole body.
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

/// A client. Clones share their connections.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Client<Connector, Full<Bytes>>,
}

impl Http {
    /// A client that keeps at most `idle` idle connections for each host.
    pub(crate) fn new(dial: Arc<dyn Dial>, idle: usize) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(idle)
            .http1_max_buf_size(MAX_HEADERS)
            .build(Connector(dial));
        Self { client }
    }

    /// Sends a GET request with the token of a file. Returns after the headers of the response. A redirect is an error.
    pub(crate) async fn get_authorized(
        &self,
        url: &str,
        accept: &str,
        token: Option<&Path>,
    ) -> Result<Response, RequestError> {
        let mut request = Request::get(url).header(ACCEPT, accept);
        if let Some(path) = token {
            request = request.header(AUTHORIZATION, bearer(path)?);
        }
        self.send(request, Bytes::new()).await
    }

    /// Sends a form instead of a URL with parameters, because proxies limit the length of URLs.
    pub(crate) async fn post_form(
        &self,
        url: &str,
        form: String,
        token: Option<&Path>,
    ) -> Result<Response, RequestError> {
        let mut request = Request::post(url)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(path) = token {
            request = request.header(AUTHORIZATION, bearer(path)?);
        }
        self.send(request, form.into()).await
    }

    async fn send(&self, request: request::Builder, body: Bytes) -> Result<Response, RequestError> {
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

/// The header with the token of a file.
fn bearer(path: &Path) -> Result<HeaderValue, RequestError> {
    let failed = |reason: String| RequestError::Token(format!("{}: {reason}", path.display()));
    let length = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if length > MAX_TOKEN {
        return Err(failed(format!("it has {length} bytes")));
    }
    let token = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    bearer_of(&token).ok_or_else(|| failed("it is not a valid header value".to_owned()))
}

/// The header with a token. `None` if the token is not a valid header value.
pub(crate) fn bearer_of(token: &str) -> Option<HeaderValue> {
    let token = token.trim();
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok().filter(|_| !token.is_empty())?;
    value.set_sensitive(true);
    Some(value)
}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text.chars().take(SHOWN).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}
