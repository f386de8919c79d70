//! The comparisons of shadow mode before a handover: those of the leader with `--shadow-others`, or else those of a
//! dry run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::page::PageReader;
use crate::words::counted;
use controller::shadow::wire::{Counts, ShadowReport};
use controller::store::Key;

/// The comparisons, by HPA.
#[derive(Debug, Default)]
pub(super) struct Comparisons {
    /// `None`: no comparison is available.
    by_hpa: Option<BTreeMap<Key, Counts>>,
}

/// The comparisons of one HPA, for documents.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HpaComparison {
    namespace: String,
    name: String,
    /// Changes of the built-in controller that Concertina would also have made.
    same: u64,
    /// Changes that only one controller made, or that differ.
    different: u64,
    /// Inconclusive comparisons.
    unknown: u64,
}

impl Comparisons {
    /// Reads the comparisons of up to 48 hours. Adds a note with the number of differing HPAs, or with the reason why
    /// no comparison is available.
    pub(super) async fn read(page: &mut PageReader, notes: &mut Vec<String>) -> Self {
        match page.read_comparisons().await {
            Ok(report) => {
                let comparisons = Self::new(&report);
                let differs = |counts: &&Counts| counts.differences() > 0;
                let differing = comparisons.by_hpa.iter().flat_map(BTreeMap::values).filter(differs).count();
                if differing > 0 {
                    notes.push(format!(
                        "in shadow mode {} of the cluster differed from the built-in controller: concertina parity lists \
                         each difference",
                        counted(differing, "HPA")
                    ));
                }
                comparisons
            }
            Err(error) => {
                notes.push(format!(
                    "no comparison with the built-in controller: {error}; run a shadow or --shadow-others first to \
                     compare"
                ));
                Self::default()
            }
        }
    }

    fn new(report: &ShadowReport) -> Self {
        let mut by_hpa = BTreeMap::<_, Counts>::new();
        // Rows without a name belong to HPAs beyond the maximum number of rows.
        for hour in report.hours.iter().filter(|hour| !hour.name.is_empty()) {
            *by_hpa.entry(Key::new(hour.namespace.as_str(), hour.name.as_str())).or_default() += hour.counts;
        }
        Self { by_hpa: Some(by_hpa) }
    }

    /// The comparisons of an HPA: `12 same`, `3 same, 1 different`, or empty without comparisons.
    pub(super) fn text(&self, key: &Key) -> String {
        let counts = self.by_hpa.as_ref().and_then(|by_hpa| by_hpa.get(key)).copied().unwrap_or_default();
        let parts = [(counts.same, "same"), (counts.differences(), "different"), (counts.unknown, "unknown")];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        parts.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    }

    /// The comparisons of the given HPAs, for documents. Empty if none is available.
    pub(super) fn rows(&self, keys: &[Key]) -> Vec<HpaComparison> {
        let Some(by_hpa) = &self.by_hpa else { return Vec::new() };
        let row = |key: &Key| {
            let counts = by_hpa.get(key).copied().unwrap_or_default();
            HpaComparison {
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                same: counts.same,
                different: counts.differences(),
                unknown: counts.unknown,
            }
        };
        keys.iter().map(row).collect()
    }
}
