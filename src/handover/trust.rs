//! Whether the API server accepts a serving certificate.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;

/// Whether the authorities of `bundle`, in PEM, verify a certificate for a name.
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
