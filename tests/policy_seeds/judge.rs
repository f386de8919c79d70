//! Judges a run by the model. Times are in milliseconds.
//!
//! - Every write of a Scale sets a count that the model allows for the inputs at the time of the write.
//! - Two periods after the last event, or 40 s later after a failover, the model would keep the count.
//! - The end of a mode, and the start and end of a schedule, take effect within 1 s, unless another event occurred in
//!   the two periods before.

use crate::model::{Inputs, Subject};
use crate::plan::{Event, Metric, NAMES, Plan};
use crate::world::Write;

/// Maximum time until an event reaches the controller.
const WINDOW: i64 = 200;
/// Maximum duration of a start, or of a failover from the death of a leader to the first syncs of the next leader.
const FAILOVER: i64 = 40_000;
/// Maximum time from the due time of a sync to its end.
const SLACK: i64 = 3_000;
/// Maximum delay of a sync at an edge, which is the end of a mode or the start or end of a schedule.
const EDGE: i64 = 1_000;
/// Maximum age of a metric's failure that the histories of a standby may lack when the leader dies. The standby
/// receives histories about once a second, and the first sync that fails comes up to a period after the failure.
const UNKNOWN: i64 = 25_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) at: i64,
    pub(crate) text: String,
}

/// The state of one HPA that the judge tracks.
struct Followed<'a> {
    plan: &'a Plan,
    hpa: usize,
    subject: Subject,
    /// The state before the last event, and the time of the event.
    before: (Subject, i64),
    count: i64,
    /// The time of the last event, edge or write, and the time after it in which the count may still change.
    quiet: (i64, i64),
    /// The time of the last event or edge.
    disturbed: i64,
    died: Vec<i64>,
    /// The time until which a list of policies may be unknown.
    unknown_to: i64,
    /// The sync periods in seconds, each with the time from which it applies.
    periods: Vec<(i64, i64)>,
    /// Earliest time since which the controller may have observed only failures of each metric. It may have missed a
    /// short recovery.
    failing_earliest: [Option<i64>; 2],
    recovered: [i64; 2],
    /// The time since which a policy has fallbacks.
    fallbacks_since: Option<i64>,
    /// End of the last interval with a count out of bounds, in which the algorithm read no metrics.
    unread_to: i64,
    /// The time since which every metric has a value other than 0, and zeroMetrics applies.
    loaded_since: Option<i64>,
    /// Whether the controller must have observed that all metrics dropped to 0 at once.
    has_dropped: bool,
}

/// The first violation of a run, and the number of quiet times that were judged.
pub(crate) fn check(plan: &Plan, writes: &[(i64, Write)]) -> (Option<Violation>, u64) {
    let mut judged = 0;
    for hpa in 0..NAMES.len() {
        let mut followed = Followed::new(plan, hpa);
        let result = followed.run(writes, &mut judged);
        if let Err(violation) = result {
            return (Some(violation), judged);
        }
    }
    (None, judged)
}

impl<'a> Followed<'a> {
    fn new(plan: &'a Plan, hpa: usize) -> Self {
        let subject = Subject::new(plan, hpa);
        Self {
            plan,
            hpa,
            before: (subject.clone(), i64::MIN / 2),
            periods: vec![(i64::MIN / 2, subject.inputs(0).period)],
            subject,
            count: crate::world::FIRST_COUNT,
            quiet: (0, FAILOVER),
            disturbed: 0,
            died: vec![0],
            unknown_to: 0,
            failing_earliest: [None; 2],
            recovered: [i64::MIN / 2; 2],
            fallbacks_since: None,
            unread_to: 0,
            loaded_since: None,
            has_dropped: false,
        }
    }

