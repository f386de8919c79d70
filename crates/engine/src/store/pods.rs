//! The pods of the watched namespaces, as compact records, and the HPAs that share pods.
//!
//! Each sync that reads metrics stores the selector of its HPA in [`Overlap`]. HPAs of one namespace with equal
//! selectors share one watched selector in [`Pods`], which keeps the matching label sets up to date. A claim reads only
//! the label sets of its selector, and never other namespaces, other pods or all HPAs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use autoscaling::pod::Pod;
use autoscaling::selector::Selector;
use parking_lot::{Mutex, RwLock};

use super::intern::{PodInput, Strings};
use super::namespace::{Entry, Namespace, SelectorId};
use super::{Key, OpenLists, within};

/// The pods from the watches.
#[derive(Debug, Default)]
pub struct Pods {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    namespaces: BTreeMap<Arc<str>, Namespace>,
    strings: Strings,
    listed: OpenLists,
    /// Entries of the lists in progress. The references of the entries into the tables of `namespaces` are acquired.
    listing: Listing,
    synced: bool,
}

type Listing = BTreeMap<Arc<str>, BTreeSet<Entry>>;

/// Sizes of the store, all zero without pods and watched selectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Namespaces with pods or watched selectors.
    pub namespaces: usize,
    /// Pods that readers can reach.
    pub pods: usize,
    /// Distinct label sets, counted per namespace.
    pub label_sets: usize,
    /// Distinct requests, counted per namespace.
    pub request_sets: usize,
    /// Distinct strings in label sets and requests.
    pub strings: usize,
    /// Watched selectors, counted per namespace.
    pub selectors: usize,
}

impl Pods {
    /// Creates an empty store that is not synced.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a list of a namespace, or of all namespaces. Readers see the previous content until [`Self::finish`].
    /// Drops an unfinished list of the same scope.
    pub fn begin(&self, namespace: Option<&str>) {
        let mut state = self.state.write();
        state.drop_listing(namespace);
        state.listed.start(namespace);
    }

    /// Applies a pod that was listed, added or changed.
    pub fn apply(&self, pod: &PodInput<'_>) {
        let state = &mut *self.state.write();
        let State { namespaces, strings, listed, listing, .. } = state;
        if !namespaces.contains_key(pod.namespace) {
            namespaces.insert(pod.namespace.into(), Namespace::default());
        }
        let Some(namespace) = namespaces.get_mut(pod.namespace) else {
            return;
        };
        let entry = namespace.entry(pod, strings);
        if !listed.covers(pod.namespace) {
            namespace.put(entry, strings);
            return;
        }
        if !listing.contains_key(pod.namespace) {
            listing.insert(pod.namespace.into(), BTreeSet::new());
        }
        let replaced = listing.get_mut(pod.namespace).and_then(|entries| entries.replace(entry));
        if let Some(replaced) = replaced {
            namespace.release(&replaced, strings);
        }
    }

    /// Removes a pod that was deleted.
    pub fn delete(&self, namespace: &str, name: &str) {
        let state = &mut *self.state.write();
        let State { namespaces, strings, listed, listing, .. } = state;
        let Some(pods) = namespaces.get_mut(namespace) else {
            return;
        };
        if !listed.covers(namespace) {
            pods.remove(name, strings);
        } else if let Some(entry) = listing.get_mut(namespace).and_then(|entries| entries.take(name)) {
            pods.release(&entry, strings);
        }
        if pods.is_empty() {
            namespaces.remove(namespace);
        }
    }

    /// Ends a list. Removes pods in its scope that the list did not contain. For readers, the content of a namespace
    /// changes in one step.
    pub fn finish(&self, namespace: Option<&str>) {
        let mut listing = {
            let state = &mut *self.state.write();
            if !state.listed.end(namespace) {
                return;
            }
            state.take_listing(namespace)
        };
        let namespaces: Vec<_> =
            self.state.read().namespaces.keys().filter(|name| within(name, namespace)).cloned().collect();
        for name in namespaces {
            // Lock for one namespace at a time, so that readers do not wait for the whole cluster.
            let state = &mut *self.state.write();
            let Some(namespace) = state.namespaces.get_mut(&name) else {
                continue;
            };
            namespace.replace(listing.remove(&name).unwrap_or_default(), &mut state.strings);
            if namespace.is_empty() {
                state.namespaces.remove(&name);
            }
        }
        self.state.write().synced = true;
    }

    /// Returns the pods of a namespace that a selector matches, by name.
    pub fn select(&self, namespace: &str, selector: &Selector) -> Vec<Arc<Pod>> {
        let state = self.state.read();
        state.namespaces.get(namespace).map(|pods| pods.select(selector)).unwrap_or_default()
    }

    /// Returns the number of pods.
    pub fn len(&self) -> usize {
        self.state.read().namespaces.values().map(Namespace::len).sum()
    }

    /// Returns the number of pods of a namespace.
    pub fn len_of(&self, namespace: &str) -> usize {
        self.state.read().namespaces.get(namespace).map_or(0, Namespace::len)
    }

