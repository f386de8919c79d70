//! The trusted authorities of client certificates, and the trusted front proxies. They come from files or from the
//! ConfigMap kube-system/extension-apiserver-authentication. The parser of subjects reads the users of certificates.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::RwLock;
use percent_encoding::percent_decode_str;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};

use crate::serve::error::{ServeError, read_file};
use cluster::client::Client;
use cluster::error::ApiError;
use cluster::permission::User;
use cluster::typed;
use flags::serving::{Authentication, FrontProxyHeaders};

/// The interval between reads of the sources.
const REREAD: Duration = Duration::from_mins(1);
/// The interval between reads of the sources until the first success.
const RETRY: Duration = Duration::from_secs(5);
/// The namespace and name of the ConfigMap in which a cluster publishes its authorities.
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";

/// The current trust settings.
#[derive(Debug, Clone, Default)]
pub(super) struct Trusted {
    /// The authorities that sign client certificates.
    pub(super) clients: Option<Authorities>,
    /// The front proxies that may name the user of a request.
    pub(super) proxies: Option<Proxies>,
}

/// The authorities of front proxies' certificates, and the headers that name the user.
#[derive(Debug, Clone)]
pub(super) struct Proxies {
    pub(super) authorities: Authorities,
    pub(super) headers: FrontProxyHeaders,
}

/// Reads [`Trusted`] from its sources.
#[derive(Debug)]
pub(super) struct Trust {
    options: Authentication,
    client: Client,
    provider: Arc<CryptoProvider>,
    now: RwLock<Trusted>,
}

/// The raw inputs of [`Trusted`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Sources {
    clients: Option<Vec<u8>>,
    proxies: Option<(Vec<u8>, FrontProxyHeaders)>,
}

/// The reason why the sources cannot be read or are invalid.
#[derive(Debug, thiserror::Error)]
enum TrustError {
    #[error(transparent)]
    File(#[from] ServeError),
    #[error(
        "cannot read ConfigMap {NAMESPACE}/{CONFIG_MAP}: {0}; to allow it, add a RoleBinding to the Role \
         extension-apiserver-authentication-reader"
    )]
    ConfigMap(#[from] ApiError),
    #[error("{0} of ConfigMap {NAMESPACE}/{CONFIG_MAP}: {1}")]
    List(&'static str, #[source] serde_json::Error),
    #[error("{0}: {1}")]
    Authorities(&'static str, #[source] AuthoritiesError),
}

impl Trust {
    pub(super) fn new(options: Authentication, client: Client, provider: Arc<CryptoProvider>) -> Self {
        Self { options, client, provider, now: RwLock::default() }
    }

    /// Checks the files that flags name. The process calls this function at its start, so an invalid file prevents the
    /// start.
    pub(super) fn check_files(&self) -> Result<(), ServeError> {
        let named = [
            ("--client-ca-file", self.options.client_ca.as_ref()),
            ("--requestheader-client-ca-file", self.options.front_proxy.as_ref().map(|proxy| &proxy.ca)),
        ];
        for (flag, path) in named {
            let Some(path) = path else { continue };
            let pem = read_file(flag, path)?;
            Authorities::from_pem(&pem, &self.provider).map_err(|error| ServeError::Unusable {
                flag,
                path: path.clone(),
                reason: error.to_string(),
            })?;
        }
        Ok(())
    }

    pub(super) fn now(&self) -> Trusted {
        self.now.read().clone()
    }

    /// Rereads all sources until the future is dropped. After a failure, the previous settings remain. Consecutive
    /// equal errors are logged once.
    pub(super) async fn keep_current(&self) {
        let (mut current, mut logged) = (None, None);
        loop {
            match self.read().await.and_then(|sources| {
                if current.as_ref() != Some(&sources) {
                    let trusted = self.make(&sources)?;
                    *self.now.write() = trusted;
                    current = Some(sources);
                }
                Ok(())
            }) {
                Ok(()) => logged = None,
                Err(error) if logged.as_ref() == Some(&error.to_string()) => {}
                Err(error) => {
                    let reason = error.to_string();
                    if self.options.tolerate_lookup_failure {
                        tracing::debug!(%reason, "failed to load client CAs");
                    } else {
                        tracing::warn!(%reason, "failed to reload client CAs; keeping the previous ones");
                    }
                    logged = Some(reason);
                }
            }
            tokio::time::sleep(if current.is_some() { REREAD } else { RETRY }).await;
        }
    }

    async fn read(&self) -> Result<Sources, TrustError> {
        let options = &self.options;
        let mut sources = Sources::default();
        if let Some(path) = &options.client_ca {
            sources.clients = Some(read_file("--client-ca-file", path)?);
        }
        if let Some(proxy) = &options.front_proxy {
            sources.proxies =
                Some((read_file("--requestheader-client-ca-file", &proxy.ca)?, proxy.headers.clone()));
        }
        if options.skip_lookup || sources.clients.is_some() && sources.proxies.is_some() {
            return Ok(sources);
        }
        let mut data = self.look_up().await?;
        if sources.clients.is_none() {
            sources.clients = data.remove("client-ca-file").map(String::into_bytes);
        }
        if sources.proxies.is_none()
            && let Some(ca) = data.remove("requestheader-client-ca-file")
        {
            sources.proxies = Some((ca.into_bytes(), headers(&data)?));
        }
        Ok(sources)
    }

    /// Reads the data of the ConfigMap. The result is empty if the ConfigMap does not exist.
    async fn look_up(&self) -> Result<BTreeMap<String, String>, ApiError> {
        let map = typed::get(&self.client.namespaced::<ConfigMap>(NAMESPACE), CONFIG_MAP).await?;
        Ok(map.and_then(|map| map.data).unwrap_or_default())
    }

    fn make(&self, sources: &Sources) -> Result<Trusted, TrustError> {
        let authorities = |what: &'static str, pem: &[u8]| {
            Authorities::from_pem(pem, &self.provider).map_err(|error| TrustError::Authorities(what, error))
        };
        let clients = sources.clients.as_ref().map(|pem| authorities("client-ca-file", pem)).transpose()?;
        let proxies = match &sources.proxies {
            None => None,
            Some((pem, headers)) => Some(Proxies {
                authorities: authorities("requestheader-client-ca-file", pem)?,
                headers: headers.clone(),
            }),
        };
        Ok(Trusted { clients, proxies })
    }
}

/// Parses the names of proxies and headers in the data of the ConfigMap. Each value is a JSON list of strings.
fn headers(data: &BTreeMap<String, String>) -> Result<FrontProxyHeaders, TrustError> {
    let list = |key: &'static str| match data.get(key).map(String::as_str) {
        None | Some("") => Ok(Vec::new()),
        Some(json) => serde_json::from_str::<Vec<String>>(json).map_err(|error| TrustError::List(key, error)),
    };
    let lower = |key: &'static str| {
        let names = list(key)?.into_iter().map(|name| name.trim().to_ascii_lowercase());
        Ok::<_, TrustError>(names.filter(|name| !name.is_empty()).collect())
    };
    Ok(FrontProxyHeaders {
        allowed_names: list("requestheader-allowed-names")?,
        user: lower("requestheader-username-headers")?,
        uid: lower("requestheader-uid-headers")?,
        group: lower("requestheader-group-headers")?,
        extra_prefix: lower("requestheader-extra-headers-prefix")?,
    })
}

