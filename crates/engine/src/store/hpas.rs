//! The HPAs of the watched namespaces, or only those in scope, with their unmodified metadata. The store also applies
//! HPAs that were read outside of the watch, because a status write failed or the watch has not delivered it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use autoscaling::status::Status;
use parking_lot::RwLock;
use tokio::time::Instant;

use super::{HpaRecord, Key, OpenLists, within};

/// The effect of a new record or of a list on one HPA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The store did not contain the HPA.
    New,
    /// The spec changed: another `metadata.generation`, or another spec if the server sets no generation.
    SpecChanged,
    /// The status or the metadata changed, but not the spec.
    StatusOnly,
    /// The HPA was deleted and created again under the same name.
    Recreated {
        /// `metadata.uid` of the deleted object.
        old_uid: Arc<str>,
    },
    /// The same version of the object was received again.
    Unchanged,
    /// The HPA was deleted. [`Hpas::finish`] reports this. For a deletion from the watch, [`Hpas::delete`] returns the
    /// record instead.
    Deleted {
        /// `metadata.uid` of the deleted object.
        uid: Arc<str>,
    },
}

/// One HPA before and after an update, or after a list that did not contain the HPA.
#[derive(Debug, Clone)]
pub struct Update {
    /// The effect of the update.
    pub change: Change,
    /// The previous record: `None` for a new HPA, the deleted object after [`Change::Recreated`].
    pub old: Option<Arc<HpaRecord>>,
    /// The current record. `None` after a deletion.
    pub new: Option<Arc<HpaRecord>>,
    /// Whether our last status write is missing in a list that started after the write, or in a later read. The server
    /// has then lost the write, as after a restore of etcd.
    pub lost_write: bool,
}

/// The reason why the stored record of an HPA is older than our last write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staleness {
    /// The watch should deliver the write soon.
    Awaited,
    /// The watch may never deliver the write, so the HPA should be read.
    Late,
}

/// The HPAs from the watches.
#[derive(Debug, Default)]
pub struct Hpas {
    state: RwLock<State>,
    removals: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    cached: BTreeMap<Key, CachedHpa>,
    listed: OpenLists,
    /// Records of the lists in progress.
    listing: BTreeMap<Key, Arc<HpaRecord>>,
    synced: bool,
}

#[derive(Debug)]
struct CachedHpa {
    record: Arc<HpaRecord>,
    /// The version that the watch must deliver: the version of our last status write, or of a later read.
    wrote: Option<Wrote>,
    /// `resourceVersion` that the server returned for our last status write of this object.
    acknowledged: Option<String>,
    /// The last status that this controller sent.
    sent: Option<Arc<Status>>,
    /// Whether the record was read outside of the watch, and the watch has not delivered the HPA since then.
    is_read: bool,
}

#[derive(Debug)]
struct Wrote {
    /// `resourceVersion` after the write, or of the read.
    version: String,
    /// Whether a list started after the write.
    listing: bool,
    /// Time at which this process recorded the write.
    at: Instant,
}

impl Wrote {
    fn new(version: impl Into<String>) -> Self {
        Self { version: version.into(), listing: false, at: Instant::now() }
    }

    /// Returns whether a record does not contain the write.
    fn is_missing(&self, record: &HpaRecord) -> bool {
        is_older(&record.resource_version, &self.version)
    }
}

impl Hpas {
    /// Creates an empty store that is not synced.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a list of a namespace, or of all namespaces. Readers see the previous content until [`Self::finish`].
    /// Drops an unfinished list of the same scope.
    pub fn begin(&self, namespace: Option<&str>) {
        let mut state = self.state.write();
        state.listing.retain(|key, _| !within(&key.namespace, namespace));
        state.listed.start(namespace);
        for (key, cached) in &mut state.cached {
            if let Some(wrote) = cached.wrote.as_mut().filter(|_| within(&key.namespace, namespace)) {
                wrote.listing = true;
            }
        }
    }

    /// Applies an HPA that was listed, added or changed. Returns `None` while a list is collected, because
    /// [`Self::finish`] reports the changes of the list. Also returns `None` for an event of an object that
    /// [`Self::apply_fresh`] has replaced.
    pub fn apply(&self, mut record: HpaRecord) -> Option<Update> {
        let mut state = self.state.write();
        state.share_texts(&mut record);
        if state.listed.covers(&record.key.namespace) {
            // Most listed records are unchanged, so the stored record is kept.
            let cached = state.cached.get(&record.key).map(|cached| &cached.record);
            let record =
                cached.filter(|cached| cached.is_same(&record)).map_or_else(|| Arc::new(record), Arc::clone);
            state.listing.insert(record.key.clone(), record);
            return None;
        }
        let cached = state.cached.get(&record.key).map(|cached| &cached.record);
        let replaced = cached.is_some_and(|cached| {
            cached.uid != record.uid && is_older(&record.resource_version, &cached.resource_version)
        });
        (!replaced).then(|| self.put(&mut state, Arc::new(record)))
    }

