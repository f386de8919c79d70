//! The world in front of a controller: HPAs, Deployments and pods in an embedded cluster, their load, and what happens.
//!
//! Pods follow scale writes at once and are ready at once, so what is measured is the controller and not a rollout. The
//! load of an app is spread over its pods; it moves a little every second, within the tolerance, so that every sync has a
//! new status to write and none another count.

mod metrics;
mod objects;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use concertina::clock::{Clock as _, SystemClock};
use concertina::embedded::Cluster;
use serde_json::Value;

use crate::workload::{FEW_PODS, Kind, POISONED, Workload};

/// Apps, their pods, and who answers for their metrics.
#[derive(Debug)]
pub(crate) struct World {
    workload: Workload,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    apps: Vec<App>,
    /// Places in `apps`, by namespace and name.
    places: BTreeMap<String, BTreeMap<String, usize>>,
    /// Pods made so far.
    made: u64,
    /// The text of the present second, written once.
    stamp: (i64, String),
}

/// A Deployment with its pods, and what they have to do.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) namespace: String,
    pub(crate) name: String,
    kind: Kind,
    /// Which external query it asks.
    query: usize,
    pods: Vec<metrics::Pod>,
    /// Pods that its usual load is made for.
    usual: usize,
    /// By how much the load exceeds the usual one.
    factor: u64,
    /// Text of every PodMetrics between its two times.
    labels: String,
}

impl App {
    /// `namespace/name`.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl World {
    /// The apps of a workload, and as many besides as probes will be created; nothing is in a cluster yet.
    pub(crate) fn new(workload: &Workload) -> Self {
        let all = workload.all_hpas();
        let mut state =
            State { apps: Vec::new(), places: BTreeMap::new(), made: 0, stamp: (0, String::new()) };
        for number in 0..all + workload.probes {
            let is_in_large = workload.skewed && number < all / 10;
            let small = workload.namespaces.saturating_sub(1).max(1);
            let namespace = match number {
                _ if is_in_large => 0,
                // A probe is to be answered.
                number if workload.poisoned && number >= all => 1 + number % small,
                number if workload.skewed => 1 + number % small,
                number => number % workload.namespaces.max(1),
            };
            let is_measured = number < workload.hpas;
            let app = App {
                namespace: format!("team-{namespace:03}"),
                name: format!("checkout-{number:05}"),
                kind: if is_measured { workload.kind } else { Kind::Cpu },
                query: number % workload.queries.max(1),
                pods: Vec::new(),
                usual: if is_in_large { FEW_PODS } else { workload.pods },
                factor: 1,
                labels: metrics::labels_text(&format!("checkout-{number:05}")),
            };
            state.places.entry(app.namespace.clone()).or_default().insert(app.name.clone(), number);
            state.apps.push(app);
        }
        Self { workload: workload.clone(), state: Mutex::new(state) }
    }

    /// Puts everything into a cluster but the HPAs of probes.
    pub(crate) fn build(&self, cluster: &Cluster) {
        let all = self.workload.all_hpas();
        for number in 0..all + self.workload.probes {
            for object in self.furnish(number) {
                cluster.put_raw(object);
            }
        }
        for app in self.lock().apps.iter().take(all) {
            create_hpa(cluster, app);
        }
    }

    /// The Deployment of an app and its pods, which get their names here, as they are when all are ready. One app after
    /// the other gives the same names every time.
    pub(crate) fn furnish(&self, number: usize) -> Vec<Value> {
        let started = (SystemClock.now() - jiff::SignedDuration::from_hours(1)).to_string();
        let mut state = self.lock();
        let State { apps, made, .. } = &mut *state;
        let Some(app) = apps.get_mut(number) else { return Vec::new() };
        let mut objects = vec![objects::deployment(&app.namespace, &app.name, app.usual)];
        objects.extend((0..app.usual).map(|_| add_pod(app, made, true, &started)));
        objects
    }

    /// The HPA of an app.
    pub(crate) fn hpa(&self, number: usize) -> Option<Value> {
        let state = self.lock();
        let app = state.apps.get(number)?;
        Some(objects::hpa(&app.namespace, &app.name, app.kind, app.query))
    }

    /// The keys of HPAs: those that are there from the beginning, then those of probes.
    pub(crate) fn keys(&self) -> (Vec<String>, Vec<String>) {
        let mut all: Vec<_> = self.lock().apps.iter().map(App::key).collect();
        let probes = all.split_off(self.workload.all_hpas());
        (all, probes)
    }

