//! Reads the certificate authority, client certificate and client key from files, which are replaced before the
//! certificates expire.
//!
//! A request reads the files again if the last read is older than [`REREAD`]. New contents lead to a new service with
//! new connections. Open connections keep their certificates until they close. While the files are unusable, the
//! previous contents remain in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::client::ConfigExt;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::Instant;

use super::exec::Identity;
use super::{ClientError, HttpService};

/// The interval between reads of a file with credentials. As in client-go, the interval is a minute minus ten seconds.
pub(super) const REREAD: Duration = Duration::from_secs(50);

/// An unusable TLS file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsFileError {
    /// The file is unreadable.
    #[error("cannot read {}: {reason}", .path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// The file of the certificate authority contains no valid certificate.
    #[error("{} contains no valid PEM certificate: {reason}", .path.display())]
    Authority {
        /// The path of the file.
        path: PathBuf,
        /// The error of the TLS library.
        reason: String,
    },
    /// The certificates and the key do not form usable TLS settings.
    #[error("cannot use {files}: {reason}")]
    Unusable {
        /// The paths of the files, separated by commas.
        files: String,
        /// The error of the TLS library.
        reason: String,
    },
}

/// The contents of the TLS files. `None` for a value without a file.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Contents {
    authority: Option<Vec<u8>>,
    certificate: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

/// The TLS files of a configuration, shared by all services for its server.
pub(crate) struct TlsFiles {
    /// The configuration, which is used to validate new contents.
    config: kube::Config,
    authority: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    state: Mutex<State>,
}

struct State {
    contents: Arc<Contents>,
    read: Instant,
    /// The error of the last read. `None` if it succeeded.
    error: Option<TlsFileError>,
}

impl TlsFiles {
    /// Reads the TLS files of `config`.
    ///
    /// # Errors
    /// A file is unusable.
    pub(crate) fn open(config: &kube::Config) -> Result<Arc<Self>, TlsFileError> {
        let user = &config.auth_info;
        let file =
            |path: &Option<String>, is_inline: bool| path.as_ref().filter(|_| !is_inline).map(PathBuf::from);
        let mut files = Self {
            config: config.clone(),
            authority: config.root_cert_file.clone(),
            certificate: file(&user.client_certificate, user.client_certificate_data.is_some()),
            key: file(&user.client_key, user.client_key_data.is_some()),
            state: Mutex::new(State { contents: Arc::default(), read: Instant::now(), error: None }),
        };
        files.config.auth_info.exec = None;
        files.state.get_mut().contents = Arc::new(files.read()?);
        Ok(Arc::new(files))
    }

    /// Returns the contents of the files. Reads the files again if the last read is older than [`REREAD`].
    pub(super) fn contents(&self) -> Arc<Contents> {
        let mut state = self.state.lock();
        if self.is_empty() || state.read.elapsed() < REREAD {
            return Arc::clone(&state.contents);
        }
        state.read = Instant::now();
        match self.read() {
            Ok(contents) => {
                if state.error.take().is_some() || contents != *state.contents {
                    tracing::info!(files = self.names(), "reloaded TLS files");
                }
                if contents != *state.contents {
                    state.contents = Arc::new(contents);
                }
            }
            Err(error) => {
                if state.error.as_ref() != Some(&error) {
                    tracing::warn!(%error, "reload of TLS files failed, using their previous contents");
                }
                state.error = Some(error);
            }
        }
        Arc::clone(&state.contents)
    }

    fn is_empty(&self) -> bool {
        self.paths().next().is_none()
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.authority, &self.certificate, &self.key].into_iter().flatten().map(PathBuf::as_path)
    }

    fn names(&self) -> String {
        self.paths().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Reads and validates the files.
    fn read(&self) -> Result<Contents, TlsFileError> {
        let read = |path: &Option<PathBuf>| {
            let unreadable = |path: &Path, error: std::io::Error| TlsFileError::Unreadable {
                path: path.to_owned(),
                reason: error.to_string(),
            };
            path.as_ref().map(|path| std::fs::read(path).map_err(|error| unreadable(path, error))).transpose()
        };
        let contents = Contents {
            authority: read(&self.authority)?,
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
        };
        if let (Some(path), Some(pem)) = (&self.authority, &contents.authority) {
            let invalid = |reason| TlsFileError::Authority { path: path.clone(), reason };
            match certificates(pem) {
                Ok(found) if found.is_empty() => {
                    return Err(invalid("the file has no certificate".to_owned()));
                }
                Ok(_) => {}
                Err(error) => return Err(invalid(error.to_string())),
            }
        }
        if !self.is_empty() && self.config.cluster_url.scheme_str() == Some("https") {
            let mut config = self.config.clone();
            contents.apply(&mut config);
            config
                .rustls_client_config()
                .map_err(|error| TlsFileError::Unusable { files: self.names(), reason: error.to_string() })?;
        }
        Ok(contents)
    }
}

impl Contents {
    /// Replaces the paths of files in `config` by the contents of the files.
    pub(super) fn apply(&self, config: &mut kube::Config) {
        // Otherwise, kube would read the file again.
        config.root_cert_file = None;
        if let Some(authority) = &self.authority {
            let found = certificates(authority).unwrap_or_default();
            config.root_cert = Some(found.into_iter().map(|certificate| certificate.to_vec()).collect());
        }
        if let Some(certificate) = &self.certificate {
            config.auth_info.client_certificate_data = Some(STANDARD.encode(certificate));
        }
        if let Some(key) = &self.key {
            config.auth_info.client_key_data = Some(STANDARD.encode(key).into());
        }
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, rustls::pki_types::pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}

/// Builds the inner service for the contents of the TLS files and the certificate of a plugin.
pub(super) type MakeHttp =
    dyn Fn(&Contents, Option<&Identity>) -> Result<HttpService, ClientError> + Send + Sync;

/// The service to which `Authorized` passes requests with their credentials. New certificates require a new service and
/// thus new connections.
pub(super) struct Certified {
    make: Box<MakeHttp>,
    files: Arc<TlsFiles>,
    current: Mutex<Stack>,
}

struct Stack {
    contents: Arc<Contents>,
    identity: Option<Identity>,
    http: HttpService,
}

impl Certified {
    pub(super) fn new(files: Arc<TlsFiles>, make: Box<MakeHttp>) -> Result<Arc<Self>, ClientError> {
        let contents = files.contents();
        let http = make(&contents, None)?;
        let current = Mutex::new(Stack { contents, identity: None, http });
        Ok(Arc::new(Self { make, files, current }))
    }

    /// Returns the service for the current contents of the files and the plugin's certificate.
    pub(super) fn http(&self, identity: Option<&Identity>) -> Result<HttpService, ClientError> {
        let contents = self.files.contents();
        let mut current = self.current.lock();
        if !Arc::ptr_eq(&current.contents, &contents) || current.identity.as_ref() != identity {
            let http = (self.make)(&contents, identity)?;
            *current = Stack { contents, identity: identity.cloned(), http };
        }
        Ok(current.http.clone())
    }
}
