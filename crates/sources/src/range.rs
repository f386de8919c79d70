//! The past of a metric: its time range, its target and its totals.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use promql::PodNames;

/// The shortest step: the default period of syncs.
const SHORTEST_STEP: u64 = 15;
/// Maximum number of steps of a range. Prometheus refuses more than 11,000.
const MAX_TIMES: u64 = 480;

/// A range of time in the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// The first time.
    pub start: Timestamp,
    /// The end.
    pub end: Timestamp,
}

impl TimeRange {
    /// The step of a range query over this range, in whole seconds.
    pub fn step(self) -> Duration {
        let seconds = u64::try_from(self.end.duration_since(self.start).as_secs()).unwrap_or_default();
        Duration::from_secs(seconds.div_ceil(MAX_TIMES).max(SHORTEST_STEP))
    }
}

/// The target of an HPA, for the past of a metric.
#[derive(Debug, Clone, Copy)]
pub struct PastTarget<'a> {
    /// The namespace of the HPA and its pods.
    pub namespace: &'a Arc<str>,
    /// The kind of the target. The kind determines the form of the names of its pods.
    pub kind: &'a str,
    /// The name of the target.
    pub name: &'a str,
}

impl PastTarget<'_> {
    pub(crate) fn pod_names(&self) -> PodNames {
        PodNames::from_kind(self.kind)
    }
}

/// The past of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct PastReading {
    /// The name of the server.
    pub server: String,
    /// The total of all pods at each time, oldest first. Never empty.
    pub totals: Vec<(Timestamp, f64)>,
}
