//! One metric of a decision: what was read, how each pod was counted, what it asks for.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One metric: what was read and what follows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MetricExplanation {
    /// It gave a proposal.
    Valid(MetricReading),
    /// It failed.
    Failed(FailedMetric),
}

impl MetricExplanation {
    /// Which metric it is.
    pub fn subject(&self) -> &Subject {
        match self {
            Self::Valid(reading) => &reading.subject,
            Self::Failed(failed) => &failed.subject,
        }
    }

    /// Its reading, if it gave one.
    pub fn reading(&self) -> Option<&MetricReading> {
        match self {
            Self::Valid(reading) => Some(reading),
            Self::Failed(_) => None,
        }
    }
}

/// Which metric: in short, as people call it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// `type` of the metric source.
    #[serde(rename = "type")]
    pub kind: Arc<str>,
    /// The resource or the metric.
    pub name: Arc<str>,
    /// The container, of a ContainerResource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Arc<str>>,
    /// The described object as `Kind/name`, of an Object metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Arc<str>>,
}

/// As in a sentence: `cpu`, `cpu of container app`, `requests of Ingress/main`.
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

/// A metric that gave no proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedMetric {
    /// Which metric.
    pub subject: Subject,
    /// Reason of its event.
    pub reason: Arc<str>,
    /// Text of its event.
    pub error: Arc<str>,
}

/// A metric's reading and the way to its proposal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricReading {
    /// Which metric.
    pub subject: Subject,
    /// As conditions name it.
    pub name: Arc<str>,
    /// What it should be.
    pub target: Measure,
    /// What it is, before missing and unready pods are filled in.
    pub value: Measure,
    /// For values that are divided by the number of replicas: the undivided value, in milli-units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// `value / target`. Where it is no number (a target of 0), `null` in JSON.
    #[serde(with = "finite")]
    pub ratio: f64,
    /// Ratios from here on are within tolerance.
    pub lowest_tolerated: f64,
    /// Ratios up to here are within tolerance.
    pub highest_tolerated: f64,
    /// The pods and how each was counted, for metrics that are read per pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodVerdict>,
    /// Pods that are counted here and not listed above. Empty but in a record kept over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlisted: Vec<PodCount>,
    /// Samples of pods that the selector does not match: their sum counts where no request is needed, their number
    /// wherever missing or unready pods are filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strangers: Option<Strangers>,
    /// Running and ready pods, for metrics that are read once and multiplied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_pods: Option<i64>,
    /// The ratio after missing and unready pods were filled in, and over how many values it was taken.
    pub corrected: Option<Corrected>,
    /// Why the proposal is what it is.
    pub why: ProposalReason,
    /// How many replicas it asks for.
    pub proposal: i32,
}

/// An amount with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Measure {
    /// Percent of what the pods request.
    Percent(i32),
    /// Milli-units, as such.
    Milli(i64),
    /// Milli-units per pod.
    MilliPerPod(i64),
}

/// A second look at a metric, with assumed values for pods that have none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Corrected {
    /// The new ratio.
    #[serde(with = "finite")]
    pub ratio: f64,
    /// How many values went into it.
    pub values: i64,
    /// What missing pods are taken to use; `None` if there are none, or if the first ratio is exactly 1.
    pub missing: Option<Assumed>,
    /// Whether unready pods are taken to use nothing; else they are left out.
    pub unready: bool,
}

/// What a missing pod is taken to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Assumed {
    /// The metric asks for fewer pods: what it should, at least its whole request for a target in percent.
    Target,
    /// The metric asks for more pods: nothing.
    Zero,
}

/// Samples of pods that the selector does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Strangers {
    /// How many.
    pub samples: i64,
    /// Their sum, in milli-units.
    pub sum: i64,
}

/// Why a metric asks for the count it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProposalReason {
    /// The ratio is within tolerance: the current count.
    WithinTolerance,
    /// The ratio times the ready pods, rounded up.
    Ratio,
    /// The corrected ratio times the values it was taken over, rounded up.
    CorrectedRatio,
    /// The corrected ratio is within tolerance: the current count.
    CorrectedWithinTolerance,
    /// The corrected ratio points the other way: the current count.
    DirectionReversed,
    /// The count moves against its ratio: the current count.
    CountReversed,
    /// The value divided by the target per pod, rounded up.
    PerPod,
    /// At zero replicas: the ratio itself, rounded up, without tolerance.
    FromZero,
}

/// How one pod was counted for one metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodVerdict {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// In which group, and why.
    pub group: PodGroup,
    /// Its sample in milli-units, used or not.
    pub sample: Option<i64>,
    /// Its request in milli-units, for a target in percent.
    pub request: Option<i64>,
}

/// How many pods of a group are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCount {
    /// The group.
    pub group: PodGroup,
    /// How many.
    pub pods: u32,
}

/// The four groups of pods, each with its reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PodGroup {
    /// Counts.
    Ready,
    /// Left out, its sample dropped: deletionTimestamp is set.
    IgnoredTerminating,
    /// Left out, its sample dropped: phase Failed.
    IgnoredFailed,
    /// Left out, its sample dropped: phase Succeeded.
    IgnoredSucceeded,
    /// Has no sample.
    Missing,
    /// Sample dropped: phase Pending.
    UnreadyPending,
    /// Sample dropped: no Ready condition.
    UnreadyNoCondition,
    /// Sample dropped: no start time.
    UnreadyNotStarted,
    /// Sample dropped: not Ready while cpu initialization lasts.
    UnreadyInitializing,
    /// Sample dropped: taken, at least in part, before the last change of Ready, while cpu initialization lasts.
    UnreadySampleTooOld,
    /// Sample dropped: not Ready, and never was beyond the initial readiness delay.
    UnreadyNeverReady,
}

impl PodGroup {
    /// Whether pods of this group are filled in with 0 when the metric asks for more.
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

    /// Whether pods of this group are left out altogether.
    pub fn is_ignored(self) -> bool {
        matches!(self, Self::IgnoredTerminating | Self::IgnoredFailed | Self::IgnoredSucceeded)
    }
}

impl MetricReading {
    /// How many pods were counted in groups that `is_in` chooses, listed or not.
    pub fn count(&self, is_in: impl Fn(PodGroup) -> bool) -> usize {
        let listed = self.pods.iter().filter(|pod| is_in(pod.group)).count();
        let unlisted = self.unlisted.iter().filter(|count| is_in(count.group));
        listed + unlisted.map(|count| usize::try_from(count.pods).unwrap_or(usize::MAX)).sum::<usize>()
    }

    /// Lists at most `keep` pods of each group that does not count, and counts the rest.
    pub(super) fn condense(&mut self, keep: usize) {
        let mut listed: Vec<PodCount> = Vec::new();
        let unlisted = &mut self.unlisted;
        self.pods.retain(|pod| {
            let so_far = add(&mut listed, pod.group);
            let stays =
                pod.group != PodGroup::Ready && usize::try_from(so_far).is_ok_and(|so_far| so_far <= keep);
            if !stays {
                add(unlisted, pod.group);
            }
            stays
        });
        self.pods.shrink_to_fit();
        self.unlisted.shrink_to_fit();
    }
}

/// Counts one more of a group; how many there are now.
fn add(counts: &mut Vec<PodCount>, group: PodGroup) -> u32 {
    if let Some(count) = counts.iter_mut().find(|count| count.group == group) {
        count.pods = count.pods.saturating_add(1);
        return count.pods;
    }
    counts.push(PodCount { group, pods: 1 });
    1
}

/// Numbers that JSON does not have are written as `null`.
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