    fn run(&mut self, writes: &[(i64, Write)], judged: &mut u64) -> Result<(), Violation> {
        let hpa = self.hpa;
        let mut events = self.plan.events.iter().peekable();
        let mut writes = writes.iter().filter(|(_, write)| write.hpa == hpa).peekable();
        let mut now = -1;
        loop {
            let event = events.peek().map_or(i64::MAX, |(at, _)| *at);
            let edge = self.subject.next_edge(now).unwrap_or(i64::MAX);
            let write = writes.peek().map_or(i64::MAX, |(at, _)| *at);
            let next = event.min(edge).min(write).min(self.plan.end);
            self.is_settled(next, judged)?;
            if !self.subject.inputs(next - 1).are_metrics_read(self.count) {
                self.unread_to = next;
                self.has_dropped = false;
            }
            if next == self.plan.end {
                return Ok(());
            }
            if event == next {
                let (_, event) = events.next().unwrap();
                self.event(next, event);
            } else if edge == next {
                self.edge(next);
                now = next;
            } else {
                let (at, write) = writes.next().unwrap();
                self.write(*at, *write)?;
            }
            now = now.max(next - i64::from(edge == next && event == next));
        }
    }

    fn event(&mut self, at: i64, event: &Event) {
        let earlier = self.subject.clone();
        if !self.subject.apply(at, event) {
            return;
        }
        if event.ends_process() {
            self.died.push(at);
        }
        if matches!(event, Event::Unlisted { .. }) {
            let is_known = |(_, event): &&(i64, Event)| *event == Event::Known;
            self.unknown_to =
                self.plan.events.iter().find(|event| event.0 > at && is_known(event)).unwrap().0;
        }
        let (old, new) = (earlier.inputs(at), self.subject.inputs(at));
        for metric in 0..2 {
            match (old.failing[metric], new.failing[metric]) {
                (None, Some(_)) => {
                    let was_seen = at - self.recovered[metric] > FAILOVER + new.period * 1000;
                    let since = self.failing_earliest[metric].filter(|_| !was_seen);
                    self.failing_earliest[metric] = Some(since.unwrap_or(at));
                }
                (Some(_), None) => self.recovered[metric] = at,
                _ => {}
            }
        }
        if new.period != old.period {
            self.periods.push((at, new.period));
        }
        self.drop_to_zero(at, event, &old, &new);
        let since = self.fallbacks_since.filter(|_| *event != Event::Known).unwrap_or(at);
        self.fallbacks_since = new.has_fallbacks().then_some(since);
        // Several events within the window are treated as one.
        if at - self.before.1 > WINDOW {
            self.before = (earlier, at);
        }
        self.disturbed = at;
        self.happens(at, 2 * new.period.max(old.period) * 1000 + SLACK);
    }

    /// Updates [`Self::has_dropped`]. The controller must have observed the drop if it read other values before and no
    /// leader has died since.
    fn drop_to_zero(&mut self, at: i64, event: &Event, old: &Inputs, new: &Inputs) {
        let was_read = |since: i64| at - since > 2 * old.period * 1000 + SLACK;
        let were_loaded = self.loaded_since.is_some_and(was_read)
            && was_read(self.unread_to)
            && at - self.last_death() > 2 * FAILOVER;
        let is_drop = matches!(event, Event::Zero { .. });
        self.has_dropped =
            new.is_zero() && !event.ends_process() && (self.has_dropped || is_drop && were_loaded);
        let is_loaded = new.zero && !new.metrics.iter().any(|metric| !matches!(metric, Metric::Value(1..)));
        self.loaded_since = if is_loaded { self.loaded_since.or(Some(at)) } else { None };
    }

    /// Handles the end of a mode, or the start or end of a schedule.
    fn edge(&mut self, at: i64) {
        let inputs = self.subject.inputs(at);
        let calm =
            at - self.disturbed > 2 * inputs.period * 1000 + SLACK && at - self.last_death() > 2 * FAILOVER;
        self.disturbed = at;
        self.happens(at, if calm { EDGE } else { 2 * inputs.period * 1000 + SLACK });
    }

