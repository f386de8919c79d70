//! The bottom of the client stack: TLS over TCP, by way of a proxy if there is one, or any byte stream in process, with
//! HTTP/1.1 on it; and the credentials that requests show.

mod account;
mod credentials;
mod exec;
mod proxy;
mod stream;
mod tunnel;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::PROXY_AUTHORIZATION;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::middleware::BaseUriLayer;
use kube::client::{Body, ConfigExt};
use kube::config::AuthInfo;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceExt};

use self::credentials::{Authorized, Certified};
use self::exec::{Identity, Plugin};
use self::proxy::Proxy;
use self::stream::Stream;
use self::tunnel::Tunnel;
use super::client::ClientError;
use crate::clock::SystemClock;
use crate::platform;

pub(super) use self::account::Account;
pub use self::account::AccountError;
pub use self::credentials::CredentialError;
pub(super) use self::credentials::{Shown, Source};
pub use self::exec::{PluginError, PluginLimits};
pub use self::proxy::ProxyError;
pub(super) use self::tunnel::TunnelError;

/// Checks the URL of a proxy. `origin` is how errors call the place where it was found.
pub(super) fn check_proxy(url: &str, origin: &str) -> Result<(), ProxyError> {
    Proxy::parse(url, origin).map(drop)
}

/// Sends requests; the URI of a request is its path, the server's is put in front of it.
pub(super) type HttpService = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

/// How long a connection may wait unused before it is closed.
const IDLE: Duration = Duration::from_mins(1);

/// How many connections may wait unused: twice what statuses that go together take. What slow answers or a start needed
/// beyond that is closed when it is done.
const MOST_IDLE: usize = 32;

/// How many bytes a connection reads ahead, and how long the head of an answer may be. TLS hands out 16 KiB at a time; what
/// hyper would take by itself, 400 KiB, is kept by each connection that ever had a long answer.
const READ_AHEAD: usize = 32 * 1024;

/// The stack over TLS and TCP, by way of a proxy if there is one, with the credentials of the configuration. And where
/// those come from.
pub(super) fn over_network(
    config: &kube::Config,
    limits: PluginLimits,
) -> Result<(HttpService, Arc<Source>), ClientError> {
    // An error means that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let proxy = proxy(config)?;
    let source = Arc::new(source(config, limits)?);

    let mut config = config.clone();
    // What the plugin gives is put into a request, or into the certificate, when it is there.
    config.auth_info.exec = None;
    let http = transport(&config, proxy.as_ref())?;
    let certified = Certified::new(Box::new(move |identity: &Identity| {
        let mut config = config.clone();
        config.auth_info.client_certificate_data = Some(STANDARD.encode(&identity.certificate));
        config.auth_info.client_key_data = Some(STANDARD.encode(&identity.key).into());
        transport(&config, proxy.as_ref())
    }));
    let authorized = Authorized { source: Arc::clone(&source), http, certified };
    Ok((BoxCloneSyncService::new(authorized), source))
}

/// Where the credentials of a configuration come from.
pub(super) fn source(config: &kube::Config, limits: PluginLimits) -> Result<Source, CredentialError> {
    let exec = config.auth_info.exec.clone().unwrap_or_default();
    Source::of(config, || Plugin::new(exec, limits, Arc::new(SystemClock)))
}

/// The stack to the server of a configuration, with tokens of a ServiceAccount in place of the configuration's user. None
/// to a server at `http://`, which is shown nothing.
pub(super) fn as_account(
    config: &kube::Config,
    account: impl FnOnce() -> Account,
) -> Result<Option<HttpService>, ClientError> {
    if config.cluster_url.scheme_str() != Some("https") {
        return Ok(None);
    }
    let mut config = config.clone();
    config.auth_info = AuthInfo::default();
    let proxy = proxy(&config)?;
    let http = transport(&config, proxy.as_ref())?;
    let source = Arc::new(Source::Account(Arc::new(account())));
    let certified = Certified::new(Box::new(move |_| transport(&config, proxy.as_ref())));
    Ok(Some(BoxCloneSyncService::new(Authorized { source, http, certified })))
}

fn proxy(config: &kube::Config) -> Result<Option<Arc<Proxy>>, ProxyError> {
    let proxy = match &config.proxy_url {
        Some(url) => Some(Proxy::parse(&url.to_string(), "proxy-url")?),
        None => Proxy::from_environment(&config.cluster_url, |name| std::env::var(name).ok())?,
    };
    Ok(proxy.map(Arc::new))
}

/// Connections and what is the same for all requests on them.
fn transport(config: &kube::Config, proxy: Option<&Arc<Proxy>>) -> Result<HttpService, ClientError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    // A dead peer is noticed after 30 s at most: 15 s silence and three probes, or 30 s of bytes that nobody confirms.
    http.set_keepalive(Some(Duration::from_secs(15)));
    http.set_keepalive_interval(Some(Duration::from_secs(5)));
    http.set_keepalive_retries(Some(3));
    platform::limit_unconfirmed_bytes(&mut http, Duration::from_secs(30));
    http.set_connect_timeout(config.connect_timeout);

    let mut config = config.clone();
    let stack = if let Some(proxy) = proxy {
        if let (Some("http"), Some(authorization)) = (config.cluster_url.scheme_str(), proxy.authorization())
        {
            // There is no tunnel to a server at http://, the proxy reads each request.
            config.headers.push((PROXY_AUTHORIZATION, authorization));
        }
        let dial = config.rustls_https_connector_with_connector(http).map_err(ClientError::Tls)?;
        let timeout = config.connect_timeout.unwrap_or(IDLE);
        let tunnel = Tunnel { proxy: Arc::clone(proxy), dial, timeout };
        http1(config.rustls_https_connector_with_connector(tunnel).map_err(ClientError::Tls)?)
    } else {
        http1(config.rustls_https_connector_with_connector(http).map_err(ClientError::Tls)?)
    };
    let headers = config.extra_headers_layer().map_err(ClientError::Headers)?;
    Ok(BoxCloneSyncService::new(config.base_uri_layer().layer(headers.layer(stack))))
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
        .pool_max_idle_per_host(MOST_IDLE)
        .http1_max_buf_size(READ_AHEAD)
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
        Box::pin(async move { connecting.await.map(Stream::to_server).map_err(Into::into) })
    }
}
