//! The interface of the three metrics groups. Tests, recordings and the demo provide backends.

use std::fmt::Debug;

pub use autoscaling::query::Api as MetricsApi;
use bytes::Bytes;
use serde_json::Value;

use super::Cluster;
use super::status::Status;

/// One GET of a metrics group.
#[derive(Debug, Clone, Copy)]
pub struct MetricsRequest<'a> {
    /// The cluster that received the request, as the source of pods and their labels.
    pub cluster: &'a Cluster,
    /// The metrics group.
    pub api: MetricsApi,
    /// The version in the path, such as `v1beta2`.
    pub version: &'a str,
    /// The namespace in the path; empty if the path has none.
    pub namespace: &'a str,
    /// The decoded segments after `namespaces/{ns}`, or after the version without a namespace.
    pub path: &'a [String],
    /// The query parameter `labelSelector`; empty if absent.
    pub label_selector: &'a str,
    /// The query parameter `metricLabelSelector`; empty if absent.
    pub metric_label_selector: &'a str,
}

/// The response of a backend.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricsReply {
    /// 200 with an object.
    Json(Value),
    /// 200 with an object that is already JSON text.
    Encoded(Bytes),
    /// A failure as `metav1.Status`.
    Status(Status),
    /// Plain text, such as from a broken adapter or a proxy in front of it.
    Text {
        /// HTTP status code.
        code: u16,
        /// The body.
        body: String,
    },
    /// The API is not installed: 404 `404 page not found`, as text.
    Absent,
}

/// A backend of the metrics groups.
pub trait MetricsBackend: Debug + Send + Sync {
    /// Returns the response to one request. The caller holds no lock, so the backend may read the cluster.
    fn answer(&self, request: &MetricsRequest<'_>) -> MetricsReply;
}