    fn write(&mut self, at: i64, write: Write) -> Result<(), Violation> {
        if write.is_premature {
            let Write { from, to, .. } = write;
            return Err(self.violation("known policies", at, &format!("{from} to {to}")));
        }
        // Without policies, HPAs that had none follow their metrics.
        if at < self.unknown_to {
            self.count = write.to;
            return Ok(());
        }
        let mut allowed = Vec::new();
        let mut subjects = vec![(&self.subject, at), (&self.subject, at - WINDOW)];
        if at - self.before.1 <= WINDOW {
            subjects.push((&self.before.0, at));
        }
        for (subject, time) in subjects {
            allowed.extend(self.complete(subject.inputs(time), time).next_counts(write.from));
        }
        if write.from != self.count || !allowed.contains(&write.to) {
            let Write { from, to, .. } = write;
            return Err(self.violation("write", at, &format!("{from} to {to}, allowed are {allowed:?}")));
        }
        self.count = write.to;
        let period = self.subject.inputs(at).period;
        self.happens(at, period * 1000 + SLACK);
        Ok(())
    }

    fn happens(&mut self, at: i64, allowance: i64) {
        let until_now = self.quiet.0 + self.quiet.1;
        let failover = self.last_death() + FAILOVER + allowance - at;
        // Earlier changes keep their remaining time, except at an edge that follows a quiet time.
        let rest = if allowance == EDGE { 0 } else { until_now - at };
        self.quiet = (at, allowance.max(failover.min(FAILOVER + allowance)).max(rest));
    }

    /// Checks the count before `next`, if enough time has passed since the last change.
    fn is_settled(&self, next: i64, judged: &mut u64) -> Result<(), Violation> {
        let (since, allowance) = self.quiet;
        if next - since <= allowance || next <= self.unknown_to + FAILOVER {
            return Ok(());
        }
        *judged += 1;
        let last = next - 1;
        let kept = |at: i64| {
            self.complete(self.subject.inputs(last), at).next_counts(self.count).contains(&self.count)
        };
        // A fallback that has just started takes effect with the next sync.
        let period = self.subject.inputs(last).period * 1000 + SLACK;
        if kept(last) || kept((last - period).max(since)) {
            return Ok(());
        }
        let counts = self.complete(self.subject.inputs(last), last).next_counts(self.count);
        Err(self.violation(
            "progress",
            next,
            &format!("still {} since {since}, expected {counts:?}", self.count),
        ))
    }

    /// Adds to the inputs whether fallbacks and the guard `zeroMetrics` may apply at a time.
    fn complete(&self, mut inputs: Inputs, at: i64) -> Inputs {
        for metric in 0..2 {
            let (Some(fallback), Some(since)) = (inputs.fallback_of(metric), inputs.failing[metric]) else {
                continue;
            };
            let duration = fallback.seconds * 1000;
            let earliest = self.failing_earliest[metric].unwrap_or(since).min(since) + duration;
            let known = since.max(self.fallbacks_since.unwrap_or(since)).max(self.unread_to);
            let unknown_to = |died: &i64| *died >= known - FAILOVER && *died <= known + UNKNOWN;
            let restarted = self.died.iter().filter(|died| unknown_to(died)).map(|died| died + FAILOVER);
            let latest = restarted.max().map_or(known, |restarted| known.max(restarted));
            // The first sync that reads the failure may be due a period after `known`, by the sync period at that time.
            let period = inputs.period.max(self.period_at(known));
            let certain = latest + duration + period * 1000 + SLACK;
            inputs.replaced[metric] = (at + WINDOW >= earliest, at < certain);
        }
        let has_load = inputs.metrics.iter().any(|metric| matches!(metric, Metric::Value(1..)));
        inputs.held = (inputs.zero && !has_load, !(self.has_dropped && inputs.is_zero()));
        inputs
    }

    fn period_at(&self, at: i64) -> i64 {
        let reached = self.periods.iter().rev().find(|(from, _)| *from <= at);
        reached.map_or(0, |(_, period)| *period)
    }

    fn last_death(&self) -> i64 {
        self.died.last().copied().unwrap_or_default()
    }

    fn violation(&self, invariant: &'static str, at: i64, text: &str) -> Violation {
        let inputs = self.complete(self.subject.inputs(at), at);
        Violation { invariant, at, text: format!("{}: {text}; {inputs:?}", NAMES[self.hpa]) }
    }
}
