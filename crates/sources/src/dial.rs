//! Connections to servers: over the network, over TLS with the settings of a policy, or within the process.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};
use http::Uri;
use kube::client::ConfigExt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

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
    file: PathBuf,
    reason: String,
}

/// The reason why TLS settings of a policy are unusable.
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
    /// The configured name of the server is not a valid TLS name.
    #[error("serverName is not a valid TLS server name")]
    ServerName,
}

impl Network {
    /// Creates connections without TLS.
    pub const fn plain() -> Self {
        Self { tls: None }
    }

    /// Creates connections with TLS that accept any certificate.
    pub fn unverified() -> Result<Self, TlsError> {
        Self::configured(None, true)
    }

    /// Creates connections with TLS that trust the authorities of a PEM file, or the authorities of the system.
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

/// Parses the certificates of a PEM text. The text must contain at least one certificate.
fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, TlsProblem> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = parsed.map_err(|error| TlsProblem::Pem(error.to_string()))?;
    if certificates.is_empty() {
        return Err(TlsProblem::NoCertificate);
    }
    Ok(certificates.iter().map(|certificate| certificate.to_vec()).collect())
}

/// TLS over the connections of another [`Dial`].
#[derive(Debug)]
pub(crate) struct TlsDial {
    inner: Arc<dyn Dial>,
    config: Arc<rustls::ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl TlsDial {
    /// Requires certificates for `name`, or for the host of the URL, that are signed by an authority in `pem`. Without
    /// `pem`, certificates are not verified.
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

type Connect = dyn Fn(&str) -> io::Result<Box<dyn Io>> + Send + Sync;

/// Connects to servers in this process by address, such as `10.0.0.1:8080`.
pub struct InMemory(Box<Connect>);

impl InMemory {
    /// Creates connections with `connect`, which returns the client's end of a byte stream to an address.
    pub fn new<S: Io + 'static>(connect: impl Fn(&str) -> io::Result<S> + Send + Sync + 'static) -> Self {
        Self(Box::new(move |address| Ok(Box::new(connect(address)?))))
    }
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemory").finish_non_exhaustive()
    }
}

impl Dial for InMemory {
    fn dial(&self, to: Uri) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        let address = to.authority().map(ToString::to_string).unwrap_or_default();
        ready((self.0)(&address)).boxed()
    }
}
