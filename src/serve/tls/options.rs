//! Which versions, cipher suites and key exchanges are offered: Go's names, as kube-controller-manager's flags take
//! them, and what rustls has of them.

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::{CipherSuite, NamedGroup, ProtocolVersion, SupportedCipherSuite};

/// What is offered to clients. Empty lists: all that rustls has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsOptions {
    /// `--tls-min-version=VersionTLS13`; otherwise TLS 1.2 is offered too.
    pub only_tls13: bool,
    /// `--tls-cipher-suites`, as far as rustls has them; not empty if the flag is given.
    pub suites: Vec<CipherSuite>,
    /// `--tls-curve-preferences`, as far as rustls has them; not empty if the flag is given.
    pub groups: Vec<NamedGroup>,
}

/// A list of which some is left out, because rustls does not have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supported<T> {
    /// What is left, in the order that was given.
    pub kept: Vec<T>,
    /// What is not, as it was given.
    pub left_out: Vec<String>,
}

/// Cipher suites that Go knows and rustls, for good reasons, does not: CBC, 3DES, RC4, and key transport by RSA.
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

/// Reads `--tls-min-version`: whether only TLS 1.3 is left, and what to warn of.
pub fn minimum(version: &str) -> Result<(bool, Option<String>), String> {
    match version {
        "" | "VersionTLS12" => Ok((false, None)),
        "VersionTLS13" => Ok((true, None)),
        "VersionTLS10" | "VersionTLS11" => {
            Ok((false, Some(format!("--tls-min-version={version}: TLS 1.2 is the oldest version there is"))))
        }
        _ => Err("must be VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13".to_owned()),
    }
}

/// Reads `--tls-cipher-suites`. The error says which name is none, or that nothing is left.
pub fn suites(names: &[String]) -> Result<Supported<CipherSuite>, String> {
    let known = default_provider().cipher_suites;
    let mut supported = Supported { kept: Vec::new(), left_out: Vec::new() };
    for name in names {
        // Go's constants of TLS 1.3 lack a digit that rustls' have; two of its older names lack their hash.
        let wanted = match name.as_str() {
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => {
                format!("{name}_SHA256")
            }
            _ => name.replacen("TLS_AES", "TLS13_AES", 1).replacen("TLS_CHACHA20", "TLS13_CHACHA20", 1),
        };
        match known.iter().find(|suite| format!("{:?}", suite.suite()) == wanted) {
            Some(suite) => supported.kept.push(suite.suite()),
            None if ONLY_GO.contains(&name.as_str()) => supported.left_out.push(name.clone()),
            None => return Err(format!("Cipher suite {name} not supported or doesn't exist")),
        }
    }
    supported.or_nothing("cipher suite")
}

/// Reads `--tls-curve-preferences`: numbers of the IANA registry, such as 29 for X25519.
pub fn groups(numbers: &[u16]) -> Result<Supported<NamedGroup>, String> {
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
    fn or_nothing(self, what: &str) -> Result<Self, String> {
        if self.kept.is_empty() && !self.left_out.is_empty() {
            return Err(format!("no {what} is left: rustls has none of these"));
        }
        Ok(self)
    }
}

impl TlsOptions {
    /// rustls' cryptography, cut down to what is offered.
    pub fn provider(&self) -> CryptoProvider {
        let mut provider = default_provider();
        if !self.suites.is_empty() {
            // As in Go, those of TLS 1.3 are not up to the operator.
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

    /// The versions of the protocol that are offered.
    pub fn versions(&self) -> &'static [&'static rustls::SupportedProtocolVersion] {
        // A list without any suite of TLS 1.2 rules that version out.
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
    fn a_list_of_which_nothing_is_left_is_refused() {
        assert_eq!(
            suites(&names(&["TLS_RSA_WITH_AES_128_CBC_SHA"])).unwrap_err(),
            "no cipher suite is left: rustls has none of these"
        );
        assert_eq!(
            suites(&names(&["TLS_X"])).unwrap_err(),
            "Cipher suite TLS_X not supported or doesn't exist"
        );
        assert_eq!(groups(&[25]).unwrap_err(), "no curve is left: rustls has none of these");
    }

    #[test]
    fn suites_of_the_newest_version_alone_rule_the_older_one_out() {
        let supported = suites(&names(&["TLS_AES_256_GCM_SHA384"])).unwrap();
        let options = TlsOptions { suites: supported.kept, ..TlsOptions::default() };
        assert_eq!(options.versions().len(), 1);
    }

    #[test]
    fn curves_are_preferred_in_their_order() {
        let supported = groups(&[24, 4588, 29]).unwrap();
        assert_eq!(supported.left_out, ["4588"]);
        let options = TlsOptions { groups: supported.kept, ..TlsOptions::default() };
        let offered: Vec<_> = options.provider().kx_groups.iter().map(|group| group.name()).collect();
        assert_eq!(offered, [NamedGroup::secp384r1, NamedGroup::X25519]);
    }

    #[test]
    fn versions_that_are_too_old_become_the_oldest_there_is() {
        assert_eq!(minimum(""), Ok((false, None)));
        assert_eq!(minimum("VersionTLS13"), Ok((true, None)));
        assert!(minimum("VersionTLS11").unwrap().1.is_some());
        assert!(minimum("1.2").is_err());
    }
}
