//! Every step of a decision as data: what went in, what came out, what limited it. Commands print it, logs quote it.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::condition::Limit;
use crate::history::Recommendation;

/// How one decision came about, step by step in the order in which they were taken.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Explanation {
    /// `spec.replicas` of the Scale.
    pub current: i32,
    /// `status.replicas` of the Scale.
    pub status_replicas: i32,
    /// Lower bound in force.
    pub min: i32,
    /// Upper bound.
    pub max: i32,
    /// Each metric, in the order of the spec. Empty if no metric was read.
    pub metrics: Vec<MetricExplanation>,
    /// Which of them won.
    pub winner: Option<usize>,
    /// What the winner asks for.
    pub proposal: Option<i32>,
    /// Stabilization.
    pub stabilization: Option<StabilizationStep>,
    /// Rate and bounds.
    pub limit: Option<LimitStep>,
    /// Set if a workload that was at zero is lifted to a minimum above zero.
    pub lifted_to_min: Option<i32>,
}

/// One metric: what was read and what follows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum MetricExplanation {
    /// It gave a proposal.
    Valid(MetricReading),
    /// It failed, with the text of its event.
    Failed(Arc<str>),
}

/// A metric's reading and the way to its proposal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricReading {
    /// As conditions name it.
    pub name: Arc<str>,
    /// What it should be.
    pub target: Measure,
    /// What it is, before missing and unready pods are filled in.
    pub value: Measure,
    /// `value / target`.
    pub ratio: f64,
    /// Ratios from here on are within tolerance.
    pub lowest_tolerated: f64,
    /// Ratios up to here are within tolerance.
    pub highest_tolerated: f64,
    /// The pods and how each was counted, for metrics that are read per pod.
    pub pods: Vec<PodVerdict>,
    /// Running and ready pods, for metrics that are read once and multiplied.
    pub ready_pods: Option<i64>,
    /// The ratio after missing and unready pods were filled in, and over how many values it was taken.
    pub corrected: Option<Corrected>,
    /// Why the proposal is what it is.
    pub why: ProposalReason,
    /// How many replicas it asks for.
    pub proposal: i32,
}

/// An amount with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Measure {
    /// Percent of what the pods request.
    Percent(i32),
    /// Milli-units, as such.
    Milli(i64),
    /// Milli-units per pod.
    MilliPerPod(i64),
}

/// A second look at a metric, with assumed values for pods that have none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Corrected {
    /// The new ratio.
    pub ratio: f64,
    /// How many values went into it.
    pub values: i64,
}

/// Why a metric asks for the count it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize)]
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

/// The four groups of pods, each with its reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
}

/// Stabilization: the proposal against what was recommended lately.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StabilizationStep {
    /// The proposal.
    pub before: i32,
    /// What the windows make of it.
    pub after: i32,
    /// Only with `behavior`: the window for growing, in seconds.
    pub up_window_seconds: Option<i64>,
    /// The window for shrinking, in seconds.
    pub down_window_seconds: i64,
    /// The recommendation that decided, where it was not this sync's.
    pub held_by: Option<Recommendation>,
}

/// Rate limits and bounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LimitStep {
    /// The stabilized count.
    pub before: i32,
    /// The count that is allowed.
    pub after: i32,
    /// What held it back.
    pub limit: Limit,
    /// Each policy of the direction that was asked for, in order. Without `behavior`, empty.
    pub policies: Vec<PolicyUse>,
    /// The count that the rate allows, before bounds.
    pub rate_allows: Option<i32>,
}

/// What one rate policy allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PolicyUse {
    /// The length of its period in seconds.
    pub period_seconds: i32,
    /// The count at the start of the period.
    pub start: i32,
    /// The count that it allows.
    pub allows: i32,
    /// When the oldest event that counts in the period leaves it.
    pub frees_at: Option<Timestamp>,
}
