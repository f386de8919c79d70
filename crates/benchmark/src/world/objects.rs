//! The objects of a world as JSON, with the size and shape of real ones.

use serde_json::{Value, json};

use crate::workload::Kind;

/// The target utilization of an HPA, in percent of the requests.
const UTILIZATION: u32 = 50;
/// The target of an external metric per pod.
pub(crate) const QUEUE_PER_POD: u64 = 10;

/// The requests of both containers of a pod, in millicores and MiB. The first container does the work.
pub(crate) const REQUESTS: [(u64, u64); 2] = [(400, 384), (100, 128)];

pub(crate) fn hpa(namespace: &str, name: &str, kind: Kind, query: usize) -> Value {
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

/// A policy for some HPAs of a namespace. Its schedule has no effect on their counts.
pub(crate) fn policy(namespace: &str, number: usize, apps: &[&str]) -> Value {
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

/// The policy for all HPAs.
pub(crate) fn cluster_policy(number: usize) -> Value {
    json!({
        "apiVersion": "autoscaling.concertina.dev/v1alpha1", "kind": "ClusterScalingPolicy",
        "metadata": {"name": "platform", "uid": "platform", "generation": number + 1},
        "spec": {"downscaleStabilizationSeconds": 300 + number},
    })
}

/// The name of an external query.
pub(crate) fn queue(number: usize) -> String {
    format!("orders-{number:04}")
}

pub(crate) fn labels(app: &str) -> Value {
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

pub(crate) fn deployment(namespace: &str, app: &str, replicas: usize) -> Value {
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

/// A pod. A pod that is not ready has just started.
pub(crate) fn pod(namespace: &str, app: &str, name: &str, ready: bool, started: &str) -> Value {
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
