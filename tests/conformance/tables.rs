//! The tables: quantities, selectors, label selectors, durations, event correlation.

use std::path::Path;

use autoscaling::event::{EventIntent, EventKind};
use concertina::api::events::correlate::{Correlator, Sending};
use concertina::cli::duration::GoDuration;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::rows::{self, Comparison};

/// Checks one table; the number of its rows. A table without rows, or one that nobody knows, fails.
pub(crate) fn check(file: &Path, rows: &[Value], differences: &mut Vec<String>) -> usize {
    assert!(!rows.is_empty(), "{} is empty", file.display());
    let name = file.file_name().unwrap().to_string_lossy();
    let table = name.strip_suffix(".jsonl.gz").unwrap();
    let row_check: fn(&Value) -> Vec<Comparison> = match table {
        "quantities" => rows::quantity,
        "selectors" => rows::selector,
        "label-selectors" => rows::label_selector,
        "durations" => duration,
        "event-correlation" => correlation,
        other => panic!("{}: no check for a table {other}", file.display()),
    };
    for row in rows {
        for (what, expected, got) in row_check(row) {
            if expected != got {
                differences.push(format!("{table}: {what} of {row}\n    expected {expected}\n    got      {got}"));
            }
        }
    }
    rows.len()
}

fn duration(row: &Value) -> Vec<Comparison> {
    let expected = json!([row["nanos"], row["printed"], row["error"]]);
    let got = match row["text"].as_str().unwrap().parse::<GoDuration>() {
        Ok(duration) => json!([duration.0, duration.to_string(), null]),
        Err(error) => json!([null, null, error.to_string()]),
    };
    vec![("duration", expected, got)]
}
