//! Upstream's schedule and its arithmetic for one HPA with given durations, written from the specification. The model
//! shares no code with the controller. All times are whole milliseconds since the first sync.

use std::cmp::Ordering;

/// A rate policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RatePolicy {
    /// Whether `value` is a number of pods. Otherwise, it is a percentage.
    pub(crate) pods: bool,
    pub(crate) value: i32,
    pub(crate) seconds: u64,
}

/// The rules of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    /// `stabilizationWindowSeconds`, set in both directions.
    pub(crate) window: u64,
    /// `selectPolicy`: `Max`, `Min` or `Disabled`.
    pub(crate) select: &'static str,
    pub(crate) policies: Vec<RatePolicy>,
}

/// An event between the end of a sync and the next due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A changed spec, this many milliseconds after the end of the sync.
    Edit(u64),
    /// A second process takes over, and syncs this many milliseconds after the end of the sync.
    Failover(u64),
    /// The wall clock jumps by this many milliseconds.
    Jump(i64),
}

/// The durations of one sync, and the metric that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// The proposal of the metric.
    pub(crate) proposal: i32,
    /// Time from the due time to the start.
    pub(crate) late: u64,
    /// Time from the start to the decision.
    pub(crate) read: u64,
    /// Time from the decision to the end of the Scale's write, in a sync with a rescale.
    pub(crate) scale: u64,
    /// Time of the write of the status.
    pub(crate) status: u64,
    pub(crate) after: Option<Event>,
}

/// One HPA and its load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case {
    /// The sync period in milliseconds.
    pub(crate) period: u64,
    /// `behavior`: the rules for scaling up and down.
    pub(crate) behavior: Option<[Rules; 2]>,
    /// `--horizontal-pod-autoscaler-downscale-stabilization` in seconds.
    pub(crate) downscale: u64,
    pub(crate) max: i32,
    pub(crate) replicas: i32,
    pub(crate) steps: Vec<Step>,
}

/// One sync of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Synced {
    pub(crate) start: u64,
    /// The count after the sync.
    pub(crate) replicas: i32,
}

/// The syncs of upstream's controller.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) syncs: Vec<Synced>,
    /// Whether a decision would differ if each period were longer by the `stretch` of the run.
    pub(crate) is_tight: bool,
}

/// An entry of the memory.
#[derive(Debug, Clone, Copy)]
struct Entry {
    at: u64,
    /// The number of the sync that added the entry.
    sync: usize,
    replicas: i32,
}

/// The memory of upstream's controller for one HPA.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    proposals: Vec<Entry>,
    ups: Vec<Entry>,
    downs: Vec<Entry>,
    is_tight: bool,
}

/// The time of a sync.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now: u64,
    /// The number of the sync.
    pub(crate) sync: usize,
    /// Each period may be up to this much longer in the compared run.
    pub(crate) stretch: u64,
}

/// Plays a case with upstream's queue. Each period may be up to `stretch` longer in the compared run.
pub(crate) fn play(case: &Case, stretch: u64) -> Run {
    let (mut memory, mut syncs) = (Memory::default(), Vec::new());
    let (mut replicas, mut free) = (case.replicas, 0);
    let (mut next, mut waiting) = (0, None::<u64>);
    for (sync, step) in case.steps.iter().enumerate() {
        let start = free.max(next) + step.late;
        let moment = Moment { now: start + step.read, sync, stretch };
        let desired = memory.decide(case, replicas, step.proposal, moment);
        let mut end = moment.now;
        if desired != replicas {
            end += step.scale;
            memory.rescaled(case, desired - replicas, Moment { now: end, ..moment });
            replicas = desired;
        }
        free = end + step.status;
        syncs.push(Synced { start, replicas });
        // The queue keeps the earlier of two times.
        let regular = waiting.take().map_or(free + case.period, |at| at.min(free + case.period));
        if let Some(Event::Edit(after)) = step.after {
            // With a later due time, such an edit would precede it.
            memory.is_tight |= stretch > 0 && (regular..=regular + stretch).contains(&(free + after));
        }
        next = match step.after {
            Some(Event::Edit(after)) if free + after < regular => {
                waiting = Some(regular);
                free + after
            }
            Some(Event::Failover(after)) => free + after,
            Some(Event::Edit(_) | Event::Jump(_)) | None => regular,
        };
    }
    Run { syncs, is_tight: memory.is_tight }
}

impl Memory {
    /// Whether `entry` is younger than `seconds`. An entry of exactly this age is not, unless `edge` is set.
    fn is_younger(&mut self, entry: Entry, seconds: u64, edge: bool, moment: Moment) -> bool {
        let (age, limit) = (moment.now - entry.at, seconds * 1000);
        let is_younger = age < limit || (edge && age == limit);
        let syncs = u64::try_from(moment.sync - entry.sync).unwrap();
        let stretched = syncs * moment.stretch;
        self.is_tight |= stretched > 0 && age <= limit && age + stretched >= limit;
        is_younger
    }

