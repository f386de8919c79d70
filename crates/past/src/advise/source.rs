//! Where HPAs and their past come from: a cluster or files, and Prometheus or saved records of a controller.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use http::Uri;
use jiff::Timestamp;
use sources::{Dial, Network, PastServer, PrometheusServer, SourceError, TlsError};

use ::cluster::client::Clients;
use ::cluster::kubeconfig::{self, ClusterOptions};
use flags::CliError;
use terminal::ending::on_another_thread;
use terminal::options::{cluster, option, with_one_standard_input};
use terminal::progress::Progress;

use super::objects::{Hpa, Objects};
use super::outcome::Refusal;
use super::record::Records;
use super::recording::{Column, Recording};
use super::{AdviseError, history};

/// Time limit of a query.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum size of an answer of Prometheus in bytes: a week of ten columns has about 3 MB.
const MAX_BYTES: usize = 16 << 20;
/// The group of the flags of which one names the past.
pub(crate) const PAST: &str = "past";
/// HPAs that are read or replayed at the same time.
pub(crate) const IN_FLIGHT: usize = 2;

/// Where HPAs and their past come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastSource {
    /// What has the past.
    pub past: Past,
    /// `--days`.
    pub days: usize,
    /// `--filename`: the files with the HPAs. Empty reads the cluster.
    pub files: Vec<PathBuf>,
    /// The connection to the cluster.
    pub cluster: ClusterOptions,
}

/// What has the past of HPAs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Past {
    /// A Prometheus server.
    Prometheus {
        /// `--prometheus`: the URL before `/api/v1`.
        url: Uri,
        /// `--prometheus-token-file`.
        token_file: Option<PathBuf>,
        /// `--prometheus-ca`.
        ca_file: Option<PathBuf>,
    },
    /// `--record`: files and folders with answers of the decisions API.
    Record(Vec<PathBuf>),
}

/// Reads the past of HPAs.
pub(crate) enum Reader {
    Prometheus(Box<PastServer>),
    Record(Records),
}

/// The reason why the past of an HPA cannot be read.
pub(crate) enum PastError {
    Source(SourceError),
    Refused(Refusal),
}

impl From<PastError> for Refusal {
    fn from(error: PastError) -> Self {
        match error {
            PastError::Source(error) => Self::Unreadable { error: error.to_string() },
            PastError::Refused(refusal) => refusal,
        }
    }
}

impl Reader {
    /// The end of the past: the start of the minute, or the end of the record.
    pub(crate) fn end(&self, now: Timestamp) -> Timestamp {
        let minute = Timestamp::from_second(minute_of(now.as_second())).unwrap_or(now);
        match self {
            Self::Prometheus(_) => minute,
            Self::Record(records) => records.end().unwrap_or(minute),
        }
    }

    /// Reads the last `days` days before `end`.
    pub(crate) async fn read(&self, hpa: &Hpa, end: Timestamp, days: usize) -> Result<Recording, PastError> {
        match self {
            Self::Prometheus(server) => {
                history::read(server, hpa, end, days).await.map_err(PastError::Source)
            }
            Self::Record(records) => records.recording(hpa, end, days).map_err(PastError::Refused),
        }
    }
}

/// Adds the flags to a command.
pub(crate) fn arguments(command: Command) -> Command {
    let path = |name, value, help| option(name, value, help).value_parser(value_parser!(PathBuf));
    let command = command
        .arg(option("prometheus", "url", "Server with the query API of Prometheus").value_parser(url))
        .arg(
            path(
                "record",
                "file",
                "File or folder with answers of the decisions API, instead of Prometheus; repeatable",
            )
            .action(ArgAction::Append)
            .conflicts_with_all(["prometheus", "prometheus-token-file", "prometheus-ca"]),
        )
        .group(ArgGroup::new(PAST).args(["prometheus", "record"]))
        .arg(path("prometheus-token-file", "file", "File with a bearer token; needs https"))
        .arg(path(
            "prometheus-ca",
            "file",
            "PEM file with the authorities of the server; default: the system's",
        ))
        .arg(
            option("days", "number", "Days to read, 3 to 30")
                .value_parser(RangedU64ValueParser::<usize>::new().range(3..=30))
                .default_value("14"),
        )
        .arg(
            path(
                "filename",
                "file",
                "File with the HPAs, instead of the cluster; - reads standard input; repeatable",
            )
            .short('f')
            .action(ArgAction::Append),
        );
    cluster::arguments(command)
}

