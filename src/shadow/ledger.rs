//! What was compared, bounded: the last changes, and counts by the hour.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::wire::{Change, Counts, Hour, Verdict};

/// How many changes are kept.
const CHANGES: usize = 4096;
/// For how many hours there are counts.
const HOURS: i64 = 48;
/// How many rows of counts there are, at most; beyond, changes are counted under their namespace.
const ROWS: usize = 100_000;

/// The last changes, and counts by the hour.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Oldest first.
    changes: VecDeque<Change>,
    /// How many of them are the same.
    same: usize,
    /// By hour since 1970, namespace and name.
    hours: BTreeMap<(i64, String, String), Counts>,
}

impl Ledger {
    /// Takes down a change. Where there is no room, the oldest that is the same goes first.
    pub(super) fn add(&mut self, change: Change) {
        let hour = hour_of(change.at);
        while self.hours.first_key_value().is_some_and(|((first, ..), _)| *first <= hour - HOURS) {
            self.hours.pop_first();
        }
        let mut row = (hour, change.namespace.clone(), change.name.clone());
        if self.hours.len() >= ROWS && !self.hours.contains_key(&row) {
            row.2 = String::new();
        }
        self.hours.entry(row).or_default().add(change.result);
        if self.changes.len() >= CHANGES {
            let is_same = |change: &Change| change.result == Verdict::Same;
            let goes = if self.same > 0 { self.changes.iter().position(is_same).unwrap_or(0) } else { 0 };
            if self.changes.remove(goes).is_some_and(|gone| gone.result == Verdict::Same) {
                self.same -= 1;
            }
        }
        self.same += usize::from(change.result == Verdict::Same);
        self.changes.push_back(change);
    }

    /// Newest first.
    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().rev()
    }

    /// Oldest first.
    pub(super) fn hours(&self) -> impl Iterator<Item = Hour> {
        self.hours.iter().map(|((hour, namespace, name), counts)| Hour {
            hour: Timestamp::UNIX_EPOCH
                .saturating_add(SignedDuration::from_hours(*hour))
                .unwrap_or(Timestamp::MAX),
            namespace: namespace.clone(),
            name: name.clone(),
            counts: *counts,
        })
    }
}

fn hour_of(at: Timestamp) -> i64 {
    at.as_second().div_euclid(3600)
}
