//! Declares every metric of the process: name, type, labels, buckets, help and the description in
//! `docs/reference/metrics.md`. A test compares the declarations with that page.
//!
//! Upstream metrics have the names, labels, buckets and help of kube-controller-manager v1.37.1, so that dashboards and
//! alerts keep working. The help includes the stability level. The names of all other metrics start with `concertina_`.

use prometheus::{CounterVec, GaugeVec, HistogramVec, Registry};

pub use super::series::{Declaration, Group, Kind};
use super::series::{HpaGauge, Metric, counter, gauge, histogram};

/// Bounds from 1 ms, each twice the previous bound.
const SYNC: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
/// Bounds from 10 ns, each ten times the previous bound, with the rounding errors of upstream's multiplication.
const QUEUE: &[f64] =
    &[1e-8, 1e-7, 1e-6, 9.999_999_999_999_999e-6, 9.999_999_999_999_999e-5, 0.001, 0.01, 0.1, 1.0, 10.0];
const REQUEST: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Bounds around the objective of 1 s, up to several sync periods of 15 s.
const LATENESS_BOUNDS: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0];
/// Bounds for the age of samples. metrics-server measures every 15 s, and its samples are up to a minute old.
const AGE_BOUNDS: &[f64] = &[1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 300.0, 600.0];

/// Declares each metric once, for both `GROUPS` and `Families`.
macro_rules! metrics {
    ($($title:literal { $($field:ident: $type:ident = $declaration:expr;)* })*) => {
        /// All metrics, in the order of the documentation.
        pub const GROUPS: &[Group] = &[$(Group { title: $title, metrics: &[$($declaration),*] }),*];

        /// The series of all metrics.
        #[derive(Debug)]
        pub(super) struct Families {
            $($(pub(super) $field: $type,)*)*
        }

        impl Families {
            /// Creates all metrics without series, and adds them to `registry`.
            pub(super) fn register(registry: &Registry) -> Self {
                Self { $($($field: Metric::register(registry, &$declaration),)*)* }
            }
        }
    };
}

