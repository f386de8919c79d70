//! The numbers of a controller, from its page `/metrics`.

use std::collections::BTreeMap;

use exposition::{Limits, Page, PageError, Series};
use serde::Serialize;

use super::MAX_ENTRIES;

/// The limits of a page. The size is large, because the page has a line for each HPA.
const LIMITS: Limits = Limits { bytes: 32 << 20, line: 64 << 10, labels: 64, series: 1 };
/// Maximum lateness of a sync that is in time, in seconds.
const IN_TIME: f64 = 1.0;
/// The share of syncs at or below [`Lateness::p99`].
const MOST: f64 = 0.99;

/// The numbers since the start of the process. A number that the page does not have is `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Numbers {
    /// The version of the program.
    pub version: Option<String>,
    /// The start of the process, in seconds since the Unix epoch.
    pub started: Option<f64>,
    /// The resident memory, in bytes.
    pub memory_bytes: Option<f64>,
    /// The CPU time, in seconds.
    pub cpu_seconds: Option<f64>,
    /// The number of HPAs.
    pub hpas: Option<f64>,
    /// The number of syncs by error: `none`, `spec` or `internal`.
    pub syncs: BTreeMap<String, f64>,
    /// The number of failed syncs by the reason in the condition.
    pub failures: BTreeMap<String, f64>,
    /// The delay of syncs.
    pub lateness: Option<Lateness>,
    /// The number of HPAs that are due and wait for a worker.
    pub queue_depth: Option<f64>,
    /// The duration of the oldest sync in flight, in seconds.
    pub longest_sync_seconds: Option<f64>,
    /// The requests to the API server, by resource and verb.
    pub requests: Vec<Requests>,
    /// Whether the circuit breaker of a metrics API is open, by API group.
    pub breakers: BTreeMap<String, bool>,
    /// The sources of metrics, by name.
    pub sources: BTreeMap<String, SourceState>,
    /// The watches, by resource.
    pub watches: BTreeMap<String, WatchState>,
    /// Whether the process is the leader, by Lease.
    pub leads: BTreeMap<String, bool>,
    /// The state of the reaction to another HPA controller, such as `holding`.
    pub takeover: Option<String>,
    /// The number of writes of another controller.
    pub foreign_writes: Option<f64>,
    /// The number of HPAs in scope by state.
    pub handover: BTreeMap<String, f64>,
    /// The skew of the API server's clock, in seconds.
    pub clock_skew_seconds: Option<f64>,
    /// The number of dropped events by reason.
    pub events_dropped: BTreeMap<String, f64>,
}

/// The delay between the due time of syncs and their start.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lateness {
    /// The number of syncs.
    pub count: f64,
    /// The sum of delays, in seconds.
    pub sum: f64,
    /// The number of syncs that started at most 1 s late.
    pub in_time: f64,
    /// The upper bound of the lateness of 99 % of the syncs, in seconds. `None` above the last bucket.
    pub p99: Option<f64>,
    /// The upper bound of each bucket, in seconds, and the number of syncs up to it.
    #[serde(skip)]
    buckets: Vec<(f64, f64)>,
}

/// The requests with a verb on a resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Requests {
    /// The RBAC verb.
    pub verb: String,
    /// The RBAC resource.
    pub resource: String,
    /// The number of requests.
    pub count: f64,
    /// The number of requests without a 2xx response, by status code or `<error>`.
    pub failed: BTreeMap<String, f64>,
}

/// A source of metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SourceState {
    /// Whether the source is down. `None` if it is unknown.
    pub down: Option<bool>,
    /// The number of failed reads by reason.
    pub errors: BTreeMap<String, f64>,
}

/// A watch.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchState {
    /// The number of cached objects.
    pub objects: Option<f64>,
    /// The time since the last event, in seconds.
    pub age_seconds: Option<f64>,
    /// The number of restarts by reason, except restarts after the regular end of a watch.
    pub restarts: BTreeMap<String, f64>,
}

/// The number of requests, and the failed requests by code, for each resource and verb.
type ByRequest = BTreeMap<(String, String), (f64, BTreeMap<String, f64>)>;

