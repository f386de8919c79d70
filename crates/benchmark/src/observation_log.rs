//! Records a server's observations of a controller: statuses, scale writes, and pending reactions.

use std::collections::BTreeMap;

use crate::observations::{HpaObservations, Micros, Observations, PendingReaction, now};
use crate::workload::{Kind, POISONED, Workload};

/// All observations until now.
#[derive(Debug, Default)]
pub(crate) struct ObservationLog {
    pub(crate) seen: Observations,
    /// Spec changes that no status has observed yet, each with its index in `spec_changes` and the
    /// awaited generation.
    generations: BTreeMap<String, (usize, i64)>,
}

impl ObservationLog {
    /// Starts with the initial HPAs and the probes' HPAs.
    pub(crate) fn new(workload: &Workload, (all, probes): (Vec<String>, Vec<String>)) -> Self {
        let mut sightings = Self::default();
        let has_hanging_metrics = |key: &str| workload.poisoned && key.split('/').next() == Some(POISONED);
        let slowness = Micros::try_from(workload.slowness.as_micros()).unwrap_or(Micros::MAX);
        for (number, key) in all.into_iter().enumerate() {
            let special = has_hanging_metrics(&key);
            let is_slow = workload.kind == Kind::External && number < workload.hpas;
            let held_up = if is_slow { slowness } else { 0 };
            sightings
                .seen
                .hpas
                .insert(key, HpaObservations { held_up, special, ..HpaObservations::default() });
        }
        for key in probes {
            sightings.seen.hpas.insert(key, HpaObservations { special: true, ..HpaObservations::default() });
        }
        sightings
    }

    /// Awaits a scale write for each of `hpas`. Their metrics have just changed.
    pub(crate) fn await_scales(&mut self, hpas: Vec<String>) {
        let since = now();
        self.seen.reactions.extend(hpas.into_iter().map(|hpa| PendingReaction { hpa, since, until: None }));
    }

    /// Awaits the first status of `hpa`, which is about to be created.
    pub(crate) fn await_first(&mut self, hpa: String) {
        self.seen.creations.push(PendingReaction { hpa, since: now(), until: None });
    }

    /// Awaits a status that observes `generation`, the result of a spec change of `hpa` at `since`.
    pub(crate) fn await_generation(&mut self, hpa: &str, since: Micros, generation: i64) {
        let index = self.seen.spec_changes.len();
        self.seen.spec_changes.push(PendingReaction { hpa: hpa.to_owned(), since, until: None });
        self.generations.insert(hpa.to_owned(), (index, generation));
        if let Some(seen) = self.seen.hpas.get_mut(hpa) {
            seen.special = true;
        }
    }

    /// Records a status write of `hpa` at `at`, with the observed generation from `generation`.
    pub(crate) fn status(&mut self, hpa: &str, at: Micros, generation: impl FnOnce() -> Option<i64>) {
        let Some(seen) = self.seen.hpas.get_mut(hpa) else { return };
        seen.statuses.push(at);
        let open = |awaited: &&mut PendingReaction| awaited.hpa == hpa && awaited.until.is_none();
        if seen.special
            && let Some(awaited) = self.seen.creations.iter_mut().find(open)
        {
            awaited.until = Some(at);
        }
        if let Some((index, awaited)) = self.generations.get(hpa).copied()
            && generation().is_some_and(|generation| generation >= awaited)
        {
            self.generations.remove(hpa);
            if let Some(awaited) = self.seen.spec_changes.get_mut(index) {
                awaited.until = Some(at);
            }
        }
    }

    /// Records a scale write of `target` at `at`. An app, its Deployment and its HPA share one name.
    pub(crate) fn scaled(&mut self, target: &str, at: Micros) {
        let open = |awaited: &&mut PendingReaction| awaited.hpa == target && awaited.until.is_none();
        if let Some(awaited) = self.seen.reactions.iter_mut().find(open) {
            awaited.until = Some(at);
        }
    }
}
