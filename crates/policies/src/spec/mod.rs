//! The fields of a policy, as values. [`parse`] and [`read`] omit invalid fields and report them.
//!
//! A field of the policy, a guard, a correction, and an entry of a list are each valid or ignored as a whole. Without
//! an invalid or unknown field, an entry could have a much larger effect than intended.

mod fields;
mod metrics;
mod reader;
mod schedules;
mod transport;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::schedule::ScheduleError;

pub use self::fields::{Level, MAX_BYTES, MAX_ENTRIES, MAX_PROBLEMS, Parsed, parse, read};
pub use self::metrics::{MetricOrigin, MetricRule, PodPort, PodSeries, Reduction, is_api_group};
pub use self::schedules::{Schedule, When};
pub use self::transport::{Authorities, PodTransport, SecretKey};
pub use crate::amount::Amount;
pub use crate::burst::BurstSpec;

/// The valid fields of a policy. `None`: the policy does not set the field.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PolicySpec {
    /// `mode`, `replicas` and `until`.
    pub mode: Option<ModeRule>,
    /// `syncPeriodSeconds`, from 1 to 3600.
    pub sync_period_seconds: Option<u16>,
    /// `tolerance`, a fraction.
    pub tolerance: Option<f64>,
    /// `cpuInitializationPeriodSeconds`.
    pub cpu_initialization_period_seconds: Option<u32>,
    /// `initialReadinessDelaySeconds`.
    pub initial_readiness_delay_seconds: Option<u32>,
    /// `downscaleStabilizationSeconds`.
    pub downscale_stabilization_seconds: Option<u32>,
    /// `schedules`.
    pub schedules: Option<Arc<[Schedule]>>,
    /// `fallback`.
    pub fallback: Option<Arc<[Fallback]>>,
    /// `combine`.
    pub combine: Option<Combine>,
    /// `metrics`.
    pub metrics: Option<Arc<[MetricRule]>>,
    /// `burst`.
    pub burst: Option<BurstSpec>,
    /// `guards`.
    pub guards: Guards,
    /// `corrections`.
    pub corrections: Corrections,
    /// `limits` of a ClusterScalingPolicy.
    pub limits: Option<Limits>,
}

/// `mode`, `replicas` and `until`, which only apply together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModeRule {
    /// The mode. `None` if it is invalid, which holds the count.
    pub mode: Option<Mode>,
    /// The count of [`Mode::Pinned`].
    pub replicas: Option<i32>,
    /// The end of the mode. [`Mode::Auto`] applies from then on.
    pub until: Option<Timestamp>,
}

/// The reaction to a failed metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// The cause of the failure. Not named `on`, because YAML 1.1 reads this word as `true`.
    pub when: Cause,
    /// The name of the metric. `None` for every metric.
    pub metric: Option<Arc<str>>,
    /// The time from the first failure to the action.
    pub failure_duration_seconds: u32,
    /// The action.
    pub action: FallbackAction,
}

/// The cause of a metric's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cause {
    /// The metric cannot be read or computed.
    Error,
    /// The metrics API responds without a value.
    Empty,
}

/// The action of a [`Fallback`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FallbackAction {
    /// The metric proposes the current count.
    Hold,
    /// The other metrics decide.
    Ignore,
    /// The metric proposes a fixed count.
    Replicas(i32, Strategy),
    /// The metric proposes the count that it proposed last.
    LastValue,
}

/// The choice between the count of a fallback and the current count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Strategy {
    /// The count of the fallback.
    #[default]
    Static,
    /// The higher of both counts.
    AtLeast,
    /// The lower of both counts.
    AtMost,
}

/// The choice among the proposals of several metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Combine {
    /// The highest.
    #[default]
    Max,
    /// The lowest.
    Min,
}

/// `guards`: rules that withhold a change, or a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Guards {
    /// `pendingPods`.
    pub pending_pods: Option<PendingPods>,
    /// `rollout`.
    pub rollout: Option<RolloutGuard>,
    /// `ownedPodsOnly`.
    pub owned_pods_only: Option<bool>,
    /// `zeroMetrics`.
    pub zero_metrics: Option<ZeroMetrics>,
    /// `maxStep`.
    pub max_step: Option<MaxStep>,
}

/// `pendingPods`: a limit of waiting pods, above which the target does not scale up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingPods {
    /// The maximum number of waiting pods for a scale-up. A percentage is relative to the current count.
    pub maximum: Amount,
    /// Whether only pods that the scheduler cannot place count.
    pub unschedulable_only: bool,
}

/// The changes that wait for the end of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RolloutGuard {
    /// No changes.
    Ignore,
    /// All changes.
    Hold,
    /// Scale-ups.
    HoldScaleUp,
    /// Scale-downs.
    HoldScaleDown,
}

/// The reaction to metrics that all drop to 0 at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZeroMetrics {
    /// Zero is a value like any other.
    Ignore,
    /// No scale-down until a metric has another value.
    Hold,
}

/// The largest change in one sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MaxStep {
    /// Maximum number of added pods. A percentage is relative to the current count.
    pub up: Option<Amount>,
    /// Maximum number of removed pods. A percentage is relative to the current count.
    pub down: Option<Amount>,
    /// Maximum number of added pods, as a count. If `up` is set too, the lower of both limits applies.
    pub maximum_pods_up: Option<u32>,
    /// Maximum number of removed pods, as a count. If `down` is set too, the lower of both limits applies.
    pub maximum_pods_down: Option<u32>,
}

