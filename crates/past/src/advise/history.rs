//! The queries to Prometheus for the past of one HPA.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use promql::{AnswerError, PodNames};
use sources::{PastServer, RequestError, SourceError, TimeRange};

use super::objects::Hpa;
use super::recording::{Column, DAY, Recording, Unit};

/// The time between two values.
const STEP: Duration = Duration::from_mins(1);
/// The days of one query: Prometheus answers with at most 11,000 steps.
const DAYS: usize = 7;

impl Column {
    /// The name of the column in an answer.
    fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::LowestRequest => "lowest",
            Self::HighestRequest => "highest",
            Self::Replicas => "replicas",
            Self::Ready => "ready",
            Self::ReplicaSets => "sets",
            Self::Min => "min",
            Self::Max => "max",
            Self::Target => "target",
            Self::Memory => "memory",
            Self::Age => "age",
        }
    }

    /// The metric that the column needs, for the reader.
    pub(crate) fn metric(self) -> &'static str {
        match self {
            Self::Usage => "container_cpu_usage_seconds_total",
            Self::LowestRequest | Self::HighestRequest => "kube_pod_container_resource_requests",
            Self::Replicas => "kube_horizontalpodautoscaler_status_current_replicas",
            Self::Ready => "kube_pod_status_ready",
            Self::ReplicaSets => "kube_replicaset_spec_replicas",
            Self::Min => "kube_horizontalpodautoscaler_spec_min_replicas",
            Self::Max => "kube_horizontalpodautoscaler_spec_max_replicas",
            Self::Target => "kube_horizontalpodautoscaler_spec_target_metric",
            Self::Memory => "container_memory_working_set_bytes",
            Self::Age => "kube_deployment_created",
        }
    }

    /// The query for an HPA. `None` if the column does not apply to it.
    fn query(self, hpa: &Hpa) -> Option<String> {
        let (namespace, target) = (&hpa.namespace, &hpa.target);
        let pods = PodNames::from_kind(&hpa.kind).pattern(target);
        let of_pods = format!("namespace=\"{namespace}\",pod=~\"{pods}\"");
        let external = hpa.today.as_ref().ok().and_then(|today| today.external.as_ref());
        let of_hpa = format!("namespace=\"{namespace}\",horizontalpodautoscaler=\"{}\"", hpa.name);
        let metric = self.metric();
        let request = |resource| {
            format!(
                "sum by (pod) (kube_pod_container_resource_requests{{{of_pods},resource=\"{resource}\"}})"
            )
        };
        let is_memory = hpa.memory.is_some();
        Some(match self {
            // The query has one value, and may end with a comment.
            Self::Usage if let Some(external) = external => format!("sum({}\n)", external.query),
            Self::LowestRequest | Self::HighestRequest if external.is_some() => return None,
            Self::Usage => format!("sum(rate({metric}{{{of_pods},container!=\"\",container!=\"POD\"}}[2m]))"),
            Self::LowestRequest => format!("min({})", request("cpu")),
            Self::HighestRequest => format!("max({})", request("cpu")),
            Self::Ready => format!("sum({metric}{{{of_pods},condition=\"true\"}})"),
            Self::ReplicaSets if hpa.kind == "Deployment" => {
                let sets = format!("{target}-[a-z0-9]+").replace('.', "\\\\.");
                format!("count({metric}{{namespace=\"{namespace}\",replicaset=~\"{sets}\"}} > 0)")
            }
            Self::Memory if is_memory => format!(
                "sum({metric}{{{of_pods},container!=\"\",container!=\"POD\"}}) / sum({})",
                request("memory")
            ),
            Self::Age if hpa.kind == "Deployment" => {
                format!("time() - max({metric}{{namespace=\"{namespace}\",deployment=\"{target}\"}})")
            }
            Self::ReplicaSets | Self::Memory | Self::Age => return None,
            Self::Replicas | Self::Min | Self::Max => format!("max({metric}{{{of_hpa}}})"),
            Self::Target => {
                let is_value = hpa.today.as_ref().is_ok_and(|today| today.average_value.is_some());
                let kind = if is_value { "average" } else { "utilization" };
                let name = external.map_or("cpu", |external| external.name.as_str());
                format!("max({metric}{{{of_hpa},metric_name=\"{name}\",metric_target_type=\"{kind}\"}})")
            }
        })
    }
}

