//! What the user of a kubeconfig shows to a controller, and the TLS connection on which it is shown.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use http::HeaderValue;
use kube::config::AuthInfo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use secrecy::ExposeSecret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::ForwardError;
use crate::api::connect::{Shown, Source};

/// The user of a kubeconfig.
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
    pub(super) authorization: Option<HeaderValue>,
    identity: Option<Identity>,
}

impl User {
    pub(in crate::api) fn new(auth: AuthInfo, source: Arc<Source>) -> Self {
        Self { source, auth }
    }

    /// The user's bearer token, client certificate, or both. A password is never shown: a controller asks for none.
    pub(super) async fn credentials(&self) -> Result<Credentials, ForwardError> {
        let auth = &self.auth;
        if auth.impersonate.is_some()
            || auth.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty())
        {
            return Err(ForwardError::Impersonation);
        }
        let Shown { header, identity } =
            self.source.shown().await.map_err(|error| ForwardError::Credentials(error.to_string()))?;
        let authorization = header.filter(|header| header.as_bytes().starts_with(b"Bearer "));
        let identity = match identity {
            Some((certificate, key)) => Some((certificate.into_bytes(), key.into_bytes())),
            None => self.certificate()?,
        };
        let identity = identity.map(|(certificate, key)| Identity::read(&certificate, &key)).transpose()?;
        if authorization.is_none() && identity.is_none() {
            return Err(ForwardError::NoCredentials);
        }
        Ok(Credentials { authorization, identity })
    }

    /// Certificate and key of the kubeconfig.
    fn certificate(&self) -> Result<Option<Pem>, ForwardError> {
        let auth = &self.auth;
        let key = auth.client_key_data.as_ref().map(ExposeSecret::expose_secret);
        let certificate = load(auth.client_certificate_data.as_deref(), auth.client_certificate.as_deref())?;
        let key = load(key, auth.client_key.as_deref())?;
        Ok(certificate.zip(key))
    }
}

fn load(data: Option<&str>, path: Option<&str>) -> Result<Option<Vec<u8>>, ForwardError> {
    use base64::Engine;
    if let Some(data) = data {
        let decoded = base64::engine::general_purpose::STANDARD.decode(data.trim());
        return decoded.map(Some).map_err(|error| unusable(&error));
    }
    path.map(|path| {
        std::fs::read(path).map_err(|error| ForwardError::Credentials(format!("{path}: {error}")))
    })
    .transpose()
}

fn unusable(error: &dyn std::fmt::Display) -> ForwardError {
    ForwardError::Credentials(format!("the client certificate is unusable: {error}"))
}

impl Identity {
    fn read(certificate: &[u8], key: &[u8]) -> Result<Self, ForwardError> {
        let certificates = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| unusable(&error))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable(&error))?;
        Ok(Self { certificates, key })
    }
}

impl Credentials {
    /// Speaks TLS on a port of a pod, whatever certificate the pod has.
    pub(super) async fn connect<S>(&mut self, port: S) -> Result<TlsStream<S>, ForwardError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)));
        let mut config = match self.identity.take() {
            Some(Identity { certificates, key }) => {
                config.with_client_auth_cert(certificates, key).map_err(|error| unusable(&error))?
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // The certificate is for no name that could be known here; an address puts none into the handshake.
        let name = ServerName::IpAddress(IpAddr::from(Ipv4Addr::LOCALHOST).into());
        TlsConnector::from(Arc::new(config)).connect(name, port).await.map_err(ForwardError::Tls)
    }
}

/// Lets any server certificate pass. A controller makes its own when it starts, so that nothing could vouch for it; that
/// this is the pod is vouched for by the API server, which was checked, and the kubelet behind it.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