/// `corrections` of known faults of the reference.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Corrections {
    /// `averageValueWithinTolerance`: an AverageValue target within tolerance proposes `spec.replicas`, not
    /// `status.replicas` (kubernetes/kubernetes#138505).
    pub average_value_within_tolerance: Option<bool>,
    /// `ignoreContainersWithoutRequest`: containers that do not count for a resource that they do not request.
    pub ignore_containers_without_request: Option<Arc<[Arc<str>]>>,
}

/// `limits` of a ClusterScalingPolicy. Annotations and ScalingPolicies cannot exceed them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// `shortestSyncPeriodSeconds`.
    pub shortest_sync_period_seconds: Option<u16>,
    /// `allowedModes`. [`Mode::Auto`] is always allowed.
    pub allowed_modes: Option<Vec<Mode>>,
    /// `highestFloor`: the maximum of `minReplicas` in schedules.
    pub highest_floor: Option<i32>,
    /// `highestCeiling`: the maximum of `maxReplicas` in schedules, of pinned counts, and of counts of fallbacks.
    pub highest_ceiling: Option<i32>,
}

/// The changes of the replica count that the controller may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Mode {
    /// All changes.
    #[default]
    Auto,
    /// No changes.
    Paused,
    /// Scale-ups only.
    ScaleUpOnly,
    /// Scale-downs only.
    ScaleDownOnly,
    /// Keep a fixed count.
    Pinned,
    /// Report decisions without applying them.
    DryRun,
}

/// An enumeration in policies.
trait Named: Copy + 'static {
    /// All values, each with its name in policies.
    const NAMES: &'static [(&'static str, Self)];
}

impl Named for Mode {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("Auto", Self::Auto),
        ("Paused", Self::Paused),
        ("ScaleUpOnly", Self::ScaleUpOnly),
        ("ScaleDownOnly", Self::ScaleDownOnly),
        ("Pinned", Self::Pinned),
        ("DryRun", Self::DryRun),
    ];
}

impl Mode {
    /// The name in policies and conditions.
    pub fn as_str(self) -> &'static str {
        Self::NAMES.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }
}

impl Named for Cause {
    const NAMES: &'static [(&'static str, Self)] = &[("Error", Self::Error), ("Empty", Self::Empty)];
}

impl Named for Combine {
    const NAMES: &'static [(&'static str, Self)] = &[("Max", Self::Max), ("Min", Self::Min)];
}

impl Named for Strategy {
    const NAMES: &'static [(&'static str, Self)] =
        &[("Static", Self::Static), ("AtLeast", Self::AtLeast), ("AtMost", Self::AtMost)];
}

impl Named for RolloutGuard {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("Ignore", Self::Ignore),
        ("Hold", Self::Hold),
        ("HoldScaleUp", Self::HoldScaleUp),
        ("HoldScaleDown", Self::HoldScaleDown),
    ];
}

impl Named for ZeroMetrics {
    const NAMES: &'static [(&'static str, Self)] = &[("Ignore", Self::Ignore), ("Hold", Self::Hold)];
}

/// A field without an effect, or with an effect other than stated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path of the field: `schedules[2].start`. Empty for the policy as a whole.
    pub path: String,
    /// The reason.
    pub reason: ProblemReason,
}

/// The reason of a [`Problem`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProblemReason {
    /// The text is too long.
    #[error("has {bytes} bytes, at most {maximum} are allowed; the policy is ignored")]
    TooLarge {
        /// The length.
        bytes: usize,
        /// The maximum length.
        maximum: usize,
    },
    /// The text is neither YAML nor JSON.
    #[error("cannot be read: {0}; the policy is ignored")]
    Unreadable(String),
    /// The list is too long.
    #[error("has {entries} entries, at most {maximum} are allowed; the field is ignored")]
    TooMany {
        /// The number of entries.
        entries: usize,
        /// The maximum number.
        maximum: usize,
    },
    /// The field does not exist.
    #[error("is unknown and has no effect{}", suggestion.map(|field| format!("; did you mean {field}?")).unwrap_or_default())]
    Unknown {
        /// The known field with the most similar name.
        suggestion: Option<&'static str>,
    },
    /// The field exists in other kinds of policies only.
    #[error("has an effect in a ClusterScalingPolicy only")]
    ClusterOnly,
    /// The value is invalid.
    #[error("must be {expected}, not {value}")]
    Invalid {
        /// The valid values.
        expected: String,
        /// The value.
        value: String,
    },
    /// The field is required.
    #[error("is required")]
    Required,
    /// The field is missing. Holds the reason why it is required.
    #[error("is missing; {0}")]
    Missing(&'static str),
    /// The field contradicts another one.
    #[error("{0}")]
    Conflict(&'static str),
    /// The schedule is invalid. Its error names the field.
    #[error("{0}")]
    Schedule(ScheduleError),
    /// The mode or its end is invalid.
    #[error("{0}; the count is held")]
    Held(String),
    /// The value exceeds a limit of a ClusterScalingPolicy.
    #[error("exceeds {limit} of ClusterScalingPolicy {policy}; {effect}")]
    Limited {
        /// The limit: `highestCeiling 100`.
        limit: String,
        /// The policy with the limit.
        policy: String,
        /// The value that applies instead.
        effect: String,
    },
    /// The selector of the policy is invalid.
    #[error("{0}; the policy applies to no HPA")]
    Selector(String),
    /// Further problems.
    #[error("{0} more problems")]
    More(usize),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "the policy {}", self.reason)
        } else {
            write!(f, "{}: {}", self.path, self.reason)
        }
    }
}
