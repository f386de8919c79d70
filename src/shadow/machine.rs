//! What is compared of one HPA: pure, told of everything, asking nobody.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use super::wire::{Doubt, Ours, Outcome, Verdict};

/// How many own decisions are kept, at most; those of two periods are, unless syncs come as fast as statuses change.
const DECISIONS: usize = 16;
/// Syncs that are less apart saw the same, as a part of the period.
pub(super) const JUST_BEFORE: i32 = 20;
/// How many periods a wish of ours may stay alone, if the other controller was seen to have looked meanwhile.
const PATIENCE: i32 = 2;
/// How many, if it was not seen.
const LONG_PATIENCE: i32 = 4;

/// One HPA.
#[derive(Debug, Default)]
pub(super) struct Machine {
    /// When it was decided for the first time. What the other controller remembers from before is not known.
    first: Option<Timestamp>,
    /// It was new when it was first seen: nobody remembers more of it.
    is_new: bool,
    own: VecDeque<Own>,
    want: Option<Want>,
    /// When the status was last seen to change.
    sign: Option<Timestamp>,
    /// When the spec was last seen to change.
    spec_changed: Option<Timestamp>,
    /// When the other controller last saw metrics that we did not: since then it remembers something else.
    missed: Option<Timestamp>,
}

/// An own decision.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Own {
    pub(super) at: Timestamp,
    pub(super) from: i32,
    /// `None` if there was no count to be had.
    pub(super) to: Option<i32>,
    pub(super) sentence: String,
}

/// A change that we want and nobody makes.
#[derive(Debug, Clone, Copy)]
struct Want {
    since: Timestamp,
    from: i32,
    up: bool,
    judged: bool,
}

/// A rescale by the other controller, and our decision in its place.
#[derive(Debug)]
pub(super) struct Case<'a> {
    pub(super) from: i32,
    pub(super) to: i32,
    /// When it was seen.
    pub(super) seen: Timestamp,
    /// So much later than it was made.
    pub(super) late: SignedDuration,
    /// What we decide in its place.
    pub(super) own: &'a Own,
    /// What follows from what was read a little earlier, and at other moments of the period.
    pub(super) again: &'a [i32],
    /// The metrics in the other one's status are those of one of our readings.
    pub(super) same_metrics: bool,
    /// Our own two readings around it differ.
    pub(super) moved: bool,
    /// How far back such a decision looks.
    pub(super) memory: SignedDuration,
}

impl Machine {
    /// The other controller's status, or somebody's spec, was seen to change.
    pub(super) fn seen(&mut self, at: Timestamp, status_changed: bool, spec_changed: bool) {
        if status_changed {
            self.sign = Some(at);
        }
        if spec_changed {
            self.spec_changed = Some(at);
        }
    }

    /// The other controller saw metrics that we did not.
    pub(super) fn missed(&mut self, at: Timestamp) {
        self.missed = Some(at);
    }

    /// The HPA has not been decided for by anybody.
    pub(super) fn begins(&mut self) {
        self.is_new = true;
    }

    /// Whether the other controller has written the status just now.
    pub(super) fn was_seen_just_before(&self, at: Timestamp, period: SignedDuration) -> bool {
        self.sign.is_some_and(|sign| at.duration_since(sign) <= period / JUST_BEFORE)
    }

    /// The last own decision.
    pub(super) fn last_at(&self) -> Option<Timestamp> {
        self.own.back().map(|own| own.at)
    }

    /// An own decision while nothing was seen. `alive`: when the other controller was last seen to do anything for any
    /// HPA.
    pub(super) fn decided(
        &mut self,
        own: Own,
        period: SignedDuration,
        memory: SignedDuration,
        alive: Option<Timestamp>,
    ) -> Option<Outcome> {
        self.keep(own.clone());
        let Some(to) = own.to.filter(|to| *to != own.from) else {
            self.want = None;
            return None;
        };
        let up = to > own.from;
        let want = match &mut self.want {
            Some(want) if want.from == own.from && want.up == up => want,
            want => want.insert(Want { since: own.at, from: own.from, up, judged: false }),
        };
        let waited = own.at.duration_since(want.since);
        // What it wrote right before our wish is what it saw of the same metrics.
        let looked = self.sign.is_some_and(|sign| want.since.duration_since(sign) <= period / JUST_BEFORE);
        let patience = if looked { PATIENCE } else { LONG_PATIENCE };
        if want.judged || waited < period.saturating_mul(patience) {
            return None;
        }
        want.judged = true;
        let since = want.since;
        let doubt = if !looked && alive.is_none_or(|alive| alive <= since) {
            Some(Doubt::NoSign)
        } else if self.is_warming_up(own.at, memory) {
            Some(Doubt::WarmUp)
        } else if self.has_missed(own.at, memory) {
            Some(Doubt::MetricsMoved)
        } else {
            None
        };
        let verdict = if doubt.is_some() { Verdict::Unknown } else { Verdict::OnlyOurs };
        Some(Outcome { verdict, doubt, ours: Some(own.into()) })
    }

