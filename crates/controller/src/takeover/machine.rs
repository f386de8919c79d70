//! The take-over state machine, which decides when Concertina may write. It has no clock and no client.
//!
//! A foreign write proves that another controller is active. Its absence proves nothing, because the built-in
//! loop writes nothing while nothing changes. The proof is a change that an active controller would have
//! answered, and that stays unanswered. In such a change, two consecutive conclusions about one HPA differ in
//! the count, the metrics or the spec, which every controller sees alike. The stored status shows neither
//! conclusion, and still shows neither two periods later. Then Concertina acts for all HPAs. The first
//! foreign write stops Concertina at once.
//!
//! | state | input | condition | next state | step or result |
//! |---|---|---|---|---|
//! | `Observing` | `start` | first call | `Observing` | the silence starts |
//! | `Observing` | `tick` | a proof is due | `Observing` | `Step::Check` of its HPA |
//! | `Observing` | `tick` | no proof is due, or a check runs | `Observing` | `Step::Wait` |
//! | `Observing` | `checked` | success, quiet time over, proof still due | `Acting` | `Activation` |
//! | `Observing` | `checked` | failure | `Observing` | next check half a period later |
//! | `Observing` | `hand_over` | Concertina made the newest write | `Acting` | `Activation` |
//! | `Holding` | `tick` | quiet time over | `Observing` | `Step::Quiet` |
//! | `Acting` | `tick`, `concluded` | – | `Acting` | none |
//! | any | `foreign_write` | – | `Holding` | the silence restarts |
//! | not `Acting` | `concluded` | – | unchanged | the trail of the HPA is updated |
//! | any | `wrote` | – | unchanged | the newest write times are updated |
//! | any | `forget` | – | unchanged | the trail of the HPA is dropped |
//!
//! A foreign write that stops Concertina sets the quiet time. The quiet time doubles, up to `LONGEST_QUIET`
//! periods, if Concertina has acted for at most `RELAPSE` periods and not after a handover. If Concertina has
//! acted longer or after a handover, the quiet time becomes `QUIET` periods. A premature start because of a
//! difference disables differences.
//!
//! The earliest proof of an HPA counts:
//!
//! - A change is a proof after the quiet time, measured from the later of the change and the start of the
//!   silence. If a foreign write of the HPA precedes the change by at most half the quiet time,
//!   this write replaces the change.
//! - A difference, which is a wrong stored status or a withheld count, is a proof after `DIFFERENCE` periods,
//!   measured from the later of its start and the start of the silence.
//! - An HPA that an active foreign controller ignores proves nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::spec::Spec;
use autoscaling::status::MetricStatus;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::store::Key;

/// Quiet time in periods: the required silence, and the time for which a change must stay unanswered.
const QUIET: u32 = 2;
/// A foreign write within this many periods after the start of acting shows that the start was premature.
const RELAPSE: u32 = 10;
/// Maximum quiet time in periods. Each premature start doubles the quiet time.
const LONGEST_QUIET: u32 = 16;
/// Number of periods after which a wrong stored status is a proof. A wrong status proves less than a change
/// that this process observed, because other flags of the other controller may explain it.
const DIFFERENCE: u32 = 20;

/// Concertina's behaviour towards other controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Concertina writes nothing. No foreign write is recent, but the absence of other controllers is not
    /// proven.
    Observing,
    /// Concertina writes.
    Acting,
    /// Concertina writes nothing, because a foreign write happened within the quiet time.
    Holding,
}

/// The proof on which Concertina acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// No controller answered a change of this HPA.
    Change(Key),
    /// The status of this HPA has been wrong for a long time.
    Difference(Key),
    /// The previous leader, another replica of Concertina, was acting.
    HandOver,
}

/// The inputs that every controller of an HPA sees alike, independent of its history and configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedState {
    /// `spec.replicas` of the target.
    pub replicas: i32,
    /// Current metrics, as in the status.
    pub metrics: Vec<MetricStatus>,
}

/// The part of a concluded sync that the machine uses.
#[derive(Debug, Clone, PartialEq)]
pub struct SyncObservation {
    /// The spec that the sync used.
    pub spec: Arc<Spec>,
    /// The facts that the sync read.
    pub found: ObservedState,
    /// The facts in the stored status.
    pub stored: ObservedState,
    /// Whether the sync decided another count and the gate refused the write.
    pub withheld: bool,
    /// Whether no controller has ever written a status.
    pub untouched: bool,
}

