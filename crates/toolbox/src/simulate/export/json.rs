//! The JSON of a comparison.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::run::{Comparison, Run};

/// The format version. Increases when a field is removed or changes its meaning.
const VERSION: u32 = 1;

/// All values in one line of JSON: each run with its HPAs and their samples, metrics, decisions with all
/// steps, events and scores. Times are seconds since the start, except times in RFC 3339.
pub fn json(comparison: &Comparison) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        version: u32,
        runs: &'a [Run],
        notes: &'a BTreeMap<String, String>,
    }
    let Comparison { runs, notes } = comparison;
    // These types always serialize.
    let mut text = serde_json::to_string(&Document { version: VERSION, runs, notes }).unwrap_or_default();
    text.push('\n');
    text
}
