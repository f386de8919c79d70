//! The result of a decision, and the third step of a sync: the new status, the events and the changes of the history.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::event::{EventIntent, EventKind};
use crate::explanation::Explanation;
use crate::history::{Changes, PendingWrite, scale_event};
use crate::hpa::Hpa;
use crate::plan::has_object_or_external;
use crate::settings::Settings;
use crate::status::{ConditionUpdate, MetricStatus, SCALED_TO_ZERO, Status, whole_seconds};

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
    /// The Scale is unavailable. In the status, only conditions change.
    NoScale,
    /// No count can be computed. Contains the message of the event `FailedComputeMetricsReplicas`.
    NoCount(String),
    /// Scaling is disabled, because the target has zero replicas and metrics may not scale it up.
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
    /// recommendation, the explanation, and the conditions and events about metrics do not change. Has no effect
    /// without a Scale.
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

/// The outcome of the write of the Scale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The decision is not [`Verdict::Rescale`], so nothing was written.
    NotNeeded,
    /// The Scale was written.
    Done,
    /// The write failed, with this error text.
    Failed(String),
    /// The response was lost, with this error text, so the outcome is unknown. The sync reports a failure. The next
    /// sync that reads the Scale determines the outcome.
    Unknown(String),
    /// The caller withheld the write, as in a dry run. The sync reports a success, but adds no scale event to the
    /// history.
    Withheld,
}

/// The result of a sync: the status to write, the events to send and the changes of the history.
#[derive(Debug, Clone, PartialEq)]
pub struct Conclusion {
    /// The new status. `None` if it equals the previous status.
    pub status: Option<Arc<Status>>,
    /// Events to send before the status is written.
    pub events: Vec<EventIntent>,
    /// The number of failed metrics beyond the maximum of 100 events, by the reason that their events would have.
    pub unsent_events: BTreeMap<&'static str, u64>,
    /// An event to send after the status is written, in the order of upstream.
    pub last_event: Option<EventIntent>,
    /// The changes to commit with [`crate::history::History::commit`].
    pub changes: Changes,
    /// `desiredReplicas` of the new status; `None` if no Scale was read.
    pub desired: Option<i32>,
    /// The label `action` of upstream's `horizontal_pod_autoscaler_controller_reconciliations_total`.
    pub action: Action,
    /// The label `error` of the same metric.
    pub error: ErrorLabel,
    /// One entry per computed metric, for upstream's `horizontal_pod_autoscaler_controller_metric_computation_total`.
    pub computations: Vec<Computation>,
    /// The steps of the decision.
    pub explanation: Explanation,
}

/// Creates the event to send if the write of the status fails.
pub fn failed_update_status(error: &str) -> EventIntent {
    EventIntent::warning("FailedUpdateStatus", error.to_owned())
}

/// Concludes a sync, after the write that [`Verdict::Rescale`] requires. `now` is the time of the decision.
pub fn conclude(
    hpa: &Hpa<'_>,
    decision: Decision,
    outcome: &WriteOutcome,
    settings: &Settings,
    now: Timestamp,
) -> Conclusion {
    let Decision {
        verdict,
        current,
        min,
        conditions,
        mut events,
        unsent_events,
        metrics,
        mut changes,
        computations,
        mut error,
        explanation,
    } = decision;
    let mut list = hpa.status.conditions.clone();
    for condition in conditions {
        condition.set(&mut list, now);
    }
    let mut action = Action::None;
    let mut last_event = None;
    let rebuilt = |desired: i32, metrics: Vec<MetricStatus>, scaled: bool| Status {
        // Go reads an absent generation as 0.
        observed_generation: settings.generation.then(|| hpa.generation.unwrap_or(0)),
        last_scale_time: if scaled { Some(whole_seconds(now)) } else { hpa.status.last_scale_time },
        current_replicas: current,
        desired_replicas: desired,
        current_metrics: metrics,
        conditions: Vec::new(),
    };
    let has_scale = verdict != Verdict::NoScale;
    let mut status = match verdict {
        Verdict::NoScale => Status { conditions: Vec::new(), ..hpa.status.clone() },
        Verdict::NoCount(message) => {
            last_event = Some(EventIntent::warning("FailedComputeMetricsReplicas", message));
            rebuilt(hpa.status.desired_replicas, metrics, false)
        }
        Verdict::Disabled => {
            if !settings.scale_to_zero {
                list.retain(|condition| condition.kind != SCALED_TO_ZERO);
            }
            rebuilt(0, Vec::new(), false)
        }
        Verdict::Keep => rebuilt(current, metrics, false),
        Verdict::Rescale { to, reason } => match outcome {
            WriteOutcome::Failed(text) | WriteOutcome::Unknown(text) => {
                ConditionUpdate::failed_update_scale(text).set(&mut list, now);
                let message = format!("New size: {to}; reason: {reason}; error: {text}");
                events.push(EventIntent::warning("FailedRescale", message));
                error = ErrorLabel::Internal;
                if let (Some(_), WriteOutcome::Unknown(_)) = (&hpa.spec.behavior, outcome) {
                    changes.unsettled = Some(PendingWrite { at: now, from: current, to });
                }
                rebuilt(hpa.status.desired_replicas, metrics, false)
            }
            WriteOutcome::NotNeeded | WriteOutcome::Done | WriteOutcome::Withheld => {
                action = Action::between(current, to);
                ConditionUpdate::succeeded_rescale(to).set(&mut list, now);
                if settings.scale_to_zero {
                    let by_us = current > 0 && to == 0 && min == 0 && has_object_or_external(hpa.spec);
                    ConditionUpdate::scaled_to_zero(by_us).set(&mut list, now);
                } else {
                    list.retain(|condition| condition.kind != SCALED_TO_ZERO);
                }
                events.push(EventIntent {
                    kind: EventKind::Normal,
                    reason: "SuccessfulRescale",
                    message: format!("New size: {to}; reason: {reason}"),
                });
                if let (Some(behavior), WriteOutcome::Done) = (&hpa.spec.behavior, outcome) {
                    changes.scale_event = Some(scale_event(behavior, current, to, now));
                }
                rebuilt(to, metrics, true)
            }
        },
    };
    status.conditions = list;
    let desired = has_scale.then_some(status.desired_replicas);
    Conclusion {
        status: (status != *hpa.status).then(|| Arc::new(status)),
        events,
        unsent_events,
        last_event,
        changes,
        desired,
        action,
        error,
        computations,
        explanation,
    }
}
