//! The identifiers of findings.

use std::fmt;

use serde::Serialize;

/// The identifier of a finding. The [reference page](../../../../docs/reference/findings.md) has a row for
/// each. In output, [`Self::as_str`] is the finding's `code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
#[serde(rename_all = "kebab-case")]
pub enum FindingId {
    /// The target does not exist, or has no scale.
    MissingTarget,
    /// The cluster does not serve the kind of the target.
    UnknownTargetKind,
    /// The scale cannot be read for another reason.
    UnreadableScale,
    /// The scale has no selector, so its pods cannot be found.
    NoSelector,
    /// The target has 0 replicas, which disables autoscaling.
    Paused,
    /// Other HPAs select the same pods.
    SharedPods,
    /// Another field manager also sets `spec.replicas`.
    ReplicasAlsoSet,
    /// The target is a utilization, but a container has no request.
    MissingRequest,
    /// Pods lack the container that the metric names.
    MissingContainer,
    /// The cluster does not serve the metrics API.
    MissingMetricsApi,
    /// The metrics API is registered and does not respond.
    MetricsApiUnavailable,
    /// The metrics API responds without a value.
    NoMetricValues,
    /// The selector matches no pod.
    NoPods,
    /// The metric in the spec is invalid.
    InvalidMetric,
    /// The metric cannot be read for another reason.
    MetricFailed,
    /// Samples are older than their window plus a minute.
    StaleMetric,
    /// The selector also matches pods of other owners.
    ForeignPods,
    /// At least half of the pods are unready and do not count.
    UnreadyPods,
    /// At least half of the pods have no sample.
    MissingSamples,
    /// The metrics propose more than `maxReplicas`.
    MaxReplicas,
    /// `minReplicas` equals `maxReplicas`.
    FixedSize,
    /// The tolerance prevents a change of the count.
    Tolerance,
    /// `behavior` sets a tolerance, but the feature gate is off.
    ToleranceIgnored,
    /// `behavior` has an invalid policy type or `selectPolicy`.
    UnknownBehavior,
    /// The count changed direction at least four times in an hour.
    Flapping,
    /// A read was refused.
    Forbidden,
    /// Your clock and the API server's differ by more than 5 s.
    ClockSkew,
}

impl FindingId {
    /// Returns the identifier in kebab-case, stable across versions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MissingTarget => "missing-target",
            Self::UnknownTargetKind => "unknown-target-kind",
            Self::UnreadableScale => "unreadable-scale",
            Self::NoSelector => "no-selector",
            Self::Paused => "paused",
            Self::SharedPods => "shared-pods",
            Self::ReplicasAlsoSet => "replicas-also-set",
            Self::MissingRequest => "missing-request",
            Self::MissingContainer => "missing-container",
            Self::MissingMetricsApi => "missing-metrics-api",
            Self::MetricsApiUnavailable => "metrics-api-unavailable",
            Self::NoMetricValues => "no-metric-values",
            Self::NoPods => "no-pods",
            Self::InvalidMetric => "invalid-metric",
            Self::MetricFailed => "metric-failed",
            Self::StaleMetric => "stale-metric",
            Self::ForeignPods => "foreign-pods",
            Self::UnreadyPods => "unready-pods",
            Self::MissingSamples => "missing-samples",
            Self::MaxReplicas => "max-replicas",
            Self::FixedSize => "fixed-size",
            Self::Tolerance => "tolerance",
            Self::ToleranceIgnored => "tolerance-ignored",
            Self::UnknownBehavior => "unknown-behavior",
            Self::Flapping => "flapping",
            Self::Forbidden => "forbidden",
            Self::ClockSkew => "clock-skew",
        }
    }
}

impl fmt::Display for FindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_page_has_one_row_for_every_finding() {
        let page = include_str!("../../../../../docs/reference/findings.md");
        let codes = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let ids: Vec<FindingId> = codes
            .map(|(code, _)| {
                let id: FindingId = serde_json::from_value(code.into()).unwrap();
                assert_eq!(id.as_str(), code);
                id
            })
            .collect();
        assert_eq!((ids.first(), ids.last()), (Some(&FindingId::MissingTarget), Some(&FindingId::ClockSkew)));
        for pair in ids.windows(2) {
            assert_eq!(pair[0] as usize + 1, pair[1] as usize, "{pair:?}");
        }
    }
}
