//! The state machine of one HPA in scope, which decides when this instance may write the HPA. It has no clock
//! and no client.
//!
//! The built-in controller still acts on the HPAs out of scope, so its silence proves nothing. One of the four proofs
//! in [`Proof`] is sufficient. An unanswered change is the same proof as in
//! [`takeover::machine`](crate::takeover::machine), for the writes of a single HPA.
//!
//! An HPA without a machine is out of scope. [`Charge::step`] takes an [`Input`] and returns an [`Output`] for the
//! driver, if the input causes one.
//!
//! | state | input | condition | next state | output or effect |
//! |---|---|---|---|---|
//! | `Claiming` | `Lead` | after a handover, and this instance made the newest write | `InCharge` | `InCharge` |
//! | `Claiming` | `Lead` | otherwise | `Claiming` | the silence starts |
//! | `Claiming` | `Tick` | guard proven or a write refused, and the silence lasts `SETTLE` | `InCharge` | `InCharge` |
//! | `Claiming` | `ForeignWrite` | – | `Claiming` | the silence restarts |
//! | `InCharge` | `ForeignWrite` | – | `Contested` | `Contested`, the silence restarts |
//! | `InCharge` | `Guard` | broken, proof other than `Unanswered` | `Contested` | `Contested`, the silence restarts |
//! | `Contested` | `ForeignWrite` | – | `Contested` | the silence restarts |
//! | `Contested` | `Tick` | guard proven, quiet time over | `Contested` | `Check` |
//! | `Contested` | `Checked` | success, guard proven, quiet time over | `InCharge` | `InCharge` |
//! | `Contested` | `Tick` | refusal since the last foreign write, silence lasts `SETTLE` | `InCharge` | `InCharge` |
//! | not `InCharge` | `Tick` | a change stayed unanswered | unchanged | `Check` |
//! | not `InCharge` | `Checked` | success, a change stayed unanswered | `InCharge` | `InCharge` |
//! | any | `Concluded`, `Guard`, `Refused`, `Wrote` | otherwise | unchanged | recorded |
//!
//! A standby never leaves `Claiming`, because it receives no `Lead`.
//!
//! A foreign write within `RELAPSE` periods after the start of the charge shows that the proof was wrong, unless the
//! proof was a handover. A refused write then proves the guard only at the end of the quiet time. The state therefore
//! does not change at a high rate. The quiet time itself is constant, because with an effective guard no controller
//! writes the HPA until the leader is in charge again.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::takeover::{SyncObservation, machine as evidence};
use engine::store::Key;

/// The time without a foreign write before this instance writes a guarded HPA, limited to a quarter of a period. In
/// this time, every replica receives the label, and requests of the built-in controller that are in flight end.
const SETTLE: Duration = Duration::from_secs(1);
/// The quiet time after the last foreign write to a contested HPA, in periods.
const QUIET: u32 = 2;
/// A foreign write within this many periods after the start of the charge shows that the start was premature.
const RELAPSE: u32 = 10;

/// The state of an HPA in scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The instance decides but writes nothing, because another controller may still write.
    Claiming,
    /// The instance decides and writes.
    InCharge,
    /// The instance decides but writes nothing, because another controller wrote the HPA, or because the guard broke.
    Contested,
}

impl State {
    /// Returns the name in metrics and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claiming => "claiming",
            Self::InCharge => "in_charge",
            Self::Contested => "contested",
        }
    }
}

/// The state of the guard's objects, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Guard {
    /// No check has finished, or no check is possible.
    #[default]
    Unknown,
    /// The objects refuse the writes of the built-in controller.
    Proven,
    /// The objects do not refuse the writes of the built-in controller.
    Broken,
}

/// The proof that permits this instance to be in charge of an HPA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The guard's objects are valid.
    Guard,
    /// A write of the built-in controller was refused.
    Refused,
    /// Another replica of this instance was in charge until shortly before.
    HandOver,
    /// No controller responded to a change.
    Unanswered,
}

/// An input of the machine.
#[derive(Debug)]
pub enum Input {
    /// This replica is the leader, and the watches have delivered their first lists.
    Lead {
        /// Whether another replica was the leader until shortly before.
        hand_over: bool,
    },
    /// A check of the guard's objects has ended.
    Guard(Guard),
    /// A write of the built-in controller about this HPA was refused.
    Refused,
    /// Another controller wrote the status of this HPA.
    ForeignWrite,
    /// The HPA contains the time of a manager's last status write.
    Wrote {
        /// Whether the manager is this instance.
        is_own: bool,
        /// The time, by the server's clock.
        at: Timestamp,
    },
    /// A sync of this HPA wrote nothing.
    Concluded(SyncObservation),
    /// A check has ended. The driver first reports a foreign write that the check found.
    Checked {
        /// Whether the HPA could be read.
        success: bool,
    },
    /// Time has passed, at least until [`Charge::next`].
    Tick,
}

