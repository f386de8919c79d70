//! The source file, `--metric-sources`. It lists the sources and the namespaces that may use them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use limits::answer;
use policies::spec::is_api_group;
use serde::Deserialize;

use crate::settings::{Field, FileError, KubeletFields, KubeletSettings, PodFields, PodSettings};

/// Maximum size of the file in bytes.
const MAX_BYTES: usize = 1 << 20;
/// Maximum number of servers.
const MAX_SERVERS: usize = 100;
/// Maximum number of API groups.
const MAX_ADAPTERS: usize = 20;

/// The contents of a source file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SourceFile {
    /// The servers in `prometheus`, keyed by name.
    pub prometheus: BTreeMap<Arc<str>, PrometheusServer>,
    /// The settings in `pods`.
    pub pods: PodSettings,
    /// The settings in `kubelet`.
    pub kubelet: KubeletSettings,
    /// The entries of `adapters`, keyed by API group.
    pub adapters: BTreeMap<Arc<str>, Arc<AdapterGroup>>,
}

/// A server with the query API of Prometheus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrometheusServer {
    /// The name in policies.
    pub name: Arc<str>,
    /// The URL before `/api/v1/query`, without a slash at its end.
    pub url: Uri,
    /// The PEM file with the authorities that may sign the certificate of the server. `None` for the system's
    /// authorities.
    pub ca_file: Option<PathBuf>,
    /// The file with the bearer token. It is read for each request.
    pub bearer_token_file: Option<PathBuf>,
    /// Time limit of a query.
    pub timeout: Duration,
    /// Interval of the source. A response is shared between equal queries for 90 % of the interval.
    pub interval: Duration,
    /// Maximum number of queries in flight. One namespace gets at most half of them, rounded up.
    pub concurrency: usize,
    /// Maximum size of a response in bytes.
    pub max_bytes: usize,
    /// Maximum number of series in a response.
    pub max_series: usize,
    /// The label with the namespace of a series, by which each query is restricted to the namespace of its HPA. `None`
    /// restricts no query.
    pub enforce_namespace_label: Option<String>,
    /// The namespaces whose HPAs may use the server. `None` for all.
    pub namespaces: Option<BTreeSet<String>>,
    /// Whether partial responses and responses with warnings are accepted.
    pub allow_partial: bool,
}

/// An entry of `adapters`: an API group of a further metrics adapter, with the resources of custom.metrics.k8s.io or
/// external.metrics.k8s.io. The controller reads its metrics through the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterGroup {
    /// The name of the API group.
    pub api_group: Arc<str>,
    /// The namespaces whose HPAs may use the group. `None` for all.
    pub namespaces: Option<BTreeSet<String>>,
    /// Maximum number of requests in flight. One namespace gets at most half of them, rounded up.
    pub concurrency: usize,
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AdapterFields {
    api_group: String,
    namespaces: Option<BTreeSet<String>>,
    concurrency: Option<u16>,
}

fn check_length(path: &Path, length: usize) -> Result<(), FileError> {
    if length <= MAX_BYTES {
        return Ok(());
    }
    let reason = format!("it has {length} bytes, at most {MAX_BYTES} are allowed");
    Err(FileError::Unreadable { path: path.to_owned(), reason })
}

impl SourceFile {
    /// Reads and checks a file.
    pub fn read(path: &PathBuf) -> Result<Self, FileError> {
        let unreadable = |reason: String| FileError::Unreadable { path: path.clone(), reason };
        let length = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
        // A huge file is refused before it is read.
        check_length(path, usize::try_from(length).unwrap_or(usize::MAX))?;
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        Self::parse(&text, path)
    }

    /// Parses and checks the text of a file. Errors contain `path`.
    pub fn parse(text: &str, path: &PathBuf) -> Result<Self, FileError> {
        check_length(path, text.len())?;
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
        let adapters = check_adapters(fields.adapters, &prometheus, path)?;
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
            max_bytes: field.bytes("maxBytes", self.max_bytes.as_deref(), answer::BYTES)?,
            max_series: field.count("maxSeries", self.max_series, answer::SERIES, 1_000_000)?,
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

/// Checks the entries of the file. No entry may have the name of a server in `servers`, because metrics identify
/// servers and API groups by the same label.
fn check_adapters(
    entries: Vec<AdapterFields>,
    servers: &BTreeMap<Arc<str>, PrometheusServer>,
    file: &PathBuf,
) -> Result<BTreeMap<Arc<str>, Arc<AdapterGroup>>, FileError> {
    if entries.len() > MAX_ADAPTERS {
        return Err(Field { file, path: String::new() }
            .error("adapters", format!("has more than {MAX_ADAPTERS} entries")));
    }
    let mut groups = BTreeMap::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let field = Field { file, path: format!("adapters[{index}].") };
        let AdapterFields { api_group, namespaces, concurrency } = entry;
        if !is_api_group(&api_group) {
            return Err(field.error(
                "apiGroup",
                format!("must be an API group such as external.metrics.example.com, and none of the default ones, not {api_group:?}"),
            ));
        }
        let concurrency = field.count("concurrency", concurrency.map(u32::from), 32, 1_000)?;
        let api_group: Arc<str> = api_group.into();
        let group = AdapterGroup { api_group: Arc::clone(&api_group), namespaces, concurrency };
        if servers.contains_key(&api_group)
            || groups.insert(Arc::clone(&api_group), Arc::new(group)).is_some()
        {
            return Err(field.error("apiGroup", format!("{api_group:?} is the name of an earlier source")));
        }
    }
    Ok(groups)
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
    fn kubelet(text: &str) -> Result<KubeletSettings, String> {
        parse(text).map(|file| file.kubelet)
    }

    #[test]
    fn kubelets_are_verified_unless_the_file_states_otherwise() {
        let verified =
            kubelet("kubelet: {enabled: true, caFile: /ca.crt, interval: 2s, namespaces: [shop]}").unwrap();
        assert_eq!(verified.ca_file.as_deref(), Some("/ca.crt".as_ref()));
        assert_eq!((verified.port, verified.interval), (10_250, Duration::from_secs(2)));
        assert_eq!(verified.bearer_token_file, PathBuf::from("/var/run/secrets/concertina/kubelet/token"));
        assert!(kubelet("kubelet: {enabled: true, insecureSkipVerify: true}").unwrap().insecure_skip_verify);
        assert_eq!(kubelet("kubelet: {}").unwrap(), KubeletSettings::default());
        let authority = "sources.yaml: kubelet.caFile must name the authority of the kubelets' certificates, \
                         unless insecureSkipVerify is true";
        for (text, expected) in [
            ("{enabled: true}", authority),
            ("{enabled: true, caFile: /ca.crt, insecureSkipVerify: true}", authority),
            ("{port: 0}", "sources.yaml: kubelet.port must be from 1 to 65535, not 0"),
            ("{port: 70000}", "sources.yaml: kubelet.port must be from 1 to 65535, not 70000"),
            ("{interval: 200ms}", "sources.yaml: kubelet.interval must be at least 1s, not 200ms"),
        ] {
            assert_eq!(kubelet(&format!("kubelet: {text}")), Err(expected.to_owned()), "{text}");
        }
    }
}