    /// The key of an app's HPA.
    pub(crate) fn key(&self, number: usize) -> String {
        self.lock().apps.get(number).map(App::key).unwrap_or_default()
    }

    /// Creates the HPA of an app that has none.
    pub(crate) fn create(&self, cluster: &Cluster, number: usize) {
        if let Some(app) = self.lock().apps.get(number) {
            create_hpa(cluster, app);
        }
    }

    /// Allows the HPA of an app one replica more, and says its generation then; none of one whose metrics hang.
    pub(crate) fn change_spec(&self, cluster: &Cluster, number: usize) -> Option<i64> {
        let (namespace, name) = {
            let state = self.lock();
            let answers = |app: &&App| !(self.workload.poisoned && app.namespace == POISONED);
            let app = state.apps.get(number).filter(answers)?;
            (app.namespace.clone(), app.name.clone())
        };
        let mut hpa = cluster.get("autoscaling/horizontalpodautoscalers", &namespace, &name)?;
        let most = hpa.pointer_mut("/spec/maxReplicas")?;
        *most = Value::from(most.as_i64()? + 1);
        cluster.update(hpa).ok()?.pointer("/metadata/generation")?.as_i64()
    }

    /// Doubles the load of every tenth HPA; their keys.
    pub(crate) fn step(&self) -> Vec<String> {
        let all = self.workload.all_hpas();
        let mut state = self.lock();
        let stepped = state.apps.iter_mut().take(all).step_by(10);
        stepped
            .map(|app| {
                app.factor = 2;
                app.key()
            })
            .collect()
    }

    /// Gives every HPA its usual load again; the keys of those that had another.
    pub(crate) fn calm(&self) -> Vec<String> {
        let mut state = self.lock();
        let stepped = state.apps.iter_mut().filter(|app| app.factor != 1);
        stepped
            .map(|app| {
                app.factor = 1;
                app.key()
            })
            .collect()
    }

    /// Gives an app as many pods as its Deployment now wants.
    pub(crate) fn resize(&self, cluster: &Cluster, namespace: &str, name: &str, replicas: usize) {
        let mut state = self.lock();
        let Some(place) = state.places.get(namespace).and_then(|names| names.get(name)).copied() else {
            return;
        };
        let State { apps, made, .. } = &mut *state;
        let Some(app) = apps.get_mut(place) else { return };
        let started = SystemClock.now().to_string();
        while app.pods.len() < replicas {
            cluster.put_raw(add_pod(app, made, true, &started));
        }
        while app.pods.len() > replicas
            && let Some(pod) = app.pods.pop()
        {
            // Nobody else deletes pods.
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

    /// Replaces one pod of an app: the new one comes, gets ready, the old one is announced to go and goes.
    pub(crate) fn replace_pod(&self, cluster: &Cluster, number: usize) {
        let mut state = self.lock();
        let State { apps, made, .. } = &mut *state;
        let number = number % apps.len().max(1);
        let Some(app) = apps.get_mut(number) else { return };
        if app.pods.is_empty() {
            return;
        }
        let old = app.pods.remove(0);
        let started = SystemClock.now().to_string();
        cluster.put_raw(add_pod(app, made, false, &started));
        if let Some(new) = app.pods.last() {
            cluster.put_raw(objects::pod(&app.namespace, &app.name, &new.name, true, &started));
        }
        // Nobody else deletes pods.
        let _ = cluster.delete("pods", &app.namespace, &old.name);
        let _ = cluster.delete_now("pods", &app.namespace, &old.name);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn create_hpa(cluster: &Cluster, app: &App) {
    let hpa = objects::hpa(&app.namespace, &app.name, app.kind, app.query);
    if let Err(status) = cluster.create(hpa) {
        eprintln!("{}: {status}", app.key());
    }
}

/// Names another pod of an app.
fn add_pod(app: &mut App, made: &mut u64, ready: bool, started: &str) -> Value {
    *made += 1;
    let name = format!("{}-5d9c7b8f6d-{made:07}", app.name);
    let pod = objects::pod(&app.namespace, &app.name, &name, ready, started);
    app.pods.push(metrics::Pod::new(&app.namespace, name));
    pod
}
