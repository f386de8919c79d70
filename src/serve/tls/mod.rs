//! TLS 1.2 and 1.3, with HTTP/1.1 inside.
//!
//! A client may present a certificate. The handshake only proves that the client has the certificate's key.
//! `access` checks the issuer and the validity at each request, because authorities change while connections
//! stay open.

mod certificates;
pub mod options;

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

pub use self::certificates::Certificates;
use super::error::ServeError;
use crate::serve::options::Serving;

/// Returns the configuration for accepting connections, and the certificates. The caller must keep the
/// certificates up to date.
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

/// Accepts clients without a certificate, and any certificate if the client has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Returns no hints, because a client may present any certificate.
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
