//! `HorizontalPodAutoscalerStatus` of `autoscaling/v2`. The types, reasons and messages of its conditions are those of
//! `pkg/controller/podautoscaler/horizontal.go` of Kubernetes.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::selector::LabelSelector;

/// The status of an HPA.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// `metadata.generation` at the last sync. `None` without the gate HPAGeneration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The time of the last change of the replica count, in whole seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Timestamp>,
    /// The count of the Scale at the start of the last sync that read the Scale.
    #[serde(skip_serializing_if = "is_zero")]
    pub current_replicas: i32,
    /// The last count that a sync computed and applied.
    pub desired_replicas: i32,
    /// The current values of the metrics. An empty list is `null` in JSON.
    #[serde(deserialize_with = "null_is_default", serialize_with = "empty_is_null")]
    pub current_metrics: Vec<MetricStatus>,
    /// The conditions, in the order of their first appearance.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One condition of an HPA. Most texts are borrowed from constants, because they are equal for all HPAs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// `AbleToScale`, `ScalingActive`, `ScalingLimited`, `ScaledToZero`.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// `True`, `False` or `Unknown`.
    pub status: Cow<'static, str>,
    /// A field that only other clients set. A sync does not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The time of the last change of `status`, in whole seconds.
    pub last_transition_time: Option<Timestamp>,
    /// Machine-readable reason in CamelCase.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    /// Human-readable sentence.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: Cow<'static, str>,
}

/// The current value of one metric. For a failed metric, `type` is empty and no field is set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricStatus {
    /// `Resource`, `ContainerResource`, `Pods`, `Object`, `External`, or empty.
    #[serde(rename = "type")]
    pub kind: String,
    /// Set if `type` is `Object`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Box<ObjectMetricStatus>>,
    /// Set if `type` is `Pods`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<Box<PodsMetricStatus>>,
    /// Set if `type` is `Resource`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<Box<ResourceMetricStatus>>,
    /// Set if `type` is `ContainerResource`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_resource: Option<Box<ContainerResourceMetricStatus>>,
    /// Set if `type` is `External`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<Box<PodsMetricStatus>>,
}

/// The status of an Object metric.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMetricStatus {
    /// The metric.
    pub metric: MetricIdentifier,
    /// The value of the metric.
    pub current: MetricValueStatus,
    /// The described object.
    pub described_object: CrossVersionObjectReference,
}

/// The status of a Pods or an External metric.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodsMetricStatus {
    /// The metric.
    pub metric: MetricIdentifier,
    /// The value of the metric.
    pub current: MetricValueStatus,
}

/// The status of a Resource metric.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceMetricStatus {
    /// The name of the resource: `cpu`, `memory`.
    pub name: String,
    /// The value of the metric.
    pub current: MetricValueStatus,
}

/// The status of a ContainerResource metric.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerResourceMetricStatus {
    /// The name of the resource: `cpu`, `memory`.
    pub name: String,
    /// The value of the metric.
    pub current: MetricValueStatus,
    /// The name of the container.
    pub container: String,
}

/// The name of a metric and the selector of its series.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricIdentifier {
    /// The name.
    pub name: String,
    /// The selector of the metric's series. `None` means all series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// The current value of a metric, with the fields of the type of its target.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricValueStatus {
    /// The whole value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Quantity>,
    /// The average per pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_value: Option<Quantity>,
    /// The percentage of the pods' requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_utilization: Option<i32>,
}

