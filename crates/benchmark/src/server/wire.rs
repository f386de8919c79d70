//! TLS, and counters of the bytes on the wire.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_util::io::{InspectReader, InspectWriter};

use crate::Failure;

/// A TLS acceptor for a loopback address, and the kubeconfig that trusts it.
pub(crate) fn identity(address: SocketAddr) -> Result<(TlsAcceptor, String), Failure> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed([address.ip().to_string()])?;
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let authority = STANDARD.encode(cert.pem());
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: scale\n\
         clusters: [{{name: scale, cluster: {{server: 'https://{address}', certificate-authority-data: {authority}}}}}]\n\
         users: [{{name: scale, user: {{token: scale}}}}]\n\
         contexts: [{{name: scale, context: {{cluster: scale, user: scale}}}}]\n"
    );
    Ok((TlsAcceptor::from(Arc::new(config)), kubeconfig))
}

/// The bytes of all connections.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) received: AtomicU64,
    pub(crate) sent: AtomicU64,
}

/// Counts the bytes of a connection.
pub(crate) fn metered<T: AsyncRead + AsyncWrite>(
    stream: T,
    traffic: Arc<Traffic>,
) -> impl AsyncRead + AsyncWrite + use<T> {
    let received = Arc::clone(&traffic);
    let reader = InspectReader::new(stream, move |bytes: &[u8]| count(&received.received, bytes.len()));
    InspectWriter::new(reader, move |bytes: &[u8]| count(&traffic.sent, bytes.len()))
}

fn count(counter: &AtomicU64, bytes: usize) {
    counter.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
}
