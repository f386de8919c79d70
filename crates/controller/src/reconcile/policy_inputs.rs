//! Pods and answers of metrics as a scaling policy takes them: without pods of other owners, and without containers
//! that do not count. A sync without such a rule evaluates the inputs as they are.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::pod::Pod;
use autoscaling::query::{Answer, QueryError};
use autoscaling::spec::{MetricSource, ResourceTarget, Spec};
use policies::corrections::{CorrectedInputs, ignore_containers};
use policies::guards::{OwnedPodsStep, Ownership, owned_pods};
use policies::spec::MetricRule;
use policies::steps::Step;

use crate::policy::Resolved;

/// The rules of a policy for pods and answers, and their effects in one sync.
#[derive(Debug, Default)]
pub(super) struct PolicyInputs<'a> {
    metrics: &'a [MetricSource],
    /// `metrics`: where the numbers come from.
    origins: Option<&'a Arc<[MetricRule]>>,
    /// `syncPeriodSeconds`.
    sync_period: Option<Duration>,
    /// `corrections.ignoreContainersWithoutRequest`.
    containers: &'a [Arc<str>],
    /// The names of the pods that do not count.
    others: Arc<BTreeSet<String>>,
    owned: Option<OwnedPodsStep>,
    steps: Vec<Step>,
}

impl<'a> PolicyInputs<'a> {
    /// The rules of a policy for an HPA. `others`: the pods of other owners.
    pub(super) fn new(policy: Option<&'a Resolved>, hpa: &'a Spec, others: Arc<BTreeSet<String>>) -> Self {
        let corrections = policy.map(|policy| &policy.rules.policy.spec.corrections);
        let containers = corrections.and_then(|rules| rules.ignore_containers_without_request.as_deref());
        let origins = policy.and_then(|policy| policy.rules.policy.spec.metrics.as_ref());
        let containers = containers.unwrap_or_default();
        let sync_period = policy.and_then(Resolved::period);
        Self { metrics: &hpa.metrics, origins, sync_period, containers, others, ..Self::default() }
    }

    /// Where the numbers of metrics come from. `None` if the metrics APIs answer for all of them.
    pub(super) fn origins(&self) -> Option<&'a Arc<[MetricRule]>> {
        self.origins
    }

    /// The maximum time between the request for a shared response and its use: half of the period that the policy
    /// sets, as for the period of all HPAs. Otherwise an HPA with a short period would decide by the same response
    /// again and again.
    pub(super) fn max_age(&self) -> Duration {
        self.sync_period.map_or(Duration::MAX, |period| period / 2)
    }

    /// The pods that count.
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

    /// The inputs of a metric, if they differ from the given ones.
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

    /// The answer without the samples of pods that do not count. `None` if all samples count.
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

    /// The effects.
    pub(super) fn take_steps(&mut self) -> impl Iterator<Item = Step> {
        std::mem::take(&mut self.steps).into_iter().chain(self.owned.take().map(Step::OwnedPods))
    }
}
