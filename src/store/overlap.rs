//! Which HPAs share pods.
//!
//! Every HPA that reaches its metrics leaves its selector here. Equal selectors of a namespace are one watched
//! selector in [`Pods`], which knows at any time which label sets it matches: a claim looks at the few label sets of
//! its own selector and never at other namespaces, other pods or all HPAs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use autoscaling::selector::Selector;

use super::namespace::SelectorId;
use super::{Key, Pods, lock};

/// The remembered selector of each HPA. Belongs to one [`Pods`], which every call must name.
#[derive(Debug, Default)]
pub struct Overlap {
    namespaces: Mutex<BTreeMap<Arc<str>, Claims>>,
}

#[derive(Debug, Default)]
struct Claims {
    by_hpa: BTreeMap<Arc<str>, Claim>,
    /// Flat: most selectors have one HPA, for which a set of its own would be ten times too large.
    by_selector: BTreeSet<(SelectorId, Arc<str>)>,
}

#[derive(Debug)]
struct Claim {
    selector: Arc<Selector>,
    id: SelectorId,
}

impl Overlap {
    /// No HPA has a selector yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Remembers the selector of an HPA, then answers which HPAs of its namespace have a remembered selector that
    /// matches a pod which this one matches too: sorted, this one included. Without pods the answer is empty.
    ///
    /// The HPA may be deleted meanwhile. Who claims looks afterwards whether [`super::Hpas`] still has it and releases
    /// the claim if not; who deletes, deletes it there first and releases then. So no claim is left behind.
    pub fn claim(&self, hpa: &Key, selector: &Arc<Selector>, pods: &Pods) -> Vec<Key> {
        let mut namespaces = lock(&self.namespaces);
        let claims = namespaces.entry(Arc::clone(&hpa.namespace)).or_default();
        let id = match claims.by_hpa.get(&hpa.name) {
            Some(claim) if claim.selector == *selector => claim.id,
            _ => {
                // The new one first: what both match is then not forgotten in between.
                let id = pods.watch(&hpa.namespace, selector);
                claims.remove(hpa, pods);
                claims.by_hpa.insert(Arc::clone(&hpa.name), Claim { selector: Arc::clone(selector), id });
                claims.by_selector.insert((id, Arc::clone(&hpa.name)));
                id
            }
        };
        claims.sharing(&hpa.namespace, id, pods)
    }

    /// As [`Self::claim`] answered last, with the pods of now. Empty if no selector of the HPA is remembered.
    pub fn sharing(&self, hpa: &Key, pods: &Pods) -> Vec<Key> {
        let namespaces = lock(&self.namespaces);
        let claims = namespaces.get(&hpa.namespace);
        let claim = claims.and_then(|claims| Some((claims, claims.by_hpa.get(&hpa.name)?)));
        claim.map(|(claims, claim)| claims.sharing(&hpa.namespace, claim.id, pods)).unwrap_or_default()
    }

    /// Forgets the selector of an HPA that is gone. No effect if none is remembered.
    pub fn release(&self, hpa: &Key, pods: &Pods) {
        let mut namespaces = lock(&self.namespaces);
        let Some(claims) = namespaces.get_mut(&hpa.namespace) else {
            return;
        };
        claims.remove(hpa, pods);
        if claims.by_hpa.is_empty() {
            namespaces.remove(&hpa.namespace);
        }
    }

    /// How many HPAs have a remembered selector.
    pub fn len(&self) -> usize {
        lock(&self.namespaces).values().map(|claims| claims.by_hpa.len()).sum()
    }

    /// Whether no HPA has one.
    pub fn is_empty(&self) -> bool {
        lock(&self.namespaces).is_empty()
    }
}

impl Claims {
    /// The HPAs whose selectors match a pod that this one matches too, by name.
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

    /// The HPAs with a selector.
    fn names(&self, id: SelectorId) -> impl Iterator<Item = &Arc<str>> {
        let from = (id, Arc::<str>::default());
        self.by_selector.range(from..).take_while(move |(of, _)| *of == id).map(|(_, name)| name)
    }
}
