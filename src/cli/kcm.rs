//! Every flag of kube-controller-manager v1.36.3 and v1.37.1, so that a copied command line starts.
//!
//! A flag that only one of the two versions has is accepted under both emulated versions.

use super::flags::{Flag, Group, Purpose};
use super::values::Kind;

const OTHER: &str = "meant for other controllers of kube-controller-manager";
const HTTP2: &str = "HTTP/1.1 is served, HTTP/2 is not";
const ADDRESS: &str = "a port in TIME_WAIT is always reused";
const PROFILING: &str = "there is no profiling endpoint";
const MIGRATION: &str = "there is one controller, nothing migrates";
const CONTROLLERS: &str = "the HPA controller is the only one and always runs";
const MANAGER: &str = "there is one controller, which starts at once and stops when its writes are done";
const RESYNC: &str = "every HPA is synced once per --horizontal-pod-autoscaler-sync-period anyway";
const CONTENT_TYPE: &str = "requests are made in JSON";
const COMPATIBILITY: &str = "only --emulated-version selects a behavior";
const LOGS: &str = "logs are written to standard error at once";
const MODULES: &str = "its patterns name files of kube-controller-manager";
const METRICS: &str = "all metrics are exposed, with all labels";
const REMOVED: &str =
    "Kubernetes removed it, --horizontal-pod-autoscaler-downscale-stabilization replaces it";
const REST_CLIENTS: &str = "Kubernetes removed it, metrics always come from the metrics APIs";
const CPU_TAINT: &str = "Kubernetes renamed it to --horizontal-pod-autoscaler-cpu-initialization-period";

