//! The result of a simulation, as values: all observations of one variant of a scenario. Charts, pages and
//! tables use only these values.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::explanation::{Explanation, Subject};
use jiff::Timestamp;

/// The complete run of one variant of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The scenario's title.
    pub title: String,
    /// The settings that distinguish this variant, such as `scaleDown.stabilizationWindowSeconds=60`. Empty
    /// for the only variant.
    pub variant: String,
    /// The random seed.
    pub seed: u64,
    /// The time at which the run starts.
    pub start: Timestamp,
    /// The length of the run.
    pub duration: Duration,
    /// `--horizontal-pod-autoscaler-sync-period`, which is also the sampling interval.
    pub period: Duration,
    /// The HPAs, by namespace and name.
    pub hpas: Vec<HpaRun>,
    /// The events that the scenario itself causes: outages, rollouts, failures.
    pub happenings: Vec<TimelineEvent>,
}

/// The results of one HPA and its workload.
#[derive(Debug, Clone, PartialEq)]
pub struct HpaRun {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The scale target, as `Kind/name`.
    pub target: String,
    /// The unit of the load, such as `millicores` or `requests/s`; empty without a load.
    pub unit: String,
    /// One sample per period, the first at 0.
    pub samples: Vec<Sample>,
    /// The metrics of the spec, in order. Each has one value per sample.
    pub metrics: Vec<MetricSeries>,
    /// Every decision that changed the replica count or took different steps from the previous decision,
    /// oldest first. The decision in force at a time is the last one at or before that time.
    pub decisions: Vec<DecisionPoint>,
    /// Events of the HPA.
    pub events: Vec<EventMark>,
    /// The numbers by which variants are compared.
    pub scores: Scores,
}

/// The state of the workload at one instant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The time since the start.
    pub at: Duration,
    /// `spec.replicas` at the time of the sample.
    pub wanted: i32,
    /// Pods that exist and are not terminating.
    pub running: i32,
    /// Pods that are ready.
    pub ready: i32,
    /// Incoming work, in the unit of the load (millicores, requests per second, items per second).
    pub demand: f64,
    /// The work that the ready pods can do, in the same unit.
    pub capacity: f64,
    /// Items in the queue, for a load with a queue.
    pub queued: f64,
    /// `minReplicas` in force.
    pub min: i32,
    /// `maxReplicas` in force.
    pub max: i32,
    /// The proposal of the last decision, before windows and limits. `None` before the first decision, and if
    /// the decision has no proposal.
    pub proposal: Option<i32>,
    /// The proposal after the stabilization windows.
    pub stabilized: Option<i32>,
    /// The highest or lowest count that the rate policies allowed at the last decision.
    pub rate_allows: Option<i32>,
}

/// One metric over time, as the decisions read it.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSeries {
    /// The metric's identity.
    pub subject: Subject,
    /// `%`, `cores`, `bytes`, or empty for plain numbers.
    pub unit: &'static str,
    /// The target, in `unit`.
    pub target: f64,
    /// The lowest and the highest value within tolerance, in `unit`.
    pub tolerated: (f64, f64),
    /// The value at each sample's decision. `None` before the first decision, and if the metric failed.
    pub values: Vec<Option<f64>>,
}

/// One recorded decision.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionPoint {
    /// The time since the start.
    pub at: Duration,
    /// [`Explanation::sentence`] at that time.
    pub sentence: String,
    /// All steps of the decision.
    pub explanation: Arc<Explanation>,
}

/// An event of an HPA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventMark {
    /// The time since the start.
    pub at: Duration,
    /// The event's reason, such as `SuccessfulRescale`.
    pub reason: String,
    /// Whether the event's type is `Warning`.
    pub warning: bool,
    /// The event's message.
    pub message: String,
}

/// An event that the scenario causes in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineEvent {
    /// The start, as time since the start of the run.
    pub from: Duration,
    /// The end. Equal to `from` for an instant.
    pub to: Duration,
    /// A description, such as `custom metrics API responds with 503` or `rollout of web`.
    pub what: String,
}

/// The numbers by which variants are compared.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scores {
    /// The total time in which at least one metric was above its tolerance.
    pub above_target: Duration,
    /// Unserved work: the integral of demand beyond capacity, in unit-seconds of the load. For a queue, the
    /// integral of the queue length.
    pub unserved: f64,
    /// The unserved fraction of all incoming work; 0 for a queue.
    pub unserved_fraction: f64,
    /// The integral of the number of existing pods, in hours.
    pub pod_hours: f64,
    /// The number of changes of `spec.replicas` by the HPA.
    pub rescales: u32,
    /// The number of rescales up that follow a rescale down, or down that follow a rescale up.
    pub direction_changes: u32,
    /// The longest time for which one metric stayed above its tolerance.
    pub longest_reaction: Duration,
    /// The largest number of existing pods at one time.
    pub peak: i32,
}

/// Runs to compare: variants of one scenario. The first is the baseline.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Comparison {
    /// The variants, in the order of the command line.
    pub runs: Vec<Run>,
    /// Notes for the reader of the report, such as assumed values or omitted decisions, by topic.
    pub notes: BTreeMap<String, String>,
}