/// The next step of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing before [`Machine::next`].
    Wait,
    /// The quiet time has passed: the state is now [`State::Observing`].
    Quiet,
    /// All conditions for acting are met. The driver reads this HPA from the API server, not from the watch
    /// cache, and reports the result with [`Machine::checked`].
    Check(Key),
}

/// The result of a start of acting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activation {
    /// The proof.
    pub proof: Proof,
    /// HPAs with a withheld count or a wrong status, which sync at once.
    pub due: Vec<Key>,
}

/// The state machine.
#[derive(Debug, Clone)]
pub struct Machine {
    period: Duration,
    state: State,
    quiet: Duration,
    /// Time of the last foreign write, or of the start if no write followed.
    silent_since: Option<Instant>,
    trails: BTreeMap<Key, ChangeTracker>,
    /// Time of the earliest possible proof.
    earliest_proof: Option<Instant>,
    checking: bool,
    /// The start of acting, and its proof.
    acting: Option<(Instant, Proof)>,
    differences_count: bool,
    /// The newest status write by Concertina in the cluster, by the server's clock.
    newest_own: Option<Timestamp>,
    newest_foreign: Option<Timestamp>,
}

/// The machine's record of one HPA while Concertina does not act.
#[derive(Debug, Clone, Default)]
struct ChangeTracker {
    last: Option<(Arc<Spec>, ObservedState)>,
    /// Start of the time in which the stored status misses a change.
    changed: Option<Instant>,
    /// Start of the time in which the stored status is wrong or a count is withheld.
    wrong: Option<Instant>,
    /// Time of the last foreign write.
    answered: Option<Instant>,
    /// Whether an active foreign controller ignores this HPA.
    ignored: bool,
}

impl Machine {
    /// Creates a machine without observations. `period`: `--horizontal-pod-autoscaler-sync-period`.
    pub fn new(period: Duration) -> Self {
        Self {
            period,
            state: State::Observing,
            quiet: period * QUIET,
            silent_since: None,
            trails: BTreeMap::new(),
            earliest_proof: None,
            checking: false,
            acting: None,
            differences_count: true,
            newest_own: None,
            newest_foreign: None,
        }
    }

    /// The current state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The required time without a foreign write.
    pub fn quiet(&self) -> Duration {
        self.quiet
    }

    /// Whether [`Self::start`] was called.
    pub fn has_started(&self) -> bool {
        self.silent_since.is_some()
    }

    /// Starts the silence, after the watch has delivered its first list.
    pub fn start(&mut self, now: Instant) {
        if self.silent_since.is_none() {
            self.silent_since = Some(now);
            self.earliest_proof = Some(now);
        }
    }

    /// Records the time of a manager's last write, from a status.
    pub fn wrote(&mut self, is_own: bool, at: Timestamp) {
        let newest = if is_own { &mut self.newest_own } else { &mut self.newest_foreign };
        *newest = (*newest).max(Some(at));
    }

    /// Records a foreign write. Concertina then writes nothing until the quiet time has passed.
    pub fn foreign_write(&mut self, key: &Key, now: Instant) {
        if let Some((since, proof)) = self.acting.take() {
            let too_early = proof != Proof::HandOver && now.duration_since(since) <= self.period * RELAPSE;
            self.quiet = if too_early {
                (self.quiet * 2).min(self.period * LONGEST_QUIET)
            } else {
                self.period * QUIET
            };
            self.differences_count &= !(too_early && matches!(proof, Proof::Difference(_)));
        }
        let trail = self.trails.entry(key.clone()).or_default();
        *trail = ChangeTracker { last: trail.last.take(), answered: Some(now), ..ChangeTracker::default() };
        self.silent_since = Some(now);
        self.earliest_proof = Some(now);
        self.state = State::Holding;
    }

    /// Takes over from another replica that led until a moment ago. Concertina acts at once if it made the
    /// newest status write in the cluster. This is not the case if that replica was holding, or had never
    /// acted.
    pub fn hand_over(&mut self, now: Instant) -> Option<Activation> {
        let was_acting = self.newest_own.is_some() && self.newest_own > self.newest_foreign;
        (self.state == State::Observing && was_acting).then(|| self.act(Proof::HandOver, now))
    }

