//! The certificate authorities of the webhook, and the serving certificates that they sign. This module does no
//! I/O.
//!
//! All replicas share the authorities in a Secret. Each replica has a separate serving certificate, which never leaves
//! the process. After two thirds of the lifetime of an authority, a replica creates its successor. The successor starts
//! to sign ten minutes after its creation. By then, the API server trusts the successor. The API server continues to
//! trust the previous authority until that authority expires.

#![allow(
    clippy::indexing_slicing,
    reason = "indexes JSON only, where a missing field is null instead of a panic"
)]

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use serde_json::{Value, json};

const DAY: Duration = Duration::from_hours(24);
/// The lifetime of an authority.
const LIFE: Duration = Duration::from_hours(365 * 24);
/// The age of an authority at which a successor is created.
const SUCCESSION: Duration = Duration::from_hours(243 * 24);
/// The age at which an authority starts to sign. The first authority signs immediately.
const ACTIVATION: Duration = Duration::from_mins(10);
/// The lifetime of a serving certificate. The certificate is renewed after two thirds of this time.
const SERVING_LIFE: Duration = Duration::from_hours(30 * 24);
/// The last second of the year 9998, in seconds since 1970. A later time could exceed the range of the certificate
/// format.
const MAX_SECOND: u64 = 253_370_764_799;
/// The maximum number of authorities in the Secret.
const MAX: usize = 8;

/// The reason why a certificate cannot be generated or the contents of the Secret cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// The contents of the Secret are invalid.
    #[error("invalid certificate authorities: {0}; delete the key from the Secret to create others")]
    Invalid(String),
    /// A certificate could not be generated.
    #[error("failed to generate a certificate: {0}")]
    Generate(String),
}

/// A certificate authority with its key.
#[derive(Clone, PartialEq, Eq)]
struct Authority {
    /// The time of the creation, in seconds since 1970.
    created: i64,
    /// The certificate in DER.
    certificate: Vec<u8>,
    /// The private key as PKCS #8 in DER.
    key: Vec<u8>,
}

/// The certificate authorities, oldest first.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Authorities(Vec<Authority>);

impl std::fmt::Debug for Authorities {
    /// Prints only the times of creation, because the keys are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|authority| authority.created)).finish()
    }
}

/// A serving certificate that an authority of the Secret signed.
#[derive(Debug, Clone)]
pub struct Serving {
    /// The certificate chain and the private key.
    pub key: Arc<CertifiedKey>,
    /// The creation time of the authority that signed the certificate, in seconds since 1970.
    issued_by: i64,
    /// The time of the renewal, in seconds since 1970.
    renewal: i64,
}

impl Authorities {
    /// Parses the contents of the Secret. Empty contents mean no authorities.
    ///
    /// # Errors
    /// Returns [`AuthorityError::Invalid`] for contents in another format than that of [`Authorities::contents`].
    pub fn parse(contents: &[u8]) -> Result<Self, AuthorityError> {
        if contents.is_empty() {
            return Ok(Self::default());
        }
        let invalid = |reason: &str| AuthorityError::Invalid(reason.to_owned());
        let value: Value = serde_json::from_slice(contents).map_err(|error| invalid(&error.to_string()))?;
        let list = value["authorities"].as_array().ok_or_else(|| invalid("no list of authorities"))?;
        if list.len() > MAX {
            return Err(invalid("more than eight"));
        }
        let bytes = |field: &Value| {
            let text = field.as_str().ok_or_else(|| invalid("a field is no text"))?;
            STANDARD.decode(text).map_err(|error| invalid(&error.to_string()))
        };
        let mut authorities = Vec::new();
        for one in list {
            let created = one["created"].as_i64().ok_or_else(|| invalid("no time of creation"))?;
            let (certificate, key) = (bytes(&one["certificate"])?, bytes(&one["key"])?);
            authorities.push(Authority { created, certificate, key });
        }
        authorities.sort_by_key(|authority| authority.created);
        Ok(Self(authorities))
    }

    /// Returns the contents for the Secret, as JSON.
    pub fn contents(&self) -> Vec<u8> {
        let list: Vec<_> = self
            .0
            .iter()
            .map(|authority| {
                json!({
                    "created": authority.created,
                    "certificate": STANDARD.encode(&authority.certificate),
                    "key": STANDARD.encode(&authority.key),
                })
            })
            .collect();
        json!({"authorities": list}).to_string().into_bytes()
    }

