//! The end of a sync of an HPA with a scaling policy.

use std::time::Duration;

use autoscaling::{Conclusion, Hpa};
use jiff::Timestamp;
use policies::steps::PolicyEffect;
use tokio::time::Instant;

use super::Controller;
use super::sources::Arrival;
use crate::policy::{Applicable, PolicyDue, Resolved, publish};
use crate::store::{HpaRecord, Key};

/// The policy of a sync, and its effect.
pub(super) struct ConcludedPolicy<'a> {
    pub(super) resolved: &'a Resolved,
    pub(super) effect: &'a PolicyEffect,
    /// The time from which the next sync may decide otherwise.
    pub(super) next_edge: Option<Timestamp>,
    /// The newest number of a source.
    pub(super) arrival: Option<Arrival>,
}

impl Controller {
    /// The policies that a sync of an HPA applies. A dry run next to another controller applies none, because that
    /// controller applies none either.
    pub(super) fn applicable_policy(&self, hpa: &HpaRecord) -> Option<Applicable> {
        if self.comparator.is_some() { None } else { self.policies.applicable(hpa) }
    }

    /// Adds condition, events and metrics of the policy, and plans the sync at the next change of its rules. `policy`:
    /// `None` after the end of the last policy of the HPA.
    pub(super) fn conclude_policy(
        &self,
        hpa: &Hpa<'_>,
        conclusion: &mut Conclusion,
        policy: Option<&ConcludedPolicy<'_>>,
        started: Instant,
        now: Timestamp,
    ) {
        let key = Key::new(hpa.namespace, hpa.name);
        let effect = policy.map(|policy| policy.effect);
        let problems = effect.map_or("", |effect| effect.problems.as_str());
        let reports_problems = self.policies.reports(&key, problems);
        publish(conclusion, hpa, effect, reports_problems, now);
        self.telemetry.policy(hpa.namespace, hpa.name, effect);
        let due = policy.map_or_else(PolicyDue::default, |policy| PolicyDue {
            period: policy
                .resolved
                .period()
                .map(|period| Arrival::next_sync(policy.arrival, started, period)),
            edge: policy.next_edge.map(|edge| {
                let wait = Duration::try_from(edge.duration_since(now)).unwrap_or_default();
                clock::after(Instant::now(), wait)
            }),
        });
        self.policies.set_due(&key, due);
        if policy.is_none() {
            self.policies.condition_removed(&key);
        }
    }
}
