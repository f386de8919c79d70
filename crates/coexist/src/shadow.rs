//! Shadow mode: compares the decisions of a dry run with those of another controller. With `--shadow-others`, the
//! leader also compares the HPAs out of scope.
//!
//! Each status write of the other controller shows one of its syncs. Concertina syncs the HPA immediately after each
//! write, unless it has just synced the HPA. Both controllers therefore read the same metrics and build the same
//! history. The sync after a rescale uses the target's state before the rescale. Concertina's decision, at that instant
//! or at most one period earlier or later, is then compared with the other controller's change. Concertina's history
//! contains the other controller's rescales, because rate policies depend on them. Its recommendations are those of
//! Concertina alone.

mod comparison_log;
mod machine;
pub mod replay;
#[cfg(test)]
mod tests;
pub mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::query::{Answer, QueryError};
use autoscaling::settings::Settings;
use autoscaling::status::Status;
use autoscaling::{Answers, Decision, Plan};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use self::comparison_log::ComparisonLog;
pub use self::comparison_log::Parity;
use self::machine::{Comparison, Input, JUST_BEFORE, Machine};
use self::replay::{Inputs, MovedMetrics, Replay, are_equal, memory, summary, undo};
use self::wire::{Builtin, Change, InconclusiveReason, Outcome, OwnSide, Verdict};
use crate::handover::charges::Charges;
use crate::takeover::rescale;
use clock::SharedClock;
use engine::reconcile::queue::Queue;
use engine::reconcile::{Comparator, ComparedSync, ForeignRescale, Observer, Standpoint};
use engine::store::{HpaRecord, Key, Pods};
use engine::telemetry::metrics::Metrics as Telemetry;

/// Maximum number of rescales of one HPA that wait for a sync. If no sync happens, the oldest rescale is dropped.
const WAITING: usize = 8;
/// The allowance for whole seconds in statuses and for clock skew. A change is late only beyond this allowance.
const CLOCKS: SignedDuration = SignedDuration::from_secs(3);

/// The parts of the controller that a shadow uses.
#[derive(Debug)]
pub struct Parts {
    /// The cache of pods.
    pub pods: Arc<Pods>,
    /// The queue to which a foreign status write adds an HPA.
    pub queue: Arc<Queue>,
    /// The clock of observations.
    pub clock: SharedClock,
    /// Counts the results of comparisons.
    pub telemetry: Telemetry,
    /// Flags and feature gates that affect decisions.
    pub settings: Settings,
    /// `--horizontal-pod-autoscaler-sync-period`. The other controller is assumed to have the same period.
    pub period: Duration,
    /// With `--shadow-others`, the HPAs in scope, which are not compared. `None` compares all HPAs.
    pub others_of: Option<Arc<Charges>>,
}

/// Compares this controller's decisions with the changes by another controller, for HPAs that this controller does not
/// write.
#[derive(Debug)]
pub struct Shadow {
    parts: Parts,
    period: SignedDuration,
    since: Timestamp,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_uid: BTreeMap<Arc<str>, WatchedHpa>,
    /// The time of the last observed status write by the other controller.
    last_sign: Option<Timestamp>,
    log: ComparisonLog,
}

/// The state of one HPA.
#[derive(Debug, Default)]
struct WatchedHpa {
    machine: Machine,
    /// The inputs of the last sync.
    last: Option<Inputs>,
    /// The last status that the other controller wrote.
    status: Option<Arc<Status>>,
    /// The rescales that have not been compared with a sync yet, oldest first.
    waiting: VecDeque<AwaitedComparison>,
}

/// A rescale that waits for its comparison.
#[derive(Debug)]
struct AwaitedComparison {
    before: ForeignRescale,
    builtin: Builtin,
    status: Arc<Status>,
    /// Whether a sync that compares the rescale is running.
    taken: bool,
}

impl Shadow {
    /// Creates a shadow without observations.
    pub fn new(parts: Parts) -> Self {
        let period = SignedDuration::try_from(parts.period).unwrap_or(SignedDuration::MAX);
        let since = parts.clock.now();
        Self { parts, period, since, state: Mutex::default() }
    }

    /// Makes an HPA due now, instead of at its next due time.
    fn follow(&self, key: &Key) {
        self.parts.queue.forget(key);
        self.parts.queue.add(key);
    }

    fn before(&self, watched: &WatchedHpa, key: &Key, builtin: Builtin, seen: Timestamp) -> ForeignRescale {
        let selector = watched.last.as_ref().map(|last| &last.scale.selector);
        let pods = selector.map(|selector| self.parts.pods.select(&key.namespace, selector));
        let last = watched.last.as_ref().filter(|last| last.scale.replicas == builtin.from);
        let previous = last.map_or(&[][..], |last| &last.pods);
        let pods = pods.map(|pods| undo(pods, previous, builtin));
        ForeignRescale { seen, from: builtin.from, to: builtin.to, pods }
    }

