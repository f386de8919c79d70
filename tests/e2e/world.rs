//! The fixture of the scenarios: control plane, kubelet, metrics, a scalable custom resource, and one of two
//! autoscalers with the same account and flags. Also the namespace of one scenario, with its objects and loads.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::adapter::Adapter;
use crate::controlplane::ControlPlane;
use crate::extensions::define_widgets;
use crate::metrics::{Fault, Kubelet, Load, Metrics, NODE};
use crate::outcome::{Outcome, Process, ensure, eventually};
use crate::rest::Rest;

/// The maximum time until one or a few syncs take effect on a busy machine.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// A container with its cpu and memory requests. An empty text omits the request.
#[derive(Clone, Copy)]
pub(crate) struct Container(pub(crate) &'static str, pub(crate) &'static str, pub(crate) &'static str);

/// One container that requests a tenth of a core and 64 MiB.
pub(crate) const APP: &[Container] = &[Container("app", "100m", "64Mi")];

pub(crate) struct World {
    pub(crate) api: Rest,
    pub(crate) namespace: String,
    pub(crate) autoscaler: Autoscaler,
    metrics: Metrics,
    /// Every HPA of the scenario, with the metadata that the server returned on creation.
    created: Mutex<Vec<Value>>,
}

impl World {
    pub(crate) async fn make(stage: &Fixture, namespace: &str, autoscaler: Autoscaler) -> Outcome<Self> {
        let api = stage.plane.admin.clone();
        api.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await?;
        Ok(Self {
            api,
            namespace: namespace.to_owned(),
            autoscaler,
            metrics: stage.metrics.clone(),
            created: Mutex::default(),
        })
    }

    pub(crate) fn deployments(&self, name: &str) -> String {
        format!("/apis/apps/v1/namespaces/{}/deployments/{name}", self.namespace)
    }

    pub(crate) fn stateful_sets(&self, name: &str) -> String {
        format!("/apis/apps/v1/namespaces/{}/statefulsets/{name}", self.namespace)
    }

    pub(crate) fn widgets(&self, name: &str) -> String {
        format!("/apis/example.com/v1/namespaces/{}/widgets/{name}", self.namespace)
    }

    pub(crate) fn hpas(&self, name: &str) -> String {
        format!("/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers/{name}", self.namespace)
    }

    /// Creates a Deployment and waits until all its pods are ready.
    pub(crate) async fn deployment(&self, name: &str, replicas: i64, containers: &[Container]) -> Outcome {
        let body = self.workload(name, replicas, containers);
        self.api.create(self.deployments("").trim_end_matches('/'), &body).await?;
        self.all_ready(&self.deployments(name), replicas).await
    }

    /// Creates a StatefulSet and waits until all its pods are ready.
    pub(crate) async fn stateful_set(&self, name: &str, replicas: i64, containers: &[Container]) -> Outcome {
        let mut body = self.workload(name, replicas, containers);
        body["spec"]["serviceName"] = json!(name);
        body["spec"]["podManagementPolicy"] = json!("Parallel");
        self.api.create(self.stateful_sets("").trim_end_matches('/'), &body).await?;
        self.all_ready(&self.stateful_sets(name), replicas).await
    }

    fn workload(&self, name: &str, replicas: i64, containers: &[Container]) -> Value {
        let containers: Vec<_> = containers
            .iter()
            .map(|Container(name, cpu, memory)| {
                let mut requests = serde_json::Map::new();
                for (resource, amount) in [("cpu", cpu), ("memory", memory)] {
                    if !amount.is_empty() {
                        requests.insert(resource.to_owned(), json!(amount));
                    }
                }
                json!({"name": name, "image": "example.com/app", "resources": {"requests": requests}})
            })
            .collect();
        json!({
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"nodeName": NODE, "containers": containers, "terminationGracePeriodSeconds": 1},
                },
            },
        })
    }

    async fn all_ready(&self, path: &str, replicas: i64) -> Outcome {
        eventually(SOON, &format!("{replicas} ready pods of {path}"), async || {
            let workload = self.api.get(path).await?;
            let ready = workload["status"]["readyReplicas"].as_i64().unwrap_or_default();
            ensure(ready == replicas, || format!("{ready} are ready"))
        })
        .await
    }

    /// Creates an HPA for the target, with metadata that status writes must preserve.
    pub(crate) async fn hpa(&self, name: &str, target: (&str, &str, &str), spec: Value) -> Outcome {
        let (api_version, kind, target) = target;
        let mut body = json!({
            "metadata": {
                "name": name,
                "labels": {"team": "checkout", "app.kubernetes.io/managed-by": "another-tool"},
                "annotations": {"example.com/note": "keep \"this\"", "example.com/empty": ""},
                "finalizers": ["example.com/hold"],
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": true,
                    "uid": "6b4a5d3e-0000-4000-8000-000000000001",
                }],
            },
            "spec": spec,
        });
        body["spec"]["scaleTargetRef"] = json!({"apiVersion": api_version, "kind": kind, "name": target});
        let created = self.api.create(self.hpas("").trim_end_matches('/'), &body).await?;
        self.created.lock().push(created);
        Ok(())
    }

    /// Applies a merge patch to the spec of an HPA.
    pub(crate) async fn change_hpa(&self, name: &str, spec: Value) -> Outcome {
        self.api.merge(&self.hpas(name), &json!({"spec": spec})).await.map(drop)
    }

    /// Deletes an HPA and removes its finalizer.
    pub(crate) async fn delete_hpa(&self, name: &str) -> Outcome {
        self.metadata_is_kept(name).await?;
        self.api.delete(&self.hpas(name)).await?;
        self.api.merge(&self.hpas(name), &json!({"metadata": {"finalizers": null}})).await?;
        let mut created = self.created.lock();
        created.retain(|hpa| hpa["metadata"]["name"] != name);
        Ok(())
    }

    /// Checks that status writes preserved the metadata.
    async fn metadata_is_kept(&self, name: &str) -> Outcome {
        let created = self.created.lock().clone();
        let before = created
            .iter()
            .find(|hpa| hpa["metadata"]["name"] == name)
            .ok_or("the HPA was not created by this scenario")?;
        let after = self.api.get(&self.hpas(name)).await?;
        for field in ["labels", "annotations", "ownerReferences", "finalizers", "uid", "creationTimestamp"] {
            let (before, after) = (&before["metadata"][field], &after["metadata"][field]);
            ensure(before == after, || format!("metadata.{field} of {name} was {before} and is {after}"))?;
        }
        Ok(())
    }

    /// Checks at the end of a scenario that all HPAs still have their metadata.
    pub(crate) async fn close(&self) -> Outcome {
        let created = self.created.lock().clone();
        for hpa in &created {
            self.metadata_is_kept(hpa["metadata"]["name"].as_str().unwrap_or_default()).await?;
        }
        Ok(())
    }

    pub(crate) fn usage(&self, app: &str, container: &str, resource: &str, load: Load) {
        self.metrics.usage(&self.namespace, app, container, resource, load);
    }

    pub(crate) fn cpu(&self, app: &str, total_milli: i64) {
        self.usage(app, "app", "cpu", Load::Total(total_milli, "m"));
    }

    pub(crate) fn per_pod(&self, app: &str, metric: &str, load: Load) {
        self.metrics.per_pod(&self.namespace, app, metric, load);
    }

    pub(crate) fn object(&self, resource: &str, name: &str, metric: &str, value: &str) {
        self.metrics.object(&self.namespace, resource, name, metric, value);
    }

    pub(crate) fn external(&self, metric: &str, values: &[&str]) {
        self.metrics.external(&self.namespace, metric, values);
    }

    pub(crate) fn fault(&self, api: &str, fault: Option<Fault>) {
        self.metrics.fault(&self.namespace, api, fault);
    }
}