impl Numbers {
    /// Reads a page in Prometheus' text format.
    ///
    /// # Errors
    /// Returns an error if a line is invalid, or a limit is exceeded.
    pub fn parse(page: &[u8]) -> Result<Self, PageError> {
        let (mut numbers, mut requests) = (Self::default(), ByRequest::new());
        let mut reader = Page::new(LIMITS);
        let mut each = |series: Series<'_>| {
            numbers.add(series, &mut requests);
            Ok(())
        };
        reader.push(page, &mut each)?;
        reader.finish(&mut each)?;
        let requests = requests.into_iter();
        numbers.requests = requests
            .map(|((resource, verb), (count, failed))| Requests { verb, resource, count, failed })
            .collect();
        if let Some(lateness) = &mut numbers.lateness {
            lateness.conclude();
        }
        Ok(numbers)
    }

    fn add(&mut self, series: Series<'_>, requests: &mut ByRequest) {
        let value = series.value;
        let name = series.name();
        let Ok(name) = std::str::from_utf8(&name) else { return };
        let label = |wanted: &str| {
            let mut labels = series.labels();
            labels.find(|(name, _)| **name == *wanted.as_bytes()).map(|(_, value)| value.into_owned())
        };
        let is_on = value >= 1.0;
        match name {
            "concertina_build_info" => self.version = label("version"),
            "process_start_time_seconds" => self.started = Some(value),
            "process_resident_memory_bytes" => self.memory_bytes = Some(value),
            "process_cpu_seconds_total" => self.cpu_seconds = Some(value),
            "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers" => self.hpas = Some(value),
            "horizontal_pod_autoscaler_controller_reconciliations_total" => {
                sum(&mut self.syncs, label("error"), value);
            }
            "concertina_sync_failures_total" => sum(&mut self.failures, label("reason"), value),
            "concertina_sync_lateness_seconds_bucket" => {
                let bound = label("le").and_then(|bound| bound.parse().ok());
                if let Some(bound) = bound.filter(|bound: &f64| bound.is_finite()) {
                    self.lateness.get_or_insert_default().buckets.push((bound, value));
                }
            }
            "concertina_sync_lateness_seconds_count" => {
                self.lateness.get_or_insert_default().count = value;
            }
            "concertina_sync_lateness_seconds_sum" => self.lateness.get_or_insert_default().sum = value,
            "workqueue_depth" => self.queue_depth = Some(value),
            "workqueue_longest_running_processor_seconds" => self.longest_sync_seconds = Some(value),
            "concertina_requests_total" => {
                let key = (label("resource").unwrap_or_default(), label("verb").unwrap_or_default());
                let code = label("code").unwrap_or_default();
                if let Some((count, failed)) = entry(requests, Some(key)) {
                    *count += value;
                    if !code.starts_with('2') {
                        sum(failed, Some(code), value);
                    }
                }
            }
            "concertina_metrics_api_down" => put(&mut self.breakers, label("api"), is_on),
            "concertina_metric_source_down" => {
                if let Some(source) = entry(&mut self.sources, label("source")) {
                    source.down = Some(is_on);
                }
            }
            "concertina_metric_age_seconds_count" => {
                entry(&mut self.sources, label("source"));
            }
            "concertina_metric_source_errors_total" => {
                if let Some(source) = entry(&mut self.sources, label("source")) {
                    sum(&mut source.errors, label("reason"), value);
                }
            }
            "concertina_cache_objects" => {
                if let Some(watch) = entry(&mut self.watches, label("resource")) {
                    watch.objects = Some(value);
                }
            }
            "concertina_watch_age_seconds" => {
                if let Some(watch) = entry(&mut self.watches, label("resource")) {
                    watch.age_seconds = Some(value);
                }
            }
            "concertina_watch_restarts_total" => {
                let reason = label("reason").filter(|reason| reason != "ended");
                if let Some(watch) = entry(&mut self.watches, label("resource")) {
                    sum(&mut watch.restarts, reason, value);
                }
            }
            "leader_election_master_status" => put(&mut self.leads, label("name"), is_on),
            "concertina_takeover_state" if is_on => self.takeover = label("state"),
            "concertina_foreign_writes_total" => self.foreign_writes = Some(value),
            "concertina_hpas" => sum(&mut self.handover, label("state"), value),
            "concertina_clock_skew_seconds" => self.clock_skew_seconds = Some(value),
            "concertina_events_dropped_total" => sum(&mut self.events_dropped, label("reason"), value),
            _ => {}
        }
    }
}

impl Lateness {
    fn conclude(&mut self) {
        self.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let upto = |bound: f64| self.buckets.iter().rev().find(|(upto, _)| *upto <= bound);
        self.in_time = upto(IN_TIME).map_or(0.0, |(_, count)| *count);
        let most = self.count * MOST;
        self.p99 = self.buckets.iter().find(|(_, count)| *count >= most).map(|(bound, _)| *bound);
    }
}