/// A reference to an object by kind and name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CrossVersionObjectReference {
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// `group/version`, or `version` for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde calls
fn is_zero(count: &i32) -> bool {
    *count == 0
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn empty_is_null<S: serde::Serializer>(metrics: &[MetricStatus], serializer: S) -> Result<S::Ok, S::Error> {
    if metrics.is_empty() { serializer.serialize_none() } else { metrics.serialize(serializer) }
}

/// The type of the condition for reads and writes of the target's Scale.
pub const ABLE_TO_SCALE: &str = "AbleToScale";
/// The type of the condition for the computation of a count from metrics.
pub const SCALING_ACTIVE: &str = "ScalingActive";
/// The type of the condition for limits of the count by bounds and rates.
pub const SCALING_LIMITED: &str = "ScalingLimited";
/// The type of the condition that is `True` after this controller scaled the target to zero.
pub const SCALED_TO_ZERO: &str = "ScaledToZero";
/// The reason of `ScalingActive`, and of an event, for an HPA whose spec [is too large](crate::spec::Spec::is_too_large).
pub(crate) const TOO_MANY_METRICS: &str = "TooManyMetrics";

/// The reason of `AbleToScale` if the write of the Scale failed.
pub const FAILED_UPDATE_SCALE: &str = "FailedUpdateScale";

/// The reason of `AbleToScale` after the Scale was read. A sync that computes a count replaces this reason.
pub(crate) const SUCCEEDED_GET_SCALE: &str = "SucceededGetScale";

/// A new value of one condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionUpdate {
    /// `type`: one of the constants of this module.
    pub kind: &'static str,
    /// `status`: `True` or `False`.
    pub status: bool,
    /// Machine-readable reason in CamelCase.
    pub reason: &'static str,
    /// Human-readable sentence.
    pub message: Cow<'static, str>,
}

impl ConditionUpdate {
    pub(crate) fn failed_get_scale(error: &str) -> Self {
        let message =
            format!("the HPA controller was unable to get the target's current scale: {error}").into();
        Self { kind: ABLE_TO_SCALE, status: false, reason: "FailedGetScale", message }
    }

    pub(crate) fn succeeded_get_scale() -> Self {
        let message = "the HPA controller was able to get the target's current scale".into();
        Self { kind: ABLE_TO_SCALE, status: true, reason: SUCCEEDED_GET_SCALE, message }
    }

    pub(crate) fn succeeded_rescale(replicas: i32) -> Self {
        let message = format!("the HPA controller was able to update the target scale to {replicas}").into();
        Self { kind: ABLE_TO_SCALE, status: true, reason: "SucceededRescale", message }
    }

    pub(crate) fn failed_update_scale(error: &str) -> Self {
        let message = format!("the HPA controller was unable to update the target scale: {error}").into();
        Self { kind: ABLE_TO_SCALE, status: false, reason: FAILED_UPDATE_SCALE, message }
    }

    pub(crate) fn ready_for_new_scale() -> Self {
        let message = "recommended size matches current size".into();
        Self { kind: ABLE_TO_SCALE, status: true, reason: "ReadyForNewScale", message }
    }

    pub(crate) fn scale_down_stabilized() -> Self {
        let message =
            "recent recommendations were higher than current one, applying the highest recent recommendation";
        Self { kind: ABLE_TO_SCALE, status: true, reason: "ScaleDownStabilized", message: message.into() }
    }

    pub(crate) fn scale_up_stabilized() -> Self {
        let message =
            "recent recommendations were lower than current one, applying the lowest recent recommendation";
        Self { kind: ABLE_TO_SCALE, status: true, reason: "ScaleUpStabilized", message: message.into() }
    }

    pub(crate) fn valid_metric_found(metric: &str) -> Self {
        let message =
            format!("the HPA was able to successfully calculate a replica count from {metric}").into();
        Self { kind: SCALING_ACTIVE, status: true, reason: "ValidMetricFound", message }
    }

    pub(crate) fn metric_failed(reason: &'static str, error: &str) -> Self {
        let message = format!("the HPA was unable to compute the replica count: {error}").into();
        Self { kind: SCALING_ACTIVE, status: false, reason, message }
    }

    pub(crate) fn too_many_metrics(message: &str) -> Self {
        let message = message.to_owned().into();
        Self { kind: SCALING_ACTIVE, status: false, reason: TOO_MANY_METRICS, message }
    }

    pub(crate) fn missing_selector() -> Self {
        let message = "the HPA target's scale is missing a selector".into();
        Self { kind: SCALING_ACTIVE, status: false, reason: "InvalidSelector", message }
    }