/// The autoscaler that drives the workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Autoscaler {
    /// The HPA controller in kube-controller-manager.
    BuiltIn,
    Concertina,
}

impl Autoscaler {
    /// Returns Concertina, unless `CONCERTINA_E2E_AUTOSCALER=built-in` selects the built-in controller, which validates
    /// the scenarios themselves.
    pub(crate) fn under_test() -> Self {
        match std::env::var("CONCERTINA_E2E_AUTOSCALER").as_deref() {
            Ok("built-in") => Self::BuiltIn,
            _ => Self::Concertina,
        }
    }

    /// Starts the autoscaler under the built-in account and role.
    pub(crate) async fn start(self, plane: &ControlPlane, flags: &[&str]) -> Outcome<Process> {
        match self {
            Self::BuiltIn => {
                let flags: Vec<_> = flags.iter().map(|&flag| flag.to_owned()).collect();
                plane.controllers("built-in", "horizontal-pod-autoscaler-controller", &flags)
            }
            Self::Concertina => {
                let kubeconfig = plane.service_account("kube-system", "horizontal-pod-autoscaler").await?;
                let mut command = Command::new(binary());
                command.args(["--kube-api-qps=500", "--kube-api-burst=1000", "--secure-port=0"]);
                // The built-in role allows no Lease and no ConfigMaps. A later flag overrides an earlier flag.
                command.args(["--leader-elect=false", "--history-checkpoint=false", "--takeover=off"]);
                command.arg("--kubeconfig").arg(kubeconfig).args(flags);
                Process::start("concertina", command, plane.folder())
            }
        }
    }
}

