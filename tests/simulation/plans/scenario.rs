//! What a scenario is made of: a small world, what happens to it and when. Plain data.

use concertina::cli::config::TakeOver;
use serde_json::Value;

/// A small world, and what happens in it.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What it is about, in a few words.
    pub(crate) about: &'static str,
    /// Replicas of the controller; more than one elect a leader.
    pub(crate) replicas: usize,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`, in seconds.
    pub(crate) window: u64,
    pub(crate) takeover: TakeOver,
    /// `--history-checkpoint`.
    pub(crate) checkpoint: bool,
    /// What there is before the controller starts.
    pub(crate) begin: Vec<Change>,
    pub(crate) steps: Vec<Step>,
    /// Seconds after the last step.
    pub(crate) rest: u64,
    pub(crate) counts: Counts,
}

/// Which counts of a target are compared with the run without a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Every count that was ever written, in order.
    All,
    /// The last one: a step meets a window or a period that a fault moves, or the order of the first syncs decides.
    Last,
}

/// Changes at one time.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Seconds after the step before.
    pub(crate) after: u64,
    /// Whether it is meant to meet the world unsettled: it does not wait until a fault is healed.
    pub(crate) abrupt: bool,
    pub(crate) changes: Vec<Change>,
}

/// Something happens to the world. Objects are named `name` in the namespace `shop`, or `namespace/name`.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// A target comes, or is another from now on.
    Target(Target),
    /// A target goes, with its pods.
    Gone(&'static str),
    /// Somebody else sets the count of a target.
    Count(&'static str, i64),
    /// Somebody else sets the selector of a target.
    Selector(&'static str, &'static str),
    /// An HPA is created.
    Hpa(Value),
    /// A merge patch of an HPA.
    Edit(&'static str, Value),
    /// The same around validation, as an older server would have let it through.
    Force(&'static str, Value),
    /// An HPA is deleted.
    Delete(&'static str),
    /// What the containers `app` of a target's pods use together, in millicores.
    Cpu(&'static str, u64),
    /// The same of the containers `side`.
    Side(&'static str, u64),
    /// A metric of a target's pods, all of them together.
    Pods(&'static str, &'static str, u64),
    /// A metric of the Service of this name.
    Object(&'static str, u64),
    /// An external metric.
    External(&'static str, u64),
    /// A metrics API fails from now on.
    Down(Api),
    /// It is back.
    Up(Api),
    /// So many pods of a target are without metrics.
    Unmeasured(&'static str, usize),
    /// A replica of the controller is asked to end, and comes back as a new one.
    End(usize),
}

/// A metrics API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Api {
    Resource,
    Custom,
    External,
}

/// A scale target whose pods follow at once.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Group, version and plural name.
    pub(crate) resource: [&'static str; 3],
    pub(crate) replicas: i64,
    pub(crate) selector: &'static str,
    /// Labels of its pods besides `app={name}`.
    pub(crate) labels: &'static [(&'static str, &'static str)],
}

/// Splits `namespace/name`; the namespace is `shop` if there is none.
pub(crate) fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("shop", name))
}

/// RFC 7386.
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
