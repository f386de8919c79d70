//! The result of a simulation: the observations of each run, and the scores by which variants are compared. Charts,
//! pages and tables use only these values. The field names in JSON are a stable interface. Fields may be added.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::explanation::{Explanation, Subject};
use jiff::Timestamp;
use policies::sentence::Decided;
use policies::steps::{PolicyEffect, StepReason};
use serde::{Serialize, Serializer};

use terminal::words;

/// The complete run of one variant of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Run {
    /// The scenario's title.
    pub title: String,
    /// The name of the variant, such as its setting `scaleDown.stabilizationWindowSeconds=60`. Empty for the only
    /// variant.
    pub variant: String,
    /// The random seed.
    pub seed: u64,
    /// The virtual time at which the run starts.
    #[cfg_attr(test, schemars(with = "crate::schemas::Time"))]
    pub start: Timestamp,
    /// The length of the run.
    #[serde(rename = "durationSeconds", serialize_with = "seconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub duration: Duration,
    /// The shortest sync period of the HPAs. For the past of an HPA, the sampling interval.
    #[serde(rename = "periodSeconds", serialize_with = "seconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub period: Duration,
    /// The events that the scenario causes: outages, rollouts and failures. For the past of an HPA, these are changes
    /// of the leader and writes of field managers.
    pub happenings: Vec<TimelineEvent>,
    /// The HPAs, in the order of the scenario.
    pub hpas: Vec<HpaRun>,
}

/// The results of one HPA and its workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HpaRun {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The scale target, as `Kind/name`.
    pub target: String,
    /// The unit of the load, such as `millicores` or `requests/s`. Empty without a load.
    pub unit: String,
    /// The numbers by which variants are compared.
    pub scores: Scores,
    /// The metrics of the spec, in order. Each has one value per sample.
    pub metrics: Vec<MetricSeries>,
    /// The periods in which steps of the scaling policy had an effect, by start. Empty without a policy.
    pub policies: Vec<PolicySpan>,
    /// The events about the HPA, oldest first. An event that consecutive syncs repeat is listed once.
    pub events: Vec<EventMark>,
    /// The decisions that required a scale write or took other steps than the previous decision, oldest first. Beyond a
    /// maximum number, only decisions that require a scale write are kept. A decision applies until the next decision
    /// of the list.
    pub decisions: Vec<DecisionPoint>,
    /// The sync period: that of its scaling policy, or `--horizontal-pod-autoscaler-sync-period`. For the past of an
    /// HPA, the sampling interval.
    #[serde(rename = "periodSeconds", serialize_with = "seconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub period: Duration,
    /// The time for which one sample stands: a period, or in a long run several periods.
    #[serde(rename = "sampleSeconds", serialize_with = "seconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub interval: Duration,
    /// One sample per sync, at the time of its decision. For the past of an HPA, one sample per period. In a run of
    /// very many syncs, each sample stands for several syncs, and is the one with the most pods.
    pub samples: Vec<Sample>,
}

impl HpaRun {
    /// Returns the changes of the desired count between consecutive samples, as time of the later sample, previous
    /// count and new count.
    pub fn rescales(&self) -> impl Iterator<Item = (Duration, i32, i32)> {
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        let counts = pairs.map(|(before, after)| (after.at, before.wanted, after.wanted));
        counts.filter(|(_, from, to)| from != to)
    }
}

/// The state of the workload after one sync.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sample {
    /// The time since the start.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub at: Duration,
    /// `spec.replicas` after the sync.
    pub wanted: i32,
    /// The number of pods that exist and are not terminating.
    pub running: i32,
    /// The number of ready pods.
    pub ready: i32,
    /// `minReplicas` in force.
    pub min: i32,
    /// `maxReplicas` in force.
    pub max: i32,
    /// Incoming work, in the unit of the load (millicores, requests per second, items per second).
    pub demand: f64,
    /// The work that the ready pods can do, in the unit of the load.
    pub capacity: f64,
    /// The number of items in the queue. 0 for a load without a queue.
    pub queued: f64,
    /// The proposal of the last decision, before windows and limits. `None` before the first decision, or if the
    /// decision has no proposal.
    pub proposal: Option<i32>,
    /// The proposal after the stabilization windows. `None` if the decision has no such step.
    pub stabilized: Option<i32>,
    /// The highest or lowest count that the rate policies allowed at the last decision. `None` if no rate policy
    /// applied.
    pub rate_allows: Option<i32>,
    /// The recommended count of the last decision, if the scaling policy applied a different count.
    pub withheld: Option<i32>,
    /// The forecast of the scaling policy. `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastSample>,
}

/// The forecast in one sync.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ForecastSample {
    /// Whether the floor applies. Otherwise it is only shown.
    pub applies: bool,
    /// The floor, at most `maxReplicas`. `None` without a floor.
    pub floor: Option<i32>,
    /// The expected load in pods at full capacity: the median of similar days, and the load that 95 % of minutes do not
    /// exceed. `None` if none is known.
    pub band: Option<(i32, i32)>,
}

impl Sample {
    /// Returns the floor that applies, or the one that is only shown.
    pub(super) fn floor(&self, applies: bool) -> Option<i32> {
        self.forecast.filter(|forecast| forecast.applies == applies)?.floor
    }
}

/// A period in which steps of the scaling policy with the same reason had an effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicySpan {
    /// The start, as time since the start of the run.
    #[serde(rename = "fromSeconds", serialize_with = "seconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub from: Duration,
    /// The end, as time since the start of the run.
    #[serde(rename = "toSeconds", serialize_with = "seconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub to: Duration,
    /// The reason, as in the condition `ScalingPolicyActive`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub reason: StepReason,
    /// The first step of the period in words, with its numbers.
    pub what: String,
    /// The bound of the HPA's spec and the bound that the schedule sets. `None` for a step other than a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<(i32, i32)>,
}

