//! Every metric: name, labels, buckets and help. Nothing is global: a [`Metrics`] is made once and handed on.
//!
//! Names, labels, buckets and help are kube-controller-manager's (v1.37.1), the stability level in front of the help
//! too, so that dashboards and alerts go on as they are. What upstream has not is named `concertina_`.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use autoscaling::{Action, ErrorLabel};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::{exposition, process};

type Seconds = Family<WorkqueueLabels, Gauge<f64, std::sync::atomic::AtomicU64>>;
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// All metrics of the process. Clones are the same metrics.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    before_render: Mutex<Vec<Box<dyn Fn() + Send>>>,
    reconciliations: Family<ResultLabels, Counter>,
    reconciliation_seconds: Histograms<ResultLabels>,
    computations: Family<ComputationLabels, Counter>,
    computation_seconds: Histograms<ComputationLabels>,
    hpas: Gauge,
    desired: Family<HpaLabels, Gauge>,
    stale_skips: Family<ResourceLabels, Counter>,
    queue_depth: Family<WorkqueueLabels, Gauge>,
    queue_adds: Family<WorkqueueLabels, Counter>,
    queue_retries: Family<WorkqueueLabels, Counter>,
    queue_seconds: Histograms<WorkqueueLabels>,
    work_seconds: Histograms<WorkqueueLabels>,
    unfinished_seconds: Seconds,
    longest_running_seconds: Seconds,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Histograms<HostLabels>,
    leader: Family<WorkqueueLabels, Gauge>,
    events_dropped: Counter,
    takeover: Family<StateLabels, Gauge>,
    foreign_writes: Counter,
    shadow: Family<ShadowLabels, Counter>,
}

/// What a leader does while another controller may be at work on the same HPAs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOverState {
    /// It decides and records, and waits until nobody else has written for long enough.
    Observing,
    /// It writes.
    Acting,
    /// Another controller writes: it decides and records, and writes nothing.
    Holding,
}

impl TakeOverState {
    const ALL: [Self; 3] = [Self::Observing, Self::Acting, Self::Holding];

    /// As the label `state` names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observing => "observing",
            Self::Acting => "acting",
            Self::Holding => "holding",
        }
    }
}

