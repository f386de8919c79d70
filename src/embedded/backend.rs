//! How the three metrics groups are answered: by a backend that a test, a recording or the demo brings.

use std::fmt::Debug;

use bytes::Bytes;
use serde_json::Value;

use super::Cluster;
use super::status::Status;

/// Which of the three metrics groups is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetricsApi {
    /// `metrics.k8s.io`.
    Resource,
    /// `custom.metrics.k8s.io`.
    Custom,
    /// `external.metrics.k8s.io`.
    External,
}

impl MetricsApi {
    pub(crate) fn of_group(group: &str) -> Option<Self> {
        match group {
            "metrics.k8s.io" => Some(Self::Resource),
            "custom.metrics.k8s.io" => Some(Self::Custom),
            "external.metrics.k8s.io" => Some(Self::External),
            _ => None,
        }
    }
}

/// One GET of a metrics group.
#[derive(Debug, Clone, Copy)]
pub struct MetricsRequest<'a> {
    /// The cluster that was asked, for its pods and their labels.
    pub cluster: &'a Cluster,
    /// The group.
    pub api: MetricsApi,
    /// The version in the path, such as `v1beta2`.
    pub version: &'a str,
    /// The namespace in the path; empty without one.
    pub namespace: &'a str,
    /// The decoded segments behind `namespaces/{ns}`, or behind the version without a namespace.
    pub path: &'a [String],
    /// The query parameter `labelSelector`; empty if absent.
    pub label_selector: &'a str,
    /// The query parameter `metricLabelSelector`; empty if absent.
    pub metric_label_selector: &'a str,
}

/// What a backend answers.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricsReply {
    /// 200 with this object.
    Json(Value),
    /// 200 with an object that is JSON text already.
    Encoded(Bytes),
    /// A `metav1.Status`.
    Status(Status),
    /// Text, as a broken adapter or a proxy before it sends.
    Text {
        /// HTTP status code.
        code: u16,
        /// The body.
        body: String,
    },
    /// The API is not installed: 404 `404 page not found`, as text.
    Absent,
}

/// Answers the metrics groups.
pub trait MetricsBackend: Debug + Send + Sync {
    /// The answer to one request. Called without any lock held, so it may ask the cluster.
    fn answer(&self, request: &MetricsRequest<'_>) -> MetricsReply;
}
