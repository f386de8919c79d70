//! What a decision may ask the metrics APIs, and what they answer: plain values.
//!
//! A [`Query`] is also the key under which equal questions of different HPAs can be answered once.

use std::sync::Arc;

use jiff::Timestamp;

use crate::quantity::Quantity;

/// One question to a metrics API. Selectors are in canonical text form; the empty text selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Query {
    /// metrics.k8s.io: the usage of all pods that a selector matches. Serves every resource and container.
    Resource {
        /// The namespace of the pods.
        namespace: Arc<str>,
        /// The pods.
        selector: Arc<str>,
    },
    /// custom.metrics.k8s.io: one value for each pod that a selector matches.
    Pods {
        /// The namespace of the pods.
        namespace: Arc<str>,
        /// The name of the metric.
        metric: Arc<str>,
        /// The pods.
        selector: Arc<str>,
        /// Which series of the metric.
        metric_selector: Arc<str>,
    },
    /// custom.metrics.k8s.io: the value of one object.
    Object {
        /// The namespace of the HPA; the described object is in it, or is it if its kind is Namespace.
        namespace: Arc<str>,
        /// API group of the described object; empty for the core group.
        group: Arc<str>,
        /// Kind of the described object, still to be mapped to a resource.
        kind: Arc<str>,
        /// Name of the described object.
        name: Arc<str>,
        /// The name of the metric.
        metric: Arc<str>,
        /// Which series of the metric.
        metric_selector: Arc<str>,
    },
    /// external.metrics.k8s.io: all series of a metric.
    External {
        /// The namespace of the HPA.
        namespace: Arc<str>,
        /// The name of the metric.
        metric: Arc<str>,
        /// Which series of the metric.
        selector: Arc<str>,
    },
}

/// Which of the three APIs a query goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Api {
    /// metrics.k8s.io
    Resource,
    /// custom.metrics.k8s.io
    Custom,
    /// external.metrics.k8s.io
    External,
}

impl Query {
    /// The API that answers it.
    pub fn api(&self) -> Api {
        match self {
            Self::Resource { .. } => Api::Resource,
            Self::Pods { .. } | Self::Object { .. } => Api::Custom,
            Self::External { .. } => Api::External,
        }
    }
}

/// The answer to a [`Query`], in the order the server gave it. Shared, so that one answer can serve many HPAs.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// To [`Query::Resource`].
    Resource(Arc<[PodUsage]>),
    /// To [`Query::Pods`] and [`Query::Object`].
    Custom(Arc<[CustomValue]>),
    /// To [`Query::External`].
    External(Arc<[ExternalValue]>),
}

/// Why a query has no answer: the text that follows `unable to fetch metrics from ... API: `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    /// The text, as the reference's client prints it.
    pub message: Arc<str>,
}

/// metrics.k8s.io: one PodMetrics.
#[derive(Debug, Clone, PartialEq)]
pub struct PodUsage {
    /// `metadata.name`.
    pub pod: Arc<str>,
    /// `timestamp`: end of the measured window. Absent is the zero time, before all others.
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
    /// `windowSeconds`, if given.
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
