//! `HorizontalPodAutoscalerSpec` of `autoscaling/v2`, deserialized to validated types.
//!
//! Deserialization is lenient, because the API server may be newer, and objects may have been stored without
//! validation. An invalid metric becomes [`MetricSource::Invalid`] with upstream's error text, and does not affect
//! other metrics.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use limits::hpa::{BYTES as MAX_SPEC_BYTES, METRICS as MAX_METRICS};

use crate::failure::{UNKNOWN_METRIC_TYPE, quote};
use crate::quantity::Quantity;
use crate::selector::Selector;
use crate::status::{CrossVersionObjectReference, MetricIdentifier};

/// The spec of an HPA.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "WireSpec")]
pub struct Spec {
    /// `scaleTargetRef`.
    pub target: CrossVersionObjectReference,
    /// `minReplicas`. `None` means 1.
    pub min_replicas: Option<i32>,
    /// `maxReplicas`.
    pub max_replicas: i32,
    /// `metrics`.
    pub metrics: Box<[MetricSource]>,
    /// `behavior`. `None` means stabilization by the controller's flag, and scale-ups to at most the larger of 4 and
    /// twice the current count.
    pub behavior: Option<Behavior>,
    /// Whether the spec exceeds [`MAX_METRICS`] or [`MAX_SPEC_BYTES`]. It then has neither metrics nor behavior, and
    /// beyond [`MAX_SPEC_BYTES`] no target either.
    pub is_too_large: bool,
}

impl Spec {
    /// A spec of more than [`MAX_SPEC_BYTES`], without its contents.
    pub fn too_large() -> Self {
        Self {
            target: CrossVersionObjectReference::default(),
            min_replicas: None,
            max_replicas: 0,
            metrics: Box::default(),
            behavior: None,
            is_too_large: true,
        }
    }
}

/// The source and the target of a metric.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricSource {
    /// The usage of a resource, summed over the containers of each pod.
    Resource {
        /// The name of the resource: `cpu`, `memory`.
        resource: Arc<str>,
        /// The target usage.
        target: ResourceTarget,
    },
    /// The usage of a resource by one container of each pod.
    ContainerResource {
        /// The name of the resource: `cpu`, `memory`.
        resource: Arc<str>,
        /// The name of the container.
        container: Arc<str>,
        /// The target usage.
        target: ResourceTarget,
    },
    /// A custom metric with one value per pod.
    Pods {
        /// The metric.
        metric: MetricIdentifier,
        /// `target.averageValue`: the target average per pod.
        average: Quantity,
    },
    /// A custom metric of one object.
    Object {
        /// The described object.
        described: CrossVersionObjectReference,
        /// The metric.
        metric: MetricIdentifier,
        /// The target value.
        target: ValueTarget,
    },
    /// A metric from outside the cluster.
    External {
        /// The metric.
        metric: MetricIdentifier,
        /// The target value.
        target: ValueTarget,
    },
    /// An invalid source, which fails in every sync.
    Invalid(InvalidMetric),
}

/// The target of a resource metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceTarget {
    /// `averageUtilization`: percent of the pods' requests.
    Utilization(i32),
    /// `averageValue`: the average per pod.
    AverageValue(Quantity),
}

/// The target of an Object or External metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueTarget {
    /// `value`: a target for the whole value.
    Value(Quantity),
    /// `averageValue`: a target for the value divided by the number of pods.
    AverageValue(Quantity),
}

/// The reason why a metric source is invalid, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidMetric {
    /// The reason of the condition and of the event.
    pub reason: &'static str,
    /// The text before `message` in the message about all metrics.
    pub prefix: String,
    /// The message of the event.
    pub message: String,
    /// `type`, as in the spec.
    pub kind: Arc<str>,
}

/// The reason of a metric of an unknown type. All other invalid metrics have the label `error="internal"`.
pub(crate) const UNKNOWN_TYPE: &str = "InvalidMetricSourceType";

/// `spec.behavior`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Behavior {
    /// `scaleUp`.
    pub scale_up: ScalingRules,
    /// `scaleDown`.
    pub scale_down: ScalingRules,
}

