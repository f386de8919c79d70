//! When to write and when to hold back: the state machine of a take-over, without a clock or a client of its own.
//!
//! Another controller is known by its writes. That there is none is harder to know: the built-in loop writes nothing
//! while nothing changes, so silence alone proves nothing. What proves it is a change that a working controller would
//! have had to answer and that nobody answered: two conclusions in a row about one HPA differ in what every
//! controller sees alike (the count, the metrics, the spec), the status that is stored tells neither, and two periods
//! later it still does not. Then this one acts, for all HPAs; and the first foreign write ends it at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::spec::Spec;
use autoscaling::status::MetricStatus;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::store::Key;

/// So many periods without a foreign write are asked for, and so many have to pass after a change.
const QUIET: u32 = 2;
/// A foreign write within so many periods after this one began to act shows that it began too early.
const RELAPSE: u32 = 10;
/// Each time it began too early the quiet that is asked for doubles, up to so many periods.
const LONGEST_QUIET: u32 = 16;
/// A difference to the stored status that did not arise before our eyes proves less than a change: it may come from
/// other flags. Nobody has cared about it after so many periods.
const DIFFERENCE: u32 = 20;

/// What is done about other controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing is written: no foreign write was seen, but nothing yet proves that there will be none.
    Observing,
    /// This controller writes.
    Acting,
    /// Nothing is written: a foreign write was seen a short time ago.
    Holding,
}

/// Why this controller acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// A change of this HPA that nobody answered.
    Change(Key),
    /// The status of this HPA has been wrong for a long time.
    Difference(Key),
    /// Another replica of this controller acted until a moment ago.
    HandOver,
}

/// What every controller of an HPA sees alike, whatever it remembers and however it is configured.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// `spec.replicas` of the target.
    pub replicas: i32,
    /// What the metrics show.
    pub metrics: Vec<MetricStatus>,
}

/// The end of a sync, as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// The spec that was followed.
    pub spec: Arc<Spec>,
    /// What was found.
    pub found: Facts,
    /// What the stored status says.
    pub stored: Facts,
    /// Another count was wanted, and not written.
    pub withheld: bool,
    /// Nobody has ever written a status.
    pub untouched: bool,
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing before [`Machine::next`].
    Wait,
    /// The quiet that was asked for has passed: no more holding, but observing.
    Quiet,
    /// Everything speaks for acting. Look at this HPA itself, past the watch, and report with [`Machine::looked`].
    Look(Key),
}

/// What begins when this controller begins to act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// Why.
    pub proof: Proof,
    /// HPAs for which something was withheld.
    pub due: Vec<Key>,
}

/// The state machine.
#[derive(Debug, Clone)]
pub struct Machine {
    period: Duration,
    state: State,
    quiet: Duration,
    /// The last foreign write, or when watching began.
    silent_since: Option<Instant>,
    trails: BTreeMap<Key, Trail>,
    /// Before this instant no proof can be complete.
    look_at: Option<Instant>,
    looking: bool,
    /// Since when it acts, and whether that may have been too early.
    acting: Option<(Instant, Proof)>,
    differences_count: bool,
    /// The newest writes of any status, by the server's clock.
    newest_own: Option<Timestamp>,
    newest_foreign: Option<Timestamp>,
}

/// What is known of one HPA while this controller does not act.
#[derive(Debug, Clone, Default)]
struct Trail {
    last: Option<(Arc<Spec>, Facts)>,
    /// Since when a change stands that the stored status does not tell.
    changed: Option<Instant>,
    /// Since when the stored status is wrong, or a count is withheld.
    wrong: Option<Instant>,
    /// The last foreign write of it.
    answered: Option<Instant>,
    /// A controller that works elsewhere does not answer for this one.
    deaf: bool,
}

impl Machine {
    /// A machine that has seen nothing. `period`: `--horizontal-pod-autoscaler-sync-period`.
    pub fn new(period: Duration) -> Self {
        Self {
            period,
            state: State::Observing,
            quiet: period * QUIET,
            silent_since: None,
            trails: BTreeMap::new(),
            look_at: None,
            looking: false,
            acting: None,
            differences_count: true,
            newest_own: None,
            newest_foreign: None,
        }
    }

    /// What is done now.
    pub fn state(&self) -> State {
        self.state
    }

    /// How long no foreign write may have been seen.
    pub fn quiet(&self) -> Duration {
        self.quiet
    }

    /// Whether the watch has shown everything once.
    pub fn has_begun(&self) -> bool {
        self.silent_since.is_some()
    }

    /// The watch has shown everything.
    pub fn begin(&mut self, now: Instant) {
        if self.silent_since.is_none() {
            self.silent_since = Some(now);
            self.look_at = Some(now);
        }
    }