    /// Applies the deletion of the HPA with the given UID and returns its record. An HPA of the same name with another
    /// UID stays, because the event may be late.
    pub fn delete(&self, key: &Key, uid: &str) -> Option<Arc<HpaRecord>> {
        let mut state = self.state.write();
        if state.listed.covers(&key.namespace) {
            if state.listing.get(key).is_some_and(|listed| *listed.uid == *uid) {
                state.listing.remove(key);
            }
            return None;
        }
        state.cached.get(key).filter(|cached| *cached.record.uid == *uid)?;
        self.removed();
        state.cached.remove(key).map(|cached| cached.record)
    }

    /// Ends a list. Removes HPAs in its scope that the list did not contain. Returns an update for every HPA that the
    /// list contained or removed, by key.
    pub fn finish(&self, namespace: Option<&str>) -> Vec<Update> {
        let mut state = self.state.write();
        let State { cached, listed, listing, synced } = &mut *state;
        if !listed.end(namespace) {
            return Vec::new();
        }
        *synced = true;
        let is_first = cached.is_empty();
        let mut updates = BTreeMap::new();
        let removed =
            cached.extract_if(.., |key, _| within(&key.namespace, namespace) && !listing.contains_key(key));
        for (key, CachedHpa { record, .. }) in removed {
            let change = Change::Deleted { uid: Arc::clone(&record.uid) };
            updates.insert(key, Update { change, old: Some(record), new: None, lost_write: false });
            self.removed();
        }
        let listed = listing.extract_if(.., |key, _| within(&key.namespace, namespace));
        let listed: Vec<_> = listed.collect();
        for (key, record) in listed {
            // A list requests no version, so it is consistent. A list that started after our write lacks the write only
            // if the server has lost it. Without this check, the HPA would be stale until the versions of the server
            // have caught up.
            let wrote = state.cached.get_mut(&key).map(|cached| &mut cached.wrote);
            let lost =
                wrote.and_then(|wrote| wrote.take_if(|wrote| wrote.listing && wrote.is_missing(&record)));
            let update = self.put(&mut state, record);
            let lost_write = lost.is_some() && !matches!(update.change, Change::Recreated { .. });
            updates.insert(key, Update { lost_write, ..update });
        }
        if is_first {
            // After insertions in order, the nodes of a map are half empty.
            state.cached = std::mem::take(&mut state.cached).into_iter().collect();
        }
        updates.into_values().collect()
    }

    /// Returns one HPA.
    pub fn get(&self, key: &Key) -> Option<Arc<HpaRecord>> {
        self.state.read().cached.get(key).map(|cached| Arc::clone(&cached.record))
    }

    /// Returns one HPA, with the last status that this controller sent.
    pub fn known(&self, key: &Key) -> Option<(Arc<HpaRecord>, Option<Arc<Status>>)> {
        self.state.read().cached.get(key).map(|cached| (Arc::clone(&cached.record), cached.sent.clone()))
    }

    /// Returns all keys, sorted.
    pub fn keys(&self) -> Vec<Key> {
        self.state.read().cached.keys().cloned().collect()
    }

    /// Returns all HPAs by key.
    pub fn all(&self) -> BTreeMap<Key, Arc<HpaRecord>> {
        let state = self.state.read();
        state.cached.iter().map(|(key, cached)| (key.clone(), Arc::clone(&cached.record))).collect()
    }

