//! The ideal memory: for each HPA one history that was never lost, by which every sync is decided once more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use autoscaling::history::History;
use autoscaling::settings::Settings;
use autoscaling::{Conclusion, Hpa, Plan as SyncPlan, conclude, decide};
use concertina::clock::SharedClock;
use concertina::controller::{Concluded, Observer};

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
}

/// Tells the memory of the syncs of one life of a process.
#[derive(Debug)]
struct Witness {
    run: Weak<Run>,
    by: (usize, u32),
    clock: SharedClock,
}

impl Memory {
    pub(crate) fn new(scene: &Scene) -> Self {
        let mut settings = Settings { tolerance: scene.tolerance, ..Settings::default() };
        settings.downscale_stabilization = scene.downscale;
        Self { settings, state: Mutex::default() }
    }

    pub(crate) fn witness(
        &self,
        run: &Arc<Run>,
        process: usize,
        life: u32,
        clock: SharedClock,
    ) -> Arc<dyn Observer> {
        Arc::new(Witness { run: Arc::downgrade(run), by: (process, life), clock })
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
        witness: &Witness,
    ) -> Option<String> {
        let mut state = self.state.lock().unwrap();
        state.syncs += 1;
        let ideal = state
            .histories
            .entry(Arc::clone(&sync.hpa.uid))
            .or_insert_with(|| Ideal { history: History::default(), by: witness.by });
        if ideal.by != witness.by {
            // Nothing is handed over yet.
            *ideal = Ideal { history: history.clone(), by: witness.by };
        }
        let hpa = Hpa {
            namespace: &sync.hpa.key.namespace,
            name: &sync.hpa.key.name,
            generation: sync.hpa.generation,
            spec: &sync.hpa.spec,
            status: &sync.hpa.status,
        };
        let decision = decide(&hpa, plan, sync.answers, &ideal.history, &self.settings, sync.at);
        let again = conclude(&hpa, decision, sync.outcome, &self.settings, witness.clock.now());
        ideal.history.commit(&again.changes);
        let (got, wanted) = (told(sync.conclusion), told(&again));
        (got != wanted).then(|| format!("{}: decided {got}, with all its past {wanted}", sync.hpa.key))
    }
}

/// What a conclusion tells, as text.
fn told(conclusion: &Conclusion) -> String {
    let Conclusion { desired, status, events, last_event, .. } = conclusion;
    format!("{desired:?} {status:?} {events:?} {last_event:?}")
}

impl Observer for Witness {
    fn concluded(&self, _sync: &Concluded<'_>) {}

    fn weighed(&self, sync: &Concluded<'_>, plan: &SyncPlan, history: &History) {
        if let Some(run) = self.run.upgrade() {
            let difference = run.memory.decides_alike(sync, plan, history, self);
            run.report(difference.map(|text| ("decides as with an ideal memory", text)));
        }
    }
}
