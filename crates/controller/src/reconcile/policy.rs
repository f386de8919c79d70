//! The end of a sync of an HPA with a scaling policy.

use std::time::Duration;

use autoscaling::{Conclusion, Hpa};
use jiff::Timestamp;
use tokio::time::Instant;

use super::Controller;
use crate::policy::{Applicable, PolicyDue, PolicyEffect, Resolved, publish};
use crate::store::{HpaRecord, Key};

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
        policy: Option<(&Resolved, &PolicyEffect)>,
        started: Instant,
        now: Timestamp,
    ) {
        let key = Key::new(hpa.namespace, hpa.name);
        let effect = policy.map(|(_, effect)| effect);
        let problems = effect.map_or("", |effect| effect.problems.as_str());
        let reports_problems = self.policies.reports(&key, problems);
        publish(conclusion, hpa, effect, reports_problems, now);
        self.telemetry.policy(hpa.namespace, hpa.name, effect);
        let due = policy.map_or_else(PolicyDue::default, |(resolved, _)| PolicyDue {
            period: resolved.period.map(|period| clock::after(started, period)),
            edge: resolved.next_edge.map(|edge| {
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
