//! The source file, `--metric-sources`: the servers, and the namespaces that may use them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use serde::Deserialize;

use crate::adapters::{self, AdapterFields, AdapterGroup};
use crate::field::{Field, FileError};
use crate::kubelet::{KubeletFields, KubeletSettings};

/// Maximum bytes of the file.
const MAX_BYTES: usize = 1 << 20;
/// Maximum number of servers.
const MAX_SERVERS: usize = 100;

/// The contents of a source file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceFile {
    /// `prometheus`, by name.
    pub prometheus: BTreeMap<Arc<str>, PrometheusServer>,
    /// `pods`.
    pub pods: PodSettings,
    /// `kubelet`.
    pub kubelet: KubeletSettings,
    /// `adapters`, by API group.
    pub adapters: BTreeMap<Arc<str>, Arc<AdapterGroup>>,
}

/// One server with Prometheus' query API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrometheusServer {
    /// The name in policies.
    pub name: Arc<str>,
    /// The URL before `/api/v1/query`, without a slash at its end.
    pub url: Uri,
    /// The certificate authority of the server. `None` for the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// A file with the bearer token of every request. Read for each request.
    pub bearer_token_file: Option<PathBuf>,
    /// Time limit of a query.
    pub timeout: Duration,
    /// Equal queries within 90 % of this time share an answer.
    pub interval: Duration,
    /// Maximum queries in flight. A namespace holds at most half of them.
    pub concurrency: usize,
    /// Maximum bytes of an answer.
    pub max_bytes: usize,
    /// Maximum series of an answer.
    pub max_series: usize,
    /// The label that contains the namespace of a series. Each query is restricted to the namespace of its HPA. `None`:
    /// no restriction.
    pub enforce_namespace_label: Option<String>,
    /// The namespaces whose HPAs may use the server. `None` for all.
    pub namespaces: Option<BTreeSet<String>>,
    /// Whether answers with warnings and partial answers are accepted.
    pub allow_partial: bool,
}

/// The settings of the scraper of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSettings {
    /// Whether pods may be scraped.
    pub enabled: bool,
    /// The namespaces whose pods may be scraped. `None` for all.
    pub namespaces: Option<BTreeSet<String>>,
    /// Whether policies may request pages over TLS.
    pub tls: bool,
    /// The namespaces whose Secrets policies may name for TLS and tokens.
    pub secret_namespaces: BTreeSet<String>,
    /// Maximum bytes of a page.
    pub max_bytes: usize,
    /// Maximum series of a page that match one metric.
    pub max_series: usize,
    /// Time limit of a scrape.
    pub timeout: Duration,
    /// Maximum scrapes in flight. A namespace holds at most half of them.
    pub concurrency: usize,
    /// Maximum pages of a namespace that are scraped.
    pub max_pages_per_namespace: usize,
}

