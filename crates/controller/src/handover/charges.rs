//! The HPAs in scope with their state machines, and the few facts of the HPAs out of scope that the detection of
//! shared pods needs.
//!
//! The watches and the driver write, the syncs and the server of the webhook read. The lock is internal, held for
//! one lookup or one change, and never across an `await`.

mod refusals;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::status::CrossVersionObjectReference;
use autoscaling::target_group;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::refusals::Unreported;
pub use self::refusals::{Refusal, RefusalError, Report};
use super::machine::{Charge, Guard, Input, Output, State};
use super::outside::Outside;
use super::scope::{self, By, ControllerName, Membership, membership};
use crate::store::{HpaRecord, Key, StatusWriter};
use clock::SharedClock;
use cluster::gate::{Permission, Permits, WritePermit};

/// The result of the last check of the guard's objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum GuardProof {
    /// No check has ended, or none is possible.
    #[default]
    Unknown,
    /// The objects refuse the writes of the built-in controller.
    Proven {
        /// Start of the time for which every check found this.
        since: Timestamp,
    },
    /// The objects do not refuse them.
    Broken {
        /// What is wrong, on which object, and what to do.
        reason: String,
    },
}

/// The kind of a target, and the HPA in scope that has the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetKind {
    /// The API group. Empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// `metadata.name` of the HPA.
    pub hpa: Arc<str>,
}

/// One HPA in scope, for `/handover`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChargeRow {
    /// Namespace and name.
    pub key: Key,
    /// The object with the label.
    pub by: By,
    /// The state.
    pub state: State,
    /// Start of the state.
    pub since: Timestamp,
    /// The last status write by another controller since this process runs.
    pub last_foreign_write: Option<StatusWriter>,
    /// Time of the last refused write of the built-in controller, as far as this replica knows. The leader knows those of
    /// its standbys.
    pub last_refused_write: Option<Timestamp>,
}

/// Number of HPAs by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// HPAs out of scope.
    pub outside: usize,
    /// HPAs in [`State::Claiming`].
    pub claiming: usize,
    /// HPAs in [`State::InCharge`].
    pub in_charge: usize,
    /// HPAs in [`State::Contested`].
    pub contested: usize,
}

/// The HPAs in scope.
#[derive(Debug)]
pub struct Charges {
    name: ControllerName,
    period: Duration,
    /// `--shadow-others`: HPAs out of scope stay in the store.
    keeps_others: bool,
    clock: SharedClock,
    inner: Mutex<Inner>,
    changed: Notify,
    moving: Mutex<()>,
}

/// Where an HPA belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// In the store of HPAs.
    Store {
        /// Whether the HPA has just entered the scope.
        is_new: bool,
    },
    /// Not in the store.
    Outside,
    /// Nowhere else than before, because the version is older than the known one.
    Unchanged,
}

#[derive(Debug, Default)]
struct Inner {
    is_synced: bool,
    leads: bool,
    guard: GuardProof,
    /// The label's value by namespace. Only namespaces with the label.
    namespaces: BTreeMap<Arc<str>, Arc<str>>,
    /// Namespaces that are new in scope, with HPAs that are not in the store.
    adopting: BTreeSet<Arc<str>>,
    outside: Outside,
    hpas: BTreeMap<Key, Entry>,
    /// Namespace, name of the target, name of the HPA.
    by_target: BTreeSet<(Arc<str>, Arc<str>, Arc<str>)>,
    /// Due times of the machines.
    timers: BTreeSet<(Instant, Key)>,
    /// What the driver has to do.
    outputs: VecDeque<(Key, Output)>,
    /// Number of charges so far.
    terms: u64,
    last_proof: Option<Timestamp>,
    /// What this replica refused while it is a standby.
    unreported: Unreported,
}

/// An HPA in scope.
#[derive(Debug)]
struct Entry {
    uid: Arc<str>,
    version: Option<u64>,
    by: By,
    target: CrossVersionObjectReference,
    charge: Charge,
    since: Timestamp,
    /// Identifies the time in charge. `None` while not in charge.
    term: Option<u64>,
    timer: Option<Instant>,
    last_foreign_write: Option<StatusWriter>,
    last_refused_write: Option<Timestamp>,
}

