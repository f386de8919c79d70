//! Whole processes in virtual time against the embedded cluster, under faults drawn from seeds.

#![cfg(feature = "tools")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and what is cast was drawn small"
)]

#[path = "simulation/clock.rs"]
mod clock;
#[path = "simulation/dice.rs"]
mod dice;
#[path = "simulation/generate.rs"]
mod generate;
#[path = "simulation/judge.rs"]
mod judge;
#[path = "simulation/ledger.rs"]
mod ledger;
#[path = "simulation/memory.rs"]
mod memory;
#[path = "simulation/plan.rs"]
mod plan;
#[path = "simulation/plants.rs"]
mod plants;
#[path = "simulation/process.rs"]
mod process;
#[path = "simulation/readings.rs"]
mod readings;
#[path = "simulation/run.rs"]
mod run;
#[path = "simulation/seeds.rs"]
mod seeds;
#[path = "simulation/trial.rs"]
mod trial;
#[path = "simulation/way.rs"]
mod way;
#[path = "simulation/weather.rs"]
mod weather;
#[path = "simulation/world.rs"]
mod world;

use crate::plants::Plant;

/// The seeds of a run that names none.
const SEEDS: std::ops::Range<u64> = 0..if cfg!(debug_assertions) { 100 } else { 3000 };

#[test]
fn nothing_is_lost_and_nothing_is_wrong_under_any_fault() {
    let chosen = std::env::var("CONCERTINA_PLANT").ok();
    if chosen.as_deref() == Some("list") {
        let names: Vec<_> = Plant::ALL.iter().map(|plant| plant.name()).collect();
        seeds::say(&format!("planted bugs: {}", names.join(", ")));
        return;
    }
    let plant = chosen.map(|name| {
        Plant::named(&name)
            .unwrap_or_else(|| panic!("CONCERTINA_PLANT: there is no {name:?}; `list` lists them"))
    });
    let failures = seeds::run(&seeds::chosen(SEEDS), plant);
    assert_eq!(failures, 0, "{failures} seeds failed");
}
