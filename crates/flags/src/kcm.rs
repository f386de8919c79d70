//! Every flag of kube-controller-manager v1.36.3, v1.37.1 and v1.38.0-beta.0, so that a copied command line starts.
//!
//! Every emulated version accepts the flags of all versions.

use super::config::checks::{
    above_zero, at_least_one, at_least_zero, burst, cipher_suites, curves, header_names, log_format,
    minimum_tls, negative_as_zero, nonempty, open_paths, path, port, qps, tolerance, version,
};
use super::flag::{AUTOSCALING, CLUSTER, ELECTION, Flag, OPERATION, SERVING, flag};
use super::values::{
    BOOL, CERT_KEY, DURATION, FEATURE_GATES, FLOAT32, FLOAT64, INT, INT32, INT32S, IP, LEVEL, MODULE_LEVELS,
    QUANTITY, STRING_MAP, STRINGS, TEXT,
};

const OTHER: &str = "meant for other controllers of kube-controller-manager";
const HTTP2: &str = "only HTTP/1.1 is served";
const ADDRESS: &str = "a port in TIME_WAIT is always reused";
const PROFILING: &str = "Concertina has no profiling endpoint";
const MIGRATION: &str = "Concertina runs one controller, so nothing is migrated";
const CONTROLLERS: &str = "the HPA controller is the only controller and always runs";
const MANAGER: &str =
    "Concertina runs one controller, which starts at once and stops when its writes are complete";
const RESYNC: &str = "every HPA is synced once per --horizontal-pod-autoscaler-sync-period anyway";
const CONTENT_TYPE: &str = "requests are always sent as JSON";
const COMPATIBILITY: &str = "only --emulated-version selects the emulated version";
const LOGS: &str = "logs are written to standard error at once";
const MODULES: &str = "the patterns refer to source files of kube-controller-manager";
const METRICS: &str = "all metrics are exposed, with all labels";
const REMOVED: &str = "removed from Kubernetes; use --horizontal-pod-autoscaler-downscale-stabilization";
const REST_CLIENTS: &str = "removed from Kubernetes; metrics always come from the metrics APIs";
const CPU_TAINT: &str = "renamed to --horizontal-pod-autoscaler-cpu-initialization-period in Kubernetes";

