//! The HPAs out of scope, in as little memory as the detection of shared pods permits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use autoscaling::status::CrossVersionObjectReference;

use crate::store::Key;

/// The HPAs out of scope.
#[derive(Debug, Default)]
pub(super) struct Outside {
    hpas: BTreeMap<Key, OutsideHpa>,
    /// The kinds of targets, shared by the HPAs.
    kinds: BTreeSet<Arc<TargetType>>,
}

/// One HPA out of scope.
#[derive(Debug)]
pub(super) struct OutsideHpa {
    /// `metadata.resourceVersion`. `None` if it is no number.
    pub(super) version: Option<u64>,
    /// `metadata.name` of the target.
    name: Box<str>,
    kind: Arc<TargetType>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TargetType {
    api_version: Box<str>,
    kind: Box<str>,
}

impl Outside {
    pub(super) fn put(&mut self, key: &Key, version: Option<u64>, target: &CrossVersionObjectReference) {
        let kind = self.kind(target);
        let name = target.name.as_str().into();
        let hpa = OutsideHpa { version, name, kind };
        let old = if let Some(known) = self.hpas.get_mut(key) {
            Some(std::mem::replace(known, hpa))
        } else {
            // HPAs of one namespace share its name.
            let from = Key { namespace: Arc::clone(&key.namespace), name: Arc::default() };
            let beside = self.hpas.range(from..).next().map(|(beside, _)| &beside.namespace);
            let namespace = beside.filter(|namespace| **namespace == key.namespace);
            let namespace = Arc::clone(namespace.unwrap_or(&key.namespace));
            self.hpas.insert(Key { namespace, name: Arc::clone(&key.name) }, hpa)
        };
        self.release(old);
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let old = self.hpas.remove(key);
        self.release(old);
    }

    pub(super) fn get(&self, key: &Key) -> Option<&OutsideHpa> {
        self.hpas.get(key)
    }

    pub(super) fn len(&self) -> usize {
        self.hpas.len()
    }

    /// The HPAs of a namespace.
    pub(super) fn keys_in(&self, namespace: &Arc<str>) -> impl Iterator<Item = Key> {
        let from = Key { namespace: Arc::clone(namespace), name: Arc::default() };
        let namespace = Arc::clone(namespace);
        self.hpas.range(from..).map(|(key, _)| key.clone()).take_while(move |key| key.namespace == namespace)
    }

    /// Drops the HPAs of a namespace, or of all, that are not listed.
    pub(super) fn retain(&mut self, namespace: Option<&str>, listed: &BTreeSet<Key>) {
        self.hpas.retain(|key, _| {
            namespace.is_some_and(|namespace| *key.namespace != *namespace) || listed.contains(key)
        });
        self.kinds.retain(|kind| Arc::strong_count(kind) > 1);
    }

    fn kind(&mut self, target: &CrossVersionObjectReference) -> Arc<TargetType> {
        let kind =
            TargetType { api_version: target.api_version.as_str().into(), kind: target.kind.as_str().into() };
        if let Some(kind) = self.kinds.get(&kind) {
            return Arc::clone(kind);
        }
        let kind = Arc::new(kind);
        self.kinds.insert(Arc::clone(&kind));
        kind
    }

    /// Drops the kind of an HPA with its last user.
    fn release(&mut self, old: Option<OutsideHpa>) {
        if let Some(OutsideHpa { kind, .. }) = old
            && Arc::strong_count(&kind) == 2
        {
            self.kinds.remove(&kind);
        }
    }
}

impl OutsideHpa {
    /// The target.
    pub(super) fn target(&self) -> CrossVersionObjectReference {
        CrossVersionObjectReference {
            kind: self.kind.kind.to_string(),
            name: self.name.to_string(),
            api_version: self.kind.api_version.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