    /// Compares a rescale with the sync that used the target's state before the rescale.
    fn compare_rescale(
        &self,
        watched: &mut WatchedHpa,
        compared: &ComparedSync<'_>,
        before: &ForeignRescale,
        own: &OwnSide,
        now: &Inputs,
    ) -> Option<(Outcome, Builtin, Arc<Status>)> {
        let index = watched.waiting.iter().position(|waiting| waiting.taken && waiting.before == *before)?;
        let AwaitedComparison { builtin, status, .. } = watched.waiting.remove(index)?;
        let sync = compared.sync;
        let last = watched.last.as_ref().filter(|last| last.scale.replicas == before.from);
        let trial = Replay {
            hpa: sync.hpa,
            from: before.from,
            history: compared.history,
            settings: &self.parts.settings,
            period: self.period,
            now: sync.at,
        };
        let replays = match last {
            _ if own.to == Some(before.to) => Vec::new(),
            Some(last) => trial.counts(&[(now, now), (now, last), (last, last)]),
            None => trial.counts(&[(now, now)]),
        };
        let shown = &status.current_metrics;
        let late = sync.at.duration_since(before.seen).max(before.seen.duration_since(builtin.at) - CLOCKS);
        let case = Comparison {
            from: before.from,
            to: before.to,
            observed: before.seen,
            late,
            own,
            replays: &replays,
            same_metrics: are_equal(&now.shown, shown)
                || last.is_some_and(|last| are_equal(&last.shown, shown)),
            moved: last.is_none_or(|last| !are_equal(&last.shown, &now.shown)),
            memory: memory(&sync.hpa.spec, &self.parts.settings),
        };
        let outcome = watched.machine.step(Input::Rescaled(case), self.period)?;
        Some((outcome, builtin, status))
    }

    /// Records, counts and logs the outcome of a comparison.
    fn record_outcome(
        &self,
        state: &mut State,
        hpa: &HpaRecord,
        at: Timestamp,
        outcome: Outcome,
        builtin: Option<Builtin>,
        status: &Status,
    ) {
        let Outcome { verdict, doubt, ours } = outcome;
        self.parts.telemetry.shadow_decision(verdict.as_label());
        let change = Change {
            at,
            namespace: hpa.key.namespace.to_string(),
            name: hpa.key.name.to_string(),
            uid: hpa.uid.to_string(),
            result: verdict,
            doubt,
            builtin,
            ours: Some(ours),
            said: summary(status),
        };
        log(&hpa.key, &change);
        state.log.add(change);
    }
}

impl Observer for Shadow {
    fn concluded(&self, _: &engine::reconcile::ConcludedSync<'_>) {}

    fn seen(&self, old: Option<&HpaRecord>, new: &HpaRecord) {
        if !self.compares(&new.key) {
            self.state.lock().by_uid.remove(&new.uid);
            return;
        }
        let now = self.parts.clock.now();
        let mut state = self.state.lock();
        let State { by_uid, last_sign, .. } = &mut *state;
        let watched = by_uid.entry(Arc::clone(&new.uid)).or_default();
        let Some(old) = old else {
            if new.status.conditions.is_empty() {
                watched.machine.step(Input::New, self.period);
            }
            return;
        };
        if old.spec != new.spec {
            watched.machine.step(Input::SpecChanged(now), self.period);
        }
        if old.status == new.status {
            return;
        }
        let status = Arc::clone(&new.status);
        watched.machine.step(Input::StatusWritten(now), self.period);
        *last_sign = Some(now);
        watched.status = Some(Arc::clone(&status));
        if let Some(rescale) = rescale(&old.status, &new.status) {
            let builtin = Builtin { at: rescale.at, from: rescale.from, to: rescale.to };
            let before = self.before(watched, &new.key, builtin, now);
            if watched.waiting.len() >= WAITING {
                watched.waiting.pop_front();
            }
            watched.waiting.push_back(AwaitedComparison { before, builtin, status, taken: false });
        } else if watched
            .machine
            .last_at()
            .is_some_and(|at| now.duration_since(at) < self.period / JUST_BEFORE)
        {
            return;
        }
        drop(state);
        self.follow(&new.key);
    }

    fn forgotten(&self, _: &Key, uid: &str) {
        self.state.lock().by_uid.remove(uid);
    }
}

impl Comparator for Shadow {
    fn compares(&self, key: &Key) -> bool {
        // A standby makes no decisions that could be compared.
        let is_other = |charges: &Arc<Charges>| charges.leads() && charges.state(key).is_none();
        self.parts.others_of.as_ref().is_none_or(is_other)
    }

    fn standpoint(&self, hpa: &HpaRecord) -> Standpoint {
        if !self.compares(&hpa.key) {
            return Standpoint::Now;
        }
        let mut state = self.state.lock();
        let Some(watched) = state.by_uid.get_mut(&hpa.uid) else { return Standpoint::Now };
        // A rescale whose sync was aborted is dropped without a comparison.
        watched.waiting.retain(|waiting| !waiting.taken);
        let Some(waiting) = watched.waiting.front_mut() else { return Standpoint::Now };
        waiting.taken = true;
        Standpoint::Before(waiting.before.clone())
    }

