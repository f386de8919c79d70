//! Shadow mode: a dry run beside another controller, and whether both would do the same.
//!
//! The other controller's syncs are seen by the statuses it writes. Each is answered by a sync of ours at once, so that
//! both look at the same metrics and remember the same past; after a rescale, that sync sees the target as it was
//! before. Then the other one's change is compared with what we would have done, at that moment or at most one period
//! earlier or later. Its rescales enter our history as its own enter its: rates depend on them. What we recommend is
//! our own.

mod ledger;
pub(crate) mod level;
mod machine;
mod pages;
mod said;
mod shown;
mod trial;
mod undo;
pub mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use autoscaling::query::{Answer, QueryError};
use autoscaling::settings::Settings;
use autoscaling::status::Status;
use autoscaling::{Answers, Decision, Scale};
use jiff::{SignedDuration, Timestamp};

use self::ledger::Ledger;
use self::machine::{Case, JUST_BEFORE, Machine, Own};
pub use self::pages::Parity;
use self::trial::{Inputs, Trial, memory};
use self::undo::undo;
use self::wire::{Builtin, Change, Outcome, Verdict};
use crate::clock::SharedClock;
use crate::controller::queue::Queue;
use crate::controller::{Before, Beside, Compared, Observer};
use crate::store::{HpaRecord, Key, Pods};
use crate::takeover::foreign;
use crate::telemetry::metrics::Metrics as Telemetry;

/// How many rescales of one HPA may wait for their sync; more come only where none is made.
const WAITING: usize = 8;
/// Statuses have whole seconds, and clocks differ a little: what a change may seem late by without being so.
const CLOCKS: SignedDuration = SignedDuration::from_secs(3);

/// What a shadow needs of the controller that it belongs to.
#[derive(Debug)]
pub struct Parts {
    /// The pods.
    pub pods: Arc<Pods>,
    /// Where a sync is asked for.
    pub queue: Arc<Queue>,
    /// The time of day.
    pub clock: SharedClock,
    /// What is counted.
    pub telemetry: Telemetry,
    /// Flags and gates that change a decision.
    pub settings: Settings,
    /// `--horizontal-pod-autoscaler-sync-period`, taken to be the other controller's too.
    pub period: Duration,
}

/// Compares this controller, which writes nothing, with another one that does.
#[derive(Debug)]
pub struct Shadow {
    parts: Parts,
    period: SignedDuration,
    since: Timestamp,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_uid: BTreeMap<Arc<str>, Watched>,
    /// When the other controller was last seen to write anything.
    last_sign: Option<Timestamp>,
    ledger: Ledger,
}

/// One HPA.
#[derive(Debug, Default)]
struct Watched {
    machine: Machine,
    /// What the last sync was decided from.
    last: Option<Inputs>,
    /// What the other controller wrote last.
    status: Option<Arc<Status>>,
    /// Rescales that no sync has been compared with yet, oldest first.
    waiting: VecDeque<Waiting>,
}

/// A rescale that is to be compared.
#[derive(Debug)]
struct Waiting {
    before: Before,
    builtin: Builtin,
    status: Arc<Status>,
    /// It is being compared.
    taken: bool,
}

impl Shadow {
    /// A shadow that has seen nothing yet.
    pub fn new(parts: Parts) -> Self {
        let period = SignedDuration::try_from(parts.period).unwrap_or(SignedDuration::MAX);
        let since = parts.clock.now();
        Self { parts, period, since, state: Mutex::default() }
    }

    /// Has a sync made now. The next one follows a period later, as the other controller's does.
    fn follow(&self, key: &Key) {
        self.parts.queue.forget(key);
        self.parts.queue.add(key);
    }

