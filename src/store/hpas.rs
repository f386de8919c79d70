//! All HPAs of the cluster, with their metadata as received.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use autoscaling::spec::Spec;
use autoscaling::status::Status;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::listed::{Listed, within};
use super::{Key, read, write};

/// One HPA as it was received.
#[derive(Debug, Clone)]
pub struct HpaRecord {
    /// Namespace and name.
    pub key: Key,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.generation`; servers before 1.37 set none.
    pub generation: Option<i64>,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata`, byte for byte: a status PUT must send it back or the server deletes what is left out.
    pub metadata: Box<RawValue>,
    /// `spec`, byte for byte.
    pub spec_raw: Arc<RawValue>,
    /// `spec`, read.
    pub spec: Arc<Spec>,
    /// `status`, read.
    pub status: Arc<Status>,
    /// Who wrote `status`.
    pub status_writers: Vec<StatusWriter>,
}

/// Who wrote the status of an HPA, and when last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusWriter {
    /// The field manager.
    pub manager: Arc<str>,
    /// By the server's clock, in whole seconds.
    pub at: Timestamp,
}

impl From<(String, Timestamp)> for StatusWriter {
    fn from((manager, at): (String, Timestamp)) -> Self {
        Self { manager: manager.into(), at }
    }
}

/// What a new record, or a list, changed for one HPA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was not known.
    New,
    /// It wants something else: another `metadata.generation`, or another spec where the server counts none.
    SpecChanged,
    /// Status or metadata changed, the spec did not.
    StatusOnly,
    /// Deleted and created again under the same name.
    Recreated {
        /// `metadata.uid` of the one that is gone.
        old_uid: Arc<str>,
    },
    /// The same object, received again.
    Unchanged,
    /// It is gone. Only a list reports so; for a deletion that was watched, [`Hpas::delete`] hands out the record.
    Deleted {
        /// `metadata.uid` of the one that is gone.
        uid: Arc<str>,
    },
}

/// One HPA before and after it was received, or after a list that did not name it.
#[derive(Debug, Clone)]
pub struct Update {
    /// What that changed.
    pub change: Change,
    /// As it was known before; `None` if it was not. After [`Change::Recreated`] the one that is gone.
    pub old: Option<Arc<HpaRecord>>,
    /// As it is known now; `None` if it is gone.
    pub new: Option<Arc<HpaRecord>>,
}

/// The HPAs that the watch has told of. One task writes (the watch), any number read.
#[derive(Debug, Default)]
pub struct Hpas {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<Key, Known>,
    listed: Listed,
    /// What the lists that have begun named so far.
    listing: BTreeMap<Key, Arc<HpaRecord>>,
    synced: bool,
}

#[derive(Debug)]
struct Known {
    record: Arc<HpaRecord>,
    /// `resourceVersion` that our own last status write of this object got.
    wrote: Option<String>,
    /// The status that was sent last.
    sent: Option<Arc<Status>>,
}

impl Hpas {
    /// An empty store that has not seen a list yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a list of a namespace, or of all. Until [`Self::finish`], readers see what was known before; an unfinished
    /// list of the same is dropped.
    pub fn begin(&self, namespace: Option<&str>) {
        let mut state = write(&self.state);
        state.listing.retain(|key, _| !within(&key.namespace, namespace));
        state.listed.begin(namespace);
    }

    /// Takes in an HPA that was listed, added or changed. `None` while a list is collected, whose end reports, and for an
    /// event of an object that [`Self::heal`] knows to be replaced.
    pub fn apply(&self, record: HpaRecord) -> Option<Update> {
        let mut state = write(&self.state);
        if state.listed.covers(&record.key.namespace) {
            // Most of what is listed again has not changed: then one copy is enough.
            let known = state.known.get(&record.key).map(|known| &known.record);
            let record =
                known.filter(|known| known.is_same(&record)).map_or_else(|| Arc::new(record), Arc::clone);
            state.listing.insert(record.key.clone(), record);
            return None;
        }
        let known = state.known.get(&record.key).map(|known| &known.record);
        let replaced = known.is_some_and(|known| {
            known.uid != record.uid && is_older(&record.resource_version, &known.resource_version)
        });
        (!replaced).then(|| state.put(Arc::new(record)))
    }

