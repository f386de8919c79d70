//! What is known of the cluster: pods, HPAs, and which HPAs share pods.
//!
//! Written by the watches, one task per resource; read by the syncs. Every method takes `&self`; the locks are
//! inside, held for as long as one look-up or one change takes, and never across an `await`. A list that replaces
//! what is known is collected apart (`begin`, `apply`..., `finish`), so that readers never see a part of it. A list is
//! of the whole cluster or of one namespace; several namespaces may be listed at the same time.
//!
//! Memory follows the cluster: what objects share is counted by its users and goes with the last of them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

mod hpas;
mod input;
mod intern;
mod listed;
mod namespace;
mod overlap;
mod pods;
mod targets;
#[cfg(test)]
mod tests;

pub(crate) use hpas::is_older;
pub use hpas::{Change, HpaRecord, Hpas, StatusWriter, Update};
pub use input::{ContainerInput, PodInput};
pub use overlap::Overlap;
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
    /// A key of these two.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

// A panic in one sync must not end the others, so a poisoned lock is taken as it is: what runs under these locks is
// this module and the matching of selectors, which does not panic.

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
