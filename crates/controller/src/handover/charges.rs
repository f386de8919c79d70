//! The HPAs in scope with their state machines, and the few facts of the HPAs out of scope that the detection of
//! shared pods needs.
//!
//! The watches and the driver write, the syncs and the server of the webhook read. The lock is internal, held for
//! one lookup or one change, and never across an `await`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::status::CrossVersionObjectReference;
use autoscaling::target_group;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::machine::{Charge, Guard, Input, Output, State};
use super::scope::{By, ControllerName, Membership, membership};
use crate::store::{HpaRecord, Key, StatusWriter};
use clock::SharedClock;

/// The result of the last check of the guard's objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum GuardProof {
    /// No check has ended, or none is possible.
    #[default]
    Unknown,
    /// The objects refuse the writes of the built-in loop.
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
    /// Time of the last refused write of the built-in loop, as seen by this replica.
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
    clock: SharedClock,
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    is_synced: bool,
    leads: bool,
    guard: GuardProof,
    /// The label's value by namespace. Only namespaces with the label.
    namespaces: BTreeMap<Arc<str>, Arc<str>>,
    hpas: BTreeMap<Key, Entry>,
    /// Namespace, name of the target, name of the HPA.
    by_target: BTreeSet<(Arc<str>, Arc<str>, Arc<str>)>,
    /// Due times of the machines.
    timers: BTreeSet<(Instant, Key)>,
    /// What the driver has to do.
    outputs: VecDeque<(Key, Output)>,
    /// Number of charges so far.
    terms: u64,
}

/// An HPA in scope.
#[derive(Debug)]
struct Entry {
    uid: Arc<str>,
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
    /// Creates a registry without HPAs. `period`: `--horizontal-pod-autoscaler-sync-period`.
    pub fn new(name: ControllerName, period: Duration, clock: SharedClock) -> Arc<Self> {
        let inner = Mutex::default();
        Arc::new(Self { name, period, clock, inner, changed: Notify::new() })
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

    /// Records that the guard refused a write of the built-in loop about an HPA, which proves the guard for it.
    /// Does nothing for an HPA out of scope.
    pub fn write_refused(&self, namespace: &str, hpa: &str, now: Instant) {
        let key = Key::new(namespace, hpa);
        let at = self.clock.now();
        self.change(|inner| {
            if let Some(entry) = inner.hpas.get_mut(&key) {
                entry.last_refused_write = Some(at);
                inner.step(&key, Input::Refused, now, at);
            }
        });
    }

    /// Records the result of a check of the guard's objects.
    pub fn guard(&self, proof: GuardProof) {
        let (now, at) = (Instant::now(), self.clock.now());
        self.change(|inner| {
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
        let mut counts = Counts::default();
        for entry in inner.hpas.values() {
            match entry.charge.state() {
                State::Claiming => counts.claiming += 1,
                State::InCharge => counts.in_charge += 1,
                State::Contested => counts.contested += 1,
            }
        }
        counts
    }

    /// Decides whether an HPA is in scope. `label`: the value of the label of the HPA.
    pub fn membership(&self, namespace: &str, label: Option<&str>) -> Membership {
        let inner = self.inner.lock();
        membership(label, inner.namespaces.get(namespace).map(|label| &**label), &self.name)
    }

    /// Puts an HPA in scope, or updates its target.
    pub fn enter(&self, hpa: &HpaRecord, by: By) {
        let (now, at) = (Instant::now(), self.clock.now());
        self.change(|inner| {
            if inner.hpas.get(&hpa.key).is_some_and(|entry| entry.uid != hpa.uid) {
                inner.remove(&hpa.key);
            }
            let target = &hpa.spec.target;
            if let Some(entry) = inner.hpas.get_mut(&hpa.key) {
                entry.by = by;
                if entry.target != *target {
                    let old = std::mem::replace(&mut entry.target, target.clone());
                    inner.by_target.remove(&index(&hpa.key, &old));
                    inner.by_target.insert(index(&hpa.key, target));
                }
                return;
            }
            let charge = Charge::new(hpa.key.clone(), self.period, inner.guard.state());
            let entry = Entry {
                uid: Arc::clone(&hpa.uid),
                by,
                target: target.clone(),
                charge,
                since: at,
                term: None,
                timer: None,
                last_foreign_write: None,
                last_refused_write: None,
            };
            inner.by_target.insert(index(&hpa.key, target));
            inner.hpas.insert(hpa.key.clone(), entry);
            if inner.leads {
                inner.step(&hpa.key, Input::Lead { hand_over: false }, now, at);
            }
        });
    }

    /// Takes an HPA out of scope. From now on none of its writes is sent. Returns whether it was in scope.
    pub fn leave(&self, key: &Key) -> bool {
        self.change(|inner| inner.remove(key))
    }

    /// Records the label of a namespace, or that it has none. Returns whether that is a change.
    pub fn label_namespace(&self, namespace: &str, label: Option<&str>) -> bool {
        let namespaces = &mut self.inner.lock().namespaces;
        if namespaces.get(namespace).map(|label| &**label) == label {
            return false;
        }
        match label {
            Some(label) => namespaces.insert(namespace.into(), label.into()),
            None => namespaces.remove(namespace),
        };
        true
    }

    /// The namespaces with the label.
    pub fn labelled_namespaces(&self) -> Vec<Arc<str>> {
        self.inner.lock().namespaces.keys().cloned().collect()
    }

    /// Records that this replica leads. `hand_over`: whether another replica led until shortly before.
    pub fn lead(&self, hand_over: bool) {
        let (now, at) = (Instant::now(), self.clock.now());
        self.change(|inner| {
            inner.leads = true;
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
            while let Some((due, key)) = inner.timers.first().cloned().filter(|(due, _)| *due <= now) {
                inner.timers.remove(&(due, key.clone()));
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

    /// Waits until a machine may have an output or another due time.
    pub async fn changed(&self) {
        self.changed.notified().await;
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

fn index(key: &Key, target: &CrossVersionObjectReference) -> (Arc<str>, Arc<str>, Arc<str>) {
    (Arc::clone(&key.namespace), target.name.as_str().into(), Arc::clone(&key.name))
}

#[cfg(test)]
mod tests;
