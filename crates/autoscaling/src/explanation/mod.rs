//! Every step of a decision as data: what went in, what came out, what limited it. Commands print it, the log quotes
//! it, a controller's record keeps it.
//!
//! The steps are complete: whoever has them can compute the result again, knowing nothing else of the HPA or its pods
//! (a test does so for every recorded decision). In JSON, fields and variants are in camelCase, amounts in milli-units or
//! percent as their unit says, times in RFC 3339.

mod reading;
mod sentence;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::reading::{
    Assumed, Corrected, FailedMetric, Measure, MetricExplanation, MetricReading, PodCount, PodGroup,
    PodVerdict, ProposalReason, Strangers, Subject,
};
pub use self::sentence::{LimitingStep, Span, amount, amount_times, milli, trimmed};
use crate::condition::Limit;
use crate::history::{Direction, Recommendation};
use crate::spec::{PolicyKind, SelectPolicy};

/// How one decision came about, step by step in the order in which they were taken.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Which way the sync took.
    pub course: Course,
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
    /// The result: the count that should stand. `None` if none could be computed.
    pub desired: Option<i32>,
    /// Why none could be computed.
    pub failure: Option<Arc<str>>,
}

/// Which way a sync took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Course {
    /// Metrics decided, or should have.
    #[default]
    Metrics,
    /// The target's Scale could not be had.
    NoScale,
    /// The target stands at zero, and not by this HPA: autoscaling is off.
    Disabled,
    /// More replicas than maxReplicas: put right at once.
    AboveMax,
    /// Fewer replicas than minReplicas: put right at once.
    BelowMin,
    /// The Scale has no selector.
    NoSelector,
    /// Other HPAs control the same pods.
    Ambiguous,
    /// The HPA was deleted while the sync ran.
    Deleted,
}

/// Stabilization: the proposal against what was recommended lately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StabilizationStep {
    /// The proposal.
    pub before: i32,
    /// What the windows make of it.
    pub after: i32,
    /// Only with `behavior`: the window for growing, in seconds.
    pub up_window_seconds: Option<i64>,
    /// The window for shrinking, in seconds.
    pub down_window_seconds: i64,
    /// The newest recommendation that keeps the count from going where the proposal points: the last to let go.
    pub held_by: Option<Recommendation>,
    /// The earlier recommendations that count, oldest first. A record kept over time leaves them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recommendations: Vec<Held>,
}

/// An earlier recommendation that lies within a stabilization window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// When it was made.
    pub at: Timestamp,
    /// How many replicas.
    pub replicas: i32,
    /// When it leaves the window for growing, if it is in it.
    pub leaves_up: Option<Timestamp>,
    /// When it leaves the window for shrinking, if it is in it.
    pub leaves_down: Option<Timestamp>,
}

/// Rate limits and bounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitStep {
    /// The stabilized count.
    pub before: i32,
    /// The count that is allowed.
    pub after: i32,
    /// What held it back.
    pub limit: Limit,
    /// Which way the stabilized count points; `None` if it is the current one, and without `behavior`.
    pub direction: Option<Direction>,
    /// Which of the policies counts.
    pub select: Option<SelectPolicy>,
    /// Each policy of that direction, in order. Without `behavior`, empty.
    pub policies: Vec<PolicyUse>,
    /// The count that the rate allows, before bounds.
    pub rate_allows: Option<i32>,
}

/// What one rate policy allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyUse {
    /// `type`: pods or percent.
    #[serde(rename = "type")]
    pub kind: PolicyKind,
    /// `value`: how many pods, or how many percent of the count at the start of the period.
    pub value: i32,
    /// The length of its period in seconds.
    pub period_seconds: i32,
    /// Pods added within the period so far.
    pub added: i32,
    /// Pods removed within the period so far.
    pub removed: i32,
    /// The count at the start of the period.
    pub start: i32,
    /// The count that it allows.
    pub allows: i32,
    /// When the oldest event that counts in the period leaves it; if a rescale of unknown size does, when that one.
    pub frees_at: Option<Timestamp>,
    /// When a rescale was within the period of which the size is not known: it counts as all that the policy allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_rescale: Option<Timestamp>,
}

impl Explanation {
    /// The metric that won.
    pub fn winning_metric(&self) -> Option<&MetricExplanation> {
        self.winner.and_then(|place| self.metrics.get(place))
    }

    /// The same with less detail, to be kept for long: of each metric's pods, those that count are only counted, and at
    /// most `keep` of each other group are listed; earlier recommendations are left out but for the one that decided.
    #[must_use]
    pub fn condensed(&self, keep: usize) -> Self {
        let mut condensed = self.clone();
        for metric in &mut condensed.metrics {
            if let MetricExplanation::Valid(reading) = metric {
                reading.condense(keep);
            }
        }
        if let Some(step) = &mut condensed.stabilization {
            step.recommendations = Vec::new();
        }
        condensed
    }
}