    /// Returns the HPAs of a namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<HpaRecord>> {
        let state = self.state.read();
        let from = state.cached.range(Key::new(namespace, "")..).map(|(_, cached)| &cached.record);
        from.take_while(|record| *record.key.namespace == *namespace).cloned().collect()
    }

    /// Returns how often an HPA was deleted, or replaced by another HPA of its name. While the number is the same, every
    /// HPA that was in the store still is.
    pub fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    fn removed(&self) {
        self.removals.fetch_add(1, Ordering::Release);
    }

    fn put(&self, state: &mut State, new: Arc<HpaRecord>) -> Update {
        let update = state.put(new);
        if matches!(update.change, Change::Recreated { .. }) {
            self.removed();
        }
        update
    }

    /// Returns the number of HPAs.
    pub fn len(&self) -> usize {
        self.state.read().cached.len()
    }

    /// Returns whether there are no HPAs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether at least one list has finished.
    pub fn is_synced(&self) -> bool {
        self.state.read().synced
    }

    /// Applies an HPA that was read after our last write. The stored object must have the given UID, because only the
    /// watch may add an HPA. Ignores a read that is not newer than the stored record, unless the read lacks our write,
    /// which the server has then lost. Older events from the watch make the HPA stale until the watch has caught up.
    /// While a list is collected, the record is not applied, because the list will contain it.
    pub fn apply_fresh(&self, uid: &str, mut record: HpaRecord) -> Option<Update> {
        let mut state = self.state.write();
        state.share_texts(&mut record);
        let listing = state.listed.covers(&record.key.namespace);
        let cached = state.cached.get_mut(&record.key)?;
        let newer = is_older(&cached.record.resource_version, &record.resource_version);
        let lost_write = cached.wrote.as_ref().is_some_and(|wrote| wrote.is_missing(&record));
        if !(newer || lost_write) || *cached.record.uid != *uid {
            return None;
        }
        let (key, version) = (record.key.clone(), record.resource_version.clone());
        let update = (!listing).then(|| Update { lost_write, ..self.put(&mut state, Arc::new(record)) });
        if let Some(cached) = state.cached.get_mut(&key) {
            cached.wrote = Some(Wrote::new(version));
            cached.is_read = true;
        }
        update
    }

    /// Returns why the stored record of an HPA is older than our last write. `None` if it is not older. `period`: the
    /// sync period.
    pub fn staleness(&self, key: &Key, period: Duration) -> Option<Staleness> {
        let state = self.state.read();
        let cached = state.cached.get(key)?;
        let wrote = cached.wrote.as_ref().filter(|wrote| wrote.is_missing(&cached.record))?;
        let is_late = cached.is_read || wrote.at.elapsed() > period + period / 2;
        Some(if is_late { Staleness::Late } else { Staleness::Awaited })
    }

    /// Records a status before its write, because the watch may deliver the status before the response arrives. Does
    /// nothing for a deleted object.
    pub fn sends(&self, key: &Key, uid: &str, status: Arc<Status>) {
        let mut state = self.state.write();
        if let Some(cached) = state.cached.get_mut(key).filter(|cached| *cached.record.uid == *uid) {
            cached.sent = Some(status);
        }
    }

    /// Records the `resourceVersion` after our own write of an HPA's status (feature gate
    /// StaleControllerConsistencyHPA). Does nothing if the object was deleted. A version that is not a number replaces no
    /// earlier version, because it cannot be compared.
    pub fn wrote(&self, key: &Key, uid: &str, resource_version: &str) {
        let mut state = self.state.write();
        if let Some(cached) = state.cached.get_mut(key).filter(|cached| *cached.record.uid == *uid) {
            if digits(resource_version).is_some() {
                cached.wrote = Some(Wrote::new(resource_version));
            }
            cached.acknowledged = Some(resource_version.to_owned());
        }
    }

    /// Returns the `resourceVersion` that the server returned for our last status write of an HPA.
    pub fn acknowledged(&self, key: &Key) -> Option<String> {
        self.state.read().cached.get(key)?.acknowledged.clone()
    }
}

impl HpaRecord {
    /// Classifies the change from an earlier record of the same name.
    fn change_since(&self, old: &Self) -> Change {
        if old.uid != self.uid {
            return Change::Recreated { old_uid: Arc::clone(&old.uid) };
        }
        let same_spec = match (old.generation, self.generation) {
            (Some(old), Some(new)) => old == new,
            _ => self.spec == old.spec,
        };
        if !same_spec {
            Change::SpecChanged
        } else if self.is_same(old) {
            Change::Unchanged
        } else {
            Change::StatusOnly
        }
    }
}

impl State {
    /// Replaces key and UID of a record by those of the stored record, or its namespace by that of a neighbor. Queue,
    /// histories and other maps keep clones of them, so that each text is in memory once.
    fn share_texts(&self, record: &mut HpaRecord) {
        if let Some((key, cached)) = self.cached.get_key_value(&record.key) {
            record.key = key.clone();
            if cached.record.uid == record.uid {
                record.uid = Arc::clone(&cached.record.uid);
            }
            return;
        }
        let neighbors = [
            self.listing.range(..&record.key).next_back().map(|(key, _)| key),
            self.cached.range(..&record.key).next_back().map(|(key, _)| key),
        ];
        let is_near = |key: &&Key| key.namespace == record.key.namespace;
        if let Some(key) = neighbors.into_iter().flatten().find(is_near) {
            record.key.namespace = Arc::clone(&key.namespace);
        }
    }

    fn put(&mut self, new: Arc<HpaRecord>) -> Update {
        let Some(cached) = self.cached.get_mut(&new.key) else {
            let record = Arc::clone(&new);
            let cached = CachedHpa { record, wrote: None, acknowledged: None, sent: None, is_read: false };
            self.cached.insert(new.key.clone(), cached);
            return Update { change: Change::New, old: None, new: Some(new), lost_write: false };
        };
        let old = std::mem::replace(&mut cached.record, Arc::clone(&new));
        cached.is_read = false;
        let change = new.change_since(&old);
        if matches!(change, Change::Recreated { .. }) {
            (cached.wrote, cached.acknowledged, cached.sent) = (None, None, None);
        }
        Update { change, old: Some(old), new: Some(new), lost_write: false }
    }
}

/// Compares resource versions as numbers of any length, as the API conventions allow for versions of one resource. A
/// version that is not a number is never older, because a server whose versions are not numbers must not stop all
/// syncs.
pub fn is_older(version: &str, than: &str) -> bool {
    match (digits(version), digits(than)) {
        (Some(version), Some(than)) => (version.len(), version) < (than.len(), than),
        _ => false,
    }
}

/// Returns the digits of a number without leading zeros.
fn digits(text: &str) -> Option<&str> {
    let number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    number.then(|| text.trim_start_matches('0'))
}

#[cfg(test)]
mod tests;
