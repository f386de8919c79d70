//! The rows of all HPAs, filled by a watch. Clients read the changes since a version.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clock::SharedClock;
use cluster::decode::HpaObject;
use cluster::watch::{DeletedObject, Sink};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::advice::AllAdvice;
use crate::advice::file::AdviceError;
use crate::row::{self, Count, Decisions, LastDecision, Row};
use crate::{Key, Observation, Observations, Subject};

/// Maximum number of changes to remember. A client that is further behind receives all rows.
const MAX_CHANGES: usize = 20_000;
/// Maximum number of counts to remember for each HPA.
const MAX_COUNTS: usize = 120;
/// The length of the history of counts.
const HISTORY: SignedDuration = SignedDuration::from_hours(1);
/// The interval between two checks for a client.
const WATCHED: Duration = Duration::from_millis(500);

/// The rows of all HPAs. Clones share them.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Mutex<Inner>>,
    version: Arc<watch::Sender<u64>>,
    clock: SharedClock,
}

#[derive(Debug, Default)]
struct Inner {
    rows: BTreeMap<Key, Arc<Row>>,
    version: u64,
    /// The keys of changed HPAs, each with the version of the change, oldest first.
    changes: VecDeque<(u64, Key)>,
    observations: Observations,
    /// The last decisions of a controller's record.
    decisions: BTreeMap<Key, LastDecision>,
    /// The last readable content of the file of `--advice`.
    advice: AllAdvice,
    /// The reason why this file could not be read. `None` after it was read.
    advice_problem: Option<String>,
    /// The keys of the list in progress. At its end, all other rows are removed.
    listed: Option<BTreeSet<Key>>,
}

/// The changes since a version.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    /// The version of the store after these changes.
    pub version: u64,
    /// Whether `rows` are all rows of the store, which then replace those of the client.
    pub all: bool,
    /// Changed and added rows, in order of namespace and name.
    pub rows: Vec<Arc<Row>>,
    /// The removed HPAs.
    pub removed: Vec<Key>,
}

impl Store {
    /// Creates an empty store. Its counts and observations have times of `clock`.
    pub fn new(clock: SharedClock) -> Self {
        Self { inner: Arc::default(), version: Arc::new(watch::Sender::new(0)), clock }
    }

    /// Returns a receiver of the store's version, which changes with each change.
    pub fn versions(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Returns the changes since `version`, or all rows if the version is `None` or too old.
    pub fn since(&self, version: Option<u64>) -> Changes {
        let inner = self.inner.lock();
        let oldest = inner.changes.front().map_or(inner.version, |(version, _)| version.saturating_sub(1));
        match version.filter(|version| *version >= oldest) {
            None => Changes {
                version: inner.version,
                all: true,
                rows: inner.rows.values().cloned().collect(),
                removed: Vec::new(),
            },
            Some(version) => {
                let newer = inner.changes.iter().rev().take_while(|(change, _)| *change > version);
                let keys: BTreeSet<&Key> = newer.map(|(_, key)| key).collect();
                let (mut rows, mut removed) = (Vec::new(), Vec::new());
                for key in keys {
                    match inner.rows.get(key) {
                        Some(row) => rows.push(Arc::clone(row)),
                        None => removed.push(key.clone()),
                    }
                }
                Changes { version: inner.version, all: false, rows, removed }
            }
        }
    }

    /// Stores an HPA that the caller's watch has delivered.
    pub fn put(&self, hpa: &HpaObject) {
        let now = self.clock.now();
        self.change(|inner| inner.apply(hpa, now));
    }

    /// Removes an HPA.
    pub fn remove(&self, namespace: &str, name: &str) {
        self.change(|inner| inner.delete((namespace.to_owned(), name.to_owned())));
    }

    /// Returns an HPA with its counts and observations of the last hour.
    pub(crate) fn subject(&self, namespace: String, name: String) -> Subject {
        let key = (namespace, name);
        let inner = self.inner.lock();
        let history = inner.rows.get(&key).map(|row| row.history.clone()).unwrap_or_default();
        let observations = inner.observations.of(&key);
        let advice = inner.advice.get(&key).cloned();
        let (namespace, name) = key;
        Subject { namespace, name, history, observations, advice }
    }

    /// Waits until a client has subscribed to the store.
    pub(crate) async fn watched(&self) {
        while self.version.receiver_count() == 0 {
            tokio::time::sleep(WATCHED).await;
        }
    }

    /// Replaces the last decisions of all HPAs, and updates the rows whose decision has changed.
    pub(crate) fn decided(&self, Decisions { by_key }: Decisions) {
        self.change(|inner| {
            let old = std::mem::replace(&mut inner.decisions, by_key);
            let changed: Vec<Key> =
                inner.rows.keys().filter(|key| old.get(*key) != inner.decisions.get(*key)).cloned().collect();
            inner.renew(changed);
        });
    }

    /// Replaces the advice for all HPAs, and updates the rows whose advice has changed.
    pub(crate) fn advised(&self, advice: AllAdvice) {
        self.change(|inner| {
            inner.advice_problem = None;
            let old = std::mem::replace(&mut inner.advice, advice);
            let changed: Vec<Key> =
                inner.rows.keys().filter(|key| old.get(*key) != inner.advice.get(*key)).cloned().collect();
            inner.renew(changed);
        });
    }

    /// Keeps the advice, because its file cannot be read.
    pub(crate) fn advice_failed(&self, error: &AdviceError) {
        let problem = Some(error.to_string());
        let mut inner = self.inner.lock();
        if inner.advice_problem != problem {
            tracing::warn!(%error, "failed to read the advice");
            inner.advice_problem = problem;
        }
    }

    /// Returns the reason why the file of `--advice` cannot be read. `None` without a failure.
    pub(crate) fn advice_problem(&self) -> Option<String> {
        self.inner.lock().advice_problem.clone()
    }

    fn change(&self, act: impl FnOnce(&mut Inner)) {
        let version = {
            let mut inner = self.inner.lock();
            act(&mut inner);
            inner.version
        };
        self.version.send_if_modified(|current| std::mem::replace(current, version) != version);
    }
}

impl Inner {
    fn changed(&mut self, key: Key) {
        self.version += 1;
        self.changes.push_back((self.version, key));
        if self.changes.len() > MAX_CHANGES {
            self.changes.pop_front();
        }
    }

