//! Types of the `/decisions` response, for the controller and for `why`.
//!
//! `docs/reference/decisions-api.md` describes every field. Fields may be added. The meaning of a field does not change
//! within `concertina/v1`.

use std::sync::Arc;
use std::time::Duration;

use autoscaling::explanation::Explanation;
use autoscaling::history::{self, PendingWrite};
use autoscaling::settings::Version;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use engine::reconcile::SourceReading;
use policies::forecast::ForecastReport;
use policies::resolve::NextChange;
use policies::steps::{PolicyEffect, Step, StepReason};

/// `apiVersion` of every response.
pub const API_VERSION: &str = "concertina/v1";
/// `kind` of the record of one HPA.
pub const DECISION_LIST: &str = "DecisionList";
/// `kind` of a page of last decisions.
pub const DECISION_SUMMARY_LIST: &str = "DecisionSummaryList";

/// The record of one HPA, with the settings of the controller and the history, so that a client can decide like the
/// controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionList {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`DECISION_LIST`].
    pub kind: String,
    /// The identity of the HPA.
    pub metadata: HpaMetadata,
    /// The version and the settings of the controller.
    pub controller: ControllerInfo,
    /// The controller's time of day at the response.
    pub now: Timestamp,
    /// The history that the next decision will use.
    pub history: History,
    /// The decisions, newest first.
    pub decisions: Vec<DecisionEntry>,
    /// The comparison with another controller's changes, in a dry run or with `--shadow-others`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// The state of the handover of the HPA: `claiming`, `in_charge` or `contested`. `None` if all HPAs are in scope,
    /// or if this HPA is out of scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<String>,
}

/// The comparison of the decisions for an HPA with another controller's changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// Start of the comparison.
    pub since: Timestamp,
    /// Changes of the last 48 hours that both controllers made.
    pub same: u64,
    /// Changes in which the two controllers differed.
    pub different: u64,
    /// Changes with an inconclusive comparison.
    pub unknown: u64,
    /// The last difference, if it is still recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_difference: Option<Difference>,
}

/// A change in which two controllers differed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Time of the observation.
    pub at: Timestamp,
    /// The change of each controller, and this controller's reason.
    pub sentence: String,
}

/// The identity and the generation of an HPA in the controller's store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HpaMetadata {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`; API servers before 1.37 set none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

/// The controller and its flags that affect decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerInfo {
    /// The controller's version.
    pub version: String,
    /// `--horizontal-pod-autoscaler-sync-period`.
    #[serde(with = "go_duration")]
    pub sync_period: Duration,
    /// Flags and feature gates that affect decisions.
    pub settings: SettingsInfo,
}

