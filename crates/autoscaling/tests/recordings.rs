//! Replays every recording of upstream with the core alone, without HTTP, queue or cluster.
//!
//! The root package's `conformance` test compares the whole controller with the same recordings. This test is fast
//! enough to run for every mutant of the core. It compares scale writes, status and events before correlation.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "recordings/recomputation.rs"]
mod recomputation;
#[path = "recordings/scenario.rs"]
mod scenario;
#[path = "recordings/world.rs"]
mod world;

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

#[test]
fn every_recorded_decision_is_reproduced() {
    let folder = std::env::var_os("CONCERTINA_CONFORMANCE")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance"), PathBuf::from);
    let mut files = Vec::new();
    collect(&folder, &mut files);
    assert!(!files.is_empty(), "no recordings in {}", folder.display());
    let (mut scenarios, mut syncs) = (0, 0);
    let mut differences = Vec::new();
    for file in files {
        let mut text = String::new();
        let compressed = std::fs::File::open(&file).unwrap();
        flate2::read::MultiGzDecoder::new(compressed).read_to_string(&mut text).unwrap();
        for line in text.lines() {
            let recording: Value = serde_json::from_str(line).unwrap();
            scenarios += 1;
            syncs += scenario::play(&recording, &mut differences);
        }
    }
    for difference in differences.iter().take(20) {
        println!("{difference}\n");
    }
    println!(
        "{scenarios} scenarios, {syncs} syncs, each computed again from its explanation, {} differences",
        differences.len()
    );
    assert!(differences.is_empty(), "{} differences", differences.len());
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "tables" && name != "kpa") {
                collect(&path, files);
            }
        } else if path.to_string_lossy().ends_with(".jsonl.gz") {
            files.push(path);
        }
    }
}