    /// Computes the decision and the advice of rows again.
    fn renew(&mut self, keys: Vec<Key>) {
        for key in keys {
            if let Some(row) = self.rows.get(&key) {
                let row = self.completed(Row::clone(row), &key);
                self.rows.insert(key.clone(), Arc::new(row));
                self.changed(key);
            }
        }
    }

    fn completed(&self, row: Row, key: &Key) -> Row {
        let advice = self.advice.get(key).map(Arc::as_ref);
        row.with_decision(self.decisions.get(key)).with_advice(advice)
    }

    fn apply(&mut self, hpa: &HpaObject, now: Timestamp) {
        let key = (hpa.namespace.clone(), hpa.name.clone());
        if let Some(listed) = &mut self.listed {
            listed.insert(key.clone());
        }
        let previous = self.rows.get(&key);
        let history = previous.map(|row| row.history.as_slice()).unwrap_or_default();
        // An HPA without a condition has no count yet.
        let count = (!hpa.status.conditions.is_empty()).then_some(hpa.status.desired_replicas);
        if let Some(desired) = count {
            let (current, values) = (hpa.status.current_replicas, row::values(hpa));
            self.observations.note(&key, Observation { at: now, current, desired, values });
        }
        let row = self.completed(Row::new(hpa, extended(history, count, now)), &key);
        if previous.is_some_and(|previous| **previous == row) {
            return;
        }
        self.rows.insert(key.clone(), Arc::new(row));
        self.changed(key);
    }

    fn delete(&mut self, key: Key) {
        self.observations.remove(&key);
        if self.rows.remove(&key).is_some() {
            self.changed(key);
        }
    }
}

/// Returns `history` with `replicas` added if it differs from the last count. Of the counts before the last hour, only
/// the newest is kept, because it was in force at the start of the hour.
fn extended(history: &[Count], replicas: Option<i32>, now: Timestamp) -> Vec<Count> {
    let start = now.checked_sub(HISTORY).unwrap_or(Timestamp::MIN);
    let old = history.iter().take_while(|count| count.at < start).count().saturating_sub(1);
    let mut counts: Vec<Count> = history.iter().skip(old).copied().collect();
    if let Some(replicas) = replicas
        && counts.last().is_none_or(|last| last.replicas != replicas)
    {
        counts.push(Count { at: now, replicas });
    }
    let surplus = counts.len().saturating_sub(MAX_COUNTS);
    counts.drain(..surplus);
    counts
}

impl Sink<HpaObject> for Store {
    fn start(&mut self) {
        self.inner.lock().listed = Some(BTreeSet::new());
    }

    fn apply(&mut self, object: HpaObject) {
        self.put(&object);
    }

    fn delete(&mut self, object: DeletedObject) {
        self.change(|inner| inner.delete((object.namespace, object.name)));
    }

