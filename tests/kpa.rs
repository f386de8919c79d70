//! Replays recorded decisions of Knative's Autoscaler through the crate `burst`.
//!
//! `CONCERTINA_KPA=folder` replays the recordings of another folder and its subfolders. `tests/kpa` creates recordings.
//! The test fails if the folder is missing or contains no recording.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use burst::{Autoscaler, Settings};
use serde::Deserialize;

/// Maximum number of printed differences.
const PRINTED: usize = 10;
/// Unix time of second 0 of the recordings, a whole minute.
const START: i64 = 1_800_000_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Scenario {
    name: String,
    spec: Spec,
    initial_ready: i32,
    ticks: Vec<Tick>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    target_value: f64,
    stable_window_seconds: u32,
    panic_window_seconds: u32,
    panic_threshold: f64,
    max_scale_up_rate: f64,
    max_scale_down_rate: f64,
    scale_down_delay_seconds: u32,
    activation_scale: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tick {
    at: i64,
    samples: Option<Vec<Sample>>,
    ready: i32,
    valid: bool,
    desired: i32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    at: i64,
    value: f64,
}

impl From<&Spec> for Settings {
    fn from(spec: &Spec) -> Self {
        Self {
            target: spec.target_value,
            stable_window: spec.stable_window_seconds,
            panic_window: spec.panic_window_seconds,
            panic_threshold: spec.panic_threshold,
            max_scale_up_rate: spec.max_scale_up_rate,
            max_scale_down_rate: spec.max_scale_down_rate,
            scale_down_delay: spec.scale_down_delay_seconds,
            activation_scale: spec.activation_scale,
        }
    }
}

#[test]
fn burst_reproduces_every_recorded_decision() {
    let folder = std::env::var_os("CONCERTINA_KPA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/kpa"), PathBuf::from);
    let mut files = Vec::new();
    collect(&folder, &mut files);
    assert!(!files.is_empty(), "no recordings (*.jsonl.gz) in {}", folder.display());

    let (mut scenarios, mut ticks, mut differences) = (0_usize, 0, 0_usize);
    for file in &files {
        let compressed =
            std::fs::File::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for line in BufReader::new(flate2::read::MultiGzDecoder::new(compressed)).lines() {
            let line = line.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let scenario: Scenario =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            scenarios += 1;
            ticks += scenario.ticks.len();
            if let Some(difference) = replay(&scenario) {
                differences += 1;
                if differences <= PRINTED {
                    println!("{difference}");
                }
            }
        }
    }

    // The summary is written directly, because the test runner hides the output of passing tests.
    let summary = format!("burst: {scenarios} scenarios, {ticks} decisions, {differences} differences\n");
    std::io::stdout().write_all(summary.as_bytes()).unwrap();
    assert!(differences == 0, "{differences} scenarios differ, the first {PRINTED} above");
}

/// Returns the first difference of a scenario, if any.
fn replay(scenario: &Scenario) -> Option<String> {
    let settings = Settings::from(&scenario.spec);
    let mut autoscaler = Autoscaler::new(settings, scenario.initial_ready, START).expect("recorded settings");
    for tick in &scenario.ticks {
        for sample in tick.samples.iter().flatten() {
            autoscaler.record(START + sample.at, sample.value).expect("a recorded sample");
        }
        let decision = autoscaler.decide(START + tick.at, tick.ready);
        let (valid, desired) = decision.map_or((false, 0), |decision| (true, decision.replicas));
        if (valid, desired) != (tick.valid, tick.desired) {
            return Some(format!(
                "{} at {} s: recorded {} {}, decided {valid} {desired}: {decision:?}",
                scenario.name, tick.at, tick.valid, tick.desired
            ));
        }
    }
    None
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, files);
        } else if path.to_string_lossy().ends_with(".jsonl.gz") {
            files.push(path);
        }
    }
}