/// The scale-down stabilization window.
pub(crate) const DOWNSCALE_WINDOW: Duration = Duration::from_secs(4);

/// The flags of both programs that change a decision.
pub(crate) const DECISION_FLAGS: &[&str] = &[
    "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=1s",
    "--horizontal-pod-autoscaler-downscale-stabilization=4s",
];

pub(crate) struct Fixture {
    pub(crate) plane: ControlPlane,
    pub(crate) metrics: Metrics,
    pub(crate) adapter: Adapter,
    /// Keeps the task of the kubelet alive.
    _kubelet: Kubelet,
}

impl Fixture {
    pub(crate) async fn start() -> Outcome<Self> {
        let mut plane = ControlPlane::start().await?;
        let controllers = "deployment-controller,replicaset-controller,replicationcontroller-controller,statefulset-controller";
        plane.start_controllers("workload-controllers", controllers, &[])?;
        let kubelet = Kubelet::start(plane.admin.clone());
        let metrics = Metrics::new(kubelet.pods.clone());
        let answers = metrics.clone();
        let adapter = Adapter::start(move |request| answers.answer(&request.path, &request.query)).await?;
        adapter.register(&plane.admin).await?;
        define_widgets(&plane.admin).await?;
        Ok(Self { plane, metrics, adapter, _kubelet: kubelet })
    }

    /// Starts the autoscaler under the built-in account and role.
    pub(crate) async fn autoscaler(&self, which: Autoscaler) -> Outcome<Process> {
        self.autoscaler_with(which, &[]).await
    }

    /// Like [`Self::autoscaler`], but with additional flags.
    pub(crate) async fn autoscaler_with(&self, which: Autoscaler, more: &[&str]) -> Outcome<Process> {
        let mut flags = vec!["--horizontal-pod-autoscaler-sync-period=1s"];
        flags.extend(DECISION_FLAGS.iter().chain(more));
        which.start(&self.plane, &flags).await
    }
}

pub(crate) fn binary() -> PathBuf {
    // `CONCERTINA_BIN` selects another build of the same program, for example a release.
    std::env::var_os("CONCERTINA_BIN").map_or_else(|| env!("CARGO_BIN_EXE_concertina").into(), PathBuf::from)
}

pub(crate) fn cpu_utilization(percent: u32) -> Value {
    json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent},
    }})
}

pub(crate) fn memory_average(value: &str) -> Value {
    json!({"type": "Resource", "resource": {
        "name": "memory", "target": {"type": "AverageValue", "averageValue": value},
    }})
}

pub(crate) fn container_cpu(container: &str, percent: u32) -> Value {
    json!({"type": "ContainerResource", "containerResource": {
        "name": "cpu", "container": container,
        "target": {"type": "Utilization", "averageUtilization": percent},
    }})
}

pub(crate) fn pods_average(metric: &str, value: &str) -> Value {
    json!({"type": "Pods", "pods": {
        "metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": value},
    }})
}

/// A metric of the Ingress `main`.
pub(crate) fn ingress(metric: &str, kind: &str, value: &str) -> Value {
    json!({"type": "Object", "object": {
        "describedObject": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"},
        "metric": {"name": metric},
        "target": target(kind, value),
    }})
}

pub(crate) fn external(metric: &str, kind: &str, value: &str) -> Value {
    json!({"type": "External", "external": {"metric": {"name": metric}, "target": target(kind, value)}})
}

/// Like [`external`], but restricted to series with the given labels.
pub(crate) fn external_selected(metric: &str, labels: &Value, kind: &str, value: &str) -> Value {
    json!({"type": "External", "external": {
        "metric": {"name": metric, "selector": {"matchLabels": labels}},
        "target": target(kind, value),
    }})
}

fn target(kind: &str, value: &str) -> Value {
    match kind {
        "Value" => json!({"type": kind, "value": value}),
        _ => json!({"type": kind, "averageValue": value}),
    }
}
