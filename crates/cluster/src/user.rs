//! The kubeconfig user's credentials for requests to a Concertina controller, and the TLS connections of these
//! requests.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use http::HeaderValue;
use kube::config::AuthInfo;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use secrecy::ExposeSecret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connect::{Shown, Source, read_token};

/// The credentials for a controller are unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// Impersonation is configured, which controllers do not support.
    #[error(
        "--as does not work for requests to a controller, which would receive your own credentials: omit --as"
    )]
    Impersonation,
    /// The user has neither a token nor a client certificate.
    #[error(
        "the kubeconfig user has neither a token nor a client certificate, and a controller accepts nothing else"
    )]
    NoCredentials,
    /// The user's credentials are unusable.
    #[error("{0}")]
    Unusable(String),
}

/// The SHA-256 of a certificate, which identifies a peer. The text form is `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; SHA256_OUTPUT_LEN]);

impl Fingerprint {
    /// Returns the fingerprint of a certificate in DER.
    pub fn from_der(certificate: &[u8]) -> Self {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let digits = text.strip_prefix("sha256:").ok_or(FingerprintError)?;
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        if pairs.len() != SHA256_OUTPUT_LEN || !rest.is_empty() {
            return Err(FingerprintError);
        }
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let digit = |at: u8| char::from(at).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let [high, low] = pair.map(digit);
            *byte = high.ok_or(FingerprintError)? << 4 | low.ok_or(FingerprintError)?;
        }
        Ok(Self(bytes))
    }
}

/// The text is not a fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be sha256: and 64 hexadecimal digits")]
pub struct FingerprintError;

/// The accepted certificates of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Any certificate, for a connection that the API server forwards to the controller's pod.
    Any,
    /// Only the certificate with the given fingerprint.
    Pinned(Fingerprint),
}

/// The controller presented a certificate other than the expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unexpected certificate {shown}: expected {pinned}")]
pub struct WrongCertificate {
    /// The fingerprint of the presented certificate.
    pub shown: Fingerprint,
    /// The fingerprint of the expected certificate.
    pub pinned: Fingerprint,
}

impl WrongCertificate {
    /// Extracts the error from a failed handshake. `None` if the handshake failed for another reason.
    pub fn in_handshake(error: &io::Error) -> Option<Self> {
        match error.get_ref()?.downcast_ref()? {
            rustls::Error::Other(rustls::OtherError(error)) => error.downcast_ref().copied(),
            _ => None,
        }
    }
}

/// The user of a configuration.
#[derive(Debug)]
pub struct User {
    source: Arc<Source>,
    auth: AuthInfo,
}

/// A client certificate and its key, as PEM.
type Pem = (Vec<u8>, Vec<u8>);

/// A client certificate and its key.
struct Identity {
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// Credentials for a controller.
pub struct Credentials {
    /// The `Authorization` header.
    pub authorization: Option<HeaderValue>,
    identity: Option<Identity>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Secrets must not appear in logs.
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl User {
    pub(crate) fn new(auth: AuthInfo, source: Arc<Source>) -> Self {
        Self { source, auth }
    }

    /// Returns the user's bearer token, client certificate, or both. A password is never sent, because controllers do
    /// not accept passwords.
    ///
    /// # Errors
    /// See [`UserError`].
    pub async fn credentials(&self) -> Result<Credentials, UserError> {
        let auth = &self.auth;
        if auth.impersonate.is_some()
            || auth.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty())
        {
            return Err(UserError::Impersonation);
        }
        let Shown { header, identity } =
            self.source.shown().await.map_err(|error| UserError::Unusable(error.to_string()))?;
        let authorization = header.filter(|header| header.as_bytes().starts_with(b"Bearer "));
        let identity = match identity {
            Some((certificate, key)) => Some((certificate.into_bytes(), key.into_bytes())),
            None => self.certificate()?,
        };
        let identity = identity.map(|(certificate, key)| Identity::read(&certificate, &key)).transpose()?;
        if authorization.is_none() && identity.is_none() {
            return Err(UserError::NoCredentials);
        }
        Ok(Credentials { authorization, identity })
    }

