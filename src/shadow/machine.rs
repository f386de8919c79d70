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
        } else if unseen {
            doubt(Doubt::MetricsMoved)
        } else if counts.iter().all(|count| *count == case.from) {
            verdict(Verdict::OnlyBuiltin, case.own.clone())
        } else {
            verdict(Verdict::Different, case.own.clone())
        };
        self.keep(case.own.clone());
        outcome
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
