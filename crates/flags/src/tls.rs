//! The offered versions, cipher suites and key exchange groups. The flags of kube-controller-manager use Go's names for
//! cipher suites. This module maps these names to rustls' names.

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::{CipherSuite, NamedGroup, ProtocolVersion, SupportedCipherSuite};

/// The offered TLS versions, cipher suites and groups. An empty list means everything that rustls supports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsOptions {
    /// Whether only TLS 1.3 is offered, as `--tls-min-version=VersionTLS13` requires.
    pub only_tls13: bool,
    /// The suites of `--tls-cipher-suites` that rustls supports. Not empty if the flag names a suite.
    pub suites: Vec<CipherSuite>,
    /// The groups of `--tls-curve-preferences` that rustls supports. Not empty if the flag names a group.
    pub groups: Vec<NamedGroup>,
}

/// A list, split into entries that rustls supports and entries that it does not support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supported<T> {
    /// The supported entries, in the given order.
    pub kept: Vec<T>,
    /// The unsupported entries, as on the command line.
    pub left_out: Vec<String>,
}

/// An invalid list of cipher suites or curves.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsListError {
    /// Neither Go nor rustls has the cipher suite.
    #[error("Cipher suite {0} not supported or doesn't exist")]
    Suite(String),
    /// The list has no supported entry.
    #[error("rustls supports none of the given {0}s")]
    NoneLeft(&'static str),
}

/// Cipher suites of Go that rustls omits for security reasons: CBC, 3DES, RC4, and key transport by RSA.
const ONLY_GO: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

const NEWEST: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Parses `--tls-min-version`. Returns whether only TLS 1.3 is offered, and an optional warning. Returns `None` for an
/// unknown version.
pub fn minimum(version: &str) -> Option<(bool, Option<String>)> {
    match version {
        "" | "VersionTLS12" => Some((false, None)),
        "VersionTLS13" => Some((true, None)),
        "VersionTLS10" | "VersionTLS11" => Some((
            false,
            Some(format!("--tls-min-version={version}: using TLS 1.2, the oldest supported version")),
        )),
        _ => None,
    }
}

/// Parses `--tls-cipher-suites`.
///
/// # Errors
/// Returns [`TlsListError`] for an unknown suite, or if rustls supports no suite of the list.
pub fn suites(names: &[String]) -> Result<Supported<CipherSuite>, TlsListError> {
    let known = default_provider().cipher_suites;
    let mut supported = Supported { kept: Vec::new(), left_out: Vec::new() };
    for name in names {
        // Go's names for TLS 1.3 lack the `13` of rustls' names. Two of Go's names lack the hash.
        let wanted = match name.as_str() {
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => {
                format!("{name}_SHA256")
            }
            _ => name.replacen("TLS_AES", "TLS13_AES", 1).replacen("TLS_CHACHA20", "TLS13_CHACHA20", 1),
        };
        match known.iter().find(|suite| format!("{:?}", suite.suite()) == wanted) {
            Some(suite) => supported.kept.push(suite.suite()),
            None if ONLY_GO.contains(&name.as_str()) => supported.left_out.push(name.clone()),
            None => return Err(TlsListError::Suite(name.clone())),
        }
    }
    supported.or_nothing("cipher suite")
}

/// Parses `--tls-curve-preferences`. The numbers are those of the IANA registry, such as 29 for X25519.
///
/// # Errors
/// Returns [`TlsListError`] if rustls supports no group of the list.
pub fn groups(numbers: &[u16]) -> Result<Supported<NamedGroup>, TlsListError> {
    let known = default_provider().kx_groups;
    let mut supported = Supported { kept: Vec::new(), left_out: Vec::new() };
    for number in numbers {
        match known.iter().find(|group| u16::from(group.name()) == *number) {
            Some(group) => supported.kept.push(group.name()),
            None => supported.left_out.push(number.to_string()),
        }
    }
    supported.or_nothing("curve")
}