    pub(crate) fn ambiguous_selector(message: String) -> Self {
        Self { kind: SCALING_ACTIVE, status: false, reason: "AmbiguousSelector", message: message.into() }
    }

    pub(crate) fn scaling_disabled() -> Self {
        let message = "scaling is disabled since the replica count of the target is zero".into();
        Self { kind: SCALING_ACTIVE, status: false, reason: "ScalingDisabled", message }
    }

    pub(crate) fn scaled_to_zero(by_us: bool) -> Self {
        let (reason, message) = if by_us {
            ("ScaledToZero", "the HPA controller scaled the workload to zero")
        } else {
            ("NotScaledToZero", "the HPA controller did not scale the workload to zero")
        };
        Self { kind: SCALED_TO_ZERO, status: by_us, reason, message: message.into() }
    }

    /// Sets the condition in `conditions`, which has at most one entry per type. A new type is appended.
    /// `lastTransitionTime` changes only with the status.
    pub fn set(self, conditions: &mut Vec<Condition>, now: Timestamp) {
        let status = if self.status { "True" } else { "False" };
        let at =
            conditions.iter().position(|condition| condition.kind == self.kind).unwrap_or(conditions.len());
        if at == conditions.len() {
            // The list is kept in memory as long as the HPA, so it gets no spare capacity.
            conditions.reserve_exact(1);
            conditions.push(Condition::default());
        }
        let Some(condition) = conditions.get_mut(at) else {
            return;
        };
        if condition.status != status {
            condition.last_transition_time = Some(whole_seconds(now));
        }
        // Equal texts are assigned too, because a parsed status owns copies of static texts.
        (condition.kind, condition.status) = (self.kind.into(), status.into());
        (condition.reason, condition.message) = (self.reason.into(), self.message);
    }
}

/// The bound or rate that limited a count, in the condition `ScalingLimited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Limit {
    /// The count was not limited. Reason: `DesiredWithinRange`.
    WithinRange,
    /// The scale-up rate. Reason: `ScaleUpLimit`.
    ScaleUpRate,
    /// The scale-down rate. Reason: `ScaleDownLimit`.
    ScaleDownRate,
    /// `maxReplicas`. Reason: `TooManyReplicas`.
    Maximum,
    /// `minReplicas`. Reason: `TooFewReplicas`.
    Minimum,
}

impl Limit {
    pub(crate) fn condition(self, changed: bool) -> ConditionUpdate {
        let (reason, message) = match self {
            Self::WithinRange => ("DesiredWithinRange", "the desired count is within the acceptable range"),
            Self::ScaleUpRate => {
                ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
            }
            Self::ScaleDownRate => (
                "ScaleDownLimit",
                "the desired replica count is decreasing faster than the maximum scale rate",
            ),
            Self::Maximum => {
                ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
            }
            Self::Minimum => {
                ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
            }
        };
        ConditionUpdate { kind: SCALING_LIMITED, status: changed, reason, message: message.into() }
    }
}

/// Whether a condition exists and is `True`.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
}

/// Truncates a time to whole seconds, the precision of `metav1.Time`.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let mut conditions = Vec::new();
        ConditionUpdate::succeeded_get_scale().set(&mut conditions, at(1));
        ConditionUpdate::ready_for_new_scale().set(&mut conditions, at(2));
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].reason, "ReadyForNewScale");
        assert_eq!(conditions[0].last_transition_time, Some(at(1)));
        ConditionUpdate::failed_get_scale("gone").set(&mut conditions, at(3));
        assert_eq!(conditions[0].last_transition_time, Some(at(3)));
    }

    #[test]
    fn new_condition_is_appended_and_the_order_is_kept() {
        let mut conditions = Vec::new();
        ConditionUpdate::succeeded_get_scale().set(&mut conditions, at(1));
        ConditionUpdate::valid_metric_found("cpu resource").set(&mut conditions, at(1));
        ConditionUpdate::ready_for_new_scale().set(&mut conditions, at(1));
        assert_eq!(conditions.iter().map(|c| &*c.kind).collect::<Vec<_>>(), [ABLE_TO_SCALE, SCALING_ACTIVE]);
    }
}
