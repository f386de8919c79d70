//! A world in progress: its targets, pods and metrics, from which [`Draft::step`] derives the next step.

use http::Method;
use serde_json::{Value, json};

use crate::plan::{Call, Plan, PlannedHpa, PodUsage, Readings, Step, Trait};
use crate::rng::Rng;

/// Version, kind and resource of a target.
pub(crate) type Kind = (&'static str, &'static str, &'static str);

pub(crate) const KINDS: [Kind; 5] = [
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("apps/v1", "StatefulSet", "statefulsets"),
    ("v1", "ReplicationController", "replicationcontrollers"),
    ("example.com/v1", "Widget", "widgets"),
];

/// The version of targets that exist from the start. Only the HPA changes their counts.
pub(crate) const LEGACY: &str = "legacy.example.com/v1";

pub(crate) struct Draft {
    pub(crate) dice: Rng,
    pub(crate) namespace: String,
    pub(crate) target: Target,
    pub(crate) hpas: Vec<Hpa>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) sources: Vec<Source>,
    pub(crate) steps: Vec<Step>,
    /// Changes for the next step.
    pub(crate) next: Step,
}

#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) replicas: i64,
}

pub(crate) struct Hpa {
    pub(crate) name: String,
    /// The spec, including the reference to the target.
    pub(crate) spec: Value,
    pub(crate) scale: Option<String>,
    pub(crate) traits: Vec<Trait>,
}

/// A pod, created with the next step.
#[derive(Clone)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) app: String,
    pub(crate) phase: &'static str,
    pub(crate) ready: &'static str,
    /// Age in seconds. A negative age means that the pod has not started.
    pub(crate) age: i64,
    /// Quantities of the cpu and memory requests. An empty text omits the request.
    pub(crate) requests: (&'static str, &'static str),
    pub(crate) deleted: bool,
    /// Whether the metrics APIs report the pod.
    pub(crate) measured: bool,
    /// Age of the measurement in seconds.
    pub(crate) measured_before: i64,
}

/// A metric of the HPA. Targets are chosen so that a load of 100 % meets them.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Utilization of 50 % of a request of 100m, or an average of 50m.
    Cpu { utilization: bool },
    /// An average of 64Mi.
    Memory,
    /// Utilization of 50 % of a request of 100m.
    Container,
    /// An average of 10.
    Pods(String),
    /// A value of 30, or an average of 10.
    Object { name: String, metric: String, average: bool },
    /// A value of 30, or an average of 10.
    External { metric: String, average: bool },
    /// Any spec, without a reading.
    Other(Value),
}

impl Draft {
    pub(crate) fn collection(&self, kind: Kind) -> String {
        let root = if kind.0.contains('/') { "apis" } else { "api" };
        format!("/{root}/{}/namespaces/{}/{}", kind.0, self.namespace, kind.2)
    }

    pub(crate) fn scale_path(&self, target: &Target) -> String {
        format!("{}/{}/scale", self.collection(target.kind), target.name)
    }

    pub(crate) fn hpa_path(&self, name: &str) -> String {
        let collection =
            format!("/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers", self.namespace);
        if name.is_empty() { collection } else { format!("{collection}/{name}") }
    }

    pub(crate) fn pod_path(&self, name: &str) -> String {
        format!("/api/v1/namespaces/{}/pods/{name}", self.namespace)
    }

    /// Adds an HPA for the target.
    pub(crate) fn add_hpa(&mut self, name: &str, mut spec: Value) {
        let (api_version, kind, _) = self.target.kind;
        spec["scaleTargetRef"] = json!({"apiVersion": api_version, "kind": kind, "name": self.target.name});
        let scale = Some(self.scale_path(&self.target));
        self.create_hpa(Hpa { name: name.to_owned(), spec, scale, traits: Vec::new() });
    }

    pub(crate) fn create_hpa(&mut self, hpa: Hpa) {
        let body = json!({"metadata": {"name": hpa.name}, "spec": hpa.spec});
        let call = Call { method: Method::POST, path: self.hpa_path(""), body };
        self.next.hpa_changes.push(call);
        self.hpas.push(hpa);
    }

