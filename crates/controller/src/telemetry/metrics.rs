//! The metrics of the process. No state is global: a [`Metrics`] is created once and passed on.
//!
//! [`declarations`](super::declarations) holds names and descriptions. Recording takes no lock but a read
//! lock on the maps of counters. Metrics of the hot path need no lookup of a label set.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use autoscaling::query::Api;
use autoscaling::{Action, ErrorLabel};
use http::Method;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{self, Registry};

use super::declarations::{self as declared, Declaration};
use super::histogram::{Buckets, Histogram};
use super::labels::{
    ByAnswer, ByApi, ByBuild, ByComputation, ByGroupResource, ByHost, ByHpa, ByName, ByOutcome, ByReason,
    ByRequest, ByResource, ByRestart, ByResult, BySource, ByState, Code, Host, Resource,
};
pub use super::negotiation::Format;
use super::{exposition, process};
use cluster::call::Call;
use cluster::metrics::ApiObserver;

type Float = Gauge<f64, AtomicU64>;
type Histograms<L> = Family<L, Histogram, Buckets>;

/// All metrics of the process. Clones share the same values.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    before_render: Mutex<Vec<Box<dyn Fn() + Send>>>,
    /// Whether this process is a standby. A standby does not expose values that only a leader has.
    stands_by: AtomicBool,
    reconciliations: Family<ByResult, Counter>,
    reconciliation_seconds: Histograms<ByResult>,
    computations: Family<ByComputation, Counter>,
    computation_seconds: Histograms<ByComputation>,
    hpas: Gauge,
    desired: Family<ByHpa, Gauge>,
    stale_skips: Family<ByGroupResource, Counter>,
    lateness: Histogram,
    resource_age: Histogram,
    custom_age: Histogram,
    external_age: Histogram,
    failures: Family<ByReason, Counter>,
    queue_depth: Family<ByName, Gauge>,
    queue_adds: Family<ByName, Counter>,
    queue_retries: Family<ByName, Counter>,
    queue_seconds: Histograms<ByName>,
    work_seconds: Histograms<ByName>,
    unfinished_seconds: Family<ByName, Float>,
    longest_running_seconds: Family<ByName, Float>,
    rest_requests: Family<ByAnswer, Counter>,
    rest_seconds: Histograms<ByHost>,
    requests: Family<ByRequest, Counter>,
    metrics_api_down: Family<ByApi, Gauge>,
    spared_queries: Family<ByApi, Counter>,
    clock_skew: Float,
    cache_objects: Family<ByResource, Gauge>,
    watch_restarts: Family<ByRestart, Counter>,
    watch_age: Family<ByResource, Float>,
    events_dropped: Family<ByReason, Counter>,
    leader: Family<ByName, Gauge>,
    takeover: Family<ByState, Gauge>,
    foreign_writes: Counter,
    shadow: Family<ByOutcome, Counter>,
    restored: Family<BySource, Gauge>,
    checkpoint_writes: Family<ByOutcome, Counter>,
    checkpoint_bytes: Gauge,
    checkpoint_left_out: Gauge,
    history_pulls: Family<ByOutcome, Counter>,
    history_age: Family<ByName, Float>,
}

/// The state of take-over safety: whether another controller of the same HPAs keeps this one from writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeoverState {
    /// The controller decides and records, and waits until no foreign write has occurred for long enough.
    Observing,
    /// The controller writes.
    Acting,
    /// Another controller writes. This controller decides and records, but does not write.
    Holding,
}

impl TakeoverState {
    const ALL: [Self; 3] = [Self::Observing, Self::Acting, Self::Holding];

    /// The value of the label `state`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observing => "observing",
            Self::Acting => "acting",
            Self::Holding => "holding",
        }
    }
}

/// The result of a standby's request for the leader's histories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// The histories arrived.
    Ok,
    /// The connection failed, or another process answered.
    Unreachable,
    /// The leader refused the request, or the standby had no credentials for it.
    Refused,
    /// The answer was invalid.
    Invalid,
}

