//! The metrics of the process. No state is global: the process creates one [`Metrics`] and passes it on.
//!
//! [`declarations`](super::declarations) contains names and descriptions. Label values are in the order of their names.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::query::Api;
use autoscaling::status::Condition;
use autoscaling::{Action, ErrorLabel};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use policies::steps::{PolicyEffect, StepReason};
use prometheus::{Counter, Gauge, Histogram, Registry};

use super::declarations::Families;
pub use super::exposition::CONTENT_TYPE;
use super::exposition::render;
use super::name;
use super::series::HpaGauge;
use crate::store::Key;
use cluster::call::Call;
use cluster::platform::ProcessStatistics;

/// The label values of a metric without labels.
pub(super) const NO_LABELS: [&str; 0] = [];

/// All metrics of the process. Clones share the same values.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    families: Families,
    before_render: Mutex<Vec<Box<dyn Fn() + Send>>>,
}

impl Metrics {
    /// Creates all metrics.
    pub fn new() -> Self {
        let registry = Registry::new();
        let families = Families::register(&registry);
        let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
        families.build.with_label_values(&[&platform, env!("CARGO_PKG_VERSION")]).set(1.0);
        // Zeros are exposed from the start, so that alerts see the first failure as a change.
        families.lateness.with_label_values(&NO_LABELS);
        families.foreign_writes.with_label_values(&NO_LABELS);
        for gauges in
            [&families.hpas, &families.clock_skew, &families.checkpoint_bytes, &families.checkpoint_left_out]
        {
            gauges.with_label_values(&NO_LABELS);
        }
        for api in [Api::Resource, Api::Custom, Api::External].map(name) {
            families.metrics_age.with_label_values(&[api]);
            families.metrics_api_down.with_label_values(&[api]);
            families.spared_queries.with_label_values(&[api]);
        }
        Self(Arc::new(Inner { registry, families, before_render: Mutex::default() }))
    }

    /// Counts the start of a sync. `lateness` is the time since the sync was due.
    pub fn sync_began(&self, lateness: Duration) {
        self.families().lateness.with_label_values(&NO_LABELS).observe(lateness.as_secs_f64());
    }

    /// Counts the end of a sync. `duration` is the time since its start.
    pub fn reconciled(&self, action: Action, error: ErrorLabel, duration: Duration) {
        let labels = [action.as_str(), error.as_str()];
        self.families().reconciliations.with_label_values(&labels).inc();
        self.families().reconciliation_seconds.with_label_values(&labels).observe(duration.as_secs_f64());
    }

    /// Counts a computed or failed metric of an HPA. `metric_type` is `type` in the spec.
    pub fn computed(&self, metric_type: &str, action: Action, error: ErrorLabel, duration: Duration) {
        let labels = [action.as_str(), error.as_str(), metric_type];
        self.families().computations.with_label_values(&labels).inc();
        self.families().computation_seconds.with_label_values(&labels).observe(duration.as_secs_f64());
    }

    /// Counts a response of a metrics API that a decision used. `age` is the age of its oldest sample.
    pub fn metrics_age(&self, api: Api, age: Duration) {
        self.families().metrics_age.with_label_values(&[name(api)]).observe(age.as_secs_f64());
    }

    /// Counts a successful read of a metric source. `age` is the age of the oldest number.
    pub fn source_age(&self, source: &str, age: Duration) {
        self.families().source_age.with_label_values(&[source]).observe(age.as_secs_f64());
    }

    /// Counts a read of a metric source without a number for an HPA, or for one of its pods. `source` is from a bounded
    /// set.
    pub fn source_failed(&self, source: &str, reason: &'static str) {
        self.families().source_errors.with_label_values(&[reason, source]).inc();
    }

    /// Counts a failure of a sync. `reason` is as in conditions and events.
    pub fn sync_failed(&self, reason: &'static str) {
        self.syncs_failed(reason, 1);
    }

    /// Counts `count` failures of syncs with the same reason.
    pub fn syncs_failed(&self, reason: &'static str, count: u64) {
        self.families().sync_failures.with_label_values(&[reason]).inc_by(count as f64);
    }

    /// Sets the number of HPAs.
    pub fn hpas(&self, count: usize) {
        self.families().hpas.with_label_values(&NO_LABELS).set(count as f64);
    }

    /// Sets the desired replicas of an HPA. Ignored on a standby.
    pub fn desired(&self, key: &Key, replicas: i32) {
        self.families().desired.set(key, replicas);
    }

