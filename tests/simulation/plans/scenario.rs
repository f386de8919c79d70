//! The parts of a scenario, as data: a small cluster and its changes over time.

use concertina::cli::config::TakeOver;
use serde_json::Value;

/// A small cluster and its changes over time.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// A short description.
    pub(crate) about: &'static str,
    /// Replicas of the controller. With more than one, they elect a leader.
    pub(crate) replicas: usize,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`, in seconds.
    pub(crate) window: u64,
    pub(crate) takeover: TakeOver,
    /// `--history-checkpoint`.
    pub(crate) checkpoint: bool,
    /// Changes before the controller starts.
    pub(crate) initial: Vec<Change>,
    pub(crate) steps: Vec<Step>,
    /// Seconds after the last step.
    pub(crate) rest: u64,
    pub(crate) counts: Counts,
}

/// The counts of a target that are compared with the run without a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    /// All written counts, in order.
    All,
    /// The last count only. A step falls into a window or a period that a fault moves, or the order of the
    /// first syncs decides.
    Last,
}

/// Changes at one time.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Seconds after the previous step.
    pub(crate) after: u64,
    /// Whether the step does not wait until a fault has healed.
    pub(crate) abrupt: bool,
    pub(crate) changes: Vec<Change>,
}

/// A change of the cluster. Objects are named `name` in the namespace `shop`, or `namespace/name`.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// A target is created or replaced.
    Target(Target),
    /// A target is deleted with its pods.
    Gone(&'static str),
    /// A user sets the count of a target.
    Count(&'static str, i64),
    /// A user sets the selector of a target.
    Selector(&'static str, &'static str),
    /// An HPA is created.
    Hpa(Value),
    /// A merge patch of an HPA.
    Edit(&'static str, Value),
    /// A merge patch past validation, as an older API server might have accepted it.
    Force(&'static str, Value),
    /// An HPA is deleted.
    Delete(&'static str),
    /// Total usage of the containers `app` of a target's pods, in millicores.
    Cpu(&'static str, u64),
    /// Total usage of the containers `side`, in millicores.
    Side(&'static str, u64),
    /// Total of a metric over a target's pods.
    Pods(&'static str, &'static str, u64),
    /// A metric of the Service with the given name.
    Object(&'static str, u64),
    /// An external metric.
    External(&'static str, u64),
    /// A metrics API fails from now on.
    Down(Api),
    /// A metrics API recovers.
    Up(Api),
    /// The given number of pods of a target has no metrics.
    Unmeasured(&'static str, usize),
    /// A replica of the controller is shut down and restarted.
    End(usize),
}

/// A metrics API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Api {
    Resource,
    Custom,
    External,
}

/// A scale target with pods that follow at once.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Group, version and plural name.
    pub(crate) resource: [&'static str; 3],
    pub(crate) replicas: i64,
    pub(crate) selector: &'static str,
    /// Labels of its pods in addition to `app={name}`.
    pub(crate) labels: &'static [(&'static str, &'static str)],
}

/// Splits `namespace/name`. The default namespace is `shop`.
pub(crate) fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("shop", name))
}

/// Applies a merge patch (RFC 7386).
pub(crate) fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut object[name], value);
        }
    }
}
