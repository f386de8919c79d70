//! Compares the decisions for one HPA with the rescales of another controller. No clock, no I/O.
//!
//! When the other controller rescaled (`rescaled`), the first row that applies decides:
//!
//! | condition | verdict |
//! |---|---|
//! | one of our decisions, made at most 1¼ periods ago from the same count, has the same target | `Same` |
//! | a replay has the same target | `Same` |
//! | metrics were not observed, and the target lies between our counts | `Same` |
//! | the rescale was observed more than two periods late | `Unknown`, `SeenLate` |
//! | Concertina has no count | `Unknown`, `Undecided` |
//! | the other controller may remember more than this process | `Unknown`, `WarmUp` |
//! | the spec changed at most one period ago | `Unknown`, `SpecChanged` |
//! | metrics were not observed, now or within the memory of a decision | `Unknown`, `MetricsMoved` |
//! | all our counts keep the current count | `OnlyBuiltin` |
//! | none of the above | `Different` |
//!
//! "Metrics were not observed" has two conditions: the metrics in the other controller's status equal none of
//! our readings, and our two readings around the rescale differ.
//!
//! When Concertina decided without a rescale by the other controller (`decided`), the first row that applies
//! decides:
//!
//! | condition | verdict | pending rescale |
//! |---|---|---|
//! | no count, or the current count stays | none | dropped |
//! | current count or direction differ from the pending rescale | none | starts now |
//! | the pending rescale was reported before | none | stays |
//! | it is younger than its patience | none | stays |
//! | no foreign write next to it, and none of any HPA since | `Unknown`, `NoSign` | reported |
//! | the other controller may remember more than this process | `Unknown`, `WarmUp` | reported |
//! | the other controller saw metrics that Concertina did not | `Unknown`, `MetricsMoved` | reported |
//! | none of the above | `OnlyOurs` | reported |
//!
//! The patience is two periods if the other controller wrote the status at most 1/20 of a period before the
//! pending rescale, or later. Otherwise the patience is four periods.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use super::wire::{InconclusiveReason, Outcome, OwnSide, Verdict};

/// Maximum number of our own decisions. Two periods fit, unless syncs come as fast as statuses change.
const DECISIONS: usize = 16;
/// Divisor of the period. Syncs less than a twentieth of a period apart read the same metrics.
pub(super) const JUST_BEFORE: i32 = 20;
/// Number of periods before a pending rescale is reported, if the other controller synced next to it.
const PATIENCE: i32 = 2;
/// Number of periods before a pending rescale is reported otherwise.
const LONG_PATIENCE: i32 = 4;

/// The comparison state of one HPA.
#[derive(Debug, Default)]
pub(super) struct Machine {
    /// Time of our first decision. The other controller's earlier memory is unknown.
    first: Option<Timestamp>,
    /// Whether the HPA had no status at its first observation. Then no controller remembers more of it.
    is_new: bool,
    own: VecDeque<OwnDecision>,
    pending: Option<PendingRescale>,
    /// Time of the last observed change of the status.
    last_foreign_write: Option<Timestamp>,
    /// Time of the last observed change of the spec.
    spec_changed: Option<Timestamp>,
    /// Time at which the other controller last read metrics that Concertina did not. The histories differ
    /// since then.
    metrics_gap: Option<Timestamp>,
}

/// A decision of Concertina.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OwnDecision {
    pub(super) at: Timestamp,
    pub(super) from: i32,
    /// The decided count. `None` if no count could be computed.
    pub(super) to: Option<i32>,
    pub(super) sentence: String,
}

/// A rescale that Concertina decided and the other controller did not make.
#[derive(Debug, Clone, Copy)]
struct PendingRescale {
    since: Timestamp,
    from: i32,
    up: bool,
    reported: bool,
}

/// A rescale by the other controller, and Concertina's decision in its place.
#[derive(Debug)]
pub(super) struct Comparison<'a> {
    pub(super) from: i32,
    pub(super) to: i32,
    /// Time of the observation of the rescale.
    pub(super) observed: Timestamp,
    /// Delay between the rescale and its observation.
    pub(super) late: SignedDuration,
    /// Concertina's decision in place of the rescale.
    pub(super) own: &'a OwnDecision,
    /// Counts from replays: from earlier readings, and at other instants of the period.
    pub(super) replays: &'a [i32],
    /// Whether the metrics in the other controller's status equal one of our readings.
    pub(super) same_metrics: bool,
    /// Whether our two readings around the rescale differ.
    pub(super) moved: bool,
    /// The time span of the history on which a decision for this spec can depend.
    pub(super) memory: SignedDuration,
}

