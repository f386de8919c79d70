//! The fields of a policy. [`parse`] and [`read`] omit invalid fields, and report them.
//!
//! A field of the policy, a guard, a correction and an entry of a list are each ignored as a whole if a part is invalid
//! or unknown. Otherwise, for example, an entry without an invalid limit could have a much larger effect than intended.

mod burst;
mod fields;
mod forecast;
mod metrics;
mod reader;
mod transport;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use autoscaling::settings::StatusPrecision;
use jiff::Timestamp;
pub use limits::policy::{
    BYTES as MAX_BYTES, ENTRIES as MAX_ENTRIES, NODES as MAX_NODES, PROBLEMS as MAX_PROBLEMS,
};
use serde::{Deserialize, Serialize};

use crate::schedule::ScheduleError;

pub use self::burst::BurstSpec;
pub use self::fields::{Level, Parsed, Schedule, When, parse, read};
pub use self::forecast::ForecastSpec;
pub use self::metrics::{
    MetricOrigin, MetricRule, PodPort, PodSeries, Reduction, is_api_group, is_subdomain,
};
pub use self::reader::Amount;
pub(crate) use self::reader::similar;
pub use self::transport::{Authorities, PodTransport, SecretKey};

/// The valid fields of a policy. A field is `None` if the policy does not set it.
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
    /// `statusPrecision`.
    pub status_precision: Option<StatusPrecision>,
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
    /// `forecast`.
    pub forecast: Option<Arc<ForecastSpec>>,
    /// `guards`.
    pub guards: Guards,
    /// `corrections`.
    pub corrections: Corrections,
    /// `limits` of a ClusterScalingPolicy.
    pub limits: Option<Limits>,
}

/// `mode`, `replicas` and `until`, which are merged as one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModeRule {
    /// `mode`. `None` if it is invalid, so the count does not change.
    pub mode: Option<Mode>,
    /// `replicas`: the count of [`Mode::Pinned`].
    pub replicas: Option<i32>,
    /// `until`: the end of the mode, from which [`Mode::Auto`] applies. `None` if it never ends.
    pub until: Option<Timestamp>,
}

/// An entry of `fallback`: the reaction to a failed metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// `when`: the cause of the failure. The field is not named `on`, because `on` means `true` in YAML 1.1.
    pub when: Cause,
    /// `metric`: the name of the metric in the spec. `None` for every metric.
    pub metric: Option<Arc<str>>,
    /// `failureDurationSeconds`: the time from the first failure to the action.
    pub failure_duration_seconds: u32,
    /// `action`, with `replicas` and `strategy`.
    pub action: FallbackAction,
}

/// The cause of a metric's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cause {
    /// The metric cannot be read or computed.
    Error,
    /// The metrics API returned no value, or no usable sample.
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

/// `strategy`: the choice between the count of a fallback and the current count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Strategy {
    /// The count of the fallback.
    #[default]
    Static,
    /// The higher count.
    AtLeast,
    /// The lower count.
    AtMost,
}

/// `combine`: the choice among the proposals of several metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Combine {
    /// The highest proposal.
    #[default]
    Max,
    /// The lowest proposal.
    Min,
}

/// `guards`: rules that prevent a change of the count, or a part of the change.
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

/// `pendingPods`: the maximum number of pending pods for a scale-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingPods {
    /// `maximum`. A percentage is relative to the current count.
    pub maximum: Amount,
    /// `unschedulableOnly`: whether pending pods that the scheduler can place are ignored.
    pub unschedulable_only: bool,
}

/// `rollout`: the changes that wait for the end of a rollout.
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

/// `zeroMetrics`: the reaction to metrics that all drop to 0 at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZeroMetrics {
    /// No reaction.
    Ignore,
    /// No scale-down until a metric has a value other than 0.
    Hold,
}

/// `maxStep`: the largest change in one sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MaxStep {
    /// `up`: the maximum number of added pods. A percentage is relative to the current count.
    pub up: Option<Amount>,
    /// `down`: the maximum number of removed pods. A percentage is relative to the current count.
    pub down: Option<Amount>,
    /// `maximumPodsUp`: a second maximum of added pods. The lower maximum applies.
    pub maximum_pods_up: Option<u32>,
    /// `maximumPodsDown`: a second maximum of removed pods. The lower maximum applies.
    pub maximum_pods_down: Option<u32>,
}

/// `corrections`: rules that correct known faults of the reference.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Corrections {
    /// `averageValueWithinTolerance`: whether a metric with an AverageValue target proposes `spec.replicas` instead of
    /// `status.replicas` if it is within tolerance (kubernetes/kubernetes#138505).
    pub average_value_within_tolerance: Option<bool>,
    /// `ignoreContainersWithoutRequest`: the names of containers to omit from a resource that they do not request.
    pub ignore_containers_without_request: Option<Arc<[Arc<str>]>>,
}

/// `limits` of a ClusterScalingPolicy, which annotations and ScalingPolicies cannot exceed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// `shortestSyncPeriodSeconds`.
    pub shortest_sync_period_seconds: Option<u16>,
    /// `allowedModes`. [`Mode::Auto`] is always allowed.
    pub allowed_modes: Option<Vec<Mode>>,
    /// `highestFloor`: the maximum of `minReplicas` in schedules, and of the floors of forecasts.
    pub highest_floor: Option<i32>,
    /// `highestCeiling`: the maximum of both bounds in schedules, of `replicas` of modes and fallbacks, and of the
    /// floors of forecasts.
    pub highest_ceiling: Option<i32>,
}

/// `mode`: the changes of the count that are allowed.
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
    /// No changes except to the fixed count `replicas`.
    Pinned,
    /// No changes. Decisions are only reported.
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

/// A problem of a field, which has no effect or a different effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The path of the field: `schedules[2].start`. Empty for the policy as a whole.
    pub path: String,
    /// The kind of the problem.
    pub reason: ProblemReason,
}

/// The kind of a [`Problem`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProblemReason {
    /// The text is too long.
    #[error("has {bytes} bytes, at most {maximum} are allowed; the policy is ignored")]
    TooLarge {
        /// The length in bytes.
        bytes: usize,
        /// The maximum length in bytes.
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
    /// Only ClusterScalingPolicies have the field.
    #[error("has an effect in a ClusterScalingPolicy only")]
    ClusterOnly,
    /// The value is invalid.
    #[error("must be {expected}, not {value}")]
    Invalid {
        /// The valid values.
        expected: String,
        /// The value of the field, possibly truncated.
        value: String,
    },
    /// The field is required.
    #[error("is required")]
    Required,
    /// The field is required, for this reason.
    #[error("is missing; {0}")]
    Missing(&'static str),
    /// The field contradicts another field.
    #[error("{0}")]
    Conflict(&'static str),
    /// The schedule is invalid. The error contains the name of the field.
    #[error("{0}")]
    Schedule(ScheduleError),
    /// The mode or its end is invalid, or its count is missing.
    #[error("{0}; the count is held")]
    Held(String),
    /// The value exceeds a limit of a ClusterScalingPolicy.
    #[error("exceeds {limit} of ClusterScalingPolicy {policy}; {effect}")]
    Limited {
        /// The limit: `highestCeiling 100`.
        limit: String,
        /// The name of the ClusterScalingPolicy.
        policy: String,
        /// The effect: `100 applies`, or `the field is ignored`.
        effect: String,
    },
    /// The selector of the policy is invalid.
    #[error("{0}; the policy applies to no HPA")]
    Selector(String),
    /// The number of further problems.
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
