//! Compares Concertina's decisions for one HPA with the rescales of another controller, without a clock and without
//! I/O.
//!
//! [`Machine::step`] takes an [`Input`] and returns the outcome of a comparison, if the input completes one. In the
//! table, "same" means that the current count and the direction of Concertina's decision equal those of the pending
//! rescale. "Other" means that one of them differs.
//!
//! | state | input | condition | next state | outcome |
//! |---|---|---|---|---|
//! | any | `Decided` | no count, or the current count stays | `Agreed` | none |
//! | `Agreed` | `Decided` | a rescale | `Pending` | none |
//! | `Pending`, `Reported` | `Decided` | other | `Pending` | none |
//! | `Pending` | `Decided` | same, younger than its patience | `Pending` | none |
//! | `Pending` | `Decided` | same, otherwise | `Reported` | by the table of missing rescales |
//! | `Reported` | `Decided` | same | `Reported` | none |
//! | any | `Rescaled` | – | `Agreed` | by the table of rescales |
//! | any | other inputs | – | unchanged | none |
//!
//! The patience is two periods if the other controller wrote the status after the start of the pending rescale, or at
//! most 1/20 of a period before. Otherwise the patience is four periods.
//!
//! The verdict about a missing rescale is in the first row that applies:
//!
//! | condition | verdict |
//! |---|---|
//! | no such status write, and no foreign write of any HPA since the start | `Unknown`, `NoSign` |
//! | the other controller may have a longer history than this process | `Unknown`, `WarmUp` |
//! | metrics were not observed within the memory of a decision | `Unknown`, `MetricsMoved` |
//! | none of the above | `OnlyConcertina` |
//!
//! The verdict about a rescale by the other controller is in the first row that applies:
//!
//! | condition | verdict |
//! |---|---|
//! | a decision of Concertina, at most 1¼ periods old and from the same count, has the same result | `Same` |
//! | a replay has the same result | `Same` |
//! | metrics were not observed, and the result is between Concertina's counts | `Same` |
//! | the rescale was observed more than two periods late | `Unknown`, `SeenLate` |
//! | Concertina has no count | `Unknown`, `Undecided` |
//! | the other controller may have a longer history than this process | `Unknown`, `WarmUp` |
//! | the spec changed at most one period ago | `Unknown`, `SpecChanged` |
//! | metrics were not observed, now or within the memory of a decision | `Unknown`, `MetricsMoved` |
//! | all counts of Concertina equal the current count | `OnlyBuiltin` |
//! | none of the above | `Different` |
//!
//! "Metrics were not observed" means that the metrics in the other controller's status equal none of Concertina's
//! readings. In addition, Concertina's two readings around the rescale must differ, or the first of them must be
//! missing.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use super::wire::{InconclusiveReason, Outcome, OwnSide, Verdict};

/// Maximum number of decisions that are kept. They cover two periods, unless many status changes trigger syncs.
const DECISIONS: usize = 16;
/// The divisor of the period. Syncs of both controllers within this fraction of a period read the same metrics.
pub(super) const JUST_BEFORE: i32 = 20;
/// The number of periods until a pending rescale is reported, if the other controller wrote the status just before its
/// start or later.
const PATIENCE: i32 = 2;
/// The number of periods until any other pending rescale is reported.
const LONG_PATIENCE: i32 = 4;

/// The comparison of one HPA.
#[derive(Debug, Default)]
pub(super) struct Machine {
    state: State,
    coverage: Coverage,
    /// Concertina's last decisions, oldest first.
    own: VecDeque<OwnSide>,
    /// The time of the last observed change of the status.
    foreign_write: Option<Timestamp>,
    /// The time of the last observed change of the spec.
    spec_change: Option<Timestamp>,
    /// The last time at which the other controller read metrics that Concertina did not. The histories have differed
    /// since then.
    metrics_gap: Option<Timestamp>,
}

/// The state of the comparison.
#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// The other controller has made every rescale that Concertina proposes.
    #[default]
    Agreed,
    /// Concertina proposes a rescale that the other controller has not made yet.
    Pending(PendingRescale),
    /// The pending rescale was reported.
    Reported(PendingRescale),
}

/// A rescale that Concertina decided and the other controller did not make.
#[derive(Debug, Clone, Copy)]
struct PendingRescale {
    since: Timestamp,
    from: i32,
    up: bool,
}

