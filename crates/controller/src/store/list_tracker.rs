//! Tracks the lists in progress.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The lists in progress: one of everything, or separate lists of some namespaces.
#[derive(Debug, Default)]
pub(super) struct OpenLists {
    everything: bool,
    namespaces: BTreeSet<Arc<str>>,
}

impl OpenLists {
    /// Starts a list of a namespace, or of all.
    pub(super) fn start(&mut self, namespace: Option<&str>) {
        match namespace {
            Some(namespace) => {
                self.namespaces.insert(namespace.into());
            }
            None => self.everything = true,
        }
    }

    /// Ends a list. Returns whether it was in progress.
    pub(super) fn end(&mut self, namespace: Option<&str>) -> bool {
        match namespace {
            Some(namespace) => self.namespaces.remove(namespace),
            None => std::mem::take(&mut self.everything),
        }
    }

    /// Whether a list in progress covers this namespace.
    pub(super) fn covers(&self, namespace: &str) -> bool {
        self.everything || self.namespaces.contains(namespace)
    }
}

/// Whether an object of a namespace is in the scope of a list.
pub(super) fn within(namespace: &str, scope: Option<&str>) -> bool {
    scope.is_none_or(|scope| scope == namespace)
}
