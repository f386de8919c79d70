//! `HorizontalPodAutoscalerSpec` of autoscaling/v2 as validated types, with metric sources and targets as
//! enums.
//!
//! Deserialization is lenient, because the API server may be newer or its validation may be bypassed. An
//! invalid metric becomes [`MetricSource::Invalid`] with upstream's error text, and does not affect other
//! metrics.

mod wire;

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
    /// Stabilization, rate policies and tolerance; absent means the controller's defaults.
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
    /// The `type` as written, for the label of the controller's metrics.
    pub kind: Arc<str>,
}

/// The reason of a metric of an unknown type. Upstream counts no other invalid metric as `error="spec"`.
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
    /// Stabilization window in seconds. The default is 0 for scaleUp, and the value of the flag for scaleDown.
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
