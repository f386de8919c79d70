//! Every metric of the process: name, type, labels, buckets, help and the description in
//! `docs/reference/metrics.md`. A test compares the declarations with that page.
//!
//! Upstream metrics keep kube-controller-manager's names, labels, buckets and help (v1.37.1), including the
//! stability level in the help, so that dashboards and alerts keep working. The names of all other metrics
//! start with `concertina_`.

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A total that only rises. The name ends in `_total`.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// Observations, counted in buckets.
    Histogram,
}

impl Kind {
    /// The type's name in both exposition formats.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The declaration of one metric.
#[derive(Debug)]
pub struct Declaration {
    /// The full name. A counter's name ends in `_total`.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// The label names, sorted, without `le`.
    pub labels: &'static [&'static str],
    /// The upper bounds of a histogram's buckets. Empty for other types.
    pub buckets: &'static [f64],
    /// The help text in the exposition.
    pub help: &'static str,
    /// The description in the documentation.
    pub meaning: &'static str,
}

/// A group of metrics with its heading in the documentation.
#[derive(Debug)]
pub struct Group {
    /// The heading.
    pub title: &'static str,
    /// The metrics, in the order of the documentation.
    pub metrics: &'static [&'static Declaration],
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    meaning: &'static str,
) -> Declaration {
    Declaration { name, kind: Kind::Counter, labels, buckets: &[], help, meaning }
}

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    meaning: &'static str,
) -> Declaration {
    Declaration { name, kind: Kind::Gauge, labels, buckets: &[], help, meaning }
}

const fn histogram(
    name: &'static str,
    labels: &'static [&'static str],
    buckets: &'static [f64],
    help: &'static str,
    meaning: &'static str,
) -> Declaration {
    Declaration { name, kind: Kind::Histogram, labels, buckets, help, meaning }
}

/// Bounds from 1 ms, each twice the previous one.
const SYNC: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
/// Bounds from 10 ns, each ten times the previous one, with the rounding errors of upstream's multiplication.
const QUEUE: &[f64] =
    &[1e-8, 1e-7, 1e-6, 9.999_999_999_999_999e-6, 9.999_999_999_999_999e-5, 0.001, 0.01, 0.1, 1.0, 10.0];
const REQUEST: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Bounds around an objective of 1 s, up to several sync periods of 15 s.
const LATENESS_BOUNDS: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0];
/// Bounds for the age of answers. metrics-server measures every 15 s, and its answers are up to a minute old.
const AGE_BOUNDS: &[f64] = &[1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 300.0, 600.0];

// The autoscaler

pub(super) const RECONCILIATIONS: Declaration = counter(
    "horizontal_pod_autoscaler_controller_reconciliations_total",
    &["action", "error"],
    "[BETA] Number of reconciliations of HPA controller. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.",
    "Syncs, by their action and by the first error.",
);
pub(super) const RECONCILIATION_SECONDS: Declaration = histogram(
    "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
    &["action", "error"],
    SYNC,
    "[BETA] The time(seconds) that the HPA controller takes to reconcile once. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.",
    "Duration of a sync, from reading the scale to writing the status.",
);
pub(super) const COMPUTATIONS: Declaration = counter(
    "horizontal_pod_autoscaler_controller_metric_computation_total",
    &["action", "error", "metric_type"],
    "[BETA] Number of metric computations. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type",
    "Computations of single metrics, by the direction of the proposal.",
);
pub(super) const COMPUTATION_SECONDS: Declaration = histogram(
    "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
    &["action", "error", "metric_type"],
    SYNC,
    "[BETA] The time(seconds) that the HPA controller takes to calculate one metric. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. The label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type",
    "Duration of one metric computation, mostly the request to its metrics API.",
);
pub(super) const HPAS: Declaration = gauge(
    "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
    &[],
    "[ALPHA] Current number of controlled HPA objects.",
    "Watched HPAs.",
);
pub(super) const DESIRED: Declaration = gauge(
    "horizontal_pod_autoscaler_controller_desired_replicas",
    &["hpa_name", "namespace"],
    "[ALPHA] Current desired replica count for HPA objects.",
    "Desired replicas of each HPA at its last decision. Leader only; the series is removed with its HPA.",
);
pub(super) const STALE_SKIPS: Declaration = counter(
    "horizontal_pod_autoscaler_controller_stale_sync_skips_total",
    &["group", "resource"],
    "[ALPHA] Total number of HPA syncs skipped due to a stale watch cache.",
    "Syncs skipped because the watch had not yet delivered our own last status write.",
);
pub(super) const LATENESS: Declaration = histogram(
    "concertina_sync_lateness_seconds",
    &[],
    LATENESS_BOUNDS,
    "Delay between the due time of a sync and its start, in seconds.",
    "Delay between the due time of a sync and its start, including the wait for a worker. Time as a standby does not count.",
);
pub(super) const METRICS_AGE: Declaration = histogram(
    "concertina_metrics_age_seconds",
    &["api"],
    AGE_BOUNDS,
    "Age of the oldest sample of an answer that a decision used, in seconds, by metrics API.",
    "Age of the oldest sample of each answer of a metrics API, at the time of the decision that used it.",
);
pub(super) const SYNC_FAILURES: Declaration = counter(
    "concertina_sync_failures_total",
    &["reason"],
    "Failures of syncs, by the reason in conditions and events.",
    "Failures of syncs, by the reason in condition and event. Each failed metric of a sync counts separately.",
);

