//! The HPAs in scope with their state machines, and the data of HPAs out of scope that the detection of shared pods
//! needs.
//!
//! The watches, the driver, the syncs and the webhook server share the registry. Its lock is held for one lookup or one
//! change, and never across an `await`.

mod membership;
mod registry;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::target_group;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::membership::Placement;
use self::registry::{Entry, Inner};
use super::machine::{Guard, Input, Output, State};
use super::scope::{By, ControllerName};
use clock::SharedClock;
use cluster::gate::{Permission, Permits, WritePermit};
use engine::store::{Key, StatusWriter};

/// The result of the last check of the guard's objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum GuardProof {
    /// No check has finished, or no check is possible.
    #[default]
    Unknown,
    /// The objects refuse the writes of the built-in controller.
    Proven {
        /// The time since which every check has had this result.
        since: Timestamp,
    },
    /// The objects do not refuse the writes of the built-in controller.
    Broken {
        /// The object, its defect, and the remedy.
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
    /// Namespace and name of the HPA.
    pub key: Key,
    /// The object with the label that puts the HPA in scope.
    pub by: By,
    /// The state.
    pub state: State,
    /// The time at which the state was entered.
    pub since: Timestamp,
    /// The last status write by another controller since this process started.
    pub last_foreign_write: Option<StatusWriter>,
    /// The time of the last write of the built-in controller that this replica refused.
    pub last_refused_write: Option<Timestamp>,
}

/// The number of HPAs by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// HPAs out of scope. Zero with `--shadow-others`, which keeps them in the store.
    pub outside: usize,
    /// HPAs in [`State::Claiming`].
    pub claiming: usize,
    /// HPAs in [`State::InCharge`].
    pub in_charge: usize,
    /// HPAs in [`State::Contested`].
    pub contested: usize,
}

impl Counts {
    /// Returns the number of HPAs by the name of their state in metrics.
    pub fn by_state(self) -> [(&'static str, usize); 4] {
        let Self { outside, claiming, in_charge, contested } = self;
        [
            ("outside", outside),
            (State::Claiming.as_str(), claiming),
            (State::InCharge.as_str(), in_charge),
            (State::Contested.as_str(), contested),
        ]
    }
}

/// The HPAs in scope.
#[derive(Debug)]
pub struct Charges {
    name: ControllerName,
    period: Duration,
    /// `--shadow-others`.
    keeps_others: bool,
    clock: SharedClock,
    inner: Mutex<Inner>,
    changed: Notify,
    moving: Mutex<()>,
}

impl Charges {
    /// Creates a registry without HPAs. `period` is `--horizontal-pod-autoscaler-sync-period`. `keeps_others` is
    /// `--shadow-others`: HPAs out of scope stay in the store.
    pub fn new(name: ControllerName, period: Duration, keeps_others: bool, clock: SharedClock) -> Arc<Self> {
        let (inner, changed, moving) = (Mutex::default(), Notify::new(), Mutex::default());
        Arc::new(Self { name, period, keeps_others, clock, inner, changed, moving })
    }

    /// Locks the scope, so that no HPA enters or leaves it in another task. The caller changes the store of HPAs and
    /// this registry under this lock.
    pub fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock()
    }

    /// Returns the name of this instance.
    pub fn name(&self) -> &ControllerName {
        &self.name
    }

    /// Returns whether the first lists of HPAs and namespaces are complete.
    pub fn is_synced(&self) -> bool {
        self.inner.lock().is_synced
    }

    /// Records that the first lists of HPAs and namespaces are complete.
    pub fn set_synced(&self) {
        self.inner.lock().is_synced = true;
    }

    /// Returns whether an HPA is in scope.
    pub fn is_in_scope(&self, namespace: &str, hpa: &str) -> bool {
        self.inner.lock().hpas.contains_key(&Key::new(namespace, hpa))
    }

    /// Returns the targets with the given name. Includes only targets of HPAs in scope.
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

