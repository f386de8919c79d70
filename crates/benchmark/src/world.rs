//! The world of a controller: HPAs, Deployments and pods with their load.
//!
//! In the embedded cluster, pods follow a scale write and become ready immediately, so that the measurement covers the
//! controller and not a rollout. The load of an app is spread over its pods. The load varies every second within the
//! tolerance, so every sync writes a new status with an unchanged count.

mod objects;

use std::collections::BTreeMap;

use clock::{Clock as _, SystemClock};
use fake_cluster::Cluster;
use parking_lot::Mutex;
use serde_json::Value;

use crate::workload::{FEW_PODS, Kind, POISONED, Workload};
use crate::workload::{HOSTILE, Way};

/// The apps with their pods, and the backend of their metrics.
#[derive(Debug)]
pub(crate) struct World {
    workload: Workload,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    apps: Vec<App>,
    /// Indexes in `apps`, by namespace and name.
    indexes: BTreeMap<String, BTreeMap<String, usize>>,
    /// The number of pods that were created until now.
    created: u64,
    /// The current second since 1970, and its text.
    stamp: (i64, String),
}

/// A Deployment with its pods and its load.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) namespace: String,
    pub(crate) name: String,
    kind: Kind,
    /// The number of the external query of the HPA.
    query: usize,
    pods: Vec<objects::Pod>,
    /// The number of pods at the usual load.
    usual: usize,
    /// The current load in multiples of the usual load.
    factor: u64,
    /// The text from [`objects::labels_text`].
    labels: String,
}

impl App {
    /// Returns `namespace/name`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl World {
    /// Creates the apps of a workload, of its probes and of its hostile tenant, without objects in a cluster.
    pub(crate) fn new(workload: &Workload) -> Self {
        let all = workload.all_hpas();
        let mut state =
            State { apps: Vec::new(), indexes: BTreeMap::new(), created: 0, stamp: (0, String::new()) };
        let (of_tenant, pods_of_tenant) = workload.hostile.map_or((0, 0), Way::apps);
        for number in 0..all + workload.probes + of_tenant {
            let is_of_tenant = number >= all + workload.probes;
            let is_in_large = workload.skewed && number < all / 10;
            let small = workload.namespaces.saturating_sub(1).max(1);
            let namespace = match number {
                _ if is_in_large => 0,
                // No probe is in the first namespace, whose metrics hang.
                number if workload.poisoned && number >= all => 1 + number % small,
                number if workload.skewed => 1 + number % small,
                number => number % workload.namespaces.max(1),
            };
            let is_measured = number < workload.hpas;
            let namespace = if is_of_tenant { HOSTILE.to_owned() } else { format!("team-{namespace:03}") };
            let app = App {
                namespace,
                name: format!("checkout-{number:05}"),
                kind: if is_measured { workload.kind } else { Kind::Cpu },
                query: number % workload.queries.max(1),
                pods: Vec::new(),
                usual: match () {
                    () if is_of_tenant => pods_of_tenant,
                    () if is_in_large => FEW_PODS,
                    () => workload.pods,
                },
                factor: 1,
                labels: objects::labels_text(&format!("checkout-{number:05}")),
            };
            state.indexes.entry(app.namespace.clone()).or_default().insert(app.name.clone(), number);
            state.apps.push(app);
        }
        Self { workload: workload.clone(), state: Mutex::new(state) }
    }

    /// Creates all objects in a cluster, except the HPAs of probes and of a hostile tenant.
    pub(crate) fn build(&self, cluster: &Cluster) {
        let all = self.workload.all_hpas();
        let apps = self.state.lock().apps.len();
        for number in 0..apps {
            for object in self.objects_of_app(number) {
                cluster.put_raw(object);
            }
        }
        for app in self.state.lock().apps.iter().take(all) {
            create_hpa(cluster, app);
        }
        if self.workload.policies > 0 {
            self.create_policies(cluster);
        }
    }

    /// Creates the ScalingPolicies, each for an equal share of the HPAs of its namespace, and a ClusterScalingPolicy
    /// for all HPAs.
    fn create_policies(&self, cluster: &Cluster) {
        let state = self.state.lock();
        let each = (self.workload.policies / state.indexes.len().max(1)).max(1);
        for (namespace, apps) in &state.indexes {
            for number in 0..each {
                let of_policy: Vec<&str> =
                    apps.keys().skip(number).step_by(each).map(String::as_str).collect();
                cluster.put_raw(objects::policy(namespace, number, &of_policy));
            }
        }
        change_policy(cluster, 0);
    }

    /// Creates the Deployment and the ready pods of an app. This call names the pods: calls in the order of the apps
    /// give equal names in every world.
    pub(crate) fn objects_of_app(&self, number: usize) -> Vec<Value> {
        let started = (SystemClock.now() - jiff::SignedDuration::from_hours(1)).to_string();
        let mut state = self.state.lock();
        let State { apps, created, .. } = &mut *state;
        let Some(app) = apps.get_mut(number) else { return Vec::new() };
        let mut objects = vec![objects::deployment(&app.namespace, &app.name, app.usual)];
        objects.extend((0..app.usual).map(|_| add_pod(app, created, true, &started)));
        objects
    }

    pub(crate) fn hpa(&self, number: usize) -> Option<Value> {
        let state = self.state.lock();
        let app = state.apps.get(number)?;
        Some(objects::hpa(&app.namespace, &app.name, app.kind, app.query))
    }