    /// Returns the unexpired authorities, with a successor if its creation is due. Returns `None` if nothing changes.
    ///
    /// # Errors
    /// Returns [`AuthorityError::Generate`] if no authority can be generated.
    pub fn renewed(&self, now: Timestamp) -> Result<Option<Self>, AuthorityError> {
        let mut next: Vec<_> = self.0.iter().filter(|one| !one.is_older(LIFE, now)).cloned().collect();
        if next.last().is_none_or(|newest| newest.is_older(SUCCESSION, now)) {
            next.push(Authority::new(now)?);
        }
        let next = Self(next);
        Ok((next != *self).then_some(next))
    }

    /// Returns the certificates of all authorities in PEM, for `caBundle`.
    pub fn bundle(&self) -> String {
        let certificates: Vec<_> = self
            .0
            .iter()
            .map(|authority| Pem::new("CERTIFICATE", authority.certificate.as_slice()))
            .collect();
        pem::encode_many_config(&certificates, EncodeConfig::new().set_line_ending(LineEnding::LF))
    }

    /// Returns the authority that signs: the newest authority older than [`ACTIVATION`], otherwise the oldest
    /// authority.
    fn signer(&self, now: Timestamp) -> Option<&Authority> {
        let is_active = |authority: &&Authority| authority.is_older(ACTIVATION, now);
        self.0.iter().rev().find(is_active).or_else(|| self.0.first())
    }

    /// Returns whether a serving certificate must be replaced, because of its age or because another authority signs.
    pub fn must_replace(&self, serving: &Serving, now: Timestamp) -> bool {
        now.as_second() >= serving.renewal
            || self.signer(now).is_none_or(|signer| signer.created != serving.issued_by)
    }

    /// Generates and signs a serving certificate for the DNS names and IP addresses in `names`. Returns `None` without
    /// an authority.
    ///
    /// # Errors
    /// Returns [`AuthorityError`] if the authority's key or one of the names is invalid.
    pub fn sign(
        &self,
        names: &[String],
        now: Timestamp,
        provider: &CryptoProvider,
    ) -> Result<Option<Serving>, AuthorityError> {
        let Some(signer) = self.signer(now) else { return Ok(None) };
        let failed = |error: &dyn std::fmt::Display| AuthorityError::Generate(error.to_string());
        let private = PrivatePkcs8KeyDer::from(signer.key.clone());
        let key = KeyPair::try_from(&private).map_err(|error| AuthorityError::Invalid(error.to_string()))?;
        let issuer = Issuer::new(parameters(signer.created)?, key);
        let mut params = CertificateParams::new(names.to_vec()).map_err(|error| failed(&error))?;
        params.distinguished_name = named("concertina");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let now = now.as_second();
        params.not_before = date_time_ymd(1970, 1, 1) + since_epoch(now.saturating_sub(seconds(DAY)));
        params.not_after = date_time_ymd(1970, 1, 1) + since_epoch(now.saturating_add(seconds(SERVING_LIFE)));
        let key = KeyPair::generate().map_err(|error| failed(&error))?;
        let certificate = params.signed_by(&key, &issuer).map_err(|error| failed(&error))?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let chain = vec![certificate.der().clone(), CertificateDer::from(signer.certificate.clone())];
        let key = CertifiedKey::from_der(chain, private, provider).map_err(|error| failed(&error))?;
        let renewal = now.saturating_add(seconds(SERVING_LIFE) / 3 * 2);
        Ok(Some(Serving { key: Arc::new(key), issued_by: signer.created, renewal }))
    }
}

impl Authority {
    fn new(now: Timestamp) -> Result<Self, AuthorityError> {
        let failed = |error: rcgen::Error| AuthorityError::Generate(error.to_string());
        let created = now.as_second();
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = parameters(created)?.self_signed(&key).map_err(failed)?;
        Ok(Self { created, certificate: certificate.der().to_vec(), key: key.serialize_der() })
    }

    fn is_older(&self, age: Duration, now: Timestamp) -> bool {
        now.as_second().saturating_sub(self.created) >= seconds(age)
    }
}