/// A task for the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// The driver reads the HPA from the API server, not from the watch cache, and reports the result with
    /// [`Input::Checked`].
    Check,
    /// The state is now [`State::InCharge`].
    InCharge {
        /// The proof.
        proof: Proof,
        /// Whether a count is withheld or the status is wrong, so that the HPA syncs at once.
        due: bool,
    },
    /// The state is now [`State::Contested`].
    Contested(Cause),
}

/// The reason why an instance is no longer in charge of an HPA in scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Another controller wrote the HPA.
    ForeignWrite,
    /// The guard's objects no longer refuse the built-in controller's writes.
    Guard,
}

/// The state machine of one HPA.
#[derive(Debug)]
pub struct Charge {
    key: Key,
    period: Duration,
    phase: Phase,
    guard: Guard,
    /// The start of the silence: the time of `Lead`, of the last contest or of the last foreign write. `None` on a
    /// standby.
    silent_since: Option<Instant>,
    /// The time of the first refused write since the last foreign write and the last change of state.
    refused: Option<Instant>,
    has_relapsed: bool,
    /// The check in progress.
    checking: Option<Check>,
    /// The earliest time of the next check.
    next_check: Option<Instant>,
    /// The newest status write by this instance, by the server's clock.
    newest_own: Option<Timestamp>,
    newest_foreign: Option<Timestamp>,
    /// The search for an unanswered change. `None` while in charge and on a standby.
    evidence: Option<Box<evidence::Machine>>,
    is_due: bool,
}

/// A [`State`] with its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Claiming,
    /// The start of the charge, and its proof.
    InCharge(Instant, Proof),
    Contested,
}

/// The purpose of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// The quiet time is over.
    Quiet,
    /// A change stayed unanswered.
    Unanswered,
}

impl Charge {
    /// Creates the machine of an HPA that is new in scope. `period` is `--horizontal-pod-autoscaler-sync-period`.
    pub fn new(key: Key, period: Duration, guard: Guard) -> Self {
        Self {
            key,
            period,
            phase: Phase::Claiming,
            guard,
            silent_since: None,
            refused: None,
            has_relapsed: false,
            checking: None,
            next_check: None,
            newest_own: None,
            newest_foreign: None,
            evidence: None,
            is_due: false,
        }
    }

    /// Handles an input. Returns the task of the driver, if any.
    pub fn step(&mut self, input: Input, now: Instant) -> Option<Output> {
        match input {
            Input::Lead { hand_over } => return self.lead(hand_over, now),
            Input::Guard(guard) => return self.guard(guard, now),
            Input::Refused => {
                self.refused.get_or_insert(now);
            }
            Input::ForeignWrite => return self.foreign_write(now),
            Input::Wrote { is_own, at } => {
                let newest = if is_own { &mut self.newest_own } else { &mut self.newest_foreign };
                *newest = (*newest).max(Some(at));
            }
            Input::Concluded(observation) => {
                if let Some(evidence) = &mut self.evidence {
                    self.is_due |= observation.withheld || observation.found != observation.stored;
                    evidence.step(evidence::Input::Concluded(self.key.clone(), observation), now);
                }
            }
            Input::Checked { success } => return self.checked(success, now),
            Input::Tick => return self.tick(now),
        }
        None
    }