    /// Records a sync that wrote nothing.
    pub fn concluded(&mut self, key: &Key, turn: SyncObservation, now: Instant) {
        if self.state == State::Acting {
            return;
        }
        let mut trail = self.trails.remove(key).unwrap_or_default();
        trail.ignored = self.is_ignored(&trail);
        let SyncObservation { spec, found, stored, withheld, untouched } = turn;
        let is_wrong = found != stored || withheld;
        let has_moved = match &trail.last {
            Some((last_spec, last)) => *last != found || *last_spec != spec,
            None => untouched,
        };
        trail.last = Some((spec, found));
        if is_wrong {
            trail.wrong = trail.wrong.or(Some(now));
            if has_moved {
                trail.changed = trail.changed.or(Some(now));
            }
        } else {
            (trail.wrong, trail.changed) = (None, None);
        }
        if let Some((at, _)) = self.proof(key, &trail) {
            self.earliest_proof =
                Some(self.earliest_proof.map_or(at, |earliest_proof| earliest_proof.min(at)));
        }
        self.trails.insert(key.clone(), trail);
    }

    /// Drops a deleted HPA.
    pub fn forget(&mut self, key: &Key) {
        self.trails.remove(key);
    }

    /// The time at which [`Self::tick`] may next have an effect.
    pub fn next(&self) -> Option<Instant> {
        let quiet = self.silent_since? + self.quiet;
        match self.state {
            State::Acting => None,
            State::Holding => Some(quiet),
            State::Observing if self.checking => None,
            State::Observing => self.earliest_proof.map(|at| at.max(quiet)),
        }
    }

    /// Advances the machine to `now`.
    pub fn tick(&mut self, now: Instant) -> Step {
        if self.next().is_none_or(|next| now < next) {
            return Step::Wait;
        }
        if self.state == State::Holding {
            self.state = State::Observing;
            return Step::Quiet;
        }
        let proofs = self.trails.iter().filter_map(|(key, trail)| Some((self.proof(key, trail)?.0, key)));
        match proofs.min() {
            Some((at, key)) if at <= now => {
                let key = key.clone();
                self.checking = true;
                Step::Check(key)
            }
            later => {
                self.earliest_proof = later.map(|(at, _)| at);
                Step::Wait
            }
        }
    }

    /// Reports the end of a check. The caller first reports a foreign write that the check found. A failed
    /// check repeats half a period later.
    pub fn checked(&mut self, key: &Key, success: bool, now: Instant) -> Option<Activation> {
        self.checking = false;
        self.earliest_proof = Some(if success { now } else { now + self.period / 2 });
        let is_quiet = self.silent_since.is_some_and(|since| now >= since + self.quiet);
        if !success || !is_quiet || self.state != State::Observing {
            return None;
        }
        let (at, proof) = self.trails.get(key).and_then(|trail| self.proof(key, trail))?;
        (at <= now).then(|| self.act(proof, now))
    }

    fn act(&mut self, proof: Proof, now: Instant) -> Activation {
        let trails = std::mem::take(&mut self.trails);
        let due = trails.into_iter().filter(|(_, trail)| trail.wrong.is_some()).map(|(key, _)| key).collect();
        self.state = State::Acting;
        self.acting = Some((now, proof.clone()));
        Activation { proof, due }
    }

    /// The time at which the trail of an HPA proves that no other controller acts, unless an event precedes
    /// it.
    fn proof(&self, key: &Key, trail: &ChangeTracker) -> Option<(Instant, Proof)> {
        let silent = self.silent_since.filter(|_| !self.is_ignored(trail))?;
        // A foreign write of any HPA shows an active controller. This controller again gets the full time for
        // every unanswered change.
        let change = trail.changed.map(|changed| {
            // The other controller synced this HPA when it wrote the status, so the time of its next sync is
            // known.
            let last_sync = trail.answered.filter(|at| changed.duration_since(*at) <= self.quiet / 2);
            (last_sync.unwrap_or(changed).max(silent) + self.quiet, Proof::Change(key.clone()))
        });
        let difference = trail
            .wrong
            .filter(|_| self.differences_count)
            .map(|wrong| (wrong.max(silent) + self.period * DIFFERENCE, Proof::Difference(key.clone())));
        change.into_iter().chain(difference).min_by_key(|(at, _)| *at)
    }

    /// Whether a foreign controller is active but ignores this HPA. Its change was unanswered for the whole
    /// quiet time, and another HPA was written after that.
    fn is_ignored(&self, trail: &ChangeTracker) -> bool {
        let silent = self.silent_since;
        trail.ignored || trail.changed.is_some_and(|at| silent.is_some_and(|silent| silent > at + self.quiet))
    }
}

#[cfg(test)]
mod tests;