impl Default for PodSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            namespaces: None,
            tls: false,
            secret_namespaces: BTreeSet::new(),
            max_bytes: 4 << 20,
            max_series: 1_000,
            timeout: Duration::from_secs(1),
            concurrency: 256,
            max_pages_per_namespace: 10_000,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FileFields {
    prometheus: Vec<ServerFields>,
    pods: PodFields,
    kubelet: KubeletFields,
    adapters: Vec<AdapterFields>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ServerFields {
    name: String,
    url: String,
    ca_file: Option<PathBuf>,
    bearer_token_file: Option<PathBuf>,
    timeout: Option<String>,
    interval: Option<String>,
    concurrency: Option<u16>,
    max_bytes: Option<String>,
    max_series: Option<u32>,
    enforce_namespace_label: Option<String>,
    namespaces: Option<BTreeSet<String>>,
    #[serde(default)]
    allow_partial: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PodFields {
    enabled: bool,
    namespaces: Option<BTreeSet<String>>,
    tls: bool,
    secret_namespaces: BTreeSet<String>,
    max_bytes: Option<String>,
    max_series: Option<u32>,
    timeout: Option<String>,
    concurrency: Option<u16>,
    max_pages_per_namespace: Option<u32>,
}

impl SourceFile {
    /// Reads a file.
    pub fn read(path: &PathBuf) -> Result<Self, FileError> {
        let unreadable = |reason: String| FileError::Unreadable { path: path.clone(), reason };
        let length = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
        if usize::try_from(length).map_or(true, |length| length > MAX_BYTES) {
            return Err(unreadable(format!("it has {length} bytes, at most {MAX_BYTES} are allowed")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        Self::parse(&text, path)
    }

    /// Parses the text of a file. `path` names it in errors.
    pub fn parse(text: &str, path: &PathBuf) -> Result<Self, FileError> {
        let fields: FileFields = if text.trim().is_empty() {
            FileFields::default()
        } else {
            serde_saphyr::from_str(text).map_err(|error| {
                let reason = error.to_string().lines().next().unwrap_or_default().chars().take(300).collect();
                FileError::Syntax { path: path.clone(), reason }
            })?
        };
        if fields.prometheus.len() > MAX_SERVERS {
            let field = Field { file: path, path: String::new() };
            return Err(field.error("prometheus", format!("has more than {MAX_SERVERS} servers")));
        }
        let mut prometheus = BTreeMap::new();
        for (index, server) in fields.prometheus.into_iter().enumerate() {
            let field = Field { file: path, path: format!("prometheus[{index}].") };
            let server = server.check(&field)?;
            if let Some(earlier) = prometheus.insert(Arc::clone(&server.name), server) {
                return Err(
                    field.error("name", format!("{:?} is the name of an earlier server", earlier.name))
                );
            }
        }
        let pods = fields.pods.check(&Field { file: path, path: "pods.".to_owned() })?;
        let kubelet = fields.kubelet.check(&Field { file: path, path: "kubelet.".to_owned() })?;
        let adapters = adapters::check(fields.adapters, &prometheus, path)?;
        Ok(Self { prometheus, pods, kubelet, adapters })
    }
}

impl ServerFields {
    fn check(self, field: &Field<'_>) -> Result<PrometheusServer, FileError> {
        if self.name.is_empty() || self.name.len() > 253 {
            return Err(field.error("name", "must have 1 to 253 bytes"));
        }
        let url = self.url.trim_end_matches('/').parse::<Uri>().ok().filter(|url| {
            let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
            matches!(url.scheme_str(), Some("http" | "https")) && !has_user && url.query().is_none()
        });
        let Some(url) = url else {
            return Err(field.error("url", "must be http:// or https:// with a host, without user and query"));
        };
        if let Some(label) = &self.enforce_namespace_label {
            let is_start = |first: u8| first.is_ascii_alphabetic() || first == b'_';
            let is_label = label.bytes().next().is_some_and(is_start)
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !is_label {
                return Err(field.error("enforceNamespaceLabel", "must be a name of letters, digits and _"));
            }
        }
        if self.bearer_token_file.is_some() && url.scheme_str() != Some("https") {
            return Err(field
                .error("bearerTokenFile", "needs a url with https://, so that the token is not readable"));
        }
        Ok(PrometheusServer {
            timeout: field.time("timeout", self.timeout.as_deref(), Duration::from_secs(5))?,
            interval: field.time("interval", self.interval.as_deref(), Duration::from_secs(1))?,
            concurrency: field.count("concurrency", self.concurrency.map(u32::from), 32, 1_000)?,
            max_bytes: field.bytes("maxBytes", self.max_bytes.as_deref(), 4 << 20)?,
            max_series: field.count("maxSeries", self.max_series, 10_000, 1_000_000)?,
            name: self.name.into(),
            url,
            ca_file: self.ca_file,
            bearer_token_file: self.bearer_token_file,
            enforce_namespace_label: self.enforce_namespace_label,
            namespaces: self.namespaces,
            allow_partial: self.allow_partial,
        })
    }
}

impl PodFields {
    fn check(self, field: &Field<'_>) -> Result<PodSettings, FileError> {
        let default = PodSettings::default();
        let pages = self.max_pages_per_namespace;
        if !self.tls && !self.secret_namespaces.is_empty() {
            return Err(field.error("secretNamespaces", "needs tls: true, so that no token is readable"));
        }
        Ok(PodSettings {
            enabled: self.enabled,
            namespaces: self.namespaces,
            tls: self.tls,
            secret_namespaces: self.secret_namespaces,
            max_bytes: field.bytes("maxBytes", self.max_bytes.as_deref(), default.max_bytes)?,
            max_series: field.count("maxSeries", self.max_series, default.max_series, 100_000)?,
            timeout: field.time("timeout", self.timeout.as_deref(), default.timeout)?,
            concurrency: field.count(
                "concurrency",
                self.concurrency.map(u32::from),
                default.concurrency,
                4_096,
            )?,
            max_pages_per_namespace: field.count(
                "maxPagesPerNamespace",
                pages,
                default.max_pages_per_namespace,
                100_000,
            )?,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SourceFile, String> {
        SourceFile::parse(text, &"sources.yaml".into()).map_err(|error| error.to_string())
    }

    #[test]
    fn file_names_servers_and_limits() {
        let file = parse(
            "prometheus:
- {name: main, url: 'https://prometheus.monitoring:9090/tenant/', bearerTokenFile: /token, timeout: 2s,
   enforceNamespaceLabel: namespace, namespaces: [shop]}
pods: {enabled: true, maxBytes: 1Mi, concurrency: 64}
adapters: [{apiGroup: external.metrics.example.com, namespaces: [shop]}]
",
        )
        .unwrap();
        let main = &file.prometheus["main"];
        assert_eq!(main.url, "https://prometheus.monitoring:9090/tenant");
        assert_eq!((main.timeout, main.interval), (Duration::from_secs(2), Duration::from_secs(1)));
        assert!(main.namespaces.as_ref().unwrap().contains("shop"));
        assert_eq!((file.pods.max_bytes, file.pods.concurrency), (1 << 20, 64));
        let group = &file.adapters["external.metrics.example.com"];
        assert_eq!((group.concurrency, group.namespaces.as_ref().unwrap().len()), (32, 1));
        assert_eq!(parse("").unwrap(), SourceFile::default());
    }

    #[test]
    fn invalid_file_is_reported_with_its_name_and_field() {
        for (text, expected) in [
            (
                "prometheus: [{name: a, url: 'http://a'}, {name: a, url: 'http://b'}]",
                "sources.yaml: prometheus[1].name \"a\" is the name of an earlier server",
            ),
            (
                "prometheus: [{name: a, url: 'file:///etc/passwd'}]",
                "sources.yaml: prometheus[0].url must be http:// or https:// with a host, without user and query",
            ),
            (
                "prometheus: [{name: a, url: 'http://a', bearerTokenFile: /t}]",
                "sources.yaml: prometheus[0].bearerTokenFile needs a url with https://, so that the token is not readable",
            ),
            (
                "pods: {timeout: 5 days}",
                "sources.yaml: pods.timeout must be a time from 100ms to 5m, such as 5s, not \"5 days\"",
            ),
            (
                "pods: {maxBytes: 1Ti}",
                "sources.yaml: pods.maxBytes must be a size from 1Ki to 256Mi, such as 4Mi, not \"1Ti\"",
            ),
            (
                "adapters: [{apiGroup: custom.metrics.k8s.io}]",
                "sources.yaml: adapters[0].apiGroup must be an API group such as external.metrics.example.com, and \
                 none of the default ones, not \"custom.metrics.k8s.io\"",
            ),
            (
                "{prometheus: [{name: a.b, url: 'http://a'}], adapters: [{apiGroup: a.b}]}",
                "sources.yaml: adapters[0].apiGroup \"a.b\" is the name of an earlier source",
            ),
            (
                "pods: {enabled: true, secretNamespaces: [shop]}",
                "sources.yaml: pods.secretNamespaces needs tls: true, so that no token is readable",
            ),
            ("pods: {concurrency: 0}", "sources.yaml: pods.concurrency must be from 1 to 4096, not 0"),
        ] {
            assert_eq!(parse(text), Err(expected.to_owned()), "{text}");
        }
        let unknown = parse("pods: {enabledd: true}").unwrap_err();
        assert!(
            unknown.starts_with("sources.yaml is invalid: ") && unknown.contains("enabledd"),
            "{unknown}"
        );
    }
}