    fn foreign_metrics(
        &self,
        hpa: &HpaRecord,
        plan: &Plan,
        answers: &Answers<'_>,
        decision: &Decision,
    ) -> Option<Vec<Option<Result<Answer, QueryError>>>> {
        let scale = plan.scale().filter(|_| self.compares(&hpa.key))?;
        let now = self.parts.clock.now();
        let state = self.state.lock();
        let watched = state.by_uid.get(&hpa.uid)?;
        let taken = watched.waiting.iter().find(|waiting| waiting.taken).map(|waiting| &waiting.status);
        // The status in the HPA of this sync may be stale.
        let just_now = || watched.machine.wrote_just_before(now, self.period);
        let status = taken.or_else(|| watched.status.as_ref().filter(|_| just_now()))?;
        let moved = MovedMetrics {
            spec: &hpa.spec,
            explanation: decision.explanation(),
            theirs: &status.current_metrics,
            ours: decision.metrics(),
            before: watched.last.as_ref().map(|last| last.shown.as_slice()),
            is_size_steady: watched
                .last
                .as_ref()
                .is_none_or(|last| last.scale.status_replicas == scale.status_replicas),
        };
        moved.rescaled_answers(&answers.metrics)
    }

    fn compared(&self, compared: &ComparedSync<'_>) {
        let sync = compared.sync;
        if !self.compares(&sync.hpa.key) {
            return;
        }
        let explanation = &sync.conclusion.explanation;
        let shown = sync.conclusion.status.as_ref().unwrap_or(&sync.hpa.status).current_metrics.clone();
        let inputs = compared.scale.map(|scale| Inputs {
            scale: scale.clone(),
            metrics: sync.answers.metrics.clone(),
            pods: sync.answers.pods.to_vec(),
            shown,
        });
        let own = OwnSide {
            at: sync.at,
            from: explanation.current,
            to: explanation.desired,
            sentence: explanation.sentence(sync.at),
        };
        let mut state = self.state.lock();
        let last_sign = state.last_sign;
        // Without an entry, the HPA was deleted during the sync.
        let Some(mut watched) = state.by_uid.remove(&sync.hpa.uid) else { return };
        match (compared.standpoint, &inputs) {
            (Standpoint::Before(before), Some(now)) => {
                let judged = self.compare_rescale(&mut watched, compared, before, &own, now);
                if let Some((outcome, builtin, status)) = judged {
                    self.record_outcome(&mut state, sync.hpa, before.seen, outcome, Some(builtin), &status);
                }
            }
            (Standpoint::Before(before), None) => {
                let taken = watched.waiting.iter().position(|waiting| waiting.taken);
                if let Some(AwaitedComparison { builtin, status, .. }) =
                    taken.and_then(|index| watched.waiting.remove(index))
                {
                    let doubt = Some(InconclusiveReason::Undecided);
                    let outcome = Outcome { verdict: Verdict::Unknown, doubt, ours: own };
                    self.record_outcome(&mut state, sync.hpa, before.seen, outcome, Some(builtin), &status);
                }
            }
            (Standpoint::Now, _) => {
                let memory = memory(&sync.hpa.spec, &self.parts.settings);
                let theirs = watched.status.as_ref().map(|status| status.current_metrics.as_slice());
                if watched.machine.wrote_just_before(sync.at, self.period)
                    && let (Some(now), Some(theirs)) = (&inputs, theirs)
                    && !are_equal(&now.shown, theirs)
                {
                    watched.machine.step(Input::MetricsGap(sync.at), self.period);
                }
                let input = Input::Decided { own, memory, last_sign };
                if let Some(outcome) = watched.machine.step(input, self.period) {
                    self.record_outcome(&mut state, sync.hpa, sync.at, outcome, None, &sync.hpa.status);
                }
            }
        }
        watched.last = inputs.or(watched.last);
        let more = !watched.waiting.is_empty();
        state.by_uid.insert(Arc::clone(&sync.hpa.uid), watched);
        drop(state);
        if more {
            self.parts.queue.add(&sync.hpa.key);
        }
    }
}

/// Logs a comparison. Differences have the level warn, inconclusive results info, and equal results debug.
fn log(key: &Key, change: &Change) {
    let (builtin, ours) = (change.builtin_counts(), change.our_counts());
    let explanation = change.ours.as_ref().map_or("", |ours| ours.sentence.as_str());
    let result = change.result.as_label();
    match change.result {
        Verdict::Same => {
            tracing::debug!(
                hpa = %key, result, builtin, ours, explanation, "shadow decision agrees with the built-in controller"
            );
        }
        Verdict::Unknown => {
            let reason = change.doubt.map_or("", InconclusiveReason::as_str);
            tracing::info!(
                hpa = %key, result, builtin, ours, reason, explanation, "shadow comparison is inconclusive"
            );
        }
        Verdict::Different | Verdict::OnlyConcertina | Verdict::OnlyBuiltin => {
            let builtin_metrics = change.said.metrics.join(", ");
            tracing::warn!(
                hpa = %key, result, builtin, ours, builtin_metrics, explanation,
                "shadow decision differs from the built-in controller"
            );
        }
    }
}