/// Returns the parameters of an authority's certificate, which depend only on the creation time.
fn parameters(created: i64) -> Result<CertificateParams, AuthorityError> {
    let mut params =
        CertificateParams::new(Vec::new()).map_err(|error| AuthorityError::Generate(error.to_string()))?;
    params.distinguished_name = named(&format!("concertina-handover-ca-{created}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date_time_ymd(1970, 1, 1) + since_epoch(created.saturating_sub(seconds(DAY)));
    // The certificate of an authority must outlive all serving certificates that the authority signs within `LIFE`.
    let end = created.saturating_add(seconds(LIFE)).saturating_add(seconds(SERVING_LIFE));
    params.not_after = date_time_ymd(1970, 1, 1) + since_epoch(end);
    Ok(params)
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// Converts seconds since 1970 to a duration between 0 and [`MAX_SECOND`] seconds.
fn since_epoch(second: i64) -> Duration {
    Duration::from_secs(u64::try_from(second).unwrap_or(0).min(MAX_SECOND))
}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring::default_provider;

    use super::super::certificate::verifies;
    use super::*;

    const NAME: &str = "concertina-handover.concertina-system.svc";

    fn at(days: i64, minutes: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + days * 86_400 + minutes * 60).unwrap()
    }

    fn sign(authorities: &Authorities, now: Timestamp) -> Serving {
        authorities.sign(&[NAME.to_owned()], now, &default_provider()).unwrap().unwrap()
    }

    #[test]
    fn certificate_is_trusted_by_the_bundle_for_the_name_of_the_service() {
        let authorities = Authorities::default().renewed(at(0, 0)).unwrap().unwrap();
        let again = Authorities::parse(&authorities.contents()).unwrap();
        assert_eq!(again, authorities);
        let serving = sign(&again, at(0, 0));
        let provider = Arc::new(default_provider());
        let trusted = |bundle: &str, name: &str, now| verifies(bundle, &serving.key, name, now, &provider);
        assert!(trusted(&authorities.bundle(), NAME, at(29, 0)));
        assert!(!trusted(&authorities.bundle(), NAME, at(31, 0)), "expired");
        assert!(!trusted(&authorities.bundle(), "other.svc", at(0, 0)));
        let other = Authorities::default().renewed(at(0, 0)).unwrap().unwrap();
        for bundle in ["", "-----BEGIN", &other.bundle()] {
            assert!(!trusted(bundle, NAME, at(0, 0)), "{bundle}");
        }
    }

    #[test]
    fn successor_signs_only_after_the_bundle_had_time_to_spread() {
        let first = Authorities::default().renewed(at(0, 0)).unwrap().unwrap();
        let serving = sign(&first, at(0, 0));
        assert_eq!(first.renewed(at(242, 0)).unwrap(), None);
        assert!(!first.must_replace(&serving, at(19, 0)) && first.must_replace(&serving, at(20, 0)));

        let both = first.renewed(at(243, 0)).unwrap().unwrap();
        assert_eq!(both.0.len(), 2);
        assert!(both.bundle().starts_with(&first.bundle()));
        let serving = sign(&both, at(243, 0));
        assert_eq!(serving.issued_by, first.0[0].created);
        assert!(!both.must_replace(&serving, at(243, 9)) && both.must_replace(&serving, at(243, 10)));
        let next = sign(&both, at(243, 10));
        let provider = Arc::new(default_provider());
        assert!(verifies(&both.bundle(), &next.key, NAME, at(243, 10), &provider));
        let left = both.renewed(at(365, 0)).unwrap().unwrap();
        assert_eq!(left.0.len(), 1);
        assert!(verifies(&left.bundle(), &next.key, NAME, at(260, 0), &provider));
    }

    #[test]
    fn invalid_contents_are_errors() {
        assert_eq!(Authorities::parse(b""), Ok(Authorities::default()));
        let many =
            json!({"authorities": vec![json!({"created": 1, "certificate": "", "key": ""}); 9]}).to_string();
        for contents in
            ["{", "{}", r#"{"authorities":[{}]}"#, r#"{"authorities":[{"created":1,"key":3}]}"#, &many]
        {
            assert!(
                matches!(Authorities::parse(contents.as_bytes()), Err(AuthorityError::Invalid(_))),
                "{contents}"
            );
        }
        let bad = br#"{"authorities":[{"created":-9223372036854775808,"certificate":"","key":"AAAA"}]}"#;
        let bad = Authorities::parse(bad).unwrap();
        assert!(bad.sign(&[NAME.to_owned()], at(0, 0), &default_provider()).is_err());
    }
}
