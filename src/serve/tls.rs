//! TLS 1.2 and 1.3 for HTTP/1.1, and the certificates of the server.
//!
//! A client may present a certificate. The handshake only proves that the client has the private key of the
//! certificate. `access` checks the issuer and the validity at each request, because the authorities may change during
//! a connection.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

use super::access::trust::Subject;
use super::error::{ServeError, read_file};
use cluster::platform;
use flags::serving::{CERTIFICATE_NAME, CertificateFiles, Serving};

/// Returns the TLS configuration of the secure port, and its certificates. The caller must run
/// [`Certificates::keep_current`].
pub(super) fn server(serving: &Serving) -> Result<(Arc<ServerConfig>, Arc<Certificates>), ServeError> {
    let provider = Arc::new(serving.tls.provider());
    let certificates = Arc::new(Certificates::load(serving, Arc::clone(&provider))?);
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(serving.tls.versions())
        .map_err(|error| ServeError::Tls(error.to_string()))?
        .with_client_cert_verifier(Arc::new(AnyCertificate(provider)))
        .with_cert_resolver(Arc::clone(&certificates) as Arc<_>);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((Arc::new(config), certificates))
}

/// Accepts clients without a certificate, and clients with any certificate and its private key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Returns no names, because a client may present a certificate of any authority.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The interval between reads of the files, the same as in kube-controller-manager.
const REREAD: Duration = Duration::from_mins(1);

/// The certificates of a port, and the choice of a certificate for each client.
#[derive(Debug)]
pub struct Certificates {
    provider: Arc<CryptoProvider>,
    /// The configured pairs of files. The default pair is the last pair.
    sources: Vec<Source>,
    /// The generated certificate, which is the default if no default pair is configured.
    own: Option<Arc<CertifiedKey>>,
    shown: RwLock<Arc<Shown>>,
}

/// A certificate file and its key file.
#[derive(Debug)]
struct Source {
    flag: &'static str,
    files: CertificateFiles,
    /// The names of the certificate. If empty, the names in the certificate apply. `None` marks the default
    /// certificate, for clients that request no name of another certificate.
    names: Option<Vec<String>>,
}

/// The certificates in use.
#[derive(Debug, Default)]
struct Shown {
    default: Option<Arc<CertifiedKey>>,
    by_name: BTreeMap<String, Arc<CertifiedKey>>,
    /// The contents of each source, in the order of the sources.
    read: Vec<Read>,
}

/// The contents of a pair of files.
#[derive(Debug, Clone)]
struct Read {
    /// The bytes of the certificate file and of the key file.
    pem: (Vec<u8>, Vec<u8>),
    key: Arc<CertifiedKey>,
}

impl Certificates {
    /// Reads all files, and generates a certificate if no default pair is configured.
    pub(super) fn load(serving: &Serving, provider: Arc<CryptoProvider>) -> Result<Self, ServeError> {
        let mut sources: Vec<Source> = serving
            .sni
            .iter()
            .map(|named| Source {
                flag: "--tls-sni-cert-key",
                files: named.files.clone(),
                names: Some(named.names.iter().map(|name| name.to_ascii_lowercase()).collect()),
            })
            .collect();
        let default = match (&serving.certificate, &serving.certificate_dir) {
            (Some(files), _) => Some(("--tls-cert-file, --tls-private-key-file", files.clone())),
            (None, Some(folder)) => in_folder(folder).map(|files| ("--cert-dir", files)),
            (None, None) => None,
        };
        let own = if default.is_none() { Some(self_signed(serving.address, &provider)?) } else { None };
        sources.extend(default.map(|(flag, files)| Source { flag, files, names: None }));
        Self::from_sources(sources, own, provider)
    }

