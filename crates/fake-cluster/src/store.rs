//! Objects, resource versions and the history that watches read.
//!
//! Each object is stored as the JSON text that clients receive. It takes little more memory than this text, so that
//! 150,000 pods fit into memory. The text is parsed into a [`Value`] only to read or change the object.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::object::{self, letters};
pub(crate) use super::object::{Key, StoredObject};
use super::registry::{ResourceType, TYPES, TypeKey};

/// Default number of retained changes per resource type. A watch can start from any of them.
const HISTORY: usize = 10_000;

/// The location of a scale target: `…/{group}/{version}/namespaces/{namespace}/{resource}/{name}/scale`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScalePath {
    /// The API group. Empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The plural name of the resource, such as `deployments`.
    pub resource: String,
    /// The namespace of the target.
    pub namespace: String,
    /// The name of the target.
    pub name: String,
}

impl fmt::Display for ScalePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, version, resource, namespace, name } = self;
        let root =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        write!(f, "{root}/namespaces/{namespace}/{resource}/{name}/scale")
    }
}

/// A scale target without a workload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BareScale {
    /// `spec.replicas`.
    pub spec_replicas: i64,
    /// `status.replicas`.
    pub status_replicas: i64,
    /// `status.selector`, which may be any text.
    pub selector: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) kind: ChangeKind,
    pub(crate) now: Arc<StoredObject>,
    pub(crate) before: Option<Arc<StoredObject>>,
}

/// The stored objects of one resource type.
#[derive(Debug, Default)]
struct Table {
    objects: BTreeMap<Key, Arc<StoredObject>>,
    history: VecDeque<Arc<Change>>,
    /// The version up to which the history may lack changes.
    compacted: u64,
    watchers: Vec<Subscriber>,
}

/// The subscription of a watch to a resource type, in one namespace or in all.
#[derive(Debug)]
struct Subscriber {
    namespace: Option<Box<str>>,
    changes: mpsc::UnboundedSender<Arc<Change>>,
}

/// A stream of changes that starts after a requested version.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// Changes since the requested version, oldest first.
    pub(crate) backlog: Vec<Arc<Change>>,
    /// The changes after the start of the subscription.
    pub(crate) live: mpsc::UnboundedReceiver<Arc<Change>>,
}