/// Returns the flags of kube-controller-manager, in the order of the sections of its help text.
pub fn flags() -> Vec<Flag> {
    vec![
        // Authentication
        flag("authentication-kubeconfig", TEXT, "", path, |d| {
            &mut d.config.serving.authentication.kubeconfig
        })
        .help(SERVING, "Kubeconfig for reviewing bearer tokens; if empty, the controller's."),
        flag("authentication-skip-lookup", BOOL, "false", Ok, |d| {
            &mut d.config.serving.authentication.skip_lookup
        })
        .help(
            SERVING,
            "Do not read the cluster's client certificate authorities from the ConfigMap \
                 kube-system/extension-apiserver-authentication.",
        ),
        flag("authentication-token-webhook-cache-ttl", DURATION, "10s", negative_as_zero, |d| {
            &mut d.config.serving.authentication.token_ttl
        })
        .help(SERVING, "Lifetime of a cached bearer token review."),
        flag("authentication-tolerate-lookup-failure", BOOL, "false", Ok, |d| {
            &mut d.config.serving.authentication.tolerate_lookup_failure
        })
        .help(SERVING, "Do not warn if that ConfigMap cannot be read."),
        flag("client-ca-file", TEXT, "", path, |d| &mut d.config.serving.authentication.client_ca)
            .help(SERVING, "Certificate authority for client certificates; if empty, the cluster's."),
        flag("requestheader-allowed-names", STRINGS, "", Ok, |d| &mut d.headers.allowed_names).help(
            SERVING,
            "Common names of trusted front proxies; if empty, every proxy with a certificate of their \
                 authority.",
        ),
        flag("requestheader-client-ca-file", TEXT, "", path, |d| &mut d.front_proxy_ca).help(
            SERVING,
            "Certificate authority for front proxies; if empty, the cluster's authority and headers.",
        ),
        flag("requestheader-extra-headers-prefix", STRINGS, "[x-remote-extra-]", header_names, |d| {
            &mut d.headers.extra_prefix
        })
        .help(SERVING, "Prefixes of the headers in which a front proxy sends extra user attributes."),
        flag("requestheader-group-headers", STRINGS, "[x-remote-group]", header_names, |d| {
            &mut d.headers.group
        })
        .help(SERVING, "Headers in which a front proxy sends the user's groups."),
        flag("requestheader-uid-headers", STRINGS, "", header_names, |d| &mut d.headers.uid)
            .help(SERVING, "Headers in which a front proxy sends the user's UID."),
        flag("requestheader-username-headers", STRINGS, "[x-remote-user]", header_names, |d| {
            &mut d.headers.user
        })
        .help(SERVING, "Headers in which a front proxy sends the user name."),
        // Authorization
        flag("authorization-always-allow-paths", STRINGS, "[/healthz,/readyz,/livez]", open_paths, |d| {
            &mut d.config.serving.authorization.open_paths
        })
        .help(
            SERVING,
            "Paths served without authentication and authorization; a trailing * matches any suffix.",
        ),
        flag("authorization-kubeconfig", TEXT, "", path, |d| &mut d.config.serving.authorization.kubeconfig)
            .help(SERVING, "Kubeconfig for reviewing the access of clients; if empty, the controller's."),
        flag("authorization-webhook-cache-authorized-ttl", DURATION, "10s", negative_as_zero, |d| {
            &mut d.config.serving.authorization.allowed_ttl
        })
        .help(SERVING, "Lifetime of a cached review that allows access."),
        flag("authorization-webhook-cache-unauthorized-ttl", DURATION, "10s", negative_as_zero, |d| {
            &mut d.config.serving.authorization.denied_ttl
        })
        .help(SERVING, "Lifetime of a cached review that denies access."),
        // Certificatesigningrequest-signing-controller
        Flag::ignored("cluster-signing-cert-file", TEXT, "", OTHER),
        Flag::ignored("cluster-signing-duration", DURATION, "8760h0m0s", OTHER),
        Flag::ignored("cluster-signing-key-file", TEXT, "", OTHER),
        Flag::ignored("cluster-signing-kube-apiserver-client-cert-file", TEXT, "", OTHER),
        Flag::ignored("cluster-signing-kube-apiserver-client-key-file", TEXT, "", OTHER),
        Flag::ignored("cluster-signing-kubelet-client-cert-file", TEXT, "", OTHER),
        Flag::ignored("cluster-signing-kubelet-client-key-file", TEXT, "", OTHER),
        Flag::ignored("cluster-signing-kubelet-serving-cert-file", TEXT, "", OTHER),
        Flag::ignored("cluster-signing-kubelet-serving-key-file", TEXT, "", OTHER),
        Flag::ignored("cluster-signing-legacy-unknown-cert-file", TEXT, "", OTHER),
        Flag::ignored("cluster-signing-legacy-unknown-key-file", TEXT, "", OTHER),
        // Cronjob-controller
        Flag::ignored("concurrent-cron-job-syncs", INT32, "5", OTHER),
        // Daemonset-controller
        Flag::ignored("concurrent-daemonset-syncs", INT32, "2", OTHER),
        // Debugging
        Flag::ignored("contention-profiling", BOOL, "false", PROFILING),
        Flag::ignored("profiling", BOOL, "true", PROFILING),
        // Deployment-controller
        Flag::ignored("concurrent-deployment-syncs", INT32, "5", OTHER),
        // Device-taint-eviction-controller
        Flag::ignored("concurrent-device-taint-eviction-syncs", INT32, "8", OTHER),
        // Disruption-controller
        Flag::ignored("concurrent-disruption-syncs", INT32, "1", OTHER), // since v1.37
        // Endpoints-controller
        Flag::ignored("concurrent-endpoint-syncs", INT32, "5", OTHER),
        Flag::ignored("endpoint-updates-batch-period", DURATION, "", OTHER),
        // Endpointslice-controller
        Flag::ignored("concurrent-service-endpoint-syncs", INT32, "5", OTHER),
        Flag::ignored("endpointslice-updates-batch-period", DURATION, "", OTHER),
        Flag::ignored("max-endpoints-per-slice", INT32, "100", OTHER),
        // Endpointslice-mirroring-controller
        Flag::ignored("mirroring-concurrent-service-endpoint-syncs", INT32, "5", OTHER),
        Flag::ignored("mirroring-endpointslice-updates-batch-period", DURATION, "", OTHER),
        Flag::ignored("mirroring-max-endpoints-per-subset", INT32, "1000", OTHER),
        // Ephemeral-volume-controller
        Flag::ignored("concurrent-ephemeralvolume-syncs", INT32, "5", OTHER),
        // Evictionrequest-controller
        Flag::ignored("concurrent-eviction-request-syncs", INT32, "5", OTHER), // since v1.38
        // Garbage-collector-controller
        Flag::ignored("concurrent-gc-syncs", INT32, "20", OTHER),
        Flag::ignored("enable-garbage-collector", BOOL, "true", OTHER),
        // Generic
        Flag::ignored("allocate-node-cidrs", BOOL, "false", OTHER),
        Flag::ignored("cidr-allocator-type", TEXT, "RangeAllocator", OTHER),
        Flag::ignored("cloud-config", TEXT, "", OTHER),
        Flag::ignored("cloud-provider", TEXT, "", OTHER),
        Flag::ignored("cluster-cidr", TEXT, "", OTHER),
        Flag::ignored("cluster-name", TEXT, "kubernetes", OTHER),
        Flag::ignored("configure-cloud-routes", BOOL, "true", OTHER),
        Flag::ignored("controller-shutdown-timeout", DURATION, "10s", MANAGER),
        Flag::ignored("controller-start-interval", DURATION, "", MANAGER),
        Flag::ignored("controllers", STRINGS, "[*]", CONTROLLERS),
        flag("emulated-version", STRINGS, "", version, |d| &mut d.version)
            .help(AUTOSCALING, "Kubernetes minor version to emulate: 1.36, 1.37 or 1.38 (default 1.37)."),
        Flag::ignored("external-cloud-volume-plugin", TEXT, "", OTHER),
        flag("feature-gates", FEATURE_GATES, "", Ok, |d| &mut d.gates).help(
            AUTOSCALING,
            "Feature gates to set: HPAScaleToZero, HPAConfigurableTolerance, HPAGeneration, \
                 HPAOptimizedSelectorStore, PodLevelResources, StaleControllerConsistencyHPA.",
        ),
        flag("kube-api-burst", INT32, "30", burst, |d| &mut d.config.burst)
            .help(CLUSTER, "Requests allowed in a burst above --kube-api-qps."),
        Flag::ignored("kube-api-content-type", TEXT, "application/vnd.kubernetes.protobuf", CONTENT_TYPE),
        flag("kube-api-qps", FLOAT32, "20", qps, |d| &mut d.config.controller.qps)
            .help(CLUSTER, "Requests per second to the API server, per client; unlimited if negative."),
        flag("leader-elect", BOOL, "true", Ok, |d| &mut d.elects)
            .help(ELECTION, "Elect one replica as leader; the other replicas are standbys."),
        flag("leader-elect-lease-duration", DURATION, "15s", at_least_zero, |d| &mut d.timing.lease).help(
            ELECTION,
            "Time that a standby waits after the last observed renewal before it acquires the Lease.",
        ),
        flag("leader-elect-renew-deadline", DURATION, "10s", at_least_zero, |d| &mut d.timing.renew_deadline)
            .help(ELECTION, "Time after which a leader that cannot renew the Lease stops."),
        flag("leader-elect-resource-lock", TEXT, "leases", Ok, |d| &mut d.lock)
            .help(ELECTION, "Kind of the lock object; only leases is supported."),
        flag("leader-elect-resource-name", TEXT, "kube-controller-manager", nonempty, |d| &mut d.lease_name)
            .help(ELECTION, "Name of the Lease; concertina is used in place of kube-controller-manager."),
        flag("leader-elect-resource-namespace", TEXT, "kube-system", nonempty, |d| &mut d.lease_namespace)
            .help(ELECTION, "Namespace of the Lease."),
        flag("leader-elect-retry-period", DURATION, "2s", at_least_zero, |d| &mut d.timing.retry)
            .help(ELECTION, "Interval between attempts to acquire or renew the Lease."),
        Flag::ignored("min-compatibility-version", STRINGS, "", COMPATIBILITY),
        Flag::ignored("min-resync-period", DURATION, "12h0m0s", RESYNC),
        Flag::ignored("route-reconciliation-period", DURATION, "10s", OTHER),
        flag("use-service-account-credentials", BOOL, "false", Ok, |d| {
            &mut d.config.service_account_credentials
        })
        .help(
            CLUSTER,
            "Act as the ServiceAccount kube-system/horizontal-pod-autoscaler, with tokens requested \
                 by the configured credentials.",
        ),
        // Global
        Flag::new("help", BOOL, "false", |_, _| Ok(())).short('h').help(OPERATION, "Print this help text."),
        // Horizontal-pod-autoscaler-controller
        flag("concurrent-horizontal-pod-autoscaler-syncs", INT32, "5", at_least_one, |d| {
            &mut d.config.controller.concurrent_syncs
        })
        .help(
            AUTOSCALING,
            "Maximum number of syncs that decide or scale at the same time; syncs that wait for \
                 metrics or for a status write do not count.",
        ),
        flag(
            "horizontal-pod-autoscaler-cpu-initialization-period",
            DURATION,
            "5m0s",
            negative_as_zero,
            |d| &mut d.config.controller.settings.cpu_initialization_period,
        )
        .help(AUTOSCALING, "Period after pod start during which CPU samples of unready pods are ignored."),
        flag("horizontal-pod-autoscaler-downscale-stabilization", DURATION, "5m0s", negative_as_zero, |d| {
            &mut d.config.controller.settings.downscale_stabilization
        })
        .help(AUTOSCALING, "Scale-down stabilization window of HPAs that set none."),
        flag("horizontal-pod-autoscaler-initial-readiness-delay", DURATION, "30s", negative_as_zero, |d| {
            &mut d.config.controller.settings.initial_readiness_delay
        })
        .help(
            AUTOSCALING,
            "Period after pod start during which readiness changes count as initial readiness.",
        ),
        flag("horizontal-pod-autoscaler-sync-period", DURATION, "15s", above_zero, |d| {
            &mut d.config.controller.sync_period
        })
        .help(AUTOSCALING, "Period between two syncs of an HPA."),
        flag("horizontal-pod-autoscaler-tolerance", FLOAT64, "0.1", tolerance, |d| {
            &mut d.config.controller.settings.tolerance
        })
        .help(
            AUTOSCALING,
            "Deviation of the usage-to-target ratio from 1.0 that does not change the replica count.",
        ),
        // Imperative-eviction-responder-controller
        Flag::ignored("concurrent-imperative-eviction-responder-syncs", INT32, "5", OTHER), // since v1.38
        // Job-controller
        Flag::ignored("concurrent-job-syncs", INT32, "5", OTHER),
        // Leader-migration
        Flag::ignored("enable-leader-migration", BOOL, "false", MIGRATION),
        Flag::ignored("leader-migration-config", TEXT, "", MIGRATION),
        // Legacy-serviceaccount-token-cleaner-controller
        Flag::ignored("legacy-service-account-token-clean-up-period", DURATION, "8760h0m0s", OTHER),
        // Logs
        Flag::ignored("log-flush-frequency", DURATION, "5s", LOGS),
        Flag::ignored("log-json-info-buffer-size", QUANTITY, "", LOGS),
        Flag::ignored("log-json-split-stream", BOOL, "false", LOGS),
        Flag::ignored("log-text-info-buffer-size", QUANTITY, "", LOGS),
        Flag::ignored("log-text-split-stream", BOOL, "false", LOGS),
        flag("logging-format", TEXT, "text", log_format, |d| &mut d.config.logging.format)
            .help(OPERATION, "Log format: text or json."),
        flag("v", LEVEL, "", Ok, |d| &mut d.config.logging.verbosity)
            .short('v')
            .help(OPERATION, "Log verbosity: 4 adds details, 6 adds traces."),
        Flag::ignored("vmodule", MODULE_LEVELS, "", MODULES),
        // Metrics
        Flag::ignored("allow-metric-labels", STRING_MAP, "[]", METRICS),
        Flag::ignored("allow-metric-labels-manifest", TEXT, "", METRICS),
        Flag::ignored("disabled-metrics", STRINGS, "", METRICS),
        Flag::ignored("show-hidden-metrics-for-version", TEXT, "", METRICS),
        // Misc
        flag("kubeconfig", TEXT, "", path, |d| &mut d.config.kubeconfig).help(
            CLUSTER,
            "Kubeconfig file; if this and --master are empty, the in-cluster configuration is used.",
        ),
        flag("master", TEXT, "", nonempty, |d| &mut d.config.master)
            .help(CLUSTER, "Address of the API server; overrides the kubeconfig."),
        // Namespace-controller
        Flag::ignored("concurrent-namespace-syncs", INT32, "10", OTHER),
        Flag::ignored("namespace-sync-period", DURATION, "5m0s", OTHER),
        // Node-ipam-controller
        Flag::ignored("node-cidr-mask-size", INT32, "", OTHER),
        Flag::ignored("node-cidr-mask-size-ipv4", INT32, "", OTHER),
        Flag::ignored("node-cidr-mask-size-ipv6", INT32, "", OTHER),
        Flag::ignored("service-cluster-ip-range", TEXT, "", OTHER),
        // Node-lifecycle-controller
        Flag::ignored("large-cluster-size-threshold", INT32, "50", OTHER),
        Flag::ignored("node-eviction-rate", FLOAT32, "0.1", OTHER),
        Flag::ignored("node-monitor-grace-period", DURATION, "50s", OTHER),
        Flag::ignored("node-monitor-period", DURATION, "5s", OTHER),
        Flag::ignored("node-startup-grace-period", DURATION, "1m0s", OTHER),
        Flag::ignored("secondary-node-eviction-rate", FLOAT32, "0.01", OTHER),
        Flag::ignored("unhealthy-zone-threshold", FLOAT32, "0.55", OTHER),
        // Persistentvolume-attach-detach-controller
        Flag::ignored("attach-detach-reconcile-sync-period", DURATION, "1m0s", OTHER),
        Flag::ignored("disable-attach-detach-reconcile-sync", BOOL, "false", OTHER),
        Flag::ignored("disable-force-detach-on-timeout", BOOL, "false", OTHER),
        // Persistentvolume-binder-controller
        Flag::ignored("enable-dynamic-provisioning", BOOL, "true", OTHER),
        Flag::ignored("enable-hostpath-provisioner", BOOL, "false", OTHER),
        Flag::ignored(
            "flex-volume-plugin-dir",
            TEXT,
            "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
            OTHER,
        ),
        Flag::ignored("pv-recycler-increment-timeout-nfs", INT32, "30", OTHER),
        Flag::ignored("pv-recycler-minimum-timeout-hostpath", INT32, "60", OTHER),
        Flag::ignored("pv-recycler-minimum-timeout-nfs", INT32, "300", OTHER),
        Flag::ignored("pv-recycler-pod-template-filepath-hostpath", TEXT, "", OTHER),
        Flag::ignored("pv-recycler-pod-template-filepath-nfs", TEXT, "", OTHER),
        Flag::ignored("pv-recycler-timeout-increment-hostpath", INT32, "30", OTHER),
        Flag::ignored("pvclaimbinder-sync-period", DURATION, "15s", OTHER),
        // Pod-garbage-collector-controller
        Flag::ignored("terminated-pod-gc-threshold", INT32, "12500", OTHER),
        // Replicaset-controller
        Flag::ignored("concurrent-replicaset-syncs", INT32, "5", OTHER),
        // Replicationcontroller-controller
        Flag::ignored("concurrent-rc-syncs", INT32, "5", OTHER),
        // Resourceclaim-controller
        Flag::ignored("concurrent-resourceclaim-syncs", INT32, "50", OTHER),
        // Resourcequota-controller
        Flag::ignored("concurrent-resource-quota-syncs", INT32, "5", OTHER),
        Flag::ignored("resource-quota-sync-period", DURATION, "5m0s", OTHER),
        // Secure serving
        flag("bind-address", IP, "0.0.0.0", Ok, |d| &mut d.config.serving.address).help(
            SERVING,
            "IP address to serve --secure-port on; 0.0.0.0 and :: mean all interfaces, IPv4 and IPv6.",
        ),
        flag("cert-dir", TEXT, "", path, |d| &mut d.config.serving.certificate_dir).help(
            SERVING,
            "Directory of kube-controller-manager.crt and .key, which are used if they exist and no \
                 --tls-cert-file is set.",
        ),
        Flag::ignored("disable-http2-serving", BOOL, "false", HTTP2),
        Flag::ignored("http2-max-streams-per-connection", INT, "", HTTP2),
        Flag::ignored("permit-address-sharing", BOOL, "false", ADDRESS),
        flag("permit-port-sharing", BOOL, "false", Ok, |d| &mut d.config.serving.share_port).help(
            SERVING,
            "Allow other processes of the same user to listen on the same port (SO_REUSEPORT).",
        ),
        flag("secure-port", INT, "10257", port, |d| &mut d.config.serving.port)
            .help(SERVING, "HTTPS port for health, metrics and decisions; 0 disables it."),
        flag("tls-cert-file", TEXT, "", path, |d| &mut d.certificate).help(
            SERVING,
            "Serving certificate with its chain, in PEM, reloaded on change; if empty, a self-signed \
                 certificate is generated.",
        ),
        flag("tls-cipher-suites", STRINGS, "", cipher_suites, |d| &mut d.cipher_suites).help(
            SERVING,
            "TLS 1.2 cipher suites by their Go names; suites that rustls does not support are \
                 ignored.",
        ),
        flag("tls-curve-preferences", INT32S, "[]", curves, |d| &mut d.curves).help(
            SERVING,
            "Key exchange groups by number, in order of preference; groups that rustls does not \
                 support are ignored.",
        ),
        flag("tls-min-version", TEXT, "", minimum_tls, |d| &mut d.minimum_tls)
            .help(SERVING, "Minimum TLS version: VersionTLS12 (default) or VersionTLS13."),
        flag("tls-private-key-file", TEXT, "", path, |d| &mut d.private_key)
            .help(SERVING, "Private key of --tls-cert-file, in PEM."),
        flag("tls-sni-cert-key", CERT_KEY, "[]", Ok, |d| &mut d.config.serving.sni).help(
            SERVING,
            "Additional certificate and key for clients that request one of its names (SNI); \
                 repeatable.",
        ),
        // Service-lb-controller
        Flag::ignored("concurrent-service-syncs", INT32, "1", OTHER), // v1.36 only
        // Serviceaccount-controller
        Flag::ignored("concurrent-serviceaccount-token-syncs", INT32, "5", OTHER),
        Flag::ignored("root-ca-file", TEXT, "", OTHER),
        Flag::ignored("service-account-private-key-file", TEXT, "", OTHER),
        // Statefulset-controller
        Flag::ignored("concurrent-statefulset-syncs", INT32, "5", OTHER),
        // Ttl-after-finished-controller
        Flag::ignored("concurrent-ttl-after-finished-syncs", INT32, "5", OTHER),
        // Validatingadmissionpolicy-status-controller
        Flag::ignored("concurrent-validating-admission-policy-status-syncs", INT32, "5", OTHER),
    ]
}

