//! What `/decisions` answers, as types: for the controller that writes it and for `why`, which reads it.
//!
//! `docs/decisions.md` describes every field. Fields may be added; none changes its meaning within `concertina/v1`.

use std::time::Duration;

use autoscaling::explanation::Explanation;
use autoscaling::history::{self, Unsettled};
use autoscaling::settings::{Settings, Version};
use autoscaling::{Action, WriteOutcome};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// `apiVersion` of every answer.
pub const API_VERSION: &str = "concertina/v1";
/// `kind` of the record of one HPA.
pub const DECISION_LIST: &str = "DecisionList";
/// `kind` of a page of last decisions.
pub const DECISION_SUMMARY_LIST: &str = "DecisionSummaryList";

/// The record of one HPA, and all that is needed to decide for it as the controller would.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionList {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`DECISION_LIST`].
    pub kind: String,
    /// Of which HPA.
    pub metadata: HpaMetadata,
    /// Who decides.
    pub controller: ControllerInfo,
    /// The controller's time of day when it answered.
    pub now: Timestamp,
    /// What the next decision will look back on.
    pub history: History,
    /// The decisions, newest first.
    pub decisions: Vec<DecisionEntry>,
    /// Of a dry run: what came of comparing its decisions with another controller's changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// What a dry run found when it compared its decisions for an HPA with the changes of another controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// Since when it compares.
    pub since: Timestamp,
    /// In how many changes, of the last 48 hours, both did the same.
    pub same: u64,
    /// In how many they differed.
    pub different: u64,
    /// Of how many it cannot be said.
    pub unknown: u64,
    /// The last difference, if it is still known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_difference: Option<Difference>,
}

/// A change that two controllers differed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// When it was seen.
    pub at: Timestamp,
    /// What each of them did, and why this one did.
    pub sentence: String,
}

/// Which HPA, as the controller knows it now.
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

/// The controller, and what it was told that changes a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerInfo {
    /// Its version.
    pub version: String,
    /// `--horizontal-pod-autoscaler-sync-period`.
    #[serde(with = "go_duration")]
    pub sync_period: Duration,
    /// Flags and gates that change a decision.
    pub settings: SettingsInfo,
}

/// Flags and gates that change a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingsInfo {
    /// `--emulated-version`.
    pub emulated_version: EmulatedVersion,
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

/// The gates that change a decision, by their names.
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
}

/// The Kubernetes minor that is reproduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EmulatedVersion {
    /// 1.36
    #[serde(rename = "1.36")]
    V1_36,
    /// 1.37
    #[serde(rename = "1.37")]
    V1_37,
}

/// What is remembered of an HPA: recent recommendations and recent scale events, in the order of their slots.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// What was recommended, before stabilization.
    pub recommendations: Vec<history::Recommendation>,
    /// Pods added, by rescales of HPAs with `behavior`.
    pub scale_ups: Vec<history::ScaleEvent>,
    /// Pods removed, likewise.
    pub scale_downs: Vec<history::ScaleEvent>,
    /// The last rescale of unknown size that may have added pods: the policies whose period reaches it allow nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_up: Option<Timestamp>,
    /// Likewise removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_down: Option<Timestamp>,
    /// A rescale whose answer was lost; the next sync settles it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<Unsettled>,
    /// When it was taken over from another process, or rebuilt; the next sync looks for what may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited: Option<Timestamp>,
}

/// One decision, or several in a row that differ in noise only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionEntry {
    /// When it was decided for the first time.
    pub first_at: Timestamp,
    /// When it was decided for the last time; all that follows is of then.
    pub last_at: Timestamp,
    /// How many syncs decided so, at least one.
    pub syncs: u32,
    /// `metadata.generation` of the HPA that was decided on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The decision in one sentence, without a full stop.
    pub sentence: String,
    /// What it did to the target.
    pub action: ActionTaken,
    /// [`autoscaling::explanation::LimitingStep`] in one word; `null` if the count is what the metrics ask for.
    pub limiting_step: Option<String>,
    /// The metric that won, in short; `null` if none did.
    pub winner: Option<String>,
    /// The count that the target had; `null` if its scale could not be read.
    pub from: Option<i32>,
    /// The count that should stand; `null` if none could be computed.
    pub to: Option<i32>,
    /// What became of the write.
    pub outcome: Outcome,
    /// Why the write failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The reasons of the events that were sent, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// Of each metric that gave a ratio, between what it moved during these syncs. Only if there were several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<RatioRange>,
    /// Every step, condensed.
    pub explanation: Explanation,
}

