//! The controller's copy of the cluster: pods and their addresses, HPAs, targets, and HPAs that share pods.
//!
//! The watches write. The syncs read, record their writes, and claim selectors. Every method takes `&self`, and locks
//! for one lookup or one change, never across an `await`. The objects of a list are collected separately until
//! `finish`, so that readers of a namespace never see a part of the list. A list covers the whole cluster or one
//! namespace. Several namespaces may be listed at the same time.
//!
//! Memory follows the cluster: shared values are reference-counted and freed with their last user.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

mod addresses;
mod hpa_record;
mod hpas;
mod intern;
mod namespace;
mod pods;
mod targets;
#[cfg(test)]
mod tests;

pub use addresses::Addresses;
pub(crate) use hpa_record::PackedJson;
pub use hpa_record::{HpaRecord, LARGE_SPEC, PackedHpa, StatusWriter};
pub(crate) use hpas::is_older;
pub use hpas::{Change, Hpas, Staleness, Update};
pub use intern::{ContainerInput, PodInput};
pub use pods::{Overlap, Pods, Stats};
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

/// The scopes of the lists in progress.
#[derive(Debug, Default)]
struct OpenLists {
    /// Whether a list of all namespaces is in progress.
    everything: bool,
    namespaces: BTreeSet<Arc<str>>,
}

impl OpenLists {
    /// Starts a list of a namespace, or of all namespaces with `None`.
    fn start(&mut self, namespace: Option<&str>) {
        match namespace {
            Some(namespace) => {
                self.namespaces.insert(namespace.into());
            }
            None => self.everything = true,
        }
    }

    /// Ends a list. Returns whether the list was in progress.
    fn end(&mut self, namespace: Option<&str>) -> bool {
        match namespace {
            Some(namespace) => self.namespaces.remove(namespace),
            None => std::mem::take(&mut self.everything),
        }
    }

    fn covers(&self, namespace: &str) -> bool {
        self.everything || self.namespaces.contains(namespace)
    }
}

/// Returns whether an object of a namespace is in the scope of a list. `None` is the whole cluster.
fn within(namespace: &str, scope: Option<&str>) -> bool {
    scope.is_none_or(|scope| scope == namespace)
}