/// Flags and feature gates that affect decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingsInfo {
    /// `--emulated-version`.
    pub emulated_version: Version,
    /// `--horizontal-pod-autoscaler-tolerance`.
    pub tolerance: f64,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`.
    #[serde(with = "go_duration")]
    pub downscale_stabilization: Duration,
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`.
    #[serde(with = "go_duration")]
    pub cpu_initialization_period: Duration,
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`.
    #[serde(with = "go_duration")]
    pub initial_readiness_delay: Duration,
    /// `--feature-gates`.
    pub feature_gates: FeatureGates,
}

/// The feature gates that affect decisions.
#[expect(clippy::struct_excessive_bools, reason = "each gate is a boolean of the published record")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureGates {
    /// HPAScaleToZero.
    #[serde(rename = "HPAScaleToZero")]
    pub hpa_scale_to_zero: bool,
    /// HPAGeneration.
    #[serde(rename = "HPAGeneration")]
    pub hpa_generation: bool,
    /// HPAConfigurableTolerance.
    #[serde(rename = "HPAConfigurableTolerance")]
    pub hpa_configurable_tolerance: bool,
    /// HPAOptimizedSelectorStore. Earlier versions of Concertina do not publish it.
    #[serde(rename = "HPAOptimizedSelectorStore", default = "enabled")]
    pub hpa_optimized_selector_store: bool,
    /// PodLevelResources. Earlier versions of Concertina do not publish it.
    #[serde(rename = "PodLevelResources", default = "enabled")]
    pub pod_level_resources: bool,
}

/// The history of an HPA: recent recommendations and recent scale events. A new entry may replace an outdated entry, so
/// the entries are not always sorted by time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// Recommendations before stabilization.
    pub recommendations: Vec<history::Recommendation>,
    /// Pods added, by rescales of HPAs with `behavior`.
    pub scale_ups: Vec<history::ScaleEvent>,
    /// Pods removed, by rescales of HPAs with `behavior`.
    pub scale_downs: Vec<history::ScaleEvent>,
    /// The last rescale of unknown size that may have added pods. Policies with a period that covers this rescale allow
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_up: Option<Timestamp>,
    /// The last rescale of unknown size that may have removed pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_down: Option<Timestamp>,
    /// A rescale with a lost response, which the next sync reconciles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<PendingWrite>,
    /// Time at which the history was taken over from another process, or rebuilt. The next sync checks for rescales
    /// that the history lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Timestamp>,
}

/// One decision, or several consecutive decisions that differ only in noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionEntry {
    /// Time of the first decision.
    pub first_at: Timestamp,
    /// Time of the last decision. All following fields describe this decision, except for `syncs` and `ratios`.
    pub last_at: Timestamp,
    /// Number of syncs with this decision, at least one.
    pub syncs: u32,
    /// `metadata.generation` of the HPA at the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The decision and its outcome.
    #[serde(flatten)]
    pub result: DecisionResult,
    /// The cause of a failed write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The reasons of the events that were sent, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// The range of each metric's ratio during the merged syncs. Empty for a single sync.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<RatioRange>,
    /// The effect of the scaling policy. Absent for an HPA without a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyEntry>,
    /// The readings of the last decision from the sources that the policy names. Absent if the policy names none for
    /// the HPA's metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceReading>,
    /// All steps of the decision, in condensed form.
    pub explanation: Explanation,
}

/// The effect of a scaling policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyEntry {
    /// The count without guards and mode. `null` if none could be computed.
    pub recommended: Option<i32>,
    /// The count that is applied. `null` if none could be computed.
    pub applied: Option<i32>,
    /// The steps that have an effect, the most important step first.
    pub steps: Vec<StepEntry>,
    /// Fields without effect, and the reasons. Empty if all fields are valid.
    pub problems: String,
    /// The next change of the rules. Absent if the rules do not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextEntry>,
    /// The forecast for the minute. Absent without `forecast`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Arc<ForecastReport>>,
}

/// The next change of a policy's rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextEntry {
    /// The change in words, without a full stop.
    pub message: String,
    /// The time, and each change.
    #[serde(flatten)]
    pub change: NextChange,
}

/// A step of a scaling policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepEntry {
    /// The reason in one word, as in the condition.
    pub reason: StepReason,
    /// The effect with its numbers, without a full stop.
    pub message: String,
    /// The numbers of the step.
    #[serde(flatten)]
    pub step: Step,
}

impl From<PolicyEffect> for PolicyEntry {
    fn from(effect: PolicyEffect) -> Self {
        let PolicyEffect { recommended, applied, steps, problems, next, forecast } = effect;
        let entry = |step: Step| StepEntry { reason: step.reason(), message: step.to_string(), step };
        let next = next.map(|change| NextEntry { message: change.to_string(), change });
        Self { recommended, applied, steps: steps.into_iter().map(entry).collect(), problems, next, forecast }
    }
}

impl From<PolicyEntry> for PolicyEffect {
    fn from(entry: PolicyEntry) -> Self {
        let PolicyEntry { recommended, applied, steps, problems, next, forecast } = entry;
        let steps = steps.into_iter().map(|entry| entry.step).collect();
        Self { recommended, applied, steps, problems, next: next.map(|entry| entry.change), forecast }
    }
}

/// A decision in short, and the outcome of its write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionResult {
    /// The decision in one sentence, without a full stop.
    pub sentence: String,
    /// The effect on the target.
    pub action: ActionTaken,
    /// The name of the [`autoscaling::explanation::LimitingStep`]. `null` if nothing limits the count that the metrics
    /// require.
    pub limiting_step: Option<String>,
    /// The short name of the winning metric. `null` if no metric won.
    pub winner: Option<String>,
    /// The current count of the target. `null` if its scale could not be read.
    pub from: Option<i32>,
    /// The desired count, with the effect of the policy. `null` if none could be computed.
    pub to: Option<i32>,
    /// The outcome of the write.
    pub outcome: Outcome,
}

/// The range of a metric's ratio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RatioRange {
    /// The short name of the metric.
    pub metric: String,
    /// The lowest ratio.
    pub lowest: f64,
    /// The highest ratio.
    pub highest: f64,
}

/// The effect of a decision on its target, also in a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ActionTaken {
    /// The target keeps its replicas.
    None,
    /// The target gets more replicas.
    ScaleUp,
    /// The target gets fewer replicas.
    ScaleDown,
}

/// The outcome of the write of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// No write was needed.
    NotNeeded,
    /// The scale was written.
    Done,
    /// The scale could not be written, or the outcome of the write is unknown.
    Failed,
    /// The write was withheld on purpose, for example by a dry run.
    Withheld,
}

/// A page of HPAs, each with its last decision, sorted by namespace and name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionSummaryList {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`DECISION_SUMMARY_LIST`].
    pub kind: String,
    /// The position of the page.
    pub metadata: PageMetadata,
    /// The version and the settings of the controller.
    pub controller: ControllerInfo,
    /// The controller's time of day at the response.
    pub now: Timestamp,
    /// The HPAs of this page.
    pub items: Vec<DecisionSummary>,
}

/// The position of a page, in the form of Kubernetes' lists.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PageMetadata {
    /// The value of `continue` for the next page. Absent on the last page.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Number of HPAs after this page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<usize>,
}

/// The last decision of one HPA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionSummary {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Same value as in [`DecisionEntry`].
    pub first_at: Timestamp,
    /// Same value as in [`DecisionEntry`].
    pub last_at: Timestamp,
    /// Same value as in [`DecisionEntry`].
    pub syncs: u32,
    /// The sync period of the scaling policy. Absent if the controller's period applies.
    #[serde(default, with = "go_duration::optional", skip_serializing_if = "Option::is_none")]
    pub sync_period: Option<Duration>,
    /// Same value as in [`DecisionEntry`].
    #[serde(flatten)]
    pub result: DecisionResult,
}

/// A failure, in the form of Kubernetes' Status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// `v1`
    pub api_version: String,
    /// `Status`
    pub kind: String,
    /// `Failure`
    pub status: String,
    /// The failure as a sentence.
    pub message: String,
    /// The reason phrase of the HTTP status without spaces, such as `NotFound`.
    pub reason: String,
    /// The HTTP status.
    pub code: u16,
}

/// Returns the default of a gate that earlier versions do not publish.
fn enabled() -> bool {
    true
}

/// Durations in the form of flags: `5m0s`.
mod go_duration {
    use std::time::Duration;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use autoscaling::duration::GoDuration;

    pub(super) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        to.collect_str(&GoDuration(nanos))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        let duration: GoDuration = text.parse().map_err(D::Error::custom)?;
        duration.unsigned().ok_or_else(|| D::Error::custom(format!("duration {text:?} is negative")))
    }

    pub(super) mod optional {
        use super::{Deserializer, Duration, Serializer};

        #[expect(clippy::ref_option, reason = "serde passes the field by reference")]
        pub(in super::super) fn serialize<S: Serializer>(
            duration: &Option<Duration>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            match duration {
                Some(duration) => super::serialize(duration, to),
                None => to.serialize_none(),
            }
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Duration>, D::Error> {
            super::deserialize(from).map(Some)
        }
    }
}
