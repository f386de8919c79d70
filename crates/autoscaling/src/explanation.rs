//! The steps of a decision as data: inputs, results and limits.
//!
//! The steps are complete: they determine the result, without other data of the HPA or its pods. The test `recordings`
//! recomputes every recorded decision from its explanation. An explanation lists a limited number of pods, and counts
//! the others. In JSON, the names of fields and variants are in camelCase, times are in RFC 3339, and amounts are in
//! milli-units or percent.

mod reading;
mod sentence;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::reading::{
    Assumed, Corrected, FailedMetric, LISTED_PODS, Measure, MetricExplanation, MetricReading, PodCount,
    PodGroup, PodVerdict, ProposalReason, Subject, UnmatchedSamples,
};
pub use self::sentence::{Amendments, LimitingStep, ReplacedCount};
use crate::failure::ScaleFailureClass;
use crate::history::{Direction, Recommendation};
use crate::spec::{PolicyKind, SelectPolicy};
use crate::status::Limit;

/// The steps of one decision, in the order of their computation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The path of the sync through the rules, named `course` in JSON.
    #[serde(rename = "course")]
    pub path: DecisionPath,
    /// `spec.replicas` of the Scale.
    pub current: i32,
    /// `status.replicas` of the Scale.
    pub status_replicas: i32,
    /// The effective `minReplicas`, which is 1 if the field is absent.
    pub min: i32,
    /// `maxReplicas`.
    pub max: i32,
    /// The metrics in the order of the spec. Empty if no metric was read.
    pub metrics: Vec<MetricExplanation>,
    /// The counts of the metrics that [`Self::metrics`] omits. `None` if it omits none, as in a new explanation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<UnlistedMetrics>,
    /// The index in [`Self::metrics`] of the metric with the chosen proposal.
    pub winner: Option<usize>,
    /// The chosen proposal: the highest proposal, or that of a [`crate::Choice`]. A negative value gives a negative
    /// proposal, which counts as 0. As in upstream, any later proposal replaces a proposal of 0.
    pub proposal: Option<i32>,
    /// Stabilization. `None` without a proposal.
    pub stabilization: Option<StabilizationStep>,
    /// Rates and bounds. `None` if neither a proposal nor a violated bound determines the count.
    pub limit: Option<LimitStep>,
    /// The minimum, if it replaced a lower result for a target at zero replicas.
    pub lifted_to_min: Option<i32>,
    /// The resulting count. `None` if no count could be computed.
    pub desired: Option<i32>,
    /// The reason why no count could be computed, in upstream's words.
    pub failure: Option<Arc<str>>,
    /// The class of [`Self::failure`] if the Scale was unavailable. `None` in records of earlier versions, which
    /// [`Self::scale_failure`] classifies by their text.
    #[serde(default)]
    pub failure_class: Option<ScaleFailureClass>,
}

/// The counts of the metrics that an explanation does not list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnlistedMetrics {
    /// Metrics with a proposal.
    pub valid: u32,
    /// Failed metrics.
    pub failed: u32,
}

/// The path of a sync through the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DecisionPath {
    /// Metrics were read.
    #[default]
    Metrics,
    /// The target's Scale was unavailable.
    NoScale,
    /// Autoscaling is disabled, because the target has zero replicas and metrics may not scale it up.
    Disabled,
    /// The target has more replicas than `maxReplicas`, and is scaled to this bound without metrics.
    AboveMax,
    /// The target has fewer replicas than `minReplicas`, and is scaled to this bound without metrics.
    BelowMin,
    /// The Scale has no selector.
    NoSelector,
    /// Other HPAs control the same pods.
    Ambiguous,
    /// The HPA was deleted during the sync.
    Deleted,
}

impl DecisionPath {
    /// Returns whether another count than that of the decision may be applied, such as that of a scaling policy. This
    /// needs a Scale and an HPA. If several HPAs control the same pods, their other counts could conflict.
    pub fn allows_other_count(self) -> bool {
        match self {
            Self::Metrics | Self::Disabled | Self::AboveMax | Self::BelowMin | Self::NoSelector => true,
            Self::NoScale | Self::Ambiguous | Self::Deleted => false,
        }
    }
}