    /// Reads one pair of files, which is the default. `flag` names the flags in errors.
    ///
    /// # Errors
    /// Returns [`ServeError`] if the files cannot be read or are invalid.
    pub(crate) fn from_files(
        flag: &'static str,
        files: CertificateFiles,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, ServeError> {
        Self::from_sources(vec![Source { flag, files, names: None }], None, provider)
    }

    fn from_sources(
        sources: Vec<Source>,
        own: Option<Arc<CertifiedKey>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, ServeError> {
        let certificates = Self { provider, sources, own, shown: RwLock::default() };
        let read =
            certificates.sources.iter().map(|source| certificates.read(source)).collect::<Result<_, _>>()?;
        certificates.show(read);
        Ok(certificates)
    }

    /// Returns the default certificate.
    pub(crate) fn default_key(&self) -> Option<Arc<CertifiedKey>> {
        self.shown().default.clone()
    }

    /// Rereads the files every minute, until the future is dropped.
    pub(crate) async fn keep_current(&self) {
        let mut warned = BTreeMap::new();
        loop {
            tokio::time::sleep(REREAD).await;
            self.reload(&mut warned);
        }
    }

    /// Rereads the files once. After an error, the previous pair remains in use. `warned` contains the last error of
    /// each pair, so that consecutive equal errors are logged once.
    fn reload(&self, warned: &mut BTreeMap<usize, String>) {
        let shown = self.shown();
        let mut read = shown.read.clone();
        let mut changed = false;
        for (number, (source, known)) in self.sources.iter().zip(&mut read).enumerate() {
            match self.changed(source, known) {
                Ok(None) => {
                    warned.remove(&number);
                }
                Ok(Some(new)) => {
                    tracing::info!(file = %source.files.certificate.display(), "reloaded changed certificate");
                    warned.remove(&number);
                    *known = new;
                    changed = true;
                }
                Err(error) => {
                    let text = error.to_string();
                    if warned.get(&number) != Some(&text) {
                        tracing::warn!(%error, "failed to reload certificate; keeping the previous one");
                        warned.insert(number, text);
                    }
                }
            }
        }
        if changed {
            self.show(read);
        }
    }

    /// Returns the contents of a pair, or `None` if they are equal to `known`.
    fn changed(&self, source: &Source, known: &Read) -> Result<Option<Read>, ServeError> {
        let pem = source.pem()?;
        if pem == known.pem { Ok(None) } else { self.parse(source, pem).map(Some) }
    }

    fn read(&self, source: &Source) -> Result<Read, ServeError> {
        self.parse(source, source.pem()?)
    }

    fn parse(&self, source: &Source, pem: (Vec<u8>, Vec<u8>)) -> Result<Read, ServeError> {
        let unusable = |path: &Path, reason: String| ServeError::Unusable {
            flag: source.flag,
            path: path.to_owned(),
            reason,
        };
        let CertificateFiles { certificate, key } = &source.files;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem.0)
            .collect::<Result<_, _>>()
            .map_err(|error| unusable(certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(unusable(certificate, "no certificate found".to_owned()));
        }
        let private =
            PrivateKeyDer::from_pem_slice(&pem.1).map_err(|error| unusable(key, error.to_string()))?;
        let certified = CertifiedKey::from_der(chain, private, &self.provider)
            .map_err(|error| unusable(certificate, format!("with {}: {error}", key.display())))?;
        Ok(Read { pem, key: Arc::new(certified) })
    }

    fn show(&self, read: Vec<Read>) {
        let mut shown = Shown { default: self.own.clone(), ..Shown::default() };
        for (source, read) in self.sources.iter().zip(&read) {
            match &source.names {
                None => shown.default = Some(Arc::clone(&read.key)),
                Some(names) => {
                    let inside = if names.is_empty() { names_in(&read.key) } else { Vec::new() };
                    for name in names.iter().cloned().chain(inside) {
                        // If several certificates have a name, the first certificate is used.
                        shown.by_name.entry(name).or_insert_with(|| Arc::clone(&read.key));
                    }
                }
            }
        }
        shown.read = read;
        *self.shown.write() = Arc::new(shown);
    }

    fn shown(&self) -> Arc<Shown> {
        Arc::clone(&self.shown.read())
    }
}

impl Source {
    fn pem(&self) -> Result<(Vec<u8>, Vec<u8>), ServeError> {
        Ok((read_file(self.flag, &self.files.certificate)?, read_file(self.flag, &self.files.key)?))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let shown = self.shown();
        let named = hello.server_name().and_then(|name| {
            let name = name.to_ascii_lowercase();
            let wildcard = name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
            shown.by_name.get(&name).or_else(|| shown.by_name.get(&wildcard?)).cloned()
        });
        named.or_else(|| shown.default.clone())
    }
}

/// Returns the DNS names of a certificate, or its common name if it has no DNS names.
fn names_in(key: &CertifiedKey) -> Vec<String> {
    let Some(certificate) = key.cert.first() else { return Vec::new() };
    let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    let names: Vec<String> = parsed.valid_dns_names().map(str::to_ascii_lowercase).collect();
    if names.is_empty() {
        return Subject::from_der(parsed.subject())
            .common_name
            .map(|name| name.to_ascii_lowercase())
            .into_iter()
            .collect();
    }
    names
}

/// Returns the pair of files in `--cert-dir`, if both files exist.
fn in_folder(folder: &Path) -> Option<CertificateFiles> {
    let files = CertificateFiles {
        certificate: folder.join(CERTIFICATE_NAME).with_extension("crt"),
        key: folder.join(CERTIFICATE_NAME).with_extension("key"),
    };
    let there = files.certificate.is_file() && files.key.is_file();
    if !there {
        tracing::info!(folder = %folder.display(), "found no certificate in --cert-dir; using a self-signed one");
    }
    there.then_some(files)
}

/// Generates a self-signed certificate, like kube-controller-manager. In contrast to kube-controller-manager, the
/// certificate is not written to a file.
fn self_signed(address: IpAddr, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, ServeError> {
    let unmade =
        |error: &dyn std::fmt::Display| ServeError::Tls(format!("failed to generate a certificate: {error}"));
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !address.is_unspecified() {
        names.push(address.to_string());
    }
    // The certificate lacks a hostname that is not a valid DNS name.
    let host = platform::host_name().filter(|host| host.is_ascii());
    let mut params = host
        .and_then(|host| CertificateParams::new(names.iter().cloned().chain([host]).collect::<Vec<_>>()).ok())
        .map_or_else(|| CertificateParams::new(names), Ok)
        .map_err(|error| unmade(&error))?;
    params.distinguished_name.push(DnType::CommonName, "concertina");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(|error| unmade(&error))?;
    let certificate = params.self_signed(&key).map_err(|error| unmade(&error))?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let certified = CertifiedKey::from_der(vec![certificate.der().clone()], private, provider)
        .map_err(|error| unmade(&error))?;
    Ok(Arc::new(certified))
}