/// The label with the name of a column.
const LABEL: &str = "concertina_column";

/// One query for all columns of an HPA. Each series of the answer has the name of its column as a label.
fn query(hpa: &Hpa) -> String {
    let mut text = String::new();
    for column in Column::ALL {
        let Some(query) = column.query(hpa) else { continue };
        let or = if text.is_empty() { "" } else { " or " };
        let name = column.name();
        let _ = write!(text, "{or}label_replace({query}, \"{LABEL}\", \"{name}\", \"\", \"\")");
    }
    text
}

/// Reads the last `days` days before `end`, which is the start of a minute.
///
/// # Errors
/// Returns the error of the first query that fails.
pub(crate) async fn read(
    server: &PastServer,
    hpa: &Hpa,
    end: Timestamp,
    days: usize,
) -> Result<Recording, SourceError> {
    let (query, namespace): (_, Arc<str>) = (query(hpa), hpa.namespace.as_str().into());
    let minute = |count: usize| SignedDuration::from_mins(i64::try_from(count).unwrap_or_default());
    let start = end.saturating_sub(minute(days * DAY)).unwrap_or(end);
    let mut recording = Recording::new(start, days * DAY);
    let today = hpa.today.as_ref().ok().filter(|today| today.external.is_some());
    if let Some(per_pod) = today.and_then(|today| today.average_value) {
        recording.unit = Unit::Value { per_pod };
    }
    let (mut from, mut days) = (0, DAYS);
    while from < recording.minutes {
        let to = (from + days * DAY).min(recording.minutes);
        // The value of a minute is that at its end.
        let range = TimeRange { start: recording.time(from + 1), end: recording.time(to) };
        let answer = match server.range(&query, &namespace, range, STEP).await {
            Err(error) if days > 1 && is_too_much(&error) => {
                days = 1;
                continue;
            }
            answer => answer?,
        };
        let mut columns = answer.into_values_by(LABEL);
        for column in Column::ALL {
            for (milliseconds, value) in columns.remove(column.name()).unwrap_or_default() {
                let after = milliseconds / 1000 - start.as_second();
                if let Some(minute) = usize::try_from(after / 60 - 1).ok().filter(|_| after % 60 == 0) {
                    recording.set(column, minute, value);
                }
            }
        }
        from = to;
    }
    Ok(recording)
}

/// Whether a query over fewer days may have an answer: a server limits the samples and the time of a query.
fn is_too_much(error: &SourceError) -> bool {
    matches!(
        error,
        SourceError::Answer(AnswerError::Refused(..))
            | SourceError::Request(
                RequestError::Timeout(_) | RequestError::TooLarge(_) | RequestError::Status(_)
            )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_query_reads_all_columns() {
        let hpa = json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web.v1"},
                "maxReplicas": 9,
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}],
            },
        });
        let text = query(&Hpa::new(&hpa));
        assert!(text.starts_with(
            "label_replace(sum(rate(container_cpu_usage_seconds_total{namespace=\"shop\",\
             pod=~\"web\\\\.v1-[a-z0-9]+-[a-z0-9]{5}\",container!=\"\",container!=\"POD\"}[2m])), \
             \"concertina_column\", \"usage\", \"\", \"\") or label_replace(min(sum by (pod) ("
        ));
        assert!(!text.contains("memory") && text.matches(" or ").count() == 9, "{text}");
        // The parser of Prometheus accepts it.
        assert!(promql::Query::parse(&text, None).is_ok());
    }
}