// The work queue

pub(super) const QUEUE_DEPTH: Declaration = gauge(
    "workqueue_depth",
    &["name"],
    "[BETA] Current depth of workqueue",
    "HPAs that are due and wait for a worker.",
);
pub(super) const QUEUE_ADDS: Declaration = counter(
    "workqueue_adds_total",
    &["name"],
    "[BETA] Total number of adds handled by workqueue",
    "How often an HPA became due.",
);
pub(super) const QUEUE_RETRIES: Declaration = counter(
    "workqueue_retries_total",
    &["name"],
    "[BETA] Total number of retries handled by workqueue",
    "How often the next due time of an HPA was scheduled: once per sync.",
);
pub(super) const QUEUE_SECONDS: Declaration = histogram(
    "workqueue_queue_duration_seconds",
    &["name"],
    QUEUE,
    "[BETA] How long in seconds an item stays in workqueue before being requested.",
    "Time that a due HPA waited for a worker.",
);
pub(super) const WORK_SECONDS: Declaration = histogram(
    "workqueue_work_duration_seconds",
    &["name"],
    QUEUE,
    "[BETA] How long in seconds processing an item from workqueue takes.",
    "Duration of the work on an HPA, including the wait for its metrics.",
);
pub(super) const UNFINISHED_SECONDS: Declaration = gauge(
    "workqueue_unfinished_work_seconds",
    &["name"],
    "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
    "Total time that the syncs in flight have been running.",
);
pub(super) const LONGEST_RUNNING_SECONDS: Declaration = gauge(
    "workqueue_longest_running_processor_seconds",
    &["name"],
    "[BETA] How many seconds has the longest running processor for workqueue been running.",
    "Time that the oldest sync in flight has been running.",
);

// Requests

pub(super) const REST_REQUESTS: Declaration = counter(
    "rest_client_requests_total",
    &["code", "host", "method"],
    "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
    "Requests sent, including retries; `<error>` for requests without an answer.",
);
pub(super) const REST_SECONDS: Declaration = histogram(
    "rest_client_request_duration_seconds",
    &["host", "verb"],
    REQUEST,
    "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
    "Duration of a request with its retries and the wait for the rate limit (`--kube-api-qps`). Without watches.",
);
pub(super) const REQUESTS: Declaration = counter(
    "concertina_requests_total",
    &["code", "resource", "verb"],
    "Number of HTTP requests, by status code and by the resource and verb that a role must allow.",
    "The same requests by the permission that they need. Names of metrics appear as `*`.",
);
pub(super) const METRICS_API_DOWN: Declaration = gauge(
    "concertina_metrics_api_down",
    &["api"],
    "1 while a metrics API fails as a whole and gets only one query per second, 0 otherwise.",
    "1 while a metrics API fails as a whole: it then gets only one query per second.",
);
pub(super) const SPARED_QUERIES: Declaration = counter(
    "concertina_spared_metric_queries_total",
    &["api"],
    "Queries answered with their last error because their metrics API is down.",
    "Queries answered with their last error instead of a request, because their metrics API is down.",
);
pub(super) const CLOCK_SKEW: Declaration = gauge(
    "concertina_clock_skew_seconds",
    &[],
    "Minimum skew of the API server's clock against the clock of this process, in seconds.",
    "Minimum skew of the API server's clock against ours (positive: ahead), from the `Date` of its last answer, which has whole seconds. It never exceeds the real skew, and falls short of it by at most 1 s plus the duration of the answer; 0 below 1 s.",
);

