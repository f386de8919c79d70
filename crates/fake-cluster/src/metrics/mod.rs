//! Backends of the three metrics APIs of a [`Cluster`](super::Cluster).
//!
//! A cluster calls its [`MetricsBackend`](super::MetricsBackend). This module contains [`StaticMetrics`],
//! with answers that the caller sets in the form of the conformance recordings.
//! [`LoadMetrics`](super::load::LoadMetrics) is the backend that follows a load model.

mod labels;
mod lists;
mod static_metrics;

pub use labels::ObjectLabels;
pub(super) use lists::{bad_selector, metric_not_found};
pub use static_metrics::StaticMetrics;
pub(super) use static_metrics::{CustomMetricQuery, pod_not_found};