impl<T> Supported<T> {
    fn or_nothing(self, what: &'static str) -> Result<Self, TlsListError> {
        if self.kept.is_empty() && !self.left_out.is_empty() {
            return Err(TlsListError::NoneLeft(what));
        }
        Ok(self)
    }
}

impl TlsOptions {
    /// Returns the `ring` provider of rustls, limited to the offered suites and groups.
    pub fn provider(&self) -> CryptoProvider {
        let mut provider = default_provider();
        if !self.suites.is_empty() {
            // As in Go, all suites of TLS 1.3 are always offered.
            let modern = |suite: &SupportedCipherSuite| suite.version().version == ProtocolVersion::TLSv1_3;
            provider.cipher_suites.retain(|suite| modern(suite) || self.suites.contains(&suite.suite()));
        }
        if !self.groups.is_empty() {
            let all = provider.kx_groups;
            let chosen = self.groups.iter().filter_map(|name| all.iter().find(|group| group.name() == *name));
            provider.kx_groups = chosen.copied().collect();
        }
        provider
    }

    /// Returns the offered versions of the protocol.
    pub fn versions(&self) -> &'static [&'static rustls::SupportedProtocolVersion] {
        // A list with only suites of TLS 1.3 excludes TLS 1.2.
        let old = default_provider().cipher_suites.iter().any(|suite| {
            suite.version().version == ProtocolVersion::TLSv1_2 && self.suites.contains(&suite.suite())
        });
        if self.only_tls13 || !(self.suites.is_empty() || old) { NEWEST } else { rustls::ALL_VERSIONS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn suites_that_rustls_lacks_are_left_out_and_named() {
        let given = names(&[
            "TLS_RSA_WITH_RC4_128_SHA",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
            "TLS_AES_128_GCM_SHA256",
        ]);
        let supported = suites(&given).unwrap();
        assert_eq!(supported.left_out, ["TLS_RSA_WITH_RC4_128_SHA"]);
        assert_eq!(
            supported.kept,
            [
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
                CipherSuite::TLS13_AES_128_GCM_SHA256,
            ]
        );
        let options = TlsOptions { suites: supported.kept, ..TlsOptions::default() };
        assert_eq!(options.provider().cipher_suites.len(), 5, "two of TLS 1.2 and the three of TLS 1.3");
        assert_eq!(options.versions().len(), 2);
    }

    #[test]
    fn list_without_a_supported_entry_is_refused() {
        assert_eq!(
            suites(&names(&["TLS_RSA_WITH_AES_128_CBC_SHA"])).unwrap_err().to_string(),
            "rustls supports none of the given cipher suites"
        );
        assert_eq!(
            suites(&names(&["TLS_X"])).unwrap_err().to_string(),
            "Cipher suite TLS_X not supported or doesn't exist"
        );
        assert_eq!(groups(&[25]).unwrap_err().to_string(), "rustls supports none of the given curves");
    }

    #[test]
    fn suites_of_tls_1_3_only_exclude_tls_1_2() {
        let supported = suites(&names(&["TLS_AES_256_GCM_SHA384"])).unwrap();
        let options = TlsOptions { suites: supported.kept, ..TlsOptions::default() };
        assert_eq!(options.versions().len(), 1);
    }

    #[test]
    fn curves_keep_their_order_of_preference() {
        let supported = groups(&[24, 4588, 29]).unwrap();
        assert_eq!(supported.left_out, ["4588"]);
        let options = TlsOptions { groups: supported.kept, ..TlsOptions::default() };
        let offered: Vec<_> = options.provider().kx_groups.iter().map(|group| group.name()).collect();
        assert_eq!(offered, [NamedGroup::secp384r1, NamedGroup::X25519]);
    }

    #[test]
    fn versions_before_tls_1_2_become_tls_1_2() {
        assert_eq!(minimum(""), Some((false, None)));
        assert_eq!(minimum("VersionTLS13"), Some((true, None)));
        assert!(minimum("VersionTLS11").unwrap().1.is_some());
        assert!(minimum("1.2").is_none());
    }
}
