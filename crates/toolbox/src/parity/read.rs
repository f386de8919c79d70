//! Reads a comparison from the pod of a dry run, from an address, or from a file.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::forward::{self, ForwardError, Which};
use crate::options;
use crate::options::parity::Source;
use crate::why::{RecordError, connect};
use cluster::call::Call;
use cluster::client::ClientError;
use cluster::error::ApiError;
use cluster::kubeconfig::{self, ClusterOptions, KubeconfigError};
use controller::record::wire::API_VERSION;
use controller::shadow::wire::{SHADOW_REPORT, ShadowReport};

/// Maximum size of a response, in bytes. The ledger's bounds keep responses several times smaller.
const LARGEST: usize = 64 << 20;

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
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The content is not a comparison.
    #[error("not a response of /parity of a dry run: {0}")]
    Form(String),
}

/// Reads the comparison of a dry run.
pub(super) async fn report(source: &Source) -> Result<ShadowReport, ReadError> {
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

async fn pod(cluster: &ClusterOptions, namespace: &str, instance: &str) -> Result<ShadowReport, ReadError> {
    let user = kubeconfig::load_for_user(cluster)?;
    let clients = options::cluster::clients(&user, options::cluster::reads_only())?;
    let selector = format!("app.kubernetes.io/name=concertina,app.kubernetes.io/instance={instance}");
    let which = Which::Labelled { namespace: namespace.to_owned(), selector };
    let answer = forward::fetch(&clients, &which, "/parity").await?;
    parse(&answer)
}

fn file(path: &Path) -> Result<ShadowReport, ReadError> {
    let unreadable = |error| ReadError::File { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(unreadable)?;
    } else {
        bytes = std::fs::read(path).map_err(unreadable)?;
    }
    parse(&bytes)
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
