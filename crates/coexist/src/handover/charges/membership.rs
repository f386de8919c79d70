//! Sorts HPAs into and out of scope. Keeps only the data of an HPA out of scope that the detection of shared pods
//! needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use autoscaling::status::CrossVersionObjectReference;
use tokio::time::Instant;

use super::Charges;
use crate::handover::machine::Input;
use crate::handover::scope::{self, Membership, membership};
use engine::store::{HpaRecord, Key};

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
    /// Not moved, because the version is older than the known version.
    Unchanged,
}

impl Charges {
    /// Puts an HPA in or out of scope by its label and the label of its namespace. An HPA from a list (`is_listed`) is
    /// applied even if its version is older than the known version, as after a restore of etcd.
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

    /// Drops a deleted HPA. `uid` is the UID of the deleted object.
    pub fn delete(&self, key: &Key, uid: &str) {
        self.change(|inner| {
            inner.outside.remove(key);
            if inner.hpas.get(key).is_some_and(|entry| *entry.uid == *uid) {
                inner.remove(key);
            }
        });
    }

    /// Drops the HPAs out of scope that a list did not contain. `namespace` is the namespace of the list, or `None` for
    /// all namespaces.
    pub fn retain_outside(&self, namespace: Option<&str>, listed: &BTreeSet<Key>) {
        self.inner.lock().outside.retain(namespace, listed);
    }

    /// Returns whether the registry keeps an HPA as out of scope. Always false with `--shadow-others`, which keeps all
    /// HPAs in the store.
    pub fn is_outside(&self, key: &Key) -> bool {
        self.inner.lock().outside.get(key).is_some()
    }

    /// Returns the target of an HPA out of scope, if its namespace has HPAs in scope, which may select the same pods.
    pub fn neighbour(&self, key: &Key) -> Option<CrossVersionObjectReference> {
        let inner = self.inner.lock();
        let hpa = inner.outside.get(key)?;
        inner.has_hpas_in(&key.namespace).then(|| hpa.target())
    }

    /// Returns the HPAs out of scope in namespaces with HPAs in scope, or only those of `namespace`.
    pub fn neighbours(&self, namespace: Option<&Arc<str>>) -> Vec<Key> {
        let inner = self.inner.lock();
        let mut namespaces: Vec<_> = inner.hpas.keys().map(|key| Arc::clone(&key.namespace)).collect();
        namespaces.dedup();
        namespaces.retain(|name| namespace.is_none_or(|only| only == name));
        namespaces.iter().flat_map(|namespace| inner.outside.keys_in(namespace)).collect()
    }

    /// Records the label of a namespace, or its absence. Returns whether the label has changed.
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

    /// Returns the namespaces with the label.
    pub fn labelled_namespaces(&self) -> Vec<Arc<str>> {
        self.inner.lock().namespaces.keys().cloned().collect()
    }

    /// Removes and returns the next namespace that is new in scope and has HPAs to read.
    pub fn adopting(&self) -> Option<Arc<str>> {
        self.inner.lock().adopting.pop_first()
    }

    /// Adds a namespace again after a failed read, if it still has the label of this instance.
    pub fn adopt_again(&self, namespace: Arc<str>) {
        let mut inner = self.inner.lock();
        if inner.namespaces.get(&namespace).is_some_and(|label| **label == *self.name.as_str()) {
            inner.adopting.insert(namespace);
        }
    }
}

/// The HPAs out of scope, in minimal memory.
#[derive(Debug, Default)]
pub(super) struct Outside {
    hpas: BTreeMap<Key, OutsideHpa>,
    /// The types of targets, which the HPAs share.
    kinds: BTreeSet<Arc<TargetType>>,
}

#[derive(Debug)]
pub(super) struct OutsideHpa {
    /// `metadata.resourceVersion`. `None` if it is not a number.
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
            // HPAs of one namespace share one copy of its name.
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