/// The part of the HPA's past that this process has observed. Another controller may have observed more.
#[derive(Debug, Clone, Copy, Default)]
enum Coverage {
    /// Nothing: Concertina has not decided yet.
    #[default]
    None,
    /// Everything since Concertina's first decision.
    Since(Timestamp),
    /// Everything: no controller had decided before the first observation.
    Complete,
}

/// An input of the comparison.
#[derive(Debug)]
pub(super) enum Input<'a> {
    /// The HPA has no status, so no controller has decided for it.
    New,
    /// The other controller wrote the status.
    StatusWritten(Timestamp),
    /// A client changed the spec.
    SpecChanged(Timestamp),
    /// The other controller read metrics that Concertina did not.
    MetricsGap(Timestamp),
    /// Concertina decided, without a rescale to compare with.
    Decided {
        /// The decision.
        own: OwnSide,
        /// The time span of the history on which a decision for this spec can depend.
        memory: SignedDuration,
        /// The time of the last observed write by the other controller, of any HPA.
        last_sign: Option<Timestamp>,
    },
    /// The other controller rescaled.
    Rescaled(Comparison<'a>),
}

/// A rescale by the other controller, and Concertina's decision in its place.
#[derive(Debug)]
pub(super) struct Comparison<'a> {
    pub(super) from: i32,
    pub(super) to: i32,
    /// The time of the observation of the rescale.
    pub(super) observed: Timestamp,
    /// The longer of the delays from the rescale to its observation and from the observation to the sync.
    pub(super) late: SignedDuration,
    /// Concertina's decision in place of the rescale.
    pub(super) own: &'a OwnSide,
    /// The counts of replays from earlier readings, and at other instants of the period.
    pub(super) replays: &'a [i32],
    /// Whether the metrics in the other controller's status equal one of Concertina's readings.
    pub(super) same_metrics: bool,
    /// Whether Concertina's two readings around the rescale differ, or the first of them is missing.
    pub(super) moved: bool,
    /// The time span of the history on which a decision for this spec can depend.
    pub(super) memory: SignedDuration,
}

impl Machine {
    /// Handles an input. Returns the outcome of a comparison, if the input completes one.
    pub(super) fn step(&mut self, input: Input<'_>, period: SignedDuration) -> Option<Outcome> {
        match input {
            Input::New => self.coverage = Coverage::Complete,
            Input::StatusWritten(at) => self.foreign_write = Some(at),
            Input::SpecChanged(at) => self.spec_change = Some(at),
            Input::MetricsGap(at) => self.metrics_gap = Some(at),
            Input::Decided { own, memory, last_sign } => {
                let outcome = self.decided(&own, period, memory, last_sign);
                self.keep(own);
                return outcome;
            }
            Input::Rescaled(case) => {
                let outcome = self.compare(&case, period);
                self.state = State::Agreed;
                if case.lacks_metrics() {
                    self.metrics_gap = Some(case.observed);
                }
                self.keep(case.own.clone());
                return Some(outcome);
            }
        }
        None
    }

    /// Returns whether the other controller wrote the status within a twentieth of a period before `at`, or later.
    pub(super) fn wrote_just_before(&self, at: Timestamp, period: SignedDuration) -> bool {
        self.foreign_write.is_some_and(|write| at.duration_since(write) <= period / JUST_BEFORE)
    }

    /// Returns the time of Concertina's last decision.
    pub(super) fn last_at(&self) -> Option<Timestamp> {
        self.own.back().map(|own| own.at)
    }

    fn decided(
        &mut self,
        own: &OwnSide,
        period: SignedDuration,
        memory: SignedDuration,
        last_sign: Option<Timestamp>,
    ) -> Option<Outcome> {
        self.state = self.state.after(own);
        let State::Pending(pending) = self.state else { return None };
        // A status written just before the start of the pending rescale shows a sync with the same metrics.
        let synced = self.wrote_just_before(pending.since, period);
        let patience = if synced { PATIENCE } else { LONG_PATIENCE };
        if own.at.duration_since(pending.since) < period.saturating_mul(patience) {
            return None;
        }
        self.state = State::Reported(pending);
        let doubt = if !synced && last_sign.is_none_or(|sign| sign <= pending.since) {
            Some(InconclusiveReason::NoSign)
        } else if self.is_warming_up(own.at, memory) {
            Some(InconclusiveReason::WarmUp)
        } else if self.has_metrics_gap(own.at, memory) {
            Some(InconclusiveReason::MetricsMoved)
        } else {
            None
        };
        Some(Outcome::new(Verdict::OnlyConcertina, doubt, own))
    }

