//! Runs many seeds on all cores and reports the results.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use parking_lot::Mutex;

use crate::bugs::PlantedBug;
use crate::draw::draw;
use crate::judge::{Violation, check};
use crate::many_seeds::{self, each_seed, print};
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

/// The seeds in `POLICY_SEEDS`, or the default.
pub(crate) fn chosen() -> Range<u64> {
    many_seeds::chosen("POLICY_SEEDS", SEEDS)
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
    let tally = Mutex::new(Tally::default());
    each_seed(seeds, |seed| {
        let outcome = play(seed, None);
        let mut tally = tally.lock();
        tally.add(seed, &outcome);
        if let Some(Violation { invariant, at, text }) = &outcome.violation {
            print(&format!("seed {seed}: {invariant} does not hold at {at} ms: {text}"));
            if tally.failures <= FULL_REPORTS {
                let lines = |text: String, item: String| text + &item + "\n";
                let events =
                    draw(seed).events.iter().map(|event| format!("{event:?}")).fold(String::new(), lines);
                let writes = outcome.facts.iter().map(|fact| format!("{fact:?}")).fold(String::new(), lines);
                print(&format!("{:?}\n{events}{writes}", draw(seed).bounds));
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
    many_seeds::first_finding(bug.name(), seeds, |seed| {
        play(seed, Some(bug)).violation.map(|violation| violation.invariant)
    })
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