    fn done(&mut self) {
        self.change(|inner| {
            let listed = inner.listed.take().unwrap_or_default();
            let gone: Vec<Key> = inner.rows.keys().filter(|key| !listed.contains(*key)).cloned().collect();
            for key in gone {
                inner.delete(key);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use clock::SystemClock;
    use cluster::decode;
    use serde_json::json;

    use super::*;
    use crate::row::State;

    fn hpa(name: &str, replicas: i32) -> HpaObject {
        let object = json!({
            "metadata": {"namespace": "shop", "name": name},
            "spec": {"maxReplicas": 9}, "status": {"desiredReplicas": replicas},
        });
        decode::hpa(object.to_string().as_bytes()).unwrap()
    }

    fn names(changes: &Changes) -> Vec<&str> {
        changes.rows.iter().map(|row| row.name.as_str()).collect()
    }

    fn store(names: &[&str]) -> Store {
        let mut store = Store::new(Arc::new(SystemClock));
        store.start();
        for name in names {
            store.apply(hpa(name, 1));
        }
        store.done();
        store
    }

    #[test]
    fn changes_since_a_version_are_the_newest_rows() {
        let mut store = store(&["a", "b"]);
        let all = store.since(None);
        assert!(all.all);
        assert_eq!(names(&all), ["a", "b"]);
        store.apply(hpa("b", 2));
        store.apply(hpa("b", 3));
        store.apply(hpa("a", 1));
        let changes = store.since(Some(all.version));
        assert!(!changes.all);
        assert_eq!(names(&changes), ["b"], "an equal object is no change");
        assert_eq!(changes.rows.first().unwrap().desired, 3);
        assert_eq!(store.since(Some(changes.version)).rows, []);
    }

    #[test]
    fn objects_missing_from_a_list_are_removed() {
        let mut store = store(&["a", "b"]);
        let version = store.since(None).version;
        store.start();
        store.apply(hpa("a", 1));
        assert_eq!(
            store.since(Some(version)).removed,
            [],
            "the previous view holds until the list is complete"
        );
        store.done();
        assert_eq!(store.since(Some(version)).removed, [("shop".to_owned(), "b".to_owned())]);
    }

    #[test]
    fn client_far_behind_receives_all_rows() {
        let mut store = store(&["a"]);
        let version = store.since(None).version;
        for (name, replicas) in (0..).take(MAX_CHANGES + 1).map(|round| ("a", 2 + round % 2)) {
            store.apply(hpa(name, replicas));
        }
        assert!(store.since(Some(version)).all);
        assert_eq!(names(&store.since(Some(version))), ["a"]);
    }

    #[test]
    fn history_keeps_the_count_at_the_start_of_the_hour() {
        let at = |minute: i64| Timestamp::from_second(minute * 60).unwrap();
        let count = |minute, replicas| Count { at: at(minute), replicas };
        let history = [count(0, 1), count(10, 2), count(50, 3)];
        assert_eq!(extended(&history, Some(3), at(55)), history);
        assert_eq!(extended(&history, Some(4), at(75)), [count(10, 2), count(50, 3), count(75, 4)]);
        let many: Vec<_> = (0..130).map(|number| count(0, number)).collect();
        assert_eq!(extended(&many, Some(7), at(0)).len(), MAX_COUNTS);
        assert_eq!(extended(&[], None, at(0)), []);
    }

    #[test]
    fn decisions_change_the_rows_that_they_are_about() {
        let mut store = store(&["a", "b"]);
        let version = store.since(None).version;
        let at = Timestamp::from_second(60).unwrap();
        let decision = LastDecision { sentence: "stays at 1".to_owned(), since: at, late_since: None };
        let decisions = |late_since| Decisions {
            by_key: [(("shop".to_owned(), "b".to_owned()), LastDecision { late_since, ..decision.clone() })]
                .into(),
        };
        store.decided(decisions(None));
        let changes = store.since(Some(version));
        assert_eq!(names(&changes), ["b"]);
        assert_eq!(changes.rows.first().unwrap().decision.as_deref(), Some("stays at 1"));
        store.decided(decisions(None));
        assert_eq!(store.since(Some(changes.version)).rows, [], "an equal decision is no change");
        // A new status keeps the decision.
        store.apply(hpa("b", 5));
        let row = Arc::clone(store.since(Some(changes.version)).rows.first().unwrap());
        assert_eq!((row.desired, row.decided), (5, Some(at)));
        store.decided(decisions(Some(at)));
        let row = Arc::clone(store.since(None).rows.last().unwrap());
        assert_eq!((row.state, row.since), (State::Late, Some(at)));
        store.decided(Decisions::default());
        let row = Arc::clone(store.since(None).rows.last().unwrap());
        assert_eq!((row.state, &row.decision), (State::Undecided, &None));
    }
}