    /// Returns the keys of the HPAs of a namespace.
    pub(super) fn keys_in(&self, namespace: &Arc<str>) -> impl Iterator<Item = Key> {
        let from = Key { namespace: Arc::clone(namespace), name: Arc::default() };
        let namespace = Arc::clone(namespace);
        self.hpas.range(from..).map(|(key, _)| key.clone()).take_while(move |key| key.namespace == namespace)
    }

    /// Drops the HPAs that are not in `listed`. With `namespace`, drops only HPAs of that namespace.
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

    /// Drops the target type of a removed HPA if no other HPA has the same type.
    fn release(&mut self, old: Option<OutsideHpa>) {
        if let Some(OutsideHpa { kind, .. }) = old
            && Arc::strong_count(&kind) == 2
        {
            self.kinds.remove(&kind);
        }
    }
}

impl OutsideHpa {
    pub(super) fn target(&self) -> CrossVersionObjectReference {
        CrossVersionObjectReference {
            kind: self.kind.kind.to_string(),
            name: self.name.to_string(),
            api_version: self.kind.api_version.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: &str, name: &str) -> CrossVersionObjectReference {
        CrossVersionObjectReference {
            kind: kind.to_owned(),
            name: name.to_owned(),
            api_version: "apps/v1".to_owned(),
        }
    }

    #[test]
    fn kinds_are_shared_and_dropped_with_their_last_user() {
        let mut outside = Outside::default();
        let (a, b) = (Key::new("shop", "a"), Key::new("shop", "b"));
        outside.put(&a, Some(1), &target("Deployment", "a"));
        outside.put(&b, Some(1), &target("Deployment", "b"));
        assert!(Arc::ptr_eq(&outside.get(&a).unwrap().kind, &outside.get(&b).unwrap().kind));
        assert_eq!((outside.len(), outside.kinds.len()), (2, 1));
        outside.put(&a, Some(2), &target("StatefulSet", "a"));
        assert_eq!(outside.kinds.len(), 2);
        assert_eq!(outside.get(&a).unwrap().target(), target("StatefulSet", "a"));
        // A new version changes the kind of the only HPA with that kind.
        outside.put(&a, Some(3), &target("ReplicaSet", "a"));
        assert_eq!(outside.kinds.len(), 2);
        outside.remove(&b);
        assert_eq!((outside.len(), outside.kinds.len()), (1, 1));
        outside.remove(&b);
        outside.remove(&a);
        assert_eq!((outside.len(), outside.kinds.len()), (0, 0));
    }

    #[test]
    fn hpas_of_a_namespace_share_its_name_and_are_found_by_it() {
        let mut outside = Outside::default();
        let keys =
            [("bank", "z"), ("shop", "a"), ("shop", "b"), ("shop-2", "c")].map(|(n, h)| Key::new(n, h));
        for key in &keys {
            outside.put(key, None, &target("Deployment", "web"));
        }
        let stored: Vec<_> = outside.hpas.keys().filter(|key| &*key.namespace == "shop").collect();
        assert!(Arc::ptr_eq(&stored[0].namespace, &stored[1].namespace));
        assert_eq!(outside.keys_in(&"shop".into()).collect::<Vec<_>>(), keys[1..3]);
        assert_eq!(outside.keys_in(&"other".into()).count(), 0);
    }

    #[test]
    fn hpas_that_a_list_lacks_are_dropped_with_their_kinds() {
        let mut outside = Outside::default();
        let keys = [("shop", "a"), ("shop", "b"), ("bank", "c")].map(|(n, h)| Key::new(n, h));
        for (key, kind) in keys.iter().zip(["Deployment", "StatefulSet", "ReplicaSet"]) {
            outside.put(key, None, &target(kind, "web"));
        }
        outside.retain(Some("shop"), &[keys[0].clone()].into());
        assert_eq!(outside.hpas.keys().cloned().collect::<Vec<_>>(), [keys[2].clone(), keys[0].clone()]);
        assert_eq!(outside.kinds.len(), 2);
        outside.retain(None, &[keys[0].clone()].into());
        assert_eq!((outside.len(), outside.kinds.len()), (1, 1));
    }
}