    /// Returns whether there are no pods.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether at least one list has finished.
    pub fn is_synced(&self) -> bool {
        self.state.read().synced
    }

    /// Returns the sizes of the store.
    pub fn stats(&self) -> Stats {
        let state = self.state.read();
        let mut counts =
            Stats { namespaces: state.namespaces.len(), strings: state.strings.len(), ..Stats::default() };
        for namespace in state.namespaces.values() {
            counts.pods += namespace.len();
            counts.label_sets += namespace.label_sets();
            counts.request_sets += namespace.request_sets();
            counts.selectors += namespace.watched();
        }
        counts
    }

    /// Keeps a selector's matches up to date until [`Self::unwatch`].
    pub(super) fn watch(&self, namespace: &Arc<str>, selector: &Arc<Selector>) -> SelectorId {
        self.state.write().namespaces.entry(Arc::clone(namespace)).or_default().watch(selector)
    }

    pub(super) fn unwatch(&self, namespace: &str, id: SelectorId) {
        let mut state = self.state.write();
        let Some(pods) = state.namespaces.get_mut(namespace) else {
            return;
        };
        pods.unwatch(id);
        if pods.is_empty() {
            state.namespaces.remove(namespace);
        }
    }

    /// Returns the watched selectors that match a pod of the given selector.
    pub(super) fn sharing(&self, namespace: &str, id: SelectorId) -> BTreeSet<SelectorId> {
        self.state.read().namespaces.get(namespace).map(|pods| pods.sharing(id)).unwrap_or_default()
    }
}

impl State {
    fn take_listing(&mut self, namespace: Option<&str>) -> Listing {
        self.listing.extract_if(.., |name, _| within(name, namespace)).collect()
    }

    fn drop_listing(&mut self, namespace: Option<&str>) {
        for (name, entries) in self.take_listing(namespace) {
            let Some(namespace) = self.namespaces.get_mut(&name) else {
                continue;
            };
            for entry in entries {
                namespace.release(&entry, &mut self.strings);
            }
            if namespace.is_empty() {
                self.namespaces.remove(&name);
            }
        }
    }
}

/// The stored selector of each HPA. Every call must pass the same [`Pods`].
#[derive(Debug, Default)]
pub struct Overlap {
    namespaces: Mutex<BTreeMap<Arc<str>, Claims>>,
}

#[derive(Debug, Default)]
struct Claims {
    by_hpa: BTreeMap<Arc<str>, Claim>,
    /// A flat set, because most selectors have one HPA. A nested set of one HPA takes ten times the memory.
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

    /// Stores the selector of an HPA. Returns the HPAs of its namespace with a stored selector that matches one of the
    /// same pods, sorted and including the given HPA. Empty if the selector matches no pods.
    ///
    /// The HPA may be deleted concurrently. After a claim, the caller must check that [`super::Hpas`] still contains
    /// the HPA, and otherwise release the claim. A deletion first removes the HPA from the store and then releases its
    /// claim, so no claim is left behind.
    pub fn claim(&self, hpa: &Key, selector: &Arc<Selector>, pods: &Pods) -> Vec<Key> {
        let mut namespaces = self.namespaces.lock();
        let claims = namespaces.entry(Arc::clone(&hpa.namespace)).or_default();
        let id = match claims.by_hpa.get(&hpa.name) {
            Some(claim) if claim.selector == *selector => claim.id,
            _ => {
                // Watch the new selector before the previous selector is released, so that their common state is kept.
                let id = pods.watch(&hpa.namespace, selector);
                claims.remove(hpa, pods);
                claims.by_hpa.insert(Arc::clone(&hpa.name), Claim { selector: Arc::clone(selector), id });
                claims.by_selector.insert((id, Arc::clone(&hpa.name)));
                id
            }
        };
        claims.sharing(&hpa.namespace, id, pods)
    }

    /// Returns the HPAs of the last [`Self::claim`], with the current pods. Empty if the HPA has no stored selector.
    pub fn sharing(&self, hpa: &Key, pods: &Pods) -> Vec<Key> {
        let namespaces = self.namespaces.lock();
        let claims = namespaces.get(&hpa.namespace);
        let claim = claims.and_then(|claims| Some((claims, claims.by_hpa.get(&hpa.name)?)));
        claim.map(|(claims, claim)| claims.sharing(&hpa.namespace, claim.id, pods)).unwrap_or_default()
    }

    /// Returns the stored selector of an HPA.
    pub fn selector(&self, hpa: &Key) -> Option<Arc<Selector>> {
        let namespaces = self.namespaces.lock();
        namespaces.get(&hpa.namespace)?.by_hpa.get(&hpa.name).map(|claim| Arc::clone(&claim.selector))
    }

    /// Drops the stored selector of an HPA, if any.
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

    /// Returns the number of HPAs with a stored selector.
    pub fn len(&self) -> usize {
        self.namespaces.lock().values().map(|claims| claims.by_hpa.len()).sum()
    }

    /// Returns whether no HPA has a stored selector.
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
