//! What the user of a configuration shows to a controller, and the TLS connection on which it is shown.

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
use crate::history::replica::link::Fingerprint;

/// Why nothing can be shown to a controller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// Credentials of another user would be shown.
    #[error("a controller cannot be asked as somebody else (--as): it would be shown your own credentials")]
    Impersonation,
    /// There is nothing to show.
    #[error(
        "the user of the kubeconfig has neither a token nor a client certificate, and a controller takes nothing else"
    )]
    NoCredentials,
    /// The user's credentials cannot be used.
    #[error("{0}")]
    Unusable(String),
}

/// Which certificate a controller may show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Any. That it is the one that was meant is vouched for by the way there.
    #[cfg(feature = "tools")]
    Any,
    /// This one.
    Pinned(Fingerprint),
}

/// A controller shows another certificate than the one that was meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the certificate is {shown}, and must be {pinned}")]
pub struct WrongCertificate {
    /// What was shown.
    pub shown: Fingerprint,
    /// What was meant.
    pub pinned: Fingerprint,
}

impl WrongCertificate {
    /// This error, if it is what ended a handshake.
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

/// What a controller is shown.
pub(super) struct Credentials {
    /// The `Authorization` header.
    pub(super) authorization: Option<HeaderValue>,
    identity: Option<Identity>,
}

impl User {
    pub(in crate::api) fn new(auth: AuthInfo, source: Arc<Source>) -> Self {
        Self { source, auth }
    }

    /// The user's bearer token, client certificate, or both. A password is never shown: a controller asks for none.
    ///
    /// # Errors
    /// What [`UserError`] lists.
    pub(super) async fn credentials(&self) -> Result<Credentials, UserError> {
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

    /// Certificate and key of the kubeconfig.
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
    /// Speaks TLS on the port of a controller. Once: the certificate goes with it.
    ///
    /// # Errors
    /// The handshake failed, or the client certificate is unusable.
    pub(super) async fn connect<S>(&mut self, port: S, trust: Trust) -> io::Result<TlsStream<S>>
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
        // Another controller may be at the address by the time of the next connection.
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // The certificate is for no name that could be known here; an address puts none into the handshake.
        let name = ServerName::IpAddress(IpAddr::from(Ipv4Addr::LOCALHOST).into());
        TlsConnector::from(Arc::new(config)).connect(name, port).await
    }
}

/// A controller makes its certificate when it starts, so that no authority could vouch for it. That this is the one that
/// was meant is vouched for by the API server: it opens the way to the pod, or keeps the Lease that names the certificate.
/// That whoever shows a certificate has the key to it is checked in any case.
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
            #[cfg(feature = "tools")]
            Trust::Any => {}
            Trust::Pinned(pinned) => {
                let shown = Fingerprint::of(certificate);
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
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
