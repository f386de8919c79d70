//! Where HPAs and their past come from: a cluster or files, and Prometheus.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, ArgMatches, Command, value_parser};
use http::Uri;
use jiff::Timestamp;
use sources::{Dial, Network, PastServer, PrometheusServer, TlsError};

use ::cluster::client::Clients;
use ::cluster::kubeconfig::{self, ClusterOptions};
use flags::CliError;
use terminal::options::{cluster, option, with_one_standard_input};
use terminal::progress::Progress;

use super::AdviseError;
use super::objects::Objects;
use super::recording::Column;

/// Time limit of a query.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum size of an answer of Prometheus in bytes: a week of ten columns has about 3 MB.
const MAX_BYTES: usize = 16 << 20;
/// HPAs that are read or replayed at the same time.
pub(crate) const IN_FLIGHT: usize = 2;

/// Where HPAs and their past come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastSource {
    /// `--prometheus`: the URL before `/api/v1`.
    pub prometheus: Uri,
    /// `--prometheus-token-file`.
    pub token_file: Option<PathBuf>,
    /// `--prometheus-ca`.
    pub ca_file: Option<PathBuf>,
    /// `--days`.
    pub days: usize,
    /// `--filename`: the files with the HPAs. Empty reads the cluster.
    pub files: Vec<PathBuf>,
    /// The connection to the cluster.
    pub cluster: ClusterOptions,
}

/// Adds the flags to a command.
pub(crate) fn arguments(command: Command) -> Command {
    let path = |name, value, help| option(name, value, help).value_parser(value_parser!(PathBuf));
    let command = command
        .arg(option("prometheus", "url", "Server with the query API of Prometheus").value_parser(url))
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
    /// Reads the options from the arguments. `None` without `--prometheus`.
    ///
    /// # Errors
    /// Returns [`CliError`] if a token would be sent unencrypted, or two files are standard input.
    pub(crate) fn from_matches(matches: &ArgMatches) -> Result<Option<Self>, CliError> {
        let path = |name| matches.get_one::<PathBuf>(name).cloned();
        let Some(prometheus) = matches.get_one::<Uri>("prometheus").cloned() else { return Ok(None) };
        let files = matches.get_many::<PathBuf>("filename").into_iter().flatten().cloned().collect();
        let token_file = path("prometheus-token-file");
        if token_file.is_some() && prometheus.scheme_str() != Some("https") {
            let problem = "--prometheus-token-file: a token is only sent over https://";
            return Err(CliError::Subcommand(problem.to_owned()));
        }
        Ok(Some(Self {
            prometheus,
            token_file,
            ca_file: path("prometheus-ca"),
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
        Ok(Arc::new(match self.prometheus.scheme_str() {
            Some("https") => Network::tls(self.ca_file.as_deref())?,
            _ => Network::plain(),
        }))
    }

    /// Prometheus over a connection.
    pub(crate) fn server(&self, dial: Arc<dyn Dial>) -> PastServer {
        let settings = PrometheusServer {
            name: "--prometheus".into(),
            url: self.prometheus.clone(),
            ca_file: self.ca_file.clone(),
            bearer_token_file: self.token_file.clone(),
            timeout: TIMEOUT,
            interval: TIMEOUT,
            concurrency: 2 * IN_FLIGHT,
            max_bytes: MAX_BYTES,
            max_series: Column::ALL.len(),
            enforce_namespace_label: None,
            namespaces: None,
            allow_partial: false,
        };
        PastServer::new(settings, dial)
    }
}

/// The end of the past: the start of the minute.
pub(crate) fn end(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second().div_euclid(60) * 60).unwrap_or(now)
}
