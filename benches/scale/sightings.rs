//! What a server sees of a controller, put down as it comes: statuses, scale writes, and what is waited for.

use std::collections::BTreeMap;

use crate::observed::{Awaited, Micros, Observed, Seen, now};
use crate::workload::{Kind, POISONED, Workload};

/// What was seen until now.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    pub(crate) seen: Observed,
    /// Changes of specs that no status knows yet: where in `spec_changes`, and which generation is awaited.
    generations: BTreeMap<String, (usize, i64)>,
}

impl Sightings {
    /// Of the HPAs that are there from the beginning, and of those of probes.
    pub(crate) fn of(workload: &Workload, (all, probes): (Vec<String>, Vec<String>)) -> Self {
        let mut sightings = Self::default();
        let hangs = |key: &str| workload.poisoned && key.split('/').next() == Some(POISONED);
        let slowness = Micros::try_from(workload.slowness.as_micros()).unwrap_or(Micros::MAX);
        for (number, key) in all.into_iter().enumerate() {
            let special = hangs(&key);
            let is_slow = workload.kind == Kind::External && number < workload.hpas;
            let held_up = if is_slow { slowness } else { 0 };
            sightings.seen.hpas.insert(key, Seen { held_up, special, ..Seen::default() });
        }
        for key in probes {
            sightings.seen.hpas.insert(key, Seen { special: true, ..Seen::default() });
        }
        sightings
    }

    /// The metrics of these HPAs have just changed.
    pub(crate) fn await_scales(&mut self, hpas: Vec<String>) {
        let since = now();
        self.seen.reactions.extend(hpas.into_iter().map(|hpa| Awaited { hpa, since, until: None }));
    }

    /// This HPA is about to be created.
    pub(crate) fn await_first(&mut self, hpa: String) {
        self.seen.creations.push(Awaited { hpa, since: now(), until: None });
    }

    /// The spec of this HPA has been changed at a time, to a generation.
    pub(crate) fn await_generation(&mut self, hpa: &str, since: Micros, generation: i64) {
        let place = self.seen.spec_changes.len();
        self.seen.spec_changes.push(Awaited { hpa: hpa.to_owned(), since, until: None });
        self.generations.insert(hpa.to_owned(), (place, generation));
        if let Some(seen) = self.seen.hpas.get_mut(hpa) {
            seen.special = true;
        }
    }

    /// A status of this HPA was written, which knows a generation.
    pub(crate) fn status(&mut self, hpa: &str, at: Micros, generation: impl FnOnce() -> Option<i64>) {
        let Some(seen) = self.seen.hpas.get_mut(hpa) else { return };
        seen.statuses.push(at);
        let open = |awaited: &&mut Awaited| awaited.hpa == hpa && awaited.until.is_none();
        if seen.special
            && let Some(awaited) = self.seen.creations.iter_mut().find(open)
        {
            awaited.until = Some(at);
        }
        if let Some((place, awaited)) = self.generations.get(hpa).copied()
            && generation().is_some_and(|generation| generation >= awaited)
        {
            self.generations.remove(hpa);
            if let Some(awaited) = self.seen.spec_changes.get_mut(place) {
                awaited.until = Some(at);
            }
        }
    }

    /// The scale of this target was written. Apps, their Deployments and their HPAs have the same names.
    pub(crate) fn scaled(&mut self, target: &str, at: Micros) {
        let open = |awaited: &&mut Awaited| awaited.hpa == target && awaited.until.is_none();
        if let Some(awaited) = self.seen.reactions.iter_mut().find(open) {
            awaited.until = Some(at);
        }
    }
}
