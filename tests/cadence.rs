//! The time between syncs, and its effect on counts: a model of upstream's queue, in which syncs take time, next to the
//! controller. A rate policy or a window of n sync periods ends at the n-th sync, as in upstream.
//!
//! - **One limit**: all combinations of one policy or one window of 1 to 8 periods, with both directions, kinds and
//!   selections, and with several latencies and late starts.
//! - **Drawn cases** (`draw`): behaviors, loads, latencies and late starts, with edits, failovers and clock jumps between
//!   syncs. `model` plays them, and `core` plays them with the rules, histories and schedule of the controller, without
//!   HTTP. Counts after each sync are equal. No sync is earlier than in upstream, and slots delay it by at most a
//!   hundredth of a period. `CADENCE_CASES` sets their number. A case is skipped if the age of an entry is so close to a
//!   limit that the slots may change a decision.
//! - **Whole controllers** (`whole`): 60 clusters with 40 HPAs each, 20 sync periods long, over HTTP against the embedded
//!   server, with drawn latencies and without slots. Specs are edited between and during syncs, policies set
//!   `syncPeriodSeconds`, clocks jump, and controllers leave their histories to a successor. `replay` gets only facts that
//!   the controller does not choose, the durations of requests and the arrivals of watch events, and derives the start
//!   and the count of each sync. `CADENCE_CLUSTERS` sets the number of clusters. An HPA is skipped if two of its events
//!   have the same millisecond.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and the numbers that are cast were drawn small"
)]

#[path = "cadence/core.rs"]
mod core;
#[path = "cadence/draw.rs"]
mod draw;
#[path = "simulation/many_seeds.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "other test binaries use the rest")]
mod many_seeds;
#[path = "cadence/model.rs"]
mod model;
#[path = "cadence/replay.rs"]
mod replay;
#[path = "cadence/whole.rs"]
mod whole;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use self::core::Phases;
use self::draw::{LONGEST, draw};
use self::many_seeds::{chosen, each_seed, print};
use self::model::{Case, RatePolicy, Rules, Step, Synced};
use self::replay::{Replayed, replay};

/// A fast allocator, because allocation takes a third of the time of a case.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The default number of drawn cases.
const CASES: u64 = if cfg!(debug_assertions) { 2_000 } else { 100_000 };
/// The default number of runs of whole controllers.
const CLUSTERS: u64 = if cfg!(debug_assertions) { 3 } else { 60 };
/// Number of cases that share a runtime.
const BATCH: u64 = 500;
/// By this fraction of the period, a slot moves a due time at most.
const MOVE: u64 = 100;
/// Number of differences that are printed.
const PRINTED: u64 = 3;

/// The result of the comparison of one case.
enum Outcome {
    Equal,
    /// The controller's slots may change a decision of the case, because an age is too close to a limit.
    Tight,
    Different(String),
}

/// Runs `future` in virtual time.
fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(future)
}

/// Compares a case in the model and in the core of the controller. Counts are equal at each sync. No sync is earlier
/// than in upstream, and slots delay each sync by at most a fraction of the period. With the planted bug, only counts
/// are compared.
async fn compare(case: &Case, phases: Phases, number: u64) -> Outcome {
    let stretch = if phases == Phases::Slots { case.period / MOVE } else { 0 };
    let expected = model::play(case, stretch);
    if expected.is_tight {
        return Outcome::Tight;
    }
    let syncs = core::play(case, phases, number).await;
    for (index, (ours, theirs)) in syncs.iter().zip(&expected.syncs).enumerate() {
        let latest = theirs.start + u64::try_from(index).unwrap() * (stretch + 1);
        let is_on_time = phases == Phases::FromDueTime || (theirs.start..=latest).contains(&ours.start);
        if ours.replicas != theirs.replicas || !is_on_time {
            return Outcome::Different(format!("sync {index} is {ours:?}, in upstream {theirs:?}: {case:?}"));
        }
    }
    Outcome::Equal
}

