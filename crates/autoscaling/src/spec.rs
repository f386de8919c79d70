//! `HorizontalPodAutoscalerSpec` of autoscaling/v2 as validated types, with metric sources and targets as
//! enums.
//!
//! Deserialization is lenient, because the API server may be newer or its validation may be bypassed. An
//! invalid metric becomes [`MetricSource::Invalid`] with upstream's error text, and does not affect other
//! metrics.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::status::{CrossVersionObjectReference, MetricIdentifier};

/// The spec of an HPA.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "wire::Spec")]
pub struct Spec {
    /// The scale target.
    pub target: CrossVersionObjectReference,
    /// The lower bound; absent means 1.
    pub min_replicas: Option<i32>,
    /// The upper bound.
    pub max_replicas: i32,
    /// The metrics, in order.
    pub metrics: Box<[MetricSource]>,
    /// Stabilization and rate policies; absent means the controller's defaults.
    pub behavior: Option<Behavior>,
}

/// The source and the target of a metric.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricSource {
    /// Usage of a resource, summed over the containers of each pod.
    Resource {
        /// `cpu`, `memory`, ...
        resource: Arc<str>,
        /// The target usage.
        target: ResourceTarget,
    },
    /// Usage of a resource by one container of each pod.
    ContainerResource {
        /// `cpu`, `memory`, ...
        resource: Arc<str>,
        /// The container.
        container: Arc<str>,
        /// The target usage.
        target: ResourceTarget,
    },
    /// A custom metric with one value per pod.
    Pods {
        /// The metric.
        metric: MetricIdentifier,
        /// The target average.
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
    /// An invalid source, which fails with upstream's error text.
    Invalid(InvalidMetric),
}

/// The target of a resource metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceTarget {
    /// Percent of the pods' requests.
    Utilization(i32),
    /// Average per pod.
    AverageValue(Quantity),
}

/// The target of an Object or External metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueTarget {
    /// The total value.
    Value(Quantity),
    /// The value divided by the number of pods.
    AverageValue(Quantity),
}

/// A metric that fails regardless of the cluster's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidMetric {
    /// The reason of the condition and of the event.
    pub reason: &'static str,
    /// The prefix of the error in the summary of all metrics.
    pub prefix: String,
    /// The error.
    pub message: String,
    /// The `type` as written, for the metrics' label.
    pub kind: Arc<str>,
}

/// The reason of a metric of an unknown type: the only invalid metric that upstream's metrics count as
/// `error="spec"`.
pub(crate) const UNKNOWN_TYPE: &str = "InvalidMetricSourceType";

/// `spec.behavior`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Behavior {
    /// Scale-up rules.
    pub scale_up: ScalingRules,
    /// Scale-down rules.
    pub scale_down: ScalingRules,
}

/// The rules of one direction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScalingRules {
    /// Stabilization window in seconds. The default is 0 for scaleUp, and the flag's value for scaleDown.
    pub stabilization_window_seconds: Option<i32>,
    /// The choice among several policies.
    pub select_policy: SelectPolicy,
    /// The rate policies.
    pub policies: Box<[ScalingPolicy]>,
    /// Tolerance as a fraction; absent means the flag's value.
    pub tolerance: Option<Quantity>,
}

/// `selectPolicy`. Unknown values mean `Max`, as in upstream.
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

/// One rate policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalingPolicy {
    /// The unit of `value`.
    pub kind: PolicyKind,
    /// A number of pods, or a percentage.
    pub value: i32,
    /// The length of the period in seconds.
    pub period_seconds: i32,
}

/// `type` of a rate policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PolicyKind {
    /// A number of pods.
    Pods,
    /// Percent of the replicas at the start of the period.
    Percent,
    /// Any other type. Such a policy repeats the result of the previous policy, as in upstream.
    Unknown,
}

/// The wire format of the spec, with every field optional.
mod wire {
    use serde::Deserialize;

    use super::{
        Behavior, CrossVersionObjectReference, InvalidMetric, MetricIdentifier, MetricSource, PolicyKind,
        Quantity, ResourceTarget, ScalingPolicy, ScalingRules, SelectPolicy, UNKNOWN_TYPE, ValueTarget,
    };
    use crate::selector::Selector;

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct Spec {
        #[serde(default)]
        scale_target_ref: CrossVersionObjectReference,
        min_replicas: Option<i32>,
        #[serde(default)]
        max_replicas: i32,
        metrics: Option<Vec<Metric>>,
        behavior: Option<WireBehavior>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Metric {
        r#type: String,
        resource: Option<Resource>,
        container_resource: Option<Resource>,
        pods: Option<Custom>,
        object: Option<Custom>,
        external: Option<Custom>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Resource {
        name: String,
        container: String,
        target: Target,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Custom {
        described_object: CrossVersionObjectReference,
        metric: MetricIdentifier,
        target: Target,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Target {
        r#type: String,
        value: Option<Quantity>,
        average_value: Option<Quantity>,
        average_utilization: Option<i32>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WireBehavior {
        scale_up: Option<Rules>,
        scale_down: Option<Rules>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Rules {
        stabilization_window_seconds: Option<i32>,
        select_policy: Option<String>,
        policies: Option<Vec<Policy>>,
        tolerance: Option<Quantity>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Policy {
        r#type: String,
        value: i32,
        period_seconds: i32,
    }

    impl From<Spec> for super::Spec {
        fn from(wire: Spec) -> Self {
            Self {
                target: wire.scale_target_ref,
                min_replicas: wire.min_replicas,
                max_replicas: wire.max_replicas,
                metrics: wire.metrics.unwrap_or_default().into_iter().map(Metric::read).collect(),
                behavior: wire.behavior.map(|behavior| Behavior {
                    scale_up: behavior.scale_up.map(Rules::read).unwrap_or_default(),
                    scale_down: behavior.scale_down.map(Rules::read).unwrap_or_default(),
                }),
            }
        }
    }

    impl Metric {
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
                "Pods" => self.pods.map_or_else(|| missing("pods"), Custom::read_pods),
                "Object" => self.object.map_or_else(|| missing("object"), Custom::read_object),
                "External" => self.external.map_or_else(|| missing("external"), Custom::read_external),
                _ => MetricSource::Invalid(InvalidMetric {
                    reason: UNKNOWN_TYPE,
                    prefix: String::new(),
                    message: format!("{} {}", crate::failure::UNKNOWN_METRIC_TYPE, crate::go::quote(&kind)),
                    kind: kind.into(),
                }),
            }
        }
    }

    impl Resource {
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

    impl Target {
        fn resource(&self) -> Option<ResourceTarget> {
            match (self.average_value, self.average_utilization) {
                (Some(average), _) => Some(ResourceTarget::AverageValue(average)),
                (None, Some(percent)) => Some(ResourceTarget::Utilization(percent)),
                (None, None) => None,
            }
        }
    }

    impl Custom {
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
                    // Upstream parses the selector before it reads the target.
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

    impl Rules {
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
            "Resource" => {
                ("FailedGetResourceMetric", format!("failed to get {subject} resource metric value: "))
            }
            "ContainerResource" => (
                "FailedGetContainerResourceMetric",
                format!("failed to get {subject} container metric value: "),
            ),
            "Pods" => ("FailedGetPodsMetric", "failed to get pods metric value: ".to_owned()),
            "Object" => ("FailedGetObjectMetric", "failed to get object metric value: ".to_owned()),
            _ => ("FailedGetExternalMetric", format!("failed to get {subject} external metric value: ")),
        };
        MetricSource::Invalid(InvalidMetric { reason, prefix, message, kind: kind.into() })
    }
}
