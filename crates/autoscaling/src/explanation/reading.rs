//! The metrics of a decision: value, groups of pods, and proposal.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::failure::MetricFailureClass;

/// Maximum number of pods per metric and group that a condensed explanation lists. Pods of the group
/// [`PodGroup::Ready`] are only counted.
pub const LISTED_PODS: usize = 3;

/// The result of one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MetricExplanation {
    /// The metric yielded a proposal.
    Valid(MetricReading),
    /// The metric failed.
    Failed(FailedMetric),
}

impl MetricExplanation {
    /// The short name of the metric.
    pub fn subject(&self) -> &Subject {
        match self {
            Self::Valid(reading) => &reading.subject,
            Self::Failed(failed) => &failed.subject,
        }
    }

    /// The reading. `None` if the metric failed.
    pub fn reading(&self) -> Option<&MetricReading> {
        match self {
            Self::Valid(reading) => Some(reading),
            Self::Failed(_) => None,
        }
    }
}

/// The short name of a metric.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// `type` of the metric source.
    #[serde(rename = "type")]
    pub kind: Arc<str>,
    /// The name of the resource or the metric.
    pub name: Arc<str>,
    /// The container of a metric of type ContainerResource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Arc<str>>,
    /// The described object of a metric of type Object, as `Kind/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Arc<str>>,
}

/// Prints the name for sentences: `cpu`, `cpu of container app`, `requests of Ingress/main`.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(container) = &self.container {
            write!(f, " of container {container}")?;
        }
        if let Some(object) = &self.object {
            write!(f, " of {object}")?;
        }
        Ok(())
    }
}

/// A metric without a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedMetric {
    /// The short name of the metric.
    pub subject: Subject,
    /// The reason of the event: `FailedGetResourceMetric`.
    pub reason: Arc<str>,
    /// The class of the failure. `None` in records of earlier versions, which [`Self::class()`] classifies by their
    /// text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<MetricFailureClass>,
    /// The message of the event.
    pub error: Arc<str>,
}

/// The value of a metric and the steps to its proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricReading {
    /// The short name of the metric.
    pub subject: Subject,
    /// The name in the condition `ScalingActive` and in events: `cpu resource utilization (percentage of request)`.
    pub name: Arc<str>,
    /// The target value.
    pub target: Measure,
    /// The current value, before missing and unready pods are filled in.
    pub value: Measure,
    /// The undivided value in milli-units, for Object and External metrics with a target per pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// `value / target`. `null` in JSON if the result is infinite or NaN: for a target of 0, or a value per pod at zero
    /// replicas.
    #[serde(with = "finite")]
    pub ratio: f64,
    /// The lowest ratio within tolerance.
    pub lowest_tolerated: f64,
    /// The highest ratio within tolerance.
    pub highest_tolerated: f64,
    /// The pods with their groups, sorted by name, for metrics with one sample per pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodVerdict>,
    /// The counts of the pods that [`Self::pods`] omits. Empty if it omits none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlisted: Vec<PodCount>,
    /// The samples of pods that the selector does not match, named `strangers` in JSON. With a target per pod, they are
    /// part of the value. With any target, their number is part of [`Corrected::values`].
    #[serde(default, rename = "strangers", skip_serializing_if = "Option::is_none")]
    pub unmatched: Option<UnmatchedSamples>,
    /// The number of running and ready pods, by which the ratio of an Object or External metric is multiplied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_pods: Option<i64>,
    /// The second computation of the ratio. `None` if no pods are missing and no unready pods were filled in.
    pub corrected: Option<Corrected>,
    /// The rule that determined the proposal.
    pub why: ProposalReason,
    /// The proposed count.
    pub proposal: i32,
}

/// The unit and the amount of a value or a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Measure {
    /// Percent of the pods' requests.
    Percent(i32),
    /// Milli-units of a value for all pods.
    Milli(i64),
    /// Milli-units per pod.
    MilliPerPod(i64),
}

/// A second computation of a ratio, with assumed values for pods without a usable sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Corrected {
    /// The corrected ratio.
    #[serde(with = "finite")]
    pub ratio: f64,
    /// The number of values in the ratio, by which it is multiplied.
    pub values: i64,
    /// The assumed usage of missing pods. `None` if no pods are missing, or if the first ratio is exactly 1.
    pub missing: Option<Assumed>,
    /// Whether unready pods are values with a usage of 0. Otherwise they are not values.
    pub unready: bool,
}

/// The assumed usage of a missing pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Assumed {
    /// The metric's target, if the first ratio is below 1. A target below 100 % is raised to 100 %, the whole request
    /// of the pod.
    Target,
    /// Zero, if the first ratio is above 1.
    Zero,
}

/// The samples of pods that the selector does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnmatchedSamples {
    /// The number of samples.
    pub samples: i64,
    /// The sum of the samples in milli-units.
    pub sum: i64,
}

