//! The observed state of an HPA and its target, and of one lifetime of a process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::{PERIOD, Rescale, Rules};
use crate::plan::{Class, InitialState};
use crate::request_log::Entry;

/// Maximum burst of events for one object.
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

    /// All limits that a sync may use if it ends at or after `since`. A sync with many queries starts long before its
    /// end.
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

    /// Time that the queries of the HPA may take.
    pub(super) fn own_delay(&self) -> Duration {
        self.now().map(Rules::own_delay).unwrap_or_default()
    }

    /// Number of requests per period while nothing changes: the queries, the Scale and the status.
    pub(super) fn calm_requests(&self) -> usize {
        self.now().map_or(0, |rules| rules.queries + 2)
    }

    /// Handles a crash or an orderly shutdown of a process. Without a written status, the next process has no trace of
    /// earlier rescales.
    pub(super) fn process_ended(&mut self) {
        if !self.has_status {
            self.rescales.iter_mut().for_each(|rescale| rescale.may_be_forgotten = true);
        }
    }

    /// Records a rescale. The process may have decided on a stale view, and the history lacks a rescale that was
    /// decided on a view without `behavior`.
    pub(super) fn rescaled(&mut self, from: i64, to: i64, now: Duration, longest_lag: Duration) {
        let views = self.since(now.saturating_sub(longest_lag));
        for rules in &views {
            rules.forget(&mut self.rescales, to > from, now);
        }
        if views.iter().any(|rules| rules.behavior.is_some()) {
            let is_deleted = self.now().is_none();
            let may_be_forgotten = is_deleted || views.iter().any(|rules| rules.behavior.is_none());
            self.rescales.push(Rescale { at: now, change: to - from, may_be_forgotten });
        }
    }

    /// The rescales of all writers that count against the policies.
    pub(super) fn counted(&self) -> &[Rescale] {
        &self.rescales
    }
}

/// Time for which other syncs may reuse a response.
const SHARED: Duration = Duration::from_secs(5);

/// The current lifetime of a process.
#[derive(Debug)]
pub(super) struct ProcessState {
    pub(super) life: u32,
    pub(super) started: Duration,
    /// Time at which the process sent its last successful renewal of the Lease.
    pub(super) renewed: Option<Duration>,
    /// Object versions that the process received.
    pub(super) versions: BTreeSet<String>,
    /// Last read of each HPA's Scale, by HPA.
    pub(super) scales: Vec<ScaleRead>,
    /// Times of the process's recent requests. The second queue is for requests for hostile tenants.
    recent: [VecDeque<Duration>; 2],
}

/// Observations since a process read a Scale.
#[derive(Debug, Clone, Default)]
pub(super) struct ScaleRead {
    pub(super) version: String,
    /// Writes that were applied since the read.
    pub(super) written: u32,
    /// Whether the last write was refused with a conflict.
    conflicted: bool,
    /// Whether the Scale was read again after a conflict.
    pub(super) again: bool,
    /// For each query, the time of the last request, and whether a 200 response arrived that appears intact.
    metrics: BTreeMap<String, (Duration, bool)>,
}

impl ScaleRead {
    /// Drops the queries of the finished sync. Responses that may be shared still count for the next sync.
    pub(super) fn synced(&mut self, now: Duration) {
        self.metrics.retain(|_, (sent, answered)| *answered && *sent + SHARED > now);
    }

    /// Numbers of answered and of failed queries.
    pub(super) fn metrics(&self) -> (usize, usize) {
        let answered = self.metrics.values().filter(|(_, answered)| *answered).count();
        (answered, self.metrics.len() - answered)
    }
}

impl ProcessState {
    pub(super) fn new(life: u32, hpas: usize, started: Duration) -> Self {
        Self {
            life,
            started,
            renewed: None,
            versions: BTreeSet::new(),
            scales: vec![ScaleRead::default(); hpas],
            recent: Default::default(),
        }
    }

    /// Number of requests within the `period` that ends with `entry`. Requests for hostile tenants are counted
    /// separately.
    pub(super) fn in_a_period(&mut self, entry: &Entry, period: Duration) -> usize {
        let recent = &mut self.recent[usize::from(entry.is_tenant)];
        recent.push_back(entry.sent);
        while recent.front().is_some_and(|at| *at + period < entry.sent) {
            recent.pop_front();
        }
        recent.len()
    }

    pub(super) fn sent(&mut self, entry: &Entry) {
        if let (Class::Metrics, Some(hpa)) = (entry.class, entry.hpa) {
            self.scales[hpa].metrics.insert(entry.path.clone(), (entry.sent, false));
        }
    }

    pub(super) fn answered(&mut self, entry: &Entry) {
        let is_whole = entry.code == Some(200) && entry.intact;
        match (entry.class, entry.hpa) {
            (Class::LeaseWrite, _) if entry.is_done() && entry.intact => self.renewed = Some(entry.sent),
            (Class::ScaleGet, Some(hpa)) => {
                let read = &mut self.scales[hpa];
                if is_whole {
                    read.version.clear();
                    read.version.push_str(&entry.shown);
                    read.written = 0;
                }
                read.again = std::mem::take(&mut read.conflicted);
            }
            (Class::ScalePut, Some(hpa)) => self.scales[hpa].conflicted = entry.code == Some(409),
            (Class::Metrics, Some(hpa)) => {
                self.scales[hpa].metrics.insert(entry.path.clone(), (entry.sent, is_whole));
            }
            // A shared list serves all HPAs of its namespace with pod metrics. If it fails, each HPA may still fetch
            // its metrics.
            (Class::Metrics, None) if is_whole => {
                let is_here = |hpa: usize| {
                    entry.path.contains(&format!("/namespaces/{}/", InitialState::namespace(hpa)))
                };
                for (_, read) in self.scales.iter_mut().enumerate().filter(|(hpa, _)| is_here(*hpa)) {
                    read.metrics.insert(entry.path.clone(), (entry.sent, true));
                }
            }
            (Class::StatusPut | Class::HpaGet, _) if is_whole => {
                self.versions.insert(entry.shown.clone());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rescale_near_a_change_of_the_behavior_may_count_or_not() {
        let rules = |behavior: &serde_json::Value| {
            Rules::from_object(&json!({"spec": {"minReplicas": 1, "maxReplicas": 9, "behavior": behavior}}))
        };
        let second = Duration::from_secs;
        let counted = |versions: [&serde_json::Value; 2], rescaled: u64| {
            let mut hpa = HpaState::default();
            hpa.update(Some(rules(versions[0])), second(0));
            hpa.update(Some(rules(versions[1])), second(60));
            hpa.rescaled(3, 1, second(rescaled), second(2));
            hpa.counted().iter().map(|rescale| rescale.may_be_forgotten).collect::<Vec<_>>()
        };
        let (without, with) = (json!(null), json!({"scaleUp": {}}));
        assert_eq!(counted([&with, &without], 61), [true]);
        assert_eq!(counted([&without, &with], 61), [true]);
        assert!(counted([&with, &without], 63).is_empty());
        assert_eq!(counted([&without, &with], 63), [false]);
    }
}