    /// The other controller has rescaled.
    pub(super) fn rescaled(&mut self, case: &Case<'_>, period: SignedDuration) -> Outcome {
        self.want = None;
        let near = period.saturating_mul(5) / 4;
        let own = |own: &&Own| own.from == case.from && case.seen.duration_since(own.at) <= near;
        let recent: Vec<&Own> = self.own.iter().filter(own).chain([case.own]).collect();
        let agrees = recent.iter().rev().find(|own| own.to == Some(case.to)).map(|own| (*own).clone());
        let counts: Vec<i32> =
            recent.iter().filter_map(|own| own.to).chain(case.again.iter().copied()).collect();
        let spec_changed =
            self.spec_changed.is_some_and(|changed| case.seen.duration_since(changed) <= period);
        let verdict = |verdict, ours: Own| Outcome { verdict, doubt: None, ours: Some(ours.into()) };
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
            doubt(Doubt::SeenLate)
        } else if case.own.to.is_none() {
            doubt(Doubt::Undecided)
        } else if self.is_warming_up(case.seen, case.memory) {
            doubt(Doubt::WarmUp)
        } else if spec_changed {
            doubt(Doubt::SpecChanged)
        } else if unseen || self.has_missed(case.seen, case.memory) {
            doubt(Doubt::MetricsMoved)
        } else if counts.iter().all(|count| *count == case.from) {
            verdict(Verdict::OnlyBuiltin, case.own.clone())
        } else {
            verdict(Verdict::Different, case.own.clone())
        };
        if unseen {
            self.missed(case.seen);
        }
        self.keep(case.own.clone());
        outcome
    }

    /// Whether the other controller may still remember metrics that we did not see.
    fn has_missed(&self, at: Timestamp, memory: SignedDuration) -> bool {
        self.missed.is_some_and(|missed| at.duration_since(missed) <= memory)
    }

    /// Whether the other controller may remember what we cannot.
    fn is_warming_up(&self, at: Timestamp, memory: SignedDuration) -> bool {
        !self.is_new && self.first.is_none_or(|first| at.duration_since(first) <= memory)
    }

    fn keep(&mut self, own: Own) {
        self.first.get_or_insert(own.at);
        if self.own.len() >= DECISIONS {
            self.own.pop_front();
        }
        self.own.push_back(own);
    }
}