/// Compares all cases. Odd cases have no slots. Returns the numbers of equal, tight and different cases.
fn compare_all(count: u64, has_bug: bool, case: impl Fn(u64) -> Case + Sync) -> [u64; 3] {
    let phases = |seed| match (has_bug, seed % 2) {
        (true, _) => Phases::FromDueTime,
        (false, 0) => Phases::Slots,
        (false, _) => Phases::NoSlots,
    };
    let totals = [const { AtomicU64::new(0) }; 3];
    each_seed(&(0..count.div_ceil(BATCH)), |batch| {
        in_virtual_time(async {
            for seed in batch * BATCH..((batch + 1) * BATCH).min(count) {
                let outcome = compare(&case(seed), phases(seed), seed).await;
                let index = match &outcome {
                    Outcome::Equal => 0,
                    Outcome::Tight => 1,
                    Outcome::Different(_) => 2,
                };
                let before = totals[index].fetch_add(1, Ordering::Relaxed);
                if let Outcome::Different(text) = outcome
                    && before < PRINTED
                    && !has_bug
                {
                    print(&format!("case {seed}: {text}"));
                }
            }
        });
    });
    totals.map(AtomicU64::into_inner)
}

/// A case with one policy or one window of `length` sync periods, and the number of the first sync that it lets change
/// the count, and of the second.
#[derive(Debug, Clone, Copy)]
struct Single {
    length: u64,
    is_window: bool,
    up: bool,
    pods: bool,
    select: &'static str,
    /// `selectPolicy` of the other direction.
    other: &'static str,
    period: u64,
    /// Duration of each request in milliseconds.
    latency: u64,
    /// Lateness of every third sync in milliseconds.
    late: u64,
}

impl Single {
    const COUNT: u64 = LONGEST * 2 * 2 * 2 * 2 * 3 * 2 * 4 * 2 * 2;

    /// All combinations, twice in a row: with slots and without.
    fn new(number: u64) -> Self {
        let mut rest = number / 2;
        let mut digit = |base: u64| {
            let digit = rest % base;
            rest /= base;
            usize::try_from(digit).unwrap()
        };
        Self {
            is_window: digit(2) == 0,
            up: digit(2) == 0,
            pods: digit(2) == 0,
            select: ["Max", "Min"][digit(2)],
            other: ["Max", "Min", "Disabled"][digit(3)],
            period: [15, 30][digit(2)],
            latency: [1, 13, 120, 400][digit(4)],
            late: [0, 2_000][digit(2)],
            length: digit(LONGEST) as u64 + 1,
        }
    }

    fn case(self) -> Case {
        let seconds = self.length * self.period;
        let policy = if self.is_window {
            RatePolicy { pods: true, value: 100_000, seconds: self.period }
        } else {
            RatePolicy { pods: self.pods, value: if self.pods { 3 } else { 10 }, seconds }
        };
        let rules = Rules {
            window: if self.is_window { seconds } else { 0 },
            select: self.select,
            policies: vec![policy],
        };
        let other = Rules { window: 0, select: self.other, policies: vec![policy] };
        let (low, high) = (100, if self.up { 50_000 } else { 4_000 });
        let (from, to) = if self.up { (low, high) } else { (high, low / 100) };
        let changes_at = if self.is_window { WINDOW_STARTS } else { 0 };
        let steps = (0..changes_at + self.length * 3 + 2).map(|index| Step {
            proposal: if index < changes_at { from } else { to },
            late: if index % 3 == 1 { self.late } else { 0 },
            read: self.latency,
            scale: self.latency,
            status: self.latency,
            after: None,
        });
        Case {
            period: self.period * 1000,
            behavior: Some(if self.up { [rules, other] } else { [other, rules] }),
            downscale: 300,
            max: 100_000,
            replicas: from,
            steps: steps.collect(),
        }
    }

    /// The numbers of the syncs that change the count, as the specification requires.
    fn changes(self) -> Vec<u64> {
        if self.is_window {
            // The last proposal before the change leaves the window at the sync `length` periods after it.
            vec![WINDOW_STARTS - 1 + self.length]
        } else {
            (0..self.length * 3 + 2).filter(|index| index % self.length == 0).collect()
        }
    }
}

/// The sync at which the load of a case with a window changes.
const WINDOW_STARTS: u64 = 4;

