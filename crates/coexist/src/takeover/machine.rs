//! The takeover state machine, which decides when Concertina may write. It has no clock and no client.
//!
//! A foreign write proves that another controller is active. The absence of foreign writes proves nothing, because the
//! built-in controller writes nothing while nothing changes. An unanswered change proves that no other controller is
//! active. At a change, two consecutive syncs of one HPA observe different counts, metrics or specs, which are the same
//! for every controller. The change is unanswered if no status with the new values is written during the quiet time of
//! at least two periods. Then Concertina acts for all HPAs. The first foreign write stops Concertina at once.
//!
//! [`Machine::step`] takes an [`Input`] and returns an [`Output`] for the driver, if the input causes one. An input that
//! is not in the table changes no state.
//!
//! | state | input | condition | next state | output or effect |
//! |---|---|---|---|---|
//! | `Observing` | `Start` | not repeated | `Observing` | the silence starts |
//! | `Observing` | `Tick` | a proof is due | `Observing` | `Check` of its HPA |
//! | `Observing` | `Checked` | success, quiet time over, proof still due | `Acting` | `Act` |
//! | `Observing` | `Checked` | failure | `Observing` | next check half a period later |
//! | `Observing` | `HandOver` | Concertina made the newest write | `Acting` | `Act` |
//! | `Holding` | `Tick` | quiet time over | `Observing` | `Quiet` |
//! | any | `ForeignWrite` | – | `Holding` | the silence restarts |
//! | not `Acting` | `Concluded` | – | unchanged | the trail of the HPA is updated |
//! | any | `Wrote` | – | unchanged | the newest write times are updated |
//! | any | `Deleted` | – | unchanged | the trail of the HPA is dropped |
//!
//! A foreign write that stops Concertina sets the quiet time. The quiet time doubles, up to `LONGEST_QUIET` periods, if
//! Concertina has acted for at most `RELAPSE` periods, and did not start after a handover. Otherwise the quiet time is
//! reset to `QUIET` periods. A premature start because of a difference disables proofs by differences.
//!
//! Concertina uses the earliest proof of an HPA:
//!
//! - A change is a proof after the quiet time, measured from the later of the change and the start of the silence. A
//!   foreign write of the HPA at most half the quiet time before the change replaces the time of the change.
//! - A difference is a wrong stored status or a withheld count. It is a proof after `DIFFERENCE` periods, measured from
//!   the later of its start and the start of the silence.
//! - An HPA that an active foreign controller ignores proves nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::spec::Spec;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{ObservedState, SyncObservation};
use engine::store::Key;

/// Minimum quiet time, in periods: the required silence, and the time for which a change must stay unanswered.
const QUIET: u32 = 2;
/// A foreign write within this many periods after the start of acting shows that the start was premature.
const RELAPSE: u32 = 10;
/// Maximum quiet time, in periods. Each premature start doubles the quiet time.
const LONGEST_QUIET: u32 = 16;
/// The number of periods after which a wrong stored status is a proof. It is higher than for a change, because
/// different flags of the other controller can also cause a wrong status.
const DIFFERENCE: u32 = 20;

/// Whether Concertina writes, or waits for another controller.
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

impl State {
    /// Returns each state with its name in metrics, and whether it is this one.
    pub fn labels(self) -> [(&'static str, bool); 3] {
        let states = [(Self::Observing, "observing"), (Self::Acting, "acting"), (Self::Holding, "holding")];
        states.map(|(state, label)| (label, state == self))
    }
}

/// The proof that permits Concertina to act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// No controller responded to a change of this HPA.
    Change(Key),
    /// The status of this HPA has been wrong for a long time.
    Difference(Key),
    /// The previous leader, another replica of Concertina, was acting.
    HandOver,
}

