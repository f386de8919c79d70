//! Which lists are being collected.

use std::collections::BTreeSet;
use std::sync::Arc;

/// What is being listed: everything, or some namespaces, each on its own.
#[derive(Debug, Default)]
pub(super) struct Listed {
    everything: bool,
    namespaces: BTreeSet<Arc<str>>,
}

impl Listed {
    /// A list of a namespace, or of all of them, begins.
    pub(super) fn begin(&mut self, namespace: Option<&str>) {
        match namespace {
            Some(namespace) => {
                self.namespaces.insert(namespace.into());
            }
            None => self.everything = true,
        }
    }

    /// It ends; whether it had begun.
    pub(super) fn end(&mut self, namespace: Option<&str>) -> bool {
        match namespace {
            Some(namespace) => self.namespaces.remove(namespace),
            None => std::mem::take(&mut self.everything),
        }
    }

    /// Whether an object of this namespace belongs to a list that is being collected.
    pub(super) fn covers(&self, namespace: &str) -> bool {
        self.everything || self.namespaces.contains(namespace)
    }
}

/// Whether an object of a namespace is in the scope of a list.
pub(super) fn within(namespace: &str, scope: Option<&str>) -> bool {
    scope.is_none_or(|scope| scope == namespace)
}