    /// A status shows this as the last write of its manager.
    pub fn wrote(&mut self, is_own: bool, at: Timestamp) {
        let newest = if is_own { &mut self.newest_own } else { &mut self.newest_foreign };
        *newest = (*newest).max(Some(at));
    }

    /// A foreign write of an HPA was seen.
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
        *trail = Trail { last: trail.last.take(), answered: Some(now), ..Trail::default() };
        self.silent_since = Some(now);
        self.look_at = Some(now);
        self.state = State::Holding;
    }

    /// This replica leads, after another that led until a moment ago. It goes on where that one was: acting if the last
    /// write in the whole cluster is of this controller, which it is not if that one was holding, or never came to act.
    pub fn hand_over(&mut self, now: Instant) -> Option<Begun> {
        let was_acting = self.newest_own.is_some() && self.newest_own > self.newest_foreign;
        (self.state == State::Observing && was_acting).then(|| self.act(Proof::HandOver, now))
    }

    /// A sync was concluded without anything being written.
    pub fn concluded(&mut self, key: &Key, turn: Turn, now: Instant) {
        if self.state == State::Acting {
            return;
        }
        let mut trail = self.trails.remove(key).unwrap_or_default();
        trail.deaf = self.is_deaf(&trail);
        let Turn { spec, found, stored, withheld, untouched } = turn;
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
            self.look_at = Some(self.look_at.map_or(at, |look_at| look_at.min(at)));
        }
        self.trails.insert(key.clone(), trail);
    }

    /// An HPA is gone.
    pub fn forget(&mut self, key: &Key) {
        self.trails.remove(key);
    }

    /// When [`Self::tick`] has something to do, as far as is known.
    pub fn next(&self) -> Option<Instant> {
        let quiet = self.silent_since? + self.quiet;
        match self.state {
            State::Acting => None,
            State::Holding => Some(quiet),
            State::Observing if self.looking => None,
            State::Observing => self.look_at.map(|at| at.max(quiet)),
        }
    }

    /// Moves on.
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
                self.looking = true;
                Step::Look(key)
            }
            later => {
                self.look_at = later.map(|(at, _)| at);
                Step::Wait
            }
        }
    }

    /// The look at an HPA ended; a foreign write that it showed was reported before. Without success it is tried again
    /// half a period later.
    pub fn looked(&mut self, key: &Key, success: bool, now: Instant) -> Option<Begun> {
        self.looking = false;
        self.look_at = Some(if success { now } else { now + self.period / 2 });
        let is_quiet = self.silent_since.is_some_and(|since| now >= since + self.quiet);
        if !success || !is_quiet || self.state != State::Observing {
            return None;
        }
        let (at, proof) = self.trails.get(key).and_then(|trail| self.proof(key, trail))?;
        (at <= now).then(|| self.act(proof, now))
    }

    fn act(&mut self, proof: Proof, now: Instant) -> Begun {
        let trails = std::mem::take(&mut self.trails);
        let due = trails.into_iter().filter(|(_, trail)| trail.wrong.is_some()).map(|(key, _)| key).collect();
        self.state = State::Acting;
        self.acting = Some((now, proof.clone()));
        Begun { proof, due }
    }

    /// When what is known of an HPA proves that nobody else acts, unless something happens before.
    fn proof(&self, key: &Key, trail: &Trail) -> Option<(Instant, Proof)> {
        let silent = self.silent_since.filter(|_| !self.is_deaf(trail))?;
        // A foreign write of any HPA shows that somebody is there: whatever is to be answered gets its time anew.
        let change = trail.changed.map(|changed| {
            // The other controller was last at this HPA when it wrote it, so its next turn is known.
            let turns = trail.answered.filter(|at| changed.duration_since(*at) <= self.quiet / 2);
            (turns.unwrap_or(changed).max(silent) + self.quiet, Proof::Change(key.clone()))
        });
        let difference = trail
            .wrong
            .filter(|_| self.differences_count)
            .map(|wrong| (wrong.max(silent) + self.period * DIFFERENCE, Proof::Difference(key.clone())));
        change.into_iter().chain(difference).min_by_key(|(at, _)| *at)
    }

    /// Whether a foreign controller is at work, but not on this HPA: it was not answered for the whole quiet, and yet
    /// another one was written after that.
    fn is_deaf(&self, trail: &Trail) -> bool {
        let silent = self.silent_since;
        trail.deaf || trail.changed.is_some_and(|at| silent.is_some_and(|silent| silent > at + self.quiet))
    }
}

#[cfg(test)]
mod tests;