/// An input of the machine.
#[derive(Debug)]
pub enum Input {
    /// The watch has delivered its first list.
    Start,
    /// Time has passed, at least until [`Machine::next`].
    Tick,
    /// An HPA contains the time of a manager's last status write.
    Wrote {
        /// Whether the manager is Concertina.
        is_own: bool,
        /// The time, by the server's clock.
        at: Timestamp,
    },
    /// Another controller wrote the status of this HPA.
    ForeignWrite(Key),
    /// Another replica was the leader until shortly before.
    HandOver,
    /// A sync of this HPA wrote nothing.
    Concluded(Key, SyncObservation),
    /// A check has ended. The driver first reports a foreign write that the check found.
    Checked {
        /// The checked HPA.
        key: Key,
        /// Whether the HPA could be read.
        success: bool,
    },
    /// This HPA was deleted.
    Deleted(Key),
}

/// A task for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The quiet time has passed: the state is now [`State::Observing`].
    Quiet,
    /// All other conditions for acting are met. The driver reads this HPA from the API server, not from the watch
    /// cache, and reports the result with [`Input::Checked`].
    Check(Key),
    /// The state is now [`State::Acting`].
    Act(Activation),
}

/// The proof that permits Concertina to act, and the HPAs to sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activation {
    /// The proof.
    pub proof: Proof,
    /// The HPAs with a withheld count or a wrong status, which sync at once.
    pub due: Vec<Key>,
}

/// The state machine of the takeover, for all HPAs.
#[derive(Debug, Clone)]
pub struct Machine {
    period: Duration,
    phase: StateData,
    quiet: Duration,
    /// The time of the last foreign write, or of [`Input::Start`] if no write followed.
    silent_since: Option<Instant>,
    trails: BTreeMap<Key, ChangeTracker>,
    proofs: Proofs,
    differences_count: bool,
    /// The newest status write by Concertina in the cluster, by the server's clock.
    newest_own: Option<Timestamp>,
    newest_foreign: Option<Timestamp>,
}

/// A [`State`] with its data.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StateData {
    Observing,
    /// The start of acting, and its proof.
    Acting(Instant, Proof),
    Holding,
}

/// The search for a proof.
#[derive(Debug, Clone, Copy)]
enum Proofs {
    /// No HPA is a candidate for a proof.
    None,
    /// No HPA provides a proof before this time.
    NotBefore(Instant),
    /// The driver checks an HPA.
    Checking,
}

/// The observations of one HPA while Concertina does not act.
#[derive(Debug, Clone, Default)]
struct ChangeTracker {
    last: Option<(Arc<Spec>, ObservedState)>,
    stored: StoredStatus,
    /// The time of the last foreign write.
    answered: Option<Instant>,
    /// Whether an active foreign controller ignores this HPA.
    ignored: bool,
}

/// The stored status of an HPA, compared with the state that syncs found.
#[derive(Debug, Clone, Copy, Default)]
enum StoredStatus {
    /// The status contains the state that the last sync found.
    #[default]
    Right,
    /// The status is wrong or a count is withheld, since this time.
    Wrong(Instant),
    /// The status is wrong or a count is withheld since `wrong`, and the state changed at `change`.
    Unanswered { wrong: Instant, change: Instant },
}

impl StoredStatus {
    fn after(self, has_moved: bool, now: Instant) -> Self {
        match self {
            Self::Right if has_moved => Self::Unanswered { wrong: now, change: now },
            Self::Right => Self::Wrong(now),
            Self::Wrong(wrong) if has_moved => Self::Unanswered { wrong, change: now },
            Self::Wrong(_) | Self::Unanswered { .. } => self,
        }
    }

    fn wrong(self) -> Option<Instant> {
        match self {
            Self::Right => None,
            Self::Wrong(wrong) | Self::Unanswered { wrong, .. } => Some(wrong),
        }
    }

    fn change(self) -> Option<Instant> {
        match self {
            Self::Right | Self::Wrong(_) => None,
            Self::Unanswered { change, .. } => Some(change),
        }
    }
}

