//! `concertina why`: why an HPA has the count it has, and what it does next.
//!
//! Nothing is computed a second time here: a real controller decides, of which every write is refused.

mod flags;
mod history;
mod lists;
mod objects;
mod read;
mod refusals;
pub mod situation;
mod wire;

pub use self::flags::{ControllerFlags, NAMES as CONTROLLER_FLAGS};
pub use self::read::{Question, Reader, client_options};
pub use self::refusals::Refusals;
pub use self::situation::Situation;
use crate::api::client::ClientError;
use crate::api::error::ApiError;
use crate::api::kubeconfig::KubeconfigError;
use crate::store::Key;

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
        error: ApiError,
    },
    /// There is no such HPA.
    #[error("there is no HPA {} in namespace {}{}", .key.name, .key.namespace, listed(.there))]
    NotFound {
        /// Which.
        key: Key,
        /// Those that the namespace has.
        there: Vec<String>,
    },
    /// The flags do not go together with the version of the server.
    #[error("{0}")]
    Flags(String),
    /// The answer cannot be written.
    #[error("the answer cannot be written: {0}")]
    Output(#[from] std::io::Error),
}

fn listed(there: &[String]) -> String {
    if there.is_empty() { String::new() } else { format!(" (there are: {})", there.join(", ")) }
}