    /// Sets whether an HPA is at its maximum, and whether it is not active. Ignored on a standby. `conditions` are
    /// those of the status after a sync.
    pub fn conditions(&self, key: &Key, conditions: &[Condition]) {
        let reason = |kind: &str, status: &str| {
            let found = conditions.iter().find(|it| it.kind == kind && it.status == status);
            found.map(|condition| &*condition.reason)
        };
        let at_maximum = reason("ScalingLimited", "True") == Some("TooManyReplicas");
        let not_active = reason("ScalingActive", "False").is_some_and(|reason| reason != "ScalingDisabled");
        self.families().at_maximum.set_state(key, at_maximum);
        self.families().not_active.set_state(key, not_active);
    }

    /// Sets the steps of the scaling policy that have an effect on an HPA. `effect` is `None` if the HPA no longer has
    /// a policy.
    pub fn policy(&self, namespace: &str, name: &str, effect: Option<&PolicyEffect>) {
        let active = effect.map(|effect| effect.steps.as_slice()).unwrap_or_default();
        for reason in StepReason::ALL {
            let labels = [name, namespace, reason.as_str()];
            if active.iter().any(|step| step.reason() == reason) {
                self.families().policy_active.with_label_values(&labels).set(1.0);
            } else {
                // Fails if the series does not exist.
                let _ = self.families().policy_active.remove_label_values(&labels);
            }
        }
        let forecast = effect.and_then(|effect| effect.forecast.as_deref());
        let floor = forecast.and_then(|forecast| Some((forecast.applies, forecast.floor?)));
        for (applies, mode) in [(false, "Preview"), (true, "Floor")] {
            let labels = [mode, name, namespace];
            match floor.filter(|(floor, _)| *floor == applies) {
                Some((_, floor)) => {
                    self.families().forecast_floor.with_label_values(&labels).set(floor.into());
                }
                None => drop(self.families().forecast_floor.remove_label_values(&labels)),
            }
        }
    }

    /// Removes the series of a deleted HPA.
    pub fn forget(&self, key: &Key) {
        for gauge in self.hpa_gauges() {
            gauge.remove(key);
        }
    }

    /// Counts a sync that was skipped because the cache lacks this replica's last write.
    pub fn stale_skip(&self) {
        self.families().stale_skips.with_label_values(&["autoscaling", "horizontalpodautoscalers"]).inc();
    }

    /// Creates the metrics of one work queue, at zero.
    pub fn workqueue(&self, name: &str) -> Workqueue {
        let families = self.families();
        Workqueue {
            depth: families.queue_depth.with_label_values(&[name]),
            adds: families.queue_adds.with_label_values(&[name]),
            retries: families.queue_retries.with_label_values(&[name]),
            queue_seconds: families.queue_seconds.with_label_values(&[name]),
            work_seconds: families.work_seconds.with_label_values(&[name]),
            unfinished_seconds: families.unfinished_seconds.with_label_values(&[name]),
            longest_running_seconds: families.longest_running_seconds.with_label_values(&[name]),
        }
    }

    /// Counts a request to `host`, which includes the port. `code` is the status of the response, or `None` without a
    /// response.
    pub fn request(&self, call: &Call, host: &str, code: Option<u16>) {
        let code = code.and_then(|code| StatusCode::from_u16(code).ok());
        let code = code.as_ref().map_or("<error>", StatusCode::as_str);
        self.families().rest_requests.with_label_values(&[code, host, method(call.method())]).inc();
        let resource = call.counted().to_string();
        self.families().requests.with_label_values(&[code, &resource, call.verb()]).inc();
    }

    /// Records the duration of a request, from the wait for the rate limit to the end of the response.
    pub fn request_duration(&self, verb: &Method, host: &str, duration: Duration) {
        let histogram = self.families().rest_seconds.with_label_values(&[host, method(verb)]);
        histogram.observe(duration.as_secs_f64());
    }

    /// Sets the lead of the API server's clock over the clock of this process, in seconds.
    pub fn clock_skew(&self, seconds: f64) {
        self.families().clock_skew.with_label_values(&NO_LABELS).set(seconds);
    }

    /// Sets the number of objects of a resource in memory.
    pub fn cache_objects(&self, resource: &str, count: usize) {
        self.families().cache_objects.with_label_values(&[resource]).set(count as f64);
    }

    /// Sets the total number of restarts of a resource's watches for one reason.
    pub fn watch_restarts(&self, resource: &str, reason: &'static str, total: u64) {
        set(&self.families().watch_restarts.with_label_values(&[reason, resource]), total as f64);
    }

