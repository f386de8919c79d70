//! What a request shows to be let in: nothing, a header that stays the same, a token from a file, or what a credential
//! plugin says.
//!
//! As in client-go, a server at `http://` is shown nothing: whoever listens would learn it.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use kube::client::Body;
use kube::config::AuthInfo;
use secrecy::ExposeSecret;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceExt};

use super::HttpService;
use super::account::{Account, AccountError, Token};
use super::exec::{Identity, Issued, Plugin, PluginError};
use super::proxy::basic;
use crate::api::client::ClientError;

/// After how long a token file is read again: client-go's minute, less its ten seconds of caution.
const REREAD: Duration = Duration::from_secs(50);

/// Why a request cannot be authorized.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CredentialError {
    /// A token cannot be sent. It is not shown.
    #[error("the token of the user cannot be sent: it must be one line of visible characters")]
    Token,
    /// A file with a token cannot be read.
    #[error("cannot read the token file {}: {reason}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file with a token is empty.
    #[error("the token file {} is empty", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The credential plugin gave none.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// There is no token of the ServiceAccount to act as.
    #[error(transparent)]
    Account(AccountError),
}

/// Where the credentials of requests come from.
#[derive(Debug)]
pub(in crate::api) enum Source {
    Nothing,
    Header(HeaderValue),
    File(TokenFile),
    Plugin(Arc<Plugin>),
    Account(Arc<Account>),
}

impl Source {
    /// As client-go chooses: user and password; a token file; a token; only without any of them the plugin.
    pub(super) fn of(
        config: &kube::Config,
        plugin: impl FnOnce() -> Plugin,
    ) -> Result<Self, CredentialError> {
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
        if user.exec.is_some() && !has_certificate {
            return Ok(Self::Plugin(Arc::new(plugin())));
        }
        Ok(Self::Nothing)
    }
}

/// What a request to another server than the API server shows, beside the certificate of the configuration.
#[derive(Default)]
pub(in crate::api) struct Shown {
    /// The `Authorization` header.
    pub(in crate::api) header: Option<HeaderValue>,
    /// Certificate and key that the plugin gave, as PEM.
    pub(in crate::api) identity: Option<(String, String)>,
}

impl Source {
    /// Asks the plugin, if there is one, for credentials.
    pub(in crate::api) async fn log_in(&self) -> Result<(), PluginError> {
        match self {
            Self::Plugin(plugin) => plugin.current().await.map(drop),
            _ => Ok(()),
        }
    }

    /// What a request would show now.
    pub(in crate::api) async fn shown(&self) -> Result<Shown, CredentialError> {
        Ok(match self {
            // An account is for the API server alone.
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

/// A token in a file that is read again from time to time, because such tokens are replaced before they expire.
#[derive(Debug)]
pub(in crate::api) struct TokenFile {
    path: PathBuf,
    last: Mutex<(HeaderValue, Instant)>,
}

impl TokenFile {
    /// `fallback`: what is shown while the file has never been read.
    fn open(path: PathBuf, fallback: Option<HeaderValue>) -> Result<Self, CredentialError> {
        let header = match (read_token(&path), fallback) {
            (Err(_), Some(fallback)) => fallback,
            (read, _) => read?,
        };
        Ok(Self { path, last: Mutex::new((header, Instant::now())) })
    }

    /// The token, read again if that was long ago. A file that cannot be read any more leaves the token that was read.
    fn header(&self) -> HeaderValue {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.1.elapsed() >= REREAD {
            match read_token(&self.path) {
                Ok(header) => last.0 = header,
                Err(error) => tracing::warn!(%error, "the last token is used on"),
            }
            last.1 = Instant::now();
        }
        last.0.clone()
    }

    /// The server does not let the token in: the next request reads the file.
    fn refused(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Makes the stack below for a client certificate.
pub(super) type MakeHttp = dyn Fn(&Identity) -> Result<HttpService, ClientError> + Send + Sync;

/// Sends requests with credentials.
#[derive(Clone)]
pub(super) struct Authorized {
    pub(super) source: Arc<Source>,
    pub(super) http: HttpService,
    pub(super) certified: Arc<Certified>,
}

/// The stack with the plugin's certificate. Another certificate gets a stack, and so connections, of its own.
pub(super) struct Certified {
    make: Box<MakeHttp>,
    current: Mutex<Option<(Identity, HttpService)>>,
}

impl Certified {
    pub(super) fn new(make: Box<MakeHttp>) -> Arc<Self> {
        Arc::new(Self { make, current: Mutex::new(None) })
    }

    fn http(&self, identity: &Identity) -> Result<HttpService, ClientError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, http)) = &*current
            && of == identity
        {
            return Ok(http.clone());
        }
        let http = (self.make)(identity)?;
        *current = Some((identity.clone(), http.clone()));
        Ok(http)
    }
}

/// What was given for one request, to be named if the server refuses it.
enum Given {
    Plugin(Arc<Issued>),
    Token(Arc<Token>),
}

impl Authorized {
    async fn send(self, mut request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let (mut header, mut http, mut issued) = (None, self.http, None);
        match &*self.source {
            Source::Nothing => {}
            Source::Header(fixed) => header = Some(fixed.clone()),
            Source::File(file) => header = Some(file.header()),
            Source::Plugin(plugin) => {
                let now = plugin.current().await.map_err(CredentialError::from)?;
                header = now.token.as_deref().map(bearer).transpose()?;
                if let Some(identity) = &now.identity {
                    http = self.certified.http(identity)?;
                }
                issued = Some(Given::Plugin(now));
            }
            Source::Account(account) => {
                let token = account.current().await?;
                header = Some(token.header.clone());
                issued = Some(Given::Token(token));
            }
        }
        if let Some(header) = header {
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        let answer = http.oneshot(request).await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            match (&*self.source, issued) {
                (Source::File(file), _) => file.refused(),
                (Source::Plugin(plugin), Some(Given::Plugin(issued))) => plugin.refused(&issued),
                (Source::Account(account), Some(Given::Token(token))) => account.refused(&token),
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
        // The stack below is driven to readiness by each request.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}
