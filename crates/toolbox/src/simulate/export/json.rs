//! The JSON of a comparison.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::run::{Comparison, Run};

/// The format version. Increases when a field is removed or changes its meaning.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    runs: &'a [Run],
    notes: &'a BTreeMap<String, String>,
}

impl<'a> Document<'a> {
    fn new(comparison: &'a Comparison) -> Self {
        let Comparison { runs, notes } = comparison;
        Self { version: VERSION, runs, notes }
    }
}

/// All values in one line of JSON: each run with its HPAs and their samples, metrics, decisions with all steps, events
/// and scores. Times are seconds since the start of the run, or timestamps in RFC 3339.
pub fn json(comparison: &Comparison) -> String {
    // These types always serialize.
    let mut text = serde_json::to_string(&Document::new(comparison)).unwrap_or_default();
    text.push('\n');
    text
}

/// The same values as [`json`], as one YAML document.
pub fn yaml(comparison: &Comparison) -> String {
    // These types always serialize.
    let text = serde_saphyr::to_string(&Document::new(comparison)).unwrap_or_default();
    format!("{}\n", text.trim_end())
}