/// The flags of kube-controller-manager, in the order of its sections.
pub static FLAGS: &[Flag] = &[
    // Authentication
    here(
        "authentication-kubeconfig",
        Kind::String,
        "",
        Group::Serving,
        "Kubeconfig for reviewing bearer tokens; if empty, the controller's.",
    ),
    here(
        "authentication-skip-lookup",
        Kind::Bool,
        "false",
        Group::Serving,
        "Do not read the cluster's client certificate authorities from the ConfigMap kube-system/extension-apiserver-authentication.",
    ),
    here(
        "authentication-token-webhook-cache-ttl",
        Kind::Duration,
        "10s",
        Group::Serving,
        "Lifetime of a cached bearer token review.",
    ),
    here(
        "authentication-tolerate-lookup-failure",
        Kind::Bool,
        "false",
        Group::Serving,
        "Do not warn if that ConfigMap cannot be read.",
    ),
    here(
        "client-ca-file",
        Kind::String,
        "",
        Group::Serving,
        "Certificate authority for client certificates; if empty, the cluster's.",
    ),
    here(
        "requestheader-allowed-names",
        Kind::Strings,
        "",
        Group::Serving,
        "Common names of trusted front proxies; if empty, every proxy with a certificate of their authority.",
    ),
    here(
        "requestheader-client-ca-file",
        Kind::String,
        "",
        Group::Serving,
        "Certificate authority for front proxies; if empty, the cluster's authority and headers.",
    ),
    here(
        "requestheader-extra-headers-prefix",
        Kind::Strings,
        "[x-remote-extra-]",
        Group::Serving,
        "Prefixes of the headers in which a front proxy sends extra user attributes.",
    ),
    here(
        "requestheader-group-headers",
        Kind::Strings,
        "[x-remote-group]",
        Group::Serving,
        "Headers in which a front proxy sends the user's groups.",
    ),
    here(
        "requestheader-uid-headers",
        Kind::Strings,
        "",
        Group::Serving,
        "Headers in which a front proxy sends the user's UID.",
    ),
    here(
        "requestheader-username-headers",
        Kind::Strings,
        "[x-remote-user]",
        Group::Serving,
        "Headers in which a front proxy sends the user name.",
    ),
    // Authorization
    here(
        "authorization-always-allow-paths",
        Kind::Strings,
        "[/healthz,/readyz,/livez]",
        Group::Serving,
        "Paths served without authentication and authorization; a trailing * matches any suffix.",
    ),
    here(
        "authorization-kubeconfig",
        Kind::String,
        "",
        Group::Serving,
        "Kubeconfig for reviewing the access of clients; if empty, the controller's.",
    ),
    here(
        "authorization-webhook-cache-authorized-ttl",
        Kind::Duration,
        "10s",
        Group::Serving,
        "Lifetime of a cached review that allows access.",
    ),
    here(
        "authorization-webhook-cache-unauthorized-ttl",
        Kind::Duration,
        "10s",
        Group::Serving,
        "Lifetime of a cached review that denies access.",
    ),
    // Certificatesigningrequest-signing-controller
    ignored("cluster-signing-cert-file", Kind::String, "", OTHER),
    ignored("cluster-signing-duration", Kind::Duration, "8760h0m0s", OTHER),
    ignored("cluster-signing-key-file", Kind::String, "", OTHER),
    ignored("cluster-signing-kube-apiserver-client-cert-file", Kind::String, "", OTHER),
    ignored("cluster-signing-kube-apiserver-client-key-file", Kind::String, "", OTHER),
    ignored("cluster-signing-kubelet-client-cert-file", Kind::String, "", OTHER),
    ignored("cluster-signing-kubelet-client-key-file", Kind::String, "", OTHER),
    ignored("cluster-signing-kubelet-serving-cert-file", Kind::String, "", OTHER),
    ignored("cluster-signing-kubelet-serving-key-file", Kind::String, "", OTHER),
    ignored("cluster-signing-legacy-unknown-cert-file", Kind::String, "", OTHER),
    ignored("cluster-signing-legacy-unknown-key-file", Kind::String, "", OTHER),
    // Cronjob-controller
    ignored("concurrent-cron-job-syncs", Kind::Int32, "5", OTHER),
    // Daemonset-controller
    ignored("concurrent-daemonset-syncs", Kind::Int32, "2", OTHER),
    // Debugging
    ignored("contention-profiling", Kind::Bool, "false", PROFILING),
    ignored("profiling", Kind::Bool, "true", PROFILING),
    // Deployment-controller
    ignored("concurrent-deployment-syncs", Kind::Int32, "5", OTHER),
    // Device-taint-eviction-controller
    ignored("concurrent-device-taint-eviction-syncs", Kind::Int32, "8", OTHER),
    // Disruption-controller
    ignored("concurrent-disruption-syncs", Kind::Int32, "1", OTHER), // only in 1.37
    // Endpoints-controller
    ignored("concurrent-endpoint-syncs", Kind::Int32, "5", OTHER),
    ignored("endpoint-updates-batch-period", Kind::Duration, "", OTHER),
    // Endpointslice-controller
    ignored("concurrent-service-endpoint-syncs", Kind::Int32, "5", OTHER),
    ignored("endpointslice-updates-batch-period", Kind::Duration, "", OTHER),
    ignored("max-endpoints-per-slice", Kind::Int32, "100", OTHER),
    // Endpointslice-mirroring-controller
    ignored("mirroring-concurrent-service-endpoint-syncs", Kind::Int32, "5", OTHER),
    ignored("mirroring-endpointslice-updates-batch-period", Kind::Duration, "", OTHER),
    ignored("mirroring-max-endpoints-per-subset", Kind::Int32, "1000", OTHER),
    // Ephemeral-volume-controller
    ignored("concurrent-ephemeralvolume-syncs", Kind::Int32, "5", OTHER),
    // Garbage-collector-controller
    ignored("concurrent-gc-syncs", Kind::Int32, "20", OTHER),
    ignored("enable-garbage-collector", Kind::Bool, "true", OTHER),
    // Generic
    ignored("allocate-node-cidrs", Kind::Bool, "false", OTHER),
    ignored("cidr-allocator-type", Kind::String, "RangeAllocator", OTHER),
    ignored("cloud-config", Kind::String, "", OTHER),
    ignored("cloud-provider", Kind::String, "", OTHER),
    ignored("cluster-cidr", Kind::String, "", OTHER),
    ignored("cluster-name", Kind::String, "kubernetes", OTHER),
    ignored("configure-cloud-routes", Kind::Bool, "true", OTHER),
    ignored("controller-shutdown-timeout", Kind::Duration, "10s", MANAGER),
    ignored("controller-start-interval", Kind::Duration, "", MANAGER),
    ignored("controllers", Kind::Strings, "[*]", CONTROLLERS),
    here(
        "emulated-version",
        Kind::Strings,
        "",
        Group::Autoscaling,
        "Kubernetes minor version to emulate: 1.36 or 1.37 (default 1.37).",
    ),
    ignored("external-cloud-volume-plugin", Kind::String, "", OTHER),
    here(
        "feature-gates",
        Kind::FeatureGates,
        "",
        Group::Autoscaling,
        "Feature gates to set: HPAScaleToZero, HPAGeneration, StaleControllerConsistencyHPA.",
    ),
    here(
        "kube-api-burst",
        Kind::Int32,
        "30",
        Group::Cluster,
        "Requests allowed in a burst above --kube-api-qps.",
    ),
    ignored("kube-api-content-type", Kind::String, "application/vnd.kubernetes.protobuf", CONTENT_TYPE),
    here(
        "kube-api-qps",
        Kind::Float32,
        "20",
        Group::Cluster,
        "Requests per second to the API server, per client; unlimited if negative.",
    ),
    here(
        "leader-elect",
        Kind::Bool,
        "true",
        Group::Election,
        "Elect one replica as leader; the other replicas are standbys.",
    ),
    here(
        "leader-elect-lease-duration",
        Kind::Duration,
        "15s",
        Group::Election,
        "Time that a standby waits after the last observed renewal before it acquires the Lease.",
    ),
    here(
        "leader-elect-renew-deadline",
        Kind::Duration,
        "10s",
        Group::Election,
        "Time after which a leader that cannot renew the Lease stops.",
    ),
    here(
        "leader-elect-resource-lock",
        Kind::String,
        "leases",
        Group::Election,
        "Kind of the lock object; only leases is supported.",
    ),
    here(
        "leader-elect-resource-name",
        Kind::String,
        "kube-controller-manager",
        Group::Election,
        "Name of the Lease; concertina is used in place of kube-controller-manager.",
    ),
    here(
        "leader-elect-resource-namespace",
        Kind::String,
        "kube-system",
        Group::Election,
        "Namespace of the Lease.",
    ),
    here(
        "leader-elect-retry-period",
        Kind::Duration,
        "2s",
        Group::Election,
        "Interval between attempts to acquire or renew the Lease.",
    ),
    ignored("min-compatibility-version", Kind::Strings, "", COMPATIBILITY),
    ignored("min-resync-period", Kind::Duration, "12h0m0s", RESYNC),
    ignored("route-reconciliation-period", Kind::Duration, "10s", OTHER),
    here(
        "use-service-account-credentials",
        Kind::Bool,
        "false",
        Group::Cluster,
        "Act as the ServiceAccount kube-system/horizontal-pod-autoscaler, with tokens requested by the configured credentials.",
    ),
    // Global
    lettered('h', here("help", Kind::Bool, "false", Group::Operation, "Print this help text.")),
    // Horizontal-pod-autoscaler-controller
    here(
        "concurrent-horizontal-pod-autoscaler-syncs",
        Kind::Int32,
        "5",
        Group::Autoscaling,
        "Maximum number of syncs that decide or scale at the same time; syncs that wait for metrics or for a status \
         write do not count.",
    ),
    here(
        "horizontal-pod-autoscaler-cpu-initialization-period",
        Kind::Duration,
        "5m0s",
        Group::Autoscaling,
        "Period after pod start during which CPU samples of unready pods are ignored.",
    ),
    here(
        "horizontal-pod-autoscaler-downscale-stabilization",
        Kind::Duration,
        "5m0s",
        Group::Autoscaling,
        "Scale-down stabilization window of HPAs that set none.",
    ),
    here(
        "horizontal-pod-autoscaler-initial-readiness-delay",
        Kind::Duration,
        "30s",
        Group::Autoscaling,
        "Period after pod start during which readiness changes count as initial readiness.",
    ),
    here(
        "horizontal-pod-autoscaler-sync-period",
        Kind::Duration,
        "15s",
        Group::Autoscaling,
        "Period between two syncs of an HPA.",
    ),
    here(
        "horizontal-pod-autoscaler-tolerance",
        Kind::Float64,
        "0.1",
        Group::Autoscaling,
        "Deviation of the usage-to-target ratio from 1.0 that does not change the replica count.",
    ),
    // Job-controller
    ignored("concurrent-job-syncs", Kind::Int32, "5", OTHER),
    // Leader-migration
    ignored("enable-leader-migration", Kind::Bool, "false", MIGRATION),
    ignored("leader-migration-config", Kind::String, "", MIGRATION),
    // Legacy-serviceaccount-token-cleaner-controller
    ignored("legacy-service-account-token-clean-up-period", Kind::Duration, "8760h0m0s", OTHER),
    // Logs
    ignored("log-flush-frequency", Kind::Duration, "5s", LOGS),
    ignored("log-json-info-buffer-size", Kind::Quantity, "", LOGS),
    ignored("log-json-split-stream", Kind::Bool, "false", LOGS),
    ignored("log-text-info-buffer-size", Kind::Quantity, "", LOGS),
    ignored("log-text-split-stream", Kind::Bool, "false", LOGS),
    here("logging-format", Kind::String, "text", Group::Operation, "Log format: text or json."),
    lettered(
        'v',
        here("v", Kind::Level, "", Group::Operation, "Log verbosity: 4 adds details, 6 adds traces."),
    ),
    ignored("vmodule", Kind::ModuleLevels, "", MODULES),
    // Metrics
    ignored("allow-metric-labels", Kind::StringMap, "[]", METRICS),
    ignored("allow-metric-labels-manifest", Kind::String, "", METRICS),
    ignored("disabled-metrics", Kind::Strings, "", METRICS),
    ignored("show-hidden-metrics-for-version", Kind::String, "", METRICS),
    // Misc
    here(
        "kubeconfig",
        Kind::String,
        "",
        Group::Cluster,
        "Kubeconfig file; if this and --master are empty, the in-cluster configuration is used.",
    ),
    here("master", Kind::String, "", Group::Cluster, "Address of the API server; overrides the kubeconfig."),
    // Namespace-controller
    ignored("concurrent-namespace-syncs", Kind::Int32, "10", OTHER),
    ignored("namespace-sync-period", Kind::Duration, "5m0s", OTHER),
    // Node-ipam-controller
    ignored("node-cidr-mask-size", Kind::Int32, "", OTHER),
    ignored("node-cidr-mask-size-ipv4", Kind::Int32, "", OTHER),
    ignored("node-cidr-mask-size-ipv6", Kind::Int32, "", OTHER),
    ignored("service-cluster-ip-range", Kind::String, "", OTHER),
    // Node-lifecycle-controller
    ignored("large-cluster-size-threshold", Kind::Int32, "50", OTHER),
    ignored("node-eviction-rate", Kind::Float32, "0.1", OTHER),
    ignored("node-monitor-grace-period", Kind::Duration, "50s", OTHER),
    ignored("node-monitor-period", Kind::Duration, "5s", OTHER),
    ignored("node-startup-grace-period", Kind::Duration, "1m0s", OTHER),
    ignored("secondary-node-eviction-rate", Kind::Float32, "0.01", OTHER),
    ignored("unhealthy-zone-threshold", Kind::Float32, "0.55", OTHER),
    // Persistentvolume-attach-detach-controller
    ignored("attach-detach-reconcile-sync-period", Kind::Duration, "1m0s", OTHER),
    ignored("disable-attach-detach-reconcile-sync", Kind::Bool, "false", OTHER),
    ignored("disable-force-detach-on-timeout", Kind::Bool, "false", OTHER),
    // Persistentvolume-binder-controller
    ignored("enable-dynamic-provisioning", Kind::Bool, "true", OTHER),
    ignored("enable-hostpath-provisioner", Kind::Bool, "false", OTHER),
    ignored(
        "flex-volume-plugin-dir",
        Kind::String,
        "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
        OTHER,
    ),
    ignored("pv-recycler-increment-timeout-nfs", Kind::Int32, "30", OTHER),
    ignored("pv-recycler-minimum-timeout-hostpath", Kind::Int32, "60", OTHER),
    ignored("pv-recycler-minimum-timeout-nfs", Kind::Int32, "300", OTHER),
    ignored("pv-recycler-pod-template-filepath-hostpath", Kind::String, "", OTHER),
    ignored("pv-recycler-pod-template-filepath-nfs", Kind::String, "", OTHER),
    ignored("pv-recycler-timeout-increment-hostpath", Kind::Int32, "30", OTHER),
    ignored("pvclaimbinder-sync-period", Kind::Duration, "15s", OTHER),
    // Pod-garbage-collector-controller
    ignored("terminated-pod-gc-threshold", Kind::Int32, "12500", OTHER),
    // Replicaset-controller
    ignored("concurrent-replicaset-syncs", Kind::Int32, "5", OTHER),
    // Replicationcontroller-controller
    ignored("concurrent-rc-syncs", Kind::Int32, "5", OTHER),
    // Resourceclaim-controller
    ignored("concurrent-resourceclaim-syncs", Kind::Int32, "50", OTHER),
    // Resourcequota-controller
    ignored("concurrent-resource-quota-syncs", Kind::Int32, "5", OTHER),
    ignored("resource-quota-sync-period", Kind::Duration, "5m0s", OTHER),
    // Secure serving
    here(
        "bind-address",
        Kind::Ip,
        "0.0.0.0",
        Group::Serving,
        "IP address to serve --secure-port on; 0.0.0.0 and :: mean all interfaces, IPv4 and IPv6.",
    ),
    here(
        "cert-dir",
        Kind::String,
        "",
        Group::Serving,
        "Directory of kube-controller-manager.crt and .key, which are used if they exist and no --tls-cert-file is set.",
    ),
    ignored("disable-http2-serving", Kind::Bool, "false", HTTP2),
    ignored("http2-max-streams-per-connection", Kind::Int, "", HTTP2),
    ignored("permit-address-sharing", Kind::Bool, "false", ADDRESS),
    here(
        "permit-port-sharing",
        Kind::Bool,
        "false",
        Group::Serving,
        "Allow other processes of the same user to listen on the same port (SO_REUSEPORT).",
    ),
    here(
        "secure-port",
        Kind::Int,
        "10257",
        Group::Serving,
        "HTTPS port for health, metrics and decisions; 0 disables it.",
    ),
    here(
        "tls-cert-file",
        Kind::String,
        "",
        Group::Serving,
        "Serving certificate with its chain, in PEM, reloaded on change; if empty, a self-signed certificate is generated.",
    ),
    here(
        "tls-cipher-suites",
        Kind::Strings,
        "",
        Group::Serving,
        "TLS 1.2 cipher suites by their Go names; suites that rustls does not support are ignored.",
    ),
    here(
        "tls-curve-preferences",
        Kind::Int32s,
        "[]",
        Group::Serving,
        "Key exchange groups by number, in order of preference; groups that rustls does not support are ignored.",
    ),
    here(
        "tls-min-version",
        Kind::String,
        "",
        Group::Serving,
        "Minimum TLS version: VersionTLS12 (default) or VersionTLS13.",
    ),
    here("tls-private-key-file", Kind::String, "", Group::Serving, "Private key of --tls-cert-file, in PEM."),
    here(
        "tls-sni-cert-key",
        Kind::NamedCertKey,
        "[]",
        Group::Serving,
        "Additional certificate and key for clients that request one of its names (SNI); repeatable.",
    ),
    // Service-lb-controller
    ignored("concurrent-service-syncs", Kind::Int32, "1", OTHER), // only in 1.36
    // Serviceaccount-controller
    ignored("concurrent-serviceaccount-token-syncs", Kind::Int32, "5", OTHER),
    ignored("root-ca-file", Kind::String, "", OTHER),
    ignored("service-account-private-key-file", Kind::String, "", OTHER),
    // Statefulset-controller
    ignored("concurrent-statefulset-syncs", Kind::Int32, "5", OTHER),
    // Ttl-after-finished-controller
    ignored("concurrent-ttl-after-finished-syncs", Kind::Int32, "5", OTHER),
    // Validatingadmissionpolicy-status-controller
    ignored("concurrent-validating-admission-policy-status-syncs", Kind::Int32, "5", OTHER),
];

