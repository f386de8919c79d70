//! Every metric of the process: name, type, labels, buckets, help, and what `docs/metrics.md` says of it. A test holds
//! the two together.
//!
//! Names, labels, buckets and help are kube-controller-manager's (v1.37.1), the stability level in front of the help
//! too, so that dashboards and alerts go on as they are. What upstream has not is named `concertina_`.

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises; its name ends in `_total`.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Observations, counted in buckets.
    Histogram,
}

impl Kind {
    /// As both exposition formats write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Debug)]
pub struct Declaration {
    /// The whole name, with `_total` if it is a counter.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The names of its labels, sorted, without `le`.
    pub labels: &'static [&'static str],
    /// The upper bounds of the buckets, if it is a histogram.
    pub buckets: &'static [f64],
    /// What the exposition says of it.
    pub help: &'static str,
    /// What the documentation says of it.
    pub meaning: &'static str,
}

/// Metrics that belong together, under the heading that they have in the documentation.
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

/// From a millisecond, doubling.
const SYNC: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
/// From ten nanoseconds, times ten, with the digits that the multiplication leaves upstream.
const QUEUE: &[f64] =
    &[1e-8, 1e-7, 1e-6, 9.999_999_999_999_999e-6, 9.999_999_999_999_999e-5, 0.001, 0.01, 0.1, 1.0, 10.0];
const REQUEST: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Around an objective of one second, up to some periods of fifteen.
const LATENESS_BOUNDS: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0];
/// metrics-server measures every fifteen seconds and answers with what is up to a minute old.
const AGE_BOUNDS: &[f64] = &[1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 300.0, 600.0];

// The autoscaler

pub(super) const RECONCILIATIONS: Declaration = counter(
    "horizontal_pod_autoscaler_controller_reconciliations_total",
    &["action", "error"],
    "[BETA] Number of reconciliations of HPA controller. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.",
    "Syncs, by what they did and by the first thing that went wrong.",
);
pub(super) const RECONCILIATION_SECONDS: Declaration = histogram(
    "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
    &["action", "error"],
    SYNC,
    "[BETA] The time(seconds) that the HPA controller takes to reconcile once. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. Note that if both spec and internal errors happen during a reconciliation, the first one to occur is reported in `error` label.",
    "How long a sync took, from reading the scale to writing the status.",
);
pub(super) const COMPUTATIONS: Declaration = counter(
    "horizontal_pod_autoscaler_controller_metric_computation_total",
    &["action", "error", "metric_type"],
    "[BETA] Number of metric computations. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. Also, the label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type",
    "Metrics of HPAs that were computed, by the direction of the proposal.",
);
pub(super) const COMPUTATION_SECONDS: Declaration = histogram(
    "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
    &["action", "error", "metric_type"],
    SYNC,
    "[BETA] The time(seconds) that the HPA controller takes to calculate one metric. The label 'action' should be either 'scale_down', 'scale_up', or 'none'. The label 'error' should be either 'spec', 'internal', or 'none'. The label 'metric_type' corresponds to HPA.spec.metrics[*].type",
    "How long one metric took, mostly the answer of its metrics API.",
);
pub(super) const HPAS: Declaration = gauge(
    "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
    &[],
    "[ALPHA] Current number of controlled HPA objects.",
    "HPAs that are watched.",
);
pub(super) const DESIRED: Declaration = gauge(
    "horizontal_pod_autoscaler_controller_desired_replicas",
    &["hpa_name", "namespace"],
    "[ALPHA] Current desired replica count for HPA objects.",
    "What each HPA wanted when it was last decided. Leader only; the series goes with its HPA.",
);
pub(super) const STALE_SKIPS: Declaration = counter(
    "horizontal_pod_autoscaler_controller_stale_sync_skips_total",
    &["group", "resource"],
    "[ALPHA] Total number of HPA syncs skipped due to a stale watch cache.",
    "Syncs that were skipped because the watch had not shown our own last status write yet.",
);
pub(super) const LATENESS: Declaration = histogram(
    "concertina_sync_lateness_seconds",
    &[],
    LATENESS_BOUNDS,
    "How long after it was due a sync began, in seconds.",
    "From the moment when a sync was due to its start, waiting for a worker included. Time as a standby does not count.",
);
pub(super) const METRICS_AGE: Declaration = histogram(
    "concertina_metrics_age_seconds",
    &["api"],
    AGE_BOUNDS,
    "Age of the oldest sample of an answer that a decision used, in seconds, by metrics API.",
    "Age of the oldest sample of each answer of a metrics API, at the moment of the decision that used it.",
);
pub(super) const SYNC_FAILURES: Declaration = counter(
    "concertina_sync_failures_total",
    &["reason"],
    "Failures of syncs, by the reason that conditions and events give.",
    "What went wrong in syncs, by the reason that condition and event give, each failed metric of a sync by itself.",
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
    "How often an HPA fell due.",
);
pub(super) const QUEUE_RETRIES: Declaration = counter(
    "workqueue_retries_total",
    &["name"],
    "[BETA] Total number of retries handled by workqueue",
    "How often an HPA was given a time to come back at: once a sync, as every sync ends so.",
);
pub(super) const QUEUE_SECONDS: Declaration = histogram(
    "workqueue_queue_duration_seconds",
    &["name"],
    QUEUE,
    "[BETA] How long in seconds an item stays in workqueue before being requested.",
    "How long an HPA that is due waited.",
);
pub(super) const WORK_SECONDS: Declaration = histogram(
    "workqueue_work_duration_seconds",
    &["name"],
    QUEUE,
    "[BETA] How long in seconds processing an item from workqueue takes.",
    "How long the work on an HPA took, the wait for its metrics included.",
);
pub(super) const UNFINISHED_SECONDS: Declaration = gauge(
    "workqueue_unfinished_work_seconds",
    &["name"],
    "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
    "How long the syncs under way have been going on, in sum.",
);
pub(super) const LONGEST_RUNNING_SECONDS: Declaration = gauge(
    "workqueue_longest_running_processor_seconds",
    &["name"],
    "[BETA] How many seconds has the longest running processor for workqueue been running.",
    "How long the oldest sync under way has been going on.",
);