    pub(crate) fn change_hpa(&mut self, index: usize, spec: &Value) {
        let path = self.hpa_path(&self.hpas[index].name);
        self.next.hpa_changes.push(Call { method: Method::PATCH, path, body: json!({"spec": spec}) });
    }

    /// Creates a target whose pods have the label `app`.
    pub(crate) fn create_target(&mut self, target: &Target, app: &str) {
        if target.kind.0 == LEGACY {
            return;
        }
        let (_, kind, _) = target.kind;
        let path = self.collection(target.kind);
        let mut body = json!({"kind": kind, "metadata": {"name": target.name}, "spec": {
            "replicas": target.replicas,
        }});
        if kind == "Widget" {
            body["apiVersion"] = json!("example.com/v1");
        } else {
            let labels = json!({"app": app});
            body["spec"]["selector"] =
                if kind == "ReplicationController" { labels.clone() } else { json!({"matchLabels": labels}) };
            body["spec"]["template"] = json!({
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "app", "image": "example.com/app"}]},
            });
        }
        if kind == "StatefulSet" {
            body["spec"]["serviceName"] = json!("web");
        }
        self.next.changes.push(Call { method: Method::POST, path, body });
        self.target_status(target, target.replicas, &format!("app={app}"));
    }

    /// Sets the count in the status of a target. Only the status of a widget has a selector.
    pub(crate) fn target_status(&mut self, target: &Target, replicas: i64, selector: &str) {
        if target.kind.0 == LEGACY {
            return;
        }
        let path = format!("{}/{}/status", self.collection(target.kind), target.name);
        let mut status = json!({"replicas": replicas});
        if target.kind.1 == "Widget" {
            status["selector"] = json!(selector);
        }
        let body = json!({"status": status});
        self.next.changes.push(Call { method: Method::PATCH, path, body });
    }

    pub(crate) fn delete_target(&mut self, target: &Target) {
        let path = format!("{}/{}", self.collection(target.kind), target.name);
        let body = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        self.next.changes.push(Call { method: Method::DELETE, path, body });
    }

    /// Sets the count of a target as a user does.
    pub(crate) fn scale_target(&mut self, target: &Target, replicas: i64) {
        if target.kind.0 == LEGACY {
            return;
        }
        let path = format!("{}/{}", self.collection(target.kind), target.name);
        let body = json!({"spec": {"replicas": replicas}});
        self.next.changes.push(Call { method: Method::PATCH, path, body });
    }

    pub(crate) fn create_pod(&mut self, pod: Pod) {
        let mut requests = serde_json::Map::new();
        for (resource, amount) in [("cpu", pod.requests.0), ("memory", pod.requests.1)] {
            if !amount.is_empty() {
                requests.insert(resource.to_owned(), json!(amount));
            }
        }
        let container =
            json!({"name": "app", "image": "example.com/app", "resources": {"requests": requests}});
        let mut metadata = json!({"name": pod.name, "labels": {"app": pod.app}});
        if pod.deleted {
            metadata["finalizers"] = json!(["example.com/hold"]);
        }
        let body =
            json!({"metadata": metadata, "spec": {"nodeName": "test-node", "containers": [container]}});
        let collection = self.pod_path("").trim_end_matches('/').to_owned();
        self.next.changes.push(Call { method: Method::POST, path: collection, body });
        let mut status = json!({"phase": pod.phase});
        if pod.age >= 0 {
            status["startTime"] = json!(format!("@-{}", pod.age));
            let changed = format!("@-{}", pod.age - pod.age / 10);
            status["conditions"] = json!([
                {"type": "Ready", "status": pod.ready, "lastTransitionTime": changed},
            ]);
        }
        let path = format!("{}/status", self.pod_path(&pod.name));
        self.next.changes.push(Call { method: Method::PATCH, path, body: json!({"status": status}) });
        if pod.deleted {
            let path = self.pod_path(&pod.name);
            self.next.changes.push(Call { method: Method::DELETE, path, body: json!({}) });
        }
        self.pods.push(pod);
    }

    pub(crate) fn delete_pod(&mut self, index: usize) {
        let pod = self.pods.remove(index);
        let path = self.pod_path(&pod.name);
        self.next.changes.push(Call { method: Method::DELETE, path, body: json!({"gracePeriodSeconds": 0}) });
    }

    /// Completes a step with the given loads of the sources, in percent of their targets.
    pub(crate) fn step(&mut self, loads: &[i64]) {
        let readings = self.readings(loads);
        let mut step = std::mem::take(&mut self.next);
        // Readings that a theme has set replace the readings of the sources.
        let Readings { external, failures, .. } = std::mem::take(&mut step.readings);
        step.readings = readings;
        step.readings.external.extend(external);
        step.readings.failures = failures;
        step.syncs = 2;
        self.steps.push(step);
    }

    fn readings(&self, loads: &[i64]) -> Readings {
        let mut readings = Readings::default();
        let (mut cpu, mut memory) = (50, 64 * 1024);
        for (source, load) in self.sources.iter().zip(loads) {
            match source {
                Source::Cpu { .. } | Source::Container => cpu = load / 2,
                Source::Memory => memory = 64 * 1024 * load / 100,
                Source::Pods(metric) => {
                    let pods = self.pods.iter().filter(|pod| pod.measured);
                    let value = |pod: &Pod| (pod.name.clone(), pod.app.clone(), format!("{}m", load * 100));
                    readings.pods.insert(metric.clone(), pods.map(value).collect());
                }
                Source::Object { name, metric, .. } => {
                    let path = format!("ingresses.networking.k8s.io/{name}/{metric}");
                    readings.objects.insert(path, format!("{}m", load * 300));
                }
                Source::External { metric, .. } => {
                    let values = vec![format!("{}m", load * 100), format!("{}m", load * 200)];
                    readings.external.insert(metric.clone(), values);
                }
                Source::Other(_) => {}
            }
        }
        let pods = self.pods.iter().filter(|pod| pod.measured);
        readings.usage = pods
            .map(|pod| PodUsage {
                pod: pod.name.clone(),
                app: pod.app.clone(),
                age: pod.measured_before,
                containers: vec![(
                    "app".to_owned(),
                    vec![("cpu", format!("{cpu}m")), ("memory", format!("{memory}Ki"))],
                )],
            })
            .collect();
        readings
    }

    pub(crate) fn plan(self, seed: u64, theme: &'static str) -> Plan {
        let hpas = self.hpas.into_iter();
        let hpas = hpas.map(|Hpa { name, scale, traits, .. }| PlannedHpa { name, scale, traits }).collect();
        Plan { seed, theme, namespace: self.namespace, hpas, steps: self.steps }
    }
}

