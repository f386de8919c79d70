//! Guards: rules that withhold a change of the count, or a part of it. A guard never changes the direction, and never
//! prevents the correction of a count that is out of bounds.

mod rollout;

use std::fmt;
use std::sync::Arc;

use autoscaling::pod::Pod;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::rollout::{Rollout, RolloutStep};
use crate::spec::{Guards, MaxStep, PendingPods, RolloutGuard, ZeroMetrics};

/// The inputs of the guards in one sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GuardInputs {
    /// The current count.
    pub current: i32,
    /// The lowest count, with schedules.
    pub min: i32,
    /// The highest count, with schedules.
    pub max: i32,
    /// The number of waiting pods: pending, and not terminating.
    pub pending: i32,
    /// The waiting pods that the scheduler cannot place.
    pub unschedulable: i32,
    /// The rollout of the target. `None` if no rollout is in progress, or if its state is unknown.
    pub rollout: Option<Rollout>,
    /// [`crate::history::PolicyHistory::zero_since`].
    pub zero_since: Option<Timestamp>,
}

/// The count that the guards allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guarded {
    /// The count.
    pub replicas: i32,
    /// The guards that changed the count.
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
    /// The number of waiting pods.
    pub pending: i32,
    /// The highest number of waiting pods with which the target scales up.
    pub maximum: i32,
    /// Whether only pods that the scheduler cannot place count.
    pub unschedulable_only: bool,
    /// The count without the guard.
    pub from: i32,
    /// The count.
    pub to: i32,
}

/// A scale-down that waits for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZeroMetricsStep {
    /// The time at which all metrics dropped to 0.
    pub since: Timestamp,
    /// The count without the guard.
    pub from: i32,
    /// The count.
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
    /// The count.
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
                    "all metrics dropped to 0 at once at {since}, so the count is {to} instead of {from}"
                )
            }
            Self::MaxStep(MaxStepStep { current, from, to }) => {
                write!(f, "the largest step from {current} is to {to}, not to {from}")
            }
        }
    }
}

/// Applies the guards to a count.
pub fn guard(guards: &Guards, inputs: &GuardInputs, proposed: i32) -> Guarded {
    let mut guarded = Guarded { replicas: proposed, steps: Vec::new() };
    guarded.pending_pods(guards, inputs);
    guarded.rollout(guards, inputs);
    guarded.zero_metrics(guards, inputs);
    guarded.max_step(guards, inputs);
    guarded
}

impl GuardInputs {
    /// The count closest to `allowed` that corrects a violated bound as far as `count` does.
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
    /// The owner could not be determined. The pod counts, as without the guard.
    Unknown,
}

/// Pods that do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedPodsStep {
    /// The number of pods that the selector matches.
    pub matched: usize,
    /// The number of these pods with another owner or without an owner.
    pub other: usize,
}

impl fmt::Display for OwnedPodsStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} pods belong to other owners and do not count", self.other, self.matched)
    }
}

/// The pods that count, in the order of `pods`, and the effect of the guard if it has one.
pub fn owned_pods(
    pods: &[Arc<Pod>],
    ownership: impl Fn(&Pod) -> Ownership,
) -> (Vec<Arc<Pod>>, Option<OwnedPodsStep>) {
    let counted: Vec<_> = pods.iter().filter(|pod| ownership(pod) != Ownership::Other).cloned().collect();
    let (matched, other) = (pods.len(), pods.len() - counted.len());
    (counted, (other > 0).then_some(OwnedPodsStep { matched, other }))
}

#[cfg(test)]
mod tests;
