//! The flags that Concertina adds to kube-controller-manager's flags.

use super::config::checks::{
    BUILT_IN_USERS_TEXT, above_zero, at_least_one, built_in_users, controller_name, decisions, guard,
    health_address, namespace, namespaces, path, port_above_zero, response_size, scale_targets, scope,
    status_precision, takeover,
};
use super::flag::{AUTOSCALING, CLUSTER, Flag, METRICS, OPERATION, SERVING, flag};
use super::values::{BOOL, DURATION, INT, QUANTITY, STRINGS, TEXT, VERSION};

/// Returns Concertina's additional flags, in the order of their headings.
pub fn flags() -> Vec<Flag> {
    vec![
        flag("dry-run", BOOL, "false", Ok, |d| &mut d.config.controller.dry_run)
            .help(AUTOSCALING, "Decide and log everything, but write nothing to the cluster."),
        flag("takeover", TEXT, "wait", takeover, |d| &mut d.config.takeover).help(
            AUTOSCALING,
            "Reaction to another controller that acts on the same HPAs: wait, warn or off.",
        ),
        flag("scope", TEXT, "all", scope, |d| &mut d.config.controller.scope).help(
            AUTOSCALING,
            "HPAs to act on: all, or labelled (HPAs with the label concertina.dev/controller, or in a \
                 namespace with it).",
        ),
        flag("controller-name", TEXT, "concertina", controller_name, |d| {
            &mut d.config.controller.controller_name
        })
        .help(AUTOSCALING, "Value of the label concertina.dev/controller that puts an HPA in scope."),
        flag("handover-guard", TEXT, "", guard, |d| &mut d.guard).help(
            AUTOSCALING,
            "Guard that keeps the built-in controller from writing HPAs in scope: webhook or policy (with \
                 --scope=labelled), rbac or flag (with --scope=all), or none; if empty, webhook with \
                 --scope=labelled, otherwise none.",
        ),
        flag("built-in-users", STRINGS, BUILT_IN_USERS_TEXT, built_in_users, |d| {
            &mut d.config.handover.built_in_users
        })
        .help(AUTOSCALING, "Users of the built-in controller; the handover guard refuses their writes."),
        flag("shadow-others", BOOL, "false", Ok, |d| &mut d.config.controller.shadow_others)
            .help(AUTOSCALING, "With --scope=labelled, decide for HPAs out of scope too, compare with the other controller (/parity), \
                 and write nothing; metrics are then not shared between HPAs."),
        flag("status-precision", TEXT, "0%", status_precision, |d| {
            &mut d.config.controller.settings.status_precision
        })
        .help(
            AUTOSCALING,
            "Change of a metric, in percent of its target, that alone causes a status write only once in ten sync periods.",
        ),
        flag("watch-namespaces", STRINGS, "", namespaces, |d| &mut d.config.controller.watch_namespaces)
            .help(CLUSTER, "Comma-separated namespaces to act in; if unset, all."),
        flag("watch-scaling-policies", BOOL, "false", Ok, |d| {
            &mut d.config.controller.watch_scaling_policies
        })
        .help(
            CLUSTER,
            "Apply ScalingPolicies and ClusterScalingPolicies, too; the annotation concertina.dev/policy of an HPA \
                 always applies.",
        ),
        flag("scale-targets", STRINGS, "[*]", scale_targets, |d| &mut d.config.scale_targets).help(
            CLUSTER,
            "Resources that the role allows to scale, such as deployments.apps,statefulsets.apps; * \
                 allows all.",
        ),
        flag("metrics-timeout", DURATION, "1m0s", above_zero, |d| &mut d.config.controller.metrics_timeout)
            .help(METRICS, "Timeout of a request to a metrics API."),
        flag("max-metrics-response", QUANTITY, "64Mi", response_size, |d| {
            &mut d.config.controller.max_metrics_response
        })
        .help(METRICS, "Maximum size of a metrics API response, in bytes."),
        flag("max-concurrent-metric-requests", INT, "512", at_least_one, |d| {
            &mut d.config.controller.max_concurrent_metric_requests
        })
        .help(METRICS, "Maximum concurrent requests to all metrics APIs."),
        flag("max-concurrent-metric-requests-per-api", INT, "256", at_least_one, |d| {
            &mut d.config.controller.max_concurrent_metric_requests_per_api
        })
        .help(
            METRICS,
            "Maximum concurrent requests per metrics API; kept below half the total so that two hung \
                 APIs cannot starve the third.",
        ),
        flag("share-metrics", BOOL, "true", Ok, |d| &mut d.shares_metrics).help(
            METRICS,
            "Share metrics API responses between HPAs: one list per namespace where that is cheaper, \
                 one response for equal queries; always off in a dry run. If false, also read each Scale \
                 instead of watching targets, as the built-in controller does.",
        ),
        flag("metric-sources", TEXT, "", path, |d| &mut d.config.metric_sources).help(
            METRICS,
            "File with the Prometheus servers and the limits of the scrapers that scaling policies may name, \
                 reloaded on change; if empty, all metrics come from the metrics APIs.",
        ),
        flag("health-address", TEXT, "", health_address, |d| &mut d.config.serving.plain).help(
            SERVING,
            "Loopback address and port that serves health, metrics and decisions without TLS or \
                 authentication; if empty, off.",
        ),
        flag("handover-namespace", TEXT, "concertina-system", namespace, |d| {
            &mut d.config.handover_webhook.namespace
        })
        .help(SERVING, "Namespace of the Service and the Secret of the handover webhook."),
        flag("handover-webhook-port", INT, "10250", port_above_zero, |d| &mut d.config.handover_webhook.port)
            .help(
                SERVING,
                "HTTPS port of the handover webhook, on --bind-address; the control plane of a private GKE \
                 cluster reaches 10250 and 443.",
            ),
        flag("handover-webhook-cert-file", TEXT, "", path, |d| &mut d.handover_certificate).help(
            SERVING,
            "Certificate of the handover webhook with its chain, in PEM, reloaded on change; if empty, \
                 signed by an authority in a Secret.",
        ),
        flag("handover-webhook-key-file", TEXT, "", path, |d| &mut d.handover_key)
            .help(SERVING, "Private key of --handover-webhook-cert-file, in PEM."),
        flag("decision-events", BOOL, "false", Ok, |d| &mut d.config.controller.decision_events).help(
            OPERATION,
            "Record an event LastDecision with the sentence of why when the outcome of an HPA changes; at most one \
                 per HPA in five minutes and five per second.",
        ),
        flag("decisions-per-hpa", INT, "40", decisions, |d| &mut d.config.controller.decisions_per_hpa).help(
            OPERATION,
            "Maximum number of recent decisions recorded per HPA and served at /decisions; 0 disables \
                 the record.",
        ),
        flag("history-checkpoint", BOOL, "true", Ok, |d| &mut d.checkpoints).help(
            OPERATION,
            "Store HPA histories in ConfigMaps next to the Lease, so that the next leader continues with them.",
        ),
        Flag::new("version", VERSION, "false", |_, _| Ok(()))
            .help(OPERATION, "Print the version; --version=raw prints it in full."),
    ]
}