    fn before(&self, watched: &Watched, key: &Key, builtin: Builtin, seen: Timestamp) -> Before {
        let selector = watched.last.as_ref().map(|last| &last.scale.selector);
        let pods = selector.map(|selector| self.parts.pods.select(&key.namespace, selector));
        let last = watched.last.as_ref().filter(|last| last.scale.replicas == builtin.from);
        let known = last.map_or(&[][..], |last| &last.pods);
        let pods = pods.map(|pods| undo(pods, known, builtin));
        Before { seen, from: builtin.from, to: builtin.to, pods }
    }

    /// Compares a rescale that was seen with the sync that saw the target as it was before.
    fn judge(
        &self,
        watched: &mut Watched,
        compared: &Compared<'_>,
        before: &Before,
        own: &Own,
        now: &Inputs,
    ) -> Option<(Outcome, Builtin, Arc<Status>)> {
        let place = watched.waiting.iter().position(|waiting| waiting.taken && waiting.before == *before)?;
        let Waiting { builtin, status, .. } = watched.waiting.remove(place)?;
        let sync = compared.sync;
        let last = watched.last.as_ref().filter(|last| last.scale.replicas == before.from);
        let trial = Trial {
            hpa: sync.hpa,
            from: before.from,
            history: compared.history,
            settings: &self.parts.settings,
            period: self.period,
            now: sync.at,
        };
        let again = match last {
            _ if own.to == Some(before.to) => Vec::new(),
            Some(last) => trial.counts(&[(now, now), (now, last), (last, last)]),
            None => trial.counts(&[(now, now)]),
        };
        let shown = &status.current_metrics;
        let made = sync.at.duration_since(before.seen).max(before.seen.duration_since(builtin.at) - CLOCKS);
        let case = Case {
            from: before.from,
            to: before.to,
            seen: before.seen,
            late: made,
            own,
            again: &again,
            same_metrics: shown::are_equal(&now.shown, shown)
                || last.is_some_and(|last| shown::are_equal(&last.shown, shown)),
            moved: last.is_none_or(|last| !shown::are_equal(&last.shown, &now.shown)),
            memory: memory(&sync.hpa.spec, &self.parts.settings),
        };
        Some((watched.machine.rescaled(&case, self.period), builtin, status))
    }

