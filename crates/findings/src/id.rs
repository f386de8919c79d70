//! The identifiers of findings, with the text of the [reference page](../../../../docs/reference/findings.md).

use std::fmt;

use serde::{Serialize, Serializer};

use crate::Severity;

/// A row of the reference page.
#[derive(Debug, Clone, Copy)]
pub struct Reference {
    /// The identifier in kebab-case, stable across versions.
    pub code: &'static str,
    /// The possible severities, the most severe first.
    pub severities: &'static [Severity],
    /// The meaning, in Markdown.
    pub meaning: &'static str,
}

/// Defines [`FindingId`] from the rows of the reference page: `Id = code [severities] meaning`.
macro_rules! findings {
    ($($section:literal {
        $($id:ident = $code:literal [$($severity:ident),+] $meaning:literal,)+
    })+) => {
        /// The identifier of a finding. In output, [`Self::as_str`] is the finding's `code`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FindingId {
            $($(#[doc = $meaning] $id,)+)+
        }

        impl FindingId {
            /// All identifiers in the order of the reference page, grouped by its sections.
            pub const SECTIONS: [(&str, &[Self]); 5] = [$(($section, &[$(Self::$id),+])),+];

            /// Returns the row of the reference page.
            pub fn reference(self) -> Reference {
                match self {
                    $($(Self::$id => Reference {
                        code: $code,
                        severities: &[$(Severity::$severity),+],
                        meaning: $meaning,
                    },)+)+
                }
            }
        }
    };
}

findings! {
    "Target" {
        MissingTarget = "missing-target" [Error]
            "the target does not exist, or has no scale",
        UnknownTargetKind = "unknown-target-kind" [Error]
            "the cluster does not serve the kind of the target",
        UnreadableScale = "unreadable-scale" [Error]
            "the scale cannot be read for another reason",
        NoSelector = "no-selector" [Error]
            "the scale has no selector, so its pods cannot be found",
        Paused = "paused" [Warning]
            "the target has 0 replicas, which disables autoscaling",
        SharedPods = "shared-pods" [Error, Warning]
            "other HPAs select the same pods. As an error: none of them scales",
        ReplicasAlsoSet = "replicas-also-set" [Warning, Info]
            "another field manager also sets `spec.replicas`",
    }
    "Metrics" {
        MissingRequest = "missing-request" [Error]
            "the target is a utilization, but a container has no request",
        MissingContainer = "missing-container" [Error]
            "pods lack the container that the metric names",
        MissingMetricsApi = "missing-metrics-api" [Error]
            "the cluster does not serve the metrics API",
        MetricsApiUnavailable = "metrics-api-unavailable" [Error]
            "the metrics API is registered and does not respond",
        NoMetricValues = "no-metric-values" [Error]
            "the metrics API responds without a value",
        NoPods = "no-pods" [Error]
            "the selector matches no pod",
        InvalidMetric = "invalid-metric" [Error]
            "the metric in the spec is invalid",
        OtherNamespace = "other-namespace" [Warning]
            "the metric names a namespace, but the API has only the metrics of the namespace of the HPA",
        MetricFailed = "metric-failed" [Error]
            "the metric cannot be read for another reason",
        StaleMetric = "stale-metric" [Warning]
            "samples are older than their window plus a minute",
        AbsentSource = "absent-source" [Error, Warning]
            "the scaling policy names a source that the controller may not use. As a warning: `why` itself does not read the source",
        FailedSource = "failed-source" [Error]
            "the source of a scaling policy returned no number",
        IncompleteSource = "incomplete-source" [Warning]
            "the source has no value for at least one pod",
        StaleSource = "stale-source" [Error, Warning]
            "numbers of a source are older than a minute. As an error: older than `maxAgeSeconds`",
    }
    "Pods" {
        ForeignPods = "foreign-pods" [Warning, Info]
            "the selector also matches pods of other owners. As info: only such pods, or they do not count",
        UnreadyPods = "unready-pods" [Warning]
            "at least half of the pods are unready and do not count",
        SurplusPods = "surplus-pods" [Warning]
            "the metric is below its target, but more pods than `spec.replicas` count, so the HPA asks for more",
        MissingSamples = "missing-samples" [Warning]
            "at least half of the pods have no sample, or pods without a sample prevent a change",
    }
    "Limits and behavior" {
        MaxReplicas = "max-replicas" [Warning]
            "the metrics propose more than `maxReplicas`",
        FixedSize = "fixed-size" [Info]
            "`minReplicas` equals `maxReplicas`",
        Tolerance = "tolerance" [Info]
            "the tolerance prevents a change of the count",
        ToleranceIgnored = "tolerance-ignored" [Warning]
            "`behavior` sets a tolerance, but the feature gate is off",
        UnknownBehavior = "unknown-behavior" [Warning]
            "`behavior` has an invalid policy type or `selectPolicy`",
        PolicyHolds = "policy-holds" [Warning]
            "a scaling policy withholds pods that the metrics ask for",
        ForecastPays = "forecast-pays" [Info]
            "a forecast in the mode `Preview` has a floor that would have avoided a shortage",
        Flapping = "flapping" [Warning]
            "the count changed direction at least four times in an hour",
    }
    "Environment" {
        Forbidden = "forbidden" [Error, Info]
            "a read was refused. As an error: the decision depends on it",
        ClockSkew = "clock-skew" [Warning]
            "your clock and the API server's differ by more than 5 s",
    }
}

impl FindingId {
    /// Returns the identifier in kebab-case, stable across versions.
    pub fn as_str(self) -> &'static str {
        self.reference().code
    }
}

impl fmt::Display for FindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for FindingId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::path::Path;

    use super::*;

    /// Returns the expected page: the introduction of the current page, then the generated sections.
    fn page(current: &str) -> String {
        let introduction = current.split("\n## ").next().unwrap_or_default();
        let mut page = introduction.to_owned();
        for (section, ids) in FindingId::SECTIONS {
            let _ = writeln!(page, "\n## {section}\n\n| code | severity | meaning |\n|---|---|---|");
            for id in ids {
                let Reference { code, severities, meaning } = id.reference();
                let severities: Vec<_> = severities.iter().map(|severity| severity.as_str()).collect();
                let _ = writeln!(page, "| `{code}` | {} | {meaning} |", severities.join(", "));
            }
        }
        page
    }

    #[test]
    fn findings_page_lists_every_finding() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/findings.md");
        let current = std::fs::read_to_string(&path).unwrap();
        let page = page(&current);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &page).unwrap();
        } else {
            assert!(
                page == current,
                "regenerate the page with UPDATE_DOCS=1 cargo test -p findings findings_page"
            );
        }
    }

    #[test]
    fn every_finding_has_one_row_and_its_name_as_code() {
        let mut all: Vec<_> = FindingId::SECTIONS.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
        all.sort_unstable();
        assert_eq!((all.first(), all.last()), (Some(&FindingId::MissingTarget), Some(&FindingId::ClockSkew)));
        for pair in all.windows(2) {
            assert_eq!(pair[0] as usize + 1, pair[1] as usize, "{pair:?}");
        }
        for id in all {
            let code: String = id.as_str().split('-').collect();
            assert_eq!(code, format!("{id:?}").to_lowercase());
        }
    }
}
