//! Finds HPAs that share pods.
//!
//! Every HPA that reaches its metrics stores its selector here. HPAs of one namespace with equal selectors
//! share one watched selector in [`Pods`], which keeps the matching label sets up to date. A claim reads only
//! the few label sets of its selector, and never other namespaces, other pods or all HPAs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use autoscaling::selector::Selector;
use parking_lot::Mutex;

use super::namespace::SelectorId;
use super::{Key, Pods};

/// The stored selector of each HPA. All selectors belong to one [`Pods`], which every call must pass.
#[derive(Debug, Default)]
pub struct Overlap {
    namespaces: Mutex<BTreeMap<Arc<str>, Claims>>,
}

#[derive(Debug, Default)]
struct Claims {
    by_hpa: BTreeMap<Arc<str>, Claim>,
    /// A flat set, because most selectors have one HPA, for which a nested set would be ten times too large.
    by_selector: BTreeSet<(SelectorId, Arc<str>)>,
}

#[derive(Debug)]
struct Claim {
    selector: Arc<Selector>,
    id: SelectorId,
}

impl Overlap {
    /// Creates an index without selectors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores the selector of an HPA. Returns the HPAs of its namespace with a stored selector that matches
    /// one of the same pods: sorted, the given HPA included. Empty without pods.
    ///
    /// The HPA may be deleted concurrently. After a claim the caller checks that [`super::Hpas`] still
    /// contains the HPA, and otherwise releases the claim. A deletion first removes the HPA there and then
    /// releases its claim, so no claim is left behind.
    pub fn claim(&self, hpa: &Key, selector: &Arc<Selector>, pods: &Pods) -> Vec<Key> {
        let mut namespaces = self.namespaces.lock();
        let claims = namespaces.entry(Arc::clone(&hpa.namespace)).or_default();
        let id = match claims.by_hpa.get(&hpa.name) {
            Some(claim) if claim.selector == *selector => claim.id,
            _ => {
                // Watch the new selector first, so that sets that both selectors match are kept.
                let id = pods.watch(&hpa.namespace, selector);
                claims.remove(hpa, pods);
                claims.by_hpa.insert(Arc::clone(&hpa.name), Claim { selector: Arc::clone(selector), id });
                claims.by_selector.insert((id, Arc::clone(&hpa.name)));
                id
            }
        };
        claims.sharing(&hpa.namespace, id, pods)
    }

    /// Returns the HPAs of the last [`Self::claim`], with the current pods. Empty if the HPA has no stored
    /// selector.
    pub fn sharing(&self, hpa: &Key, pods: &Pods) -> Vec<Key> {
        let namespaces = self.namespaces.lock();
        let claims = namespaces.get(&hpa.namespace);
        let claim = claims.and_then(|claims| Some((claims, claims.by_hpa.get(&hpa.name)?)));
        claim.map(|(claims, claim)| claims.sharing(&hpa.namespace, claim.id, pods)).unwrap_or_default()
    }

    /// The stored selector of an HPA.
    pub fn selector(&self, hpa: &Key) -> Option<Arc<Selector>> {
        let namespaces = self.namespaces.lock();
        namespaces.get(&hpa.namespace)?.by_hpa.get(&hpa.name).map(|claim| Arc::clone(&claim.selector))
    }

    /// Drops the stored selector of an HPA, if it has one.
    pub fn release(&self, hpa: &Key, pods: &Pods) {
        let mut namespaces = self.namespaces.lock();
        let Some(claims) = namespaces.get_mut(&hpa.namespace) else {
            return;
        };
        claims.remove(hpa, pods);
        if claims.by_hpa.is_empty() {
            namespaces.remove(&hpa.namespace);
        }
    }

    /// Number of HPAs with a stored selector.
    pub fn len(&self) -> usize {
        self.namespaces.lock().values().map(|claims| claims.by_hpa.len()).sum()
    }

    /// Whether no HPA has a stored selector.
    pub fn is_empty(&self) -> bool {
        self.namespaces.lock().is_empty()
    }
}

impl Claims {
    /// Returns the HPAs with a selector that matches a pod of the given selector, by name.
    fn sharing(&self, namespace: &Arc<str>, id: SelectorId, pods: &Pods) -> Vec<Key> {
        let sharing = pods.sharing(namespace, id);
        let names: BTreeSet<_> = sharing.iter().flat_map(|id| self.names(*id)).collect();
        names.into_iter().map(|name| Key::new(Arc::clone(namespace), Arc::clone(name))).collect()
    }

    fn remove(&mut self, hpa: &Key, pods: &Pods) {
        let Some(claim) = self.by_hpa.remove(&hpa.name) else {
            return;
        };
        self.by_selector.remove(&(claim.id, Arc::clone(&hpa.name)));
        pods.unwatch(&hpa.namespace, claim.id);
    }

    /// Returns the HPAs with the given selector.
    fn names(&self, id: SelectorId) -> impl Iterator<Item = &Arc<str>> {
        let from = (id, Arc::<str>::default());
        self.by_selector.range(from..).take_while(move |(other, _)| *other == id).map(|(_, name)| name)
    }
}