    /// Sets the time since the last event, bookmark or complete list of a resource's watch.
    pub fn watch_age(&self, resource: &str, age: Duration) {
        self.families().watch_age.with_label_values(&[resource]).set(age.as_secs_f64());
    }

    /// Removes the gauges of a resource that is no longer watched.
    pub fn unwatched(&self, resource: &str) {
        for gauges in [&self.families().cache_objects, &self.families().watch_age] {
            // Fails if the series does not exist.
            let _ = gauges.remove_label_values(&[resource]);
        }
    }

    /// Sets the total number of events that were dropped for one reason.
    pub fn events_dropped(&self, reason: &'static str, total: u64) {
        set(&self.families().events_dropped.with_label_values(&[reason]), total as f64);
    }

    /// Sets whether this process holds the Lease `lease`. Without the Lease, series of single HPAs are not exposed.
    pub fn leader(&self, lease: &str, leads: bool) {
        for gauge in self.hpa_gauges() {
            gauge.set_leading(leads);
        }
        self.families().leader.with_label_values(&[lease]).set(leads.into());
    }

    /// Counts a Kubernetes event whose message is the sentence of a decision.
    pub fn decision_event(&self) {
        self.families().decision_events.with_label_values(&NO_LABELS).inc();
    }

    /// Registers an update of gauges that runs before each rendering. The update must not block.
    pub fn before_render(&self, update: impl Fn() + Send + 'static) {
        self.0.before_render.lock().push(Box::new(update));
    }

    /// Renders all series in Prometheus' text format, of type [`CONTENT_TYPE`].
    pub fn render(&self) -> String {
        let updates = self.0.before_render.lock();
        for update in &*updates {
            update();
        }
        update_process(self.families());
        let families = self.0.registry.gather();
        // The lock is held until here, so that no other rendering resets a counter before it is gathered.
        drop(updates);
        render(&families)
    }

    /// Returns the gauges with a value per HPA, which only the leader exposes.
    fn hpa_gauges(&self) -> [&HpaGauge; 3] {
        let families = self.families();
        [&families.desired, &families.at_maximum, &families.not_active]
    }

    pub(super) fn families(&self) -> &Families {
        &self.0.families
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Sets a counter to a total that is counted elsewhere.
fn set(counter: &Counter, total: f64) {
    counter.reset();
    counter.inc_by(total);
}

/// Returns the label value of a method, as in client-go.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// Updates the `process_*` metrics, which are named as in Prometheus' Go client. Values that the system does not report
/// are omitted.
fn update_process(families: &Families) {
    let statistics = ProcessStatistics::read();
    if let Some(seconds) = statistics.cpu_seconds {
        set(&families.process_cpu.with_label_values(&NO_LABELS), seconds);
    }
    for (gauges, value) in [
        (&families.process_max_fds, statistics.max_files),
        (&families.process_open_fds, statistics.open_files),
        (&families.process_resident, statistics.resident_bytes),
        (&families.process_start, statistics.start_seconds),
        (&families.process_virtual, statistics.virtual_bytes),
        (&families.process_virtual_max, statistics.max_virtual_bytes),
    ] {
        if let Some(value) = value {
            gauges.with_label_values(&NO_LABELS).set(value);
        }
    }
}

/// The metrics of one work queue, with client-go's semantics.
#[derive(Debug, Clone)]
pub struct Workqueue {
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    queue_seconds: Histogram,
    work_seconds: Histogram,
    unfinished_seconds: Gauge,
    longest_running_seconds: Gauge,
}

impl Workqueue {
    /// Counts a key that became due.
    pub fn added(&self) {
        self.adds.inc();
    }

    /// Counts a key that was scheduled again.
    pub fn retried(&self) {
        self.retries.inc();
    }

    /// Sets the number of due keys.
    pub fn depth(&self, count: usize) {
        self.depth.set(count as f64);
    }

    /// Counts a key that a worker has started. `waited` is the time since the key was due.
    pub fn handed_out(&self, waited: Duration) {
        self.queue_seconds.observe(waited.as_secs_f64());
    }

    /// Counts a finished key. `worked` is the duration of the work.
    pub fn finished(&self, worked: Duration) {
        self.work_seconds.observe(worked.as_secs_f64());
    }

    /// Sets the sum and the maximum of the durations of the work in flight.
    pub fn running(&self, sum: Duration, longest: Duration) {
        self.unfinished_seconds.set(sum.as_secs_f64());
        self.longest_running_seconds.set(longest.as_secs_f64());
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