    /// Returns the count after a decision at `moment`.
    pub(crate) fn decide(&mut self, case: &Case, current: i32, proposal: i32, moment: Moment) -> i32 {
        if self.proposals.is_empty() {
            self.proposals.push(Entry { at: moment.now, sync: moment.sync, replicas: current });
        }
        match &case.behavior {
            None => self.without_behavior(case, current, proposal, moment),
            Some([up, down]) => {
                let stable = self.stabilized(up.window, down.window, current, proposal, moment);
                self.limited(case, [up, down], current, stable, moment)
            }
        }
    }

    fn without_behavior(&mut self, case: &Case, current: i32, proposal: i32, moment: Moment) -> i32 {
        let (mut highest, mut old) = (proposal, None);
        for (index, entry) in self.proposals.clone().into_iter().enumerate() {
            if self.is_younger(entry, case.downscale, true, moment) {
                highest = highest.max(entry.replicas);
            } else {
                old = Some(index);
            }
        }
        store(&mut self.proposals, old, proposal, moment);
        highest.clamp(1, case.max.min((2 * current).max(4)))
    }

    fn stabilized(&mut self, up: u64, down: u64, current: i32, proposal: i32, moment: Moment) -> i32 {
        let (mut lowest, mut highest, mut old) = (proposal, proposal, None);
        for (index, entry) in self.proposals.clone().into_iter().enumerate() {
            if self.is_younger(entry, up, false, moment) {
                lowest = lowest.min(entry.replicas);
            }
            if self.is_younger(entry, down, false, moment) {
                highest = highest.max(entry.replicas);
            }
            if !self.is_younger(entry, up.max(down), true, moment) {
                old = Some(index);
            }
        }
        store(&mut self.proposals, old, proposal, moment);
        current.max(lowest).min(highest)
    }

    fn limited(&mut self, case: &Case, rules: [&Rules; 2], current: i32, stable: i32, moment: Moment) -> i32 {
        let [up, down] = rules;
        match stable.cmp(&current) {
            Ordering::Greater => {
                stable.min(self.allowed(up, true, current, moment).max(current)).min(case.max)
            }
            Ordering::Less => stable.max(self.allowed(down, false, current, moment).min(current)).max(1),
            Ordering::Equal => current,
        }
    }

    /// The count that the selected policy allows.
    fn allowed(&mut self, rules: &Rules, up: bool, current: i32, moment: Moment) -> i32 {
        let mut counts = Vec::new();
        for policy in &rules.policies {
            let [added, removed] = [self.ups.clone(), self.downs.clone()].map(|events| {
                let young =
                    events.into_iter().filter(|event| self.is_younger(*event, policy.seconds, false, moment));
                young.map(|event| event.replicas).sum::<i32>()
            });
            let start = current - added + removed;
            let part = f64::from(policy.value) / 100.0;
            counts.push(match (policy.pods, up) {
                (true, true) => start + policy.value,
                (true, false) => start - policy.value,
                (false, true) => (f64::from(start) * (1.0 + part)).ceil() as i32,
                (false, false) => (f64::from(start) * (1.0 - part)) as i32,
            });
        }
        let (least, most) = (counts.iter().min().copied().unwrap(), counts.iter().max().copied().unwrap());
        match (rules.select, up) {
            ("Disabled", _) => current,
            ("Max", true) | ("Min", false) => most,
            _ => least,
        }
    }

    /// Stores a rescale of an HPA with `behavior`, with the time at the end of its write.
    pub(crate) fn rescaled(&mut self, case: &Case, change: i32, moment: Moment) {
        let Some([up, down]) = &case.behavior else { return };
        let rules = if change > 0 { up } else { down };
        let longest = rules.policies.iter().map(|policy| policy.seconds).max().unwrap_or(0);
        let events = if change > 0 { self.ups.clone() } else { self.downs.clone() };
        let mut old = None;
        for (index, event) in events.into_iter().enumerate() {
            if !self.is_younger(event, longest, true, moment) {
                old = Some(index);
            }
        }
        store(if change > 0 { &mut self.ups } else { &mut self.downs }, old, change.abs(), moment);
    }
}

/// Stores an entry in place of an old one, or appends it.
fn store(entries: &mut Vec<Entry>, old: Option<usize>, replicas: i32, Moment { now, sync, .. }: Moment) {
    let entry = Entry { at: now, sync, replicas };
    match old {
        Some(index) => entries[index] = entry,
        None => entries.push(entry),
    }
}