    /// Takes down what came of a comparison, counts it and tells of it.
    fn take_down(
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
            ours,
            said: said::said(status),
        };
        log(&hpa.key, &change);
        state.ledger.add(change);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Shadow {
    fn concluded(&self, _: &crate::controller::Concluded<'_>) {}

    fn seen(&self, old: Option<&HpaRecord>, new: &HpaRecord) {
        let now = self.parts.clock.now();
        let mut state = self.lock();
        let State { by_uid, last_sign, .. } = &mut *state;
        let watched = by_uid.entry(Arc::clone(&new.uid)).or_default();
        let Some(old) = old else {
            if new.status.conditions.is_empty() {
                watched.machine.begins();
            }
            return;
        };
        let (status_changed, spec_changed) = (old.status != new.status, old.spec != new.spec);
        watched.machine.seen(now, status_changed, spec_changed);
        if !status_changed {
            return;
        }
        *last_sign = Some(now);
        watched.status = Some(Arc::clone(&new.status));
        if let Some(rescale) = foreign::rescale(&old.status, &new.status) {
            let builtin = Builtin { at: rescale.at, from: rescale.from, to: rescale.to };
            let before = self.before(watched, &new.key, builtin, now);
            if watched.waiting.len() >= WAITING {
                watched.waiting.pop_front();
            }
            let status = Arc::clone(&new.status);
            watched.waiting.push_back(Waiting { before, builtin, status, taken: false });
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
        self.lock().by_uid.remove(uid);
    }
}

impl Beside for Shadow {
    fn before(&self, hpa: &HpaRecord) -> Option<Before> {
        let mut state = self.lock();
        let watched = state.by_uid.get_mut(&hpa.uid)?;
        // Those that an abandoned sync took are lost to it.
        watched.waiting.retain(|waiting| !waiting.taken);
        let waiting = watched.waiting.front_mut()?;
        waiting.taken = true;
        Some(waiting.before.clone())
    }

    fn as_seen(
        &self,
        hpa: &HpaRecord,
        scale: &Scale,
        answers: &Answers<'_>,
        decision: &Decision,
    ) -> Option<Vec<Option<Result<Answer, QueryError>>>> {
        let now = self.parts.clock.now();
        let state = self.lock();
        let watched = state.by_uid.get(&hpa.uid)?;
        let taken = watched.waiting.iter().find(|waiting| waiting.taken).map(|waiting| &waiting.status);
        // Not the status of the HPA as this sync began: the other controller may have written it since.
        let just_now = || watched.machine.was_seen_just_before(now, self.period);
        let status = taken.or_else(|| watched.status.as_ref().filter(|_| just_now()))?;
        let moved = shown::Moved {
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
        moved.back(&answers.metrics)
    }

    fn compared(&self, compared: &Compared<'_>) {
        let sync = compared.sync;
        let explanation = &sync.conclusion.explanation;
        let shown = sync.conclusion.status.as_ref().unwrap_or(&sync.hpa.status).current_metrics.clone();
        let inputs = compared.scale.map(|scale| Inputs {
            scale: scale.clone(),
            metrics: sync.answers.metrics.clone(),
            pods: sync.answers.pods.to_vec(),
            shown,
        });
        let own = Own {
            at: sync.at,
            from: explanation.current,
            to: explanation.desired,
            sentence: explanation.sentence(sync.at),
        };
        let mut state = self.lock();
        let alive = state.last_sign;
        // It went while the sync ran.
        let Some(mut watched) = state.by_uid.remove(&sync.hpa.uid) else { return };
        match (compared.before, &inputs) {
            (Some(before), Some(now)) => {
                let judged = self.judge(&mut watched, compared, before, &own, now);
                if let Some((outcome, builtin, status)) = judged {
                    self.take_down(&mut state, sync.hpa, before.seen, outcome, Some(builtin), &status);
                }
            }
            (Some(before), None) => {
                let taken = watched.waiting.iter().position(|waiting| waiting.taken);
                if let Some(Waiting { builtin, status, .. }) =
                    taken.and_then(|place| watched.waiting.remove(place))
                {
                    let doubt = Some(wire::Doubt::Undecided);
                    let outcome = Outcome { verdict: Verdict::Unknown, doubt, ours: Some(own.into()) };
                    self.take_down(&mut state, sync.hpa, before.seen, outcome, Some(builtin), &status);
                }
            }
            (None, _) => {
                let memory = memory(&sync.hpa.spec, &self.parts.settings);
                let theirs = watched.status.as_ref().map(|status| status.current_metrics.as_slice());
                if watched.machine.was_seen_just_before(sync.at, self.period)
                    && let (Some(now), Some(theirs)) = (&inputs, theirs)
                    && !shown::are_equal(&now.shown, theirs)
                {
                    watched.machine.missed(sync.at);
                }
                if let Some(outcome) = watched.machine.decided(own, self.period, memory, alive) {
                    self.take_down(&mut state, sync.hpa, sync.at, outcome, None, &sync.hpa.status);
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

/// A line for what an operator wants to know of: every difference, and what could not be compared.
fn log(key: &Key, change: &Change) {
    let (builtin, ours) = (change.builtin_counts(), change.our_counts());
    let sentence = change.ours.as_ref().map_or("", |ours| ours.sentence.as_str());
    let result = change.result.as_label();
    match change.result {
        Verdict::Same => tracing::debug!(hpa = %key, result, builtin, ours, "{sentence}"),
        Verdict::Unknown => {
            let why = change.doubt.map_or("", wire::Doubt::as_str);
            tracing::info!(hpa = %key, result, builtin, ours, why, "{sentence}");
        }
        Verdict::Different | Verdict::OnlyOurs | Verdict::OnlyBuiltin => {
            let said = change.said.metrics.join(", ");
            tracing::warn!(hpa = %key, result, builtin, ours, metrics = said, "{sentence}");
        }
    }
}