impl Proxies {
    /// Returns the user that a proxy names in the headers of a request. `subject` is that of the proxy's certificate.
    /// Returns `None` if the proxy is not allowed or names no user.
    pub(super) fn user(&self, subject: &Subject, headers: &HeaderMap) -> Option<User> {
        let names = &self.headers;
        let allowed = names.allowed_names.is_empty()
            || subject.common_name.as_ref().is_some_and(|name| names.allowed_names.contains(name));
        if !allowed {
            return None;
        }
        let all = |header: &str| -> Vec<String> {
            let values = headers.get_all(header).into_iter().filter_map(|value| value.to_str().ok());
            values.filter(|value| !value.is_empty()).map(str::to_owned).collect()
        };
        let first = |headers: &[String]| headers.iter().find_map(|header| all(header).into_iter().next());
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &names.extra_prefix {
            for (name, value) in headers {
                if let (Some(key), Ok(value)) = (name.as_str().strip_prefix(prefix.as_str()), value.to_str())
                {
                    let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
                    extra.entry(key).or_default().push(value.to_owned());
                }
            }
        }
        Some(User {
            name: first(&names.user)?,
            uid: first(&names.uid).unwrap_or_default(),
            groups: names.group.iter().flat_map(|header| all(header)).collect(),
            extra,
        })
    }
}

/// The trusted certificate authorities of clients.
#[derive(Debug, Clone)]
pub(super) struct Authorities(Arc<dyn ClientCertVerifier>);

/// The reason why a bundle of authorities is unusable.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuthoritiesError {
    #[error("not PEM: {0}")]
    Pem(#[from] pem::Error),
    #[error("no usable certificate found")]
    NoCertificate,
    #[error(transparent)]
    Verifier(#[from] VerifierBuilderError),
}

/// The subject of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::serve) struct Subject {
    /// The common name (CN). If the subject has several, this is the last common name, as in Go.
    pub(in crate::serve) common_name: Option<String>,
    /// The values of all organization attributes (O).
    pub(in crate::serve) organizations: Vec<String>,
}

