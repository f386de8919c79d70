//! Replays every recorded decision of the reference through the whole controller, with watches, HTTP and
//! events, against the embedded cluster in virtual time. Then checks the tables of the reference's text
//! formats.
//!
//! `CONCERTINA_CONFORMANCE=folder` replays the recordings of another folder and its subfolders. The test
//! fails if the folder is missing or contains no recording.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "conformance/compare.rs"]
mod compare;
#[path = "support/link.rs"]
mod link;
#[path = "conformance/replay.rs"]
mod replay;
#[path = "../crates/autoscaling/tests/tables/rows.rs"]
mod rows;
#[path = "conformance/tables.rs"]
mod tables;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::replay::Targets;

/// Maximum number of differences that are printed in full.
const PRINTED: usize = 10;

#[test]
fn whole_controller_reproduces_every_recorded_decision() {
    let folder = std::env::var_os("CONCERTINA_CONFORMANCE")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance"), PathBuf::from);
    let mut files = Vec::new();
    collect(&folder, &mut files);
    let (table_files, recordings): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| file.parent().is_some_and(|folder| folder.ends_with("tables")));
    assert!(!recordings.is_empty(), "no recordings (*.jsonl.gz) in {}", folder.display());

    let (mut scenarios, mut syncs, mut watched) = (0, 0, 0);
    let mut differences = Vec::new();
    for file in &recordings {
        for recording in lines(file) {
            scenarios += 1;
            syncs += replay::scenario(&recording, Targets::Bare, &mut differences);
            if replay::has_workloads(&recording) {
                watched += replay::scenario(&recording, Targets::Watched, &mut differences);
            }
        }
    }
    let mut rows = 0;
    for file in &table_files {
        rows += tables::check(file, &lines(file), &mut differences);
    }

    for difference in differences.iter().take(PRINTED) {
        println!("{difference}\n");
    }
    // Written directly, since the test runner hides the output of passing tests.
    let summary = format!(
        "conformance: {scenarios} scenarios, {syncs} syncs, {watched} of them also with watched targets, {rows} table \
         rows, {} differences\n",
        differences.len()
    );
    std::io::stdout().write_all(summary.as_bytes()).unwrap();
    assert!(differences.is_empty(), "{} differences, the first {PRINTED} above", differences.len());
}

fn lines(file: &Path) -> Vec<Value> {
    let compressed = std::fs::File::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(compressed)
        .read_to_string(&mut text)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parse =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.lines().filter(|line| !line.is_empty()).map(parse).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            // The test `kpa` replays these recordings of another autoscaler.
            if !path.ends_with("kpa") {
                collect(&path, files);
            }
        } else if path.to_string_lossy().ends_with(".jsonl.gz") {
            files.push(path);
        }
    }
}