    /// Returns the groups and kinds of all targets of HPAs in scope.
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

    /// Returns the result of the last check of the guard's objects.
    pub fn guard_proof(&self) -> GuardProof {
        self.inner.lock().guard.clone()
    }

    /// Returns the HPAs in scope, in order of their keys.
    pub fn rows(&self) -> Vec<ChargeRow> {
        let inner = self.inner.lock();
        inner.hpas.iter().map(|(key, entry)| entry.row(key)).collect()
    }

    /// Returns an HPA. `None` if it is out of scope.
    pub fn row(&self, key: &Key) -> Option<ChargeRow> {
        self.inner.lock().hpas.get(key).map(|entry| entry.row(key))
    }

    /// Returns the number of HPAs by state. On a standby, all HPAs in scope are [`State::Claiming`].
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

    /// Records that this replica is the leader. `hand_over` means that another replica was the leader until shortly
    /// before.
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

    /// Records a foreign status write. Returns whether this instance was in charge of the HPA.
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

    /// Records that this replica refused a write of the built-in controller about an HPA. The refusal proves the guard
    /// for this HPA. Does nothing for an HPA out of scope.
    pub fn write_refused(&self, namespace: &str, hpa: &str) {
        let (now, at) = (Instant::now(), self.clock.now());
        let key = Key::new(namespace, hpa);
        self.change(|inner| {
            let Some(entry) = inner.hpas.get_mut(&key) else { return };
            entry.last_refused_write = entry.last_refused_write.max(Some(at));
            inner.last_proof = inner.last_proof.max(Some(at));
            inner.step(&key, Input::Refused, now, at);
        });
    }

    /// Steps all machines that are due.
    pub fn tick(&self) {
        let (now, at) = (Instant::now(), self.clock.now());
        self.change(|inner| {
            // Each machine steps only once. A due time that stays in the past would otherwise cause an endless loop.
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

    /// Returns the time at which [`Self::tick`] may next have an effect.
    pub fn next(&self) -> Option<Instant> {
        self.inner.lock().timers.first().map(|(due, _)| *due)
    }

    /// Removes and returns the next task of the driver.
    pub fn output(&self) -> Option<(Key, Output)> {
        self.inner.lock().outputs.pop_front()
    }

    /// Ends the wait of [`Self::changed`].
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Returns the time of the last proof of the guard that this replica has observed. A proof is a successful check of
    /// the guard's objects, or a refused write about an HPA in scope.
    pub fn last_proof(&self) -> Option<Timestamp> {
        self.inner.lock().last_proof
    }

    /// Waits until the driver may have work: an output, a new due time, a namespace to read, or a call of
    /// [`Self::wake`].
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns whether this replica is the leader.
    pub fn leads(&self) -> bool {
        self.inner.lock().leads
    }

    /// Returns the state of an HPA. `None` if the HPA is out of scope.
    pub fn state(&self, key: &Key) -> Option<State> {
        Some(self.inner.lock().hpas.get(key)?.charge.state())
    }

    /// Returns the number of the current term in charge of an HPA. `None` if this instance is not in charge of the HPA.
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
    /// Returns the state without its details, for the machines.
    fn state(&self) -> Guard {
        match self {
            Self::Unknown => Guard::Unknown,
            Self::Proven { .. } => Guard::Proven,
            Self::Broken { .. } => Guard::Broken,
        }
    }
}

/// Issues write permits from the registry.
#[derive(Debug, Clone)]
pub struct ChargePermits(pub Arc<Charges>);

impl Permits for ChargePermits {
    fn permit(&self, namespace: &Arc<str>, name: &Arc<str>) -> WritePermit {
        let key = Key { namespace: Arc::clone(namespace), name: Arc::clone(name) };
        let term = self.0.term(&key);
        WritePermit(Arc::new(TermPermit { charges: Arc::clone(&self.0), key, term }))
    }
}

/// Permits the writes about an HPA during the term in which they were decided.
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