impl Machine {
    /// Creates a machine without observations. `period` is `--horizontal-pod-autoscaler-sync-period`.
    pub fn new(period: Duration) -> Self {
        Self {
            period,
            phase: StateData::Observing,
            quiet: period * QUIET,
            silent_since: None,
            trails: BTreeMap::new(),
            proofs: Proofs::None,
            differences_count: true,
            newest_own: None,
            newest_foreign: None,
        }
    }

    /// Handles an input. Returns the task of the driver, if any.
    pub fn step(&mut self, input: Input, now: Instant) -> Option<Output> {
        match input {
            Input::Start => {
                if self.silent_since.is_none() {
                    (self.silent_since, self.proofs) = (Some(now), Proofs::NotBefore(now));
                }
            }
            Input::Tick => return self.tick(now),
            Input::Wrote { is_own, at } => {
                let newest = if is_own { &mut self.newest_own } else { &mut self.newest_foreign };
                *newest = (*newest).max(Some(at));
            }
            Input::ForeignWrite(key) => self.foreign_write(key, now),
            Input::HandOver => return self.hand_over(now),
            Input::Concluded(key, observation) => self.concluded(key, observation, now),
            Input::Checked { key, success } => return self.checked(&key, success, now),
            Input::Deleted(key) => {
                self.trails.remove(&key);
            }
        }
        None
    }

    /// Returns the current state.
    pub fn state(&self) -> State {
        match self.phase {
            StateData::Observing => State::Observing,
            StateData::Acting(..) => State::Acting,
            StateData::Holding => State::Holding,
        }
    }

    /// Returns the required time without a foreign write.
    pub fn quiet(&self) -> Duration {
        self.quiet
    }

    /// Returns whether [`Input::Start`] or a foreign write has started the silence.
    pub fn has_started(&self) -> bool {
        self.silent_since.is_some()
    }

    /// Returns the time at which [`Input::Tick`] may next have an effect.
    pub fn next(&self) -> Option<Instant> {
        let quiet = self.silent_since? + self.quiet;
        match (&self.phase, self.proofs) {
            (StateData::Holding, _) => Some(quiet),
            (StateData::Observing, Proofs::NotBefore(at)) => Some(at.max(quiet)),
            (StateData::Observing, Proofs::None | Proofs::Checking) | (StateData::Acting(..), _) => None,
        }
    }

    fn foreign_write(&mut self, key: Key, now: Instant) {
        if let StateData::Acting(since, proof) = std::mem::replace(&mut self.phase, StateData::Holding) {
            let too_early = proof != Proof::HandOver && now.duration_since(since) <= self.period * RELAPSE;
            self.quiet = if too_early {
                (self.quiet * 2).min(self.period * LONGEST_QUIET)
            } else {
                self.period * QUIET
            };
            self.differences_count &= !(too_early && matches!(proof, Proof::Difference(_)));
        }
        let trail = self.trails.entry(key).or_default();
        *trail = ChangeTracker { last: trail.last.take(), answered: Some(now), ..ChangeTracker::default() };
        self.silent_since = Some(now);
        if !matches!(self.proofs, Proofs::Checking) {
            self.proofs = Proofs::NotBefore(now);
        }
    }

    /// Acts if Concertina made the newest status write in the cluster. The newest write is foreign if the previous
    /// leader was holding or had never acted.
    fn hand_over(&mut self, now: Instant) -> Option<Output> {
        let was_acting = self.newest_own.is_some() && self.newest_own > self.newest_foreign;
        (self.phase == StateData::Observing && was_acting).then(|| self.act(Proof::HandOver, now))
    }

