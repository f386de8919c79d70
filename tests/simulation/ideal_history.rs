//! The ideal history: one history per HPA that is never lost. Every sync is decided a second time with that
//! history.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use autoscaling::history::History;
use autoscaling::pod::{Phase, Pod};
use autoscaling::settings::Settings;
use autoscaling::spec::{MetricSource, ResourceTarget, ValueTarget};
use autoscaling::{Conclusion, Decision, Hpa, Plan as SyncPlan, conclude, decide};
use engine::reconcile::{ConcludedSync, Observer};
use jiff::SignedDuration;
use parking_lot::Mutex;

use crate::invariants::Finding;
use crate::metrics_backend::{LoadFactor, count};
use crate::plan::InitialState;
use crate::run::Run;

/// The ideal histories of a run.
#[derive(Debug)]
pub(crate) struct IdealHistories {
    settings: Settings,
    state: Mutex<State>,
}

/// Numbers of handovers. Each HPA is counted separately.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Handovers {
    pub(crate) all: u64,
    /// Handovers that must pass on the whole history.
    pub(crate) judged: u64,
}

#[derive(Debug, Default)]
struct State {
    syncs: u64,
    handovers: Handovers,
    /// Histories by the UID of the HPA.
    histories: BTreeMap<Arc<str>, IdealHistory>,
}

#[derive(Debug)]
struct IdealHistory {
    history: History,
    /// Process and lifetime of the last sync.
    last_life: (usize, u32),
    /// Clock offset of the process at the last sync.
    clock_offset: SignedDuration,
    /// Time of the last sync.
    at: Duration,
}

/// Reports the syncs of one lifetime of a process to the ideal history.
#[derive(Debug)]
struct SyncReporter {
    run: Weak<Run>,
    life: (usize, u32),
}

impl IdealHistories {
    pub(crate) fn new(scene: &InitialState) -> Self {
        let mut settings = Settings { tolerance: scene.tolerance, ..Settings::default() };
        settings.downscale_stabilization = scene.downscale;
        Self { settings, state: Mutex::default() }
    }

    pub(crate) fn witness(run: &Arc<Run>, process: usize, life: u32) -> Arc<dyn Observer> {
        Arc::new(SyncReporter { run: Arc::downgrade(run), life: (process, life) })
    }

