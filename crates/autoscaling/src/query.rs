//! Queries to the metrics APIs and their answers, as plain values.
//!
//! A [`Query`] is also the key for sharing one answer between equal queries of different HPAs.

use std::sync::Arc;

use jiff::Timestamp;

use crate::failure::MetricFailureClass;
use crate::quantity::Quantity;

/// One query to a metrics API. Selectors are in canonical text form. The empty text selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Query {
    /// metrics.k8s.io: the usage of all pods that a selector matches, for every resource and container.
    Resource {
        /// The namespace of the pods.
        namespace: Arc<str>,
        /// The selector of the pods.
        selector: Arc<str>,
    },
    /// custom.metrics.k8s.io: one value for each pod that a selector matches.
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
    /// custom.metrics.k8s.io: the value of one object.
    Object {
        /// The namespace of the HPA. The described object is in this namespace, or is this namespace if its
        /// kind is Namespace.
        namespace: Arc<str>,
        /// API group of the described object; empty for the core group.
        group: Arc<str>,
        /// Kind of the described object. The client maps the kind to a resource.
        kind: Arc<str>,
        /// Name of the described object.
        name: Arc<str>,
        /// The name of the metric.
        metric: Arc<str>,
        /// The selector of the metric's series.
        metric_selector: Arc<str>,
    },
    /// external.metrics.k8s.io: all series of a metric.
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
    /// metrics.k8s.io
    Resource,
    /// custom.metrics.k8s.io
    Custom,
    /// external.metrics.k8s.io
    External,
}

impl Api {
    /// The API with this group.
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
    /// The size of all texts of the query, in bytes.
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

    /// The namespace of the query.
    pub fn namespace(&self) -> &Arc<str> {
        match self {
            Self::Resource { namespace, .. }
            | Self::Pods { namespace, .. }
            | Self::Object { namespace, .. }
            | Self::External { namespace, .. } => namespace,
        }
    }
}

/// The answer to a [`Query`], in the server's order. The values are shared, so one answer can serve many
/// HPAs.
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
    /// The text that follows `unable to fetch metrics from ... API: `, as Go's client prints it.
    pub message: Arc<str>,
}

impl QueryError {
    /// Creates the error of a class.
    pub fn new(class: MetricFailureClass, message: impl Into<Arc<str>>) -> Self {
        Self { class, message: message.into() }
    }
}

/// metrics.k8s.io: one PodMetrics.
#[derive(Debug, Clone, PartialEq)]
pub struct PodUsage {
    /// `metadata.name`.
    pub pod: Arc<str>,
    /// `timestamp`: the end of the measured window. Absent means Go's zero time, which is before all others.
    pub timestamp: Option<Timestamp>,
    /// `window`, in nanoseconds.
    pub window_nanos: i64,
    /// `containers`, in order.
    pub containers: Box<[ContainerUsage]>,
}

/// One container's usage.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerUsage {
    /// `name`.
    pub name: Arc<str>,
    /// `usage` by resource name.
    pub usage: crate::pod::ResourceList,
}

/// custom.metrics.k8s.io: one MetricValue.
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

/// external.metrics.k8s.io: one ExternalMetricValue.
#[derive(Debug, Clone, PartialEq)]
pub struct ExternalValue {
    /// `timestamp`.
    pub timestamp: Option<Timestamp>,
    /// `value`.
    pub value: Quantity,
}