    fn compare(&self, case: &Comparison<'_>, period: SignedDuration) -> Outcome {
        let near = period.saturating_mul(5) / 4;
        let is_near = |own: &&OwnSide| own.from == case.from && case.observed.duration_since(own.at) <= near;
        let recent: Vec<&OwnSide> = self.own.iter().filter(is_near).chain([case.own]).collect();
        if let Some(own) = recent.iter().rev().find(|own| own.to == Some(case.to)) {
            return Outcome::new(Verdict::Same, None, own);
        }
        let counts: Vec<i32> =
            recent.iter().filter_map(|own| own.to).chain(case.replays.iter().copied()).collect();
        let is_between = counts.iter().min().is_some_and(|least| *least <= case.to)
            && counts.iter().max().is_some_and(|most| case.to <= *most);
        if counts.contains(&case.to) || case.lacks_metrics() && is_between {
            return Outcome::new(Verdict::Same, None, case.own);
        }
        let doubt = self.doubt(case, period);
        let keeps = counts.iter().all(|count| *count == case.from);
        Outcome::new(if keeps { Verdict::OnlyBuiltin } else { Verdict::Different }, doubt, case.own)
    }

    /// Returns the reason why a rescale to another count is not a difference.
    fn doubt(&self, case: &Comparison<'_>, period: SignedDuration) -> Option<InconclusiveReason> {
        let is_new_spec =
            self.spec_change.is_some_and(|change| case.observed.duration_since(change) <= period);
        if case.late > period.saturating_mul(2) {
            Some(InconclusiveReason::SeenLate)
        } else if case.own.to.is_none() {
            Some(InconclusiveReason::Undecided)
        } else if self.is_warming_up(case.observed, case.memory) {
            Some(InconclusiveReason::WarmUp)
        } else if is_new_spec {
            Some(InconclusiveReason::SpecChanged)
        } else if case.lacks_metrics() || self.has_metrics_gap(case.observed, case.memory) {
            Some(InconclusiveReason::MetricsMoved)
        } else {
            None
        }
    }

    /// Returns whether the other controller may still use metrics that Concertina did not read.
    fn has_metrics_gap(&self, at: Timestamp, memory: SignedDuration) -> bool {
        self.metrics_gap.is_some_and(|gap| at.duration_since(gap) <= memory)
    }

    /// Returns whether the other controller may have a longer history than this process.
    fn is_warming_up(&self, at: Timestamp, memory: SignedDuration) -> bool {
        match self.coverage {
            Coverage::None => true,
            Coverage::Since(first) => at.duration_since(first) <= memory,
            Coverage::Complete => false,
        }
    }

    fn keep(&mut self, own: OwnSide) {
        if matches!(self.coverage, Coverage::None) {
            self.coverage = Coverage::Since(own.at);
        }
        if self.own.len() >= DECISIONS {
            self.own.pop_front();
        }
        self.own.push_back(own);
    }
}

impl State {
    /// Returns the state after a decision without a rescale by the other controller.
    fn after(self, own: &OwnSide) -> Self {
        let Some(to) = own.to.filter(|to| *to != own.from) else { return Self::Agreed };
        let up = to > own.from;
        match self {
            Self::Pending(pending) | Self::Reported(pending)
                if pending.from == own.from && pending.up == up =>
            {
                self
            }
            _ => Self::Pending(PendingRescale { since: own.at, from: own.from, up }),
        }
    }
}

impl Comparison<'_> {
    /// Returns whether the other controller read metrics that Concertina did not.
    fn lacks_metrics(&self) -> bool {
        !self.same_metrics && self.moved
    }
}

impl Outcome {
    /// Creates the outcome of a comparison with a decision. A doubt replaces the verdict by [`Verdict::Unknown`].
    fn new(verdict: Verdict, doubt: Option<InconclusiveReason>, own: &OwnSide) -> Self {
        let verdict = if doubt.is_some() { Verdict::Unknown } else { verdict };
        Self { verdict, doubt, ours: own.clone() }
    }
}