impl Charges {
    /// Creates a registry without HPAs. `period`: `--horizontal-pod-autoscaler-sync-period`. `keeps_others`:
    /// whether HPAs out of scope stay in the store, for `--shadow-others`.
    pub fn new(name: ControllerName, period: Duration, keeps_others: bool, clock: SharedClock) -> Arc<Self> {
        let (inner, changed, moving) = (Mutex::default(), Notify::new(), Mutex::default());
        Arc::new(Self { name, period, keeps_others, clock, inner, changed, moving })
    }

    /// Keeps HPAs from entering or leaving the scope in another task. The store of HPAs and this registry change
    /// under this lock together.
    pub fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock()
    }

    /// The name of this instance.
    pub fn name(&self) -> &ControllerName {
        &self.name
    }

    /// Whether the first lists of HPAs and namespaces are complete.
    pub fn is_synced(&self) -> bool {
        self.inner.lock().is_synced
    }

    /// Records that the first lists of HPAs and namespaces are complete.
    pub fn set_synced(&self) {
        self.inner.lock().is_synced = true;
    }

    /// Whether an HPA is in scope.
    pub fn is_in_scope(&self, namespace: &str, hpa: &str) -> bool {
        self.inner.lock().hpas.contains_key(&Key::new(namespace, hpa))
    }

    /// The kinds of the targets with this name of HPAs in scope.
    pub fn targets(&self, namespace: &str, name: &str) -> Vec<TargetKind> {
        let inner = self.inner.lock();
        let (namespace, name): (Arc<str>, Arc<str>) = (namespace.into(), name.into());
        let from = (Arc::clone(&namespace), Arc::clone(&name), Arc::default());
        let same = inner.by_target.range(from..);
        let same =
            same.take_while(|(its_namespace, its_name, _)| *its_namespace == namespace && *its_name == name);
        let kinds = same.filter_map(|(_, _, hpa)| {
            let target = &inner.hpas.get(&Key::new(Arc::clone(&namespace), Arc::clone(hpa)))?.target;
            // A target with an invalid API version is never written.
            let group = target_group(target).ok()?.to_owned();
            Some(TargetKind { group, kind: target.kind.clone(), hpa: Arc::clone(hpa) })
        });
        kinds.collect()
    }

    /// The groups and kinds of all targets of HPAs in scope.
    pub fn target_kinds(&self) -> BTreeSet<(String, String)> {
        let inner = self.inner.lock();
        let mut kinds = BTreeSet::new();
        for Entry { target, .. } in inner.hpas.values() {
            // A target with an invalid API version is never written.
            let Ok(group) = target_group(target) else { continue };
            kinds.insert((group.to_owned(), target.kind.clone()));
        }
        kinds
    }

    /// Records the result of a check of the guard's objects.
    pub fn guard(&self, proof: GuardProof) {
        let (now, at) = (Instant::now(), self.clock.now());
        self.change(|inner| {
            if matches!(proof, GuardProof::Proven { .. }) {
                inner.last_proof = Some(at);
            }
            if inner.guard == proof {
                return;
            }
            inner.guard = proof;
            let guard = inner.guard.state();
            for key in inner.keys() {
                inner.step(&key, Input::Guard(guard), now, at);
            }
        });
    }

    /// The result of the last check of the guard's objects.
    pub fn guard_proof(&self) -> GuardProof {
        self.inner.lock().guard.clone()
    }

    /// The HPAs in scope, by key.
    pub fn rows(&self) -> Vec<ChargeRow> {
        let inner = self.inner.lock();
        inner.hpas.iter().map(|(key, entry)| entry.row(key)).collect()
    }

    /// One HPA, if it is in scope.
    pub fn row(&self, key: &Key) -> Option<ChargeRow> {
        self.inner.lock().hpas.get(key).map(|entry| entry.row(key))
    }

    /// Number of HPAs by state. On a standby all HPAs in scope are [`State::Claiming`].
    pub fn counts(&self) -> Counts {
        let inner = self.inner.lock();
        let mut counts = Counts { outside: inner.outside.len(), ..Counts::default() };
        for entry in inner.hpas.values() {
            match entry.charge.state() {
                State::Claiming => counts.claiming += 1,
                State::InCharge => counts.in_charge += 1,
                State::Contested => counts.contested += 1,
            }
        }
        counts
    }

    /// Puts an HPA in or out of scope by its labels. `is_listed`: whether the HPA is from a list, which counts
    /// even if its version is older than the known one, as after a restore of etcd.
    pub fn sort(&self, hpa: &HpaRecord, is_listed: bool) -> Placement {
        let (now, at) = (Instant::now(), self.clock.now());
        let version = hpa.resource_version.parse().ok();
        let label = scope::label_of(&hpa.metadata);
        self.change(|inner| {
            let known = inner.hpas.get(&hpa.key).map(|entry| entry.version);
            let known = known.or_else(|| Some(inner.outside.get(&hpa.key)?.version)).flatten();
            if !is_listed && version < known && version.is_some() {
                return Placement::Unchanged;
            }
            let namespace = inner.namespaces.get(&hpa.key.namespace).map(|label| &**label);
            match membership(label.as_deref(), namespace, &self.name) {
                Membership::In(by) => {
                    inner.outside.remove(&hpa.key);
                    let is_new = inner.enter(hpa, version, by, self.period, at);
                    if is_new && inner.leads {
                        inner.step(&hpa.key, Input::Lead { hand_over: false }, now, at);
                    }
                    Placement::Store { is_new }
                }
                Membership::Out(_) => {
                    inner.remove(&hpa.key);
                    if self.keeps_others {
                        return Placement::Store { is_new: false };
                    }
                    inner.outside.put(&hpa.key, version, &hpa.spec.target);
                    Placement::Outside
                }
            }
        })
    }

    /// Drops a deleted HPA. `uid`: the UID of the deleted object.
    pub fn delete(&self, key: &Key, uid: &str) {
        self.change(|inner| {
            inner.outside.remove(key);
            if inner.hpas.get(key).is_some_and(|entry| *entry.uid == *uid) {
                inner.remove(key);
            }
        });
    }

    /// Drops the HPAs out of scope that a list of a namespace, or of all, did not contain.
    pub fn retain_outside(&self, namespace: Option<&str>, listed: &BTreeSet<Key>) {
        self.inner.lock().outside.retain(namespace, listed);
    }

    /// Whether an HPA is known and out of scope.
    pub fn is_outside(&self, key: &Key) -> bool {
        self.inner.lock().outside.get(key).is_some()
    }

    /// The target of an HPA out of scope, in a namespace with HPAs in scope, which may share its pods.
    pub fn neighbour(&self, key: &Key) -> Option<CrossVersionObjectReference> {
        let inner = self.inner.lock();
        let hpa = inner.outside.get(key)?;
        inner.has_hpas_in(&key.namespace).then(|| hpa.target())
    }

    /// The HPAs out of scope in namespaces with HPAs in scope. `namespace`: only of this one.
    pub fn neighbours(&self, namespace: Option<&Arc<str>>) -> Vec<Key> {
        let inner = self.inner.lock();
        let mut namespaces: Vec<_> = inner.hpas.keys().map(|key| Arc::clone(&key.namespace)).collect();
        namespaces.dedup();
        namespaces.retain(|name| namespace.is_none_or(|only| only == name));
        namespaces.iter().flat_map(|namespace| inner.outside.keys_in(namespace)).collect()
    }

    /// Records the label of a namespace, or that it has none. Returns whether that is a change.
    pub fn label_namespace(&self, namespace: &str, label: Option<&str>) -> bool {
        self.change(|inner| {
            if inner.namespaces.get(namespace).map(|label| &**label) == label {
                return false;
            }
            let namespace: Arc<str> = namespace.into();
            let is_ours = label == Some(self.name.as_str());
            if is_ours && inner.outside.keys_in(&namespace).next().is_some() {
                inner.adopting.insert(Arc::clone(&namespace));
                self.changed.notify_one();
            }
            match label {
                Some(label) => inner.namespaces.insert(namespace, label.into()),
                None => inner.namespaces.remove(&namespace),
            };
            true
        })
    }

    /// The namespaces with the label.
    pub fn labelled_namespaces(&self) -> Vec<Arc<str>> {
        self.inner.lock().namespaces.keys().cloned().collect()
    }

    /// The next namespace with HPAs to read, because the namespace is new in scope.
    pub fn adopting(&self) -> Option<Arc<str>> {
        self.inner.lock().adopting.pop_first()
    }

    /// Reads the HPAs of a namespace later, because an earlier attempt failed.
    pub fn adopt_again(&self, namespace: Arc<str>) {
        let mut inner = self.inner.lock();
        if inner.namespaces.get(&namespace).is_some_and(|label| **label == *self.name.as_str()) {
            inner.adopting.insert(namespace);
        }
    }

    /// Records that this replica leads. `hand_over`: whether another replica led until shortly before.
    pub fn lead(&self, hand_over: bool) {
        let (now, at) = (Instant::now(), self.clock.now());
        self.change(|inner| {
            inner.leads = true;
            inner.unreported = Unreported::default();
            for key in inner.keys() {
                inner.step(&key, Input::Lead { hand_over }, now, at);
            }
        });
    }

    /// Passes an input to the machine of an HPA. Does nothing for an HPA out of scope.
    pub fn step(&self, key: &Key, input: Input) {
        let (now, at) = (Instant::now(), self.clock.now());
        self.change(|inner| inner.step(key, input, now, at));
    }

    /// Records a foreign status write. Returns whether the HPA was in charge until now.
    pub fn foreign_write(&self, key: &Key, writer: &StatusWriter) -> bool {
        let (now, at) = (Instant::now(), self.clock.now());
        self.change(|inner| {
            let Some(entry) = inner.hpas.get_mut(key) else { return false };
            entry.last_foreign_write = Some(writer.clone());
            let was_in_charge = entry.term.is_some();
            inner.step(key, Input::ForeignWrite, now, at);
            was_in_charge
        })
    }

    /// Passes the time to all machines that are due.
    pub fn tick(&self) {
        let (now, at) = (Instant::now(), self.clock.now());
        self.change(|inner| {
            // Each machine steps once, so that a due time that stays in the past cannot keep the lock.
            let later = (now + Duration::from_nanos(1), Key::new("", ""));
            let mut due = inner.timers.split_off(&later);
            std::mem::swap(&mut due, &mut inner.timers);
            for (_, key) in due {
                if let Some(entry) = inner.hpas.get_mut(&key) {
                    entry.timer = None;
                }
                inner.step(&key, Input::Tick, now, at);
            }
        });
    }

    /// The time at which [`Self::tick`] may next have an effect.
    pub fn next(&self) -> Option<Instant> {
        self.inner.lock().timers.first().map(|(due, _)| *due)
    }

    /// The next task of the driver.
    pub fn output(&self) -> Option<(Key, Output)> {
        self.inner.lock().outputs.pop_front()
    }

    /// Ends the wait of [`Self::changed`].
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Time of the last proof that the guard works, as far as this replica knows: a check of its objects, or a
    /// refused write about an HPA in scope.
    pub fn last_proof(&self) -> Option<Timestamp> {
        self.inner.lock().last_proof
    }

    /// Waits until a machine may have an output or another due time.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether this replica leads.
    pub fn leads(&self) -> bool {
        self.inner.lock().leads
    }

    /// The state of an HPA. `None` if it is out of scope.
    pub fn state(&self, key: &Key) -> Option<State> {
        Some(self.inner.lock().hpas.get(key)?.charge.state())
    }

    /// Identifies the current time in charge of an HPA. `None` if this instance is not in charge of it.
    pub fn term(&self, key: &Key) -> Option<u64> {
        self.inner.lock().hpas.get(key)?.term
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.lock();
        let before = inner.timers.first().map(|(due, _)| *due);
        let result = change(&mut inner);
        if !inner.outputs.is_empty() || inner.timers.first().map(|(due, _)| *due) != before {
            self.changed.notify_one();
        }
        result
    }
}