// Requests

pub(super) const REST_REQUESTS: Declaration = counter(
    "rest_client_requests_total",
    &["code", "host", "method"],
    "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
    "Requests that were sent, repetitions included; `<error>` where no answer came.",
);
pub(super) const REST_SECONDS: Declaration = histogram(
    "rest_client_request_duration_seconds",
    &["host", "verb"],
    REQUEST,
    "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
    "How long a request took with its repetitions and the wait for its turn (`--kube-api-qps`). Without watches.",
);
pub(super) const REQUESTS: Declaration = counter(
    "concertina_requests_total",
    &["code", "resource", "verb"],
    "Number of HTTP requests, by status code and by the resource and verb that a role must allow.",
    "The same requests by what a role must allow. Names of metrics show as `*`.",
);
pub(super) const METRICS_API_DOWN: Declaration = gauge(
    "concertina_metrics_api_down",
    &["api"],
    "1 while a metrics API fails as a whole and is asked about once a second only, 0 otherwise.",
    "1 while a metrics API fails as a whole: it is then asked about once a second.",
);
pub(super) const SPARED_QUERIES: Declaration = counter(
    "concertina_spared_metric_queries_total",
    &["api"],
    "Queries that were answered with their last error because their metrics API is down.",
    "Queries that were answered with their last error instead of being asked, because their metrics API is down.",
);
pub(super) const CLOCK_SKEW: Declaration = gauge(
    "concertina_clock_skew_seconds",
    &[],
    "How far the API server's clock is certainly ahead of this process', in seconds.",
    "How far the API server's clock is ahead of ours (negative: behind), from the `Date` of its last answer, which has whole seconds: never more than there is, short of it by a second and the answer's time at most, 0 below a second.",
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
    "Watches and lists that were begun anew, by why the one before ended.",
    "Watches and lists that ended and were begun anew. `ended` is usual, every five to ten minutes.",
);
pub(super) const WATCH_AGE: Declaration = gauge(
    "concertina_watch_age_seconds",
    &["resource"],
    "Time since the last event, bookmark or complete list of a watch, in seconds.",
    "Time since the last event, bookmark or complete list of a watch; since its start if none came yet. The server sends a bookmark about once a minute.",
);
pub(super) const EVENTS_DROPPED: Declaration = counter(
    "concertina_events_dropped_total",
    &["reason"],
    "Events that were not sent, by reason.",
    "Kubernetes events that nobody will see.",
);

// Leading, taking over, shadowing