metrics! {
    "The autoscaler" {
        reconciliations: CounterVec = counter(
            "horizontal_pod_autoscaler_controller_reconciliations_total",
            &["action", "error"],
            "[BETA] Number of reconciliations of HPA controller. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.",
            "Syncs, by their action and by the first error.",
        );
        reconciliation_seconds: HistogramVec = histogram(
            "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
            &["action", "error"],
            SYNC,
            "[BETA] The time(seconds) that the HPA controller takes to reconcile once. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.",
            "Duration of a sync, from reading the scale to writing the status.",
        );
        computations: CounterVec = counter(
            "horizontal_pod_autoscaler_controller_metric_computation_total",
            &["action", "error", "metric_type"],
            "[BETA] Number of metric computations. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type",
            "Computations of single metrics, by the direction of the proposal.",
        );
        computation_seconds: HistogramVec = histogram(
            "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
            &["action", "error", "metric_type"],
            SYNC,
            "[BETA] The time(seconds) that the HPA controller takes to calculate one metric. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. The label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type",
            "Duration of one metric computation, mostly the request to its metrics API.",
        );
        hpas: GaugeVec = gauge(
            "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
            &[],
            "[ALPHA] Current number of controlled HPA objects.",
            "Watched HPAs.",
        );
        desired: HpaGauge = gauge(
            "horizontal_pod_autoscaler_controller_desired_replicas",
            &["hpa_name", "namespace"],
            "[ALPHA] Current desired replica count for HPA objects.",
            "Desired replicas of each HPA at its last decision. Leader only; the series is removed with its HPA.",
        );
        at_maximum: HpaGauge = gauge(
            "concertina_hpa_at_maximum",
            &["hpa_name", "namespace"],
            "1 for each HPA with metrics that require more replicas than its maximum.",
            "1 while the metrics of an HPA require more replicas than its maximum. Other HPAs have no series. Leader \
             only.",
        );
        not_active: HpaGauge = gauge(
            "concertina_hpa_not_active",
            &["hpa_name", "namespace"],
            "1 for each HPA that computes no replica count, except at zero replicas.",
            "1 while the condition `ScalingActive` of an HPA is `False`, except at zero replicas. Other HPAs have no \
             series. Leader only.",
        );
        stale_skips: CounterVec = counter(
            "horizontal_pod_autoscaler_controller_stale_sync_skips_total",
            &["group", "resource"],
            "[ALPHA] Total number of HPA syncs skipped due to a stale watch cache.",
            "Syncs skipped because the watch had not yet delivered this replica's last status write.",
        );
        lateness: HistogramVec = histogram(
            "concertina_sync_lateness_seconds",
            &[],
            LATENESS_BOUNDS,
            "Delay between the due time of a sync and its start, in seconds.",
            "Delay between the due time of a sync and its start.",
        );
        metrics_age: HistogramVec = histogram(
            "concertina_metrics_age_seconds",
            &["api"],
            AGE_BOUNDS,
            "Age of the oldest sample of a response that a decision used, in seconds, by metrics API.",
            "Age of the oldest sample of each response of a metrics API, at the time of the decision that used it.",
        );
        source_age: HistogramVec = histogram(
            "concertina_metric_age_seconds",
            &["source"],
            AGE_BOUNDS,
            "Age of the oldest number that a sync read from a metric source, in seconds.",
            "Age of the oldest number that a sync read from a source: the name of a server, an API group, `pods` or \
             `kubelet`.",
        );
        source_errors: CounterVec = counter(
            "concertina_metric_source_errors_total",
            &["reason", "source"],
            "Reads of a metric source without a number for an HPA, or for one of its pods.",
            "Reads of a source without a number for an HPA, or for at least one of its pods. `unknown` is a source \
             that the file does not name.",
        );
        source_down: GaugeVec = gauge(
            "concertina_metric_source_down",
            &["source"],
            "1 while a metric source fails as a whole and gets only one query per second, 0 otherwise.",
            "1 while a server or an API group of `--metric-sources` fails as a whole.",
        );
        sources_valid: GaugeVec = gauge(
            "concertina_metric_sources_valid",
            &[],
            "1 if the last read of --metric-sources was successful, 0 if the previous contents are in use.",
            "0 while the file `--metric-sources` is invalid and its previous contents are in use.",
        );
        sync_failures: CounterVec = counter(
            "concertina_sync_failures_total",
            &["reason"],
            "Failures of syncs, by the reason in conditions and events.",
            "Failures of syncs, by the reason in condition and event. Each failed metric counts.",
        );
    }
    "The work queue" {
        queue_depth: GaugeVec = gauge(
            "workqueue_depth",
            &["name"],
            "[BETA] Current depth of workqueue",
            "HPAs that are due and wait for a worker.",
        );
        queue_adds: CounterVec = counter(
            "workqueue_adds_total",
            &["name"],
            "[BETA] Total number of adds handled by workqueue",
            "Number of times an HPA became due.",
        );
        queue_retries: CounterVec = counter(
            "workqueue_retries_total",
            &["name"],
            "[BETA] Total number of retries handled by workqueue",
            "Number of times the next due time of an HPA was scheduled: once per sync.",
        );
        queue_seconds: HistogramVec = histogram(
            "workqueue_queue_duration_seconds",
            &["name"],
            QUEUE,
            "[BETA] How long in seconds an item stays in workqueue before being requested.",
            "Time that a due HPA waited for a worker.",
        );
        work_seconds: HistogramVec = histogram(
            "workqueue_work_duration_seconds",
            &["name"],
            QUEUE,
            "[BETA] How long in seconds processing an item from workqueue takes.",
            "Duration of the work on an HPA, including the wait for its metrics.",
        );
        unfinished_seconds: GaugeVec = gauge(
            "workqueue_unfinished_work_seconds",
            &["name"],
            "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
            "Total time that the syncs in flight have been running.",
        );
        longest_running_seconds: GaugeVec = gauge(
            "workqueue_longest_running_processor_seconds",
            &["name"],
            "[BETA] How many seconds has the longest running processor for workqueue been running.",
            "Time that the oldest sync in flight has been running.",
        );
    }
    "Requests" {
        rest_requests: CounterVec = counter(
            "rest_client_requests_total",
            &["code", "host", "method"],
            "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
            "Requests sent, including retries; `<error>` for requests without a response.",
        );
        rest_seconds: HistogramVec = histogram(
            "rest_client_request_duration_seconds",
            &["host", "verb"],
            REQUEST,
            "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
            "Duration of a request with its retries and the wait for the rate limit (`--kube-api-qps`). Without watches.",
        );
        requests: CounterVec = counter(
            "concertina_requests_total",
            &["code", "resource", "verb"],
            "Number of HTTP requests, by status code and by the resource and verb that a role must allow.",
            "Requests sent, including retries, by the permission that they need. Names of metrics appear as `*`.",
        );
        metrics_api_down: GaugeVec = gauge(
            "concertina_metrics_api_down",
            &["api"],
            "1 while a metrics API fails as a whole and gets only one query per second, 0 otherwise.",
            "1 while a metrics API fails as a whole: it then gets only one query per second.",
        );
        spared_queries: CounterVec = counter(
            "concertina_spared_metric_queries_total",
            &["api"],
            "Queries answered with their last error because their metrics API is down.",
            "Queries answered with their last error, because their metrics API is down.",
        );
        clock_skew: GaugeVec = gauge(
            "concertina_clock_skew_seconds",
            &[],
            "Minimum skew of the API server's clock against the clock of this process, in seconds.",
            "Minimum skew of the API server's clock against Concertina's (positive: ahead). It falls short of the \
             real skew by at most 1 s plus the duration of a request.",
        );
    }
    "Caches and watches" {
        cache_objects: GaugeVec = gauge(
            "concertina_cache_objects",
            &["resource"],
            "Number of objects held in memory, by resource.",
            "Objects held in memory.",
        );
        watch_restarts: CounterVec = counter(
            "concertina_watch_restarts_total",
            &["reason", "resource"],
            "Restarts of watches and lists, by the reason why the previous one ended.",
            "Restarts of watches and lists. `ended` is normal, every five to ten minutes.",
        );
        watch_age: GaugeVec = gauge(
            "concertina_watch_age_seconds",
            &["resource"],
            "Time since the last event, bookmark or complete list of a watch, in seconds.",
            "Time since the last event, bookmark or complete list of a watch. The server sends a bookmark about once \
             a minute.",
        );
        events_dropped: CounterVec = counter(
            "concertina_events_dropped_total",
            &["reason"],
            "Events that were not sent, by reason.",
            "Kubernetes events that were dropped.",
        );
        decision_events: CounterVec = counter(
            "concertina_decision_events_total",
            &[],
            "Events with the sentence of a decision, with --decision-events.",
            "Events `LastDecision`, with `--decision-events`.",
        );
    }
    "Leader election, takeover, shadow mode" {
        leader: GaugeVec = gauge(
            "leader_election_master_status",
            &["name"],
            "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
            "1 on the replica that holds the Lease, 0 on the others. Not exposed without leader election.",
        );
        takeover: GaugeVec = gauge(
            "concertina_takeover_state",
            &["state"],
            "Reaction of this process to another controller of the same HPAs: 1 for the current state (observing, acting, holding), 0 for the others.",
            "1 for the current state of the leader, 0 for the others.",
        );
        foreign_writes: CounterVec = counter(
            "concertina_foreign_writes_total",
            &[],
            "Writes of another controller to the status of an HPA or to the scale of a target.",
            "Writes of another controller to the status of an HPA or to the scale of a target.",
        );
        policy_active: GaugeVec = gauge(
            "concertina_policy_active",
            &["name", "namespace", "reason"],
            "1 for each HPA and each step of its scaling policy that has an effect.",
            "1 while a step of the scaling policy of an HPA has an effect. `reason` is that of the condition \
             `ScalingPolicyActive`.",
        );
        forecast_floor: GaugeVec = gauge(
            "concertina_forecast_floor",
            &["mode", "name", "namespace"],
            "Floor of the forecast in the scaling policy of an HPA.",
            "Floor of the `forecast` of an HPA before the bounds of the HPA. With the mode `Preview`, it does not apply. \
             Absent without a floor.",
        );
        handover: GaugeVec = gauge(
            "concertina_hpas",
            &["state"],
            "HPAs by the controller in charge with --scope=labelled: outside, claiming, in_charge, contested.",
            "HPAs by state, with `--scope=labelled`. On a standby all HPAs in scope are `claiming`.",
        );
        handover_proof: GaugeVec = gauge(
            "concertina_handover_last_proof_timestamp_seconds",
            &[],
            "Time of the last proof that the built-in controller's writes of HPAs in scope are refused.",
            "Time of the last proof that the built-in controller's writes of HPAs in scope are refused.",
        );
        handover_guard: GaugeVec = gauge(
            "concertina_handover_guard",
            &["guard"],
            "Always 1, with the guard of --scope=labelled: webhook, policy or none.",
            "Always 1, with the guard of `--scope=labelled` as its label: `webhook`, `policy` or `none`.",
        );
        handover_refused: CounterVec = counter(
            "concertina_handover_refused_total",
            &["resource"],
            "Writes of the built-in controller that this replica's webhook refused, by resource.",
            "Writes of the built-in controller that the webhook of this replica refused: `scale`, `status` or \
             `events`.",
        );
        handover_unanswered: CounterVec = counter(
            "concertina_handover_unanswered_total",
            &["reason"],
            "Requests to this replica's webhook that got no usable answer in time, so the API server allowed the write, by reason.",
            "Requests to the webhook of this replica that got no answer in time. `reason`: `handshake` failed, \
             connection `closed`, answer `late`, or an `error`.",
        );
        shadow: CounterVec = counter(
            "concertina_shadow_decisions_total",
            &["result"],
            "Changes made by another controller, compared with this process's decision for the same period, by result.",
            "Changes made by another controller, compared with Concertina's decision for the same period.",
        );
    }
    "Histories" {
        restored: GaugeVec = gauge(
            "concertina_history_restored_hpas",
            &["source"],
            "HPAs with a history that this leader restored before its first sync, by source.",
            "HPAs with a history that the leader restored: from a `checkpoint` (exact), after a `crash` (may lack the \
             last seconds), or from `status` and events.",
        );
        checkpoint_writes: CounterVec = counter(
            "concertina_checkpoint_writes_total",
            &["result"],
            "Writes of the checkpoint's ConfigMaps, by result.",
            "Writes of the checkpoint's ConfigMaps: `written`, `conflict` (retried at once), `failed`.",
        );
        checkpoint_bytes: GaugeVec = gauge(
            "concertina_checkpoint_bytes",
            &[],
            "Size of the last written checkpoint, in bytes.",
            "Size of the last written checkpoint.",
        );
        checkpoint_left_out: GaugeVec = gauge(
            "concertina_checkpoint_left_out_hpas",
            &[],
            "HPAs with a history that did not fit into the checkpoint.",
            "HPAs with a history that did not fit into the checkpoint.",
        );
    }
    "The process" {
        build: GaugeVec = gauge(
            "concertina_build_info",
            &["platform", "version"],
            "A metric with a constant '1' value labeled by the version of Concertina and the platform on which it is running.",
            "Always 1. The labels show the running version.",
        );
        process_cpu: CounterVec = counter(
            "process_cpu_seconds_total",
            &[],
            "Total user and system CPU time spent in seconds.",
            "CPU time used.",
        );
        process_max_fds: GaugeVec = gauge(
            "process_max_fds",
            &[],
            "Maximum number of open file descriptors.",
            "Maximum number of open file descriptors.",
        );
        process_open_fds: GaugeVec = gauge(
            "process_open_fds",
            &[],
            "Number of open file descriptors.",
            "Open file descriptors.",
        );
        process_resident: GaugeVec = gauge(
            "process_resident_memory_bytes",
            &[],
            "Resident memory size in bytes.",
            "Resident memory.",
        );
        process_start: GaugeVec = gauge(
            "process_start_time_seconds",
            &[],
            "Start time of the process since unix epoch in seconds.",
            "Start time of the process.",
        );
        process_virtual: GaugeVec = gauge(
            "process_virtual_memory_bytes",
            &[],
            "Virtual memory size in bytes.",
            "Reserved address space, a poor measure of memory use.",
        );
        process_virtual_max: GaugeVec = gauge(
            "process_virtual_memory_max_bytes",
            &[],
            "Maximum amount of virtual memory available in bytes.",
            "Maximum address space.",
        );
    }
}

/// All metrics, without their groups.
pub fn all() -> impl Iterator<Item = &'static Declaration> {
    GROUPS.iter().flat_map(|group| group.metrics)
}
