//! The objects of a world as JSON, with a realistic size and shape, and the metrics APIs of a world.

use std::fmt::Write as _;

use autoscaling::selector::Selector;
use clock::{Clock as _, SystemClock};
use fake_cluster::metrics::ObjectLabels;
use fake_cluster::{MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};
use serde_json::{Value, json};

use super::{App, State, World};
use crate::workload::{ABSENT_METRIC, HOSTILE, Kind};

/// The target utilization of an HPA, in percent of the requests.
const UTILIZATION: u32 = 50;
/// The target of the external metric per pod.
pub(super) const QUEUE_PER_POD: u64 = 10;

/// The requests of both containers of a pod, in millicores and MiB. Only the usage of the first container varies.
pub(super) const REQUESTS: [(u64, u64); 2] = [(400, 384), (100, 128)];

pub(super) fn hpa(namespace: &str, name: &str, kind: Kind, query: usize) -> Value {
    let resource = |name: &str| {
        let target = json!({"type": "Utilization", "averageUtilization": UTILIZATION});
        json!({"type": "Resource", "resource": {"name": name, "target": target}})
    };
    let metrics = match kind {
        Kind::Cpu => json!([resource("cpu")]),
        Kind::CpuAndMemory => json!([resource("cpu"), resource("memory")]),
        Kind::External => json!([{"type": "External", "external": {
            "metric": {"name": "queue_length", "selector": {"matchLabels": {"queue": queue(query)}}},
            "target": {"type": "AverageValue", "averageValue": QUEUE_PER_POD.to_string()},
        }}]),
    };
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": namespace, "name": name, "labels": labels(name)},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1, "maxReplicas": 200, "metrics": metrics,
        },
    })
}

/// Creates a ScalingPolicy for some HPAs of a namespace, without an effect on their replica counts.
pub(super) fn policy(namespace: &str, number: usize, apps: &[&str]) -> Value {
    json!({
        "apiVersion": "autoscaling.concertina.dev/v1alpha1", "kind": "ScalingPolicy",
        "metadata": {"namespace": namespace, "name": format!("office-{number}"), "uid": format!("{namespace}-{number}"),
                     "generation": 1},
        "spec": {
            "selector": {"matchExpressions": [
                {"key": "app.kubernetes.io/instance", "operator": "In", "values": apps},
            ]},
            "schedules": [{"name": "office", "timeZone": "Europe/Berlin", "start": "0 8 * * 1-5", "end": "0 19 * * 1-5",
                           "minReplicas": 1}],
        },
    })
}

/// Creates the ClusterScalingPolicy for all HPAs. `number` counts its changes.
pub(super) fn cluster_policy(number: usize) -> Value {
    json!({
        "apiVersion": "autoscaling.concertina.dev/v1alpha1", "kind": "ClusterScalingPolicy",
        "metadata": {"name": "platform", "uid": "platform", "generation": number + 1},
        "spec": {"downscaleStabilizationSeconds": 300 + number},
    })
}

/// Returns the name of an external query.
pub(super) fn queue(number: usize) -> String {
    format!("orders-{number:04}")
}

pub(super) fn labels(app: &str) -> Value {
    json!({
        "app.kubernetes.io/instance": app,
        "app.kubernetes.io/name": app,
        "app.kubernetes.io/part-of": "shop",
        "pod-template-hash": "5d9c7b8f6d",
    })
}

fn selector(app: &str) -> Value {
    json!({"app.kubernetes.io/name": app})
}

pub(super) fn deployment(namespace: &str, app: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": namespace, "name": app, "labels": labels(app)},
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 10,
            "selector": {"matchLabels": selector(app)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": labels(app)}, "spec": pod_spec(app)},
        },
        "status": {
            "observedGeneration": 1, "replicas": replicas, "readyReplicas": replicas,
            "availableReplicas": replicas, "updatedReplicas": replicas,
        },
    })
}

