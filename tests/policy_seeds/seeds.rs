//! Runs many seeds on all cores and reports the results.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::bugs::PlantedBug;
use crate::draw::draw;
use crate::judge::{Violation, check};
use crate::world::{self, Write};

/// Seeds of a run without `POLICY_SEEDS`.
const SEEDS: Range<u64> = 0..if cfg!(debug_assertions) { 5 } else { 100 };
/// Number of failures that are reported in full.
const FULL_REPORTS: u64 = 2;

/// The result of one seed.
pub(crate) struct Outcome {
    pub(crate) facts: Vec<(i64, Write)>,
    pub(crate) violation: Option<Violation>,
    events: usize,
    judged: u64,
}

/// The totals of the summary.
#[derive(Default)]
struct Tally {
    seeds: u64,
    events: usize,
    writes: usize,
    judged: u64,
    failures: u64,
    digest: u64,
}

/// The seeds in `POLICY_SEEDS`, like `300` or `300..600`, or the default.
pub(crate) fn chosen() -> Range<u64> {
    let Ok(text) = std::env::var("POLICY_SEEDS") else { return SEEDS };
    let (from, to) = text.split_once("..").unwrap_or(("0", &text));
    let range = from.trim().parse().ok().zip(to.trim().parse().ok()).map(|(from, to)| from..to);
    range.unwrap_or_else(|| panic!("POLICY_SEEDS: {text:?} must be like 300 or 300..600"))
}

/// Runs one seed.
pub(crate) fn play(seed: u64, bug: Option<PlantedBug>) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let plan = draw(seed);
    let facts = runtime.block_on(world::play(&plan, bug));
    let (violation, judged) = check(&plan, &facts);
    Outcome { facts, violation, events: plan.events.len(), judged }
}

/// Runs all seeds and returns the number of failed seeds.
#[expect(clippy::disallowed_methods, reason = "the duration of the simulation is measured in real time")]
pub(crate) fn run(seeds: &Range<u64>) -> u64 {
    let started = std::time::Instant::now();
    let (next, tally) = (AtomicU64::new(seeds.start), Mutex::new(Tally::default()));
    each_core(|| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let outcome = play(seed, None);
            let mut tally = tally.lock();
            tally.add(seed, &outcome);
            if let Some(Violation { invariant, at, text }) = &outcome.violation {
                print(&format!("seed {seed}: {invariant} does not hold at {at} ms: {text}"));
                if tally.failures <= FULL_REPORTS {
                    let lines = |text: String, item: String| text + &item + "\n";
                    let events =
                        draw(seed).events.iter().map(|event| format!("{event:?}")).fold(String::new(), lines);
                    let writes =
                        outcome.facts.iter().map(|fact| format!("{fact:?}")).fold(String::new(), lines);
                    print(&format!("{:?}\n{events}{writes}", draw(seed).bounds));
                }
            }
        }
    });
    let Tally { seeds, events, writes, judged, failures, digest } = tally.into_inner();
    let took = started.elapsed().as_secs_f64();
    print(&format!(
        "{seeds} seeds with policies, {events} events, {writes} writes and {judged} quiet times judged in {took:.1} s, \
         {failures} failures, digest {digest:016x}"
    ));
    failures
}

/// The first of `seeds` seeds that finds a planted bug.
pub(crate) fn first_failure(bug: PlantedBug, seeds: u64) -> Option<u64> {
    let (next, first) = (AtomicU64::new(0), Mutex::new(None::<(u64, Violation)>));
    each_core(|| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds || first.lock().as_ref().is_some_and(|(found, _)| *found < seed) {
                return;
            }
            if let Some(violation) = play(seed, Some(bug)).violation {
                let mut first = first.lock();
                if first.as_ref().is_none_or(|(found, _)| *found > seed) {
                    *first = Some((seed, violation));
                }
            }
        }
    });
    let first = first.into_inner();
    match &first {
        Some((seed, Violation { invariant, .. })) => {
            print(&format!("{}: found by seed {seed}: {invariant}", bug.name()));
        }
        None => print(&format!("{}: not found by {seeds} seeds", bug.name())),
    }
    first.map(|(seed, _)| seed)
}

fn each_core(work: impl Fn() + Sync) {
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(&work);
        }
    });
}

/// Prints to standard error even if the test runner captures output.
fn print(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

impl Tally {
    fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.seeds += 1;
        self.events += outcome.events;
        self.writes += outcome.facts.len();
        self.judged += outcome.judged;
        self.failures += u64::from(outcome.violation.is_some());
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        for (at, Write { hpa, from, to }) in &outcome.facts {
            (at, hpa, from, to).hash(&mut hasher);
        }
        // The order of the seeds does not matter.
        self.digest ^= hasher.finish();
    }
}
