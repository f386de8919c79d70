//! The effect of a policy on one decision, as data and as text.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bounds::ScheduleStep;
use crate::burst::BurstStep;
use crate::choice::{Chosen, CombineStep, CorrectionStep, FallbackStep};
use crate::corrections::IgnoredContainersStep;
use crate::guards::{GuardStep, OwnedPodsStep};
use crate::mode::ModeStep;
use crate::next::NextChange;
use crate::spec::Mode;

/// The type of the condition of an HPA with a policy. `True` if a step of the policy has an effect.
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
    /// Containers that do not count.
    IgnoredContainers(IgnoredContainersStep),
    /// Pods that do not count.
    OwnedPods(OwnedPodsStep),
    /// A schedule.
    Schedule(ScheduleStep),
}

/// The reason of a step in one word, for condition, events and metrics. Ordered by precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StepReason {
    /// The mode is invalid, so the count is held.
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
    /// Too many pods wait.
    PendingPods,
    /// The target rolls out.
    RolloutInProgress,
    /// All metrics dropped to 0 at once.
    ZeroMetrics,
    /// The change was larger than allowed.
    MaxStep,
    /// A metric failed and its fallback applies.
    FallbackActive,
    /// The lowest proposal was chosen.
    CombinedMin,
    /// `burst` proposes in panic mode.
    BurstPanic,
    /// `burst` proposes by its stable window.
    Burst,
    /// A fault of the reference was corrected.
    Corrected,
    /// Pods of other owners do not count.
    OwnedPodsOnly,
    /// A schedule changes a bound.
    ScheduleActive,
}

impl StepReason {
    /// All reasons, in the order of their precedence.
    pub const ALL: [Self; 17] = [
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
    ];

    /// The reason in conditions, events and metrics.
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
        }
    }

    /// Parses the name of a reason in conditions.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// Whether the step sets or limits the count, contrary to the proposals of the metrics.
    pub fn holds_count(self) -> bool {
        match self {
            Self::InvalidMode
            | Self::Paused
            | Self::ScaleUpOnly
            | Self::ScaleDownOnly
            | Self::Pinned
            | Self::DryRun
            | Self::PendingPods
            | Self::RolloutInProgress
            | Self::ZeroMetrics
            | Self::MaxStep
            | Self::FallbackActive => true,
            Self::CombinedMin
            | Self::BurstPanic
            | Self::Burst
            | Self::Corrected
            | Self::OwnedPodsOnly
            | Self::ScheduleActive => false,
        }
    }
}

impl Step {
    /// The reason in one word.
    pub fn reason(&self) -> StepReason {
        match self {
            Self::Mode(step) => match step.mode {
                None => StepReason::InvalidMode,
                // Auto has no step.
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
        }
    }
}

impl Chosen {
    /// The steps of the choice.
    pub fn steps(&self) -> Vec<Step> {
        let fallbacks = self.fallbacks.iter().cloned().map(Step::Fallback);
        let corrections = self.corrections.iter().cloned().map(Step::Correction);
        fallbacks.chain(corrections).chain(self.combined.clone().map(Step::Combine)).collect()
    }
}

/// The effect of a policy on one decision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyEffect {
    /// The count without guards and mode. `None` if none could be computed.
    pub recommended: Option<i32>,
    /// The count that is applied. `None` if none could be computed.
    pub applied: Option<i32>,
    /// The steps that have an effect, the most important one first.
    pub steps: Vec<Step>,
    /// The problems of the fields, as text. Empty if all fields are valid.
    pub problems: String,
    /// The next change of the rules. `None` if the rules never change.
    pub next: Option<NextChange>,
}

impl PolicyEffect {
    /// The reason of the most important step, for the condition `ScalingPolicyActive`.
    pub fn reason(&self) -> Option<StepReason> {
        self.steps.first().map(Step::reason)
    }

    /// The effect in one sentence without a full stop. `None` if no step has an effect.
    pub fn sentence(&self) -> Option<String> {
        let texts: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

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
