//! The serving certificate of the webhook, which is signed by authorities in a Secret or read from files.
//!
//! The manifests contain the Secret without data, and the first replica writes the data. Every update sends the
//! resourceVersion of the last read. If several replicas update the Secret at once, one update succeeds, and the other
//! replicas read the Secret again.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use parking_lot::RwLock;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::authority::{Authorities, AuthorityError, Serving};
use crate::serve::ServeError;
use crate::serve::tls::Certificates;
use clock::SharedClock;
use cluster::client::Client;
use cluster::error::ApiError;
use cluster::typed;
use coexist::handover::objects::service_name;
use flags::serving::CertificateFiles;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

/// The key of the authorities in the data of the Secret.
pub const SECRET_KEY: &str = "authorities";
/// The interval between reads of the Secret. The interval is much shorter than the time from the creation of an
/// authority to its first signature.
const REREAD: Duration = Duration::from_mins(1);
/// The interval between reads of the Secret before the first certificate.
const RETRY: Duration = Duration::from_secs(5);

/// The reason why the Secret provides no certificate.
#[derive(Debug, thiserror::Error)]
enum CertificateError {
    #[error("Secret {0} does not exist: apply the manifests of the guard, which contain it without data")]
    NoSecret(String),
    #[error("cannot read or update Secret {0}: {1}; grant get and update on it, as concertina rbac prints")]
    Api(String, #[source] ApiError),
    #[error("Secret {0}, key {SECRET_KEY}: {1}")]
    Authority(String, #[source] AuthorityError),
}

/// The serving certificate of the webhook.
#[derive(Debug)]
pub enum Certificate {
    /// A certificate that the authorities in a Secret sign.
    Signed(Box<Signed>),
    /// A certificate in files, which another program renews.
    Files(Certificates),
}

/// A certificate that this replica generates. The authorities that sign it are common to all replicas.
#[derive(Debug)]
pub struct Signed {
    client: Client,
    namespace: String,
    secret: String,
    names: Vec<String>,
    clock: SharedClock,
    provider: Arc<CryptoProvider>,
    current: RwLock<Current>,
}

#[derive(Debug, Default)]
struct Current {
    authorities: Authorities,
    serving: Option<Serving>,
}

impl Certificate {
    /// Reads the files of `--handover-webhook-cert-file` and `--handover-webhook-key-file`.
    ///
    /// # Errors
    /// Returns [`ServeError`] if the files cannot be read or are invalid.
    pub fn from_files(
        files: &CertificateFiles,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<Self>, ServeError> {
        let flags = "--handover-webhook-cert-file, --handover-webhook-key-file";
        Ok(Arc::new(Self::Files(Certificates::from_files(flags, files.clone(), provider)?)))
    }

    /// Creates a certificate for the Service `service`, with the authorities in the Secret of the same name. The
    /// certificate is available after the first success of [`Certificate::keep_current`].
    pub fn signed(
        client: &Client,
        namespace: &str,
        service: &str,
        clock: SharedClock,
        provider: Arc<CryptoProvider>,
    ) -> Arc<Self> {
        // The local names serve an API server on the same host, if the webhook configuration contains a URL instead of
        // a Service.
        let local = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        Arc::new(Self::Signed(Box::new(Signed {
            client: client.clone(),
            namespace: namespace.to_owned(),
            secret: service.to_owned(),
            names: [service_name(namespace, service)].into_iter().chain(local).collect(),
            clock,
            provider,
            current: RwLock::default(),
        })))
    }

    /// Replaces the certificate before it expires, or rereads the files, until the future is dropped.
    pub async fn keep_current(&self) {
        match self {
            Self::Signed(signed) => signed.keep_current().await,
            Self::Files(files) => files.keep_current().await,
        }
    }

    /// Returns the authorities in PEM for `caBundle`. Returns `None` for a certificate in files, and before the first
    /// read of the authorities.
    pub fn bundle(&self) -> Option<String> {
        match self {
            Self::Signed(signed) => {
                Some(signed.current.read().authorities.bundle()).filter(|pem| !pem.is_empty())
            }
            Self::Files(_) => None,
        }
    }

    /// Returns whether the authorities in `bundle`, in PEM, verify the current certificate for a DNS name or an IP
    /// address.
    pub fn is_trusted_by(
        &self,
        bundle: &str,
        name: &str,
        now: Timestamp,
        provider: &Arc<CryptoProvider>,
    ) -> bool {
        self.key().is_some_and(|key| verifies(bundle, &key, name, now, provider))
    }

    fn key(&self) -> Option<Arc<CertifiedKey>> {
        match self {
            Self::Signed(signed) => Some(Arc::clone(&signed.current.read().serving.as_ref()?.key)),
            Self::Files(files) => files.default_key(),
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key()
    }
}

impl Signed {
    async fn keep_current(&self) {
        let mut warned = None;
        loop {
            let pause = match self.refresh().await {
                Ok(()) => {
                    warned = None;
                    REREAD
                }
                Err(error) => {
                    let text = error.to_string();
                    if warned.as_ref() != Some(&text) {
                        tracing::warn!(%error, "failed to renew the certificate of the webhook; retrying");
                        warned = Some(text);
                    }
                    if self.current.read().serving.is_none() { RETRY } else { REREAD }
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads the Secret. Adds an authority if its creation is due, and generates a serving certificate if the current
    /// certificate is missing or must be replaced.
    async fn refresh(&self) -> Result<(), CertificateError> {
        let name = || format!("{}/{}", self.namespace, self.secret);
        let of_api = |error| CertificateError::Api(name(), error);
        let of_authority = |error| CertificateError::Authority(name(), error);
        let secrets: Api<Secret> = self.client.namespaced(&self.namespace);
        let authorities = loop {
            let found = typed::get(&secrets, &self.secret).await.map_err(of_api)?;
            let Some(mut secret) = found else { return Err(CertificateError::NoSecret(name())) };
            let contents = secret.data.as_ref().and_then(|data| data.get(SECRET_KEY));
            let bytes = contents.map(|bytes| bytes.0.as_slice()).unwrap_or_default();
            let authorities = Authorities::parse(bytes).map_err(of_authority)?;
            let Some(renewed) = authorities.renewed(self.clock.now()).map_err(of_authority)? else {
                break authorities;
            };
            let data = secret.data.get_or_insert_default();
            data.insert(SECRET_KEY.to_owned(), ByteString(renewed.contents()));
            let replaced = secrets.replace(&self.secret, &PostParams::default(), &secret).await;
            match replaced.map_err(ApiError::from) {
                Ok(_) => {
                    tracing::info!(secret = name(), "created a certificate authority for the webhook");
                    break renewed;
                }
                // Another replica updated the Secret first.
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(of_api(error)),
            }
        };
        let now = self.clock.now();
        let serving = self.current.read().serving.clone();
        let serving = match serving.filter(|serving| !authorities.must_replace(serving, now)) {
            Some(serving) => Some(serving),
            None => authorities.sign(&self.names, now, &self.provider).map_err(of_authority)?,
        };
        *self.current.write() = Current { authorities, serving };
        Ok(())
    }
}

/// Returns whether a certificate in the PEM text `bundle` verifies the certificate of `key` for the DNS name or IP address `name`.
/// The API server checks a webhook's certificate in the same way.
pub(super) fn verifies(
    bundle: &str,
    key: &CertifiedKey,
    name: &str,
    now: Timestamp,
    provider: &Arc<CryptoProvider>,
) -> bool {
    let Some((first, between)) = key.cert.split_first() else { return false };
    let Ok(name) = ServerName::try_from(name) else { return false };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(bundle.as_bytes()).filter_map(Result::ok);
    roots.add_parsable_certificates(certificates);
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let Ok(verifier) = builder.build() else { return false };
    let since = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
    let now = UnixTime::since_unix_epoch(since);
    verifier.verify_server_cert(first, between, &name, &[], now).is_ok()
}