/// The rules of one direction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScalingRules {
    /// `stabilizationWindowSeconds`. `None` means 0 for scale-ups, and the value of the flag for scale-downs.
    pub stabilization_window_seconds: Option<i32>,
    /// `selectPolicy`.
    pub select_policy: SelectPolicy,
    /// `policies`.
    pub policies: Box<[ScalingPolicy]>,
    /// `tolerance`, a fraction. `None` means the value of the flag.
    pub tolerance: Option<Quantity>,
}

/// `selectPolicy`: the choice among several policies. As in upstream, an unknown value means `Max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SelectPolicy {
    /// The policy that allows the largest change.
    #[default]
    Max,
    /// The policy that allows the smallest change.
    Min,
    /// Scaling in this direction is disabled.
    Disabled,
}

/// A limit for the changes of the count within a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalingPolicy {
    /// `type`: the unit of `value`.
    pub kind: PolicyKind,
    /// `value`: a number of pods, or a percentage.
    pub value: i32,
    /// `periodSeconds`.
    pub period_seconds: i32,
}

/// `type` of a rate policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PolicyKind {
    /// A number of pods.
    Pods,
    /// A percentage of the replicas at the start of the period.
    Percent,
    /// Any other text. As in upstream, such a policy allows the count of the previous policy, or 0 if it is the first.
    Unknown,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    #[serde(default)]
    scale_target_ref: CrossVersionObjectReference,
    min_replicas: Option<i32>,
    #[serde(default)]
    max_replicas: i32,
    metrics: Option<Vec<WireMetric>>,
    behavior: Option<WireBehavior>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireMetric {
    r#type: String,
    resource: Option<WireResource>,
    container_resource: Option<WireResource>,
    pods: Option<WireCustom>,
    object: Option<WireCustom>,
    external: Option<WireCustom>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireResource {
    name: String,
    container: String,
    target: WireTarget,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireCustom {
    described_object: CrossVersionObjectReference,
    metric: MetricIdentifier,
    target: WireTarget,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireTarget {
    r#type: String,
    value: Option<Quantity>,
    average_value: Option<Quantity>,
    average_utilization: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireBehavior {
    scale_up: Option<WireRules>,
    scale_down: Option<WireRules>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRules {
    stabilization_window_seconds: Option<i32>,
    select_policy: Option<String>,
    policies: Option<Vec<WirePolicy>>,
    tolerance: Option<Quantity>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WirePolicy {
    r#type: String,
    value: i32,
    period_seconds: i32,
}

impl From<WireSpec> for Spec {
    fn from(wire: WireSpec) -> Self {
        let metrics = wire.metrics.unwrap_or_default();
        let (target, min_replicas, max_replicas) =
            (wire.scale_target_ref, wire.min_replicas, wire.max_replicas);
        if metrics.len() > MAX_METRICS {
            return Self { target, min_replicas, max_replicas, ..Self::too_large() };
        }
        Self {
            target,
            min_replicas,
            max_replicas,
            metrics: metrics.into_iter().map(WireMetric::read).collect(),
            behavior: wire.behavior.map(|behavior| Behavior {
                scale_up: behavior.scale_up.map(WireRules::read).unwrap_or_default(),
                scale_down: behavior.scale_down.map(WireRules::read).unwrap_or_default(),
            }),
            is_too_large: false,
        }
    }
}

impl WireMetric {
    fn read(self) -> MetricSource {
        let kind = self.r#type;
        let missing = |field: &str| {
            invalid(&kind, format!("invalid {kind} metric source: the field {field} is missing"), &kind)
        };
        match kind.as_str() {
            "Resource" => self.resource.map_or_else(|| missing("resource"), |source| source.read(&kind)),
            "ContainerResource" => self
                .container_resource
                .map_or_else(|| missing("containerResource"), |source| source.read(&kind)),
            "Pods" => self.pods.map_or_else(|| missing("pods"), WireCustom::read_pods),
            "Object" => self.object.map_or_else(|| missing("object"), WireCustom::read_object),
            "External" => self.external.map_or_else(|| missing("external"), WireCustom::read_external),
            _ => MetricSource::Invalid(InvalidMetric {
                reason: UNKNOWN_TYPE,
                prefix: String::new(),
                message: format!("{} {}", UNKNOWN_METRIC_TYPE, quote(&kind)),
                kind: kind.into(),
            }),
        }
    }
}

impl WireResource {
    fn read(self, kind: &str) -> MetricSource {
        let is_container = kind == "ContainerResource";
        let Some(target) = self.target.resource() else {
            return invalid(
                kind,
                "invalid resource metric source: neither an average utilization target nor an average value \
                     (usage) target was set"
                    .to_owned(),
                if is_container { &self.container } else { &self.name },
            );
        };
        let (resource, container) = (self.name.into(), self.container.into());
        if is_container {
            MetricSource::ContainerResource { resource, container, target }
        } else {
            MetricSource::Resource { resource, target }
        }
    }
}

impl WireTarget {
    fn resource(&self) -> Option<ResourceTarget> {
        match (self.average_value, self.average_utilization) {
            (Some(average), _) => Some(ResourceTarget::AverageValue(average)),
            (None, Some(percent)) => Some(ResourceTarget::Utilization(percent)),
            (None, None) => None,
        }
    }
}

impl WireCustom {
    fn read_pods(self) -> MetricSource {
        match self.target.average_value {
            Some(average) => MetricSource::Pods { metric: self.metric, average },
            None => invalid(
                "Pods",
                "invalid pods metric source: no average value target was set".to_owned(),
                &self.metric.name,
            ),
        }
    }

    fn read_object(self) -> MetricSource {
        let target = match (self.target.r#type.as_str(), self.target.value, self.target.average_value) {
            ("Value", Some(value), _) => ValueTarget::Value(value),
            ("AverageValue", _, Some(average)) => ValueTarget::AverageValue(average),
            _ => {
                // Upstream reports an invalid selector before an invalid target.
                let selector = self.metric.selector.as_ref();
                let message = match selector.map(|selector| Selector::from_label_selector(Some(selector))) {
                        Some(Err(error)) => error.to_string(),
                        _ => "invalid object metric source: neither a value target nor an average value target was set"
                            .to_owned(),
                    };
                return invalid("Object", message, &self.metric.name);
            }
        };
        MetricSource::Object { described: self.described_object, metric: self.metric, target }
    }

    fn read_external(self) -> MetricSource {
        let target = match (self.target.average_value, self.target.value) {
            (Some(average), _) => ValueTarget::AverageValue(average),
            (None, Some(value)) => ValueTarget::Value(value),
            (None, None) => {
                return invalid(
                        "External",
                        "invalid external metric source: neither a value target nor an average value target was set"
                            .to_owned(),
                        &self.metric.name,
                    );
            }
        };
        MetricSource::External { metric: self.metric, target }
    }
}

impl WireRules {
    fn read(self) -> ScalingRules {
        ScalingRules {
            stabilization_window_seconds: self.stabilization_window_seconds,
            select_policy: match self.select_policy.as_deref() {
                Some("Min") => SelectPolicy::Min,
                Some("Disabled") => SelectPolicy::Disabled,
                _ => SelectPolicy::Max,
            },
            policies: self
                .policies
                .unwrap_or_default()
                .into_iter()
                .map(|policy| ScalingPolicy {
                    kind: match policy.r#type.as_str() {
                        "Pods" => PolicyKind::Pods,
                        "Percent" => PolicyKind::Percent,
                        _ => PolicyKind::Unknown,
                    },
                    value: policy.value,
                    period_seconds: policy.period_seconds,
                })
                .collect(),
            tolerance: self.tolerance,
        }
    }
}

fn invalid(kind: &str, message: String, subject: &str) -> MetricSource {
    let (reason, prefix) = match kind {
        "Resource" => ("FailedGetResourceMetric", format!("failed to get {subject} resource metric value: ")),
        "ContainerResource" => {
            ("FailedGetContainerResourceMetric", format!("failed to get {subject} container metric value: "))
        }
        "Pods" => ("FailedGetPodsMetric", "failed to get pods metric value: ".to_owned()),
        "Object" => ("FailedGetObjectMetric", "failed to get object metric value: ".to_owned()),
        _ => ("FailedGetExternalMetric", format!("failed to get {subject} external metric value: ")),
    };
    MetricSource::Invalid(InvalidMetric { reason, prefix, message, kind: kind.into() })
}
