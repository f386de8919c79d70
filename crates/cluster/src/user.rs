//! The kubeconfig user's credentials for requests to a Concertina controller, and the TLS connections of these
//! requests.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::HeaderValue;
use kube::config::AuthInfo;
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

use super::connect::{Shown, Source};

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
    /// Opens TLS on a connection to a controller. The first call consumes the client certificate, so a second call
    /// sends no certificate.
    ///
    /// # Errors
    /// The handshake failed, or the client certificate is unusable.
    pub async fn connect<S>(&mut self, port: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier(provider)));
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

/// Accepts any certificate of a controller. A controller creates its certificate at startup, so no authority signs the
/// certificate. Instead, the API server authenticates the controller, because it forwards the connection to the pod.
/// The handshake checks that the peer has the key of the certificate.
#[derive(Debug)]
struct Verifier(Arc<CryptoProvider>);

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
