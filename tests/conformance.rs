//! Replays every recorded decision of the reference, kube-controller-manager, through the whole controller in virtual
//! time. Watches, HTTP and events use the embedded cluster. Then checks the recorded tables of text formats and of
//! event correlation.
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
#[path = "conformance/replay.rs"]
mod replay;
#[path = "../crates/autoscaling/tests/tables/rows.rs"]
mod rows;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use autoscaling::duration::GoDuration;
use autoscaling::event::{EventIntent, EventKind};
use autoscaling::settings::Version;
use cluster::events::{Correlated, Correlator, EventTarget, Verdict};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::replay::Targets;
use crate::rows::Comparison;

/// Of this many scenarios of a file, one is replayed. Without optimisation, all of them take twenty minutes, and the core
/// alone replays all of them in its own tests.
const EVERY: usize = if cfg!(debug_assertions) { 10 } else { 1 };
/// Maximum number of differences that are printed in full.
const PRINTED: usize = 10;

#[test]
fn whole_controller_reproduces_every_recorded_decision() {
    let given = std::env::var_os("CONCERTINA_CONFORMANCE");
    let every = if given.is_some() { 1 } else { EVERY };
    let folder =
        given.map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance"), PathBuf::from);
    let mut files = Vec::new();
    collect(&folder, &mut files);
    let (table_files, recordings): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| file.parent().is_some_and(|folder| folder.ends_with("tables")));
    assert!(!recordings.is_empty(), "no recordings (*.jsonl.gz) in {}", folder.display());

    let (mut scenarios, mut syncs, mut watched) = (0, 0, 0);
    let mut differences = Vec::new();
    for file in &recordings {
        for recording in lines(file).into_iter().step_by(every) {
            scenarios += 1;
            syncs += replay::scenario(&recording, Targets::Bare, &mut differences);
            if replay::has_workloads(&recording) {
                watched += replay::scenario(&recording, Targets::Watched, &mut differences);
            }
        }
    }
    let mut rows = 0;
    for file in &table_files {
        rows += check_table(file, &lines(file), &mut differences);
    }

    for difference in differences.iter().take(PRINTED) {
        println!("{difference}\n");
    }
    // The summary is written directly, because the test runner hides the output of passing tests.
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
            // The test `kpa` replays the recordings of Knative's Autoscaler.
            if !path.ends_with("kpa") {
                collect(&path, files);
            }
        } else if path.to_string_lossy().ends_with(".jsonl.gz") {
            files.push(path);
        }
    }
}

/// Checks one table and returns the number of its rows. Panics if the table is empty or unknown.
fn check_table(file: &Path, rows: &[Value], differences: &mut Vec<String>) -> usize {
    assert!(!rows.is_empty(), "{} is empty", file.display());
    let name = file.file_name().unwrap().to_string_lossy();
    let table = name.strip_suffix(".jsonl.gz").unwrap();
    let version = rows::version_of(file);
    let row_check: fn(&Value, Version) -> Vec<Comparison> = match table {
        "quantities" => rows::quantity,
        "selectors" => rows::selector,
        "label-selectors" => rows::label_selector,
        "durations" => duration,
        "event-correlation" => correlation,
        other => panic!("{}: unknown table {other}", file.display()),
    };
    for row in rows {
        for (part, expected, got) in row_check(row, version) {
            if expected != got {
                differences
                    .push(format!("{table}: {part} of {row}\n    expected {expected}\n    got      {got}"));
            }
        }
    }
    rows.len()
}

fn duration(row: &Value, _: Version) -> Vec<Comparison> {
    let expected = json!([row["nanos"], row["printed"], row["error"]]);
    let got = match row["text"].as_str().unwrap().parse::<GoDuration>() {
        Ok(duration) => json!([duration.0, duration.to_string(), null]),
        Err(error) => json!([null, null, error.to_string()]),
    };
    vec![("duration", expected, got)]
}

/// Passes a sequence of events to one correlator, and compares its verdict on each event.
fn correlation(row: &Value, _: Version) -> Vec<Comparison> {
    let mut correlator = Correlator::default();
    let start: Timestamp = "2000-01-01T00:00:00Z".parse().unwrap();
    let steps = row["steps"].as_array().unwrap().iter();
    let compared = steps.filter_map(|step| {
        let now = start + SignedDuration::from_secs(step["at"].as_i64().unwrap());
        let object = step["object"].as_str().unwrap();
        let target = EventTarget {
            namespace: "shop".into(),
            name: object.into(),
            uid: object.into(),
            resource_version: "1".into(),
        };
        let intent = EventIntent {
            kind: if step["type"] == "Normal" { EventKind::Normal } else { EventKind::Warning },
            reason: reason(step["reason"].as_str().unwrap()),
            message: step["message"].as_str().unwrap().to_owned(),
        };
        let outcome = |verb: &str, event: &Correlated| {
            let first = event.first.duration_since(start).as_secs();
            json!({ "count": event.count, "firstSeconds": first, "message": event.message, "verb": verb })
        };
        let got = match correlator.correlate(&target, &intent, now, || "name".to_owned()) {
            Verdict::Drop => json!({ "verb": "none" }),
            Verdict::Create(event) => outcome("POST", &event),
            Verdict::Update(event) => outcome("PATCH", &event),
        };
        let expected = &step["expect"];
        if expected["any"] == true {
            return None;
        }
        let expected = if expected["verb"] == "none" { json!({ "verb": "none" }) } else { expected.clone() };
        Some(("step", expected, got))
    });
    compared.collect()
}

/// Leaks the text, because the controller requires static reasons.
fn reason(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}