    /// Takes in that the HPA with this UID was deleted and hands out what was known of it. The event may be late: another
    /// one of its name stays.
    pub fn delete(&self, key: &Key, uid: &str) -> Option<Arc<HpaRecord>> {
        let mut state = write(&self.state);
        if state.listed.covers(&key.namespace) {
            if state.listing.get(key).is_some_and(|listed| *listed.uid == *uid) {
                state.listing.remove(key);
            }
            return None;
        }
        state.known.get(key).filter(|known| *known.record.uid == *uid)?;
        state.known.remove(key).map(|known| known.record)
    }

    /// Ends a list: what of its namespace, or of all, it did not name is gone. Answers with every HPA that it named or
    /// removed, by key.
    pub fn finish(&self, namespace: Option<&str>) -> Vec<Update> {
        let mut state = write(&self.state);
        let State { known, listed, listing, synced } = &mut *state;
        if !listed.end(namespace) {
            return Vec::new();
        }
        *synced = true;
        let mut updates = BTreeMap::new();
        let gone =
            known.extract_if(.., |key, _| within(&key.namespace, namespace) && !listing.contains_key(key));
        for (key, Known { record, .. }) in gone {
            let change = Change::Deleted { uid: Arc::clone(&record.uid) };
            updates.insert(key, Update { change, old: Some(record), new: None });
        }
        let named = listing.extract_if(.., |key, _| within(&key.namespace, namespace));
        let named: Vec<_> = named.collect();
        for (key, record) in named {
            updates.insert(key, state.put(record));
        }
        updates.into_values().collect()
    }

    /// One HPA.
    pub fn get(&self, key: &Key) -> Option<Arc<HpaRecord>> {
        read(&self.state).known.get(key).map(|known| Arc::clone(&known.record))
    }

    /// One HPA, with the status that was sent last.
    pub fn known(&self, key: &Key) -> Option<(Arc<HpaRecord>, Option<Arc<Status>>)> {
        read(&self.state).known.get(key).map(|known| (Arc::clone(&known.record), known.sent.clone()))
    }

    /// All keys, sorted.
    pub fn keys(&self) -> Vec<Key> {
        read(&self.state).known.keys().cloned().collect()
    }

    /// All HPAs by key, as they are now.
    pub fn all(&self) -> BTreeMap<Key, Arc<HpaRecord>> {
        read(&self.state).known.iter().map(|(key, known)| (key.clone(), Arc::clone(&known.record))).collect()
    }

    /// How many HPAs there are.
    pub fn len(&self) -> usize {
        read(&self.state).known.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a list was ever finished.
    pub fn is_synced(&self) -> bool {
        read(&self.state).synced
    }

    /// Remembers a status that is about to be sent: the watch may show it before the answer comes. Without effect if that
    /// object is gone.
    pub fn sends(&self, key: &Key, uid: &str, status: Arc<Status>) {
        let mut state = write(&self.state);
        if let Some(known) = state.known.get_mut(key).filter(|known| *known.record.uid == *uid) {
            known.sent = Some(status);
        }
    }

    /// Remembers the `resourceVersion` that our own write of an HPA's status got (gate StaleControllerConsistencyHPA).
    /// Without effect if that object is gone.
    pub fn wrote(&self, key: &Key, uid: &str, resource_version: &str) {
        let mut state = write(&self.state);
        if let Some(known) = state.known.get_mut(key).filter(|known| *known.record.uid == *uid) {
            known.wrote = Some(resource_version.to_owned());
        }
    }

    /// Takes in an HPA that was read beside the watch, if it is newer than what is known of it, and if that is still the
    /// object with this UID: what is gone only the watch brings back. Until the watch has caught up, the HPA is stale where
    /// it shows less. While a list is collected, that is all: the list tells the rest.
    pub fn heal(&self, uid: &str, record: HpaRecord) -> Option<Update> {
        let mut state = write(&self.state);
        let listing = state.listed.covers(&record.key.namespace);
        let known = state.known.get_mut(&record.key)?;
        let newer = is_older(&known.record.resource_version, &record.resource_version);
        if !newer || *known.record.uid != *uid {
            return None;
        }
        let (key, version) = (record.key.clone(), record.resource_version.clone());
        let update = (!listing).then(|| state.put(Arc::new(record)));
        if let Some(known) = state.known.get_mut(&key) {
            known.wrote = Some(version);
        }
        update
    }

    /// Whether the known state of an HPA is older than our own last write of it.
    pub fn is_stale(&self, key: &Key) -> bool {
        let state = read(&self.state);
        state.known.get(key).is_some_and(|known| {
            known.wrote.as_deref().is_some_and(|wrote| is_older(&known.record.resource_version, wrote))
        })
    }
}

impl HpaRecord {
    /// Whether it is the same state of the same object.
    fn is_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.resource_version == other.resource_version
    }

