//! A scenario as data, and its cluster. Pods follow their target at once, and metrics depend only on the step and the
//! pods. The result of a controller is therefore independent of the exact time of a sync.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clock::SharedClock;
use fake_cluster::metrics::StaticMetrics;
use fake_cluster::{BareScale, Cluster, ScalePath};
use flags::config::TakeOver;
use parking_lot::Mutex;
use serde_json::{Value, json};

pub(crate) const HPAS: &str = "autoscaling/horizontalpodautoscalers";
/// Start time of every run.
pub(crate) const EPOCH: &str = "2030-01-01T00:00:00Z";

/// A small cluster and its changes over time.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Replicas of the controller. With more than one, they elect a leader.
    pub(crate) replicas: usize,
    /// `--horizontal-pod-autoscaler-downscale-stabilization`, in seconds.
    pub(crate) window: u64,
    pub(crate) takeover: TakeOver,
    /// `--history-checkpoint`.
    pub(crate) checkpoint: bool,
    /// Changes before the controller starts.
    pub(crate) initial: Vec<Change>,
    pub(crate) steps: Vec<Step>,
    /// Duration of the run after the last step, in seconds.
    pub(crate) rest: u64,
    pub(crate) counts: Counts,
}

/// The counts of a target that are compared with the run without a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    /// All written counts, in order.
    All,
    /// The last count only. Earlier counts may differ, because a fault moves the window or the period in which a step
    /// takes place. They may also depend on the order of the first syncs.
    Last,
}

/// Changes at one time.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Seconds after the previous step.
    pub(crate) after: u64,
    /// Whether the step takes place even if the controller has not yet recovered from a fault.
    pub(crate) abrupt: bool,
    pub(crate) changes: Vec<Change>,
}

