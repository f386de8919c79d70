//! Sorts HPAs into and out of scope, and keeps the data of HPAs out of scope.

use std::collections::BTreeSet;
use std::sync::Arc;

use autoscaling::status::CrossVersionObjectReference;
use tokio::time::Instant;

use super::Charges;
use crate::handover::machine::Input;
use crate::handover::scope::{self, Membership, membership};
use crate::store::{HpaRecord, Key};

/// The place of an HPA after a new version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// In the store of HPAs.
    Store {
        /// Whether the HPA has just entered the scope.
        is_new: bool,
    },
    /// Not in the store.
    Outside,
    /// Not moved, because the version is older than the known one.
    Unchanged,
}

impl Charges {
    /// Puts an HPA in or out of scope by its label and that of its namespace. `is_listed`: whether the HPA is from a
    /// list. A listed HPA is applied even if its version is older than the known one, as after a restore of etcd.
    pub fn sort(&self, hpa: &HpaRecord, is_listed: bool) -> Placement {
        let (now, at) = (Instant::now(), self.clock.now());
        let version = hpa.resource_version.parse().ok();
        let label = scope::label_of(&hpa.metadata);
        self.change(|inner| {
            let known = inner.hpas.get(&hpa.key).map(|entry| entry.version);
            let known = known.or_else(|| Some(inner.outside.get(&hpa.key)?.version)).flatten();
            if !is_listed && version < known && version.is_some() {
                return Placement::Unchanged;
            }
            let namespace = inner.namespaces.get(&hpa.key.namespace).map(|label| &**label);
            match membership(label.as_deref(), namespace, &self.name) {
                Membership::In(by) => {
                    inner.outside.remove(&hpa.key);
                    let is_new = inner.enter(hpa, version, by, self.period, at);
                    if is_new && inner.leads {
                        inner.step(&hpa.key, Input::Lead { hand_over: false }, now, at);
                    }
                    Placement::Store { is_new }
                }
                Membership::Out(_) => {
                    inner.remove(&hpa.key);
                    if self.keeps_others {
                        return Placement::Store { is_new: false };
                    }
                    inner.outside.put(&hpa.key, version, &hpa.spec.target);
                    Placement::Outside
                }
            }
        })
    }

    /// Drops a deleted HPA. `uid`: the UID of the deleted object.
    pub fn delete(&self, key: &Key, uid: &str) {
        self.change(|inner| {
            inner.outside.remove(key);
            if inner.hpas.get(key).is_some_and(|entry| *entry.uid == *uid) {
                inner.remove(key);
            }
        });
    }

    /// Drops the HPAs out of scope that a list did not contain. `namespace`: the namespace of the list. `None`: all.
    pub fn retain_outside(&self, namespace: Option<&str>, listed: &BTreeSet<Key>) {
        self.inner.lock().outside.retain(namespace, listed);
    }

    /// Whether the registry keeps an HPA as out of scope. False with `--shadow-others`, which keeps such HPAs in the
    /// store.
    pub fn is_outside(&self, key: &Key) -> bool {
        self.inner.lock().outside.get(key).is_some()
    }

    /// The target of an HPA out of scope, if the namespace has HPAs in scope, which may select the same pods.
    pub fn neighbour(&self, key: &Key) -> Option<CrossVersionObjectReference> {
        let inner = self.inner.lock();
        let hpa = inner.outside.get(key)?;
        inner.has_hpas_in(&key.namespace).then(|| hpa.target())
    }

    /// The HPAs out of scope in namespaces with HPAs in scope, or only those of `namespace`.
    pub fn neighbours(&self, namespace: Option<&Arc<str>>) -> Vec<Key> {
        let inner = self.inner.lock();
        let mut namespaces: Vec<_> = inner.hpas.keys().map(|key| Arc::clone(&key.namespace)).collect();
        namespaces.dedup();
        namespaces.retain(|name| namespace.is_none_or(|only| only == name));
        namespaces.iter().flat_map(|namespace| inner.outside.keys_in(namespace)).collect()
    }

    /// Records the label of a namespace, or its absence. Returns whether the label changed.
    pub fn label_namespace(&self, namespace: &str, label: Option<&str>) -> bool {
        self.change(|inner| {
            if inner.namespaces.get(namespace).map(|label| &**label) == label {
                return false;
            }
            let namespace: Arc<str> = namespace.into();
            let is_ours = label == Some(self.name.as_str());
            if is_ours && inner.outside.keys_in(&namespace).next().is_some() {
                inner.adopting.insert(Arc::clone(&namespace));
                self.changed.notify_one();
            }
            match label {
                Some(label) => inner.namespaces.insert(namespace, label.into()),
                None => inner.namespaces.remove(&namespace),
            };
            true
        })
    }

    /// The namespaces with the label.
    pub fn labelled_namespaces(&self) -> Vec<Arc<str>> {
        self.inner.lock().namespaces.keys().cloned().collect()
    }

    /// Removes and returns the next namespace that is new in scope and has HPAs to read.
    pub fn adopting(&self) -> Option<Arc<str>> {
        self.inner.lock().adopting.pop_first()
    }

    /// Returns a namespace to [`Self::adopting`] after a failed read, if the namespace still has the label of this
    /// instance.
    pub fn adopt_again(&self, namespace: Arc<str>) {
        let mut inner = self.inner.lock();
        if inner.namespaces.get(&namespace).is_some_and(|label| **label == *self.name.as_str()) {
            inner.adopting.insert(namespace);
        }
    }
}
