//! Where what was compared comes from: the pod of a dry run, an address, a file.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::api::call::Call;
use crate::api::client::{ClientError, ClientOptions, Clients};
use crate::api::error::ApiError;
use crate::api::forward::{self, ForwardError, Which};
use crate::api::gate::{Gate, Refusal};
use crate::api::kubeconfig::{self, ClusterOptions, KubeconfigError};
use crate::cli::parity::Source;
use crate::commands::why::{RecordError, way};
use crate::record::wire::API_VERSION;
use crate::shadow::wire::{SHADOW_REPORT, ShadowReport};

/// The largest answer, in bytes; several times what the bounds of the ledger allow.
const LARGEST: usize = 64 << 20;

/// Why what was compared cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no way to the cluster.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The way to the cluster cannot be used.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The pod of the dry run does not answer.
    #[error("{0}; --shadow names the pod of the dry run, --from another way to it")]
    Forward(#[from] ForwardError),
    /// The address does not do.
    #[error(transparent)]
    Address(#[from] RecordError),
    /// The controller at the address does not answer with what was compared.
    #[error("{url} gives no comparison: {error}")]
    Unreadable {
        /// Where.
        url: String,
        /// What it said.
        error: Box<ApiError>,
    },
    /// A file cannot be read.
    #[error("cannot read {} (--from): {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// What was read is something else.
    #[error("this is not what /parity of a dry run answers: {0}")]
    Form(String),
}

/// What a dry run has compared.
pub(super) async fn report(source: &Source) -> Result<ShadowReport, ReadError> {
    match source {
        Source::Pod { cluster, namespace, instance } => pod(cluster, namespace, instance).await,
        Source::Address(address) => {
            let (clients, url) = way(address).await?;
            let call = Call::get(["parity"]).at_most(LARGEST);
            let read = clients.watch.json(&call).await;
            checked(read.map_err(|error| ReadError::Unreadable { url, error: Box::new(error) })?)
        }
        Source::File(path) => file(path),
    }
}

async fn pod(cluster: &ClusterOptions, namespace: &str, instance: &str) -> Result<ShadowReport, ReadError> {
    let user = kubeconfig::load_for_user(cluster)?;
    let mut options = ClientOptions { gate: Gate::refusing(Refusal::DryRun), ..ClientOptions::default() };
    if let Some(timeout) = user.request_timeout {
        options.request_timeout = timeout;
    }
    let clients = Clients::new(&user.config, &options)?;
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