impl From<Own> for Ours {
    fn from(own: Own) -> Self {
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

    fn own(second: i64, from: i32, to: i32) -> Own {
        Own { at: at(second), from, to: Some(to), sentence: String::new() }
    }

    fn case<'a>(seen: i64, counts: (i32, i32), own: &'a Own, again: &'a [i32]) -> Case<'a> {
        let (from, to) = counts;
        let late = SignedDuration::ZERO;
        let memory = SignedDuration::ZERO;
        Case { from, to, seen: at(seen), late, own, again, same_metrics: true, moved: true, memory }
    }

    /// One that has been at work for long.
    fn settled() -> Machine {
        let mut machine = Machine::default();
        machine.decided(own(-1000, 4, 4), PERIOD, WINDOW, None);
        machine
    }

    fn judged(machine: &mut Machine, case: &Case<'_>) -> (Verdict, Option<Doubt>) {
        let outcome = machine.rescaled(case, PERIOD);
        (outcome.verdict, outcome.doubt)
    }

    #[test]
    fn the_same_count_is_the_same_now_a_period_ago_or_at_another_moment() {
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
    fn another_count_differs_unless_the_metrics_moved_unseen() {
        let goes = own(100, 4, 8);
        let seen = case(100, (4, 6), &goes, &[4, 8]);
        assert_eq!(judged(&mut settled(), &seen), (Verdict::Different, None));
        let unseen = |to| Case { same_metrics: false, to, ..case(100, (4, to), &goes, &[4, 8]) };
        assert_eq!(judged(&mut settled(), &unseen(6)), (Verdict::Same, None));
        assert_eq!(judged(&mut settled(), &unseen(9)), (Verdict::Unknown, Some(Doubt::MetricsMoved)));
        let still = Case { moved: false, ..unseen(6) };
        assert_eq!(judged(&mut settled(), &still), (Verdict::Different, None));
    }

    #[test]
    fn what_cannot_be_known_is_no_difference() {
        let (goes, none) = (own(100, 4, 8), Own { to: None, ..own(100, 4, 4) });
        let doubt = |machine: &mut Machine, case: &Case<'_>| judged(machine, case).1;
        let usual = || case(100, (4, 6), &goes, &[]);
        let late = Case { late: SignedDuration::from_secs(31), ..usual() };
        assert_eq!(doubt(&mut settled(), &late), Some(Doubt::SeenLate));
        assert_eq!(doubt(&mut settled(), &case(100, (4, 6), &none, &[])), Some(Doubt::Undecided));
        let young = Case { memory: WINDOW, ..usual() };
        let mut machine = Machine::default();
        machine.decided(own(0, 4, 4), PERIOD, WINDOW, None);
        assert_eq!(doubt(&mut machine, &young), Some(Doubt::WarmUp));
        let mut machine = settled();
        machine.seen(at(95), false, true);
        assert_eq!(doubt(&mut machine, &usual()), Some(Doubt::SpecChanged));
    }

    #[test]
    fn a_new_hpa_has_no_past_that_we_do_not_know() {
        let goes = own(100, 4, 8);
        let mut machine = Machine::default();
        machine.begins();
        let young = Case { memory: WINDOW, ..case(100, (4, 6), &goes, &[]) };
        assert_eq!(judged(&mut machine, &young).0, Verdict::Different);
    }

    #[test]
    fn a_wish_of_ours_is_told_once_after_two_periods_in_which_the_other_one_looked() {
        let mut machine = settled();
        let mut told = Vec::new();
        for second in (0..100).step_by(15) {
            machine.seen(at(second), true, false);
            let outcome = machine.decided(own(second, 4, 6), PERIOD, SignedDuration::ZERO, Some(at(second)));
            told.extend(outcome.map(|outcome| (second, outcome.verdict)));
        }
        assert_eq!(told, [(30, Verdict::OnlyOurs)]);
    }

    #[test]
    fn a_wish_that_ends_or_is_fulfilled_is_not_told() {
        let mut machine = settled();
        for second in (0..200).step_by(15) {
            machine.seen(at(second), true, false);
            let to = if second % 30 == 0 { 6 } else { 4 };
            assert_eq!(machine.decided(own(second, 4, to), PERIOD, WINDOW, Some(at(second))), None);
        }
    }

    #[test]
    fn without_a_sign_of_the_other_one_it_is_waited_longer_and_nothing_is_said_of_it() {
        let mut machine = settled();
        let mut told = Vec::new();
        for second in (0..100).step_by(15) {
            let outcome = machine.decided(own(second, 4, 6), PERIOD, SignedDuration::ZERO, None);
            told.extend(outcome.map(|outcome| (second, outcome.doubt)));
        }
        assert_eq!(told, [(60, Some(Doubt::NoSign))]);
    }

    #[test]
    fn what_the_other_one_saw_and_we_did_not_counts_as_long_as_it_remembers() {
        let (mut machine, goes) = (settled(), own(100, 4, 8));
        let missed = Case { same_metrics: false, memory: WINDOW, ..case(100, (4, 9), &goes, &[]) };
        assert_eq!(judged(&mut machine, &missed).1, Some(Doubt::MetricsMoved));
        let later = own(300, 4, 4);
        let within = Case { memory: WINDOW, ..case(300, (4, 6), &later, &[]) };
        assert_eq!(judged(&mut machine, &within).1, Some(Doubt::MetricsMoved));
        let after = Case { memory: WINDOW, ..case(500, (4, 6), &later, &[]) };
        assert_eq!(judged(&mut machine, &after), (Verdict::OnlyBuiltin, None));
    }
}