impl GuardProof {
    /// The part that the machines use.
    fn state(&self) -> Guard {
        match self {
            Self::Unknown => Guard::Unknown,
            Self::Proven { .. } => Guard::Proven,
            Self::Broken { .. } => Guard::Broken,
        }
    }
}

impl Inner {
    /// Puts an HPA in scope, or updates it. Returns whether it is new in scope.
    fn enter(
        &mut self,
        hpa: &HpaRecord,
        version: Option<u64>,
        by: By,
        period: Duration,
        at: Timestamp,
    ) -> bool {
        if self.hpas.get(&hpa.key).is_some_and(|entry| entry.uid != hpa.uid) {
            self.remove(&hpa.key);
        }
        let target = &hpa.spec.target;
        if let Some(entry) = self.hpas.get_mut(&hpa.key) {
            (entry.by, entry.version) = (by, version);
            if entry.target != *target {
                let old = std::mem::replace(&mut entry.target, target.clone());
                self.by_target.remove(&index(&hpa.key, &old));
                self.by_target.insert(index(&hpa.key, target));
            }
            return false;
        }
        let entry = Entry {
            uid: Arc::clone(&hpa.uid),
            version,
            by,
            target: target.clone(),
            charge: Charge::new(hpa.key.clone(), period, self.guard.state()),
            since: at,
            term: None,
            timer: None,
            last_foreign_write: None,
            last_refused_write: None,
        };
        self.by_target.insert(index(&hpa.key, target));
        self.hpas.insert(hpa.key.clone(), entry);
        true
    }

