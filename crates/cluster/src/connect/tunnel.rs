//! Connections through a proxy.

use std::error::Error;
use std::io;
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

use super::proxy::{Kind, Proxy};
use super::stream::Stream;
use crate::error::describe_connecting;

/// A failed connection through a proxy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TunnelError(String);

/// Connects to the server through a proxy. `dial` connects to the proxy. `limit` is the timeout of a
/// connection, including the proxy's response.
pub(super) fn through<C>(
    proxy: Proxy,
    dial: C,
    limit: Duration,
) -> BoxCloneSyncService<Uri, Stream<C::Response>, TunnelError>
where
    C: Service<Uri, Error = BoxError> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Unpin + Send + 'static,
    C::Future: Send + 'static,
{
    BoxCloneSyncService::new(tower::service_fn(move |server: Uri| {
        let (proxy, dial) = (proxy.clone(), dial.clone());
        async move {
            let hung = || TunnelError(format!("proxyconnect tcp: {}: i/o timeout", proxy.authority()));
            let connected = tokio::time::timeout(limit, connect(&proxy, dial, &server)).await;
            connected.unwrap_or_else(|_| Err(hung()))
        }
    }))
}

async fn connect<C>(proxy: &Proxy, dial: C, server: &Uri) -> Result<Stream<C::Response>, TunnelError>
where
    C: Service<Uri, Error = BoxError>,
    C::Response: Read + Write + Unpin + Send + 'static,
{
    let address = proxy.address.clone();
    let stream = dial.oneshot(address.clone()).await.map_err(|error| {
        TunnelError(format!("proxyconnect tcp: {}", describe_connecting(error.as_ref(), &address)))
    })?;
    let failed = |error: &(dyn Error + 'static)| {
        let cause = std::iter::successors(Some(error), |error| (*error).source()).last();
        let cause = cause.map_or_else(String::new, ToString::to_string);
        TunnelError(format!("proxyconnect tcp: {}: {cause}", proxy.authority()))
    };
    let mut dialled = Some(stream);
    let dialled = tower::service_fn(move |_: Uri| {
        std::future::ready(dialled.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
    });
    match (proxy.kind, server.scheme_str()) {
        (Kind::Socks5, scheme) => {
            let default = if scheme == Some("http") { 80 } else { 443 };
            let (host, port) = (server.host().unwrap_or_default(), server.port_u16().unwrap_or(default));
            let server = format!("http://{host}:{port}/").parse::<Uri>().map_err(|error| failed(&error))?;
            let mut socks = SocksV5::new(address, dialled);
            if let Some((user, password)) = proxy.login() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            socks.oneshot(server).await.map(Stream::to_server).map_err(|error| failed(&error))
        }
        (Kind::Http, Some("http")) => {
            dialled.oneshot(address).await.map(Stream::to_proxy).map_err(|error| failed(&error))
        }
        (Kind::Http, _) => {
            let mut tunnel = Tunnel::new(address, dialled);
            if let Some(authorization) = proxy.authorization() {
                tunnel = tunnel.with_auth(authorization.clone());
            }
            tunnel.oneshot(server.clone()).await.map(Stream::to_server).map_err(|error| failed(&error))
        }
    }
}
