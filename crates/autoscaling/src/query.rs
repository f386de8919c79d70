//! Queries to the metrics APIs and their answers. Equal queries of different HPAs can share one answer.

use std::sync::Arc;

use jiff::Timestamp;

use crate::failure::MetricFailureClass;
use crate::quantity::Quantity;

/// One query to a metrics API. Selectors are canonical texts. An empty selector matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Query {
    /// `metrics.k8s.io`: the usage of all resources by all containers of the pods that a selector matches.
    Resource {
        /// The namespace of the pods.
        namespace: Arc<str>,
        /// The selector of the pods.
        selector: Arc<str>,
    },
    /// `custom.metrics.k8s.io`: one value for each pod that a selector matches.
    Pods {
        /// The namespace of the pods.
        namespace: Arc<str>,
        /// The name of the metric.
        metric: Arc<str>,
        /// The selector of the pods.
        selector: Arc<str>,
        /// The selector of the metric's series.
        metric_selector: Arc<str>,
    },
    /// `custom.metrics.k8s.io`: the value of one object.
    Object {
        /// The namespace of the HPA. It contains the described object, or is the described object if `kind` is
        /// `Namespace`.
        namespace: Arc<str>,
        /// The API group of the described object; empty for the core group.
        group: Arc<str>,
        /// The kind of the described object. The client maps the kind to a resource.
        kind: Arc<str>,
        /// The name of the described object.
        name: Arc<str>,
        /// The name of the metric.
        metric: Arc<str>,
        /// The selector of the metric's series.
        metric_selector: Arc<str>,
    },
    /// `external.metrics.k8s.io`: all series of a metric.
    External {
        /// The namespace of the HPA.
        namespace: Arc<str>,
        /// The name of the metric.
        metric: Arc<str>,
        /// The selector of the metric's series.
        selector: Arc<str>,
    },
}

/// One of the three metrics APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Api {
    /// `metrics.k8s.io`.
    Resource,
    /// `custom.metrics.k8s.io`.
    Custom,
    /// `external.metrics.k8s.io`.
    External,
}

impl Api {
    /// The API with the group `group`. `None` for any other group.
    pub fn from_group(group: &str) -> Option<Self> {
        [Self::Resource, Self::Custom, Self::External].into_iter().find(|api| api.group() == group)
    }

    /// The API group.
    pub fn group(self) -> &'static str {
        match self {
            Self::Resource => "metrics.k8s.io",
            Self::Custom => "custom.metrics.k8s.io",
            Self::External => "external.metrics.k8s.io",
        }
    }
}

impl Query {
    /// The bytes of all texts in the query.
    pub fn text_bytes(&self) -> usize {
        let texts: &[&Arc<str>] = match self {
            Self::Resource { namespace, selector } => &[namespace, selector],
            Self::Pods { namespace, metric, selector, metric_selector } => {
                &[namespace, metric, selector, metric_selector]
            }
            Self::Object { namespace, group, kind, name, metric, metric_selector } => {
                &[namespace, group, kind, name, metric, metric_selector]
            }
            Self::External { namespace, metric, selector } => &[namespace, metric, selector],
        };
        texts.iter().map(|text| text.len()).sum()
    }

    /// The API that answers the query.
    pub fn api(&self) -> Api {
        match self {
            Self::Resource { .. } => Api::Resource,
            Self::Pods { .. } | Self::Object { .. } => Api::Custom,
            Self::External { .. } => Api::External,
        }
    }

    /// The namespace of the HPA.
    pub fn namespace(&self) -> &Arc<str> {
        match self {
            Self::Resource { namespace, .. }
            | Self::Pods { namespace, .. }
            | Self::Object { namespace, .. }
            | Self::External { namespace, .. } => namespace,
        }
    }
}

/// The answer to a [`Query`], in the order of the response. The values are shared between HPAs.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The answer to [`Query::Resource`].
    Resource(Arc<[PodUsage]>),
    /// The answer to [`Query::Pods`] or [`Query::Object`].
    Custom(Arc<[CustomValue]>),
    /// The answer to [`Query::External`].
    External(Arc<[ExternalValue]>),
}

/// The reason why a query has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    /// The class of the failure.
    pub class: MetricFailureClass,
    /// The error in the words of Go's client, without a prefix for the metric and its API.
    pub message: Arc<str>,
}

impl QueryError {
    /// Creates an error from its class and its text.
    pub fn new(class: MetricFailureClass, message: impl Into<Arc<str>>) -> Self {
        Self { class, message: message.into() }
    }
}

/// The usage of one pod: `PodMetrics` of `metrics.k8s.io`.
#[derive(Debug, Clone, PartialEq)]
pub struct PodUsage {
    /// `metadata.name`.
    pub pod: Arc<str>,
    /// `timestamp`: the end of the measured window. `None` means Go's zero time, which is before all other times.
    pub timestamp: Option<Timestamp>,
    /// `window`, in nanoseconds.
    pub window_nanos: i64,
    /// `containers`.
    pub containers: Box<[ContainerUsage]>,
}

/// The usage of one container.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerUsage {
    /// `name`.
    pub name: Arc<str>,
    /// `usage`.
    pub usage: crate::pod::ResourceList,
}

/// One value: `MetricValue` of `custom.metrics.k8s.io`.
#[derive(Debug, Clone, PartialEq)]
pub struct CustomValue {
    /// `describedObject.name`.
    pub object: Arc<str>,
    /// `timestamp`.
    pub timestamp: Option<Timestamp>,
    /// `windowSeconds`, if set.
    pub window_seconds: Option<i64>,
    /// `value`.
    pub value: Quantity,
}

/// One value: `ExternalMetricValue` of `external.metrics.k8s.io`.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalValue {
    /// `timestamp`.
    pub timestamp: Option<Timestamp>,
    /// `value`.
    pub value: Quantity,
}