    fn has_hpas_in(&self, namespace: &Arc<str>) -> bool {
        let from = Key { namespace: Arc::clone(namespace), name: Arc::default() };
        self.hpas.range(from..).next().is_some_and(|(key, _)| key.namespace == *namespace)
    }

    fn keys(&self) -> Vec<Key> {
        self.hpas.keys().cloned().collect()
    }

    fn step(&mut self, key: &Key, input: Input, now: Instant, at: Timestamp) {
        let Some(entry) = self.hpas.get_mut(key) else { return };
        let before = entry.charge.state();
        let output = entry.charge.step(input, now);
        let state = entry.charge.state();
        if state != before {
            entry.since = at;
            entry.term = (state == State::InCharge).then(|| {
                self.terms += 1;
                self.terms
            });
        }
        let next = entry.charge.next();
        if entry.timer != next {
            if let Some(timer) = entry.timer.take() {
                self.timers.remove(&(timer, key.clone()));
            }
            entry.timer = next;
            self.timers.extend(next.map(|next| (next, key.clone())));
        }
        self.outputs.extend(output.map(|output| (key.clone(), output)));
    }

    fn remove(&mut self, key: &Key) -> bool {
        let Some(entry) = self.hpas.remove(key) else { return false };
        self.by_target.remove(&index(key, &entry.target));
        if let Some(timer) = entry.timer {
            self.timers.remove(&(timer, key.clone()));
        }
        true
    }
}

