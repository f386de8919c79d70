//! Guards: rules that prevent a change of the count, or a part of the change. A guard never reverses the direction of a
//! change, and never prevents the correction of a count that is out of bounds.

use std::fmt;
use std::sync::Arc;

use autoscaling::pod::Pod;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::spec::{Guards, MaxStep, PendingPods, RolloutGuard, ZeroMetrics};

/// The inputs of the guards in one sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GuardInputs {
    /// The current count.
    pub current: i32,
    /// The effective `minReplicas`, including schedules.
    pub min: i32,
    /// The effective `maxReplicas`, including schedules.
    pub max: i32,
    /// The number of pods that are pending and not terminating.
    pub pending: i32,
    /// The number of these pods that the scheduler cannot place.
    pub unschedulable: i32,
    /// The rollout of the target. `None` if no rollout is in progress, or if this is unknown.
    pub rollout: Option<Rollout>,
    /// The time at which all metrics dropped to 0: [`crate::history::PolicyHistory::zero_since`].
    pub zero_since: Option<Timestamp>,
}

/// The count that the guards allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guarded {
    /// The allowed count.
    pub replicas: i32,
    /// The effects of the guards that changed the count.
    pub steps: Vec<GuardStep>,
}

/// The effect of one guard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GuardStep {
    /// `pendingPods`.
    PendingPods(PendingPodsStep),
    /// `rollout`.
    Rollout(RolloutStep),
    /// `zeroMetrics`.
    ZeroMetrics(ZeroMetricsStep),
    /// `maxStep`.
    MaxStep(MaxStepStep),
}

/// A scale-up that waits for pending pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPodsStep {
    /// The number of pending pods, or of unschedulable pods with [`Self::unschedulable_only`].
    pub pending: i32,
    /// Maximum number of such pods for a scale-up.
    pub maximum: i32,
    /// Whether pending pods that the scheduler can place are ignored.
    pub unschedulable_only: bool,
    /// The count without the guard.
    pub from: i32,
    /// The count with the guard.
    pub to: i32,
}

/// A scale-down that waits for a metric with a value other than 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZeroMetricsStep {
    /// The time at which all metrics dropped to 0.
    pub since: Timestamp,
    /// The count without the guard.
    pub from: i32,
    /// The count with the guard.
    pub to: i32,
}

/// A change that exceeds the largest step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MaxStepStep {
    /// The current count.
    pub current: i32,
    /// The count without the guard.
    pub from: i32,
    /// The count with the guard.
    pub to: i32,
}

impl fmt::Display for GuardStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PendingPods(PendingPodsStep { pending, maximum, unschedulable_only, from, to }) => {
                let state = if *unschedulable_only { "unschedulable" } else { "pending" };
                write!(
                    f,
                    "{pending} pods are {state}, more than {maximum}, so the count is {to} instead of {from}"
                )
            }
            Self::Rollout(step) => step.fmt(f),
            Self::ZeroMetrics(ZeroMetricsStep { since, from, to }) => {
                write!(
                    f,
                    "all metrics dropped to 0 at once at {since:.0}, so the count is {to} instead of {from}"
                )
            }
            Self::MaxStep(MaxStepStep { current, from, to }) => {
                write!(f, "the largest step from {current} is to {to}, not to {from}")
            }
        }
    }
}

/// Applies the guards to a proposed count.
pub fn guard(guards: &Guards, inputs: &GuardInputs, proposed: i32) -> Guarded {
    let mut guarded = Guarded { replicas: proposed, steps: Vec::new() };
    guarded.pending_pods(guards, inputs);
    guarded.rollout(guards, inputs);
    guarded.zero_metrics(guards, inputs);
    guarded.max_step(guards, inputs);
    guarded
}

impl GuardInputs {
    /// Returns `allowed`, moved towards `count` as far as a violated bound requires.
    fn within_bounds(&self, allowed: i32, count: i32) -> i32 {
        if self.min > self.max {
            return allowed;
        }
        if count > self.current { allowed.max(self.min.min(count)) } else { allowed.min(self.max.max(count)) }
    }
}

impl Guarded {
    fn pending_pods(&mut self, guards: &Guards, inputs: &GuardInputs) {
        let Some(PendingPods { maximum, unschedulable_only }) = guards.pending_pods else { return };
        let pending = if unschedulable_only { inputs.unschedulable } else { inputs.pending };
        let maximum = maximum.pods(inputs.current);
        if self.replicas <= inputs.current || pending <= maximum {
            return;
        }
        self.limit(inputs.current, inputs, |from, to| {
            GuardStep::PendingPods(PendingPodsStep { pending, maximum, unschedulable_only, from, to })
        });
    }

    fn rollout(&mut self, guards: &Guards, inputs: &GuardInputs) {
        let Some(rollout) = inputs.rollout else { return };
        let (up, down) = match guards.rollout {
            None | Some(RolloutGuard::Ignore) => (false, false),
            Some(RolloutGuard::Hold) => (true, true),
            Some(RolloutGuard::HoldScaleUp) => (true, false),
            Some(RolloutGuard::HoldScaleDown) => (false, true),
        };
        if (up && self.replicas > inputs.current) || (down && self.replicas < inputs.current) {
            self.limit(inputs.current, inputs, |from, to| {
                GuardStep::Rollout(RolloutStep { rollout, from, to })
            });
        }
    }

