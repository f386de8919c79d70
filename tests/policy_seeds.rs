//! Scaling policies that are created, edited and deleted, that expire and that contradict each other, in virtual time
//! and under random schedules, while leaders die. A model of the rules judges every write and every quiet time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, unused_imports, reason = "shared with the tests of the whole loop, which use all of it")]
mod support;

#[path = "policy_seeds/bugs.rs"]
mod bugs;
#[path = "policy_seeds/judge.rs"]
mod judge;
#[path = "simulation/many_seeds.rs"]
mod many_seeds;
#[path = "policy_seeds/model.rs"]
mod model;
#[path = "policy_seeds/plan.rs"]
mod plan;
#[path = "simulation/rng.rs"]
#[allow(dead_code, reason = "shared with the simulation, which uses all of it")]
mod rng;
#[path = "policy_seeds/seeds.rs"]
mod seeds;
#[path = "policy_seeds/world.rs"]
mod world;

use crate::bugs::PlantedBug;

/// A fast allocator, because allocation takes a fifth of the time of a run.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of seeds that are tried for each planted bug.
const SEARCHED: u64 = 500;

#[test]
fn every_write_follows_the_policies_of_its_hpa() {
    let failures = seeds::run(&seeds::chosen());
    assert_eq!(failures, 0, "{failures} seeds failed");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "needs more seeds than run without optimisation")]
fn every_planted_bug_is_found() {
    let chosen = std::env::var("POLICY_PLANT").ok();
    let bugs = PlantedBug::ALL.iter().filter(|bug| chosen.as_ref().is_none_or(|name| name == bug.name()));
    let missed: Vec<_> = bugs.filter(|bug| seeds::first_failure(**bug, SEARCHED).is_none()).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn one_seed_writes_at_equal_times() {
    for seed in 0..if cfg!(debug_assertions) { 2 } else { 20 } {
        let [first, second] = [(), ()].map(|()| seeds::play(seed, None).facts);
        assert!(!first.is_empty(), "seed {seed}");
        assert_eq!(first, second, "seed {seed}");
    }
}
