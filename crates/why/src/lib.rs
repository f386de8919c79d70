//! `concertina why`: explains the replica count of an HPA and its next decision.
//!
//! This module contains no decision logic. The controller's code decides, and its clients refuse every write.

mod answer;
pub mod counterfactual;
mod explained_controller;
pub mod findings;
mod from;
mod history;
mod objects;
pub mod options;
mod read;
pub mod render;
mod responses;
#[cfg(test)]
mod scene;
#[cfg(test)]
#[path = "../../../tests/support/schemas.rs"]
mod schemas;
pub mod situation;
mod sources;
mod targets;

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Arc;

use autoscaling::selector::Selector;
use tokio_util::sync::CancellationToken;

pub use self::answer::Diagnosis;
use self::answer::{Backend, View};
pub use self::findings::{Unknown, unknowns};
pub use self::from::RecordError;
use self::from::Records;
pub use self::read::{Question, Reader, client_options};
pub use self::responses::Refusals;
pub use self::situation::Situation;
use crate::options::WhyOptions;
use clock::SharedClock;
use cluster::client::{ClientError, Clients};
use cluster::error::ApiError;
use cluster::kubeconfig::{self, ClusterOptions, KubeconfigError};
use engine::store::Key;
use flags::FlagError;
use terminal::options::EncodeError;

/// The namespace of existing clients if no flag sets one.
const DEFAULT_NAMESPACE: &str = "default";

/// The HPAs to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The namespace of the HPAs. `None` means all namespaces.
    pub namespace: Option<String>,
    /// The name of the HPA. `None` means all HPAs of the namespace.
    pub name: Option<String>,
    /// The labels of the HPAs. `None` means all HPAs. A controller's record has no labels, so the selector is not
    /// supported for a record.
    pub selector: Option<Selector>,
}

/// The reason why no answer is available. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The client for the cluster cannot be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A resource that every answer needs cannot be read.
    #[error("cannot read {what}: {error}")]
    Unreadable {
        /// The resource, such as `HPAs`.
        what: &'static str,
        /// The error of the server or the connection.
        error: Box<ApiError>,
    },
    /// The HPA does not exist.
    #[error("HPA {} not found in namespace {}{}", .key.name, .key.namespace, listed(.there))]
    NotFound {
        /// The requested HPA.
        key: Key,
        /// The names of the HPAs in the namespace.
        there: Vec<String>,
    },
    /// The record of the decision cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The flags conflict with the version of the server.
    #[error(transparent)]
    Flags(#[from] FlagError),
    /// The answer cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The answer cannot be written.
    #[error("failed to write the answer: {0}")]
    Write(#[from] std::io::Error),
    /// The command was interrupted before it had an answer.
    #[error("interrupted")]
    Interrupted,
}

fn listed(there: &[String]) -> String {
    if there.is_empty() { String::new() } else { format!(" (existing: {})", there.join(", ")) }
}

/// Prints the answer to standard output once, or with `--watch` repeatedly until `stop`.
///
/// # Errors
/// Returns a [`WhyError`] if no answer is available or the answer cannot be written.
pub async fn run(
    options: &WhyOptions,
    clock: SharedClock,
    stop: CancellationToken,
) -> Result<Diagnosis, WhyError> {
    let mut out = std::io::stdout();
    let view = View::of_process(options, out.is_terminal());
    let asking = async {
        if let Some(address) = &options.from {
            let scope = scope(options, kubeconfig::namespace_for_user(&options.cluster)?);
            return Ok(Backend::Record(Box::new(Records::at(address, scope, clock).await?)));
        }
        let user = kubeconfig::load_for_user(&options.cluster)?;
        let refusals = Refusals::new();
        let clients = terminal::options::cluster::clients(&user, client_options(&refusals))?;
        cluster(options, &clients, refusals, user.namespace, clock).await
    };
    let asking = Box::pin(view.progress.during("connecting", asking));
    let backend = stop.run_until_cancelled(asking).await.unwrap_or(Err(WhyError::Interrupted))?;
    match answer::answer(backend, &view, &mut out, &stop).await {
        // The reader of the pipe has stopped reading, as `head` does.
        Err(WhyError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(Diagnosis::Healthy),
        answered => answered,
    }
}

/// Returns the names of the HPAs in the namespace of a user's connection.
///
/// # Errors
/// Returns a [`WhyError`] if the HPAs cannot be read.
pub async fn hpa_names_of(options: &ClusterOptions) -> Result<Vec<String>, WhyError> {
    let user = kubeconfig::load_for_user(options)?;
    let clients = terminal::options::cluster::clients(&user, client_options(&Refusals::new()))?;
    objects::names(&clients, &user.namespace).await
}

/// The server to which existing clients connect.
#[derive(Debug)]
pub enum Connection<'a> {
    /// An API server.
    Cluster {
        /// Clients created with [`client_options`] of `refusals`.
        clients: &'a Clients,
        /// The reads that the server refuses.
        refusals: Arc<Refusals>,
    },
    /// A controller.
    Record {
        /// Clients without credentials.
        clients: &'a Clients,
        /// The URL of the controller in answers.
        url: String,
    },
}

/// Prints the same answer as [`run`], but with existing clients and to `out`.
///
/// # Errors
/// Returns a [`WhyError`] if no answer is available or the answer cannot be written.
pub async fn run_with(
    options: &WhyOptions,
    connection: Connection<'_>,
    clock: SharedClock,
    out: &mut dyn Write,
    stop: CancellationToken,
) -> Result<Diagnosis, WhyError> {
    let namespace = options.cluster.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let backend = match connection {
        Connection::Cluster { clients, refusals } => {
            cluster(options, clients, refusals, namespace, clock).await?
        }
        Connection::Record { clients, url } => {
            Backend::Record(Box::new(Records::over(clients, url, scope(options, namespace), clock)))
        }
    };
    answer::answer(backend, &View::new(options), out, &stop).await
}

async fn cluster(
    options: &WhyOptions,
    clients: &Clients,
    refusals: Arc<Refusals>,
    namespace: String,
    clock: SharedClock,
) -> Result<Backend, WhyError> {
    let question = Question {
        clients,
        refusals,
        scope: scope(options, namespace),
        flags: &options.flags,
        watch: options.watch.is_some(),
        leaders: options.leaders.clone(),
        clock,
    };
    Ok(Backend::Cluster(Box::new(Reader::connect(question).await?)))
}

fn scope(options: &WhyOptions, namespace: String) -> Scope {
    Scope {
        namespace: (!options.all_namespaces).then_some(namespace),
        name: options.name.clone(),
        selector: options.selector.clone(),
    }
}
