//! The controller's copy of the cluster: pods and their addresses, HPAs, targets, and HPAs that share pods.
//!
//! The watches write. The syncs read, record their writes, and claim selectors. Every method takes `&self`. The locks
//! are internal. They are held for one lookup or one change, and never across an `await`. A list that replaces the
//! content is collected separately until `finish`, so that readers of a namespace never see a part of it. A list covers
//! the whole cluster or one namespace. Several namespaces may be listed at the same time.
//!
//! Memory follows the cluster: shared values are reference-counted and freed with their last user.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

mod addresses;
mod hpas;
mod input;
mod intern;
mod namespace;
mod overlap;
mod packed;
mod pods;
mod targets;
#[cfg(test)]
mod tests;

pub use addresses::Addresses;
pub(crate) use hpas::is_older;
pub use hpas::{Change, HpaRecord, Hpas, Staleness, StatusWriter, Update};
pub use input::{ContainerInput, PodInput};
pub use overlap::Overlap;
pub(crate) use packed::PackedJson;
pub use packed::{LARGE_SPEC, PackedHpa};
pub use pods::{Pods, Stats};
pub use targets::{Target, TargetInput, Targets};

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl Key {
    /// Creates the key of an object.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The lists in progress: one of everything, or separate lists of some namespaces.
#[derive(Debug, Default)]
struct OpenLists {
    everything: bool,
    namespaces: BTreeSet<Arc<str>>,
}

impl OpenLists {
    /// Starts a list of a namespace, or of all.
    fn start(&mut self, namespace: Option<&str>) {
        match namespace {
            Some(namespace) => {
                self.namespaces.insert(namespace.into());
            }
            None => self.everything = true,
        }
    }

    /// Ends a list. Returns whether it was in progress.
    fn end(&mut self, namespace: Option<&str>) -> bool {
        match namespace {
            Some(namespace) => self.namespaces.remove(namespace),
            None => std::mem::take(&mut self.everything),
        }
    }

    /// Whether a list in progress covers this namespace.
    fn covers(&self, namespace: &str) -> bool {
        self.everything || self.namespaces.contains(namespace)
    }
}

/// Whether an object of a namespace is in the scope of a list.
fn within(namespace: &str, scope: Option<&str>) -> bool {
    scope.is_none_or(|scope| scope == namespace)
}
