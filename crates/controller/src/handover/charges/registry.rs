//! The state of the HPAs in scope, by key, by target and by due time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::status::CrossVersionObjectReference;
use jiff::Timestamp;
use tokio::time::Instant;

use super::membership::Outside;
use super::refusals::Unreported;
use super::{ChargeRow, GuardProof};
use crate::handover::machine::{Charge, Input, Output, State};
use crate::handover::scope::By;
use crate::store::{HpaRecord, Key, StatusWriter};

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) is_synced: bool,
    pub(super) leads: bool,
    pub(super) guard: GuardProof,
    /// The value of the label, by namespace. A namespace without the label has no entry.
    pub(super) namespaces: BTreeMap<Arc<str>, Arc<str>>,
    /// Namespaces that are new in scope, with HPAs that are not in the store.
    pub(super) adopting: BTreeSet<Arc<str>>,
    pub(super) outside: Outside,
    pub(super) hpas: BTreeMap<Key, Entry>,
    /// The namespace, the name of the target and the name of each HPA.
    pub(super) by_target: BTreeSet<(Arc<str>, Arc<str>, Arc<str>)>,
    /// The due times of the machines.
    pub(super) timers: BTreeSet<(Instant, Key)>,
    /// The tasks of the driver.
    pub(super) outputs: VecDeque<(Key, Output)>,
    /// The number of the last term.
    pub(super) terms: u64,
    pub(super) last_proof: Option<Timestamp>,
    /// The refusals of this replica while it is a standby.
    pub(super) unreported: Unreported,
}

/// An HPA in scope.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) uid: Arc<str>,
    pub(super) version: Option<u64>,
    pub(super) by: By,
    pub(super) target: CrossVersionObjectReference,
    pub(super) charge: Charge,
    pub(super) since: Timestamp,
    /// The number of the current term. `None` while this instance is not in charge of the HPA.
    pub(super) term: Option<u64>,
    pub(super) timer: Option<Instant>,
    pub(super) last_foreign_write: Option<StatusWriter>,
    pub(super) last_refused_write: Option<Timestamp>,
}

impl Inner {
    /// Puts an HPA in scope, or updates it. Returns whether the HPA is new in scope.
    pub(super) fn enter(
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

    pub(super) fn has_hpas_in(&self, namespace: &Arc<str>) -> bool {
        let from = Key { namespace: Arc::clone(namespace), name: Arc::default() };
        self.hpas.range(from..).next().is_some_and(|(key, _)| key.namespace == *namespace)
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.hpas.keys().cloned().collect()
    }

    pub(super) fn step(&mut self, key: &Key, input: Input, now: Instant, at: Timestamp) {
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

    pub(super) fn remove(&mut self, key: &Key) -> bool {
        let Some(entry) = self.hpas.remove(key) else { return false };
        self.by_target.remove(&index(key, &entry.target));
        if let Some(timer) = entry.timer {
            self.timers.remove(&(timer, key.clone()));
        }
        true
    }
}

impl Entry {
    pub(super) fn row(&self, key: &Key) -> ChargeRow {
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