/// Flags that Kubernetes has removed and that scripts may still set. Each one causes a warning, with any
/// value.
pub static REMOVED_FLAGS: &[Flag] = &[
    ignored("horizontal-pod-autoscaler-upscale-delay", Kind::Duration, "3m0s", REMOVED),
    ignored("horizontal-pod-autoscaler-downscale-delay", Kind::Duration, "5m0s", REMOVED),
    ignored("horizontal-pod-autoscaler-use-rest-clients", Kind::Bool, "true", REST_CLIENTS),
    ignored("horizontal-pod-autoscaler-cpu-taint-period", Kind::Duration, "5m0s", CPU_TAINT),
];

const fn here(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    group: Group,
    usage: &'static str,
) -> Flag {
    Flag { name, shorthand: None, kind, default, purpose: Purpose::Here { group, usage } }
}

const fn lettered(letter: char, flag: Flag) -> Flag {
    Flag { shorthand: Some(letter), ..flag }
}

const fn ignored(name: &'static str, kind: Kind, default: &'static str, reason: &'static str) -> Flag {
    Flag { name, shorthand: None, kind, default, purpose: Purpose::Ignored { reason } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flags::Raw;
    use crate::cli::flags::Table;

    #[test]
    fn every_flag_has_a_default_of_its_type() {
        for flag in FLAGS.iter().chain(REMOVED_FLAGS) {
            assert!(flag.kind.parse_default(flag.default).is_some(), "{}", flag.name);
        }
    }

    #[test]
    fn every_flag_accepts_its_default_on_the_command_line() {
        let table = Table::new(&[FLAGS, REMOVED_FLAGS]);
        for flag in FLAGS.iter().chain(REMOVED_FLAGS).filter(|flag| !flag.default.is_empty()) {
            let value = flag.default.trim_matches(['[', ']']);
            if value.is_empty() {
                continue;
            }
            let raw = Raw::parse([format!("--{}={value}", flag.name)], &table).unwrap();
            assert_eq!(raw.value(flag.name).cloned(), flag.kind.parse_default(flag.default), "{}", flag.name);
        }
    }

    #[test]
    fn the_table_has_every_flag_once() {
        let table = Table::new(&[FLAGS, REMOVED_FLAGS]);
        assert_eq!(table.flags().count(), FLAGS.len() + REMOVED_FLAGS.len());
        assert_eq!(FLAGS.len(), 148);
    }
}
