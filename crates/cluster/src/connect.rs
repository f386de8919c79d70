//! The lowest layers of the clients: HTTP/1.1 over TLS and TCP, directly or through a proxy, or over an in-process byte
//! stream. Also the credentials of requests.

mod account;
mod credentials;
mod exec;
mod proxy;
mod tls_files;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use http::header::PROXY_AUTHORIZATION;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::middleware::BaseUriLayer;
use kube::client::{Body, ConfigExt};
use kube::config::AuthInfo;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceExt};

use self::credentials::Authorized;
use self::exec::Identity;
use self::proxy::{Proxy, Stream, through};
use self::tls_files::{Certified, Contents};
use super::api_client::HttpService;
use crate::platform;

pub(super) use self::account::Account;
pub(super) use self::credentials::{Shown, Source};
pub use self::exec::PluginLimits;
pub use self::proxy::ProxyError;
pub use self::tls_files::TlsFileError;
use self::tls_files::TlsFiles;
pub use crate::error::{AccountError, CredentialError, PluginError};

/// Checks the URL of a proxy. `origin` names the source of the URL in errors.
pub(super) fn check_proxy(url: &str, origin: &str) -> Result<(), ProxyError> {
    Proxy::parse(url, origin).map(drop)
}

/// An error in the creation of the clients.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The certificates of the configuration are unusable.
    #[error("the TLS settings are unusable: {0}")]
    Tls(#[source] kube::Error),
    /// A file with a certificate or key is unusable.
    #[error("the TLS settings are unusable: {0}")]
    TlsFile(#[from] TlsFileError),
    /// The impersonated user or groups do not fit into headers.
    #[error("the user or groups to impersonate cannot be sent as headers: {0}")]
    Headers(#[source] kube::Error),
    /// The credentials of the configuration are unusable.
    #[error("the credentials are unusable: {0}")]
    Credentials(#[from] CredentialError),
    /// The proxy is unusable.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The user agent is not a valid header value.
    #[error("the user agent {0:?} cannot be sent: use visible ASCII characters only")]
    UserAgent(String),
}

/// The lifetime of an idle connection.
const IDLE: Duration = Duration::from_mins(1);

/// Maximum number of idle connections, twice the default number of concurrent status writes. Additional connections,
/// opened at startup or because of slow responses, are closed after use.
const MOST_IDLE: usize = 32;

/// Size of a connection's read buffer, in bytes. The response headers must fit into the buffer. TLS returns 16 KiB at a
/// time. With hyper's default of 400 KiB, each connection that has received a long response would keep a buffer of that
/// size.
const READ_AHEAD: usize = 32 * 1024;

/// Opens the TLS files of a configuration.
pub(super) fn tls_files(config: &kube::Config) -> Result<Arc<TlsFiles>, TlsFileError> {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    TlsFiles::open(config)
}

/// Builds the service over TLS and TCP, directly or through a proxy, with the configuration's credentials. Also returns
/// the source of the credentials.
pub(super) fn over_network(
    config: &kube::Config,
    files: &Arc<TlsFiles>,
    limits: PluginLimits,
) -> Result<(HttpService, Arc<Source>), ClientError> {
    let source = Arc::new(Source::new(config, limits)?);
    Ok((authorized(config, files, Arc::clone(&source))?, source))
}

/// Builds the service that authenticates with tokens of a ServiceAccount instead of the configured credentials. `None`
/// for a server at `http://`, which receives no credentials.
pub(super) fn as_account(
    config: &kube::Config,
    files: &Arc<TlsFiles>,
    account: impl FnOnce() -> Account,
) -> Result<Option<HttpService>, ClientError> {
    if config.cluster_url.scheme_str() != Some("https") {
        return Ok(None);
    }
    authorized(config, files, Arc::new(Source::Account(Arc::new(account())))).map(Some)
}

fn authorized(
    config: &kube::Config,
    files: &Arc<TlsFiles>,
    source: Arc<Source>,
) -> Result<HttpService, ClientError> {
    let mut config = config.clone();
    // The plugin's token and certificate are added per request.
    config.auth_info.exec = None;
    let proxy = proxy(&config)?;
    let is_account = matches!(*source, Source::Account(_));
    let make = move |contents: &Contents, identity: Option<&Identity>| {
        let mut config = config.clone();
        contents.apply(&mut config);
        if is_account {
            config.auth_info = AuthInfo::default();
        }
        if let Some(identity) = identity {
            config.auth_info.client_certificate_data = Some(STANDARD.encode(&identity.certificate));
            config.auth_info.client_key_data = Some(STANDARD.encode(&identity.key).into());
        }
        transport(&config, proxy.as_ref())
    };
    let certified = Certified::new(Arc::clone(files), Box::new(make))?;
    Ok(BoxCloneSyncService::new(Authorized { source, certified }))
}

fn proxy(config: &kube::Config) -> Result<Option<Proxy>, ProxyError> {
    match &config.proxy_url {
        Some(url) => Proxy::parse(&url.to_string(), "proxy-url").map(Some),
        None => Proxy::from_environment(&config.cluster_url, |name| std::env::var(name).ok()),
    }
}

/// Builds a connection pool that adds the configured headers to all requests.
fn transport(config: &kube::Config, proxy: Option<&Proxy>) -> Result<HttpService, ClientError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    // An unresponsive peer is detected within 30 s, by keepalive (15 s of silence and three probes) or by
    // unacknowledged bytes.
    http.set_keepalive(Some(Duration::from_secs(15)));
    http.set_keepalive_interval(Some(Duration::from_secs(5)));
    http.set_keepalive_retries(Some(3));
    platform::limit_unconfirmed_bytes(&mut http, Duration::from_secs(30));
    http.set_connect_timeout(config.connect_timeout);

    let mut config = config.clone();
    let stack = if let Some(proxy) = proxy {
        if let (Some("http"), Some(authorization)) = (config.cluster_url.scheme_str(), proxy.authorization())
        {
            // An HTTP proxy opens no tunnel to a server at http://, so each request authenticates to the proxy.
            config.headers.push((PROXY_AUTHORIZATION, authorization.clone()));
        }
        let dial = config.rustls_https_connector_with_connector(http).map_err(ClientError::Tls)?;
        let timeout = config.connect_timeout.unwrap_or(IDLE);
        let tunnel = through(proxy.clone(), dial, timeout);
        http1(config.rustls_https_connector_with_connector(tunnel).map_err(ClientError::Tls)?)
    } else {
        http1(config.rustls_https_connector_with_connector(http).map_err(ClientError::Tls)?)
    };
    let headers = config.extra_headers_layer().map_err(ClientError::Headers)?;
    Ok(BoxCloneSyncService::new(config.base_uri_layer().layer(headers.layer(stack))))
}

/// Builds the service over a connector of byte streams.
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

/// Adapts a connector of byte streams to hyper-util.
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