fn url(text: &str) -> Result<Uri, &'static str> {
    let url = text.trim_end_matches('/').parse::<Uri>().ok().filter(|url| {
        let has_user = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
        matches!(url.scheme_str(), Some("http" | "https")) && !has_user && url.query().is_none()
    });
    url.ok_or("must be http:// or https:// with a host, without user and query")
}

impl PastSource {
    /// Reads the options from the arguments. `None` without `--prometheus` and `--record`.
    ///
    /// # Errors
    /// Returns [`CliError`] if a token would be sent unencrypted, or two files are standard input.
    pub(crate) fn from_matches(matches: &ArgMatches) -> Result<Option<Self>, CliError> {
        let path = |name| matches.get_one::<PathBuf>(name).cloned();
        let paths = |name| matches.get_many::<PathBuf>(name).map(|paths| paths.cloned().collect::<Vec<_>>());
        let past = match (matches.get_one::<Uri>("prometheus").cloned(), paths("record")) {
            (Some(url), _) => {
                let token_file = path("prometheus-token-file");
                if token_file.is_some() && url.scheme_str() != Some("https") {
                    let problem = "--prometheus-token-file: a token is only sent over https://";
                    return Err(CliError::Subcommand(problem.to_owned()));
                }
                Past::Prometheus { url, token_file, ca_file: path("prometheus-ca") }
            }
            (None, Some(paths)) => Past::Record(paths),
            (None, None) => return Ok(None),
        };
        let files = paths("filename").unwrap_or_default();
        Ok(Some(Self {
            past,
            days: matches.get_one::<usize>("days").copied().unwrap_or(14),
            files: with_one_standard_input(files)?,
            cluster: cluster::options(matches),
        }))
    }

    /// The clients of the cluster, and the user's namespace. `None` if the HPAs are in files.
    pub(crate) fn connect(&self) -> Result<Option<(Clients, String)>, AdviseError> {
        if !self.files.is_empty() {
            return Ok(None);
        }
        let user = kubeconfig::load_for_user(&self.cluster)?;
        let reading = cluster::at_kubectl_rate(cluster::reads_only());
        Ok(Some((cluster::clients(&user, reading)?, user.namespace)))
    }

    /// Reads the HPAs of a namespace, or of all.
    pub(crate) async fn objects(
        &self,
        clients: Option<&Clients>,
        namespace: Option<&str>,
        progress: Progress,
    ) -> Result<Objects, AdviseError> {
        let Some(clients) = clients else { return Objects::read_files(&self.files, namespace) };
        let reading = progress.during("reading HPAs", Objects::read(&clients.core, namespace));
        reading.await.map_err(|error| AdviseError::Unreadable(Box::new(error)))
    }

    /// The connection to Prometheus.
    pub(crate) fn network(&self) -> Result<Arc<dyn Dial>, TlsError> {
        Ok(Arc::new(match &self.past {
            Past::Prometheus { url, ca_file, .. } if url.scheme_str() == Some("https") => {
                Network::tls(ca_file.as_deref())?
            }
            _ => Network::plain(),
        }))
    }

    /// The reader of the past, from Prometheus over a connection or from files.
    pub(crate) async fn reader(&self, dial: Arc<dyn Dial>) -> Result<Reader, AdviseError> {
        let (url, token_file, ca_file) = match &self.past {
            Past::Prometheus { url, token_file, ca_file } => (url, token_file, ca_file),
            Past::Record(paths) => {
                let paths = paths.clone();
                return on_another_thread(move || Ok(Reader::Record(Records::read(&paths)?))).await;
            }
        };
        let settings = PrometheusServer {
            name: "--prometheus".into(),
            url: url.clone(),
            ca_file: ca_file.clone(),
            bearer_token_file: token_file.clone(),
            timeout: TIMEOUT,
            interval: TIMEOUT,
            concurrency: 2 * IN_FLIGHT,
            max_bytes: MAX_BYTES,
            max_series: Column::ALL.len(),
            enforce_namespace_label: None,
            namespaces: None,
            allow_partial: false,
        };
        Ok(Reader::Prometheus(Box::new(PastServer::new(settings, dial))))
    }
}

/// The first second of a minute.
pub(crate) fn minute_of(second: i64) -> i64 {
    second.div_euclid(60) * 60
}
