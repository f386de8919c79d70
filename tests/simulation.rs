//! Whole processes run in virtual time against the embedded cluster, under faults that are drawn from seeds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and the numbers that are cast were drawn small"
)]

#[path = "simulation/api_link.rs"]
mod api_link;
#[path = "simulation/faults.rs"]
mod faults;
#[path = "simulation/generate.rs"]
mod generate;
#[path = "simulation/ideal_history.rs"]
mod ideal_history;
#[path = "simulation/invariants/mod.rs"]
mod invariants;
#[path = "simulation/many_seeds.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod many_seeds;
#[path = "simulation/metrics_backend.rs"]
mod metrics_backend;
#[path = "simulation/plan.rs"]
mod plan;
#[path = "simulation/plans/mod.rs"]
mod plans;
#[path = "simulation/process.rs"]
mod process;
#[path = "simulation/request_log.rs"]
mod request_log;
#[path = "simulation/run.rs"]
mod run;
#[path = "simulation/seeded_bugs.rs"]
mod seeded_bugs;
#[path = "simulation/seeds.rs"]
mod seeds;
#[path = "simulation/tenants.rs"]
mod tenants;
#[path = "simulation/world.rs"]
mod world;

use std::sync::Arc;

use crate::plan::Selection;
use crate::seeded_bugs::SeededBug;

/// A fast allocator, because allocation takes a fifth of the time of a run.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of seeds that are tried for each planted bug.
const SEARCHED: u64 = 1000;

/// Number of ordinary seeds that are tried for all planted bugs. Ordinary seeds favour no bug.
const ORDINARY: u64 = 200;

/// Seeds that run if `CONCERTINA_SEEDS` is not set.
const SEEDS: std::ops::Range<u64> = 0..if cfg!(debug_assertions) { 10 } else { 3000 };

#[test]
fn nothing_is_lost_under_any_fault() {
    let chosen = std::env::var("CONCERTINA_PLANT").ok();
    if chosen.as_deref() == Some("list") {
        let names: Vec<_> = SeededBug::ALL.iter().map(|plant| plant.name()).collect();
        many_seeds::print(&format!("planted bugs: {}", names.join(", ")));
        return;
    }
    let plant = chosen.map(|name| {
        SeededBug::named(&name)
            .unwrap_or_else(|| panic!("CONCERTINA_PLANT: unknown bug {name:?}; `list` prints the names"))
    });
    let failures = seeds::run(&seeds::chosen(SEEDS), plant);
    assert_eq!(failures, 0, "{failures} seeds failed");
}

#[test]
fn seeds_replace_watches_that_hang() {
    let plans = (0..).map(|seed| generate::generate(seed, None));
    let hangs = |plan: &plan::Plan| plan.faults.iter().any(|fault| !fault.aftermath().is_zero());
    let replaced = plans.filter(hangs).take(20).find_map(|plan| {
        let plan = Arc::new(plan);
        let trial = seeds::attempt(&plan, &Selection::all(&plan), None);
        assert!(trial.violation.is_none(), "seed {}: {:?}", plan.seed, trial.violation);
        (trial.outcome.silent_watches > 0).then_some(plan.seed)
    });
    assert!(replaced.is_some(), "no seed has replaced a watch");
    many_seeds::print(&format!("seed {} replaces a watch that hangs", replaced.unwrap_or_default()));
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs more seeds than run without optimisation")]
fn every_planted_bug_is_found() {
    let found: Vec<_> = std::thread::scope(|scope| {
        let searches: Vec<_> = SeededBug::ALL
            .iter()
            .map(|plant| scope.spawn(|| (plant.name(), seeds::finds(*plant, 0..SEARCHED))))
            .collect();
        searches.into_iter().map(|search| search.join().unwrap()).collect()
    });
    for (name, found) in &found {
        match found {
            Some((seed, invariant)) => {
                many_seeds::print(&format!("{name}: found by seed {seed}: {invariant}"));
            }
            None => many_seeds::print(&format!("{name}: not found")),
        }
    }
    let missed: Vec<_> = found.iter().filter(|(_, found)| found.is_none()).map(|(name, _)| *name).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs more seeds than run without optimisation")]
fn ordinary_seeds_find_half_of_the_planted_bugs() {
    let found = seeds::ordinary_finds(&(0..ORDINARY));
    for (plant, seed) in &found {
        let favoured = if plant.is_favoured() { " (favoured elsewhere)" } else { "" };
        match seed {
            Some(seed) => {
                many_seeds::print(&format!("{}{favoured}: found by ordinary seed {seed}", plant.name()));
            }
            None => {
                many_seeds::print(&format!(
                    "{}{favoured}: not found by {ORDINARY} ordinary seeds",
                    plant.name()
                ));
            }
        }
    }
    let count = found.iter().filter(|(_, seed)| seed.is_some()).count();
    assert!(count * 2 >= found.len(), "{count} of {} found", found.len());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the duration of the simulation is measured in real time")]
fn simulation_speed_is_reported_for_an_hour_of_twenty_hpas() {
    let plan = Arc::new(generate::steady(20, 5, std::time::Duration::from_hours(1)));
    let started = std::time::Instant::now();
    let outcome = seeds::run_plan(&plan, &Selection::all(&plan), None);
    let (simulated, took) = (outcome.simulated, started.elapsed());
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    assert!(outcome.syncs >= 20 * 238, "{}", outcome.syncs);
    many_seeds::print(&format!(
        "20 HPAs with 5 pods each: {} syncs in {simulated:?}, simulated in {took:?}, {:.0} times as fast",
        outcome.syncs,
        simulated.as_secs_f64() / took.as_secs_f64(),
    ));
}

#[test]
fn one_seed_sends_equal_requests_at_equal_times() {
    for seed in 0..if cfg!(debug_assertions) { 5 } else { 60 } {
        let plan = Arc::new(generate::generate(seed, None));
        let run = || seeds::run_plan(&plan, &Selection::all(&plan), None).run.log();
        let (first, second) = (run(), run());
        assert!(first.len() > 20, "seed {seed} sends only {} requests", first.len());
        for (one, other) in first.iter().zip(&second) {
            assert_eq!(one, other, "seed {seed}");
        }
        assert_eq!(first.len(), second.len());
    }
}