/// Between what the ratio of a metric moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RatioRange {
    /// The metric, in short.
    pub metric: String,
    /// The lowest ratio.
    pub lowest: f64,
    /// The highest ratio.
    pub highest: f64,
}

/// What a decision did to its target, or would have done in a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ActionTaken {
    /// Nothing.
    None,
    /// More replicas.
    ScaleUp,
    /// Fewer replicas.
    ScaleDown,
}

/// What became of the write of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// There was nothing to write.
    NotNeeded,
    /// The scale was written.
    Done,
    /// The scale could not be written.
    Failed,
    /// It was held back on purpose: a dry run.
    Withheld,
}

/// A page of HPAs, each with its last decision, by namespace and name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionSummaryList {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`DECISION_SUMMARY_LIST`].
    pub kind: String,
    /// Whether there is more.
    pub metadata: PageMetadata,
    /// Who decides.
    pub controller: ControllerInfo,
    /// The controller's time of day when it answered.
    pub now: Timestamp,
    /// The HPAs of this page.
    pub items: Vec<DecisionSummary>,
}

/// Where a page stands in the whole, as lists of Kubernetes tell it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PageMetadata {
    /// What the query must say for the next page; absent on the last.
    #[serde(default, rename = "continue", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// How many HPAs come after this page; absent on the last.
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
    /// As in [`DecisionEntry`].
    pub first_at: Timestamp,
    /// As in [`DecisionEntry`].
    pub last_at: Timestamp,
    /// As in [`DecisionEntry`].
    pub syncs: u32,
    /// As in [`DecisionEntry`].
    pub sentence: String,
    /// As in [`DecisionEntry`].
    pub action: ActionTaken,
    /// As in [`DecisionEntry`].
    pub limiting_step: Option<String>,
    /// As in [`DecisionEntry`].
    pub winner: Option<String>,
    /// As in [`DecisionEntry`].
    pub from: Option<i32>,
    /// As in [`DecisionEntry`].
    pub to: Option<i32>,
    /// As in [`DecisionEntry`].
    pub outcome: Outcome,
}

/// Why there is no answer, in the form of Kubernetes' Status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// `v1`
    pub api_version: String,
    /// `Status`
    pub kind: String,
    /// `Failure`
    pub status: String,
    /// A sentence for people.
    pub message: String,
    /// `NotFound`, `BadRequest` or `MethodNotAllowed`.
    pub reason: String,
    /// The HTTP status.
    pub code: u16,
}

impl From<&Settings> for SettingsInfo {
    fn from(settings: &Settings) -> Self {
        Self {
            emulated_version: match settings.version {
                Version::V1_36 => EmulatedVersion::V1_36,
                Version::V1_37 => EmulatedVersion::V1_37,
            },
            tolerance: settings.tolerance,
            downscale_stabilization: settings.downscale_stabilization,
            cpu_initialization_period: settings.cpu_initialization_period,
            initial_readiness_delay: settings.initial_readiness_delay,
            feature_gates: FeatureGates {
                hpa_scale_to_zero: settings.scale_to_zero,
                hpa_generation: settings.generation,
                hpa_configurable_tolerance: settings.configurable_tolerance,
            },
        }
    }
}

impl From<SettingsInfo> for Settings {
    fn from(info: SettingsInfo) -> Self {
        Self {
            tolerance: info.tolerance,
            downscale_stabilization: info.downscale_stabilization,
            cpu_initialization_period: info.cpu_initialization_period,
            initial_readiness_delay: info.initial_readiness_delay,
            version: match info.emulated_version {
                EmulatedVersion::V1_36 => Version::V1_36,
                EmulatedVersion::V1_37 => Version::V1_37,
            },
            scale_to_zero: info.feature_gates.hpa_scale_to_zero,
            generation: info.feature_gates.hpa_generation,
            configurable_tolerance: info.feature_gates.hpa_configurable_tolerance,
        }
    }
}

