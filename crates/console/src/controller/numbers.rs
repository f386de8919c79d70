//! The numbers of a controller, from its page of metrics.

use std::collections::BTreeMap;

use exposition::{Format, Limits, Page, PageError, Series};
use serde::Serialize;

use super::MAX_ENTRIES;

/// The limits of a page. Its size is large, because the page has a line for each HPA.
const LIMITS: Limits = Limits { bytes: 32 << 20, line: 64 << 10, labels: 64, series: 1 };
/// The objective of lateness, in seconds.
const IN_TIME: f64 = 1.0;
/// The share of syncs below [`Lateness::p99`].
const MOST: f64 = 0.99;

/// The numbers since the start of the process. A number that the page does not have is `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Numbers {
    /// The version of the program.
    pub version: Option<String>,
    /// The start of the process, in seconds since the Unix epoch.
    pub started: Option<f64>,
    /// Resident memory.
    pub memory_bytes: Option<f64>,
    /// CPU time.
    pub cpu_seconds: Option<f64>,
    /// The number of HPAs.
    pub hpas: Option<f64>,
    /// Syncs by their error: `none`, `spec`, `internal`.
    pub syncs: BTreeMap<String, f64>,
    /// Failed syncs by the reason in the condition.
    pub failures: BTreeMap<String, f64>,
    /// The delay of syncs.
    pub lateness: Option<Lateness>,
    /// HPAs that are due and wait for a worker.
    pub queue_depth: Option<f64>,
    /// The duration of the oldest sync in flight.
    pub longest_sync_seconds: Option<f64>,
    /// Requests by verb and resource.
    pub requests: Vec<Requests>,
    /// Whether the breaker of each metrics API is open, by API.
    pub breakers: BTreeMap<String, bool>,
    /// The sources of metrics, by name.
    pub sources: BTreeMap<String, SourceState>,
    /// The watches, by resource.
    pub watches: BTreeMap<String, WatchState>,
    /// Whether the process is the leader, by Lease.
    pub leads: BTreeMap<String, bool>,
    /// The reaction to another controller.
    pub takeover: Option<String>,
    /// Writes of another controller.
    pub foreign_writes: Option<f64>,
    /// HPAs in scope by state.
    pub handover: BTreeMap<String, f64>,
    /// The skew of the API server's clock.
    pub clock_skew_seconds: Option<f64>,
    /// Events that were dropped, by reason.
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
    /// The number of syncs that started within a second.
    pub in_time: f64,
    /// The bound, in seconds, below which 99 % of the syncs started. `None` above all bounds.
    pub p99: Option<f64>,
    /// The number of syncs up to each bound.
    #[serde(skip)]
    buckets: Vec<(f64, f64)>,
}

/// The requests with a verb on a resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Requests {
    /// The verb of RBAC.
    pub verb: String,
    /// The resource of RBAC.
    pub resource: String,
    /// All requests.
    pub count: f64,
    /// Requests without a response of 2xx, by their code.
    pub failed: BTreeMap<String, f64>,
}

/// A source of metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SourceState {
    /// Whether the source is down.
    pub down: Option<bool>,
    /// Reads without a number, by reason.
    pub errors: BTreeMap<String, f64>,
}

/// A watch.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchState {
    /// Cached objects.
    pub objects: Option<f64>,
    /// Seconds since the last event.
    pub age_seconds: Option<f64>,
    /// Restarts by reason, except restarts at the regular end of a watch.
    pub restarts: BTreeMap<String, f64>,
}

impl Numbers {
    /// Reads a page in Prometheus' text format.
    ///
    /// # Errors
    /// Returns an error if the text is not such a page.
    pub fn parse(page: &[u8]) -> Result<Self, PageError> {
        let (mut numbers, mut requests) = (Self::default(), BTreeMap::new());
        let mut reader = Page::new(Format::Prometheus, LIMITS);
        let mut each = |series: Series<'_>| {
            numbers.add(series, &mut requests);
            Ok(())
        };
        reader.push(page, &mut each)?;
        reader.finish(&mut each)?;
        numbers.requests = requests.into_values().collect();
        if let Some(lateness) = &mut numbers.lateness {
            lateness.conclude();
        }
        Ok(numbers)
    }

    fn add(&mut self, series: Series<'_>, requests: &mut BTreeMap<(String, String), Requests>) {
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
                let (verb, resource) =
                    (label("verb").unwrap_or_default(), label("resource").unwrap_or_default());
                let code = label("code").unwrap_or_default();
                let key = (resource.clone(), verb.clone());
                if requests.len() >= MAX_ENTRIES && !requests.contains_key(&key) {
                    return;
                }
                let new = || Requests { verb, resource, count: 0.0, failed: BTreeMap::new() };
                let row = requests.entry(key).or_insert_with(new);
                row.count += value;
                if !code.starts_with('2') {
                    sum(&mut row.failed, Some(code), value);
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

/// The entry of a label. `None` without the label, or beyond the maximum number of entries.
fn entry<T: Default>(map: &mut BTreeMap<String, T>, label: Option<String>) -> Option<&mut T> {
    let label = label?;
    if map.len() >= MAX_ENTRIES && !map.contains_key(&label) {
        return None;
    }
    Some(map.entry(label).or_default())
}

/// Adds a value to the sum of a label. 0 adds no entry.
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