/// The rule that determined the proposal of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProposalReason {
    /// The current count, because the ratio is within tolerance.
    WithinTolerance,
    /// The ratio times the number of ready pods, rounded up.
    Ratio,
    /// The corrected ratio times the number of its values, rounded up.
    CorrectedRatio,
    /// The current count, because the corrected ratio is within tolerance.
    CorrectedWithinTolerance,
    /// The current count, because the first and the corrected ratio are on different sides of 1.
    DirectionReversed,
    /// The current count, because a corrected ratio above 1 would lower it, or a corrected ratio below 1 would raise
    /// it.
    CountReversed,
    /// The value divided by the target per pod, rounded up.
    PerPod,
    /// The ratio itself, rounded up, for a target at zero replicas. Tolerance does not apply.
    FromZero,
}

/// The group and the sample of one pod for one metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodVerdict {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// The group, with its reason.
    pub group: PodGroup,
    /// The sample in milli-units, even if the group excludes it. `None` without a sample.
    pub sample: Option<i64>,
    /// The request in milli-units. `None` if the target is not in percent.
    pub request: Option<i64>,
}

/// The number of pods of one group that are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCount {
    /// The group.
    pub group: PodGroup,
    /// The number of pods.
    pub pods: u32,
}

/// The group of a pod for a metric: ready, missing, unready or ignored, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PodGroup {
    /// The sample of the pod is used.
    Ready,
    /// Ignored, because `metadata.deletionTimestamp` is set.
    IgnoredTerminating,
    /// Ignored, because the phase is Failed.
    IgnoredFailed,
    /// Ignored, because the phase is Succeeded.
    IgnoredSucceeded,
    /// Missing: the pod has no sample.
    Missing,
    /// Unready, because the phase is Pending.
    UnreadyPending,
    /// Unready, because the pod has no Ready condition.
    UnreadyNoCondition,
    /// Unready, because the pod has no start time.
    UnreadyNotStarted,
    /// Unready during the cpu initialization period, because the Ready condition is False.
    UnreadyInitializing,
    /// Unready during the cpu initialization period, because the window of the sample starts before the last change of
    /// the Ready condition.
    UnreadySampleTooOld,
    /// Unready after the cpu initialization period, because the Ready condition is False and last changed before the
    /// end of the initial readiness delay.
    UnreadyNeverReady,
}

impl PodGroup {
    /// Whether the group is unready. If the first ratio is above 1, such pods have an assumed usage of 0.
    pub fn is_unready(self) -> bool {
        matches!(
            self,
            Self::UnreadyPending
                | Self::UnreadyNoCondition
                | Self::UnreadyNotStarted
                | Self::UnreadyInitializing
                | Self::UnreadySampleTooOld
                | Self::UnreadyNeverReady
        )
    }

    /// Whether the pods of the group affect neither the value nor the proposal.
    pub fn is_ignored(self) -> bool {
        matches!(self, Self::IgnoredTerminating | Self::IgnoredFailed | Self::IgnoredSucceeded)
    }
}

impl MetricReading {
    /// The number of pods in the groups that `is_in` selects, listed or not.
    pub fn count(&self, is_in: impl Fn(PodGroup) -> bool) -> usize {
        let listed = self.pods.iter().filter(|pod| is_in(pod.group)).count();
        let unlisted = self.unlisted.iter().filter(|count| is_in(count.group));
        listed + unlisted.map(|count| usize::try_from(count.pods).unwrap_or(usize::MAX)).sum::<usize>()
    }

    /// Returns at most `keep` pods of each group other than [`PodGroup::Ready`], and the counts of all other pods.
    pub fn condensed_pods(&self, keep: usize) -> (Vec<PodVerdict>, Vec<PodCount>) {
        let (mut listed, mut unlisted) = (Vec::new(), self.unlisted.clone());
        let is_listed = |pod: &&PodVerdict| {
            let so_far = add(&mut listed, pod.group);
            let stays =
                pod.group != PodGroup::Ready && usize::try_from(so_far).is_ok_and(|so_far| so_far <= keep);
            if !stays {
                add(&mut unlisted, pod.group);
            }
            stays
        };
        let pods = self.pods.iter().filter(is_listed).cloned().collect();
        (pods, unlisted)
    }
}

/// Counts one more pod of a group. Returns the new count.
fn add(counts: &mut Vec<PodCount>, group: PodGroup) -> u32 {
    if let Some(count) = counts.iter_mut().find(|count| count.group == group) {
        count.pods = count.pods.saturating_add(1);
        return count.pods;
    }
    counts.push(PodCount { group, pods: 1 });
    1
}

/// Serializes infinities and NaN, which JSON cannot represent, as `null`.
mod finite {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    pub(super) fn serialize<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
        number.is_finite().then_some(*number).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        Option::<f64>::deserialize(from).map(|number| number.unwrap_or(f64::NAN))
    }
}