impl Machine {
    /// Records an observed change: of the status by the other controller, or of the spec by any client.
    pub(super) fn observed(&mut self, at: Timestamp, status_changed: bool, spec_changed: bool) {
        if status_changed {
            self.last_foreign_write = Some(at);
        }
        if spec_changed {
            self.spec_changed = Some(at);
        }
    }

    /// Records that the other controller read metrics that Concertina did not.
    pub(super) fn record_metrics_gap(&mut self, at: Timestamp) {
        self.metrics_gap = Some(at);
    }

    /// Marks the HPA as new: no controller has decided for it.
    pub(super) fn mark_new(&mut self) {
        self.is_new = true;
    }

    /// Whether the other controller wrote the status within a twentieth of a period before `at`.
    pub(super) fn wrote_just_before(&self, at: Timestamp, period: SignedDuration) -> bool {
        self.last_foreign_write.is_some_and(|write| at.duration_since(write) <= period / JUST_BEFORE)
    }

    /// Time of our last decision.
    pub(super) fn last_at(&self) -> Option<Timestamp> {
        self.own.back().map(|own| own.at)
    }

    /// Records one of our decisions without a rescale to compare with. `alive`: the time of the last observed
    /// write by the other controller, of any HPA.
    pub(super) fn decided(
        &mut self,
        own: OwnDecision,
        period: SignedDuration,
        memory: SignedDuration,
        alive: Option<Timestamp>,
    ) -> Option<Outcome> {
        self.keep(own.clone());
        let Some(to) = own.to.filter(|to| *to != own.from) else {
            self.pending = None;
            return None;
        };
        let up = to > own.from;
        let pending = match &mut self.pending {
            Some(pending) if pending.from == own.from && pending.up == up => pending,
            pending => pending.insert(PendingRescale { since: own.at, from: own.from, up, reported: false }),
        };
        let waited = own.at.duration_since(pending.since);
        // A status written just before the pending rescale reveals a sync with the same metrics.
        let synced = self
            .last_foreign_write
            .is_some_and(|write| pending.since.duration_since(write) <= period / JUST_BEFORE);
        let patience = if synced { PATIENCE } else { LONG_PATIENCE };
        if pending.reported || waited < period.saturating_mul(patience) {
            return None;
        }
        pending.reported = true;
        let since = pending.since;
        let doubt = if !synced && alive.is_none_or(|alive| alive <= since) {
            Some(InconclusiveReason::NoSign)
        } else if self.is_warming_up(own.at, memory) {
            Some(InconclusiveReason::WarmUp)
        } else if self.has_metrics_gap(own.at, memory) {
            Some(InconclusiveReason::MetricsMoved)
        } else {
            None
        };
        let verdict = if doubt.is_some() { Verdict::Unknown } else { Verdict::OnlyOurs };
        Some(Outcome { verdict, doubt, ours: Some(own.into()) })
    }

    /// Compares our decision with a rescale by the other controller.
    pub(super) fn rescaled(&mut self, case: &Comparison<'_>, period: SignedDuration) -> Outcome {
        self.pending = None;
        let near = period.saturating_mul(5) / 4;
        let own = |own: &&OwnDecision| own.from == case.from && case.observed.duration_since(own.at) <= near;
        let recent: Vec<&OwnDecision> = self.own.iter().filter(own).chain([case.own]).collect();
        let agrees = recent.iter().rev().find(|own| own.to == Some(case.to)).map(|own| (*own).clone());
        let counts: Vec<i32> =
            recent.iter().filter_map(|own| own.to).chain(case.replays.iter().copied()).collect();
        let spec_changed =
            self.spec_changed.is_some_and(|changed| case.observed.duration_since(changed) <= period);
        let verdict = |verdict, ours: OwnDecision| Outcome { verdict, doubt: None, ours: Some(ours.into()) };
        let doubt = |doubt| Outcome {
            verdict: Verdict::Unknown,
            doubt: Some(doubt),
            ours: Some(case.own.clone().into()),
        };
        let unseen = !case.same_metrics && case.moved;
        let between = unseen
            && counts.iter().min().is_some_and(|least| *least <= case.to)
            && counts.iter().max().is_some_and(|most| case.to <= *most);
        let outcome = if let Some(agrees) = agrees {
            verdict(Verdict::Same, agrees)
        } else if counts.contains(&case.to) || between {
            verdict(Verdict::Same, case.own.clone())
        } else if case.late > period.saturating_mul(2) {
            doubt(InconclusiveReason::SeenLate)
        } else if case.own.to.is_none() {
            doubt(InconclusiveReason::Undecided)
        } else if self.is_warming_up(case.observed, case.memory) {
            doubt(InconclusiveReason::WarmUp)
        } else if spec_changed {
            doubt(InconclusiveReason::SpecChanged)
        } else if unseen || self.has_metrics_gap(case.observed, case.memory) {
            doubt(InconclusiveReason::MetricsMoved)
        } else if counts.iter().all(|count| *count == case.from) {
            verdict(Verdict::OnlyBuiltin, case.own.clone())
        } else {
            verdict(Verdict::Different, case.own.clone())
        };
        if unseen {
            self.record_metrics_gap(case.observed);
        }
        self.keep(case.own.clone());
        outcome
    }