impl Pull {
    /// The value of the label `result`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Invalid => "invalid",
        }
    }
}

impl Metrics {
    /// Creates all metrics, at zero.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let mut inner = Inner::register(&mut registry);
        inner.registry = registry;
        for api in [Api::Resource, Api::Custom, Api::External] {
            // Expose zeros from the start, so that alerts see the first failure as a change.
            inner.metrics_api_down.get_or_create(&by_api(api)).set(0);
            inner.spared_queries.get_or_create_owned(&by_api(api));
        }
        Self(Arc::new(inner))
    }

    /// Counts the start of a sync. `lateness`: the time since the sync was due.
    pub fn sync_began(&self, lateness: Duration) {
        self.0.lateness.observe(lateness.as_secs_f64());
    }

    /// Counts the end of a sync. `duration`: the time from the hand-out of the key to the last write.
    pub fn reconciled(&self, action: Action, error: ErrorLabel, duration: Duration) {
        let labels = ByResult { action: action.as_str(), error: error.as_str() };
        self.0.reconciliations.get_or_create(&labels).inc();
        self.0.reconciliation_seconds.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    /// Counts a computed or failed metric of an HPA. `metric_type`: the `type` as written in the spec.
    pub fn computed(&self, metric_type: &str, action: Action, error: ErrorLabel, duration: Duration) {
        let known = ["Resource", "ContainerResource", "Pods", "Object", "External"];
        let metric_type = known
            .into_iter()
            .find(|known| *known == metric_type)
            .map_or_else(|| metric_type.to_owned().into(), Cow::Borrowed);
        let labels = ByComputation { action: action.as_str(), error: error.as_str(), metric_type };
        self.0.computations.get_or_create(&labels).inc();
        self.0.computation_seconds.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    /// Counts an answer of a metrics API that a decision used. `age`: the age of the answer's oldest sample.
    pub fn metrics_age(&self, api: Api, age: Duration) {
        let histogram = match api {
            Api::Resource => &self.0.resource_age,
            Api::Custom => &self.0.custom_age,
            Api::External => &self.0.external_age,
        };
        histogram.observe(age.as_secs_f64());
    }

    /// Counts a failure of a sync. `reason`: the reason as in conditions and events.
    pub fn sync_failed(&self, reason: &'static str) {
        self.0.failures.get_or_create(&ByReason { reason }).inc();
    }

    /// Sets the number of HPAs.
    pub fn hpas(&self, count: usize) {
        self.0.hpas.set(level(count));
    }

    /// Sets the desired replicas of an HPA. Ignored on a standby.
    pub fn desired(&self, namespace: &str, name: &str, replicas: i32) {
        if !self.0.stands_by.load(Ordering::Relaxed) {
            self.0.desired.get_or_create(&ByHpa::of(namespace, name)).set(replicas.into());
        }
    }

    /// Removes the series of a deleted HPA.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.0.desired.remove(&ByHpa::of(namespace, name));
    }

    /// Counts a sync that was skipped because the cache lacks our own last write.
    pub fn stale_skip(&self) {
        let labels = ByGroupResource { group: "autoscaling", resource: "horizontalpodautoscalers" };
        self.0.stale_skips.get_or_create(&labels).inc();
    }

    /// Creates the metrics of one work queue, at zero.
    pub fn workqueue(&self, name: &str) -> Workqueue {
        let labels = ByName { name: name.to_owned() };
        Workqueue {
            depth: self.0.queue_depth.get_or_create_owned(&labels),
            adds: self.0.queue_adds.get_or_create_owned(&labels),
            retries: self.0.queue_retries.get_or_create_owned(&labels),
            queue_seconds: self.0.queue_seconds.get_or_create_owned(&labels),
            work_seconds: self.0.work_seconds.get_or_create_owned(&labels),
            unfinished_seconds: self.0.unfinished_seconds.get_or_create_owned(&labels),
            longest_running_seconds: self.0.longest_running_seconds.get_or_create_owned(&labels),
        }
    }

    /// Counts a request to `host` (with port). `code`: the status of the answer, or `None` without an answer.
    pub fn request(&self, call: &Call, host: &Arc<str>, code: Option<u16>) {
        let (code, host) = (Code(code), Host(Arc::clone(host)));
        let rest = ByAnswer { code, host, method: method(call.method()) };
        self.0.rest_requests.get_or_create(&rest).inc();
        let own = ByRequest { code, resource: Resource(call.counted()), verb: call.verb() };
        self.0.requests.get_or_create(&own).inc();
    }

    /// Records the duration of a request, from the wait for the rate limit to the end of the answer.
    pub fn request_duration(&self, verb: &Method, host: &Arc<str>, duration: Duration) {
        let labels = ByHost { host: Host(Arc::clone(host)), verb: method(verb) };
        self.0.rest_seconds.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    /// Sets the lead of the API server's clock over ours, in seconds.
    pub fn clock_skew(&self, seconds: f64) {
        self.0.clock_skew.set(seconds);
    }

    /// Sets the number of objects of a resource in memory.
    pub fn cache_objects(&self, resource: &str, count: usize) {
        self.0.cache_objects.get_or_create(&ByResource { resource: resource.into() }).set(level(count));
    }

    /// Sets the total number of restarts of a resource's watches for one reason.
    pub fn watch_restarts(&self, resource: &str, reason: &'static str, total: u64) {
        set(&self.0.watch_restarts.get_or_create(&ByRestart { reason, resource: resource.into() }), total);
    }

    /// Sets the time since the last event of a resource's watch.
    pub fn watch_age(&self, resource: &str, age: Duration) {
        self.0.watch_age.get_or_create(&ByResource { resource: resource.into() }).set(age.as_secs_f64());
    }

    /// Removes the series of a resource that is no longer watched.
    pub fn unwatched(&self, resource: &str) {
        let labels = ByResource { resource: resource.into() };
        self.0.cache_objects.remove(&labels);
        self.0.watch_age.remove(&labels);
    }

    /// Sets the total number of events that were dropped for one reason.
    pub fn events_dropped(&self, reason: &'static str, total: u64) {
        set(&self.0.events_dropped.get_or_create(&ByReason { reason }), total);
    }

    /// Sets whether this process holds the Lease `lease`. Without the Lease, `desired_replicas` is not
    /// exposed: the values of our own syncs are outdated, and the leader exposes current ones.
    pub fn leader(&self, lease: &str, leads: bool) {
        self.0.stands_by.store(!leads, Ordering::Relaxed);
        if !leads {
            self.0.desired.clear();
        }
        self.0.leader.get_or_create(&ByName { name: lease.to_owned() }).set(leads.into());
    }

    /// Sets the state of take-over safety: 1 for the state `now`, 0 for the others.
    pub fn takeover(&self, now: TakeoverState) {
        for state in TakeoverState::ALL {
            let labels = ByState { state: state.as_str() };
            self.0.takeover.get_or_create(&labels).set((state == now).into());
        }
    }

    /// Counts a write of another controller to the status of an HPA or to the scale of a target.
    pub fn foreign_write(&self) {
        self.0.foreign_writes.inc();
    }

    /// Counts a comparison of another controller's change with our decision. `result`: a value of a fixed
    /// set.
    pub fn shadow_decision(&self, result: &'static str) {
        self.0.shadow.get_or_create(&ByOutcome { result }).inc();
    }

    /// Sets the number of HPAs with a history restored from `source`, a value of a fixed set.
    pub fn restored(&self, source: &'static str, hpas: usize) {
        self.0.restored.get_or_create(&BySource { source }).set(level(hpas));
    }

    /// Counts a write of a ConfigMap of the checkpoint. `result`: a value of a fixed set.
    pub fn checkpoint_write(&self, result: &'static str) {
        self.0.checkpoint_writes.get_or_create(&ByOutcome { result }).inc();
    }

    /// Sets the size of the checkpoint and the number of HPAs that did not fit into it.
    pub fn checkpoint(&self, bytes: usize, left_out: usize) {
        self.0.checkpoint_bytes.set(level(bytes));
        self.0.checkpoint_left_out.set(level(left_out));
    }

    /// Counts a standby's request for the leader's histories.
    pub fn history_pulled(&self, result: Pull) {
        self.0.history_pulls.get_or_create(&ByOutcome { result: result.as_str() }).inc();
    }

    /// Exposes the age of the histories that were copied from the holder of `lease`, from now on. Exposes
    /// nothing while there is no copy.
    pub fn history_age(&self, lease: &str, age: impl Fn() -> Option<Duration> + Send + 'static) {
        let (ages, labels) = (self.0.history_age.clone(), ByName { name: lease.to_owned() });
        self.before_render(move || match age() {
            Some(age) => {
                ages.get_or_create(&labels).set(age.as_secs_f64());
            }
            None => {
                ages.remove(&labels);
            }
        });
    }

    /// Registers an update that runs before each rendering, such as setting the depth of a queue. The update
    /// must not block.
    pub fn before_render(&self, update: impl Fn() + Send + 'static) {
        self.0.before_render.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(update));
    }

    /// Renders all series in Prometheus' text format.
    pub fn render(&self) -> String {
        self.render_as(Format::Text)
    }

    /// Returns the content type and all series, in the format that an `Accept` header prefers.
    pub fn answer(&self, accept: &str) -> (&'static str, String) {
        let format = Format::preferred(accept);
        (format.content_type(), self.render_as(format))
    }

    fn render_as(&self, format: Format) -> String {
        for update in &*self.0.before_render.lock().unwrap_or_else(PoisonError::into_inner) {
            update();
        }
        if self.0.stands_by.load(Ordering::Relaxed) {
            // A sync that ended while the Lease was lost may have set its result afterwards.
            self.0.desired.clear();
        }
        let mut openmetrics = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode_registry(&mut openmetrics, &self.0.registry);
        let mut families = exposition::parse(&openmetrics);
        families.extend(process::families());
        exposition::render(families, format)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Inner {
    fn register(to: &mut Registry) -> Self {
        let build: Family<ByBuild, Gauge> = Family::default();
        let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
        build.get_or_create(&ByBuild { platform, version: env!("CARGO_PKG_VERSION") }).set(1);
        add(to, &declared::BUILD, build);
        let ages = Family::new_with_constructor(Buckets(declared::METRICS_AGE.buckets));
        let ages = add(to, &declared::METRICS_AGE, ages);
        let age = |api| ages.get_or_create_owned(&by_api(api));
        Self {
            resource_age: age(Api::Resource),
            custom_age: age(Api::Custom),
            external_age: age(Api::External),
            registry: Registry::default(),
            before_render: Mutex::default(),
            stands_by: AtomicBool::new(false),
            reconciliations: add(to, &declared::RECONCILIATIONS, Family::default()),
            reconciliation_seconds: histograms(to, &declared::RECONCILIATION_SECONDS),
            computations: add(to, &declared::COMPUTATIONS, Family::default()),
            computation_seconds: histograms(to, &declared::COMPUTATION_SECONDS),
            hpas: add(to, &declared::HPAS, Gauge::default()),
            desired: add(to, &declared::DESIRED, Family::default()),
            stale_skips: add(to, &declared::STALE_SKIPS, Family::default()),
            lateness: add(to, &declared::LATENESS, Histogram::new(declared::LATENESS.buckets)),
            failures: add(to, &declared::SYNC_FAILURES, Family::default()),
            queue_depth: add(to, &declared::QUEUE_DEPTH, Family::default()),
            queue_adds: add(to, &declared::QUEUE_ADDS, Family::default()),
            queue_retries: add(to, &declared::QUEUE_RETRIES, Family::default()),
            queue_seconds: histograms(to, &declared::QUEUE_SECONDS),
            work_seconds: histograms(to, &declared::WORK_SECONDS),
            unfinished_seconds: add(to, &declared::UNFINISHED_SECONDS, Family::default()),
            longest_running_seconds: add(to, &declared::LONGEST_RUNNING_SECONDS, Family::default()),
            rest_requests: add(to, &declared::REST_REQUESTS, Family::default()),
            rest_seconds: histograms(to, &declared::REST_SECONDS),
            requests: add(to, &declared::REQUESTS, Family::default()),
            metrics_api_down: add(to, &declared::METRICS_API_DOWN, Family::default()),
            spared_queries: add(to, &declared::SPARED_QUERIES, Family::default()),
            clock_skew: add(to, &declared::CLOCK_SKEW, Gauge::default()),
            cache_objects: add(to, &declared::CACHE_OBJECTS, Family::default()),
            watch_restarts: add(to, &declared::WATCH_RESTARTS, Family::default()),
            watch_age: add(to, &declared::WATCH_AGE, Family::default()),
            events_dropped: add(to, &declared::EVENTS_DROPPED, Family::default()),
            leader: add(to, &declared::LEADER, Family::default()),
            takeover: add(to, &declared::TAKEOVER, Family::default()),
            foreign_writes: add(to, &declared::FOREIGN_WRITES, Counter::default()),
            shadow: add(to, &declared::SHADOW, Family::default()),
            restored: add(to, &declared::RESTORED, Family::default()),
            checkpoint_writes: add(to, &declared::CHECKPOINT_WRITES, Family::default()),
            checkpoint_bytes: add(to, &declared::CHECKPOINT_BYTES, Gauge::default()),
            checkpoint_left_out: add(to, &declared::CHECKPOINT_LEFT_OUT, Gauge::default()),
            history_pulls: add(to, &declared::HISTORY_PULLS, Family::default()),
            history_age: add(to, &declared::HISTORY_AGE, Family::default()),
        }
    }
}

impl ApiObserver for Metrics {
    fn down(&self, api: Api, down: bool) {
        self.0.metrics_api_down.get_or_create(&by_api(api)).set(down.into());
    }

    fn spared(&self, api: Api) {
        self.0.spared_queries.get_or_create(&by_api(api)).inc();
    }
}

fn by_api(api: Api) -> ByApi {
    let api = match api {
        Api::Resource => "metrics.k8s.io",
        Api::Custom => "custom.metrics.k8s.io",
        Api::External => "external.metrics.k8s.io",
    };
    ByApi { api }
}

/// Registers a metric under its full name. prometheus-client appends `_total` to counters by itself.
fn add<M: registry::Metric + Clone>(to: &mut Registry, declaration: &Declaration, metric: M) -> M {
    let name = declaration.name.strip_suffix("_total").unwrap_or(declaration.name);
    to.register(name, declaration.help, metric.clone());
    metric
}

/// Registers histograms with the declared buckets.
fn histograms<L>(to: &mut Registry, declaration: &Declaration) -> Histograms<L>
where
    Histograms<L>: registry::Metric,
    L: Clone + std::hash::Hash + Eq,
{
    add(to, declaration, Family::new_with_constructor(Buckets(declaration.buckets)))
}

/// Converts a count to the value of a gauge, saturating.
fn level(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Sets a counter to a total that is counted elsewhere.
fn set(counter: &Counter, total: u64) {
    counter.inner().store(total, Ordering::Relaxed);
}

/// Returns the method in client-go's spelling.
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

/// The metrics of one work queue, with client-go's semantics.
#[derive(Debug, Clone)]
pub struct Workqueue {
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    queue_seconds: Histogram,
    work_seconds: Histogram,
    unfinished_seconds: Float,
    longest_running_seconds: Float,
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
        self.depth.set(level(count));
    }

    /// Counts a key that a worker took. `waited`: the time since it became due.
    pub fn handed_out(&self, waited: Duration) {
        self.queue_seconds.observe(waited.as_secs_f64());
    }

    /// Counts a finished key. `worked`: the duration of the work.
    pub fn finished(&self, worked: Duration) {
        self.work_seconds.observe(worked.as_secs_f64());
    }

    /// Sets the sum and the maximum of the running times of the work in flight.
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
