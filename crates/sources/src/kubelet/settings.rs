//! `kubelet` of the source file.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::field::{Field, FileError};

/// The token of an account that may read metrics of nodes, and nothing else.
const TOKEN: &str = "/var/run/secrets/concertina/kubelet/token";
/// The shortest interval. Kubelets measure every ten seconds.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// The settings of the scraper of kubelets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletSettings {
    /// Whether kubelets may be scraped.
    pub enabled: bool,
    /// The namespaces whose HPAs may use kubelets. `None` for all.
    pub namespaces: Option<BTreeSet<String>>,
    /// The port of each kubelet.
    pub port: u16,
    /// The certificate authority of kubelets.
    pub ca_file: Option<PathBuf>,
    /// Whether any certificate is accepted.
    pub insecure_skip_verify: bool,
    /// A file with the bearer token of every request. Read for each request.
    pub bearer_token_file: PathBuf,
    /// The time between two scrapes of a node.
    pub interval: Duration,
    /// Time limit of a scrape.
    pub timeout: Duration,
    /// Maximum scrapes in flight.
    pub concurrency: usize,
    /// Maximum bytes of a page.
    pub max_bytes: usize,
}

impl Default for KubeletSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            namespaces: None,
            port: 10_250,
            ca_file: None,
            insecure_skip_verify: false,
            bearer_token_file: TOKEN.into(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(3),
            concurrency: 64,
            max_bytes: 16 << 20,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct KubeletFields {
    enabled: bool,
    namespaces: Option<BTreeSet<String>>,
    port: Option<u32>,
    ca_file: Option<PathBuf>,
    insecure_skip_verify: bool,
    bearer_token_file: Option<PathBuf>,
    interval: Option<String>,
    timeout: Option<String>,
    concurrency: Option<u16>,
    max_bytes: Option<String>,
}

impl KubeletFields {
    pub(crate) fn check(self, field: &Field<'_>) -> Result<KubeletSettings, FileError> {
        let default = KubeletSettings::default();
        if self.enabled && self.ca_file.is_some() == self.insecure_skip_verify {
            return Err(field.error(
                "caFile",
                "must name the authority of the kubelets' certificates, unless insecureSkipVerify is true",
            ));
        }
        let port = match self.port {
            None => default.port,
            Some(port) => u16::try_from(port)
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| field.error("port", format!("must be from 1 to 65535, not {port}")))?,
        };
        let interval = field.time("interval", self.interval.as_deref(), default.interval)?;
        if interval < SHORTEST_INTERVAL {
            return Err(field.error("interval", format!("must be at least 1s, not {interval:?}")));
        }
        let concurrency = self.concurrency.map(u32::from);
        Ok(KubeletSettings {
            enabled: self.enabled,
            namespaces: self.namespaces,
            port,
            ca_file: self.ca_file,
            insecure_skip_verify: self.insecure_skip_verify,
            bearer_token_file: self.bearer_token_file.unwrap_or(default.bearer_token_file),
            interval,
            timeout: field.time("timeout", self.timeout.as_deref(), default.timeout)?,
            concurrency: field.count("concurrency", concurrency, default.concurrency, 4_096)?,
            max_bytes: field.bytes("maxBytes", self.max_bytes.as_deref(), default.max_bytes)?,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::file::SourceFile;

    fn parse(text: &str) -> Result<KubeletSettings, String> {
        let file = SourceFile::parse(text, &"sources.yaml".into()).map_err(|error| error.to_string())?;
        Ok(file.kubelet)
    }

    #[test]
    fn kubelets_are_verified_unless_the_file_states_otherwise() {
        let verified =
            parse("kubelet: {enabled: true, caFile: /ca.crt, interval: 2s, namespaces: [shop]}").unwrap();
        assert_eq!(verified.ca_file.as_deref(), Some("/ca.crt".as_ref()));
        assert_eq!((verified.port, verified.interval), (10_250, Duration::from_secs(2)));
        assert_eq!(verified.bearer_token_file, PathBuf::from(TOKEN));
        assert!(parse("kubelet: {enabled: true, insecureSkipVerify: true}").unwrap().insecure_skip_verify);
        assert_eq!(parse("kubelet: {}").unwrap(), KubeletSettings::default());
        let authority = "sources.yaml: kubelet.caFile must name the authority of the kubelets' certificates, \
                         unless insecureSkipVerify is true";
        for (text, expected) in [
            ("{enabled: true}", authority),
            ("{enabled: true, caFile: /ca.crt, insecureSkipVerify: true}", authority),
            ("{port: 0}", "sources.yaml: kubelet.port must be from 1 to 65535, not 0"),
            ("{port: 70000}", "sources.yaml: kubelet.port must be from 1 to 65535, not 70000"),
            ("{interval: 200ms}", "sources.yaml: kubelet.interval must be at least 1s, not 200ms"),
        ] {
            assert_eq!(parse(&format!("kubelet: {text}")), Err(expected.to_owned()), "{text}");
        }
    }
}
