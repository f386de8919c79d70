//! The bottom of the client stack: TLS over TCP, or any byte stream in process, with HTTP/1.1 on it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connect, Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::middleware::BaseUriLayer;
use kube::client::{Body, ConfigExt};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceExt};

use super::client::ClientError;

/// Sends requests; the URI of a request is its path, the server's is put in front of it.
pub(super) type HttpService = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

/// How long a connection may wait unused before it is closed.
const IDLE: Duration = Duration::from_mins(1);

/// The stack over TLS and TCP, with the credentials of the configuration.
pub(super) fn over_network(config: &kube::Config) -> Result<HttpService, ClientError> {
    if let Some(proxy) = &config.proxy_url {
        return Err(ClientError::Proxy(proxy.to_string()));
    }
    // An error means that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    // A dead peer is noticed after 30 s at most: 15 s silence and three probes, or 30 s of bytes that nobody confirms.
    http.set_keepalive(Some(Duration::from_secs(15)));
    http.set_keepalive_interval(Some(Duration::from_secs(5)));
    http.set_keepalive_retries(Some(3));
    #[cfg(target_os = "linux")]
    http.set_tcp_user_timeout(Some(Duration::from_secs(30)));
    http.set_connect_timeout(config.connect_timeout);
    let https = config.rustls_https_connector_with_connector(http).map_err(ClientError::Tls)?;
    let headers = config.extra_headers_layer().map_err(ClientError::Credentials)?;
    let stack = headers.layer(http1(https));
    let base = config.base_uri_layer();
    Ok(match config.auth_layer().map_err(ClientError::Credentials)? {
        Some(auth) => BoxCloneSyncService::new(base.layer(auth.layer(stack).map_err(BoxError::from))),
        None => BoxCloneSyncService::new(base.layer(stack)),
    })
}

/// The stack over a connector of the caller's.
pub(super) fn over<C>(connector: C, base: Uri) -> HttpService
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Unpin + Send + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    BoxCloneSyncService::new(BaseUriLayer::new(base).layer(http1(InProcess(connector))))
}

fn http1<C>(connector: C) -> HttpService
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build::<_, Body>(connector);
    BoxCloneSyncService::new(client.map_err(BoxError::from))
}

/// A connector of plain byte streams, in the form that hyper-util wants.
#[derive(Debug, Clone)]
struct InProcess<C>(C);

impl<C> Service<Uri> for InProcess<C>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Send + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    type Response = Stream<C::Response>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.0.call(to);
        Box::pin(async move { connecting.await.map(Stream).map_err(Into::into) })
    }
}

/// A byte stream that says nothing about its connection.
#[derive(Debug)]
struct Stream<IO>(IO);

impl<IO> Connection for Stream<IO> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl<IO: Read + Unpin> Read for Stream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<IO: Write + Unpin> Write for Stream<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
