//! `concertina why`: why an HPA has the count it has, and what it does next.
//!
//! Nothing is computed a second time here: a real controller decides, of which every write is refused.

pub mod counterfactual;
pub mod findings;
mod flags;
mod from;
mod history;
mod leader;
mod lists;
mod objects;
mod output;
mod read;
mod refusals;
pub mod render;
#[cfg(test)]
mod scene;
pub mod situation;
mod tell;
mod unknown;
mod wire;

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use self::from::RecordError;
use self::from::Records;
pub(in crate::commands) use self::from::way;
pub use self::read::{Question, Reader, client_options};
pub use self::refusals::Refusals;
pub use self::situation::Situation;
pub use self::tell::Found;
use self::tell::{Asked, View};
pub use self::unknown::{Unknown, unknowns};
use crate::api::client::{ClientError, Clients};
use crate::api::error::ApiError;
use crate::api::kubeconfig::{self, KubeconfigError};
use crate::cli::WhyOptions;
use crate::clock::SharedClock;
use crate::store::Key;

/// Where nobody names one.
const DEFAULT_NAMESPACE: &str = "default";

/// Which HPAs are asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The namespace; none means all.
    pub namespace: Option<String>,
    /// The HPA; none means all of the namespace.
    pub name: Option<String>,
}

/// Why there is no answer. Exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    /// There is no way to the cluster.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The way to the cluster cannot be used.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Something that every answer needs cannot be read.
    #[error("cannot read {what}: {error}")]
    Unreadable {
        /// What.
        what: &'static str,
        /// What the server or the connection said.
        error: Box<ApiError>,
    },
    /// There is no such HPA.
    #[error("there is no HPA {} in namespace {}{}", .key.name, .key.namespace, listed(.there))]
    NotFound {
        /// Which.
        key: Key,
        /// Those that the namespace has.
        there: Vec<String>,
    },
    /// There is no record of the decision.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The flags do not go together with the version of the server.
    #[error("{0}")]
    Flags(String),
    /// The answer cannot be put into its form.
    #[error("the answer cannot be written as {form}: {error}")]
    Form {
        /// `JSON` or `YAML`.
        form: &'static str,
        /// Why.
        error: String,
    },
    /// The answer cannot be written.
    #[error("the answer cannot be written: {0}")]
    Write(#[from] std::io::Error),
    /// It was interrupted before there was an answer.
    #[error("interrupted")]
    Interrupted,
}

fn listed(there: &[String]) -> String {
    if there.is_empty() { String::new() } else { format!(" (there are: {})", there.join(", ")) }
}

/// Answers on standard output, once or until `stop`.
///
/// # Errors
/// What [`WhyError`] lists.
pub async fn run(
    options: &WhyOptions,
    clock: SharedClock,
    stop: CancellationToken,
) -> Result<Found, WhyError> {
    let mut out = std::io::stdout();
    let view = View::new(options, out.is_terminal());
    let asking = async {
        if let Some(address) = &options.from {
            let namespace = options.cluster.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
            let scope = scope(options, namespace);
            return Ok(Asked::Record(Box::new(Records::at(address, scope, clock).await?)));
        }
        let user = kubeconfig::load_for_user(&options.cluster)?;
        let refusals = Refusals::new();
        let mut client_options = client_options(&refusals);
        if let Some(timeout) = user.request_timeout {
            client_options.request_timeout = timeout;
        }
        let clients = Clients::new(&user.config, &client_options)?;
        cluster(options, &clients, refusals, user.namespace, clock).await
    };
    let asked = stop.run_until_cancelled(asking).await.unwrap_or(Err(WhyError::Interrupted))?;
    match tell::tell(asked, &view, &mut out, &stop).await {
        // Whoever reads has seen enough, as `head` does.
        Err(WhyError::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(Found::Healthy),
        told => told,
    }
}

/// Whom clients that exist already lead to.
#[derive(Debug)]
pub enum Way<'a> {
    /// To an API server.
    Cluster {
        /// Made with [`client_options`] of these refusals.
        clients: &'a Clients,
        /// What may not be read.
        refusals: Arc<Refusals>,
    },
    /// To a controller.
    Record {
        /// Without credentials.
        clients: &'a Clients,
        /// How answers call it.
        url: String,
    },
}

/// The same with clients that exist already.
///
/// # Errors
/// What [`WhyError`] lists.
pub async fn run_with(
    options: &WhyOptions,
    way: Way<'_>,
    clock: SharedClock,
    out: &mut dyn Write,
    stop: CancellationToken,
) -> Result<Found, WhyError> {
    let namespace = options.cluster.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let asked = match way {
        Way::Cluster { clients, refusals } => cluster(options, clients, refusals, namespace, clock).await?,
        Way::Record { clients, url } => {
            Asked::Record(Box::new(Records::over(clients, url, scope(options, namespace), clock)))
        }
    };
    tell::tell(asked, &View::new(options, false), out, &stop).await
}

async fn cluster(
    options: &WhyOptions,
    clients: &Clients,
    refusals: Arc<Refusals>,
    namespace: String,
    clock: SharedClock,
) -> Result<Asked, WhyError> {
    let question = Question {
        clients,
        refusals,
        scope: scope(options, namespace),
        flags: &options.flags,
        watch: options.watch.is_some(),
        leader: options.leader.clone(),
        clock,
    };
    Ok(Asked::Cluster(Box::new(Reader::connect(question).await?)))
}

fn scope(options: &WhyOptions, namespace: String) -> Scope {
    Scope { namespace: (!options.all_namespaces).then_some(namespace), name: options.name.clone() }
}
