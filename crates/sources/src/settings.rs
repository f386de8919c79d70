//! The settings of the scrapers in the source file, and the checks of its fields.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use limits::page;
use serde::Deserialize;

/// Default file with the token of an account that may only read metrics of nodes.
const TOKEN: &str = "/var/run/secrets/concertina/kubelet/token";
/// Minimum interval between two scrapes of a node. Kubelets measure only every ten seconds.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// An unusable source file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read {}: {reason}", .path.display())]
    Unreadable {
        /// The path of the source file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The file is not YAML, or has an unknown field or a value of another type.
    #[error("{} is invalid: {reason}", .path.display())]
    Syntax {
        /// The path of the source file.
        path: PathBuf,
        /// The cause, with the line and the field.
        reason: String,
    },
    /// A field has an invalid value.
    #[error("{}: {field} {reason}", .path.display())]
    Field {
        /// The path of the source file.
        path: PathBuf,
        /// The path of the field, such as `prometheus[0].url`.
        field: String,
        /// The rest of a sentence with the field as its subject, such as `must be from 1 to 65535, not 0`.
        reason: String,
    },
}

/// The position of an object in the file. Its methods check the fields of the object.
pub(crate) struct Field<'a> {
    pub(crate) file: &'a PathBuf,
    pub(crate) path: String,
}

impl Field<'_> {
    pub(crate) fn error(&self, name: &str, reason: impl Into<String>) -> FileError {
        let (path, field) = (self.file.clone(), format!("{}{name}", self.path));
        FileError::Field { path, field, reason: reason.into() }
    }

    /// Parses a time such as `500ms`, `5s` or `1m`, from 100 ms to 5 min.
    pub(crate) fn time(
        &self,
        name: &str,
        text: Option<&str>,
        default: Duration,
    ) -> Result<Duration, FileError> {
        let Some(text) = text else { return Ok(default) };
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
        let unit = match text.get(digits.len()..).unwrap_or_default() {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            _ => 0,
        };
        let millis = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
        let time = millis.map(|millis| Duration::from_millis(millis.into()));
        time.filter(|time| (Duration::from_millis(100)..=Duration::from_mins(5)).contains(time)).ok_or_else(
            || self.error(name, format!("must be a time from 100ms to 5m, such as 5s, not {text:?}")),
        )
    }

    pub(crate) fn bytes(&self, name: &str, text: Option<&str>, default: usize) -> Result<usize, FileError> {
        let Some(text) = text else { return Ok(default) };
        let quantity = text.parse::<autoscaling::quantity::Quantity>().ok();
        let bytes = quantity.and_then(|quantity| usize::try_from(quantity.value()).ok());
        bytes.filter(|bytes| (1_024..=256 << 20).contains(bytes)).ok_or_else(|| {
            self.error(name, format!("must be a size from 1Ki to 256Mi, such as 4Mi, not {text:?}"))
        })
    }

    pub(crate) fn count(
        &self,
        name: &str,
        count: Option<u32>,
        default: usize,
        most: u32,
    ) -> Result<usize, FileError> {
        let Some(count) = count else { return Ok(default) };
        let valid = Some(count).filter(|count| (1..=most).contains(count));
        valid
            .and_then(|count| usize::try_from(count).ok())
            .ok_or_else(|| self.error(name, format!("must be from 1 to {most}, not {count}")))
    }
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
    /// Maximum size of a page in bytes.
    pub max_bytes: usize,
    /// Maximum number of series in a page that match one metric.
    pub max_series: usize,
    /// Time limit of a scrape.
    pub timeout: Duration,
    /// Maximum number of scrapes in flight. One namespace gets at most half of them, rounded up.
    pub concurrency: usize,
    /// Maximum number of pages that are scraped for a namespace.
    pub max_pages_per_namespace: usize,
}

impl Default for PodSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            namespaces: None,
            tls: false,
            secret_namespaces: BTreeSet::new(),
            max_bytes: page::BYTES,
            max_series: page::SERIES,
            timeout: Duration::from_secs(1),
            concurrency: 256,
            max_pages_per_namespace: 10_000,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct PodFields {
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

impl PodFields {
    pub(crate) fn check(self, field: &Field<'_>) -> Result<PodSettings, FileError> {
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

/// The settings of the scraper of kubelets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletSettings {
    /// Whether kubelets may be scraped.
    pub enabled: bool,
    /// The namespaces whose HPAs may use kubelets. `None` for all.
    pub namespaces: Option<BTreeSet<String>>,
    /// The port of each kubelet.
    pub port: u16,
    /// The PEM file with the authorities that may sign the certificates of kubelets.
    pub ca_file: Option<PathBuf>,
    /// Whether the certificates of kubelets are not verified.
    pub insecure_skip_verify: bool,
    /// The file with the bearer token. It is read for each request.
    pub bearer_token_file: PathBuf,
    /// The time between two scrapes of a node.
    pub interval: Duration,
    /// Time limit of a scrape.
    pub timeout: Duration,
    /// Maximum number of scrapes in flight.
    pub concurrency: usize,
    /// Maximum size of a page in bytes.
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