    /// Returns the current state.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Claiming => State::Claiming,
            Phase::InCharge(..) => State::InCharge,
            Phase::Contested => State::Contested,
        }
    }

    /// Returns the time at which [`Input::Tick`] may next have an effect.
    pub fn next(&self) -> Option<Instant> {
        self.silent_since.filter(|_| self.state() != State::InCharge)?;
        let by_guard = self.due().map(|(at, _)| at);
        // While a check is in progress, the search waits for `Checked`.
        let by_evidence = self.evidence.as_ref().filter(|_| self.checking.is_none());
        by_guard.into_iter().chain(by_evidence.and_then(|evidence| evidence.next())).min()
    }

    fn lead(&mut self, hand_over: bool, now: Instant) -> Option<Output> {
        if self.silent_since.is_some() {
            return None;
        }
        self.start_silence(now);
        let was_in_charge = self.newest_own.is_some() && self.newest_own > self.newest_foreign;
        (hand_over && was_in_charge).then(|| self.enter(Proof::HandOver, now))
    }

    fn guard(&mut self, guard: Guard, now: Instant) -> Option<Output> {
        let before = std::mem::replace(&mut self.guard, guard);
        let Phase::InCharge(_, proof) = self.phase else { return None };
        // An unanswered change proves that no other controller is active, with or without a guard.
        if guard != Guard::Broken || before == Guard::Broken || proof == Proof::Unanswered {
            return None;
        }
        self.has_relapsed = false;
        self.contest(now);
        Some(Output::Contested(Cause::Guard))
    }

    fn foreign_write(&mut self, now: Instant) -> Option<Output> {
        self.refused = None;
        if let Phase::InCharge(since, proof) = self.phase {
            self.has_relapsed =
                proof != Proof::HandOver && now.duration_since(since) <= self.period * RELAPSE;
            self.contest(now);
            if let Some(evidence) = &mut self.evidence {
                evidence.step(evidence::Input::ForeignWrite(self.key.clone()), now);
            }
            return Some(Output::Contested(Cause::ForeignWrite));
        }
        if let Some(evidence) = &mut self.evidence {
            self.silent_since = Some(now);
            evidence.step(evidence::Input::ForeignWrite(self.key.clone()), now);
        }
        None
    }

    fn contest(&mut self, now: Instant) {
        self.phase = Phase::Contested;
        self.refused = None;
        self.start_silence(now);
    }

    /// Starts the silence, and a new search for an unanswered change.
    fn start_silence(&mut self, now: Instant) {
        self.silent_since = Some(now);
        let mut evidence = evidence::Machine::new(self.period);
        evidence.step(evidence::Input::Start, now);
        self.evidence = Some(Box::new(evidence));
        (self.checking, self.next_check) = (None, None);
    }

    fn tick(&mut self, now: Instant) -> Option<Output> {
        if self.next().is_none_or(|next| now < next) {
            return None;
        }
        if let Some((_, proof)) = self.due().filter(|(at, _)| *at <= now) {
            if proof == Proof::Guard && self.phase == Phase::Contested {
                self.checking = Some(Check::Quiet);
                return Some(Output::Check);
            }
            return Some(self.enter(proof, now));
        }
        let evidence = self.evidence.as_mut().filter(|_| self.checking.is_none())?;
        // After the quiet time of the search, another tick can complete a proof.
        let mut output = evidence.step(evidence::Input::Tick, now);
        if output == Some(evidence::Output::Quiet) {
            output = evidence.step(evidence::Input::Tick, now);
        }
        match output {
            Some(evidence::Output::Check(_)) => {
                self.checking = Some(Check::Unanswered);
                Some(Output::Check)
            }
            Some(evidence::Output::Act(_)) => Some(self.enter(Proof::Unanswered, now)),
            Some(evidence::Output::Quiet) | None => None,
        }
    }

    fn checked(&mut self, success: bool, now: Instant) -> Option<Output> {
        let check = self.checking.take()?;
        match check {
            Check::Quiet if success => {
                let is_due = self.due().is_some_and(|(at, _)| at <= now);
                is_due.then(|| self.enter(Proof::Guard, now))
            }
            Check::Quiet => {
                self.next_check = Some(now + self.period / 2);
                None
            }
            Check::Unanswered => {
                let input = evidence::Input::Checked { key: self.key.clone(), success };
                let acts = matches!(self.evidence.as_mut()?.step(input, now), Some(evidence::Output::Act(_)));
                acts.then(|| self.enter(Proof::Unanswered, now))
            }
        }
    }

    fn enter(&mut self, proof: Proof, now: Instant) -> Output {
        self.phase = Phase::InCharge(now, proof);
        self.evidence = None;
        (self.checking, self.next_check, self.refused) = (None, None, None);
        Output::InCharge { proof, due: std::mem::take(&mut self.is_due) }
    }

    /// Returns the time at which the guard or a refusal proves that no other controller writes, if no foreign write
    /// happens before.
    fn due(&self) -> Option<(Instant, Proof)> {
        let silent = self.silent_since?;
        let settled = silent + SETTLE.min(self.period / 4);
        let quiet = silent + self.period * QUIET;
        let refused = self.refused.map(|at| {
            let earliest = if self.has_relapsed { quiet } else { settled };
            (at.max(earliest), Proof::Refused)
        });
        let proven = (self.guard == Guard::Proven && self.checking.is_none()).then(|| {
            let at = if self.phase == Phase::Contested { quiet } else { settled };
            (at.max(self.next_check.unwrap_or(at)), Proof::Guard)
        });
        refused.into_iter().chain(proven).min_by_key(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests;
