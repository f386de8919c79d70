//! Client certificates: the trusted authorities, and the parser of subjects.

use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};

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
    /// The common name (CN). The last one if the subject has several, as in Go.
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
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    use super::*;

    fn subject(names: &[(DnType, &str)]) -> Subject {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, text) in names {
            params.distinguished_name.push(kind.clone(), DnValue::Utf8String((*text).to_owned()));
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        Subject::from_der(webpki::EndEntityCert::try_from(certificate.der()).unwrap().subject())
    }

    #[test]
    fn common_name_is_the_user_and_organizations_are_groups() {
        let long = "x".repeat(200);
        let read = subject(&[
            (DnType::OrganizationName, "system:masters"),
            (DnType::CountryName, "CH"),
            (DnType::CommonName, &long),
        ]);
        assert_eq!(read.common_name, Some(long));
        assert_eq!(read.organizations, ["system:masters"]);
        assert_eq!(subject(&[]), Subject::default());
    }

    #[test]
    fn subject_has_one_group_per_organization() {
        // The subject consists of the sets {O=a}, {O=b} and {CN=c}. rcgen cannot write a subject with two
        // organizations.
        let name = [
            &[0x31, 10, 0x30, 8, 6, 3, 0x55, 4, 10, 0x0c, 1, b'a'][..],
            &[0x31, 10, 0x30, 8, 6, 3, 0x55, 4, 10, 0x13, 1, b'b'],
            &[0x31, 10, 0x30, 8, 6, 3, 0x55, 4, 3, 0x16, 1, b'c'],
        ];
        let read = Subject::from_der(&name.concat());
        assert_eq!(
            (read.common_name.as_deref(), read.organizations),
            (Some("c"), vec!["a".into(), "b".into()])
        );
    }

    proptest! {
        #[test]
        fn subject_parser_accepts_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Subject::from_der(&bytes);
        }
    }
}
