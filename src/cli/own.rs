//! Flags that Concertina adds to kube-controller-manager's flags.

use super::flags::{Flag, Group, Purpose};
use super::values::Kind;

/// Concertina's additional flags, in the order of their headings.
pub static FLAGS: &[Flag] = &[
    own(
        "dry-run",
        Kind::Bool,
        "false",
        Group::Autoscaling,
        "Decide and log everything, but write nothing to the cluster.",
    ),
    own(
        "takeover",
        Kind::String,
        "wait",
        Group::Autoscaling,
        "Reaction to another controller that acts on the same HPAs: wait, warn or off.",
    ),
    own(
        "watch-namespaces",
        Kind::Strings,
        "",
        Group::Cluster,
        "Comma-separated namespaces to act in; if unset, all.",
    ),
    own(
        "scale-targets",
        Kind::Strings,
        "[*]",
        Group::Cluster,
        "Resources that the role allows to scale, such as deployments.apps,statefulsets.apps; * allows all.",
    ),
    own(
        "scale-source",
        Kind::String,
        "auto",
        Group::Cluster,
        "Source of target replica counts between changes: watch, get, or auto (watch where permitted, otherwise get).",
    ),
    own(
        "status-qps",
        Kind::Float32,
        "0",
        Group::Cluster,
        "Status writes per second; 0 allows two per HPA and sync period, at most 500 and at least --kube-api-qps.",
    ),
    own(
        "field-manager",
        Kind::String,
        "kube-controller-manager",
        Group::Cluster,
        "Field manager of spec.replicas writes; the default keeps the existing owner.",
    ),
    own("metrics-timeout", Kind::Duration, "30s", Group::Metrics, "Timeout of a request to a metrics API."),
    own(
        "max-metrics-response",
        Kind::Quantity,
        "64Mi",
        Group::Metrics,
        "Maximum size of a metrics API response, in bytes.",
    ),
    own(
        "max-concurrent-metric-requests",
        Kind::Int,
        "512",
        Group::Metrics,
        "Maximum concurrent requests to all metrics APIs.",
    ),
    own(
        "max-concurrent-metric-requests-per-api",
        Kind::Int,
        "256",
        Group::Metrics,
        "Maximum concurrent requests per metrics API; kept below half the total so that two hung APIs cannot starve the third.",
    ),
    own(
        "share-metrics",
        Kind::Bool,
        "true",
        Group::Metrics,
        "Share metrics API responses between HPAs: one list per namespace where that is cheaper, one response for equal queries; always off in a dry run.",
    ),
    own(
        "metric-snapshot-age",
        Kind::Duration,
        "5s",
        Group::Metrics,
        "Maximum age of a metrics response reused across HPAs (at most half the sync period); 0 shares only concurrent requests.",
    ),
    own(
        "health-address",
        Kind::String,
        "",
        Group::Serving,
        "Loopback address and port that serves health, metrics and decisions without TLS or authentication; if empty, off.",
    ),
    own(
        "advertise-address",
        Kind::String,
        "",
        Group::Serving,
        "IP address at which other replicas fetch this replica's histories; if empty, --bind-address, or the local address that reaches the API server.",
    ),
    own(
        "decisions-per-hpa",
        Kind::Int,
        "40",
        Group::Operation,
        "Maximum number of recent decisions recorded per HPA and served at /decisions; 0 disables the record.",
    ),
    own(
        "history-checkpoint",
        Kind::Bool,
        "false",
        Group::Operation,
        "Store HPA histories in ConfigMaps next to the Lease, so that they survive a restart of all replicas.",
    ),
    own(
        "version",
        Kind::Version,
        "false",
        Group::Operation,
        "Print the version; --version=raw prints it in full.",
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
