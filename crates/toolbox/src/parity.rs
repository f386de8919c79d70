//! `concertina parity`: reports the comparison of a dry run with the built-in controller.
//!
//! The comparison comes from the pod of the dry run, from an address or from a file. [`summary`] aggregates it, and
//! [`text`] and [`page`] render the result.

pub mod page;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod text;

use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

pub use self::summary::Summary;
use crate::explain::{Style, Zone};
use crate::forward::{self, ForwardError, Which};
use crate::options::parity::{Output, Source};
use crate::options::{ParityOptions, cluster};
use crate::why::{RecordError, connect};
use ::cluster::call::Call;
use ::cluster::client::ClientError;
use ::cluster::error::ApiError;
use ::cluster::kubeconfig::{self, ClusterOptions, KubeconfigError};
use controller::record::wire::API_VERSION;
use controller::shadow::wire::{SHADOW_REPORT, ShadowReport};

/// Maximum size of a response, in bytes.
const LARGEST: usize = 64 << 20;

/// The reason why no report is available. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum ParityError {
    /// The comparison cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The report cannot be written.
    #[error("failed to write the report: {0}")]
    Write(#[from] io::Error),
    /// The command was interrupted before it had a report.
    #[error("interrupted")]
    Interrupted,
}

/// The reason why the comparison cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The client for the cluster cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The pod of the dry run does not respond.
    #[error("{0}; select the pod of the dry run with --shadow, or its address with --from")]
    Forward(#[from] ForwardError),
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] RecordError),
    /// The controller at the address does not respond with a comparison.
    #[error("failed to read the comparison from {url}: {error}")]
    Unreadable {
        /// The URL of the controller.
        url: String,
        /// The error of the controller or the connection.
        error: Box<ApiError>,
    },
    /// A file cannot be read.
    #[error("cannot read {} (--from): {error}", path.display())]
    File {
        /// The path of the file, or `-`.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The content is not a comparison.
    #[error("not a response of /parity of a dry run: {0}")]
    Form(String),
}

/// Writes the report to standard output. Returns whether there are differences.
///
/// # Errors
/// Returns a [`ParityError`] if the comparison cannot be read, the report cannot be written, or `stop` is
/// cancelled first.
pub async fn run(options: &ParityOptions, stop: CancellationToken) -> Result<bool, ParityError> {
    let reading = stop.run_until_cancelled(read(&options.source)).await;
    let report = reading.ok_or(ParityError::Interrupted)??;
    let mut out = io::stdout();
    let is_terminal = out.is_terminal();
    match show(&report, options, is_terminal, &mut out) {
        // The reader of the pipe has stopped reading, as `head` does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        shown => Ok(shown?),
    }
}

/// Writes the report. Returns whether there are differences.
///
/// # Errors
/// Returns the error if `out` cannot be written.
pub fn show(
    report: &ShadowReport,
    options: &ParityOptions,
    is_terminal: bool,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let summary = Summary::new(report, options.since, options.namespace.as_deref());
    let colours = options.color.applies(is_terminal);
    let zone = Zone::local(options.utc);
    let text = match options.output {
        Output::Text => text::render(&summary, Style { colours, width: None }, &zone),
        Output::Html => page::render(&summary, &zone),
        Output::Json => serde_json::to_string_pretty(&summary)? + "\n",
        Output::Yaml => serde_saphyr::to_string(&summary).map_err(io::Error::other)?,
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(summary.counts.differences() > 0)
}

/// Reads the comparison of a dry run.
async fn read(source: &Source) -> Result<ShadowReport, ReadError> {
    match source {
        Source::Pod { cluster, namespace, instance } => pod(cluster, namespace, instance).await,
        Source::Address(address) => {
            let (clients, url) = connect(address).await?;
            let call = Call::get(["parity"]).at_most(LARGEST);
            let read = clients.watch.json(&call).await;
            checked(read.map_err(|error| ReadError::Unreadable { url, error: Box::new(error) })?)
        }
        Source::File(path) => file(path),
    }
}

async fn pod(options: &ClusterOptions, namespace: &str, instance: &str) -> Result<ShadowReport, ReadError> {
    let user = kubeconfig::load_for_user(options)?;
    let clients = cluster::clients(&user, cluster::reads_only())?;
    let selector = format!("app.kubernetes.io/name=concertina,app.kubernetes.io/instance={instance}");
    let which = Which::Labelled { namespace: namespace.to_owned(), selector };
    let answer = forward::fetch(&clients, &which, "/parity").await?;
    parse(&answer)
}

fn file(path: &Path) -> Result<ShadowReport, ReadError> {
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    parse(&read.map_err(|error| ReadError::File { path: path.to_owned(), error })?)
}

fn parse(bytes: &[u8]) -> Result<ShadowReport, ReadError> {
    checked(serde_json::from_slice(bytes).map_err(|error| ReadError::Form(error.to_string()))?)
}

fn checked(report: ShadowReport) -> Result<ShadowReport, ReadError> {
    let (version, kind) = (&report.api_version, &report.kind);
    if version != API_VERSION || kind != SHADOW_REPORT {
        let what = format!("it is a {kind} of {version}, not a {SHADOW_REPORT} of {API_VERSION}");
        return Err(ReadError::Form(what));
    }
    Ok(report)
}
