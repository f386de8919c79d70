//! The result of a decision, and the labels that upstream's metrics have for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::condition::ConditionUpdate;
use crate::event::EventIntent;
use crate::explanation::Explanation;
use crate::history::Changes;
use crate::status::MetricStatus;

/// The result of a decision, before any write.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub(crate) verdict: Verdict,
    pub(crate) current: i32,
    pub(crate) min: i32,
    pub(crate) conditions: Vec<ConditionUpdate>,
    pub(crate) events: Vec<EventIntent>,
    pub(crate) unsent_events: BTreeMap<&'static str, u64>,
    pub(crate) metrics: Vec<MetricStatus>,
    pub(crate) changes: Changes,
    pub(crate) computations: Vec<Computation>,
    pub(crate) error: ErrorLabel,
    pub(crate) explanation: Explanation,
}

/// The change of the replica count that follows from a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The Scale is unavailable. Only conditions change.
    NoScale,
    /// No count can be computed. Contains the message of the event `FailedComputeMetricsReplicas`.
    NoCount(String),
    /// Scaling is disabled, because the target has zero replicas.
    Disabled,
    /// The count does not change.
    Keep,
    /// The Scale must be written.
    Rescale {
        /// The new count.
        to: i32,
        /// The reason in the message of the event `SuccessfulRescale`.
        reason: String,
    },
}

/// The labels of one metric's computation in upstream's `horizontal_pod_autoscaler_controller_metric_computation_*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Computation {
    /// The label `metric_type`: `type` of the metric source.
    pub metric_type: Arc<str>,
    /// The direction of the proposal relative to `status.currentReplicas`.
    pub action: Action,
    /// The kind of the failure, or [`ErrorLabel::None`].
    pub error: ErrorLabel,
}

/// The label `action` of upstream's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Action {
    /// `scale_up`
    ScaleUp,
    /// `scale_down`
    ScaleDown,
    /// `none`
    #[default]
    None,
}

/// The label `error` of upstream's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum ErrorLabel {
    /// `spec`: the HPA is invalid.
    Spec,
    /// `internal`: any other failure.
    Internal,
    /// `none`
    #[default]
    None,
}

impl Action {
    /// The direction from one count to another.
    pub fn between(from: i32, to: i32) -> Self {
        match to.cmp(&from) {
            std::cmp::Ordering::Greater => Self::ScaleUp,
            std::cmp::Ordering::Less => Self::ScaleDown,
            std::cmp::Ordering::Equal => Self::None,
        }
    }

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ScaleUp => "scale_up",
            Self::ScaleDown => "scale_down",
            Self::None => "none",
        }
    }
}

impl ErrorLabel {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Internal => "internal",
            Self::None => "none",
        }
    }
}

impl Decision {
    /// The change of the replica count.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// The current count of the Scale; 0 without a Scale.
    pub fn current(&self) -> i32 {
        self.current
    }

    /// The count that the decision applies. `None` if it computes none.
    pub fn count(&self) -> Option<i32> {
        match self.verdict {
            Verdict::NoScale | Verdict::NoCount(_) => None,
            Verdict::Disabled => Some(0),
            Verdict::Keep => Some(self.current),
            Verdict::Rescale { to, .. } => Some(to),
        }
    }

    /// Replaces the count, for rules that upstream lacks. `reason` appears in the event of the rescale. The
    /// recommendation, the explanation, and the conditions and events about metrics do not change. Has no effect without
    /// a Scale.
    pub fn replace_count(&mut self, to: i32, reason: impl Into<String>) {
        if self.verdict == Verdict::NoScale {
            return;
        }
        self.verdict =
            if to == self.current { Verdict::Keep } else { Verdict::Rescale { to, reason: reason.into() } };
    }

    /// The steps of the decision.
    pub fn explanation(&self) -> &Explanation {
        &self.explanation
    }

    /// The metrics for the status, in the order of the spec; empty if no metrics were read.
    pub fn metrics(&self) -> &[MetricStatus] {
        &self.metrics
    }
}
