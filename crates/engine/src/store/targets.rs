//! Scalable objects of one resource, reduced to their Scales.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use super::is_older;

/// A scalable object from the watch.
#[derive(Debug, Clone, Copy)]
pub struct TargetInput<'a> {
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.resourceVersion`.
    pub resource_version: &'a str,
    /// `spec.replicas`, `status.replicas` and `status.selector` of the object's Scale. `None` if the object does not
    /// contain them.
    pub scale: Option<(i32, i32, &'a str)>,
}

/// The Scale of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `spec.replicas`
    pub replicas: i32,
    /// `status.replicas`
    pub status_replicas: i32,
    /// `status.selector`
    pub selector: Arc<str>,
}

/// The objects of one watch.
#[derive(Debug, Default)]
pub struct TargetStore {
    state: RwLock<State>,
}

/// Values by namespace, then by name.
type ByName<T> = BTreeMap<Arc<str>, BTreeMap<Box<str>, T>>;

#[derive(Debug, Default)]
struct State {
    cached: ByName<CachedTarget>,
    /// Objects of the list in progress.
    listing: Option<ByName<CachedTarget>>,
    /// Per object, the version after the last read or write outside of the watch. The watch may have delivered that
    /// version in the meantime.
    ahead: ByName<WatchLag>,
}

#[derive(Debug)]
struct CachedTarget {
    resource_version: Box<str>,
    scale: Option<Target>,
}

/// The last known state of one object in the cluster, which may be ahead of the watch.
#[derive(Debug)]
enum WatchLag {
    /// The object has at least this `resourceVersion`.
    At(Box<str>),
    /// A write was sent, but the resulting version is unknown.
    Unknown,
}

impl TargetStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a list. Readers see the previous content until [`Self::finish`]. Drops an unfinished list.
    pub fn begin(&self) {
        self.state.write().listing = Some(BTreeMap::new());
    }

    /// Applies an object that was listed, added or changed.
    pub fn apply(&self, object: &TargetInput<'_>) {
        let mut state = self.state.write();
        let State { cached, listing, .. } = &mut *state;
        let objects = listing.as_mut().unwrap_or(cached);
        let old = objects.get(object.namespace).and_then(|named| named.get(object.name));
        let scale = object.scale.map(|(replicas, status_replicas, selector)| {
            let kept = old.and_then(|old| old.scale.as_ref()).filter(|old| *old.selector == *selector);
            let selector = kept.map_or_else(|| selector.into(), |old| Arc::clone(&old.selector));
            Target { replicas, status_replicas, selector }
        });
        let new = CachedTarget { resource_version: object.resource_version.into(), scale };
        put(objects, object.namespace, object.name, new);
    }

    /// Removes an object that was deleted.
    pub fn delete(&self, namespace: &str, name: &str) {
        let mut state = self.state.write();
        let State { cached, listing, .. } = &mut *state;
        take(listing.as_mut().unwrap_or(cached), namespace, name);
    }

    /// Ends a list. Removes objects that the list did not contain.
    pub fn finish(&self) {
        let mut state = self.state.write();
        if let Some(listing) = state.listing.take() {
            // After insertions in order, the nodes of a map are half empty.
            let dense =
                listing.into_iter().map(|(namespace, named)| (namespace, named.into_iter().collect()));
            state.cached = dense.collect();
        }
    }

    /// Returns the Scale of an object. `None` if the object is not in the store, does not contain its Scale, or may be
    /// newer in the cluster than in the watch.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Target> {
        let state = self.state.read();
        let cached = state.cached.get(namespace)?.get(name)?;
        match state.ahead.get(namespace).and_then(|named| named.get(name)) {
            Some(WatchLag::Unknown) => None,
            Some(WatchLag::At(version)) if is_older(&cached.resource_version, version) => None,
            _ => cached.scale.clone(),
        }
    }

    /// Records the version at which an object was read or written. [`Self::get`] then ignores older versions from the
    /// watch.
    pub fn observe_version(&self, namespace: &str, name: &str, resource_version: &str) {
        let mut state = self.state.write();
        let cached = state.cached.get(namespace).and_then(|named| named.get(name));
        if cached.is_some_and(|cached| !is_older(&cached.resource_version, resource_version)) {
            take(&mut state.ahead, namespace, name);
        } else {
            put(&mut state.ahead, namespace, name, WatchLag::At(resource_version.into()));
        }
    }

    /// Records a write with an unknown outcome. [`Self::get`] ignores the object until the next
    /// [`Self::observe_version`].
    pub fn mark_unknown(&self, namespace: &str, name: &str) {
        put(&mut self.state.write().ahead, namespace, name, WatchLag::Unknown);
    }

    /// Drops the record of reads and writes of an object.
    pub fn forget(&self, namespace: &str, name: &str) {
        take(&mut self.state.write().ahead, namespace, name);
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.state.read().cached.values().map(BTreeMap::len).sum()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.state.read().cached.is_empty()
    }
}

fn put<T>(objects: &mut ByName<T>, namespace: &str, name: &str, value: T) {
    if let Some(named) = objects.get_mut(namespace) {
        named.insert(name.into(), value);
    } else {
        objects.insert(namespace.into(), BTreeMap::from([(name.into(), value)]));
    }
}

fn take<T>(objects: &mut ByName<T>, namespace: &str, name: &str) {
    if let Some(named) = objects.get_mut(namespace) {
        named.remove(name);
        if named.is_empty() {
            objects.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object<'a>(name: &'a str, version: &'a str, replicas: i32) -> TargetInput<'a> {
        let scale = Some((replicas, replicas, "app=web"));
        TargetInput { namespace: "shop", name, resource_version: version, scale }
    }

    fn replicas(targets: &TargetStore, name: &str) -> Option<i32> {
        targets.get("shop", name).map(|target| target.replicas)
    }

    #[test]
    fn list_replaces_the_content_at_its_end() {
        let targets = TargetStore::new();
        targets.begin();
        targets.apply(&object("a", "1", 3));
        targets.apply(&object("b", "2", 4));
        assert!(targets.is_empty());
        targets.finish();
        assert_eq!((replicas(&targets, "a"), replicas(&targets, "b")), (Some(3), Some(4)));
        targets.begin();
        targets.apply(&object("b", "5", 6));
        targets.apply(&object("c", "6", 7));
        targets.delete("shop", "c");
        assert_eq!((replicas(&targets, "a"), replicas(&targets, "b")), (Some(3), Some(4)));
        targets.finish();
        assert_eq!((replicas(&targets, "a"), replicas(&targets, "b"), targets.len()), (None, Some(6), 1));
        targets.delete("shop", "b");
        assert!(targets.is_empty());
    }

    #[test]
    fn object_without_a_scale_has_no_target() {
        let targets = TargetStore::new();
        targets.apply(&object("web", "1", 3));
        targets.apply(&TargetInput { scale: None, ..object("web", "2", 3) });
        assert_eq!(targets.get("shop", "web"), None);
        targets.apply(&object("web", "3", 4));
        assert_eq!(replicas(&targets, "web"), Some(4));
    }

    #[test]
    fn version_older_than_a_read_does_not_count() {
        let targets = TargetStore::new();
        targets.apply(&object("web", "9", 3));
        targets.observe_version("shop", "web", "9");
        assert_eq!(replicas(&targets, "web"), Some(3));
        targets.observe_version("shop", "web", "10");
        assert_eq!(replicas(&targets, "web"), None);
        targets.apply(&object("web", "11", 5));
        assert_eq!(replicas(&targets, "web"), Some(5));
        // A list from a server that lags behind makes the object stale again.
        targets.apply(&object("web", "9", 3));
        assert_eq!(replicas(&targets, "web"), None);
        // After a restore of etcd, a read returns a lower version.
        targets.observe_version("shop", "web", "7");
        assert_eq!(replicas(&targets, "web"), Some(3));
    }

    #[test]
    fn read_before_the_first_event_counts() {
        let targets = TargetStore::new();
        targets.observe_version("shop", "web", "10");
        targets.apply(&object("web", "9", 3));
        assert_eq!(replicas(&targets, "web"), None);
        targets.forget("shop", "web");
        assert_eq!(replicas(&targets, "web"), Some(3));
    }

    #[test]
    fn object_must_be_read_after_a_write_with_an_unknown_outcome() {
        let targets = TargetStore::new();
        targets.apply(&object("web", "9", 3));
        targets.mark_unknown("shop", "web");
        targets.apply(&object("web", "12", 4));
        assert_eq!(replicas(&targets, "web"), None);
        targets.observe_version("shop", "web", "11");
        assert_eq!(replicas(&targets, "web"), Some(4));
    }

    #[test]
    fn unchanged_selector_keeps_its_allocation() {
        let targets = TargetStore::new();
        targets.apply(&object("web", "1", 3));
        let before = targets.get("shop", "web").unwrap().selector;
        targets.apply(&object("web", "2", 4));
        assert!(Arc::ptr_eq(&before, &targets.get("shop", "web").unwrap().selector));
    }
}