/// Returns the flags that Kubernetes has removed and that scripts may still set.
pub fn removed_flags() -> Vec<Flag> {
    vec![
        Flag::removed("horizontal-pod-autoscaler-upscale-delay", DURATION, REMOVED),
        Flag::removed("horizontal-pod-autoscaler-downscale-delay", DURATION, REMOVED),
        Flag::removed("horizontal-pod-autoscaler-use-rest-clients", BOOL, REST_CLIENTS),
        Flag::removed("horizontal-pod-autoscaler-cpu-taint-period", DURATION, CPU_TAINT),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlagSet;
    use crate::flag::Purpose;
    use crate::{Config, own};

    /// The flags of all versions, from the help texts of kube-controller-manager.
    const UPSTREAM: &str = include_str!("kcm.tsv");

    #[test]
    fn every_flag_of_every_version_is_accepted_with_its_default() {
        let lines = UPSTREAM.lines().filter(|line| !line.starts_with('#'));
        let mut upstream: Vec<_> = lines
            .map(|line| {
                let fields: Vec<_> = line.split('\t').collect();
                (fields[0], fields[2])
            })
            .collect();
        upstream.sort_unstable();
        let flags = flags();
        let mut ours: Vec<_> = flags.iter().map(|flag| (flag.name, flag.default)).collect();
        ours.sort_unstable();
        assert_eq!(ours, upstream);
    }

    #[test]
    fn the_table_has_every_flag_once() {
        let all = flags().len() + removed_flags().len() + own::flags().len();
        assert_eq!(FlagSet::controller().flags().count(), all);
    }

    #[test]
    fn defaults_on_the_command_line_change_nothing() {
        let flags = flags().into_iter().chain(own::flags());
        let words = flags
            .map(|flag| (flag.name, flag.default.trim_matches(['[', ']'])))
            // This flag is excluded, because Concertina does not use its default, the Lease of kube-controller-manager.
            .filter(|(name, default)| !default.is_empty() && *name != "leader-elect-resource-name")
            .map(|(name, default)| format!("--{name}={default}"));
        let mut config = FlagSet::controller().resolve(words).unwrap();
        config.serving.given.clear();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn every_effective_flag_has_a_help_text() {
        for flag in flags().into_iter().chain(own::flags()) {
            match flag.purpose {
                Purpose::Effective { usage, .. } => assert!(usage.ends_with('.'), "{}", flag.name),
                Purpose::Ignored { reason } => assert!(!reason.is_empty(), "{}", flag.name),
            }
        }
    }
}
