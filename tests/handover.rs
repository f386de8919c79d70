//! Replicas of this controller and the built-in loop act on the same HPAs in virtual time. Random schedules change
//! labels, kill replicas, make the webhook (the guard) unreachable, and edit the webhook configuration.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, unused_imports, reason = "shared with the tests of the whole loop, which use all of it")]
mod support;

#[path = "handover/guard.rs"]
mod guard;
#[path = "handover/invariants.rs"]
mod invariants;
#[path = "handover/links.rs"]
mod links;
#[path = "simulation/many_seeds.rs"]
#[allow(dead_code, reason = "shared with the simulation, which uses the rest")]
mod many_seeds;
#[path = "handover/plan.rs"]
mod plan;
#[path = "controller/handover/rig.rs"]
#[allow(dead_code, reason = "shared with the tests of the handover, which use all of it")]
mod rig;
#[path = "handover/world.rs"]
mod world;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::invariants::{Fact, Journal, Longest, Violation, Writer, check};
use crate::links::PlantedBug;
use crate::many_seeds::{each_seed, print};
use crate::plan::draw;

/// A fast allocator, because allocation takes a fifth of the time of a run.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of seeds that are tried for each planted bug.
const SEARCHED: u64 = 2000;

#[test]
fn every_hpa_has_one_writer_under_any_schedule() {
    let failures = run(&chosen());
    assert_eq!(failures, 0, "{failures} seeds failed");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs more seeds than run without optimisation")]
fn every_planted_bug_is_found() {
    let chosen = std::env::var("HANDOVER_PLANT").ok();
    let bugs = PlantedBug::ALL.iter().filter(|bug| chosen.as_ref().is_none_or(|name| name == bug.name()));
    let missed: Vec<_> = bugs.filter(|bug| first_failure(**bug, SEARCHED).is_none()).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn one_seed_writes_at_equal_times() {
    for seed in 0..if cfg!(debug_assertions) { 3 } else { 30 } {
        let [first, second] = [(), ()].map(|()| play(seed, None).journal.text());
        assert!(first.lines().count() > 50, "seed {seed}");
        assert_eq!(first, second, "seed {seed}");
    }
}

/// Seeds that run if `HANDOVER_SEEDS` is not set.
const SEEDS: Range<u64> = 0..if cfg!(debug_assertions) { 10 } else { 300 };
/// Maximum number of failures that are reported in full.
const FULL_REPORTS: u64 = 2;

/// The result of one seed.
struct Outcome {
    journal: Arc<Journal>,
    violation: Option<Violation>,
    longest: Longest,
    simulated: Duration,
}

/// Totals over all seeds, for the summary.
#[derive(Debug, Default)]
struct Tally {
    seeds: u64,
    /// Number of actions of the plans.
    events: u64,
    own: u64,
    foreign: u64,
    refused: u64,
    /// Number of seeds with a write by a controller that was not in charge of the HPA.
    double_writes: u64,
    longest: Longest,
    simulated: Duration,
    failures: u64,
}

/// The seeds in `HANDOVER_SEEDS`, or the default.
fn chosen() -> Range<u64> {
    many_seeds::chosen("HANDOVER_SEEDS", SEEDS)
}

/// Runs one seed.
fn play(seed: u64, bug: Option<PlantedBug>) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let plan = draw(seed);
    let journal = runtime.block_on(world::play(plan.clone(), seed, bug));
    let simulated = runtime.block_on(async { journal.now() });
    let (violation, longest) = check(&plan, &journal.facts(), simulated);
    Outcome { journal, violation, longest, simulated }
}

/// Runs all seeds and returns the number of failed seeds.
#[expect(clippy::disallowed_methods, reason = "the duration of the simulation is measured in real time")]
fn run(seeds: &Range<u64>) -> u64 {
    let started = std::time::Instant::now();
    let tally = Mutex::new(Tally::default());
    each_seed(seeds, |seed| {
        let outcome = play(seed, None);
        let mut tally = tally.lock();
        tally.add(&outcome);
        if let Some(Violation { invariant, at, text }) = &outcome.violation {
            print(&format!("seed {seed}: {invariant} does not hold at {at:?}: {text}"));
            if tally.failures <= FULL_REPORTS {
                print(&format!("{:?}\n{}", draw(seed), outcome.journal.text()));
            }
        }
    });
    let Tally { seeds, events, own, foreign, refused, double_writes, longest, simulated, failures } =
        tally.into_inner();
    let took = started.elapsed().as_secs_f64();
    let Longest { without_writer, without_leader, two_writers } = longest;
    print(&format!(
        "{seeds} seeds, {events} events, {own} writes of replicas, {foreign} of the built-in loop, {refused} refused, \
         {:.1} h simulated in {took:.1} s, {failures} failures, {double_writes} of them double writes; at most \
         {:.1} s without a writer, {:.1} s around the end of a leader, {:.3} s with two",
        simulated.as_secs_f64() / 3600.0,
        without_writer.as_secs_f64(),
        without_leader.as_secs_f64(),
        two_writers.as_secs_f64(),
    ));
    failures
}

/// The lowest seed below `seeds` that finds a planted bug.
fn first_failure(bug: PlantedBug, seeds: u64) -> Option<u64> {
    many_seeds::first_finding(bug.name(), seeds, |seed| {
        play(seed, Some(bug)).violation.map(|violation| violation.invariant)
    })
}

/// Whether a violation of the invariant is a write by a controller that was not in charge of the HPA.
fn is_double_write(invariant: &str) -> bool {
    matches!(invariant, "one-writer" | "silence-before-a-write" | "only-in-scope" | "only-the-leader-writes")
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.simulated += outcome.simulated;
        self.longest = self.longest.max(outcome.longest);
        let violated = outcome.violation.as_ref().map(|violation| violation.invariant);
        self.failures += u64::from(violated.is_some());
        self.double_writes += u64::from(violated.is_some_and(is_double_write));
        for (_, fact) in outcome.journal.facts() {
            match fact {
                Fact::Wrote { writer: Writer::Own(_), .. } => self.own += 1,
                Fact::Wrote { writer: Writer::BuiltIn, .. } => self.foreign += 1,
                Fact::Refused { .. } => self.refused += 1,
                Fact::Event(_) => self.events += 1,
                _ => {}
            }
        }
    }
}