pub(super) const LEADER: Declaration = gauge(
    "leader_election_master_status",
    &["name"],
    "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
    "1 on the replica that holds the Lease, 0 on the others. None without election.",
);
pub(super) const TAKEOVER: Declaration = gauge(
    "concertina_takeover_state",
    &["state"],
    "What this process does about another controller of the same HPAs: 1 for the state it is in (observing, acting, holding), 0 for the others.",
    "1 for the state that the leader is in towards another controller of the same HPAs, 0 for the others.",
);
pub(super) const FOREIGN_WRITES: Declaration = counter(
    "concertina_foreign_writes_total",
    &[],
    "Writes of another controller to the status of an HPA or to a scale that one controls.",
    "Writes of another controller to the status of an HPA or to a scale that one controls.",
);
pub(super) const SHADOW: Declaration = counter(
    "concertina_shadow_decisions_total",
    &["result"],
    "Changes made by another controller, compared with the own decision of that period, by result.",
    "Changes made by another controller, compared with our own decision of that period.",
);
pub(super) const HISTORY_PULLS: Declaration = counter(
    "concertina_history_pulls_total",
    &["result"],
    "Questions of a standby for the histories of the leader, by result.",
    "How often this standby asked the leader for its histories, by how that ended.",
);
pub(super) const HISTORY_AGE: Declaration = gauge(
    "concertina_history_age_seconds",
    &["name"],
    "How long ago a standby's copy of the leader's histories was as new as the leader's own. 'name' is that of the lease.",
    "How long ago this standby's copy of the leader's histories was complete. Standby only.",
);

// What is remembered

pub(super) const RESTORED: Declaration = gauge(
    "concertina_history_restored_hpas",
    &["source"],
    "HPAs whose history this leader got before its first sync, by source.",
    "HPAs of which the leader knew the past before its first sync, by where from: `checkpoint` (exactly), `crash` (a checkpoint that may lack the last seconds), `status` (status and events).",
);
pub(super) const CHECKPOINT_WRITES: Declaration = counter(
    "concertina_checkpoint_writes_total",
    &["result"],
    "Writes of ConfigMaps of the checkpoint, by result.",
    "Writes of ConfigMaps of the checkpoint: `written`, `conflict` (tried again at once), `failed`.",
);
pub(super) const CHECKPOINT_BYTES: Declaration = gauge(
    "concertina_checkpoint_bytes",
    &[],
    "Size of the checkpoint as written last, in bytes.",
    "Size of the whole checkpoint as written last.",
);
pub(super) const CHECKPOINT_LEFT_OUT: Declaration = gauge(
    "concertina_checkpoint_left_out_hpas",
    &[],
    "HPAs whose history did not fit into the checkpoint.",
    "HPAs that did not fit into the checkpoint; a restart of all replicas rebuilds their history from status and events.",
);

// The process

pub(super) const BUILD: Declaration = gauge(
    "concertina_build_info",
    &["platform", "version"],
    "A metric with a constant '1' value labeled by the version of Concertina and the platform on which it is running.",
    "Always 1: the labels tell which version runs.",
);
pub(super) const PROCESS_CPU: Declaration = counter(
    "process_cpu_seconds_total",
    &[],
    "Total user and system CPU time spent in seconds.",
    "Processor time used.",
);
pub(super) const PROCESS_MAX_FDS: Declaration = gauge(
    "process_max_fds",
    &[],
    "Maximum number of open file descriptors.",
    "File descriptors that it may open.",
);
pub(super) const PROCESS_OPEN_FDS: Declaration =
    gauge("process_open_fds", &[], "Number of open file descriptors.", "File descriptors that are open.");
pub(super) const PROCESS_RESIDENT: Declaration = gauge(
    "process_resident_memory_bytes",
    &[],
    "Resident memory size in bytes.",
    "Memory in use, as the system counts it.",
);
pub(super) const PROCESS_START: Declaration = gauge(
    "process_start_time_seconds",
    &[],
    "Start time of the process since unix epoch in seconds.",
    "When it started.",
);
pub(super) const PROCESS_VIRTUAL: Declaration = gauge(
    "process_virtual_memory_bytes",
    &[],
    "Virtual memory size in bytes.",
    "Addresses reserved; says little.",
);
pub(super) const PROCESS_VIRTUAL_MAX: Declaration = gauge(
    "process_virtual_memory_max_bytes",
    &[],
    "Maximum amount of virtual memory available in bytes.",
    "Addresses that it may reserve.",
);

/// All metrics there are.
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

/// All metrics there are, without their groups.
pub fn all() -> impl Iterator<Item = &'static Declaration> {
    GROUPS.iter().flat_map(|group| group.metrics).copied()
}
