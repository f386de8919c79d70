//! A bounded record of comparisons: the last changes, and counts by hour.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::wire::{Change, Counts, Hour, Verdict};

/// Maximum number of changes.
const CHANGES: usize = 4096;
/// Hours for which counts are kept.
const HOURS: i64 = 48;
/// Maximum number of rows of counts. Further changes are counted under their namespace, without a name.
const ROWS: usize = 100_000;

/// The last changes, and counts by hour.
#[derive(Debug, Default)]
pub(super) struct ComparisonLog {
    /// The changes, oldest first.
    changes: VecDeque<Change>,
    /// Number of changes with [`Verdict::Same`].
    same: usize,
    /// Counts by hour since 1970, namespace and name.
    hours: BTreeMap<(i64, String, String), Counts>,
}

impl ComparisonLog {
    /// Adds a change. A full log first evicts a change: the oldest one with [`Verdict::Same`], otherwise the oldest
    /// one.
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
            let evicted = if self.same > 0 { self.changes.iter().position(is_same).unwrap_or(0) } else { 0 };
            if self.changes.remove(evicted).is_some_and(|old| old.result == Verdict::Same) {
                self.same -= 1;
            }
        }
        self.same += usize::from(change.result == Verdict::Same);
        self.changes.push_back(change);
    }

    /// The changes, newest first.
    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().rev()
    }

    /// The counts of one HPA over all hours in the log.
    pub(super) fn counts_of(&self, namespace: &str, name: &str) -> Counts {
        let mut counts = Counts::default();
        for ((_, row_namespace, row_name), hour) in &self.hours {
            if row_namespace == namespace && row_name == name {
                counts += *hour;
            }
        }
        counts
    }

    /// The last difference of one HPA in the log.
    pub(super) fn last_difference(&self, namespace: &str, name: &str) -> Option<&Change> {
        self.changes().find(|change| {
            change.result.is_difference() && change.namespace == namespace && change.name == name
        })
    }

    /// Counts by hour, oldest first.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::wire::ForeignStatus;

    fn change(second: i64, name: &str, result: Verdict) -> Change {
        Change {
            at: Timestamp::from_second(second).unwrap(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: "u".to_owned(),
            result,
            doubt: None,
            builtin: None,
            ours: None,
            said: ForeignStatus::default(),
        }
    }

    #[test]
    fn full_log_evicts_equal_changes_first() {
        let mut log = ComparisonLog::default();
        log.add(change(0, "first", Verdict::Different));
        for second in 1..5000 {
            log.add(change(second, "web", Verdict::Same));
        }
        assert_eq!(log.changes().count(), CHANGES);
        assert_eq!(log.changes().last().unwrap().name, "first");
        let counted: u64 = log.hours().map(|hour| hour.counts.total()).sum();
        assert_eq!(counted, 5000);
    }

    #[test]
    fn full_log_of_differences_evicts_the_oldest() {
        let mut log = ComparisonLog::default();
        for second in 0..5000 {
            log.add(change(second, "web", Verdict::OnlyOurs));
        }
        assert_eq!(log.changes().last().unwrap().at.as_second(), 5000 - 4096);
    }

    #[test]
    fn log_keeps_counts_for_two_days() {
        let mut log = ComparisonLog::default();
        for hour in 0..100 {
            log.add(change(hour * 3600 + 5, "web", Verdict::Same));
        }
        let hours: Vec<_> = log.hours().map(|hour| hour.hour.as_second() / 3600).collect();
        assert_eq!(hours, (52..100).collect::<Vec<_>>());
    }
}
