//! The effect of a policy on one decision, and the data that the sources of metrics returned, for conditions and
//! records.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bounds::ScheduleStep;
use crate::burst::BurstStep;
use crate::choice::{Chosen, CombineStep, CorrectionStep, FallbackStep, IgnoredContainersStep};
use crate::forecast::{ForecastReport, ForecastStep};
use crate::guards::{GuardStep, OwnedPodsStep};
use crate::resolve::{ModeStep, NextChange};
use crate::spec::Mode;

/// The type of the condition of an HPA with a policy. The condition is `True` if a step of the policy has an effect.
pub const CONDITION: &str = "ScalingPolicyActive";

/// A step of a policy that has an effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// The mode.
    Mode(ModeStep),
    /// A guard.
    Guard(GuardStep),
    /// A fallback.
    Fallback(FallbackStep),
    /// `combine`.
    Combine(CombineStep),
    /// A proposal of `burst`.
    Burst(BurstStep),
    /// A corrected proposal.
    Correction(CorrectionStep),
    /// Containers that were omitted from a metric.
    IgnoredContainers(IgnoredContainersStep),
    /// Pods of other owners that were excluded.
    OwnedPods(OwnedPodsStep),
    /// A schedule.
    Schedule(ScheduleStep),
    /// The floor of a forecast.
    Forecast(ForecastStep),
}

/// The reason of a step in conditions, events and metrics. Ordered by precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StepReason {
    /// The mode is invalid, so the count does not change.
    InvalidMode,
    /// The mode Paused.
    Paused,
    /// The mode ScaleUpOnly.
    ScaleUpOnly,
    /// The mode ScaleDownOnly.
    ScaleDownOnly,
    /// The mode Pinned.
    Pinned,
    /// The mode DryRun.
    DryRun,
    /// Too many pods are pending.
    PendingPods,
    /// A rollout of the target is in progress.
    RolloutInProgress,
    /// All metrics dropped to 0 at once.
    ZeroMetrics,
    /// The change exceeded the largest step.
    MaxStep,
    /// A metric failed and its fallback applies.
    FallbackActive,
    /// `combine: Min` changed the choice.
    CombinedMin,
    /// `burst` is in panic mode.
    BurstPanic,
    /// `burst` is in stable mode.
    Burst,
    /// A correction changed a proposal.
    Corrected,
    /// Pods of other owners were excluded.
    OwnedPodsOnly,
    /// A schedule changes a bound.
    ScheduleActive,
    /// A forecast sets a floor.
    ForecastFloor,
}

impl StepReason {
    /// All reasons, in the order of their precedence.
    pub const ALL: [Self; 18] = [
        Self::InvalidMode,
        Self::Paused,
        Self::ScaleUpOnly,
        Self::ScaleDownOnly,
        Self::Pinned,
        Self::DryRun,
        Self::PendingPods,
        Self::RolloutInProgress,
        Self::ZeroMetrics,
        Self::MaxStep,
        Self::FallbackActive,
        Self::CombinedMin,
        Self::BurstPanic,
        Self::Burst,
        Self::Corrected,
        Self::OwnedPodsOnly,
        Self::ScheduleActive,
        Self::ForecastFloor,
    ];

    /// The name in conditions, events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidMode => "InvalidMode",
            Self::Paused => "Paused",
            Self::ScaleUpOnly => "ScaleUpOnly",
            Self::ScaleDownOnly => "ScaleDownOnly",
            Self::Pinned => "Pinned",
            Self::DryRun => "DryRun",
            Self::PendingPods => "PendingPods",
            Self::RolloutInProgress => "RolloutInProgress",
            Self::ZeroMetrics => "ZeroMetrics",
            Self::MaxStep => "MaxStep",
            Self::FallbackActive => "FallbackActive",
            Self::CombinedMin => "CombinedMin",
            Self::BurstPanic => "BurstPanic",
            Self::Burst => "Burst",
            Self::Corrected => "Corrected",
            Self::OwnedPodsOnly => "OwnedPodsOnly",
            Self::ScheduleActive => "ScheduleActive",
            Self::ForecastFloor => "ForecastFloor",
        }
    }

    /// The reason with a name. `None` for an unknown name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// Whether the step sets or limits the count independently of the metrics. Such steps take precedence over all
    /// others.
    pub fn holds_count(self) -> bool {
        self <= Self::FallbackActive
    }
}