    /// Returns the user's client certificate without a token. `None` if the user has no certificate.
    ///
    /// # Errors
    /// See [`UserError`].
    pub async fn certificate_only(&self) -> Result<Option<Credentials>, UserError> {
        match self.credentials().await {
            Ok(Credentials { identity: None, .. }) | Err(UserError::NoCredentials) => Ok(None),
            Ok(Credentials { identity, .. }) => Ok(Some(Credentials { authorization: None, identity })),
            Err(error) => Err(error),
        }
    }

    /// Reads certificate and key of the kubeconfig.
    fn certificate(&self) -> Result<Option<Pem>, UserError> {
        let auth = &self.auth;
        let key = auth.client_key_data.as_ref().map(ExposeSecret::expose_secret);
        let certificate = load(auth.client_certificate_data.as_deref(), auth.client_certificate.as_deref())?;
        let key = load(key, auth.client_key.as_deref())?;
        Ok(certificate.zip(key))
    }
}

fn load(data: Option<&str>, path: Option<&str>) -> Result<Option<Vec<u8>>, UserError> {
    use base64::Engine;
    if let Some(data) = data {
        let decoded = base64::engine::general_purpose::STANDARD.decode(data.trim());
        return decoded.map(Some).map_err(|error| unusable(&error));
    }
    path.map(|path| std::fs::read(path).map_err(|error| UserError::Unusable(format!("{path}: {error}"))))
        .transpose()
}

fn unusable(error: &dyn std::fmt::Display) -> UserError {
    UserError::Unusable(format!("the client certificate is unusable: {error}"))
}

impl Identity {
    fn read(certificate: &[u8], key: &[u8]) -> Result<Self, UserError> {
        let certificates = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| unusable(&error))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable(&error))?;
        Ok(Self { certificates, key })
    }
}

impl Credentials {
    /// Reads a bearer token from a file. `None` if the file does not exist.
    ///
    /// # Errors
    /// [`UserError::Unusable`]: the file is unreadable or contains no token.
    pub fn from_token_file(path: &Path) -> Result<Option<Self>, UserError> {
        if !path.exists() {
            return Ok(None);
        }
        let header = read_token(path).map_err(|error| UserError::Unusable(error.to_string()))?;
        Ok(Some(Self { authorization: Some(header), identity: None }))
    }

    /// Opens TLS on a connection to a controller. The first call consumes the client certificate, so a second call
    /// sends no certificate.
    ///
    /// # Errors
    /// The handshake failed, or the client certificate is unusable.
    pub async fn connect<S>(&mut self, port: S, trust: Trust) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier { provider, trust }));
        let mut config = match self.identity.take() {
            Some(Identity { certificates, key }) => {
                config.with_client_auth_cert(certificates, key).map_err(io::Error::other)?
            }
            None => config.with_no_client_auth(),
        };
        // The next connection to the address may reach another controller.
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // The certificate has no predictable name. With an IP address, the handshake sends no name.
        let name = ServerName::IpAddress(IpAddr::from(Ipv4Addr::LOCALHOST).into());
        TlsConnector::from(Arc::new(config)).connect(name, port).await
    }
}

/// Verifies the certificate of a controller. A controller creates its certificate at startup, so no authority signs the
/// certificate. Instead, the API server authenticates the controller. It forwards the connection to the pod, or it
/// stores the Lease with the fingerprint of the certificate. The handshake always checks that the peer has the key of
/// the certificate.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    trust: Trust,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.trust {
            Trust::Any => {}
            Trust::Pinned(pinned) => {
                let shown = Fingerprint::from_der(certificate);
                if shown != pinned {
                    let error = WrongCertificate { shown, pinned };
                    return Err(rustls::Error::Other(rustls::OtherError(Arc::new(error))));
                }
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_round_trips_through_text() {
        let fingerprint = Fingerprint::from_der(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(fingerprint.to_string(), text);
        assert_eq!(text.parse(), Ok(fingerprint));
        assert_eq!(text.to_uppercase().replace("SHA", "sha").parse(), Ok(fingerprint));
        let short = &text[..70];
        for wrong in ["", "sha256:", short, &format!("{text}0"), &text.replace("ba", "bg"), &text[7..]] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(FingerprintError), "{wrong}");
        }
    }
}