    pub(crate) fn handovers(&self) -> Handovers {
        self.state.lock().handovers
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    /// Invariant 10: every decision equals the decision of the pure rules on the same inputs and a history that was
    /// never lost.
    fn check_decision(
        &self,
        sync: &ConcludedSync<'_>,
        plan: &SyncPlan,
        history: &History,
        (run, witness): (&Run, &SyncReporter),
    ) -> Finding {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.syncs += 1;
        let ideal = state.histories.entry(Arc::clone(&sync.hpa.uid)).or_insert_with(|| IdealHistory {
            history: History::default(),
            last_life: witness.life,
            clock_offset: sync.set,
            at: Duration::ZERO,
        });
        // With a history inherited from an earlier lifetime, the controller cannot distinguish the count of a recreated
        // target from the last count of that lifetime. The status of a new HPA may also come from another
        // controller.
        let is_ambiguous =
            history.inherited.is_some() && run.last_foreign_change(sync.hpa).is_some_and(|at| at > ideal.at);
        // A restore of etcd has brought back a deleted HPA.
        let is_back = run.created(sync.hpa) > ideal.at && ideal.at > Duration::ZERO;
        let may_differ = if is_back || ideal.last_life == witness.life {
            is_back || is_ambiguous
        } else {
            ideal.clock_offset = SignedDuration::ZERO;
            let must = run.must_hand_over(ideal.last_life, sync.hpa, ideal.at);
            state.handovers.all += 1;
            state.handovers.judged += u64::from(must);
            !must || is_ambiguous
        };
        if may_differ {
            ideal.history = history.clone();
            ideal.clock_offset = sync.set;
        }
        ideal.last_life = witness.life;
        ideal.at = run.now();
        // A change of the clock does not change the age of history entries.
        ideal.history.shift(sync.set - ideal.clock_offset);
        ideal.clock_offset = sync.set;
        let hpa = Hpa {
            namespace: &sync.hpa.key.namespace,
            name: &sync.hpa.key.name,
            generation: sync.hpa.generation,
            spec: &sync.hpa.spec,
            status: &sync.hpa.status,
        };
        let decision = decide(&hpa, plan, sync.answers, &ideal.history, &self.settings, sync.at);
        if state.syncs.is_multiple_of(8)
            && !hpa.spec.metrics.iter().any(has_negative_target)
            && counts_all_replicas(sync.answers.pods, &decision)
            && let Some(finding) = self.check_growth(&hpa, plan, sync, &ideal.history, &decision)
        {
            return Some(finding);
        }
        let again = conclude(&hpa, decision, sync.outcome, &self.settings, sync.ended);
        let (got, expected) = (published(sync.conclusion), published(&again));
        if got == expected {
            ideal.history.commit(&again.changes);
            return None;
        }
        let text = format!(
            "{}: decided {got:?} by {history:?}, with the full history {expected:?} by {:?}",
            sync.hpa.key, ideal.history
        );
        Some(("decides as with an ideal history", text))
    }

    /// Invariant 2: more load never results in fewer replicas, however large the load is.
    fn check_growth(
        &self,
        hpa: &Hpa<'_>,
        plan: &SyncPlan,
        sync: &ConcludedSync<'_>,
        history: &History,
        decision: &Decision,
    ) -> Finding {
        let before = count(decision)?;
        let grown = |growth: LoadFactor| {
            let answers = growth.grow_answers(sync.answers);
            count(&decide(hpa, plan, &answers, history, &self.settings, sync.at))
        };
        let fewer =
            LoadFactor::ALL.into_iter().find(|growth| grown(*growth).is_some_and(|after| after < before))?;
        let text = format!("{}: {before} replicas, with {fewer:?} load {:?}", sync.hpa.key, grown(fewer));
        Some(("more load asks for no fewer replicas", text))
    }
}

/// Whether the number of counted pods equals the replicas of the Scale, or no pods exist. Otherwise, more load can
/// lower the count: the rules multiply by the counted pods, but within the tolerance they keep the count of the Scale.
fn counts_all_replicas(pods: &[Arc<Pod>], decision: &Decision) -> bool {
    let counted =
        pods.iter().filter(|pod| !pod.terminating && !matches!(pod.phase, Phase::Succeeded | Phase::Failed));
    pods.is_empty() || usize::try_from(decision.current()) == Ok(counted.count())
}

/// Whether the target is negative, which no API server accepts. A higher value of such a metric means less
/// load.
fn has_negative_target(metric: &MetricSource) -> bool {
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

/// The published part of a conclusion.
fn published(conclusion: &Conclusion) -> impl PartialEq + std::fmt::Debug + '_ {
    let Conclusion { desired, status, events, last_event, .. } = conclusion;
    (desired, status, events, last_event)
}

impl Observer for SyncReporter {
    fn concluded(&self, sync: &ConcludedSync<'_>) {
        if let Some(run) = self.run.upgrade()
            && !run.is_dead(self.life.0, self.life.1)
            && let Some(hpa) = InitialState::number(&sync.hpa.key.name)
        {
            run.judge.lock().synced(self.life.0, self.life.1, hpa, run.now());
        }
    }

    fn evaluated(&self, sync: &ConcludedSync<'_>, plan: &SyncPlan, history: &History) {
        if let Some(run) = self.run.upgrade() {
            // Decisions of a dead process do not count, because they have no effect.
            if !run.is_dead(self.life.0, self.life.1) {
                let finding = run.memory.check_decision(sync, plan, history, (&run, self));
                run.report(finding);
            }
        }
    }
}