    /// Returns the keys of the initial HPAs, and the keys of the HPAs of probes and of a hostile tenant.
    pub(crate) fn keys(&self) -> (Vec<String>, Vec<String>) {
        let mut all: Vec<_> = self.state.lock().apps.iter().map(App::key).collect();
        let probes = all.split_off(self.workload.all_hpas());
        (all, probes)
    }

    /// Returns the key of an app. Its Deployment and its HPA have the same key.
    pub(crate) fn key(&self, number: usize) -> String {
        self.state.lock().apps.get(number).map(App::key).unwrap_or_default()
    }

    /// Returns the name of an app's first pod.
    pub(crate) fn pod(&self, number: usize) -> Option<String> {
        Some(self.state.lock().apps.get(number)?.pods.first()?.name.clone())
    }

    /// Creates the HPA of an app.
    pub(crate) fn create(&self, cluster: &Cluster, number: usize) {
        if let Some(app) = self.state.lock().apps.get(number) {
            create_hpa(cluster, app);
        }
    }

    /// Increases maxReplicas of an app's HPA by one. Returns the new generation, or `None` if the HPA's metrics hang or
    /// the change fails.
    pub(crate) fn change_spec(&self, cluster: &Cluster, number: usize) -> Option<i64> {
        let (namespace, name) = {
            let state = self.state.lock();
            let answers = |app: &&App| !(self.workload.poisoned && app.namespace == POISONED);
            let app = state.apps.get(number).filter(answers)?;
            (app.namespace.clone(), app.name.clone())
        };
        let stored = || cluster.get("autoscaling/horizontalpodautoscalers", &namespace, &name);
        let mut hpa = stored()?;
        let maximum = hpa.pointer_mut("/spec/maxReplicas")?;
        *maximum = Value::from(maximum.as_i64()? + 1);
        cluster.update(hpa).ok()?;
        stored()?.pointer("/metadata/generation")?.as_i64()
    }

    /// Doubles the load of the HPAs of the step. Returns their keys.
    pub(crate) fn step(&self) -> Vec<String> {
        let all = self.workload.all_hpas();
        let mut state = self.state.lock();
        let stepped = state.apps.iter_mut().take(all).step_by(self.workload.step.max(1));
        stepped
            .map(|app| {
                app.factor = 2;
                app.key()
            })
            .collect()
    }

    /// Restores the usual load of every HPA. Returns the keys of the changed HPAs.
    pub(crate) fn reset_load(&self) -> Vec<String> {
        let mut state = self.state.lock();
        let stepped = state.apps.iter_mut().filter(|app| app.factor != 1);
        stepped
            .map(|app| {
                app.factor = 1;
                app.key()
            })
            .collect()
    }

    /// Creates or deletes pods of an app until it has `replicas` pods.
    pub(crate) fn resize(&self, cluster: &Cluster, namespace: &str, name: &str, replicas: usize) {
        let mut state = self.state.lock();
        let Some(index) = state.indexes.get(namespace).and_then(|names| names.get(name)).copied() else {
            return;
        };
        let State { apps, created, .. } = &mut *state;
        let Some(app) = apps.get_mut(index) else { return };
        let started = SystemClock.now().to_string();
        while app.pods.len() < replicas {
            cluster.put_raw(add_pod(app, created, true, &started));
        }
        while app.pods.len() > replicas
            && let Some(pod) = app.pods.pop()
        {
            // No other client deletes pods, so the deletion cannot fail.
            let _ = cluster.delete_now("pods", namespace, &pod.name);
        }
        if let Some(mut deployment) = cluster.get("apps/deployments", namespace, name) {
            for field in ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas"] {
                if let Some(count) = deployment.pointer_mut(&format!("/status/{field}")) {
                    *count = replicas.into();
                }
            }
            cluster.put_raw(deployment);
        }
    }

    /// Replaces the first pod of an app. A new pod is created and becomes ready. Then the first pod is marked for
    /// deletion and deleted.
    pub(crate) fn replace_pod(&self, cluster: &Cluster, number: usize) {
        let mut state = self.state.lock();
        let State { apps, created, .. } = &mut *state;
        let number = number % apps.len().max(1);
        let Some(app) = apps.get_mut(number) else { return };
        if app.pods.is_empty() {
            return;
        }
        let old = app.pods.remove(0);
        let started = SystemClock.now().to_string();
        cluster.put_raw(add_pod(app, created, false, &started));
        if let Some(new) = app.pods.last() {
            cluster.put_raw(objects::pod(&app.namespace, &app.name, &new.name, true, &started));
        }
        // No other client deletes pods, so the deletion cannot fail.
        let _ = cluster.delete("pods", &app.namespace, &old.name);
        let _ = cluster.delete_now("pods", &app.namespace, &old.name);
    }
}

/// Changes the ClusterScalingPolicy, without an effect on replica counts.
pub(crate) fn change_policy(cluster: &Cluster, number: usize) {
    cluster.put_raw(objects::cluster_policy(number));
}

fn create_hpa(cluster: &Cluster, app: &App) {
    let hpa = objects::hpa(&app.namespace, &app.name, app.kind, app.query);
    if let Err(status) = cluster.create(hpa) {
        eprintln!("{}: {status}", app.key());
    }
}

/// Adds a pod to an app. Returns the object of the pod.
fn add_pod(app: &mut App, created: &mut u64, ready: bool, started: &str) -> Value {
    *created += 1;
    let name = format!("{}-5d9c7b8f6d-{created:07}", app.name);
    let pod = objects::pod(&app.namespace, &app.name, &name, ready, started);
    app.pods.push(objects::Pod::new(&app.namespace, name));
    pod
}