impl Authorities {
    /// Parses a bundle of certificates in PEM. Ignores certificates that rustls cannot parse, with a warning.
    pub(super) fn from_pem(pem: &[u8], provider: &Arc<CryptoProvider>) -> Result<Self, AuthoritiesError> {
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?;
        let mut roots = RootCertStore::empty();
        let (added, refused) = roots.add_parsable_certificates(certificates);
        if added == 0 {
            return Err(AuthoritiesError::NoCertificate);
        }
        if refused > 0 {
            tracing::warn!(refused, "ignoring CA certificates that cannot be parsed");
        }
        Ok(Self(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build()?))
    }

    /// Returns the subject of the client's certificate, the first of the chain. `now` is the time since 1970. Returns
    /// `None` if no authority has signed the chain, or if the certificate is not valid at `now` or not for clients.
    pub(super) fn subject(&self, chain: &[CertificateDer<'_>], now: Duration) -> Option<Subject> {
        let (first, between) = chain.split_first()?;
        let now = UnixTime::since_unix_epoch(now);
        if let Err(error) = self.0.verify_client_cert(first, between, now) {
            tracing::debug!(%error, "rejected a client certificate");
            return None;
        }
        let parsed = webpki::EndEntityCert::try_from(first).ok()?;
        Some(Subject::from_der(parsed.subject()))
    }
}

/// The OIDs 2.5.4.3 (common name) and 2.5.4.10 (organization) in DER.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;

impl Subject {
    /// Parses a subject (RFC 5280, 4.1.2.4) in DER, without the outer SEQUENCE. Skips malformed attributes, which are
    /// no security risk, because an authority has signed the subject.
    pub(in crate::serve) fn from_der(name: &[u8]) -> Self {
        let mut subject = Self::default();
        let mut sets = name;
        while let Some((SET, mut attributes, rest)) = element(sets) {
            sets = rest;
            while let Some((SEQUENCE, attribute, rest)) = element(attributes) {
                attributes = rest;
                let Some((OBJECT_IDENTIFIER, kind, value)) = element(attribute) else { continue };
                match (kind, text(value)) {
                    (COMMON_NAME, Some(text)) => subject.common_name = Some(text),
                    (ORGANIZATION, Some(text)) => subject.organizations.push(text),
                    _ => {}
                }
            }
        }
        subject
    }
}

fn text(value: &[u8]) -> Option<String> {
    let (UTF8_STRING | PRINTABLE_STRING | IA5_STRING, bytes, _) = element(value)? else { return None };
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

/// Splits off the first element in DER. Returns its tag, its content, and the remaining bytes.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = der.split_first_chunk()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        0x82 => {
            rest.split_first_chunk().map(|(length, rest)| (usize::from(u16::from_be_bytes(*length)), rest))?
        }
        // An element with a longer length does not fit into a handshake message.
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Subject {
        Subject { common_name: Some(name.to_owned()), organizations: Vec::new() }
    }

    #[test]
    fn front_proxy_is_trusted_if_its_name_is_allowed() {
        let data = BTreeMap::from([
            ("requestheader-allowed-names".to_owned(), r#"["front-proxy-client"]"#.to_owned()),
            ("requestheader-username-headers".to_owned(), r#"["X-Remote-User"]"#.to_owned()),
            ("requestheader-group-headers".to_owned(), r#"["X-Remote-Group"]"#.to_owned()),
            ("requestheader-extra-headers-prefix".to_owned(), r#"["X-Remote-Extra-"]"#.to_owned()),
        ]);
        let found = headers(&data).unwrap();
        let ca = rcgen::CertificateParams::new(Vec::new())
            .unwrap()
            .self_signed(&rcgen::KeyPair::generate().unwrap())
            .unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let pem = {
            use base64::Engine;
            let text = base64::engine::general_purpose::STANDARD.encode(ca.der());
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authorities = Authorities::from_pem(pem.as_bytes(), &provider).unwrap();
        let proxies = Proxies { authorities, headers: found };
        let mut sent = HeaderMap::new();
        sent.insert("x-remote-user", "jane".parse().unwrap());
        sent.append("x-remote-group", "dev".parse().unwrap());
        sent.append("x-remote-group", "ops".parse().unwrap());
        sent.append("x-remote-extra-scopes", "openid".parse().unwrap());
        let user = proxies.user(&named("front-proxy-client"), &sent).unwrap();
        assert_eq!((user.name.as_str(), user.groups), ("jane", vec!["dev".to_owned(), "ops".to_owned()]));
        assert_eq!(user.extra, BTreeMap::from([("scopes".to_owned(), vec!["openid".to_owned()])]));
        assert_eq!(proxies.user(&named("other-client"), &sent), None);
        assert_eq!(proxies.user(&named("front-proxy-client"), &HeaderMap::new()), None);
    }
}
