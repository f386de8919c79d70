//! The HPAs that a client may see.

use std::collections::BTreeSet;
use std::fmt::Debug;

use futures::future::BoxFuture;

/// Maximum number of namespaces that are reviewed for one client.
pub const MAX_NAMESPACES: usize = 100;

/// The HPAs that a client may see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Visible {
    /// All HPAs.
    #[default]
    All,
    /// The HPAs of some namespaces.
    Namespaces {
        /// The namespaces.
        names: BTreeSet<String>,
        /// The number of namespaces beyond [`MAX_NAMESPACES`], which were not reviewed.
        unreviewed: usize,
    },
}

/// Reviews the access of a client, at the start of its stream and then every 30 s.
pub trait Review: Debug + Send + Sync + 'static {
    /// Returns the HPAs that the client may see in the given namespaces, which have HPAs. `None` ends the stream.
    fn review(&self, namespaces: BTreeSet<String>) -> BoxFuture<'static, Option<Visible>>;
}

impl Visible {
    /// Whether the client may see the HPAs of a namespace.
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces { names, .. } => names.contains(namespace),
        }
    }
}
