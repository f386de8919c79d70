//! What answers for the three metrics APIs of a [`Cluster`](super::Cluster).
//!
//! A cluster asks its [`MetricsBackend`](super::MetricsBackend). Here is the backend whose whole answer is set by hand:
//! [`StaticMetrics`], which takes the form of the conformance recordings. The backend that follows a load model is
//! [`LoadMetrics`](super::load::LoadMetrics).

mod labels;
mod lists;
mod static_metrics;

pub use labels::ObjectLabels;
pub(super) use lists::{bad_selector, metric_not_found};
pub use static_metrics::StaticMetrics;
pub(super) use static_metrics::{CustomQuestion, pod_not_found};