/// The values of one metric over time, as the controller read them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MetricSeries {
    /// The metric's identity.
    #[cfg_attr(test, schemars(with = "crate::schemas::Object"))]
    pub subject: Subject,
    /// The unit: `%`, `cores`, `bytes`, or empty for plain numbers.
    pub unit: &'static str,
    /// The target, in `unit`.
    pub target: f64,
    /// The lowest value within tolerance, in `unit`.
    pub tolerated_from: f64,
    /// The highest value within tolerance, in `unit`.
    pub tolerated_to: f64,
    /// One value per sample, from the last decision, in `unit`. `None` before the first decision, or if the metric
    /// failed.
    pub values: Vec<Option<f64>>,
}

/// One recorded decision.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DecisionPoint {
    /// The time since the start.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub at: Duration,
    /// The decision in one sentence, with the effect of the scaling policy.
    pub sentence: String,
    /// All steps of the decision.
    #[cfg_attr(test, schemars(with = "crate::schemas::Object"))]
    pub explanation: Arc<Explanation>,
    /// The effect of the scaling policy. `None` for an HPA without a policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::schemas::Object>"))]
    pub policy: Option<Arc<PolicyEffect>>,
}

impl DecisionPoint {
    /// Returns the count that is applied. `None` if no count could be computed.
    pub fn applied(&self) -> Option<i32> {
        Decided::new(&self.explanation, self.policy.as_deref()).count()
    }

    /// Returns the current and the applied count, if they differ.
    pub fn rescale(&self) -> Option<(i32, i32)> {
        let current = self.explanation.current;
        self.applied().filter(|applied| *applied != current).map(|applied| (current, applied))
    }
}

/// An event of an HPA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EventMark {
    /// The time since the start.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub at: Duration,
    /// The event's reason, such as `SuccessfulRescale`.
    pub reason: String,
    /// Whether the event's type is `Warning`.
    pub warning: bool,
    /// The event's message.
    pub message: String,
}

/// An event that the scenario causes in the cluster, or that occurred in the past of an HPA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TimelineEvent {
    /// The start, as time since the start of the run.
    #[serde(rename = "fromSeconds", serialize_with = "seconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub from: Duration,
    /// The end, as time since the start of the run. Equal to `from` for an instant.
    #[serde(rename = "toSeconds", serialize_with = "seconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub to: Duration,
    /// A description, such as `custom metrics API responds with 503` or `rollout of web`.
    pub what: String,
}

/// The numbers by which variants are compared.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Scores {
    /// The total time in which at least one metric was above its target by more than the tolerance.
    #[serde(rename = "aboveTargetSeconds", serialize_with = "seconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub above_target: Duration,
    /// The lost work: the integral of the demand beyond the capacity, such as a number of requests. For a queue, the
    /// integral of the queue length, in item-seconds.
    pub unserved: f64,
    /// The lost fraction of all incoming work, from 0 to 1. 0 for a queue.
    pub unserved_fraction: f64,
    /// The integral of the number of existing pods, in pod-hours.
    pub pod_hours: f64,
    /// The number of changes of `spec.replicas` by the HPA.
    pub rescales: u32,
    /// The number of rescales up that follow a rescale down, or down that follow a rescale up.
    pub direction_changes: u32,
    /// The longest time for which one metric stayed continuously above its tolerance.
    #[serde(rename = "longestReactionSeconds", serialize_with = "seconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub longest_reaction: Duration,
    /// The largest number of existing pods at one time, also between two syncs.
    pub peak: i32,
}

/// Runs to compare: variants of one scenario, or several scenarios. The first run is the baseline.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Comparison {
    /// The variants of the scenario, followed by the runs of other scenarios.
    pub runs: Vec<Run>,
    /// Notes for the reader of the report, such as assumed values or omitted decisions, by topic.
    pub notes: BTreeMap<String, String>,
}

/// Serializes a duration in seconds. A whole number of seconds is an integer.
fn seconds<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    match duration.subsec_nanos() {
        0 => to.serialize_u64(duration.as_secs()),
        _ => to.serialize_f64(duration.as_secs_f64()),
    }
}

/// Returns the parameters of a comparison, for the heading of a report. `first` is its first run.
pub(super) fn facts(comparison: &Comparison, first: &Run) -> [String; 3] {
    let periods: Vec<_> = periods(comparison).into_iter().map(words::span).collect();
    [
        format!("{} from {} UTC", words::span(first.duration), first.start.strftime("%Y-%m-%d %H:%M")),
        format!("a sync every {}", periods.join(" or ")),
        format!("seed {}", first.seed),
    ]
}

/// Returns the distinct sync periods of all HPAs and variants, the shortest first.
pub(super) fn periods(comparison: &Comparison) -> BTreeSet<Duration> {
    comparison.runs.iter().flat_map(|run| run.hpas.iter().map(|hpa| hpa.period)).collect()
}

/// Returns the UTC time of day at `after` from the start of a run: `09:31:15`. For a run of more than one day, the time
/// has a date.
pub(super) fn time_of_day(run: &Run, after: Duration) -> String {
    let Ok(at) = run.start.checked_add(after) else { return format!("+{}", words::span(after)) };
    let is_long = run.duration > Duration::from_hours(24);
    at.strftime(if is_long { "%Y-%m-%d %H:%M:%S" } else { "%H:%M:%S" }).to_string()
}
