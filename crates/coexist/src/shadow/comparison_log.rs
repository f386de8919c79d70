//! The bounded record of comparisons and its page `/parity`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};

use super::Shadow;
use super::wire::{Change, Counts, Hour, SHADOW_REPORT, ShadowReport, Verdict};
use crate::handover::charges;
use engine::reconcile::Controller;
use engine::store::Key;
use journal::record::wire::{API_VERSION, Comparison, ControllerInfo, Difference};
use journal::record::{Answer, Comparisons, JsonPage};

/// Maximum number of changes in the record.
const CHANGES: usize = 4096;
/// The number of hours for which counts are kept.
const HOURS: i64 = 48;
/// Maximum number of rows of counts. Further changes are counted by namespace only.
const ROWS: usize = 100_000;

/// The last changes, and counts by hour.
#[derive(Debug, Default)]
pub(super) struct ComparisonLog {
    /// The changes, oldest first.
    changes: VecDeque<Change>,
    /// The number of changes with [`Verdict::Same`].
    same: usize,
    /// The counts by hour since the Unix epoch, namespace and name.
    hours: BTreeMap<(i64, String, String), Counts>,
}

impl ComparisonLog {
    /// Adds a change. A full log first evicts the oldest change with [`Verdict::Same`], or else the oldest change.
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

    /// Returns the changes, newest first.
    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().rev()
    }

    /// Returns the counts of one HPA over all hours in the log.
    pub(super) fn counts_of(&self, namespace: &str, name: &str) -> Counts {
        let mut counts = Counts::default();
        for ((_, row_namespace, row_name), hour) in &self.hours {
            if row_namespace == namespace && row_name == name {
                counts += *hour;
            }
        }
        counts
    }

    /// Returns the last difference of one HPA in the log.
    pub(super) fn last_difference(&self, namespace: &str, name: &str) -> Option<&Change> {
        self.changes().find(|change| {
            change.result.is_difference() && change.namespace == namespace && change.name == name
        })
    }

    /// Returns the counts by hour, oldest first.
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

/// The `/parity` report of one controller. Clones share the same shadow.
#[derive(Debug, Clone)]
pub struct Parity {
    shadow: Arc<Shadow>,
    controller: Arc<Controller>,
}

impl Parity {
    /// Creates the report of `shadow`, which compares the decisions of `controller`.
    pub fn new(shadow: Arc<Shadow>, controller: Arc<Controller>) -> Self {
        Self { shadow, controller }
    }

    /// Returns the response to a GET of `/parity`.
    pub fn answer(&self) -> Answer {
        Answer::ok(&self.report())
    }

    /// Creates the page of a process. Without comparisons, the page responds with 404.
    pub fn page(parity: Option<Self>) -> JsonPage {
        Arc::new(move |_| {
            parity.as_ref().map_or_else(
                || {
                    let message = "no comparisons: this controller was started without --dry-run and without --shadow-others";
                    Answer::failure(StatusCode::NOT_FOUND, message.to_owned())
                },
                Self::answer,
            )
        })
    }

    /// Returns the report with all counts and changes in the log.
    pub fn report(&self) -> ShadowReport {
        let Shadow { parts, since, .. } = &*self.shadow;
        let state = self.shadow.state.lock();
        let in_scope = parts.others_of.as_ref().map_or(0, |charges| {
            let charges::Counts { claiming, in_charge, contested, .. } = charges.counts();
            claiming + in_charge + contested
        });
        ShadowReport {
            api_version: API_VERSION.to_owned(),
            kind: SHADOW_REPORT.to_owned(),
            controller: ControllerInfo::new(&self.controller),
            since: *since,
            now: parts.clock.now(),
            hpas: self.controller.stores.hpas.len().saturating_sub(in_scope),
            last_sign: state.last_sign,
            hours: state.log.hours().collect(),
            changes: state.log.changes().cloned().collect(),
        }
    }
}

impl Comparisons for Parity {
    fn comparison(&self, key: &Key) -> Comparison {
        let state = self.shadow.state.lock();
        let counts = state.log.counts_of(&key.namespace, &key.name);
        let difference = state.log.last_difference(&key.namespace, &key.name);
        Comparison {
            since: self.shadow.since,
            same: counts.same,
            different: counts.differences(),
            unknown: counts.unknown,
            last_difference: difference.map(|change| {
                let sentence =
                    change.ours.as_ref().map_or("no decision was made", |ours| ours.sentence.as_str());
                let (builtin, ours) = (change.builtin_counts(), change.our_counts());
                Difference {
                    at: change.at,
                    sentence: format!(
                        "the built-in controller: {builtin}; the dry run: {ours}, because {sentence}"
                    ),
                }
            }),
        }
    }
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
            log.add(change(second, "web", Verdict::OnlyConcertina));
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
