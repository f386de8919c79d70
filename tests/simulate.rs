//! `concertina simulate`: scenario files and what is wrong with them, runs that repeat, examples that show what they claim,
//! and the recordings of the reference that can be expressed as scenarios.

#![cfg(feature = "tools")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "simulate/course.rs"]
mod course;
#[path = "simulate/errors.rs"]
mod errors;
#[path = "simulate/examples.rs"]
mod examples;
#[path = "simulate/manifests.rs"]
mod manifests;
#[path = "simulate/recordings.rs"]
mod recordings;

use std::path::{Path, PathBuf};

use concertina::cli::{SimulateOptions, SimulateSource};
use concertina::commands::simulate::run::{Comparison, HpaRun};
use concertina::commands::simulate::{schema, simulate};

/// Writes a file for one test; its path.
fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn options(path: &Path) -> SimulateOptions {
    SimulateOptions { source: SimulateSource::File(path.to_owned()), ..SimulateOptions::default() }
}

/// Plays a scenario.
fn play(name: &str, text: &str) -> Comparison {
    simulate(&options(&file(name, text))).unwrap_or_else(|error| panic!("{error}"))
}

/// The only HPA of the only run.
fn only(comparison: &Comparison) -> &HpaRun {
    assert_eq!((comparison.runs.len(), comparison.runs[0].hpas.len()), (1, 1));
    &comparison.runs[0].hpas[0]
}

#[test]
fn the_stored_schema_is_that_of_the_format() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/simulate.schema.json");
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let is_same = stored.trim_end() == schema().trim_end();
    assert!(is_same, "concertina simulate --schema > docs/simulate.schema.json");
}
