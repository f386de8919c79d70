//! What a simulation gives: the whole course of one variant of a scenario, as values. Charts, pages and tables are made
//! of this alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::explanation::{Explanation, Subject};
use jiff::Timestamp;

/// One variant of a scenario, played to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The scenario's title.
    pub title: String,
    /// What distinguishes this variant, such as `scaleDown.stabilizationWindowSeconds=60`; empty if it is the only one.
    pub variant: String,
    /// The seed of all randomness.
    pub seed: u64,
    /// The time of day at which it begins.
    pub start: Timestamp,
    /// How long it lasts.
    pub duration: Duration,
    /// `--horizontal-pod-autoscaler-sync-period`, which is also how often samples are taken.
    pub period: Duration,
    /// Each HPA, by namespace and name.
    pub hpas: Vec<HpaRun>,
    /// What the scenario itself did: outages, rollouts, failures.
    pub happenings: Vec<Happening>,
}

/// The course of one HPA and its workload.
#[derive(Debug, Clone, PartialEq)]
pub struct HpaRun {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `Kind/name` of what it scales.
    pub target: String,
    /// The unit of the load, such as `millicores` or `requests/s`; empty without a load.
    pub unit: String,
    /// One sample per period, the first at 0.
    pub samples: Vec<Sample>,
    /// Each metric of the spec, in order; its values are as many as there are samples.
    pub metrics: Vec<MetricSeries>,
    /// Every decision that changed something or was explained by other steps than the one before, oldest first. The
    /// explanation of a moment is that of the last decision at or before it.
    pub decisions: Vec<DecisionPoint>,
    /// Events of the HPA.
    pub events: Vec<EventMark>,
    /// What people compare.
    pub scores: Scores,
}

/// The workload at one instant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Since the start.
    pub at: Duration,
    /// `spec.replicas`: what the HPA wants.
    pub wanted: i32,
    /// Pods that exist and are not terminating.
    pub running: i32,
    /// Pods that are ready.
    pub ready: i32,
    /// Work that comes in, in the unit of the load (millicores, requests per second, items per second).
    pub demand: f64,
    /// Work that the ready pods can take, in the same unit.
    pub capacity: f64,
    /// Items that wait, for a load that queues.
    pub queued: f64,
    /// minReplicas in force.
    pub min: i32,
    /// maxReplicas in force.
    pub max: i32,
    /// The proposal of the last decision, before windows and limits; `None` before the first and where none was computed.
    pub proposal: Option<i32>,
    /// The proposal after the stabilization windows.
    pub stabilized: Option<i32>,
    /// The highest or lowest count that the rate policies allowed at the last decision.
    pub rate_allows: Option<i32>,
}

/// One metric over time, as the decisions saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSeries {
    /// Which metric.
    pub subject: Subject,
    /// `%`, `cores`, `bytes`, or empty for plain numbers.
    pub unit: &'static str,
    /// The target, in this unit.
    pub target: f64,
    /// Values between which nothing changes, in this unit.
    pub tolerated: (f64, f64),
    /// The value of each sample's decision; `None` where the metric failed or no decision was made yet.
    pub values: Vec<Option<f64>>,
}

/// One decision that is worth telling.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionPoint {
    /// Since the start.
    pub at: Duration,
    /// [`Explanation::sentence`] of then.
    pub sentence: String,
    /// All steps.
    pub explanation: Arc<Explanation>,
}

/// An event of an HPA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventMark {
    /// Since the start.
    pub at: Duration,
    /// `SuccessfulRescale` and so on.
    pub reason: String,
    /// Whether it warns.
    pub warning: bool,
    /// Its text.
    pub message: String,
}

/// Something that the scenario did to the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happening {
    /// When it began, since the start.
    pub from: Duration,
    /// When it ended; the same for an instant.
    pub to: Duration,
    /// Such as `custom metrics API is down` or `rollout of web`.
    pub what: String,
}

/// What people compare between variants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scores {
    /// How long the value of any metric was above its target's tolerance.
    pub above_target: Duration,
    /// Work that nobody took: the integral of demand beyond capacity, in unit-seconds of the load; for a queue, the integral of
    /// what waits.
    pub unserved: f64,
    /// The same as a fraction of all work that came in; 0 for a queue.
    pub unserved_fraction: f64,
    /// Pods times hours, of all pods that exist.
    pub pod_hours: f64,
    /// Changes of `spec.replicas` by the HPA.
    pub rescales: u32,
    /// Rescales up after down or down after up.
    pub direction_changes: u32,
    /// The longest time from a metric leaving its tolerance upwards until enough pods were ready for it to come back.
    pub longest_reaction: Duration,
    /// The most pods that existed at once.
    pub peak: i32,
}

/// Runs side by side: variants of one scenario, the first being the one that others are compared with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Comparison {
    /// The variants, in the order in which they were given.
    pub runs: Vec<Run>,
    /// Notes for the reader of the report, such as what was rounded or left out, by topic.
    pub notes: BTreeMap<String, String>,
}