// Caches and watches

pub(super) const CACHE_OBJECTS: Declaration = gauge(
    "concertina_cache_objects",
    &["resource"],
    "Number of objects held in memory, by resource.",
    "Objects held in memory.",
);
pub(super) const WATCH_RESTARTS: Declaration = counter(
    "concertina_watch_restarts_total",
    &["reason", "resource"],
    "Restarts of watches and lists, by the reason why the previous one ended.",
    "Restarts of watches and lists. `ended` is normal, every five to ten minutes.",
);
pub(super) const WATCH_AGE: Declaration = gauge(
    "concertina_watch_age_seconds",
    &["resource"],
    "Time since the last event, bookmark or complete list of a watch, in seconds.",
    "Time since the last event, bookmark or complete list of a watch; since its start if none has arrived yet. The server sends a bookmark about once a minute.",
);
pub(super) const EVENTS_DROPPED: Declaration = counter(
    "concertina_events_dropped_total",
    &["reason"],
    "Events that were not sent, by reason.",
    "Kubernetes events that were dropped.",
);

// Leader election, take-over, dry run

pub(super) const LEADER: Declaration = gauge(
    "leader_election_master_status",
    &["name"],
    "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
    "1 on the replica that holds the Lease, 0 on the others. Not exposed without leader election.",
);
pub(super) const TAKEOVER: Declaration = gauge(
    "concertina_takeover_state",
    &["state"],
    "Reaction of this process to another controller of the same HPAs: 1 for the current state (observing, acting, holding), 0 for the others.",
    "Reaction of the leader to another controller of the same HPAs: 1 for the current state, 0 for the others.",
);
pub(super) const FOREIGN_WRITES: Declaration = counter(
    "concertina_foreign_writes_total",
    &[],
    "Writes of another controller to the status of an HPA or to the scale of a target.",
    "Writes of another controller to the status of an HPA or to the scale of a target.",
);
pub(super) const SHADOW: Declaration = counter(
    "concertina_shadow_decisions_total",
    &["result"],
    "Changes made by another controller, compared with this process' decision for the same period, by result.",
    "Changes made by another controller, compared with our decision for the same period.",
);
pub(super) const HISTORY_PULLS: Declaration = counter(
    "concertina_history_pulls_total",
    &["result"],
    "Requests of a standby for the histories of the leader, by result.",
    "Requests of this standby for the histories of the leader, by result.",
);
pub(super) const HISTORY_AGE: Declaration = gauge(
    "concertina_history_age_seconds",
    &["name"],
    "Time since a standby's copy of the leader's histories was complete, in seconds. 'name' is the name of the lease.",
    "Time since this standby's copy of the leader's histories was complete. Standby only.",
);

// Histories

pub(super) const RESTORED: Declaration = gauge(
    "concertina_history_restored_hpas",
    &["source"],
    "HPAs with a history that this leader restored before its first sync, by source.",
    "HPAs with a history that the leader restored before its first sync, by source: `checkpoint` (exact), `crash` (a checkpoint that may lack the last seconds), `status` (status and events).",
);
pub(super) const CHECKPOINT_WRITES: Declaration = counter(
    "concertina_checkpoint_writes_total",
    &["result"],
    "Writes of the checkpoint's ConfigMaps, by result.",
    "Writes of the checkpoint's ConfigMaps: `written`, `conflict` (retried at once), `failed`.",
);
pub(super) const CHECKPOINT_BYTES: Declaration = gauge(
    "concertina_checkpoint_bytes",
    &[],
    "Size of the last written checkpoint, in bytes.",
    "Size of the last written checkpoint.",
);
pub(super) const CHECKPOINT_LEFT_OUT: Declaration = gauge(
    "concertina_checkpoint_left_out_hpas",
    &[],
    "HPAs with a history that did not fit into the checkpoint.",
    "HPAs with a history that did not fit into the checkpoint; a restart of all replicas rebuilds it from status and events.",
);

