//! Scalable objects of one resource, as far as a Scale shows them.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use super::{is_older, read, write};

/// A scalable object as it was received.
#[derive(Debug, Clone, Copy)]
pub struct TargetInput<'a> {
    /// `metadata.namespace`.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.resourceVersion`.
    pub resource_version: &'a str,
    /// `spec.replicas`, `status.replicas` and `status.selector` of its Scale; `None` if the object does not tell.
    pub scale: Option<(i32, i32, &'a str)>,
}

/// What is known of a target's Scale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `spec.replicas`
    pub replicas: i32,
    /// `status.replicas`
    pub status_replicas: i32,
    /// `status.selector`
    pub selector: Arc<str>,
}

/// The objects that one watch has told of. One task writes (the watch), any number read.
#[derive(Debug, Default)]
pub struct Targets {
    state: RwLock<State>,
}

/// By namespace, then by name.
type ByName<T> = BTreeMap<Arc<str>, BTreeMap<Box<str>, T>>;

#[derive(Debug, Default)]
struct State {
    known: ByName<Known>,
    /// What the list that has begun named so far.
    listing: Option<ByName<Known>>,
    /// What was seen beside the watch, and the watch has yet to show.
    ahead: ByName<Ahead>,
}

#[derive(Debug)]
struct Known {
    resource_version: Box<str>,
    scale: Option<Target>,
}

/// How far the cluster is known to be ahead of the watch.
#[derive(Debug)]
enum Ahead {
    /// At least at this `resourceVersion`.
    At(Box<str>),
    /// A write was sent, and nobody knows to what version it led.
    Unknown,
}

impl Targets {
    /// A store that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a list. Until [`Self::finish`], readers see what was known before; an unfinished list is dropped.
    pub fn begin(&self) {
        write(&self.state).listing = Some(BTreeMap::new());
    }

    /// Takes in an object that was listed, added or changed.
    pub fn apply(&self, object: &TargetInput<'_>) {
        let mut state = write(&self.state);
        let State { known, listing, .. } = &mut *state;
        let objects = listing.as_mut().unwrap_or(known);
        let old = objects.get(object.namespace).and_then(|named| named.get(object.name));
        let scale = object.scale.map(|(replicas, status_replicas, selector)| {
            let kept = old.and_then(|old| old.scale.as_ref()).filter(|old| *old.selector == *selector);
            let selector = kept.map_or_else(|| selector.into(), |old| Arc::clone(&old.selector));
            Target { replicas, status_replicas, selector }
        });
        let new = Known { resource_version: object.resource_version.into(), scale };
        put(objects, object.namespace, object.name, new);
    }

    /// Takes in that an object was deleted.
    pub fn delete(&self, namespace: &str, name: &str) {
        let mut state = write(&self.state);
        let State { known, listing, .. } = &mut *state;
        take(listing.as_mut().unwrap_or(known), namespace, name);
    }

    /// Ends a list: what it did not name is gone.
    pub fn finish(&self) {
        let mut state = write(&self.state);
        if let Some(listing) = state.listing.take() {
            state.known = listing;
        }
    }

    /// What the Scale of an object shows. `None` if the object is not known, does not tell, or has been seen to be further
    /// than the watch has shown it.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Target> {
        let state = read(&self.state);
        let known = state.known.get(namespace)?.get(name)?;
        match state.ahead.get(namespace).and_then(|named| named.get(name)) {
            Some(Ahead::Unknown) => None,
            Some(Ahead::At(version)) if is_older(&known.resource_version, version) => None,
            _ => known.scale.clone(),
        }
    }

    /// Remembers that an object was read or written at a version: what is older does not count any more.
    pub fn saw(&self, namespace: &str, name: &str, resource_version: &str) {
        let mut state = write(&self.state);
        let known = state.known.get(namespace).and_then(|named| named.get(name));
        if known.is_some_and(|known| !is_older(&known.resource_version, resource_version)) {
            take(&mut state.ahead, namespace, name);
        } else {
            put(&mut state.ahead, namespace, name, Ahead::At(resource_version.into()));
        }
    }

    /// Remembers that an object was written to, without knowing what came of it: until it is read again, nothing that the
    /// watch shows counts.
    pub fn lost_sight(&self, namespace: &str, name: &str) {
        put(&mut write(&self.state).ahead, namespace, name, Ahead::Unknown);
    }

    /// Drops what was remembered of an object beside the watch.
    pub fn forget(&self, namespace: &str, name: &str) {
        take(&mut write(&self.state).ahead, namespace, name);
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        read(&self.state).known.values().map(BTreeMap::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        read(&self.state).known.is_empty()
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

    fn replicas(targets: &Targets, name: &str) -> Option<i32> {
        targets.get("shop", name).map(|target| target.replicas)
    }

    #[test]
    fn a_list_replaces_what_was_known_at_its_end() {
        let targets = Targets::new();
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
    fn an_object_that_does_not_tell_its_scale_is_not_taken_for_what_it_was() {
        let targets = Targets::new();
        targets.apply(&object("web", "1", 3));
        targets.apply(&TargetInput { scale: None, ..object("web", "2", 3) });
        assert_eq!(targets.get("shop", "web"), None);
        targets.apply(&object("web", "3", 4));
        assert_eq!(replicas(&targets, "web"), Some(4));
    }

    #[test]
    fn what_is_older_than_a_version_that_was_seen_does_not_count() {
        let targets = Targets::new();
        targets.apply(&object("web", "9", 3));
        targets.saw("shop", "web", "9");
        assert_eq!(replicas(&targets, "web"), Some(3));
        targets.saw("shop", "web", "10");
        assert_eq!(replicas(&targets, "web"), None);
        targets.apply(&object("web", "11", 5));
        assert_eq!(replicas(&targets, "web"), Some(5));
        // A list from a server that lags behind takes us back.
        targets.apply(&object("web", "9", 3));
        assert_eq!(replicas(&targets, "web"), None);
        // After a restore of etcd versions are smaller, and so is what is read.
        targets.saw("shop", "web", "7");
        assert_eq!(replicas(&targets, "web"), Some(3));
    }

    #[test]
    fn a_version_counts_that_was_seen_before_the_object_was() {
        let targets = Targets::new();
        targets.saw("shop", "web", "10");
        targets.apply(&object("web", "9", 3));
        assert_eq!(replicas(&targets, "web"), None);
        targets.forget("shop", "web");
        assert_eq!(replicas(&targets, "web"), Some(3));
    }

    #[test]
    fn after_a_write_of_which_nobody_knows_what_came_the_object_has_to_be_read() {
        let targets = Targets::new();
        targets.apply(&object("web", "9", 3));
        targets.lost_sight("shop", "web");
        targets.apply(&object("web", "12", 4));
        assert_eq!(replicas(&targets, "web"), None);
        targets.saw("shop", "web", "11");
        assert_eq!(replicas(&targets, "web"), Some(4));
    }

    #[test]
    fn a_selector_that_stays_is_kept() {
        let targets = Targets::new();
        targets.apply(&object("web", "1", 3));
        let before = targets.get("shop", "web").unwrap().selector;
        targets.apply(&object("web", "2", 4));
        assert!(Arc::ptr_eq(&before, &targets.get("shop", "web").unwrap().selector));
    }
}
