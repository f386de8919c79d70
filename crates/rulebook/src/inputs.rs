//! Applies a policy to the inputs of a decision: removes pods of other owners and ignored containers, and keeps the
//! windows of `burst`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use autoscaling::pod::Pod;
use autoscaling::query::{Answer, QueryError};
use autoscaling::spec::{MetricSource, ResourceTarget, Spec};
use parking_lot::Mutex;
use policies::burst::BurstState;
use policies::choice::{CorrectedInputs, ignore_containers};
use policies::guards::{OwnedPodsStep, Ownership, owned_pods};
use policies::steps::Step;

use crate::Resolved;

/// The rules of a policy for pods and answers, and their effects in one sync.
#[derive(Debug, Default)]
pub(super) struct PolicyInputs<'a> {
    metrics: &'a [MetricSource],
    /// `corrections.ignoreContainersWithoutRequest`.
    containers: &'a [Arc<str>],
    /// The names of ignored pods.
    others: Arc<BTreeSet<String>>,
    owned: Option<OwnedPodsStep>,
    steps: Vec<Step>,
}

impl<'a> PolicyInputs<'a> {
    /// Selects the rules of a policy for an HPA. `others`: the names of the pods that the target does not control.
    pub(super) fn new(policy: &'a Resolved, hpa: &'a Spec, others: Arc<BTreeSet<String>>) -> Self {
        let corrections = &policy.rules.policy.spec.corrections;
        let containers = corrections.ignore_containers_without_request.as_deref();
        Self { metrics: &hpa.metrics, containers: containers.unwrap_or_default(), others, ..Self::default() }
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

/// The windows of HPAs whose policy sets `burst`, by UID. Another process does not take them over. After a failover,
/// each of these HPAs starts in panic mode, so its count does not fall until samples cover a whole stable window.
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