impl Step {
    /// The reason in conditions, events and metrics.
    pub fn reason(&self) -> StepReason {
        match self {
            Self::Mode(step) => match step.mode {
                None => StepReason::InvalidMode,
                // The mode Auto never has a step.
                Some(Mode::Auto | Mode::Paused) => StepReason::Paused,
                Some(Mode::ScaleUpOnly) => StepReason::ScaleUpOnly,
                Some(Mode::ScaleDownOnly) => StepReason::ScaleDownOnly,
                Some(Mode::Pinned) => StepReason::Pinned,
                Some(Mode::DryRun) => StepReason::DryRun,
            },
            Self::Guard(GuardStep::PendingPods(_)) => StepReason::PendingPods,
            Self::Guard(GuardStep::Rollout(_)) => StepReason::RolloutInProgress,
            Self::Guard(GuardStep::ZeroMetrics(_)) => StepReason::ZeroMetrics,
            Self::Guard(GuardStep::MaxStep(_)) => StepReason::MaxStep,
            Self::Fallback(_) => StepReason::FallbackActive,
            Self::Combine(_) => StepReason::CombinedMin,
            Self::Burst(step) if step.is_panic() => StepReason::BurstPanic,
            Self::Burst(_) => StepReason::Burst,
            Self::Correction(_) | Self::IgnoredContainers(_) => StepReason::Corrected,
            Self::OwnedPods(_) => StepReason::OwnedPodsOnly,
            Self::Schedule(_) => StepReason::ScheduleActive,
            Self::Forecast(_) => StepReason::ForecastFloor,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode(step) => step.fmt(f),
            Self::Guard(step) => step.fmt(f),
            Self::Fallback(step) => step.fmt(f),
            Self::Combine(step) => step.fmt(f),
            Self::Burst(step) => step.fmt(f),
            Self::Correction(step) => step.fmt(f),
            Self::IgnoredContainers(step) => step.fmt(f),
            Self::OwnedPods(step) => step.fmt(f),
            Self::Schedule(step) => step.fmt(f),
            Self::Forecast(step) => step.fmt(f),
        }
    }
}

impl Chosen {
    /// The steps with an effect on the choice.
    pub fn steps(&self) -> Vec<Step> {
        let fallbacks = self.fallbacks.iter().cloned().map(Step::Fallback);
        let corrections = self.corrections.iter().cloned().map(Step::Correction);
        fallbacks.chain(corrections).chain(self.combined.clone().map(Step::Combine)).collect()
    }
}

/// The effect of a policy on the decision of one sync.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyEffect {
    /// The count without the floor of a forecast, guards and mode. `None` if no count could be computed.
    pub recommended: Option<i32>,
    /// The count that is applied. `None` if no count is applied.
    pub applied: Option<i32>,
    /// The steps with an effect, in the order of their precedence.
    pub steps: Vec<Step>,
    /// The text of [`crate::merge::Policy::problem_text`]. Empty if all fields are valid.
    pub problems: String,
    /// The next change of the rules, set by the caller of [`crate::resolve::Rules::apply`]. `None` if the rules never
    /// change.
    pub next: Option<NextChange>,
    /// The forecast, also if its floor is only shown. `None` without `forecast`.
    pub forecast: Option<Arc<ForecastReport>>,
}

impl PolicyEffect {
    /// The reason of the first step, for the condition `ScalingPolicyActive`. `None` if no step has an effect.
    pub fn reason(&self) -> Option<StepReason> {
        self.steps.first().map(Step::reason)
    }

    /// Prints the effect in one sentence without a full stop. `None` if no step has an effect.
    pub fn sentence(&self) -> Option<String> {
        let texts: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// The data that a sync read from one source in `metrics` of a policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceReading {
    /// The name of the metric.
    pub metric: String,
    /// The source as text, with its query or series.
    pub source: String,
    /// The seconds since the request for the oldest value. `None` without a value.
    pub age_seconds: Option<f64>,
    /// The number of values that the source returned for the target.
    pub numbers: usize,
    /// The first values, sorted by pod.
    #[serde(default)]
    pub values: Vec<SourceValue>,
    /// The label `reason` of `concertina_metric_source_errors_total` for `problem`.
    #[serde(default)]
    pub reason: Option<String>,
    /// The reason why the source or one of the pods has no value.
    pub problem: Option<String>,
}

/// A value of a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceValue {
    /// The name of the pod. `None` for the value of an Object or External metric.
    pub pod: Option<String>,
    /// The value, as returned by the source.
    pub value: f64,
}

/// [`SourceReading::reason`] if the process has no source file.
pub const NO_SOURCES: &str = "NoSources";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_named_as_in_the_code() {
        for reason in StepReason::ALL {
            assert_eq!(reason.as_str(), format!("{reason:?}"));
            assert_eq!(StepReason::named(reason.as_str()), Some(reason));
        }
        assert_eq!(StepReason::named("NoEffect"), None);
        assert!(StepReason::Paused.holds_count() && !StepReason::ScheduleActive.holds_count());
    }
}