/// Returns the entry of a label. `None` without the label, or beyond [`MAX_ENTRIES`].
fn entry<K: Ord, T: Default>(map: &mut BTreeMap<K, T>, label: Option<K>) -> Option<&mut T> {
    let label = label?;
    if map.len() >= MAX_ENTRIES && !map.contains_key(&label) {
        return None;
    }
    Some(map.entry(label).or_default())
}

/// Adds `value` to the sum of a label. A value of 0 adds no entry.
fn sum(map: &mut BTreeMap<String, f64>, label: Option<String>, value: f64) {
    if value != 0.0
        && let Some(sum) = entry(map, label)
    {
        *sum += value;
    }
}

fn put(map: &mut BTreeMap<String, bool>, label: Option<String>, value: bool) {
    if let Some(entry) = entry(map, label) {
        *entry = value;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;

    const PAGE: &str = r#"
# TYPE concertina_build_info gauge
concertina_build_info{platform="linux/x86_64",version="0.1.0"} 1
# TYPE concertina_sync_lateness_seconds histogram
concertina_sync_lateness_seconds_bucket{le="0.05"} 90
concertina_sync_lateness_seconds_bucket{le="1"} 98
concertina_sync_lateness_seconds_bucket{le="2.5"} 99
concertina_sync_lateness_seconds_bucket{le="+Inf"} 100
concertina_sync_lateness_seconds_sum 12.5
concertina_sync_lateness_seconds_count 100
# TYPE concertina_requests_total counter
concertina_requests_total{code="200",resource="pods",verb="list"} 3
concertina_requests_total{code="403",resource="pods",verb="list"} 2
concertina_requests_total{code="<error>",resource="pods",verb="watch"} 1
# TYPE concertina_metrics_api_down gauge
concertina_metrics_api_down{api="metrics.k8s.io"} 0
concertina_metrics_api_down{api="external.metrics.k8s.io"} 1
# TYPE concertina_metric_source_down gauge
concertina_metric_source_down{source="main"} 1
# TYPE concertina_metric_source_errors_total counter
concertina_metric_source_errors_total{reason="Timeout",source="main"} 4
# TYPE concertina_watch_restarts_total counter
concertina_watch_restarts_total{reason="ended",resource="pods"} 7
concertina_watch_restarts_total{reason="silent",resource="pods"} 1
# TYPE leader_election_master_status gauge
leader_election_master_status{name="concertina"} 1
# TYPE concertina_takeover_state gauge
concertina_takeover_state{state="active"} 0
concertina_takeover_state{state="holding"} 1
unknown_metric 5
"#;

    #[test]
    fn numbers_come_from_the_page_of_metrics() {
        let numbers = Numbers::parse(PAGE.as_bytes()).unwrap();
        assert_eq!(numbers.version.as_deref(), Some("0.1.0"));
        let lateness = numbers.lateness.unwrap();
        assert_eq!((lateness.count, lateness.in_time, lateness.p99), (100.0, 98.0, Some(2.5)));
        let [list, watch] = &numbers.requests[..] else { panic!("{:?}", numbers.requests) };
        assert_eq!((list.count, &list.failed), (5.0, &BTreeMap::from([("403".to_owned(), 2.0)])));
        assert_eq!(watch.failed, BTreeMap::from([("<error>".to_owned(), 1.0)]));
        assert!(numbers.breakers["external.metrics.k8s.io"] && !numbers.breakers["metrics.k8s.io"]);
        let main = &numbers.sources["main"];
        assert_eq!((main.down, main.errors["Timeout"]), (Some(true), 4.0));
        assert_eq!(numbers.watches["pods"].restarts, BTreeMap::from([("silent".to_owned(), 1.0)]));
        assert_eq!(numbers.leads, BTreeMap::from([("concertina".to_owned(), true)]));
        assert_eq!(numbers.takeover.as_deref(), Some("holding"));
        assert_eq!(numbers.hpas, None);
    }

    #[test]
    fn page_without_an_end_or_with_garbage_is_an_error() {
        assert!(Numbers::parse(b"<html>").is_err());
        assert_eq!(Numbers::parse(b"").unwrap(), Numbers::default());
    }

    #[test]
    fn entries_of_a_page_are_bounded() {
        let lines = (0..2 * MAX_ENTRIES)
            .map(|n| format!("concertina_metrics_api_down{{api=\"{n}\"}} 1\nconcertina_requests_total{{verb=\"get\",resource=\"{n}\",code=\"200\"}} 1\n"));
        let numbers = Numbers::parse(lines.collect::<String>().as_bytes()).unwrap();
        assert_eq!((numbers.breakers.len(), numbers.requests.len()), (MAX_ENTRIES, MAX_ENTRIES));
    }
}