    /// Whether the other controller may still remember metrics that Concertina did not read.
    fn has_metrics_gap(&self, at: Timestamp, memory: SignedDuration) -> bool {
        self.metrics_gap.is_some_and(|gap| at.duration_since(gap) <= memory)
    }

    /// Whether the other controller may remember more than this process.
    fn is_warming_up(&self, at: Timestamp, memory: SignedDuration) -> bool {
        !self.is_new && self.first.is_none_or(|first| at.duration_since(first) <= memory)
    }

    fn keep(&mut self, own: OwnDecision) {
        self.first.get_or_insert(own.at);
        if self.own.len() >= DECISIONS {
            self.own.pop_front();
        }
        self.own.push_back(own);
    }
}

impl From<OwnDecision> for OwnSide {
    fn from(own: OwnDecision) -> Self {
        Self { at: own.at, from: own.from, to: own.to, sentence: own.sentence }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: SignedDuration = SignedDuration::from_secs(15);
    const WINDOW: SignedDuration = SignedDuration::from_mins(5);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_900_000_000 + second).unwrap()
    }

    fn own(second: i64, from: i32, to: i32) -> OwnDecision {
        OwnDecision { at: at(second), from, to: Some(to), sentence: String::new() }
    }

    fn case<'a>(
        observed: i64,
        counts: (i32, i32),
        own: &'a OwnDecision,
        replays: &'a [i32],
    ) -> Comparison<'a> {
        let (from, to) = counts;
        let late = SignedDuration::ZERO;
        let memory = SignedDuration::ZERO;
        Comparison {
            from,
            to,
            observed: at(observed),
            late,
            own,
            replays,
            same_metrics: true,
            moved: true,
            memory,
        }
    }

    /// Creates a machine with a long memory.
    fn settled() -> Machine {
        let mut machine = Machine::default();
        machine.decided(own(-1000, 4, 4), PERIOD, WINDOW, None);
        machine
    }

    fn judged(machine: &mut Machine, case: &Comparison<'_>) -> (Verdict, Option<InconclusiveReason>) {
        let outcome = machine.rescaled(case, PERIOD);
        (outcome.verdict, outcome.doubt)
    }

    #[test]
    fn equal_count_now_a_period_ago_or_in_a_replay_is_same() {
        let (stays, goes) = (own(100, 4, 4), own(100, 4, 6));
        assert_eq!(judged(&mut settled(), &case(100, (4, 6), &goes, &[])).0, Verdict::Same);
        assert_eq!(judged(&mut settled(), &case(100, (4, 6), &stays, &[5, 6])).0, Verdict::Same);
        let mut machine = settled();
        machine.decided(own(88, 4, 6), PERIOD, WINDOW, None);
        assert_eq!(judged(&mut machine, &case(100, (4, 6), &stays, &[])).0, Verdict::Same);
        let mut machine = settled();
        machine.decided(own(70, 4, 6), PERIOD, WINDOW, None);
        assert_eq!(judged(&mut machine, &case(100, (4, 6), &stays, &[])).0, Verdict::OnlyBuiltin);
    }

    #[test]
    fn other_count_is_different_unless_metrics_were_not_observed() {
        let goes = own(100, 4, 8);
        let observed = case(100, (4, 6), &goes, &[4, 8]);
        assert_eq!(judged(&mut settled(), &observed), (Verdict::Different, None));
        let unseen = |to| Comparison { same_metrics: false, to, ..case(100, (4, to), &goes, &[4, 8]) };
        assert_eq!(judged(&mut settled(), &unseen(6)), (Verdict::Same, None));
        assert_eq!(
            judged(&mut settled(), &unseen(9)),
            (Verdict::Unknown, Some(InconclusiveReason::MetricsMoved))
        );
        let still = Comparison { moved: false, ..unseen(6) };
        assert_eq!(judged(&mut settled(), &still), (Verdict::Different, None));
    }

    #[test]
    fn inconclusive_comparison_is_unknown() {
        let (goes, none) = (own(100, 4, 8), OwnDecision { to: None, ..own(100, 4, 4) });
        let doubt = |machine: &mut Machine, case: &Comparison<'_>| judged(machine, case).1;
        let usual = || case(100, (4, 6), &goes, &[]);
        let late = Comparison { late: SignedDuration::from_secs(31), ..usual() };
        assert_eq!(doubt(&mut settled(), &late), Some(InconclusiveReason::SeenLate));
        assert_eq!(
            doubt(&mut settled(), &case(100, (4, 6), &none, &[])),
            Some(InconclusiveReason::Undecided)
        );
        let young = Comparison { memory: WINDOW, ..usual() };
        let mut machine = Machine::default();
        machine.decided(own(0, 4, 4), PERIOD, WINDOW, None);
        assert_eq!(doubt(&mut machine, &young), Some(InconclusiveReason::WarmUp));
        let mut machine = settled();
        machine.observed(at(95), false, true);
        assert_eq!(doubt(&mut machine, &usual()), Some(InconclusiveReason::SpecChanged));
    }

    #[test]
    fn new_hpa_does_not_warm_up() {
        let goes = own(100, 4, 8);
        let mut machine = Machine::default();
        machine.mark_new();
        let young = Comparison { memory: WINDOW, ..case(100, (4, 6), &goes, &[]) };
        assert_eq!(judged(&mut machine, &young).0, Verdict::Different);
    }

    #[test]
    fn pending_rescale_is_reported_once_after_two_periods() {
        let mut machine = settled();
        let mut reported = Vec::new();
        for second in (0..100).step_by(15) {
            machine.observed(at(second), true, false);
            let outcome = machine.decided(own(second, 4, 6), PERIOD, SignedDuration::ZERO, Some(at(second)));
            reported.extend(outcome.map(|outcome| (second, outcome.verdict)));
        }
        assert_eq!(reported, [(30, Verdict::OnlyOurs)]);
    }

    #[test]
    fn pending_rescale_that_ends_is_not_reported() {
        let mut machine = settled();
        for second in (0..200).step_by(15) {
            machine.observed(at(second), true, false);
            let to = if second % 30 == 0 { 6 } else { 4 };
            assert_eq!(machine.decided(own(second, 4, to), PERIOD, WINDOW, Some(at(second))), None);
        }
    }

    #[test]
    fn pending_rescale_without_a_foreign_write_is_unknown_after_four_periods() {
        let mut machine = settled();
        let mut reported = Vec::new();
        for second in (0..100).step_by(15) {
            let outcome = machine.decided(own(second, 4, 6), PERIOD, SignedDuration::ZERO, None);
            reported.extend(outcome.map(|outcome| (second, outcome.doubt)));
        }
        assert_eq!(reported, [(60, Some(InconclusiveReason::NoSign))]);
    }

    #[test]
    fn metrics_gap_counts_within_the_memory_of_a_decision() {
        let (mut machine, goes) = (settled(), own(100, 4, 8));
        let gap = Comparison { same_metrics: false, memory: WINDOW, ..case(100, (4, 9), &goes, &[]) };
        assert_eq!(judged(&mut machine, &gap).1, Some(InconclusiveReason::MetricsMoved));
        let later = own(300, 4, 4);
        let within = Comparison { memory: WINDOW, ..case(300, (4, 6), &later, &[]) };
        assert_eq!(judged(&mut machine, &within).1, Some(InconclusiveReason::MetricsMoved));
        let after = Comparison { memory: WINDOW, ..case(500, (4, 6), &later, &[]) };
        assert_eq!(judged(&mut machine, &after), (Verdict::OnlyBuiltin, None));
    }
}