// Fields are labels, in the order in which Go's registry writes them: sorted.

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    action: &'static str,
    error: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ComputationLabels {
    action: &'static str,
    error: &'static str,
    metric_type: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HpaLabels {
    hpa_name: String,
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    group: &'static str,
    resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkqueueLabels {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    host: String,
    method: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HostLabels {
    host: String,
    verb: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShadowLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    platform: String,
    version: &'static str,
}

impl Metrics {
    /// All metrics, at zero.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let mut inner = Inner::declare(&mut registry);
        inner.registry = registry;
        Self(Arc::new(inner))
    }

    /// One sync ended. `duration`: from taking the key to its last write.
    pub fn reconciled(&self, action: Action, error: ErrorLabel, duration: Duration) {
        let labels = ResultLabels { action: action.as_str(), error: error.as_str() };
        self.0.reconciliations.get_or_create(&labels).inc();
        self.0.reconciliation_seconds.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    /// One metric of an HPA was computed, or failed. `metric_type`: the `type` as written in the spec.
    pub fn computed(&self, metric_type: &str, action: Action, error: ErrorLabel, duration: Duration) {
        let labels = ComputationLabels {
            action: action.as_str(),
            error: error.as_str(),
            metric_type: metric_type.to_owned(),
        };
        self.0.computations.get_or_create(&labels).inc();
        self.0.computation_seconds.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    /// How many HPAs there are.
    pub fn hpas(&self, count: usize) {
        self.0.hpas.set(level(count));
    }

    /// What an HPA wants now.
    pub fn desired(&self, namespace: &str, name: &str, replicas: i32) {
        self.0.desired.get_or_create(&HpaLabels::of(namespace, name)).set(replicas.into());
    }

    /// An HPA is gone, and its series with it.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.0.desired.remove(&HpaLabels::of(namespace, name));
    }

    /// A sync was skipped because the cache has not seen our own last write.
    pub fn stale_skip(&self) {
        let labels = ResourceLabels { group: "autoscaling", resource: "horizontalpodautoscalers" };
        self.0.stale_skips.get_or_create(&labels).inc();
    }

    /// The metrics of one work queue, at zero.
    pub fn workqueue(&self, name: &str) -> Workqueue {
        let labels = WorkqueueLabels { name: name.to_owned() };
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

    /// A request was answered. `code`: the status, or `<error>` where there was no answer; `host`: with port.
    pub fn rest_request(&self, code: &str, host: &str, method: &str) {
        let labels =
            RequestLabels { code: code.to_owned(), host: host.to_owned(), method: method.to_owned() };
        self.0.requests.get_or_create(&labels).inc();
    }

    /// How long a request took until its answer began.
    pub fn rest_duration(&self, verb: &str, host: &str, duration: Duration) {
        let labels = HostLabels { host: host.to_owned(), verb: verb.to_owned() };
        self.0.request_seconds.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    /// Whether this process holds a lease.
    pub fn leader(&self, lease: &str, leads: bool) {
        self.0.leader.get_or_create(&WorkqueueLabels { name: lease.to_owned() }).set(leads.into());
    }

    /// What this process does about another controller: one of the states is 1, the others are 0.
    pub fn takeover(&self, now: TakeOverState) {
        for state in TakeOverState::ALL {
            let labels = StateLabels { state: state.as_str() };
            self.0.takeover.get_or_create(&labels).set((state == now).into());
        }
    }

    /// A write of another controller was seen: to an HPA's status, or to a scale that an HPA controls.
    pub fn foreign_write(&self) {
        self.0.foreign_writes.inc();
    }

    /// A change that another controller made was compared with the own decision. `result`: one of a fixed few.
    pub fn shadow_decision(&self, result: &'static str) {
        self.0.shadow.get_or_create(&ShadowLabels { result }).inc();
    }

    /// An event was not sent: too many, or the namespace is ending.
    pub fn event_dropped(&self) {
        self.0.events_dropped.inc();
    }

    /// Has something brought up to date before each [`Self::render`], such as the levels of a queue. Must not block.
    pub fn before_render(&self, update: impl Fn() + Send + 'static) {
        self.0.before_render.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(update));
    }

    /// All series in Prometheus' text format, see [`exposition::CONTENT_TYPE`].
    pub fn render(&self) -> String {
        for update in &*self.0.before_render.lock().unwrap_or_else(PoisonError::into_inner) {
            update();
        }
        let mut openmetrics = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode_registry(&mut openmetrics, &self.0.registry);
        let mut families = exposition::parse(&openmetrics);
        families.extend(process::families());
        exposition::render(families)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Inner {
    #[rustfmt::skip] // one metric a line
    fn declare(to: &mut Registry) -> Self {
        let own: Family<BuildLabels, Gauge> = Family::default();
        let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
        own.get_or_create(&BuildLabels { platform, version: env!("CARGO_PKG_VERSION") }).set(1);
        add(to, "concertina_build_info", "A metric with a constant '1' value labeled by the version of Concertina and the platform on which it is running.", own);

        Self {
            registry: Registry::default(),
            before_render: Mutex::default(),
            reconciliations: add(to, "horizontal_pod_autoscaler_controller_reconciliations_total", "[BETA] Number of reconciliations of HPA controller. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.", Family::default()),
            reconciliation_seconds: add(to, "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds", "[BETA] The time(seconds) that the HPA controller takes to reconcile once. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.", Family::new_with_constructor(sync_buckets)),
            computations: add(to, "horizontal_pod_autoscaler_controller_metric_computation_total", "[BETA] Number of metric computations. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type", Family::default()),
            computation_seconds: add(to, "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds", "[BETA] The time(seconds) that the HPA controller takes to calculate one metric. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. The label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type", Family::new_with_constructor(sync_buckets)),
            hpas: add(to, "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers", "[ALPHA] Current number of controlled HPA objects.", Gauge::default()),
            desired: add(to, "horizontal_pod_autoscaler_controller_desired_replicas", "[ALPHA] Current desired replica count for HPA objects.", Family::default()),
            stale_skips: add(to, "horizontal_pod_autoscaler_controller_stale_sync_skips_total", "[ALPHA] Total number of HPA syncs skipped due to a stale watch cache.", Family::default()),
            queue_depth: add(to, "workqueue_depth", "[BETA] Current depth of workqueue", Family::default()),
            queue_adds: add(to, "workqueue_adds_total", "[BETA] Total number of adds handled by workqueue", Family::default()),
            queue_retries: add(to, "workqueue_retries_total", "[BETA] Total number of retries handled by workqueue", Family::default()),
            queue_seconds: add(to, "workqueue_queue_duration_seconds", "[BETA] How long in seconds an item stays in workqueue before being requested.", Family::new_with_constructor(queue_buckets)),
            work_seconds: add(to, "workqueue_work_duration_seconds", "[BETA] How long in seconds processing an item from workqueue takes.", Family::new_with_constructor(queue_buckets)),
            unfinished_seconds: add(to, "workqueue_unfinished_work_seconds", "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.", Family::default()),
            longest_running_seconds: add(to, "workqueue_longest_running_processor_seconds", "[BETA] How many seconds has the longest running processor for workqueue been running.", Family::default()),
            requests: add(to, "rest_client_requests_total", "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.", Family::default()),
            request_seconds: add(to, "rest_client_request_duration_seconds", "[ALPHA] Request latency in seconds. Broken down by verb, and host.", Family::new_with_constructor(request_buckets)),
            leader: add(to, "leader_election_master_status", "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.", Family::default()),
            events_dropped: add(to, "concertina_events_dropped_total", "Number of events that were not sent.", Counter::default()),
            takeover: add(to, "concertina_takeover_state", "What this process does about another controller of the same HPAs: 1 for the state it is in (observing, acting, holding), 0 for the others.", Family::default()),
            foreign_writes: add(to, "concertina_foreign_writes_total", "Writes of another controller to the status of an HPA or to a scale that one controls.", Counter::default()),
            shadow: add(to, "concertina_shadow_decisions_total", "Changes made by another controller, compared with the own decision of that period, by result.", Family::default()),
        }
    }
}

/// Registers a metric under its full name; prometheus-client appends `_total` to counters by itself.
fn add<M: prometheus_client::registry::Metric + Clone>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    registry.register(name.strip_suffix("_total").unwrap_or(name), help, metric.clone());
    metric
}

fn sync_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

fn queue_buckets() -> Histogram {
    // Written out: multiplying up from 1e-8 drifts off the decimal bounds.
    Histogram::new([1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0])
}

fn request_buckets() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0])
}

/// A count as a gauge holds it, saturating.
fn level(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The metrics of one work queue; when each moves is client-go's.
#[derive(Debug, Clone)]
pub struct Workqueue {
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    queue_seconds: Histogram,
    work_seconds: Histogram,
    unfinished_seconds: Gauge<f64, std::sync::atomic::AtomicU64>,
    longest_running_seconds: Gauge<f64, std::sync::atomic::AtomicU64>,
}

impl Workqueue {
    /// A key fell due.
    pub fn added(&self) {
        self.adds.inc();
    }

    /// A key was given a time to come back at.
    pub fn retried(&self) {
        self.retries.inc();
    }

    /// How many keys are due.
    pub fn depth(&self, count: usize) {
        self.depth.set(level(count));
    }

    /// A key was handed out, so long after it had fallen due.
    pub fn handed_out(&self, waited: Duration) {
        self.queue_seconds.observe(waited.as_secs_f64());
    }

    /// The work on a key ended.
    pub fn finished(&self, worked: Duration) {
        self.work_seconds.observe(worked.as_secs_f64());
    }

    /// How long the work in hand has been going on, in sum and at most.
    pub fn running(&self, sum: Duration, longest: Duration) {
        self.unfinished_seconds.set(sum.as_secs_f64());
        self.longest_running_seconds.set(longest.as_secs_f64());
    }
}

impl HpaLabels {
    fn of(namespace: &str, name: &str) -> Self {
        Self { hpa_name: name.to_owned(), namespace: namespace.to_owned() }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process in which everything has happened once.
    fn busy() -> Metrics {
        let metrics = Metrics::new();
        metrics.workqueue("horizontalpodautoscaler").handed_out(Duration::from_millis(20));
        metrics.reconciled(Action::ScaleUp, ErrorLabel::None, Duration::from_millis(3));
        metrics.computed("Resource", Action::None, ErrorLabel::Internal, Duration::from_secs(40));
        metrics.hpas(2);
        metrics.desired("shop", "web", 7);
        metrics.stale_skip();
        metrics.rest_request("200", "10.0.0.1:443", "GET");
        metrics.rest_duration("GET", "10.0.0.1:443", Duration::from_millis(30));
        metrics.leader("kube-controller-manager", true);
        metrics.event_dropped();
        metrics.takeover(TakeOverState::Observing);
        metrics.foreign_write();
        metrics.shadow_decision("same");
        metrics
    }

    #[test]
    fn the_declared_metrics_are_these() {
        let text = busy().render();
        let declared: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .filter(|line| !line.starts_with("process_"))
            .collect();
        let expected = [
            "concertina_build_info gauge",
            "concertina_events_dropped_total counter",
            "concertina_foreign_writes_total counter",
            "concertina_shadow_decisions_total counter",
            "concertina_takeover_state gauge",
            "horizontal_pod_autoscaler_controller_desired_replicas gauge",
            "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds histogram",
            "horizontal_pod_autoscaler_controller_metric_computation_total counter",
            "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers gauge",
            "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds histogram",
            "horizontal_pod_autoscaler_controller_reconciliations_total counter",
            "horizontal_pod_autoscaler_controller_stale_sync_skips_total counter",
            "leader_election_master_status gauge",
            "rest_client_request_duration_seconds histogram",
            "rest_client_requests_total counter",
            "workqueue_adds_total counter",
            "workqueue_depth gauge",
            "workqueue_longest_running_processor_seconds gauge",
            "workqueue_queue_duration_seconds histogram",
            "workqueue_retries_total counter",
            "workqueue_unfinished_work_seconds gauge",
            "workqueue_work_duration_seconds histogram",
        ];
        assert_eq!(declared, expected);
    }

    #[test]
    fn series_read_as_upstreams() {
        let text = busy().render();
        let expected = [
            "# HELP workqueue_depth [BETA] Current depth of workqueue\n# TYPE workqueue_depth gauge\nworkqueue_depth{name=\"horizontalpodautoscaler\"} 0\n",
            "horizontal_pod_autoscaler_controller_reconciliations_total{action=\"scale_up\",error=\"none\"} 1\n",
            "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds_bucket{action=\"scale_up\",error=\"none\",le=\"0.002\"} 0\n",
            "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds_bucket{action=\"scale_up\",error=\"none\",le=\"0.004\"} 1\n",
            "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds_bucket{action=\"none\",error=\"internal\",metric_type=\"Resource\",le=\"16.384\"} 0\n",
            "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds_sum{action=\"none\",error=\"internal\",metric_type=\"Resource\"} 40\n",
            "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers 2\n",
            "horizontal_pod_autoscaler_controller_desired_replicas{hpa_name=\"web\",namespace=\"shop\"} 7\n",
            "horizontal_pod_autoscaler_controller_stale_sync_skips_total{group=\"autoscaling\",resource=\"horizontalpodautoscalers\"} 1\n",
            "workqueue_queue_duration_seconds_bucket{name=\"horizontalpodautoscaler\",le=\"1e-08\"} 0\n",
            "workqueue_queue_duration_seconds_bucket{name=\"horizontalpodautoscaler\",le=\"0.1\"} 1\n",
            "rest_client_requests_total{code=\"200\",host=\"10.0.0.1:443\",method=\"GET\"} 1\n",
            "rest_client_request_duration_seconds_bucket{host=\"10.0.0.1:443\",verb=\"GET\",le=\"0.1\"} 1\n",
            "leader_election_master_status{name=\"kube-controller-manager\"} 1\n",
            "concertina_takeover_state{state=\"acting\"} 0\n",
            "concertina_takeover_state{state=\"observing\"} 1\n",
            "concertina_shadow_decisions_total{result=\"same\"} 1\n",
        ];
        for lines in expected {
            assert!(text.contains(lines), "{lines} in {text}");
        }
        assert!(!text.contains("# EOF") && !text.contains(".0\n"), "{text}");
    }

    #[test]
    fn a_new_process_shows_what_upstream_shows_and_no_more() {
        let metrics = Metrics::new();
        let text = metrics.render();
        assert!(text.contains("\nhorizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers 0\n"));
        assert!(!text.contains("reconciliations_total") && !text.contains("workqueue_"), "{text}");
        metrics.workqueue("horizontalpodautoscaler");
        let text = metrics.render();
        assert!(text.contains("\nworkqueue_retries_total{name=\"horizontalpodautoscaler\"} 0\n"));
        assert!(
            text.contains("\nworkqueue_work_duration_seconds_count{name=\"horizontalpodautoscaler\"} 0\n")
        );
    }

    #[test]
    fn the_series_of_an_hpa_go_with_it() {
        let metrics = busy();
        metrics.forget("shop", "web");
        assert!(!metrics.render().contains("desired_replicas"));
    }

    #[test]
    fn levels_are_brought_up_to_date_before_they_are_read() {
        let metrics = Metrics::new();
        let queue = metrics.workqueue("q");
        metrics.before_render(move || queue.depth(3));
        assert!(metrics.render().contains("workqueue_depth{name=\"q\"} 3\n"));
    }
}