/// Creates a pod with two containers. `started` is the time of its start and of its conditions.
pub(super) fn pod(namespace: &str, app: &str, name: &str, ready: bool, started: &str) -> Value {
    let condition = |kind: &str, met: bool| {
        let status = if met { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": started})
    };
    let status = |container: &str| {
        json!({
            "name": container, "ready": ready, "started": ready, "restartCount": 0,
            "image": image(app, container),
            "imageID": format!("{}@sha256:{:064x}", image(app, container), 0x5eed),
            "containerID": format!("containerd://{:064x}", name.len()),
            "state": {"running": {"startedAt": started}},
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": namespace, "name": name, "generateName": format!("{app}-5d9c7b8f6d-"),
            "labels": labels(app),
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{app}-5d9c7b8f6d"),
                "uid": format!("7c1e6b1a-0000-4000-8000-{:012}", app.len()),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": pod_spec(app),
        "status": {
            "phase": "Running", "qosClass": "Burstable", "startTime": started,
            "hostIP": "10.0.0.7", "hostIPs": [{"ip": "10.0.0.7"}], "podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}],
            "conditions": [
                condition("PodReadyToStartContainers", true), condition("Initialized", true),
                condition("Ready", ready), condition("ContainersReady", ready), condition("PodScheduled", true),
            ],
            "containerStatuses": [status("app"), status("proxy")],
        },
    })
}

fn image(app: &str, container: &str) -> String {
    format!("registry.example.com/shop/{app}-{container}:1.17.3")
}

fn pod_spec(app: &str) -> Value {
    let probe = |path: &str| {
        json!({"httpGet": {"path": path, "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1,
               "successThreshold": 1, "failureThreshold": 3})
    };
    let containers: Vec<_> = ["app", "proxy"]
        .into_iter()
        .zip(REQUESTS)
        .map(|(name, (millicores, mebibytes))| {
            json!({
                "name": name, "image": image(app, name), "imagePullPolicy": "IfNotPresent",
                "env": [
                    {"name": "LISTEN", "value": ":8080"},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
                ],
                "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
                "resources": {
                    "limits": {"memory": format!("{}Mi", mebibytes * 2)},
                    "requests": {"cpu": format!("{millicores}m"), "memory": format!("{mebibytes}Mi")},
                },
                "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
                "volumeMounts": [{
                    "name": "kube-api-access-x7k2p", "readOnly": true,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                }],
            })
        })
        .collect();
    json!({
        "nodeName": "node-1", "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "serviceAccountName": app,
        "enableServiceLinks": true, "priority": 0, "securityContext": {},
        "containers": containers,
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ],
        "volumes": [{"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ]}}],
    })
}

/// The label by which Deployments select pods.
const APP_LABEL: &str = "app.kubernetes.io/name";
/// The period of the usage in seconds. The period is a prime, so that consecutive syncs read different usage.
const CYCLE: i64 = 23;
/// The constant usage of the second container, in millicores and MiB.
const SIDECAR_USAGE: (u64, u64) = (50, 64);

/// A pod with the constant part of its PodMetrics.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    /// The PodMetrics JSON up to the value of `creationTimestamp`.
    head: String,
}

impl Pod {
    pub(super) fn new(namespace: &str, name: String) -> Self {
        let head =
            format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","creationTimestamp":""#);
        Self { name, head }
    }
}

/// Returns the PodMetrics JSON between the values of `creationTimestamp` and `timestamp`.
pub(super) fn labels_text(app: &str) -> String {
    format!(r#"","labels":{}}},"timestamp":""#, labels(app))
}

impl MetricsBackend for World {
    fn answer(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        let second = SystemClock.now().as_second();
        let moved = if self.workload.unchanged { 0 } else { second.rem_euclid(CYCLE).unsigned_abs() };
        let mut state = self.state.lock();
        if state.stamp.0 != second {
            let time = jiff::Timestamp::from_second(second).unwrap_or_default();
            state.stamp = (second, time.to_string());
        }
        match (request.api, request.path) {
            (MetricsApi::Resource, [pods]) if pods == "pods" => state.pods(request, moved),
            (MetricsApi::External, [metric]) => state.external(request, metric, moved),
            _ => MetricsReply::Absent,
        }
    }
}

impl State {
    fn pods(&self, request: &MetricsRequest<'_>, moved: u64) -> MetricsReply {
        let mut text = format!(
            r#"{{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/{}","metadata":{{}},"items":["#,
            request.version
        );
        let head = text.len();
        let in_namespace = self
            .indexes
            .iter()
            .filter(|(namespace, _)| request.namespace.is_empty() || namespace.as_str() == request.namespace);
        let one = request.label_selector.strip_prefix(APP_LABEL).and_then(|rest| rest.strip_prefix('='));
        if let Some(name) = one.filter(|name| !name.contains([',', '='])) {
            let indexes = in_namespace.filter_map(|(_, names)| names.get(name));
            indexes
                .filter_map(|index| self.apps.get(*index))
                .for_each(|app| self.write(app, moved, &mut text));
        } else {
            let Ok(selector) = Selector::parse(request.label_selector) else { return MetricsReply::Absent };
            let apps = in_namespace.flat_map(|(_, names)| names.values());
            let apps = apps.filter_map(|index| self.apps.get(*index));
            text.reserve(if request.namespace.is_empty() { 1 << 26 } else { 1 << 20 });
            for app in
                apps.filter(|app| selector.is_empty() || selector.matches(&ObjectLabels(&labels(&app.name))))
            {
                self.write(app, moved, &mut text);
            }
        }
        if text.len() > head {
            text.pop();
        }
        text.push_str("]}");
        MetricsReply::Encoded(text.into())
    }

    /// Appends the PodMetrics of an app's pods, each with a comma at the end.
    fn write(&self, app: &App, moved: u64, text: &mut String) {
        let time = &self.stamp.1;
        let pods = u64::try_from(app.pods.len()).unwrap_or(1).max(1);
        let usual = u64::try_from(app.usual).unwrap_or(1);
        let share = |amount: u64| amount * usual * app.factor / pods;
        let [(cpu, memory), _] = REQUESTS;
        // The target of the HPA is half of the request. cpu differs from the target by at most 4.4 %, and memory
        // exceeds it by at most 8.6 %.
        let millicores = (share(cpu / 2) + moved).saturating_sub(CYCLE.unsigned_abs() / 2);
        let kibibytes = (share(memory / 2) + moved) * 1024;
        for (index, pod) in app.pods.iter().enumerate() {
            // The usage differs by pod, but the sum over five pods is constant.
            let spread = 4 * (u64::try_from(index % 5).unwrap_or(0));
            let nanocores = (millicores + spread).saturating_sub(8) * 1_000_000;
            text.push_str(&pod.head);
            text.push_str(time);
            text.push_str(&app.labels);
            text.push_str(time);
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                r#"","window":"15s","containers":[{{"name":"app","usage":{{"cpu":"{nanocores}n","memory":"{kibibytes}Ki"}}}},{{"name":"proxy","usage":{{"cpu":"{}m","memory":"{}Mi"}}}}]}},"#,
                SIDECAR_USAGE.0, SIDECAR_USAGE.1
            );
        }
    }

    fn external(&self, request: &MetricsRequest<'_>, metric: &str, moved: u64) -> MetricsReply {
        if request.namespace == HOSTILE {
            return if metric == ABSENT_METRIC {
                MetricsReply::Absent
            } else {
                self.value(request, metric, "", 10_000)
            };
        }
        let queried = request.label_selector.strip_prefix("queue=").unwrap_or("");
        let number = queried.rsplit('-').next().and_then(|number| number.parse::<usize>().ok()).unwrap_or(0);
        if queried != queue(number) {
            return MetricsReply::Absent;
        }
        let (usual, factor) = self.apps.get(number).map_or((1, 1), |app| (app.usual, app.factor));
        let whole = u64::try_from(usual).unwrap_or(1) * factor * QUEUE_PER_POD * 1000;
        // The value exceeds the target of the HPA by at most 4.4 %.
        let value = whole + whole * moved / 500;
        self.value(request, metric, queried, value)
    }

    /// Creates a response with one value, in thousandths.
    fn value(&self, request: &MetricsRequest<'_>, metric: &str, queue: &str, value: u64) -> MetricsReply {
        let item = serde_json::json!({
            "metricName": metric, "metricLabels": {"queue": queue}, "timestamp": self.stamp.1,
            "value": format!("{value}m"),
        });
        MetricsReply::Json(serde_json::json!({
            "kind": "ExternalMetricValueList", "apiVersion": format!("external.metrics.k8s.io/{}", request.version),
            "metadata": {}, "items": Value::Array(vec![item]),
        }))
    }
}
