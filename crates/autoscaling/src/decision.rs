//! The result of a decision, and the labels of the controller's metrics that follow from it.

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

/// The action that follows from a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The Scale is unavailable. Only conditions change.
    NoScale,
    /// No count can be computed. Contains the text of the event.
    NoCount(String),
    /// Scaling is disabled: the target has zero replicas.
    Disabled,
    /// The count stays.
    Keep,
    /// The count changes.
    Rescale {
        /// The new count.
        to: i32,
        /// The reason in the event.
        reason: String,
    },
}

/// The outcome of one metric's computation, for the controller's metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Computation {
    /// `type` of the metric source.
    pub metric_type: Arc<str>,
    /// The direction of the proposal relative to `status.currentReplicas`.
    pub action: Action,
    /// The kind of failure, if the computation failed.
    pub error: ErrorLabel,
}

/// The label `action`.
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

/// The label `error`.
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
    /// The action that follows from the decision.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// The current count of the Scale.
    pub fn current(&self) -> i32 {
        self.current
    }

    /// The steps of the decision.
    pub fn explanation(&self) -> &Explanation {
        &self.explanation
    }

    /// The metrics for the status; empty if no metrics were read.
    pub fn metrics(&self) -> &[MetricStatus] {
        &self.metrics
    }
}
