//! The ideal memory: for each HPA one history that was never lost, by which every sync is decided once more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use autoscaling::history::History;
use autoscaling::settings::Settings;
use autoscaling::spec::{MetricSource, ResourceTarget, ValueTarget};
use autoscaling::{Conclusion, Decision, Hpa, Plan as SyncPlan, conclude, decide};
use concertina::controller::{Concluded, Observer};
use jiff::SignedDuration;

use crate::growth::{Growth, count};
use crate::judge::Finding;
use crate::plan::Scene;
use crate::run::Run;

/// What never forgets.
#[derive(Debug)]
pub(crate) struct Memory {
    settings: Settings,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    syncs: u64,
    /// By UID.
    histories: BTreeMap<Arc<str>, Ideal>,
}

#[derive(Debug)]
struct Ideal {
    history: History,
    /// Process and life of the last sync.
    by: (usize, u32),
    /// By how much its clock had been set then.
    set: SignedDuration,
    /// When the last sync was.
    at: Duration,
}

/// Tells the memory of the syncs of one life of a process.
#[derive(Debug)]
struct Witness {
    run: Weak<Run>,
    by: (usize, u32),
}

impl Memory {
    pub(crate) fn new(scene: &Scene) -> Self {
        let mut settings = Settings { tolerance: scene.tolerance, ..Settings::default() };
        settings.downscale_stabilization = scene.downscale;
        Self { settings, state: Mutex::default() }
    }

    pub(crate) fn witness(run: &Arc<Run>, process: usize, life: u32) -> Arc<dyn Observer> {
        Arc::new(Witness { run: Arc::downgrade(run), by: (process, life) })
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.state.lock().unwrap().syncs
    }

    /// 10. Every decision is the one that the rules make of the same inputs and of a history that was never lost.
    fn decides_alike(
        &self,
        sync: &Concluded<'_>,
        plan: &SyncPlan,
        history: &History,
        (run, witness): (&Run, &Witness),
    ) -> Finding {
        let mut state = self.state.lock().unwrap();
        let state = &mut *state;
        state.syncs += 1;
        let ideal = state.histories.entry(Arc::clone(&sync.hpa.uid)).or_insert_with(|| Ideal {
            history: History::default(),
            by: witness.by,
            set: sync.set,
            at: run.now(),
        });
        let is_in_doubt = if ideal.by == witness.by {
            // A target that was gone comes back with a count: the last one of the life before, for all that is known.
            history.inherited.is_some() && run.touched(sync.hpa).is_some_and(|at| at > ideal.at)
        } else {
            ideal.set = SignedDuration::ZERO;
            !run.hands_over(ideal.by, sync.hpa, ideal.at)
        };
        if is_in_doubt {
            ideal.history = history.clone();
            ideal.set = sync.set;
        }
        ideal.by = witness.by;
        ideal.at = run.now();
        // A clock that is set makes nothing older or younger.
        ideal.history.shift(sync.set - ideal.set);
        ideal.set = sync.set;
        let hpa = Hpa {
            namespace: &sync.hpa.key.namespace,
            name: &sync.hpa.key.name,
            generation: sync.hpa.generation,
            spec: &sync.hpa.spec,
            status: &sync.hpa.status,
        };
        let decision = decide(&hpa, plan, sync.answers, &ideal.history, &self.settings, sync.at);
        if state.syncs.is_multiple_of(8)
            && !hpa.spec.metrics.iter().any(wants_less_than_nothing)
            && let Some(finding) = self.grows(&hpa, plan, sync, &ideal.history, &decision)
        {
            return Some(finding);
        }
        let again = conclude(&hpa, decision, sync.outcome, &self.settings, sync.ended);
        let (got, wanted) = (told(sync.conclusion), told(&again));
        if got == wanted {
            ideal.history.commit(&again.changes);
            return None;
        }
        let text = format!(
            "{}: decided {got:?} by {history:?}, with all its past {wanted:?} by {:?}",
            sync.hpa.key, ideal.history
        );
        Some(("decides as with an ideal memory", text))
    }

    /// 2. More load never asks for fewer replicas, and if it has no bound it asks for no fewer either.
    fn grows(
        &self,
        hpa: &Hpa<'_>,
        plan: &SyncPlan,
        sync: &Concluded<'_>,
        history: &History,
        decision: &Decision,
    ) -> Finding {
        let before = count(decision)?;
        let grown = |growth: Growth| {
            let answers = growth.of_all(sync.answers);
            count(&decide(hpa, plan, &answers, history, &self.settings, sync.at))
        };
        let fewer =
            Growth::ALL.into_iter().find(|growth| grown(*growth).is_some_and(|after| after < before))?;
        let text = format!("{}: {before} replicas, with {fewer:?} load {:?}", sync.hpa.key, grown(fewer));
        Some(("more load asks for no fewer replicas", text))
    }
}

/// Whether the target is negative, which no server lets in: more of such a metric is less load.
fn wants_less_than_nothing(metric: &MetricSource) -> bool {
    use MetricSource as M;
    match metric {
        M::Resource { target: ResourceTarget::AverageValue(target), .. }
        | M::ContainerResource { target: ResourceTarget::AverageValue(target), .. }
        | M::Pods { average: target, .. }
        | M::Object { target: ValueTarget::Value(target) | ValueTarget::AverageValue(target), .. }
        | M::External { target: ValueTarget::Value(target) | ValueTarget::AverageValue(target), .. } => {
            target.nanos() < 0
        }
        _ => false,
    }
}

/// What a conclusion tells.
fn told(conclusion: &Conclusion) -> impl PartialEq + std::fmt::Debug + '_ {
    let Conclusion { desired, status, events, last_event, .. } = conclusion;
    (desired, status, events, last_event)
}

impl Observer for Witness {
    fn concluded(&self, sync: &Concluded<'_>) {
        if let Some(run) = self.run.upgrade()
            && !run.is_dead(self.by.0, self.by.1)
            && let Some(hpa) = Scene::number(&sync.hpa.key.name)
        {
            run.judge.lock().unwrap().synced(self.by.0, self.by.1, hpa, run.now());
        }
    }

    fn weighed(&self, sync: &Concluded<'_>, plan: &SyncPlan, history: &History) {
        if let Some(run) = self.run.upgrade() {
            // What a process makes of it that nobody hears any more does not count.
            if !run.is_dead(self.by.0, self.by.1) {
                let finding = run.memory.decides_alike(sync, plan, history, (&run, self));
                run.report(finding);
            }
        }
    }
}
