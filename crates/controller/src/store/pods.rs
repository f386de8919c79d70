//! The pods of the watched namespaces, as compact records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use autoscaling::pod::Pod;
use autoscaling::selector::Selector;
use parking_lot::RwLock;

use super::input::PodInput;
use super::intern::Strings;
use super::namespace::{Entry, Namespace, SelectorId};
use super::{OpenLists, within};

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
    /// Entries of the lists in progress. The entries already hold their references in `namespaces`.
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

    /// Starts a list of a namespace, or of all. Readers keep the previous content until [`Self::finish`].
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

    /// Applies a deletion.
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

    /// Ends a list. Removes pods in its scope that the list did not contain. Readers see the change of each
    /// namespace as one step.
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
            // Lock each namespace separately, so that readers of other namespaces do not wait for the whole
            // cluster.
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

    /// Number of pods.
    pub fn len(&self) -> usize {
        self.state.read().namespaces.values().map(Namespace::len).sum()
    }

    /// Number of pods of a namespace.
    pub fn len_of(&self, namespace: &str) -> usize {
        self.state.read().namespaces.get(namespace).map_or(0, Namespace::len)
    }

    /// Whether there are no pods.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a list was ever finished.
    pub fn is_synced(&self) -> bool {
        self.state.read().synced
    }

    /// Sizes of the store.
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
