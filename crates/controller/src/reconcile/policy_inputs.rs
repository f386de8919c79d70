//! Applies scaling policies to a sync: removes pods of other owners and ignored containers from the inputs, keeps the
//! windows of `burst`, and publishes the effect of the policy. Without such a rule, the inputs of a sync stay
//! unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::pod::Pod;
use autoscaling::query::{Answer, QueryError};
use autoscaling::spec::{MetricSource, ResourceTarget, Spec};
use autoscaling::{Conclusion, Hpa};
use jiff::Timestamp;
use parking_lot::Mutex;
use policies::burst::BurstState;
use policies::corrections::{CorrectedInputs, ignore_containers};
use policies::guards::{OwnedPodsStep, Ownership, owned_pods};
use policies::spec::MetricRule;
use policies::steps::{PolicyEffect, Step};
use tokio::time::Instant;

use super::Controller;
use super::sources::Arrival;
use crate::policy::{Applicable, PolicyDue, Resolved, publish};
use crate::store::{HpaRecord, Key};

/// The rules of a policy for pods and answers, and their effects in one sync.
#[derive(Debug, Default)]
pub(super) struct PolicyInputs<'a> {
    metrics: &'a [MetricSource],
    /// The origins of the metrics. `None` if the metrics APIs answer all queries.
    pub(super) origins: Option<&'a Arc<[MetricRule]>>,
    /// `syncPeriodSeconds`.
    sync_period: Option<Duration>,
    /// `corrections.ignoreContainersWithoutRequest`.
    containers: &'a [Arc<str>],
    /// The names of ignored pods.
    others: Arc<BTreeSet<String>>,
    owned: Option<OwnedPodsStep>,
    steps: Vec<Step>,
}

impl<'a> PolicyInputs<'a> {
    /// Selects the rules of a policy for an HPA. `others`: the names of the pods that the target does not control.
    pub(super) fn new(policy: Option<&'a Resolved>, hpa: &'a Spec, others: Arc<BTreeSet<String>>) -> Self {
        let corrections = policy.map(|policy| &policy.rules.policy.spec.corrections);
        let containers = corrections.and_then(|rules| rules.ignore_containers_without_request.as_deref());
        let origins = policy.and_then(|policy| policy.rules.policy.spec.metrics.as_ref());
        let containers = containers.unwrap_or_default();
        let sync_period = policy.and_then(Resolved::period);
        Self { metrics: &hpa.metrics, origins, sync_period, containers, others, ..Self::default() }
    }

    /// Returns the maximum time between the request for a shared response and its use: half of the policy's period.
    /// With older responses, an HPA with a short period would use the same response in several syncs.
    pub(super) fn max_age(&self) -> Duration {
        self.sync_period.map_or(Duration::MAX, |period| period / 2)
    }

    /// Removes the ignored pods.
    pub(super) fn pods(&mut self, pods: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
        if self.others.is_empty() {
            return pods;
        }
        let ownership = |pod: &Pod| {
            if self.others.contains(&*pod.name) { Ownership::Other } else { Ownership::Target }
        };
        let (counted, step) = owned_pods(&pods, ownership);
        self.owned = step.or(self.owned);
        counted
    }

    /// Returns the corrected answer and pods of a metric. `None` if the policy does not change them.
    pub(super) fn replace(
        &mut self,
        index: usize,
        answer: &Result<Answer, QueryError>,
        pods: &[Arc<Pod>],
    ) -> Option<(Answer, Vec<Arc<Pod>>)> {
        if self.others.is_empty() && self.containers.is_empty() {
            return None;
        }
        let (answer, metric) = (answer.as_ref().ok()?, self.metrics.get(index)?);
        let counted = self.counted(answer, metric);
        if let MetricSource::Resource { resource, target: ResourceTarget::Utilization(_) } = metric
            && let Some(corrected) =
                ignore_containers(self.containers, resource, counted.as_ref().unwrap_or(answer), pods)
        {
            let CorrectedInputs { pods, answer, step } = corrected;
            let step = Step::IgnoredContainers(step);
            if !self.steps.contains(&step) {
                self.steps.push(step);
            }
            return Some((answer, pods));
        }
        counted.map(|answer| (answer, pods.to_vec()))
    }

    /// Returns the answer without the samples of ignored pods. `None` if it contains no such samples.
    fn counted(&self, answer: &Answer, metric: &MetricSource) -> Option<Answer> {
        let counts = |pod: &str| !self.others.contains(pod);
        match (answer, metric) {
            (Answer::Resource(usage), _) if !usage.iter().all(|usage| counts(&usage.pod)) => {
                Some(Answer::Resource(usage.iter().filter(|usage| counts(&usage.pod)).cloned().collect()))
            }
            (Answer::Custom(values), MetricSource::Pods { .. })
                if !values.iter().all(|value| counts(&value.object)) =>
            {
                Some(Answer::Custom(values.iter().filter(|value| counts(&value.object)).cloned().collect()))
            }
            _ => None,
        }
    }

    pub(super) fn take_steps(&mut self) -> impl Iterator<Item = Step> {
        std::mem::take(&mut self.steps).into_iter().chain(self.owned.take().map(Step::OwnedPods))
    }
}

/// The policy of a sync, and its effect.
pub(super) struct ConcludedPolicy<'a> {
    pub(super) resolved: &'a Resolved,
    pub(super) effect: &'a PolicyEffect,
    /// The next time at which the rules may change the decision.
    pub(super) next_edge: Option<Timestamp>,
    /// The arrival of the newest value from a source.
    pub(super) arrival: Option<Arrival>,
}

impl Controller {
    /// Returns the policies that a sync of an HPA applies. A compared sync applies none, because the other controller
    /// applies none.
    pub(super) fn applicable_policy(&self, hpa: &HpaRecord) -> Option<Applicable> {
        if self.comparator_of(&hpa.key).is_some() { None } else { self.policies.applicable(hpa) }
    }

    /// Adds the condition and the events of the policy to the conclusion, and updates the policy's metrics. Schedules
    /// the sync at the next change of the rules. `policy`: `None` after the end of the last policy of the HPA.
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

/// The windows of HPAs whose policy sets `burst`, by UID. Another process does not take them over: after a failover,
/// each HPA starts in panic mode, so its count does not fall until samples cover a whole stable window.
#[derive(Debug, Default)]
pub struct Bursts(Mutex<BTreeMap<Arc<str>, Arc<BurstState>>>);

impl Bursts {
    /// Returns the windows after the previous sync of an HPA.
    pub(super) fn get(&self, uid: &str) -> Option<Arc<BurstState>> {
        self.0.lock().get(uid).cloned()
    }

    /// Keeps the windows after a sync. `None` drops them.
    pub(super) fn set(&self, uid: &Arc<str>, state: Option<BurstState>) {
        let mut states = self.0.lock();
        match state {
            Some(state) => drop(states.insert(Arc::clone(uid), Arc::new(state))),
            None => drop(states.remove(uid)),
        }
    }

    /// Drops the windows of a deleted HPA.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}
