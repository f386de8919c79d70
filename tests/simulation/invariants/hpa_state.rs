//! The judge's view of an HPA and its target.

use std::time::Duration;

use super::{PERIOD, Rescale, Rules};
use crate::request_log::Entry;

/// Maximum number of events for one object at once.
const EVENTS: usize = 30;

/// An HPA and its target.
#[derive(Debug, Default)]
pub(super) struct HpaState {
    /// Limits of the HPA with the time of each change, or `None` while the HPA does not exist.
    versions: Vec<(Duration, Option<Rules>)>,
    rescales: Vec<Rescale>,
    /// Time of the last creation.
    pub(super) created: Duration,
    /// Whether a controller has written its status.
    pub(super) has_status: bool,
    /// Time of the last sync.
    pub(super) synced: Duration,
    /// Time of the last foreign change.
    pub(super) last_foreign_change: Option<Duration>,
    /// Time until which its rates are not checked.
    pub(super) rates_doubtful_until: Duration,
    /// Time until which its syncs may be late.
    pub(super) disturbed_until: Duration,
}

impl HpaState {
    pub(super) fn update(&mut self, rules: Option<Rules>, now: Duration) {
        if self.versions.last().is_none_or(|(_, last)| *last != rules) {
            // A sync by the previous rules may still be in flight.
            self.disturbed_until = self.disturbed_until.max(now + PERIOD + self.own_delay());
            if rules.is_none() {
                self.has_status = false;
            } else if self.now().is_none() {
                // A new HPA of the same name has no history. A process with a stale view still decides for the
                // previous HPA.
                self.rescales.iter_mut().for_each(|rescale| rescale.may_be_forgotten = true);
                self.created = now;
            }
            self.versions.push((now, rules));
        }
    }

    /// All limits by which a sync may act that ends at or after `since`. A sync with many queries started long before.
    pub(super) fn since(&self, since: Duration) -> Vec<Rules> {
        self.rules_of_syncs(since).cloned().collect()
    }

    fn rules_of_syncs(&self, since: Duration) -> impl Iterator<Item = &Rules> {
        let all = self.versions.iter().filter_map(|(_, rules)| rules.as_ref());
        self.rules(since.saturating_sub(all.map(Rules::own_delay).max().unwrap_or_default()))
    }

    fn rules(&self, since: Duration) -> impl Iterator<Item = &Rules> {
        let ends = self.versions.iter().skip(1).map(|(from, _)| *from).chain([Duration::MAX]);
        let recent = self.versions.iter().zip(ends).filter(move |(_, end)| *end >= since);
        recent.filter_map(|((_, rules), _)| rules.as_ref())
    }

    fn now(&self) -> Option<&Rules> {
        self.versions.last().and_then(|(_, rules)| rules.as_ref())
    }

    pub(super) fn is_due(&self) -> bool {
        self.now().is_some_and(|rules| rules.has_target)
    }

    pub(super) fn deleted_since(&self) -> Option<Duration> {
        self.versions.last().filter(|(_, rules)| rules.is_none()).map(|(since, _)| *since)
    }

    /// Maximum number of requests per period without repetitions, by the limits since `since`.
    pub(super) fn requests(&self, since: Duration) -> usize {
        let most = |rules: &Rules| 5 + rules.queries + rules.metrics.min(EVENTS);
        self.rules_of_syncs(since).map(most).max().unwrap_or(0)
    }

    /// Time that its queries may take.
    pub(super) fn own_delay(&self) -> Duration {
        self.now().map(Rules::own_delay).unwrap_or_default()
    }

    /// Number of requests per period while nothing changes: the queries, the Scale and the status.
    pub(super) fn calm_requests(&self) -> usize {
        self.now().map_or(0, |rules| rules.queries + 2)
    }

    /// Handles the end of a process. Without a written status, the next process has no trace of earlier
    /// rescales.
    pub(super) fn process_ended(&mut self) {
        if !self.has_status {
            self.rescales.iter_mut().for_each(|rescale| rescale.may_be_forgotten = true);
        }
    }

    /// Records a rescale. If the process decided on a view without `behavior`, the history lacks the rescale.
    pub(super) fn rescaled(&mut self, entry: &Entry, now: Duration, longest_lag: Duration) {
        let (Some(from), Some(to)) = (entry.before, entry.replicas) else { return };
        // The process's view of the HPA may be stale.
        let views = self.since(now.saturating_sub(longest_lag));
        let is_deleted = self.now().is_none();
        let has_behavior = match self.now() {
            Some(rules) => rules.behavior.is_some(),
            None => views.iter().any(|rules| rules.behavior.is_some()),
        };
        for rules in &views {
            rules.forget(&mut self.rescales, to > from, now);
        }
        if has_behavior {
            let may_be_forgotten = is_deleted || views.iter().any(|rules| rules.behavior.is_none());
            self.rescales.push(Rescale { at: now, change: to - from, may_be_forgotten });
        }
    }

    /// The rescales of all writers that count against the policies.
    pub(super) fn counted(&self) -> &[Rescale] {
        &self.rescales
    }
}
