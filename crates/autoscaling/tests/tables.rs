//! Compares the tables of `tests/conformance/tables` with the core, row by row.
//!
//! `CONCERTINA_CONFORMANCE` selects another folder instead of `tests/conformance`. Such a folder need not
//! contain `tables`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "tables/rows.rs"]
mod rows;

use std::io::Read;
use std::path::PathBuf;

use serde_json::Value;

use rows::Comparison;

/// Maximum number of printed differences per table.
const SHOWN: usize = 10;

#[test]
fn every_quantity_parses_and_prints_as_in_upstream() {
    check("quantities", rows::quantity);
}

#[test]
fn every_selector_parses_prints_and_matches_as_in_upstream() {
    check("selectors", rows::selector);
}

#[test]
fn every_label_selector_converts_and_prints_as_in_upstream() {
    check("label-selectors", rows::label_selector);
}

fn check(table: &str, row_check: fn(&Value) -> Vec<Comparison>) {
    let named = std::env::var_os("CONCERTINA_CONFORMANCE").map(PathBuf::from);
    let replaced = named.is_some();
    let ours = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    let folder = named.unwrap_or_else(ours).join("tables");
    if replaced && !folder.is_dir() {
        println!("{table}: no rows, {} does not exist", folder.display());
        return;
    }
    let path = folder.join(format!("{table}.jsonl.gz"));
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
    let (mut rows, mut differences) = (0, Vec::new());
    for line in text.lines() {
        rows += 1;
        let row: Value = serde_json::from_str(line).unwrap();
        for (what, expected, got) in row_check(&row) {
            if expected != got {
                differences.push(format!("{what}: expected {expected}, got {got}\n  in {line}"));
            }
        }
    }
    for difference in differences.iter().take(SHOWN) {
        println!("{table}: {difference}");
    }
    assert!(rows > 0, "{} is empty", path.display());
    assert!(differences.is_empty(), "{table}: {rows} rows, {} differences", differences.len());
}
