//! The credentials of requests: none, a fixed header, a token from a file, the result of a credential plugin, or a
//! token of a ServiceAccount.
//!
//! As in client-go, a server at `http://` receives no credentials, because they would be readable on the
//! network.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clock::SystemClock;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use kube::client::Body;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceExt};

use super::account::{Account, Token};
use super::exec::{Issued, Plugin, PluginLimits};
use super::tls_files::{Certified, REREAD};
use crate::error::{CredentialError, PluginError};

#[derive(Debug)]
pub(crate) enum Source {
    Nothing,
    Header(HeaderValue),
    File(TokenFile),
    Plugin(Arc<Plugin>),
    Account(Arc<Account>),
}

impl Source {
    /// Selects the source in client-go's order: user and password, a token file, a token, and last the plugin. The
    /// plugin is ignored if the user has a client certificate.
    pub(crate) fn new(config: &kube::Config, limits: PluginLimits) -> Result<Self, CredentialError> {
        let user: &AuthInfo = &config.auth_info;
        if config.cluster_url.scheme_str() != Some("https") {
            return Ok(Self::Nothing);
        }
        if user.username.is_some() || user.password.is_some() {
            let password = user.password.as_ref().map_or("", |password| password.expose_secret());
            return Ok(Self::Header(basic(user.username.as_deref().unwrap_or_default(), password)));
        }
        let fixed = user.token.as_ref().map(|token| bearer(token.expose_secret())).transpose()?;
        if let Some(path) = &user.token_file {
            return TokenFile::open(PathBuf::from(path), fixed).map(Self::File);
        }
        if let Some(header) = fixed {
            return Ok(Self::Header(header));
        }
        let has_certificate = user.client_certificate.is_some() || user.client_certificate_data.is_some();
        Ok(match &user.exec {
            Some(exec) if !has_certificate => {
                Self::Plugin(Arc::new(Plugin::new(exec.clone(), limits, Arc::new(SystemClock))))
            }
            _ => Self::Nothing,
        })
    }
}

/// Credentials for a server other than the API server, in addition to the configuration's certificate.
#[derive(Default)]
pub(crate) struct Shown {
    /// The `Authorization` header.
    pub(crate) header: Option<HeaderValue>,
    /// The plugin's certificate and key, as PEM.
    pub(crate) identity: Option<(String, String)>,
}

impl Source {
    /// Runs the credential plugin, if a plugin is configured.
    pub(crate) async fn log_in(&self) -> Result<(), PluginError> {
        match self {
            Self::Plugin(plugin) => plugin.current().await.map(drop),
            _ => Ok(()),
        }
    }

    /// Returns the current credentials for a server other than the API server.
    pub(crate) async fn shown(&self) -> Result<Shown, CredentialError> {
        Ok(match self {
            // ServiceAccount tokens are for the API server only.
            Self::Nothing | Self::Account(_) => Shown::default(),
            Self::Header(header) => Shown { header: Some(header.clone()), identity: None },
            Self::File(file) => Shown { header: Some(file.header()), identity: None },
            Self::Plugin(plugin) => {
                let now = plugin.current().await?;
                let identity = now.identity.as_ref();
                Shown {
                    header: now.token.as_deref().map(bearer).transpose()?,
                    identity: identity.map(|identity| (identity.certificate.clone(), identity.key.clone())),
                }
            }
        })
    }
}

pub(super) fn bearer(token: &str) -> Result<HeaderValue, CredentialError> {
    let mut value =
        HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(|_| CredentialError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the header value for basic authentication.
fn basic(user: &str, password: &str) -> HeaderValue {
    let text = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    // Base64 is always a valid header value.
    let mut value = HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

/// A token in a file. The file is read again after [`REREAD`], because the token is replaced before it expires.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    last: Mutex<(HeaderValue, Instant)>,
}

impl TokenFile {
    /// Opens a token file. If the file is unreadable, `fallback` is used until the next read. Without `fallback`, an
    /// unreadable file is an error.
    fn open(path: PathBuf, fallback: Option<HeaderValue>) -> Result<Self, CredentialError> {
        let header = match (read_token(&path), fallback) {
            (Err(_), Some(fallback)) => fallback,
            (read, _) => read?,
        };
        Ok(Self { path, last: Mutex::new((header, Instant::now())) })
    }

    /// Returns the header with the token. Reads the file again if the last read is older than [`REREAD`]. Keeps the
    /// last token if the read fails.
    fn header(&self) -> HeaderValue {
        let mut last = self.last.lock();
        if last.1.elapsed() >= REREAD {
            match read_token(&self.path) {
                Ok(header) => last.0 = header,
                Err(error) => tracing::warn!(%error, "token refresh failed, using the previous token"),
            }
            last.1 = Instant::now();
        }
        last.0.clone()
    }

    /// Records that the server refused the token. The next request reads the file.
    fn refused(&self) {
        let mut last = self.last.lock();
        if let Some(long_ago) = last.1.checked_sub(REREAD) {
            last.1 = long_ago;
        }
    }
}

fn read_token(path: &std::path::Path) -> Result<HeaderValue, CredentialError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| CredentialError::File { path: path.to_owned(), reason: error.to_string() })?;
    if text.trim().is_empty() {
        return Err(CredentialError::Empty { path: path.to_owned() });
    }
    bearer(&text)
}

/// A service that adds credentials to requests.
#[derive(Clone)]
pub(super) struct Authorized {
    pub(super) source: Arc<Source>,
    pub(super) certified: Arc<Certified>,
}

/// The credentials of one request, which are invalidated if the server refuses them.
enum Issuance {
    Plugin(Arc<Issued>),
    Token(Arc<Token>),
}

impl Authorized {
    async fn send(self, mut request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let (mut header, mut identity, mut issued) = (None, None, None);
        match &*self.source {
            Source::Nothing => {}
            Source::Header(fixed) => header = Some(fixed.clone()),
            Source::File(file) => header = Some(file.header()),
            Source::Plugin(plugin) => {
                let now = plugin.current().await.map_err(CredentialError::from)?;
                header = now.token.as_deref().map(bearer).transpose()?;
                identity.clone_from(&now.identity);
                issued = Some(Issuance::Plugin(now));
            }
            Source::Account(account) => {
                let token = account.current().await?;
                header = Some(token.header.clone());
                issued = Some(Issuance::Token(token));
            }
        }
        if let Some(header) = header {
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        let answer = self.certified.http(identity.as_ref())?.oneshot(request).await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            match (&*self.source, issued) {
                (Source::File(file), _) => file.refused(),
                (Source::Plugin(plugin), Some(Issuance::Plugin(issued))) => plugin.refused(&issued),
                (Source::Account(account), Some(Issuance::Token(token))) => account.refused(&token),
                _ => {}
            }
        }
        Ok(answer)
    }
}

impl Service<Request<Body>> for Authorized {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // `oneshot` waits until the inner service is ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}