impl From<history::History> for History {
    fn from(history: history::History) -> Self {
        let history::History {
            recommendations,
            scale_ups,
            scale_downs,
            unknown_up,
            unknown_down,
            unsettled,
            inherited,
        } = history;
        Self { recommendations, scale_ups, scale_downs, unknown_up, unknown_down, unsettled, inherited }
    }
}

impl From<History> for history::History {
    fn from(history: History) -> Self {
        let History {
            recommendations,
            scale_ups,
            scale_downs,
            unknown_up,
            unknown_down,
            unsettled,
            inherited,
        } = history;
        Self { recommendations, scale_ups, scale_downs, unknown_up, unknown_down, unsettled, inherited }
    }
}

impl From<Action> for ActionTaken {
    fn from(action: Action) -> Self {
        match action {
            Action::None => Self::None,
            Action::ScaleUp => Self::ScaleUp,
            Action::ScaleDown => Self::ScaleDown,
        }
    }
}

impl From<&WriteOutcome> for Outcome {
    fn from(outcome: &WriteOutcome) -> Self {
        match outcome {
            WriteOutcome::NotNeeded => Self::NotNeeded,
            WriteOutcome::Done => Self::Done,
            WriteOutcome::Failed(_) | WriteOutcome::Unknown(_) => Self::Failed,
            WriteOutcome::Withheld => Self::Withheld,
        }
    }
}

/// Durations as flags write them: `5m0s`.
mod go_duration {
    use std::time::Duration;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::duration::GoDuration;

    pub(super) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        to.collect_str(&GoDuration(nanos))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        let duration: GoDuration = text.parse().map_err(D::Error::custom)?;
        duration.unsigned().ok_or_else(|| D::Error::custom(format!("duration {text:?} is negative")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_pass_unchanged_and_read_like_flags() {
        let settings = Settings {
            tolerance: 0.05,
            downscale_stabilization: Duration::from_millis(1500),
            ..Settings::of(Version::V1_36)
        };
        let json = serde_json::to_value(SettingsInfo::from(&settings)).unwrap();
        assert_eq!(json["emulatedVersion"], "1.36");
        assert_eq!(json["downscaleStabilization"], "1.5s");
        assert_eq!(json["cpuInitializationPeriod"], "5m0s");
        assert_eq!(json["featureGates"]["HPAScaleToZero"], false);
        let read: SettingsInfo = serde_json::from_value(json).unwrap();
        assert_eq!(Settings::from(read), settings);
    }

    #[test]
    fn a_duration_that_is_none_is_refused_with_its_text() {
        let mut json = serde_json::to_value(SettingsInfo::from(&Settings::default())).unwrap();
        for (text, said) in [("-5m", "duration \"-5m\" is negative"), ("5", "missing unit in duration \"5\"")]
        {
            json["initialReadinessDelay"] = text.into();
            let error = serde_json::from_value::<SettingsInfo>(json.clone()).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn what_is_in_doubt_passes_and_is_absent_where_nothing_is() {
        let at = Timestamp::UNIX_EPOCH;
        let plain = history::History {
            scale_ups: vec![history::ScaleEvent::new(at, 2)],
            ..history::History::default()
        };
        let json = serde_json::to_value(History::from(plain.clone())).unwrap();
        let expected = serde_json::json!({
            "recommendations": [],
            "scaleUps": [{"at": "1970-01-01T00:00:00Z", "change": 2}],
            "scaleDowns": [],
        });
        assert_eq!(json, expected);
        let mut doubted = history::History {
            unknown_up: Some(at),
            unknown_down: Some(at),
            unsettled: Some(Unsettled { at, from: 2, to: 3 }),
            inherited: Some(at),
            ..plain
        };
        doubted.scale_ups.push(history::ScaleEvent { at, change: 1, earliest: Some(Timestamp::MIN) });
        let json = serde_json::to_value(History::from(doubted.clone())).unwrap();
        let read: History = serde_json::from_value(json).unwrap();
        assert_eq!(history::History::from(read), doubted);
    }
}