// The process

pub(super) const BUILD: Declaration = gauge(
    "concertina_build_info",
    &["platform", "version"],
    "A metric with a constant '1' value labeled by the version of Concertina and the platform on which it is running.",
    "Always 1. The labels show the running version.",
);
pub(super) const PROCESS_CPU: Declaration = counter(
    "process_cpu_seconds_total",
    &[],
    "Total user and system CPU time spent in seconds.",
    "CPU time used.",
);
pub(super) const PROCESS_MAX_FDS: Declaration = gauge(
    "process_max_fds",
    &[],
    "Maximum number of open file descriptors.",
    "Maximum number of open file descriptors.",
);
pub(super) const PROCESS_OPEN_FDS: Declaration =
    gauge("process_open_fds", &[], "Number of open file descriptors.", "Open file descriptors.");
pub(super) const PROCESS_RESIDENT: Declaration =
    gauge("process_resident_memory_bytes", &[], "Resident memory size in bytes.", "Resident memory.");
pub(super) const PROCESS_START: Declaration = gauge(
    "process_start_time_seconds",
    &[],
    "Start time of the process since unix epoch in seconds.",
    "Start time of the process.",
);
pub(super) const PROCESS_VIRTUAL: Declaration = gauge(
    "process_virtual_memory_bytes",
    &[],
    "Virtual memory size in bytes.",
    "Reserved address space, a poor measure of memory use.",
);
pub(super) const PROCESS_VIRTUAL_MAX: Declaration = gauge(
    "process_virtual_memory_max_bytes",
    &[],
    "Maximum amount of virtual memory available in bytes.",
    "Maximum address space.",
);

/// All metrics, in the order of the documentation.
pub const GROUPS: &[Group] = &[
    Group {
        title: "The autoscaler",
        metrics: &[
            &RECONCILIATIONS,
            &RECONCILIATION_SECONDS,
            &COMPUTATIONS,
            &COMPUTATION_SECONDS,
            &HPAS,
            &DESIRED,
            &STALE_SKIPS,
            &LATENESS,
            &METRICS_AGE,
            &SYNC_FAILURES,
        ],
    },
    Group {
        title: "The work queue",
        metrics: &[
            &QUEUE_DEPTH,
            &QUEUE_ADDS,
            &QUEUE_RETRIES,
            &QUEUE_SECONDS,
            &WORK_SECONDS,
            &UNFINISHED_SECONDS,
            &LONGEST_RUNNING_SECONDS,
        ],
    },
    Group {
        title: "Requests",
        metrics: &[&REST_REQUESTS, &REST_SECONDS, &REQUESTS, &METRICS_API_DOWN, &SPARED_QUERIES, &CLOCK_SKEW],
    },
    Group {
        title: "Caches and watches",
        metrics: &[&CACHE_OBJECTS, &WATCH_RESTARTS, &WATCH_AGE, &EVENTS_DROPPED],
    },
    Group {
        title: "Leading, taking over, shadowing",
        metrics: &[&LEADER, &TAKEOVER, &FOREIGN_WRITES, &SHADOW, &HISTORY_PULLS, &HISTORY_AGE],
    },
    Group {
        title: "What is remembered",
        metrics: &[&RESTORED, &CHECKPOINT_WRITES, &CHECKPOINT_BYTES, &CHECKPOINT_LEFT_OUT],
    },
    Group {
        title: "The process",
        metrics: &[
            &BUILD,
            &PROCESS_CPU,
            &PROCESS_MAX_FDS,
            &PROCESS_OPEN_FDS,
            &PROCESS_RESIDENT,
            &PROCESS_START,
            &PROCESS_VIRTUAL,
            &PROCESS_VIRTUAL_MAX,
        ],
    },
];

/// All metrics, without their groups.
pub fn all() -> impl Iterator<Item = &'static Declaration> {
    GROUPS.iter().flat_map(|group| group.metrics).copied()
}
