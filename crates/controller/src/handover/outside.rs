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

    /// The HPAs of a namespace.
    pub(super) fn keys_in(&self, namespace: &Arc<str>) -> impl Iterator<Item = Key> {
        let from = Key { namespace: Arc::clone(namespace), name: Arc::default() };
        let namespace = Arc::clone(namespace);
        self.hpas.range(from..).map(|(key, _)| key.clone()).take_while(move |key| key.namespace == namespace)
    }

    /// Drops the HPAs that are not listed, in one namespace or in all.
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

    /// Drops the kind of an HPA if no other HPA uses the kind.
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
        // A new version of the only HPA of a kind.
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