impl Source {
    pub(crate) fn spec(&self) -> Value {
        let resource = |name: &str, target: Value| json!({"type": "Resource", "resource": {"name": name, "target": target}});
        let utilization = || json!({"type": "Utilization", "averageUtilization": 50});
        let target = |average: bool| {
            if average {
                json!({"type": "AverageValue", "averageValue": "10"})
            } else {
                json!({"type": "Value", "value": "30"})
            }
        };
        match self {
            Self::Cpu { utilization: true } => resource("cpu", utilization()),
            Self::Cpu { .. } => resource("cpu", json!({"type": "AverageValue", "averageValue": "50m"})),
            Self::Memory => resource("memory", json!({"type": "AverageValue", "averageValue": "64Mi"})),
            Self::Container => json!({"type": "ContainerResource", "containerResource": {
                "name": "cpu", "container": "app", "target": utilization(),
            }}),
            Self::Pods(metric) => json!({"type": "Pods", "pods": {
                "metric": {"name": metric}, "target": target(true),
            }}),
            Self::Object { name, metric, average } => json!({"type": "Object", "object": {
                "describedObject": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": name},
                "metric": {"name": metric}, "target": target(*average),
            }}),
            Self::External { metric, average } => json!({"type": "External", "external": {
                "metric": {"name": metric}, "target": target(*average),
            }}),
            Self::Other(spec) => spec.clone(),
        }
    }
}