/// A change of the cluster. Objects are named `name` in the namespace `shop`, or `namespace/name`.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// A target is created or replaced.
    Target(Target),
    /// A target is deleted with its pods.
    Gone(&'static str),
    /// A user sets the count of a target.
    Count(&'static str, i64),
    /// A user sets the selector of a target.
    Selector(&'static str, &'static str),
    /// An HPA is created.
    Hpa(Value),
    /// A merge patch of an HPA.
    Edit(&'static str, Value),
    /// A merge patch that bypasses validation. An older API server might have accepted it.
    Force(&'static str, Value),
    /// An HPA is deleted.
    Delete(&'static str),
    /// Total usage of the containers `app` of a target's pods, in millicores.
    Cpu(&'static str, u64),
    /// Total usage of the containers `side`, in millicores.
    Side(&'static str, u64),
    /// Total of a metric over a target's pods.
    Pods(&'static str, &'static str, u64),
    /// A metric of the Service with the given name.
    Object(&'static str, u64),
    /// An external metric.
    External(&'static str, u64),
    /// A metrics API fails from now on.
    Down(Api),
    /// A metrics API recovers.
    Up(Api),
    /// The given number of pods of a target has no metrics.
    Unmeasured(&'static str, usize),
    /// A replica of the controller is shut down and restarted.
    End(usize),
}

/// A metrics API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Api {
    Resource,
    Custom,
    External,
}

/// A scale target with pods that follow at once.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Group, version and plural name.
    pub(crate) resource: [&'static str; 3],
    pub(crate) replicas: i64,
    pub(crate) selector: &'static str,
    /// Labels of its pods in addition to `app={name}`.
    pub(crate) labels: &'static [(&'static str, &'static str)],
}

impl Target {
    fn pod_labels(&self) -> Value {
        let mut labels = json!({ "app": split(self.name).1 });
        for (key, value) in self.labels {
            labels[*key] = json!(value);
        }
        labels
    }
}

/// Splits `namespace/name`. The default namespace is `shop`.
pub(crate) fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("shop", name))
}

/// Applies a merge patch (RFC 7386).
pub(crate) fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut object[name], value);
        }
    }
}

/// A cluster with the objects and metrics of a scenario.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    metrics: Arc<StaticMetrics>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Targets by `namespace/name`.
    targets: BTreeMap<String, ScenarioObject>,
    cpu: BTreeMap<String, u64>,
    side: BTreeMap<String, u64>,
    /// Totals of pod metrics by target and metric.
    pods: BTreeMap<(String, &'static str), u64>,
    objects: BTreeMap<&'static str, u64>,
    external: BTreeMap<&'static str, u64>,
    unmeasured: BTreeMap<String, usize>,
    down: BTreeSet<Api>,
}

#[derive(Debug)]
struct ScenarioObject {
    target: Target,
    path: ScalePath,
    pods: usize,
}

impl World {
    pub(crate) fn new(clock: SharedClock) -> Self {
        let cluster = Cluster::new(clock);
        let metrics = Arc::new(StaticMetrics::new());
        cluster.set_metrics(Arc::clone(&metrics) as _);
        for name in ["shop", "other"] {
            cluster
                .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
                .unwrap();
        }
        Self { cluster, metrics, state: Mutex::default() }
    }

    /// Applies a change to the cluster. Changes of the controller's processes are ignored.
    pub(crate) fn apply(&self, change: &Change) {
        let mut state = self.state.lock();
        let full = |name: &str| {
            let (namespace, name) = split(name);
            format!("{namespace}/{name}")
        };
        match change {
            Change::Target(target) => {
                let path = path(target);
                let scale = BareScale {
                    spec_replicas: target.replicas,
                    status_replicas: target.replicas,
                    selector: target.selector.to_owned(),
                };
                self.cluster.put_scale(&path, scale);
                let pods = state.targets.get(&full(target.name)).map_or(0, |placed| placed.pods);
                state
                    .targets
                    .insert(full(target.name), ScenarioObject { target: target.clone(), path, pods });
            }
            Change::Gone(name) => {
                let placed = state.targets.remove(&full(name)).unwrap();
                self.cluster.remove_scale(&placed.path);
                self.fit(&placed.target, placed.pods, 0);
            }
            Change::Count(name, count) => self.set(&state, &full(name), |scale| scale.spec_replicas = *count),
            Change::Selector(name, selector) => {
                self.set(&state, &full(name), |scale| (*selector).clone_into(&mut scale.selector));
            }
            Change::Hpa(hpa) => {
                self.cluster.create(hpa.clone()).unwrap_or_else(|status| panic!("{status:?}"));
            }
            Change::Edit(name, patch) => {
                let hpa = self.patched(name, patch);
                self.cluster.update(hpa).unwrap_or_else(|status| panic!("{status:?}"));
            }
            Change::Force(name, patch) => {
                let mut hpa = self.patched(name, patch);
                let generation = hpa["metadata"]["generation"].as_i64().unwrap_or(0);
                hpa["metadata"]["generation"] = (generation + 1).into();
                self.cluster.put_raw(hpa);
            }
            Change::Delete(name) => {
                let (namespace, name) = split(name);
                self.cluster.delete(HPAS, namespace, name).unwrap();
            }
            Change::Cpu(name, millicores) => drop(state.cpu.insert(full(name), *millicores)),
            Change::Side(name, millicores) => drop(state.side.insert(full(name), *millicores)),
            Change::Pods(name, metric, value) => drop(state.pods.insert((full(name), metric), *value)),
            Change::Object(name, value) => drop(state.objects.insert(name, *value)),
            Change::External(name, value) => drop(state.external.insert(name, *value)),
            Change::Down(api) => drop(state.down.insert(*api)),
            Change::Up(api) => drop(state.down.remove(api)),
            Change::Unmeasured(name, count) => drop(state.unmeasured.insert(full(name), *count)),
            Change::End(_) => {}
        }
        drop(state);
        self.follow();
    }

    /// Makes pods and metrics follow the counts.
    pub(crate) fn follow(&self) {
        let mut state = self.state.lock();
        for placed in state.targets.values_mut() {
            let scale = self.cluster.scale(&placed.path).unwrap();
            let desired = usize::try_from(scale.spec_replicas).unwrap();
            self.fit(&placed.target, placed.pods, desired);
            placed.pods = desired;
            if scale.status_replicas != scale.spec_replicas {
                let scale = BareScale { status_replicas: scale.spec_replicas, ..scale };
                self.cluster.put_scale(&placed.path, scale);
            }
        }
        self.measure(&state);
    }

    /// The count of every target by its path.
    pub(crate) fn counts(&self) -> BTreeMap<String, i64> {
        let state = self.state.lock();
        let count = |placed: &ScenarioObject| self.cluster.scale(&placed.path).unwrap().spec_replicas;
        state.targets.values().map(|placed| (placed.path.to_string(), count(placed))).collect()
    }

    fn patched(&self, name: &str, patch: &Value) -> Value {
        let (namespace, name) = split(name);
        let mut hpa = self.cluster.get(HPAS, namespace, name).unwrap();
        merge(&mut hpa, patch);
        hpa
    }

    fn set(&self, state: &State, name: &str, change: impl FnOnce(&mut BareScale)) {
        let placed = &state.targets[name];
        let mut scale = self.cluster.scale(&placed.path).unwrap();
        change(&mut scale);
        self.cluster.put_scale(&placed.path, scale);
    }

    /// Creates pods of a target, or deletes its newest pods.
    fn fit(&self, target: &Target, has: usize, desired: usize) {
        let (namespace, app) = split(target.name);
        for index in has..desired {
            self.cluster.put_raw(pod(target, namespace, app, index));
        }
        for index in desired..has {
            self.cluster.delete_now("pods", namespace, &pod_name(app, index)).unwrap();
        }
    }

    fn measure(&self, state: &State) {
        let mut usage = Vec::new();
        let mut custom: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for (full, placed) in &state.targets {
            let (namespace, app) = split(full);
            let count = u64::try_from(placed.pods).unwrap();
            let share = |all: Option<&u64>| all.map_or(0, |all| all.checked_div(count).unwrap_or(0));
            let (cpu, side) = (share(state.cpu.get(full)), share(state.side.get(full)));
            let unmeasured = state.unmeasured.get(full).copied().unwrap_or(0);
            for index in unmeasured..placed.pods {
                let labels = placed.target.pod_labels();
                usage.push(json!({
                    "metadata": {"namespace": namespace, "name": pod_name(app, index), "labels": labels},
                    "timestamp": EPOCH, "window": "30s",
                    "containers": [
                        {"name": "app", "usage": {"cpu": format!("{cpu}m"), "memory": "1Mi"}},
                        {"name": "side", "usage": {"cpu": format!("{side}m"), "memory": "1Mi"}},
                    ],
                }));
            }
            for ((_, metric), all) in state.pods.iter().filter(|((target, _), _)| target == full) {
                for index in unmeasured..placed.pods {
                    let described = json!({
                        "kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": pod_name(app, index),
                    });
                    custom.entry(metric).or_default().push(series(&described, metric, share(Some(all))));
                }
            }
        }
        for (service, value) in &state.objects {
            let described =
                json!({"kind": "Service", "apiVersion": "v1", "namespace": "shop", "name": service});
            custom.entry("requests").or_default().push(series(&described, "requests", *value));
        }
        let broken = json!({"fault": {
            "code": 503, "reason": "ServiceUnavailable",
            "message": "the server is currently unable to handle the request",
        }});
        let response =
            |api: Api, metrics: Value| if state.down.contains(&api) { broken.clone() } else { metrics };
        self.metrics.set_resource(Some(response(Api::Resource, json!({ "items": usage }))));
        let custom =
            custom.into_iter().map(|(name, items)| (name, response(Api::Custom, json!({ "items": items }))));
        self.metrics.set_custom(json!(custom.collect::<BTreeMap<_, _>>()));
        let external = state.external.iter().map(|(name, value)| {
            let item = json!({
                "metricName": name, "metricLabels": {}, "timestamp": EPOCH, "value": value.to_string(),
            });
            (*name, response(Api::External, json!({ "items": [item] })))
        });
        self.metrics.set_external(json!(external.collect::<BTreeMap<_, _>>()));
    }
}

fn path(target: &Target) -> ScalePath {
    let (namespace, name) = split(target.name);
    let [group, version, resource] = target.resource.map(str::to_owned);
    ScalePath { group, version, resource, namespace: namespace.to_owned(), name: name.to_owned() }
}

fn pod_name(app: &str, index: usize) -> String {
    format!("{app}-{index:04}")
}

fn series(described: &Value, metric: &str, value: u64) -> Value {
    json!({
        "describedObject": described, "metric": {"name": metric, "selector": null},
        "timestamp": EPOCH, "value": value.to_string(),
    })
}

/// A pod that has been ready for a day.
fn pod(target: &Target, namespace: &str, app: &str, index: usize) -> Value {
    let labels = target.pod_labels();
    let requests = json!({"requests": {"cpu": "100m"}});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": pod_name(app, index), "labels": labels},
        "spec": {"containers": [{"name": "app", "resources": requests}, {"name": "side", "resources": requests}]},
        "status": {
            "phase": "Running", "startTime": "2029-12-31T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2029-12-31T00:01:00Z"}],
        },
    })
}