impl Entry {
    fn row(&self, key: &Key) -> ChargeRow {
        ChargeRow {
            key: key.clone(),
            by: self.by,
            state: self.charge.state(),
            since: self.since,
            last_foreign_write: self.last_foreign_write.clone(),
            last_refused_write: self.last_refused_write,
        }
    }
}

/// Gives the permissions of writes from the registry.
#[derive(Debug, Clone)]
pub struct ChargePermits(pub Arc<Charges>);

impl Permits for ChargePermits {
    fn permit(&self, namespace: &Arc<str>, name: &Arc<str>) -> WritePermit {
        let key = Key { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        let term = self.0.term(&key);
        WritePermit(Arc::new(TermPermit { charges: Arc::clone(&self.0), key, term }))
    }
}

/// Permits the writes about an HPA for the time in charge in which they were decided.
struct TermPermit {
    charges: Arc<Charges>,
    key: Key,
    term: Option<u64>,
}

impl Permission for TermPermit {
    fn may_write(&self) -> bool {
        self.term.is_some() && self.charges.term(&self.key) == self.term
    }
}

impl fmt::Debug for TermPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TermPermit").field("key", &self.key).field("term", &self.term).finish_non_exhaustive()
    }
}

fn index(key: &Key, target: &CrossVersionObjectReference) -> (Arc<str>, Arc<str>, Arc<str>) {
    (Arc::clone(&key.namespace), target.name.as_str().into(), Arc::clone(&key.name))
}

#[cfg(test)]
mod tests;
