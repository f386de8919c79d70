//! `HorizontalPodAutoscalerStatus` of `autoscaling/v2`, with the names of its fields.

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
    /// The count of the Scale at the start of the last sync.
    #[serde(skip_serializing_if = "is_zero")]
    pub current_replicas: i32,
    /// The last computed count.
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
