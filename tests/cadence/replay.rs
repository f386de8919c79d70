//! Replays the facts of a whole controller in a model of upstream's queue, written from the specification. The facts are
//! durations and arrivals. The model derives the start and the count of each sync from them.

use crate::draw::HpaPlan;
use crate::model::{Memory, Moment};

/// The first and the longest interval between two syncs for changes of one HPA, which upstream does not have.
const INTERVALS: [u64; 2] = [1_000, 8_000];

/// An HPA from the watch or a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) at: u64,
    pub(crate) generation: i64,
    pub(crate) version: u64,
}

/// The facts of one sync. All times are whole milliseconds since the start of the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SyncFacts {
    /// The earliest start: the start of the discovery before the sync, or `start`.
    pub(crate) earliest: u64,
    /// The first request of the sync.
    pub(crate) start: u64,
    pub(crate) decided: u64,
    /// Time from the decision to the end of the Scale's write, or 0.
    pub(crate) scale: u64,
    /// Time from then to the end of the sync.
    pub(crate) status: u64,
    /// The proposal of the metric that the sync read.
    pub(crate) proposal: i32,
    /// The count after the sync.
    pub(crate) replicas: i32,
    /// The `resourceVersion` of the written status.
    pub(crate) wrote: Option<u64>,
    /// Whether the controller has read the HPA before the sync, in place of a late watch.
    pub(crate) is_refreshed: bool,
}

/// The facts of one HPA in the life of one controller.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) begins: u64,
    pub(crate) ends: u64,
    pub(crate) seen: Vec<Seen>,
    pub(crate) syncs: Vec<SyncFacts>,
}

impl Life {
    /// Returns the times at which the controller sees the HPA for the first time, or with a changed spec. The first
    /// `known` events precede the life.
    fn changes(&self, known: usize) -> Vec<u64> {
        let mut generation = known.checked_sub(1).map(|last| self.seen[last].generation);
        let mut times = Vec::new();
        for seen in &self.seen[known..] {
            if generation.replace(seen.generation) != Some(seen.generation) {
                times.push(seen.at);
            }
        }
        times
    }
}

/// The facts of one HPA.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) lives: Vec<Life>,
}

/// The result of a replay.
#[derive(Debug)]
pub(crate) enum Replayed {
    /// All syncs are equal. The numbers of syncs, of syncs for a change, and of skipped syncs.
    Equal {
        syncs: usize,
        changes: usize,
        skips: usize,
    },
    /// Two events of the run have the same millisecond, and their order decides.
    Tie,
    Different(String),
}

/// The queue of one HPA in one life.
#[derive(Debug)]
struct Queue {
    /// The due time of the periodic sync.
    waiting: Option<u64>,
    /// Whether a due time was reached during a sync.
    is_due: bool,
    /// The end of the last sync.
    free: u64,
    /// The end and the length of the interval after a sync for a change.
    interval: Option<(u64, u64)>,
}

/// The start of a sync.
#[derive(Debug, Clone, Copy)]
struct Start {
    at: u64,
    is_for_change: bool,
    is_deferred: bool,
}

impl Queue {
    /// Returns the next start. `change`: the arrival of the first change that no sync has read.
    fn next(&self, change: Option<u64>) -> Option<Start> {
        let change = change.map(|at| {
            let end = self.interval.map(|(end, _)| end).filter(|end| at < *end);
            (end.unwrap_or(at).max(self.free), end.is_some())
        });
        let waiting = self.waiting.into_iter().chain(self.is_due.then_some(self.free)).min();
        let at = change.map(|(at, _)| at).into_iter().chain(waiting).min()?;
        let due = change.filter(|(changed, _)| *changed <= at);
        Some(Start {
            at,
            is_for_change: due.is_some(),
            is_deferred: due.is_some_and(|(_, deferred)| deferred),
        })
    }

    /// Hands the key out.
    fn start(&mut self, start: Start) {
        self.waiting = self.waiting.filter(|at| *at > start.at);
        self.is_due = false;
        if start.is_for_change {
            let last = self.interval.map_or(INTERVALS[0], |(_, length)| length);
            let length = if start.is_deferred { (last * 2).min(INTERVALS[1]) } else { INTERVALS[0] };
            self.interval = Some((start.at + length, length));
        }
    }

    /// Ends a sync. The queue keeps the earlier of two times.
    fn end(&mut self, end: u64, period: u64) {
        self.free = end;
        self.is_due = self.waiting.take_if(|at| *at <= end).is_some();
        self.waiting = Some(self.waiting.map_or(end + period, |at| at.min(end + period)));
    }
}

/// Replays the facts of one HPA.
pub(crate) fn replay(plan: &HpaPlan, facts: &Facts, period: u64) -> Replayed {
    let (mut memory, mut replicas) = (Memory::default(), plan.versions[0].replicas);
    let (mut skips, mut for_changes, mut sync) = (0, 0, 0);
    for life in &facts.lives {
        let known = life.seen.partition_point(|seen| seen.at <= life.begins);
        let mut changes = life.changes(known).into_iter().peekable();
        let own = plan.own_period.map(|seconds| seconds * 1000);
        let (mut current_period, mut wrote) = (period, None::<u64>);
        let waiting = (known > 0).then_some(life.begins);
        let mut queue = Queue { waiting, is_due: false, free: life.begins, interval: None };
        let mut real = life.syncs.iter();
        while let Some(start) = queue.next(changes.peek().copied()).filter(|start| start.at < life.ends) {
            let caused = if start.is_for_change { changes.next() } else { None };
            while let Some(change) = changes.next_if(|at| *at <= start.at) {
                if change == start.at {
                    return Replayed::Tie;
                }
            }
            queue.start(start);
            let arrived = life.seen.iter().rfind(|seen| seen.at <= start.at).unwrap();
            let before = life.seen.iter().rfind(|seen| seen.at < start.at);
            let is_stale = |seen: &Seen| wrote.is_some_and(|wrote| seen.version < wrote);
            if is_stale(arrived) != before.map_or_else(|| is_stale(arrived), is_stale)
                && caused != Some(start.at)
            {
                return Replayed::Tie;
            }
            if is_stale(arrived) {
                skips += 1;
                queue.end(start.at, current_period);
                continue;
            }
            let Some(fact) = real.next() else {
                return Replayed::Different(format!("sync {sync} at {} is missing", start.at));
            };
            if fact.is_refreshed {
                return Replayed::Tie;
            }
            for_changes += usize::from(start.is_for_change);
            let case = &plan.versions[usize::try_from(arrived.generation - 1).unwrap()];
            let moment = Moment { now: fact.decided, sync, stretch: 0 };
            let desired = memory.decide(case, replicas, fact.proposal, moment);
            if desired != replicas {
                memory.rescaled(case, desired - replicas, Moment { now: moment.now + fact.scale, ..moment });
                replicas = desired;
            }
            if !(fact.earliest..=fact.start).contains(&start.at) || fact.replicas != replicas {
                return Replayed::Different(format!(
                    "sync {sync} starts at {} and leaves {}, in upstream at {} with {replicas}: {start:?} {queue:?}",
                    fact.start, fact.replicas, start.at
                ));
            }
            current_period = own.unwrap_or(period);
            wrote = fact.wrote.or(wrote);
            queue.end(moment.now + fact.scale + fact.status, current_period);
            sync += 1;
        }
        if let Some(more) = real.next() {
            return Replayed::Different(format!("sync {sync} at {} is not due in upstream", more.start));
        }
    }
    Replayed::Equal { syncs: sync, changes: for_changes, skips }
}
