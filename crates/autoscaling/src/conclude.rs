//! The third step of a sync: the new status, the events and the changes of the history.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::condition::{ConditionUpdate, SCALED_TO_ZERO, whole_seconds};
use crate::decision::{Action, Computation, Decision, ErrorLabel, Verdict};
use crate::event::{EventIntent, EventKind};
use crate::explanation::Explanation;
use crate::history::{Changes, PendingWrite, scale_event};
use crate::plan::{Hpa, has_object_or_external};
use crate::settings::Settings;
use crate::status::{MetricStatus, Status};

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