    fn concluded(&mut self, key: Key, observation: SyncObservation, now: Instant) {
        if self.state() == State::Acting {
            return;
        }
        let mut trail = self.trails.remove(&key).unwrap_or_default();
        trail.ignored = self.is_ignored(&trail);
        let SyncObservation { spec, found, stored, withheld, untouched } = observation;
        let is_wrong = found != stored || withheld;
        let has_moved = match &trail.last {
            Some((last_spec, last)) => *last != found || *last_spec != spec,
            None => untouched,
        };
        trail.last = Some((spec, found));
        trail.stored = if is_wrong { trail.stored.after(has_moved, now) } else { StoredStatus::Right };
        if let Some((at, _)) = self.proof(&key, &trail) {
            self.proofs = match self.proofs {
                Proofs::None => Proofs::NotBefore(at),
                Proofs::NotBefore(earliest) => Proofs::NotBefore(earliest.min(at)),
                Proofs::Checking => Proofs::Checking,
            };
        }
        self.trails.insert(key, trail);
    }

    fn tick(&mut self, now: Instant) -> Option<Output> {
        if self.next().is_none_or(|next| now < next) {
            return None;
        }
        if self.phase == StateData::Holding {
            self.phase = StateData::Observing;
            return Some(Output::Quiet);
        }
        let proofs = self.trails.iter().filter_map(|(key, trail)| Some((self.proof(key, trail)?.0, key)));
        match proofs.min() {
            Some((at, key)) if at <= now => {
                let key = key.clone();
                self.proofs = Proofs::Checking;
                Some(Output::Check(key))
            }
            later => {
                self.proofs = later.map_or(Proofs::None, |(at, _)| Proofs::NotBefore(at));
                None
            }
        }
    }

    fn checked(&mut self, key: &Key, success: bool, now: Instant) -> Option<Output> {
        self.proofs = Proofs::NotBefore(if success { now } else { now + self.period / 2 });
        let is_quiet = self.silent_since.is_some_and(|since| now >= since + self.quiet);
        if !success || !is_quiet || self.phase != StateData::Observing {
            return None;
        }
        let (at, proof) = self.trails.get(key).and_then(|trail| self.proof(key, trail))?;
        (at <= now).then(|| self.act(proof, now))
    }

    fn act(&mut self, proof: Proof, now: Instant) -> Output {
        let trails = std::mem::take(&mut self.trails);
        let wrong = trails.into_iter().filter(|(_, trail)| trail.stored.wrong().is_some());
        let due = wrong.map(|(key, _)| key).collect();
        self.phase = StateData::Acting(now, proof.clone());
        Output::Act(Activation { proof, due })
    }

    /// Returns the time at which the trail of an HPA proves that no other controller acts, unless an event precedes it.
    fn proof(&self, key: &Key, trail: &ChangeTracker) -> Option<(Instant, Proof)> {
        let silent = self.silent_since.filter(|_| !self.is_ignored(trail))?;
        // A foreign write of any HPA proves an active controller, so the quiet time of every unanswered change
        // restarts.
        let change = trail.stored.change().map(|changed| {
            // The other controller synced this HPA when it wrote the status, so the time of its next sync is known.
            let last_sync = trail.answered.filter(|at| changed.duration_since(*at) <= self.quiet / 2);
            (last_sync.unwrap_or(changed).max(silent) + self.quiet, Proof::Change(key.clone()))
        });
        let difference = trail
            .stored
            .wrong()
            .filter(|_| self.differences_count)
            .map(|wrong| (wrong.max(silent) + self.period * DIFFERENCE, Proof::Difference(key.clone())));
        change.into_iter().chain(difference).min_by_key(|(at, _)| *at)
    }

    /// Returns whether a foreign controller is active but ignores this HPA. The change of the HPA was then unanswered
    /// for the whole quiet time, and another HPA was written afterwards.
    fn is_ignored(&self, trail: &ChangeTracker) -> bool {
        let silent = self.silent_since;
        trail.ignored
            || trail.stored.change().is_some_and(|at| silent.is_some_and(|silent| silent > at + self.quiet))
    }
}

#[cfg(test)]
mod tests;