/// The stabilization of the proposal by recent recommendations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StabilizationStep {
    /// The proposal; 0 if it is negative.
    pub before: i32,
    /// The stabilized count.
    pub after: i32,
    /// The scale-up window in seconds. `None` without `behavior`.
    pub up_window_seconds: Option<i64>,
    /// The scale-down window in seconds.
    pub down_window_seconds: i64,
    /// The recommendation that keeps the count above or below the proposal. If there are several, the newest of them,
    /// which expires last.
    pub held_by: Option<Recommendation>,
    /// The earlier recommendations within a window, oldest first. Empty in a [condensed](Explanation::condensed)
    /// explanation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recommendations: Vec<WindowEntry>,
}

/// An earlier recommendation within a stabilization window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WindowEntry {
    /// The time of the recommendation.
    pub at: Timestamp,
    /// The recommended count.
    pub replicas: i32,
    /// The time at which the recommendation leaves the scale-up window. `None` if it is not in this window.
    #[serde(rename = "leavesUp")]
    pub expires_up: Option<Timestamp>,
    /// The time at which the recommendation leaves the scale-down window. `None` if it is not in this window.
    #[serde(rename = "leavesDown")]
    pub expires_down: Option<Timestamp>,
}

/// The step that applies rate limits and bounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitStep {
    /// The stabilized count.
    pub before: i32,
    /// The count within the rates and bounds.
    pub after: i32,
    /// The rate or bound that limited the count.
    pub limit: Limit,
    /// The direction from the current to the stabilized count. `None` if they are equal, or without `behavior`.
    pub direction: Option<Direction>,
    /// `selectPolicy` of the direction.
    pub select: Option<SelectPolicy>,
    /// The policies of the direction, in the order of the spec. Empty if `selectPolicy` is `Disabled`.
    pub policies: Vec<PolicyUse>,
    /// The count that the rate allows, before the bounds apply. `None` if no rate applies.
    pub rate_allows: Option<i32>,
}

/// The allowance of one rate policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyUse {
    /// `type`.
    #[serde(rename = "type")]
    pub kind: PolicyKind,
    /// `value`: a number of pods, or a percentage of the count at the start of the period.
    pub value: i32,
    /// `periodSeconds`.
    pub period_seconds: i32,
    /// The number of pods added within the period.
    pub added: i32,
    /// The number of pods removed within the period.
    pub removed: i32,
    /// The count at the start of the period.
    pub start: i32,
    /// The count that the policy allows.
    pub allows: i32,
    /// The time at which [`Self::unknown_rescale`] leaves the period. Without such a rescale, the time at which the
    /// oldest event in the direction of the policy leaves the period.
    pub frees_at: Option<Timestamp>,
    /// The time of a rescale of unknown size within the period, which uses up the full allowance of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_rescale: Option<Timestamp>,
}

impl Explanation {
    /// The class of the failure to read the Scale. Records of earlier versions lack the class, so this function
    /// classifies their text.
    pub fn scale_failure(&self) -> ScaleFailureClass {
        let text = self.failure.as_deref().unwrap_or_default();
        self.failure_class.unwrap_or_else(|| ScaleFailureClass::from_text(text))
    }

    /// The number of metrics, listed or not.
    pub fn metric_count(&self) -> usize {
        let UnlistedMetrics { valid, failed } = self.unlisted.unwrap_or_default();
        self.metrics.len() + length(valid) + length(failed)
    }

    /// The number of failed metrics, listed or not.
    pub fn failed_count(&self) -> usize {
        let listed = self.metrics.iter().filter(|metric| metric.reading().is_none()).count();
        listed + length(self.unlisted.unwrap_or_default().failed)
    }

