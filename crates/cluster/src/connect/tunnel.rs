//! Connections through a proxy.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{Request, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::proxy::SocksV5;
use tower::{BoxError, Service, ServiceExt};

use super::proxy::{Kind, Proxy};
use super::stream::{self, Stream};
use crate::error::describe_connecting;

/// A failed connection through a proxy. `Display` is the text of Go's client, extended if that text is too
/// short.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TunnelError(String);

/// A byte stream to the server, or to a proxy that forwards requests.
type Tunnelled = Stream<Box<dyn stream::Bytes + Send + Unpin>>;

/// Connects to the server through a proxy. `dial` connects to the proxy.
#[derive(Debug, Clone)]
pub(super) struct Tunnel<C> {
    pub(super) proxy: Arc<Proxy>,
    pub(super) dial: C,
    /// Timeout of a connection, including the proxy's response.
    pub(super) timeout: Duration,
}

impl<C> Service<Uri> for Tunnel<C>
where
    C: Service<Uri> + Clone + Send + 'static,
    C::Response: Read + Write + Unpin + Send + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    type Response = Tunnelled;
    type Error = TunnelError;
    type Future = Pin<Box<dyn Future<Output = Result<Tunnelled, TunnelError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TunnelError>> {
        // Each call drives a clone to readiness.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let (timeout, proxy) = (this.timeout, Arc::clone(&this.proxy));
            match tokio::time::timeout(timeout, this.connect(&server)).await {
                Ok(result) => result,
                Err(_) => Err(TunnelError(format!("proxyconnect tcp: {}: i/o timeout", proxy.authority()))),
            }
        })
    }
}

impl<C> Tunnel<C>
where
    C: Service<Uri> + Clone + Send + 'static,
    C::Response: Read + Write + Unpin + Send + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    async fn connect(self, server: &Uri) -> Result<Tunnelled, TunnelError> {
        let (proxy, address) = (&self.proxy, self.proxy.address.clone());
        let host = server.host().unwrap_or_default();
        let default = if server.scheme_str() == Some("http") { 80 } else { 443 };
        let server_address = format!("{host}:{}", server.port_u16().unwrap_or(default));

        let stream = self.dial.oneshot(address.clone()).await.map_err(|error| {
            TunnelError(format!("proxyconnect tcp: {}", describe_connecting(error.into().as_ref(), &address)))
        })?;
        match (proxy.kind, server.scheme_str()) {
            (Kind::Socks5, _) => socks(proxy, stream, &server_address).await,
            (Kind::Http, Some("http")) => Ok(Stream::to_proxy(Box::new(stream))),
            (Kind::Http, _) => connect(proxy, stream, &server_address).await,
        }
    }
}

/// Opens a connection through a SOCKS proxy.
async fn socks<IO>(proxy: &Proxy, stream: IO, server: &str) -> Result<Tunnelled, TunnelError>
where
    IO: Read + Write + Unpin + Send + 'static,
{
    let failed =
        |reason: String| TunnelError(format!("socks connect tcp {}->{server}: {reason}", proxy.authority()));
    let mut stream = Some(stream);
    let dialled = tower::service_fn(move |_| {
        std::future::ready(stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
    });
    let mut socks = SocksV5::new(proxy.address.clone(), dialled);
    if let Some((user, password)) = proxy.login() {
        socks = socks.with_auth(user.to_owned(), password.to_owned());
    }
    let server = format!("http://{server}/").parse().map_err(|_| failed("invalid address".to_owned()))?;
    let stream = socks.oneshot(server).await.map_err(|error| failed(innermost(&error)))?;
    Ok(Stream::to_server(Box::new(stream)))
}

/// Opens a tunnel through an HTTP proxy.
async fn connect<IO>(proxy: &Proxy, stream: IO, server: &str) -> Result<Tunnelled, TunnelError>
where
    IO: Read + Write + Unpin + Send + 'static,
{
    let failed = |reason: String| TunnelError(format!("proxyconnect tcp: {}: {reason}", proxy.authority()));
    let broken = |error: hyper::Error| failed(innermost(&error));

    let (mut sender, connection) = http1::handshake(stream).await.map_err(broken)?;
    // The task ends with the tunnel, or with `sender` if the tunnel fails.
    tokio::spawn(connection.with_upgrades());
    let mut request = Request::connect(server).header(HOST, server);
    if let Some(authorization) = proxy.authorization() {
        request = request.header(PROXY_AUTHORIZATION, authorization);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| failed(error.to_string()))?;
    let answer = sender.send_request(request).await.map_err(broken)?;
    if !answer.status().is_success() {
        return Err(failed(format!("the proxy refused a tunnel to {server}: {}", answer.status())));
    }
    let tunnel = hyper::upgrade::on(answer).await.map_err(broken)?;
    Ok(Stream::to_server(Box::new(tunnel)))
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| (*error).source())
        .last()
        .map_or_else(String::new, ToString::to_string)
}
