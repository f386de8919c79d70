//! The flags that kube-controller-manager does not have.

use super::flags::{Flag, Group, Purpose};
use super::values::Kind;

/// In the order of their headings.
pub static FLAGS: &[Flag] = &[
    own(
        "dry-run",
        Kind::Bool,
        "false",
        Group::Autoscaling,
        "Decide and log everything, write nothing to the cluster.",
    ),
    own(
        "takeover",
        Kind::String,
        "wait",
        Group::Autoscaling,
        "What to do about another controller that acts on the same HPAs: wait, warn or off.",
    ),
    own(
        "watch-namespaces",
        Kind::Strings,
        "",
        Group::Cluster,
        "The namespaces to act in, with commas between; without it all of them.",
    ),
    own(
        "scale-targets",
        Kind::Strings,
        "[*]",
        Group::Cluster,
        "What the role allows to scale, such as deployments.apps,statefulsets.apps; * is everything.",
    ),
    own(
        "scale-source",
        Kind::String,
        "auto",
        Group::Cluster,
        "Where replica counts of targets are read between changes: watch, get, or auto, which is watch as far as that is allowed.",
    ),
    own(
        "status-qps",
        Kind::Float32,
        "0",
        Group::Cluster,
        "Statuses written per second; 0: two for each HPA and sync period, at most 500, but never less than --kube-api-qps.",
    ),
    own(
        "field-manager",
        Kind::String,
        "kube-controller-manager",
        Group::Cluster,
        "The field manager of replica counts; the default keeps their owner.",
    ),
    own(
        "metrics-timeout",
        Kind::Duration,
        "30s",
        Group::Metrics,
        "How long a request to a metrics API may take.",
    ),
    own(
        "max-metrics-response",
        Kind::Quantity,
        "64Mi",
        Group::Metrics,
        "How many bytes an answer of a metrics API may have.",
    ),
    own(
        "max-concurrent-metric-requests",
        Kind::Int,
        "512",
        Group::Metrics,
        "How many requests to metrics APIs may wait for their answers at once.",
    ),
    own(
        "max-concurrent-metric-requests-per-api",
        Kind::Int,
        "256",
        Group::Metrics,
        "How many of them may go to one API; never as many as half of all, so that two that hang leave places to the third.",
    ),
    own(
        "share-metrics",
        Kind::Bool,
        "true",
        Group::Metrics,
        "Let HPAs share answers of the metrics APIs: one list for those of a namespace where that is cheaper, one answer for equal queries. A dry run shares nothing.",
    ),
    own(
        "metric-snapshot-age",
        Kind::Duration,
        "5s",
        Group::Metrics,
        "How long before a sync asks for metrics the answer that it shares may have been asked for, at most half a sync period; 0 shares only among those who ask at the same time.",
    ),
    own(
        "health-address",
        Kind::String,
        "",
        Group::Serving,
        "A loopback address and port where health, metrics and decisions are served without TLS, to whoever asks.",
    ),
    own(
        "advertise-address",
        Kind::String,
        "",
        Group::Serving,
        "The IP address at which other replicas reach this one to copy its histories; without it, --bind-address, or the one that faces the API server.",
    ),
    own(
        "decisions-per-hpa",
        Kind::Int,
        "40",
        Group::Operation,
        "How many of its last decisions are recorded for each HPA and served at /decisions; 0 records none.",
    ),
    own(
        "history-checkpoint",
        Kind::Bool,
        "false",
        Group::Operation,
        "Keep what is remembered of HPAs in ConfigMaps beside the Lease, so that a restart of all replicas loses nothing.",
    ),
    own(
        "version",
        Kind::Version,
        "false",
        Group::Operation,
        "Print the version; --version=raw prints more of it.",
    ),
];

const fn own(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    group: Group,
    usage: &'static str,
) -> Flag {
    Flag { name, shorthand: None, kind, default, purpose: Purpose::Here { group, usage } }
}