    /// The metric with the chosen proposal. `None` if the proposal comes from no metric.
    pub fn winning_metric(&self) -> Option<&MetricExplanation> {
        self.winner.and_then(|index| self.metrics.get(index))
    }

    /// Returns a copy with less detail, for long-term records. For each metric, the copy lists at most `keep` pods of
    /// each group other than [`PodGroup::Ready`], and counts the others. The copy has no
    /// [`StabilizationStep::recommendations`].
    #[must_use]
    pub fn condensed(&self, keep: usize) -> Self {
        let mut condensed = self.clone();
        for metric in &mut condensed.metrics {
            if let MetricExplanation::Valid(reading) = metric {
                (reading.pods, reading.unlisted) = reading.condensed_pods(keep);
            }
        }
        if let Some(step) = &mut condensed.stabilization {
            step.recommendations = Vec::new();
        }
        condensed
    }
}

fn length(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Prints an amount with its unit: `80 %`, `250m`, `12.5 per pod`, `316 Mi`.
pub fn amount(measure: Measure, subject: &Subject) -> String {
    amount_times(measure, 1.0, subject)
}

/// Prints an amount multiplied by a factor: `72 %` for 0.9 times 80 %.
pub fn amount_times(measure: Measure, factor: f64, subject: &Subject) -> String {
    match measure {
        Measure::Percent(percent) => format!("{} %", trimmed(f64::from(percent) * factor, 2)),
        Measure::Milli(amount) => milli_amount(amount as f64 * factor, subject),
        Measure::MilliPerPod(amount) => format!("{} per pod", milli_amount(amount as f64 * factor, subject)),
    }
}

/// Prints milli-units. For resource metrics, cpu below one core is in milli-cores, and memory is in binary units. Other
/// amounts are in units.
pub fn milli(amount: i64, subject: &Subject) -> String {
    milli_amount(amount as f64, subject)
}

fn milli_amount(milli: f64, subject: &Subject) -> String {
    let is_resource = matches!(&*subject.kind, "Resource" | "ContainerResource");
    match &*subject.name {
        "cpu" if is_resource && milli.abs() < 1000.0 => format!("{}m", trimmed(milli, 1)),
        "memory" if is_resource => binary(milli / 1000.0),
        _ => trimmed(milli / 1000.0, 3),
    }
}

fn binary(bytes: f64) -> String {
    let mut rest = bytes;
    for unit in ["", " Ki", " Mi", " Gi"] {
        if rest.abs() < 1024.0 {
            return format!("{}{unit}", trimmed(rest, 1));
        }
        rest /= 1024.0;
    }
    format!("{} Ti", trimmed(rest, 1))
}

/// Prints a number with at most `places` decimal places, without trailing zeros.
pub fn trimmed(number: f64, places: usize) -> String {
    let text = format!("{number:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A duration in whole seconds. Prints the two largest units: `45 s`, `2 min 10 s`, `1 h 5 min`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    seconds: u64,
}

impl Span {
    /// Creates a span of `seconds`; zero if negative.
    pub fn seconds(seconds: i64) -> Self {
        Self { seconds: u64::try_from(seconds).unwrap_or(0) }
    }

    /// Creates the span between two times, rounded up; zero if `to` is not later than `from`.
    pub fn between(from: Timestamp, to: Timestamp) -> Self {
        let length = to.duration_since(from);
        let partial = i64::from(length.subsec_nanos() > 0);
        Self::seconds(length.as_secs().saturating_add(partial))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (self.seconds / 86_400, "d"),
            (self.seconds / 3600 % 24, "h"),
            (self.seconds / 60 % 60, "min"),
            (self.seconds % 60, "s"),
        ];
        let first = units.iter().position(|(amount, _)| *amount > 0).unwrap_or(units.len() - 1);
        let mut separator = "";
        for (index, (amount, unit)) in units.iter().enumerate().skip(first).take(2) {
            if *amount > 0 || index == first {
                write!(f, "{separator}{amount} {unit}")?;
                separator = " ";
            }
        }
        Ok(())
    }
}