/// The complete state of the API server.
#[derive(Debug)]
pub(crate) struct State {
    tables: BTreeMap<TypeKey, Table>,
    /// The objects of each owner, by the owner's uid.
    dependents: BTreeMap<Box<str>, BTreeSet<(TypeKey, Key)>>,
    scales: BTreeMap<ScalePath, (BareScale, u64)>,
    /// Number of retained changes per resource type.
    history: usize,
    newest: u64,
    uids: u64,
    names: u64,
    changed: watch::Sender<u64>,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            tables: BTreeMap::new(),
            dependents: BTreeMap::new(),
            scales: BTreeMap::new(),
            history: HISTORY,
            newest: 0,
            uids: 0,
            names: 0,
            changed: watch::Sender::new(0),
        }
    }

    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns a receiver of the newest resourceVersion.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns a unique uid. Uids count up, so that equal runs produce equal objects.
    pub(crate) fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("{:08x}-0000-4000-8000-{:012x}", self.uids >> 48, self.uids & 0xffff_ffff_ffff)
    }

    /// Returns the five letters that follow a `generateName`. No suffix repeats.
    pub(crate) fn next_suffix(&mut self) -> String {
        self.names += 1;
        // Multiplication by a coprime number is a permutation modulo 27^5, the number of suffixes.
        letters((self.names * 6_700_417) % 14_348_907, 5)
    }

    pub(crate) fn get(&self, ty: &ResourceType, namespace: &str, name: &str) -> Option<&Arc<StoredObject>> {
        self.tables.get(&ty.key())?.objects.get(&Key::new(namespace, name))
    }

    /// Lists the objects of a type in one namespace or in all, starting after `after`.
    pub(crate) fn list<'a>(
        &'a self,
        ty: &ResourceType,
        namespace: Option<&'a str>,
        after: Option<&Key>,
    ) -> impl Iterator<Item = &'a Arc<StoredObject>> {
        let first = after.map_or_else(
            || std::ops::Bound::Included(Key::new(namespace.unwrap_or(""), "")),
            |key| std::ops::Bound::Excluded(key.clone()),
        );
        self.tables
            .get(&ty.key())
            .into_iter()
            .flat_map(move |table| table.objects.range((first.clone(), std::ops::Bound::Unbounded)))
            .map(|(_, stored)| stored)
            .take_while(move |stored| namespace.is_none_or(|namespace| stored.namespace() == namespace))
    }

    /// Lists the objects at an earlier version by undoing all later changes. The history must still contain these
    /// changes.
    pub(crate) fn list_at(
        &self,
        ty: &ResourceType,
        namespace: Option<&str>,
        after: Option<&Key>,
        version: u64,
    ) -> Vec<Arc<StoredObject>> {
        let now = self.list(ty, namespace, after);
        let history = self.tables.get(&ty.key()).map(|table| &table.history);
        let since = history
            .into_iter()
            .flat_map(|history| history.iter().rev())
            .take_while(|change| change.now.resource_version > version)
            .filter(|change| namespace.is_none_or(|namespace| change.now.namespace() == namespace))
            .filter(|change| after.is_none_or(|after| change.now.key > *after));
        let mut objects: BTreeMap<&Key, &Arc<StoredObject>> =
            now.map(|stored| (&stored.key, stored)).collect();
        for change in since {
            match &change.before {
                Some(before) => objects.insert(&before.key, before),
                None => objects.remove(&change.now.key),
            };
        }
        objects.into_values().cloned().collect()
    }

    pub(crate) fn count(&self, ty: &ResourceType) -> usize {
        self.tables.get(&ty.key()).map_or(0, |table| table.objects.len())
    }

    /// Stores an object under a new resourceVersion and notifies the watchers.
    pub(crate) fn store(&mut self, ty: &'static ResourceType, mut object: Value) -> Arc<StoredObject> {
        self.stamp(&mut object);
        self.replace(StoredObject::new(ty, object))
    }

    /// Stores an object with the status and the metadata of `changed`, and its other fields unchanged.
    pub(crate) fn store_status(&mut self, stored: &StoredObject, mut changed: Value) -> Arc<StoredObject> {
        self.stamp(&mut changed);
        self.replace(stored.with_status(changed))
    }

    /// Stores an object from its metadata and the JSON texts of its spec and status.
    pub(crate) fn store_parts(
        &mut self,
        ty: &'static ResourceType,
        mut object: Value,
        spec: &str,
        status: &[u8],
    ) -> Arc<StoredObject> {
        self.stamp(&mut object);
        self.replace(StoredObject::from_parts(ty, &object, spec, status))
    }

    fn stamp(&mut self, object: &mut Value) {
        let version = self.advance();
        object::section(object, "metadata").insert("resourceVersion".to_owned(), version.to_string().into());
    }

    fn replace(&mut self, now: StoredObject) -> Arc<StoredObject> {
        let now = Arc::new(now);
        let table = self.tables.entry(now.ty.key()).or_default();
        let before = table.objects.insert(now.key.clone(), Arc::clone(&now));
        let kind = if before.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.index(before.as_deref(), Some(&now));
        self.announce(Change { kind, now: Arc::clone(&now), before });
        now
    }

    /// Removes an object. Watchers get its last state with the resourceVersion of the removal.
    pub(crate) fn remove(
        &mut self,
        ty: &'static ResourceType,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<StoredObject>> {
        let before = self.tables.get_mut(&ty.key())?.objects.remove(&Key::new(namespace, name))?;
        let mut object = before.value();
        self.stamp(&mut object);
        let now = Arc::new(StoredObject::new(ty, object));
        self.index(Some(&before), None);
        self.announce(Change { kind: ChangeKind::Deleted, now: Arc::clone(&now), before: Some(before) });
        Some(now)
    }

    /// Returns the objects that name `uid` as the uid of an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<(&'static ResourceType, Key)> {
        self.dependents
            .get(uid)
            .into_iter()
            .flatten()
            .filter_map(|((group, resource), key)| {
                let ty = TYPES.iter().find(|ty| ty.key() == (*group, *resource))?;
                Some((ty, key.clone()))
            })
            .collect()
    }

    /// Starts a stream of the changes after version `from`. Fails with the oldest possible version if `from` is older.
    pub(crate) fn subscribe(
        &mut self,
        ty: &ResourceType,
        namespace: Option<&str>,
        from: u64,
    ) -> Result<Subscription, u64> {
        let table = self.tables.entry(ty.key()).or_default();
        if from < table.compacted {
            return Err(table.compacted);
        }
        let backlog = table
            .history
            .iter()
            .skip(table.history.partition_point(|change| change.now.resource_version <= from))
            .filter(|change| namespace.is_none_or(|namespace| change.now.namespace() == namespace))
            .cloned()
            .collect();
        let (sender, live) = mpsc::unbounded_channel();
        table.watchers.retain(|subscriber| !subscriber.changes.is_closed());
        table.watchers.push(Subscriber { namespace: namespace.map(Into::into), changes: sender });
        Ok(Subscription { backlog, live })
    }

    /// Returns whether a version is older than the history of a type.
    pub(crate) fn is_compacted(&self, ty: &ResourceType, version: u64) -> bool {
        self.tables.get(&ty.key()).is_some_and(|table| version < table.compacted)
    }

    /// Drops the history: no watch can start from an earlier version. Open watches continue.
    pub(crate) fn compact(&mut self) {
        for ty in TYPES {
            let table = self.tables.entry(ty.key()).or_default();
            table.history.clear();
            table.compacted = self.newest;
        }
    }

    /// Replaces all objects with those of an earlier version, which becomes the newest version. Closes open watches.
    /// The history must still contain all changes since that version. Bare scales are not changed.
    pub(crate) fn restore(&mut self, version: u64) {
        self.dependents.clear();
        for ty in TYPES {
            let objects = self.list_at(ty, None, None, version);
            for stored in &objects {
                self.index(None, Some(stored));
            }
            let table = self.tables.entry(ty.key()).or_default();
            table.objects = objects.into_iter().map(|stored| (stored.key.clone(), stored)).collect();
            table.history.retain(|change| change.now.resource_version <= version);
            table.watchers.clear();
        }
        self.newest = version;
        self.changed.send_replace(version);
    }

    /// Advances the newest version by `versions` without a change.
    pub(crate) fn skip(&mut self, versions: u64) {
        self.newest += versions;
    }

    /// Sets the number of retained changes per type. The limit takes effect at the next change of each type.
    pub(crate) fn keep_history(&mut self, changes: usize) {
        self.history = changes;
    }

    pub(crate) fn scale(&self, path: &ScalePath) -> Option<&(BareScale, u64)> {
        self.scales.get(path)
    }

    pub(crate) fn set_scale(&mut self, path: ScalePath, scale: BareScale) -> u64 {
        let version = self.advance();
        self.changed.send_replace(version);
        self.scales.insert(path, (scale, version));
        version
    }

    pub(crate) fn remove_scale(&mut self, path: &ScalePath) {
        self.scales.remove(path);
    }

    fn advance(&mut self) -> u64 {
        self.newest += 1;
        self.newest
    }

    fn index(&mut self, before: Option<&StoredObject>, now: Option<&StoredObject>) {
        if let Some(stored) = before {
            for owner in &stored.owners {
                if let Some(owned) = self.dependents.get_mut(owner) {
                    owned.remove(&(stored.ty.key(), stored.key.clone()));
                    if owned.is_empty() {
                        self.dependents.remove(owner);
                    }
                }
            }
        }
        if let Some(stored) = now {
            for owner in &stored.owners {
                let owned = self.dependents.entry(owner.clone()).or_default();
                owned.insert((stored.ty.key(), stored.key.clone()));
            }
        }
    }

    fn announce(&mut self, change: Change) {
        let change = Arc::new(change);
        let version = change.now.resource_version;
        let table = self.tables.entry(change.now.ty.key()).or_default();
        table.watchers.retain(|subscriber| {
            let namespace = subscriber.namespace.as_deref();
            let matches = namespace.is_none_or(|namespace| change.now.namespace() == namespace);
            !matches || subscriber.changes.send(Arc::clone(&change)).is_ok()
        });
        table.history.push_back(change);
        while table.history.len() > self.history
            && let Some(oldest) = table.history.pop_front()
        {
            table.compacted = oldest.now.resource_version;
        }
        self.changed.send_replace(version);
    }
}
