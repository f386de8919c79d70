//! `HorizontalPodAutoscalerStatus` of autoscaling/v2, in the wire format.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::selector::LabelSelector;

/// The status of an HPA.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// `metadata.generation` at the last sync (gate HPAGeneration).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Time of the last change of the replica count, in whole seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Timestamp>,
    /// The count at the last sync.
    #[serde(skip_serializing_if = "is_zero")]
    pub current_replicas: i32,
    /// The last decided count.
    pub desired_replicas: i32,
    /// The current values of the metrics; `null` on the wire if there are none.
    #[serde(deserialize_with = "null_is_default", serialize_with = "empty_is_null")]
    pub current_metrics: Vec<MetricStatus>,
    /// Conditions, in the order in which they first appeared.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One condition of an HPA. Most texts are equal for all HPAs, so they are borrowed instead of copied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// `AbleToScale`, `ScalingActive`, `ScalingLimited`, `ScaledToZero`.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// `True`, `False` or `Unknown`.
    pub status: Cow<'static, str>,
    /// Set by other writers. The controller preserves the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Time of the last change of `status`, in whole seconds.
    pub last_transition_time: Option<Timestamp>,
    /// Machine-readable reason in one word.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: Cow<'static, str>,
    /// Human-readable sentence.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub message: Cow<'static, str>,
}

/// The current value of one metric. A failed metric has an empty `type`. The fields are boxed, because only
/// one of them is set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricStatus {
    /// The source: `Resource`, `ContainerResource`, `Pods`, `Object`, `External`, or empty.
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

/// Status of an Object metric.
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

/// Status of a Pods or an External metric.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodsMetricStatus {
    /// The metric.
    pub metric: MetricIdentifier,
    /// The value of the metric.
    pub current: MetricValueStatus,
}

/// Status of a Resource metric.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceMetricStatus {
    /// `cpu`, `memory`, ...
    pub name: String,
    /// The value of the metric.
    pub current: MetricValueStatus,
}

/// Status of a ContainerResource metric.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerResourceMetricStatus {
    /// `cpu`, `memory`, ...
    pub name: String,
    /// The value of the metric.
    pub current: MetricValueStatus,
    /// The container.
    pub container: String,
}

/// The name of a metric and the selector of its series.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricIdentifier {
    /// The name.
    pub name: String,
    /// The selector of the metric's series; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// The current value of a metric, in the forms of its target.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricValueStatus {
    /// The total value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Quantity>,
    /// The value per pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_value: Option<Quantity>,
    /// Percent of the pods' requests.
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