    fn zero_metrics(&mut self, guards: &Guards, inputs: &GuardInputs) {
        let Some(since) = inputs.zero_since else { return };
        if guards.zero_metrics == Some(ZeroMetrics::Hold) && self.replicas < inputs.current {
            self.limit(inputs.current, inputs, |from, to| {
                GuardStep::ZeroMetrics(ZeroMetricsStep { since, from, to })
            });
        }
    }

    fn max_step(&mut self, guards: &Guards, inputs: &GuardInputs) {
        let Some(MaxStep { up, down, maximum_pods_up, maximum_pods_down }) = guards.max_step else { return };
        let current = inputs.current;
        let pods = |pods: Option<u32>| pods.map(|pods| i32::try_from(pods).unwrap_or(i32::MAX));
        let lowest = |amount: Option<i32>, pods: Option<i32>| amount.into_iter().chain(pods).min();
        let up = lowest(up.map(|up| up.step(current)), pods(maximum_pods_up)).unwrap_or(i32::MAX);
        let down = lowest(down.map(|down| down.step(current)), pods(maximum_pods_down)).unwrap_or(i32::MAX);
        let allowed = self.replicas.clamp(current.saturating_sub(down), current.saturating_add(up));
        if allowed != self.replicas {
            self.limit(allowed, inputs, |from, to| GuardStep::MaxStep(MaxStepStep { current, from, to }));
        }
    }

    fn limit(&mut self, allowed: i32, inputs: &GuardInputs, step: impl FnOnce(i32, i32) -> GuardStep) {
        let to = inputs.within_bounds(allowed, self.replicas);
        if to != self.replicas {
            self.steps.push(step(self.replicas, to));
            self.replicas = to;
        }
    }
}

/// The owner of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The target owns the pod, directly or through its ReplicaSets.
    Target,
    /// Another object or no object owns the pod.
    Other,
    /// The owner could not be determined. The pod is not excluded.
    Unknown,
}

/// The effect of `ownedPodsOnly`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedPodsStep {
    /// The number of pods that the selector matches.
    pub matched: usize,
    /// The number of excluded pods, which have another owner or none.
    pub other: usize,
}

impl fmt::Display for OwnedPodsStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} pods belong to other owners and do not count", self.other, self.matched)
    }
}

/// Applies `ownedPodsOnly`. Returns the pods except for those with [`Ownership::Other`], in the same order. The effect
/// is `None` if no pod was excluded.
pub fn owned_pods(
    pods: &[Arc<Pod>],
    ownership: impl Fn(&Pod) -> Ownership,
) -> (Vec<Arc<Pod>>, Option<OwnedPodsStep>) {
    let counted: Vec<_> = pods.iter().filter(|pod| ownership(pod) != Ownership::Other).cloned().collect();
    let (matched, other) = (pods.len(), pods.len() - counted.len());
    (counted, (other > 0).then_some(OwnedPodsStep { matched, other }))
}

/// A rollout in progress: the target has pods of an earlier template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// The number of pods of the new template.
    pub updated: i32,
    /// The number of pods of any template.
    pub total: i32,
}

/// A change that waits for the end of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStep {
    /// The progress of the rollout.
    pub rollout: Rollout,
    /// The count without the guard.
    pub from: i32,
    /// The count with the guard.
    pub to: i32,
}

impl fmt::Display for RolloutStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rollout: Rollout { updated, total }, from, to } = self;
        write!(
            f,
            "the target rolls out, {updated} of {total} pods are updated, so the count is {to} instead of {from}"
        )
    }
}

impl Rollout {
    /// Reads the rollout from the status of an object: a Deployment or StatefulSet of `apps`, or a Rollout of
    /// `argoproj.io`. Returns `None` if no rollout is in progress, and for other kinds. A changed `metadata.generation`
    /// proves no rollout, because a changed `spec.replicas` changes it too.
    pub fn from_object(kind: &str, object: &Value) -> Option<Self> {
        let status = object.get("status")?;
        let number = |field: &str| {
            status
                .get(field)
                .and_then(Value::as_i64)
                .and_then(|number| i32::try_from(number).ok())
                .unwrap_or(0)
        };
        let text = |field: &str| status.get(field).and_then(Value::as_str).unwrap_or_default();
        let (updated, total) = (number("updatedReplicas"), number("replicas"));
        let is_in_progress = match kind {
            "Deployment" => updated < total,
            // `currentRevision` becomes `updateRevision` after the last pod is updated. With a partition, this never
            // happens.
            "StatefulSet" => {
                text("currentRevision") != text("updateRevision") && !text("updateRevision").is_empty()
            }
            // During a paused canary step, the counts do not show the rollout, because all updated pods of the step
            // exist.
            "Rollout" => !text("stableRS").is_empty() && text("currentPodHash") != text("stableRS"),
            _ => false,
        };
        is_in_progress.then_some(Self { updated, total })
    }
}

#[cfg(test)]
mod tests;