    /// What differs in this state of an HPA from an earlier one under the same name.
    fn change_since(&self, old: &Self) -> Change {
        if old.uid != self.uid {
            return Change::Recreated { old_uid: Arc::clone(&old.uid) };
        }
        let same_spec = match (old.generation, self.generation) {
            (Some(old), Some(new)) => old == new,
            _ => old.spec == self.spec,
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
    fn put(&mut self, new: Arc<HpaRecord>) -> Update {
        let Some(known) = self.known.get_mut(&new.key) else {
            self.known.insert(new.key.clone(), Known { record: Arc::clone(&new), wrote: None, sent: None });
            return Update { change: Change::New, old: None, new: Some(new) };
        };
        let old = std::mem::replace(&mut known.record, Arc::clone(&new));
        let change = new.change_since(&old);
        if matches!(change, Change::Recreated { .. }) {
            (known.wrote, known.sent) = (None, None);
        }
        Update { change, old: Some(old), new: Some(new) }
    }
}

/// Compares resource versions as numbers of any length, as the API conventions allow for versions of one resource.
/// What is not a number is older than nothing: a server with other versions must not stop all syncs.
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    fn digits(text: &str) -> Option<&str> {
        let number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        number.then(|| text.trim_start_matches('0'))
    }
    match (digits(version), digits(than)) {
        (Some(version), Some(than)) => (version.len(), version) < (than.len(), than),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(max: i32) -> Spec {
        serde_json::from_value(serde_json::json!({
            "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
            "maxReplicas": max,
        }))
        .unwrap()
    }

    fn record(name: &str, uid: &str, generation: Option<i64>, version: &str, max: i32) -> HpaRecord {
        HpaRecord {
            key: Key::new("shop", name),
            uid: uid.into(),
            generation,
            resource_version: version.to_owned(),
            metadata: RawValue::from_string("{}".to_owned()).unwrap(),
            spec_raw: RawValue::from_string("{}".to_owned()).unwrap().into(),
            spec: Arc::new(spec(max)),
            status: Arc::new(Status::default()),
            status_writers: Vec::new(),
        }
    }

    fn apply(hpas: &Hpas, record: HpaRecord) -> Option<Change> {
        hpas.apply(record).map(|update| update.change)
    }

    fn finish(hpas: &Hpas, namespace: Option<&str>) -> Vec<(Key, Change)> {
        let named = |update: Update| (update.new.or(update.old).unwrap().key.clone(), update.change);
        hpas.finish(namespace).into_iter().map(named).collect()
    }

    fn heal(hpas: &Hpas, uid: &str, record: HpaRecord) -> Option<Change> {
        hpas.heal(uid, record).map(|update| update.change)
    }

    #[test]
    fn a_changed_generation_is_a_spec_change_and_a_changed_status_is_not() {
        let hpas = Hpas::new();
        assert_eq!(apply(&hpas, record("web", "u1", Some(1), "10", 5)), Some(Change::New));
        assert_eq!(apply(&hpas, record("web", "u1", Some(1), "10", 5)), Some(Change::Unchanged));
        assert_eq!(apply(&hpas, record("web", "u1", Some(1), "11", 5)), Some(Change::StatusOnly));
        assert_eq!(apply(&hpas, record("web", "u1", Some(2), "12", 6)), Some(Change::SpecChanged));
        // A spec that reads differently under the same generation is the server's defaulting, not a wish.
        assert_eq!(apply(&hpas, record("web", "u1", Some(2), "13", 7)), Some(Change::StatusOnly));
    }

    #[test]
    fn without_a_generation_the_spec_itself_is_compared() {
        let hpas = Hpas::new();
        hpas.apply(record("web", "u1", None, "10", 5));
        assert_eq!(apply(&hpas, record("web", "u1", None, "11", 5)), Some(Change::StatusOnly));
        assert_eq!(apply(&hpas, record("web", "u1", None, "12", 6)), Some(Change::SpecChanged));
    }

    #[test]
    fn another_uid_under_the_same_name_is_another_hpa() {
        let hpas = Hpas::new();
        hpas.apply(record("web", "u1", Some(1), "10", 5));
        let change = apply(&hpas, record("web", "u2", Some(1), "20", 5));
        assert_eq!(change, Some(Change::Recreated { old_uid: "u1".into() }));
        assert_eq!(*hpas.delete(&Key::new("shop", "web"), "u2").unwrap().uid, *"u2");
        assert!(hpas.is_empty());
    }

    #[test]
    fn late_events_of_an_hpa_that_is_known_to_be_replaced_do_no_harm_to_the_other() {
        let hpas = Hpas::new();
        let key = Key::new("shop", "web");
        hpas.apply(record("web", "u1", Some(1), "10", 5));
        let replaced = heal(&hpas, "u1", record("web", "u2", Some(1), "14", 5));
        assert_eq!(replaced, Some(Change::Recreated { old_uid: "u1".into() }));
        assert_eq!(apply(&hpas, record("web", "u1", Some(2), "12", 6)), None);
        assert!(hpas.delete(&key, "u1").is_none());
        assert_eq!(*hpas.get(&key).unwrap().uid, *"u2");
        assert_eq!(apply(&hpas, record("web", "u2", Some(1), "14", 5)), Some(Change::Unchanged));

        // While a list is collected, too.
        hpas.begin(None);
        hpas.apply(record("web", "u2", Some(1), "14", 5));
        assert!(hpas.delete(&key, "u1").is_none());
        assert_eq!(finish(&hpas, None), [(key, Change::Unchanged)]);
    }

    #[test]
    fn a_list_replaces_the_view_at_its_end_and_reports_what_it_changed() {
        let hpas = Hpas::new();
        assert!(!hpas.is_synced());
        hpas.begin(None);
        assert_eq!(apply(&hpas, record("a", "ua", Some(1), "1", 5)), None);
        hpas.apply(record("b", "ub", Some(1), "2", 5));
        assert!(hpas.is_empty());
        let change = |name: &str, change| (Key::new("shop", name), change);
        assert_eq!(finish(&hpas, None), [change("a", Change::New), change("b", Change::New)]);
        assert!(hpas.is_synced());

        hpas.begin(None);
        hpas.apply(record("b", "ub", Some(2), "7", 6));
        hpas.apply(record("c", "uc", Some(1), "8", 5));
        hpas.apply(record("d", "ud", Some(1), "9", 5));
        assert!(hpas.delete(&Key::new("shop", "d"), "ud").is_none());
        assert_eq!(hpas.keys(), [Key::new("shop", "a"), Key::new("shop", "b")]);
        let changes = [
            change("a", Change::Deleted { uid: "ua".into() }),
            change("b", Change::SpecChanged),
            change("c", Change::New),
        ];
        assert_eq!(finish(&hpas, None), changes);
        assert_eq!(hpas.keys(), [Key::new("shop", "b"), Key::new("shop", "c")]);
        assert_eq!(finish(&hpas, None), []);
    }

    #[test]
    fn what_a_list_shows_unchanged_is_kept_as_it_was() {
        let hpas = Hpas::new();
        hpas.apply(record("a", "ua", Some(1), "1", 5));
        hpas.apply(record("b", "ub", Some(1), "2", 5));
        let known = hpas.get(&Key::new("shop", "a")).unwrap();
        hpas.begin(None);
        hpas.apply(record("a", "ua", Some(1), "1", 5));
        hpas.apply(record("b", "ub", Some(2), "7", 6));
        let updates = hpas.finish(None);
        let [a, b] = updates.as_slice() else { panic!("{updates:?}") };
        assert_eq!((&a.change, &b.change), (&Change::Unchanged, &Change::SpecChanged));
        assert!(Arc::ptr_eq(a.old.as_ref().unwrap(), &known) && Arc::ptr_eq(a.new.as_ref().unwrap(), &known));
        assert_eq!(b.old.as_ref().unwrap().spec.max_replicas, 5);
        assert_eq!(b.new.as_ref().unwrap().spec.max_replicas, 6);
        assert!(Arc::ptr_eq(&hpas.get(&known.key).unwrap(), &known));
    }

    #[test]
    fn a_list_of_a_namespace_says_nothing_about_another() {
        let hpas = Hpas::new();
        let of = |namespace: &str, name: &str| {
            let key = Key::new(namespace, name);
            HpaRecord { key, ..record(name, &format!("u-{name}"), Some(1), "1", 5) }
        };
        hpas.apply(of("shop", "old"));
        hpas.apply(of("bank", "old"));
        hpas.begin(Some("shop"));
        hpas.begin(Some("bank"));
        assert_eq!(apply(&hpas, of("shop", "web")), None);
        assert_eq!(apply(&hpas, of("bank", "web")), None);
        // Begun anew, it drops what it named, and nothing of the other.
        hpas.begin(Some("bank"));
        assert_eq!(hpas.finish(Some("shop")).len(), 2);
        assert_eq!(hpas.keys(), [Key::new("bank", "old"), Key::new("shop", "web")]);
        assert_eq!(apply(&hpas, of("shop", "more")), Some(Change::New));
        let gone = Change::Deleted { uid: "u-old".into() };
        assert_eq!(finish(&hpas, Some("bank")), [(Key::new("bank", "old"), gone)]);
        assert_eq!(finish(&hpas, Some("bank")), []);
        assert_eq!(hpas.len(), 2);
    }

    #[test]
    fn an_aborted_list_leaves_no_trace() {
        let hpas = Hpas::new();
        hpas.apply(record("a", "ua", Some(1), "1", 5));
        hpas.begin(None);
        hpas.apply(record("b", "ub", Some(1), "2", 5));
        hpas.begin(None);
        hpas.apply(record("a", "ua", Some(1), "1", 5));
        assert_eq!(finish(&hpas, None), [(Key::new("shop", "a"), Change::Unchanged)]);
    }

    #[test]
    fn an_hpa_is_stale_until_our_own_write_of_it_was_seen() {
        let hpas = Hpas::new();
        let key = Key::new("shop", "web");
        hpas.apply(record("web", "u1", Some(1), "99", 5));
        assert!(!hpas.is_stale(&key));
        hpas.wrote(&key, "u1", "100");
        assert!(hpas.is_stale(&key));
        hpas.apply(record("web", "u1", Some(1), "100", 5));
        assert!(!hpas.is_stale(&key));
        // A list from a server that lags behind takes us back.
        hpas.apply(record("web", "u1", Some(1), "99", 5));
        assert!(hpas.is_stale(&key));
        hpas.apply(record("web", "u2", Some(1), "150", 5));
        assert!(!hpas.is_stale(&key));
    }

    #[test]
    fn a_write_to_an_hpa_that_is_gone_or_recreated_is_not_remembered() {
        let hpas = Hpas::new();
        let key = Key::new("shop", "web");
        hpas.wrote(&key, "u1", "100");
        hpas.apply(record("web", "u2", Some(1), "50", 5));
        assert!(!hpas.is_stale(&key));
        hpas.wrote(&key, "u1", "100");
        assert!(!hpas.is_stale(&key));
    }

    #[test]
    fn what_was_read_beside_the_watch_counts_if_it_is_newer_and_the_hpa_still_there() {
        let hpas = Hpas::new();
        let key = Key::new("shop", "web");
        let version = || hpas.get(&key).map(|record| record.resource_version.clone()).unwrap_or_default();
        assert_eq!(heal(&hpas, "u1", record("web", "u1", Some(1), "10", 5)), None);
        assert!(hpas.is_empty());
        hpas.apply(record("web", "u1", Some(1), "10", 5));
        assert_eq!(heal(&hpas, "u1", record("web", "u1", Some(2), "10", 5)), None);
        assert_eq!(heal(&hpas, "u0", record("web", "u0", Some(2), "20", 5)), None);
        assert_eq!(heal(&hpas, "u1", record("web", "u1", Some(2), "12", 5)), Some(Change::SpecChanged));
        assert!(!hpas.is_stale(&key));
        // The event that was late all the time.
        hpas.apply(record("web", "u1", Some(1), "11", 5));
        assert!(hpas.is_stale(&key));
        hpas.apply(record("web", "u1", Some(2), "12", 5));
        assert!(!hpas.is_stale(&key));

        hpas.begin(None);
        assert_eq!(heal(&hpas, "u1", record("web", "u1", Some(2), "13", 5)), None);
        assert_eq!(version(), "12");
        assert!(hpas.is_stale(&key), "the list will tell");
        assert_eq!(finish(&hpas, None), [(key.clone(), Change::Deleted { uid: "u1".into() })]);
        assert!(hpas.is_empty(), "what the list does not name is gone");
    }

    #[test]
    fn resource_versions_are_numbers_of_any_length() {
        assert!(is_older("9", "10"));
        assert!(!is_older("10", "9"));
        assert!(!is_older("10", "10"));
        assert!(!is_older("0010", "10"));
        assert!(is_older("18446744073709551615", "18446744073709551616"));
        assert!(!is_older("abc", "10"));
        assert!(!is_older("9", ""));
    }
}