/// The numbers of the syncs that change the count.
fn changes(replicas: i32, syncs: &[Synced]) -> Vec<u64> {
    let before = [replicas].into_iter().chain(syncs.iter().map(|sync| sync.replicas));
    let changed = before.zip(syncs).zip(0..).filter(|((before, sync), _)| *before != sync.replicas);
    changed.map(|(_, index)| index).collect()
}

#[test]
fn policy_or_window_of_n_periods_ends_at_the_nth_sync() {
    for number in 0..Single::COUNT / 2 {
        let single = Single::new(number * 2);
        let case = single.case();
        let run = model::play(&case, 0);
        assert_eq!(changes(case.replicas, &run.syncs), single.changes(), "the model, {single:?}");
    }
    let [equal, tight, different] = compare_all(Single::COUNT, false, |number| Single::new(number).case());
    print(&format!("{equal} cases of one policy or window equal, {tight} skipped, {different} different"));
    assert_eq!((tight, different), (0, 0));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the duration of the test is measured in real time")]
fn counts_are_those_of_upstreams_queue() {
    let started = std::time::Instant::now();
    let count = chosen("CADENCE_CASES", 0..CASES).end;
    let [equal, tight, different] = compare_all(count, false, draw);
    let took = started.elapsed().as_secs_f64();
    print(&format!("{equal} drawn cases equal, {tight} skipped, {different} different in {took:.1} s"));
    assert_eq!(different, 0);
    assert!(tight * 10 < count, "{tight} of {count} cases are skipped");
}

#[test]
fn schedule_from_due_times_is_found() {
    let [.., single] = compare_all(Single::COUNT, true, |number| Single::new(number).case());
    let [.., drawn] = compare_all(CASES / 10, true, draw);
    print(&format!(
        "planted bug: {single} of {} single and {drawn} of {} drawn cases differ",
        Single::COUNT,
        CASES / 10
    ));
    assert!(single >= Single::COUNT / 2 && drawn > CASES / 20);
}

/// The totals of the replays of whole controllers.
#[derive(Debug, Default)]
struct Totals {
    equal: u64,
    ties: u64,
    different: u64,
    syncs: usize,
    /// Syncs for new HPAs and changed specs.
    changes: usize,
    /// Syncs that were skipped because the watch had not delivered the last status.
    skips: usize,
}

/// Runs whole controllers and replays what happened to each HPA in the model.
fn compare_controllers(clusters: u64, has_bug: bool) -> Totals {
    let totals = Mutex::new(Totals::default());
    each_seed(&(0..clusters), |seed| {
        let plan = Arc::new(draw::plan(seed));
        let facts = in_virtual_time(whole::play(Arc::clone(&plan), has_bug));
        let mut totals = totals.lock();
        for (number, (hpa, facts)) in plan.hpas.iter().zip(&facts).enumerate() {
            match replay(hpa, facts, plan.period) {
                Replayed::Equal { syncs, changes, skips } => {
                    totals.equal += 1;
                    totals.syncs += syncs;
                    totals.changes += changes;
                    totals.skips += skips;
                }
                Replayed::Tie => totals.ties += 1,
                Replayed::Different(text) => {
                    totals.different += 1;
                    if totals.different <= PRINTED && !has_bug {
                        print(&format!("cluster {seed}, HPA {number}: {text}: {hpa:?}, {facts:?}"));
                    }
                }
            }
        }
    });
    totals.into_inner()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the duration of the test is measured in real time")]
fn whole_controllers_sync_when_upstream_does_and_to_its_counts() {
    let started = std::time::Instant::now();
    let clusters = chosen("CADENCE_CLUSTERS", 0..CLUSTERS).end;
    let totals = compare_controllers(clusters, false);
    print(&format!("{clusters} clusters: {totals:?} in {:.1} s", started.elapsed().as_secs_f64()));
    assert_eq!(totals.different, 0);
    assert!(totals.ties * 10 < clusters * draw::HPAS as u64, "{totals:?}");
    assert!(totals.skips > 0 && totals.changes > 0, "{totals:?}");
}

#[test]
fn due_time_from_the_start_of_a_sync_is_found_in_whole_controllers() {
    let totals = compare_controllers(CLUSTERS.div_ceil(10), true);
    print(&format!("planted bug in whole controllers: {totals:?}"));
    assert!(totals.different > 9 * totals.equal, "{totals:?}");
}
