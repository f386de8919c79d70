//! Runs the workloads of several seeds under one controller, and records their counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::adapter::Adapter;
use crate::controlplane::ControlPlane;
use crate::metrics::{self, CUSTOM, EXTERNAL, RESOURCE};
use crate::outcome::{Context as _, Outcome, ensure};
use crate::plan::{App, REQUEST, metric_name};
use crate::rest::Rest;
use crate::world::Autoscaler;

/// The interval of reading the counts. It is much shorter than the tolerance of the comparison.
const SAMPLE: Duration = Duration::from_millis(200);
/// The interval in which pods are created, become ready and are deleted.
const ROUND: Duration = Duration::from_millis(100);
/// The time from the start of the controller to the start of the loads.
const SETTLE: Duration = Duration::from_secs(8);
/// The time after which a sample or a round is late, in milliseconds.
pub(crate) const LATE: i64 = 1000;
/// The age of the pods with which a run starts, in milliseconds. It is longer than the periods after the start of a pod,
/// so that the time which a controller takes to start does not matter.
const AGE: i64 = 60_000;

/// The count of a workload over time: each change with its time since the start of the loads, in milliseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trajectory(pub(crate) Vec<(i64, i64)>);

/// By namespace and name of the workload.
pub(crate) type Trajectories = BTreeMap<(String, String), Trajectory>;

pub(crate) struct Recording {
    pub(crate) trajectories: Trajectories,
    /// The longest delay of a sample or of a change of pods, in milliseconds.
    pub(crate) delay: i64,
}

struct Pod {
    name: String,
    created: i64,
    ready: i64,
    deleted: Option<i64>,
    /// Whether the pod is ready on the API server, if it exists there.
    shown: Option<bool>,
}

impl Pod {
    fn is_ready(&self, time: i64) -> bool {
        self.ready <= time && self.deleted.is_none_or(|deleted| deleted > time)
    }
}

struct Workload {
    app: App,
    pods: Vec<Pod>,
    /// The count in the spec.
    count: i64,
    /// The count in the status.
    shown: i64,
    trajectory: Trajectory,
}

/// The workloads of a run. Times are in milliseconds since the creation of this object.
struct Workloads {
    all: BTreeMap<(String, String), Workload>,
    created: Instant,
    /// The start of the loads.
    start: Option<i64>,
    delay: i64,
}

impl Workloads {
    fn time(&self) -> i64 {
        i64::try_from(self.created.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// The time of the metrics of a workload that its controllers see now, and its load at this time.
    fn measured(&self, app: &App) -> (i64, i64) {
        let (now, start) = (self.time(), self.start.unwrap_or_default());
        let since = now - app.delay - start;
        let since = since - since.rem_euclid(app.interval);
        (start + since, app.load.at(if self.start.is_some() { since } else { 0 }))
    }
}

/// The API server, the metrics APIs and the workloads of the current run.
pub(crate) struct Stage {
    plane: ControlPlane,
    workloads: Arc<Mutex<Workloads>>,
    runs: u32,
    _adapter: Adapter,
}

impl Stage {
    pub(crate) async fn start() -> Outcome<Self> {
        let plane = ControlPlane::start_with_audit_policy(None).await?;
        let workloads = Arc::new(Mutex::new(empty()));
        let answers = Arc::clone(&workloads);
        let adapter =
            Adapter::start(move |request| match answer(&answers.lock(), &request.path, &request.query) {
                Some(body) => (200, "application/json", body.to_string()),
                None => (404, "application/json", metrics::not_found(&request.path).to_string()),
            })
            .await?;
        adapter.register(&plane.admin).await?;
        Ok(Self { plane, workloads, runs: 0, _adapter: adapter })
    }

    /// Runs the workloads of each plan in their own namespace for a time after the start of their loads. The names of
    /// the namespaces end with the names of the plans.
    pub(crate) async fn run(
        &mut self,
        which: Autoscaler,
        plans: &[(String, Vec<App>)],
        flags: &[&str],
        time: Duration,
    ) -> Outcome<Recording> {
        self.runs += 1;
        let api = self.plane.admin.clone();
        let mut namespaces = Vec::new();
        *self.workloads.lock() = empty();
        for (name, apps) in plans {
            let namespace = format!("run-{}-{name}", self.runs);
            api.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await?;
            for app in apps {
                create(&api, &namespace, app).await?;
                self.add(&namespace, app);
            }
            namespaces.push(namespace);
        }
        self.round().await?;
        let mut controller = which.start(&self.plane, flags).await?;
        let clock = async {
            sleep(SETTLE).await;
            // The API has times in seconds. With the same fraction of a second, the runs see the same times.
            #[allow(clippy::disallowed_methods, reason = "a real control plane runs in real time")]
            let fraction = Timestamp::now().subsec_millisecond();
            sleep(Duration::from_millis(u64::try_from(1000 - fraction)?)).await;
            {
                let mut workloads = self.workloads.lock();
                workloads.start = Some(workloads.time());
            }
            sleep(time).await;
            Outcome::Ok(())
        };
        tokio::select! {
            biased;
            ended = clock => ended,
            ended = self.sample(&namespaces) => ended,
            ended = self.update_pods() => ended,
        }
        .context(controller.tail(20))?;
        controller.still_runs()?;
        drop(controller);
        for namespace in &namespaces {
            for collection in [
                format!("/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"),
                format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
                format!("/api/v1/namespaces/{namespace}/pods"),
            ] {
                api.delete_now(&collection).await?;
            }
        }
        let mut workloads = self.workloads.lock();
        let start = workloads.start.unwrap_or_default();
        let mut trajectories = Trajectories::new();
        for ((namespace, app), mut workload) in std::mem::take(&mut workloads.all) {
            workload.trajectory.0.iter_mut().for_each(|(time, _)| *time -= start);
            let plan = namespace.splitn(3, '-').last().unwrap_or_default().to_owned();
            trajectories.insert((plan, app), workload.trajectory);
        }
        Ok(Recording { trajectories, delay: workloads.delay })
    }

    fn add(&self, namespace: &str, app: &App) {
        let mut workloads = self.workloads.lock();
        let (now, count) = (workloads.time(), app.initial());
        let mut workload = Workload {
            app: app.clone(),
            pods: Vec::new(),
            count,
            shown: 0,
            trajectory: Trajectory(vec![(now, count)]),
        };
        if app.has_pods {
            for _ in 0..count {
                workload.add_pod(now - AGE, now - AGE);
            }
        }
        workloads.all.insert((namespace.to_owned(), app.name.clone()), workload);
    }

    /// Reads the counts of all workloads in a loop.
    async fn sample(&self, namespaces: &[String]) -> Outcome {
        let mut ticks = interval(SAMPLE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        loop {
            ticks.tick().await;
            let lists = namespaces.iter().map(|namespace| {
                let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments?resourceVersion=0");
                async move { self.plane.admin.list(&path).await }
            });
            let lists = try_join_all(lists).await?;
            let mut workloads = self.workloads.lock();
            let now = workloads.time();
            if workloads.start.is_some() {
                workloads.delay = workloads.delay.max(now - last.unwrap_or(now));
                last = Some(now);
            }
            for (namespace, list) in namespaces.iter().zip(lists) {
                for deployment in list {
                    let name = deployment["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                    let count = deployment["spec"]["replicas"].as_i64().unwrap_or_default();
                    let Some(workload) = workloads.all.get_mut(&(namespace.clone(), name)) else { continue };
                    if workload.count != count {
                        workload.count = count;
                        workload.trajectory.0.push((now, count));
                    }
                }
            }
        }
    }

    /// Creates and deletes pods in a loop, as the controllers of workloads and the kubelets do.
    async fn update_pods(&self) -> Outcome {
        let mut ticks = interval(ROUND);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let began = self.workloads.lock().time();
            self.round().await?;
            let mut workloads = self.workloads.lock();
            if workloads.start.is_some() {
                workloads.delay = workloads.delay.max(workloads.time() - began);
            }
        }
    }

    async fn round(&self) -> Outcome {
        let changes: Vec<Change> = {
            let mut workloads = self.workloads.lock();
            let now = workloads.time();
            let all = workloads.all.iter_mut();
            all.flat_map(|((namespace, _), workload)| workload.changes(namespace, now)).collect()
        };
        try_join_all(changes.iter().map(|change| change.send(&self.plane.admin))).await.map(drop)
    }
}

fn empty() -> Workloads {
    Workloads { all: BTreeMap::new(), created: Instant::now(), start: None, delay: 0 }
}

async fn create(api: &Rest, namespace: &str, app: &App) -> Outcome {
    let name = &app.name;
    let labels = json!({"app": name});
    let deployment = json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": app.initial(), "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container()]}},
        },
    });
    api.create(&format!("/apis/apps/v1/namespaces/{namespace}/deployments"), &deployment).await?;
    let mut hpa = json!({"metadata": {"name": name}, "spec": app.spec});
    hpa["spec"]["scaleTargetRef"] = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    api.create(&format!("/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"), &hpa)
        .await
        .map(drop)
}

fn container() -> Value {
    let requests = json!({"cpu": format!("{REQUEST}m")});
    json!({"name": "app", "image": "example.com/app", "resources": {"requests": requests}})
}

/// A write to the API server.
enum Change {
    Create { pods: String, pod: Value, status: Value },
    Patch { path: String, status: Value },
    Delete { path: String },
}

impl Change {
    async fn send(&self, api: &Rest) -> Outcome {
        match self {
            Self::Create { pods, pod, status } => {
                api.create(pods, pod).await?;
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                api.merge(&format!("{pods}/{name}/status"), status).await.map(drop)
            }
            Self::Patch { path, status } => api.merge(path, status).await.map(drop),
            Self::Delete { path } => api.delete_now(path).await,
        }
    }
}

impl Workload {
    fn add_pod(&mut self, created: i64, ready: i64) {
        let name = format!("{}-{}", self.app.name, self.pods.len());
        self.pods.push(Pod { name, created, ready, deleted: None, shown: None });
    }

    /// Moves the pods towards the count of the spec, and returns the writes for this.
    fn changes(&mut self, namespace: &str, now: i64) -> Vec<Change> {
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let mut changes = Vec::new();
        let mut live =
            i64::try_from(self.pods.iter().filter(|pod| pod.deleted.is_none()).count()).unwrap_or(0);
        if self.app.has_pods {
            while live < self.count {
                self.add_pod(now, now + self.app.startup);
                live += 1;
            }
            for pod in self.pods.iter_mut().rev().filter(|pod| pod.deleted.is_none()) {
                if live <= self.count {
                    break;
                }
                pod.deleted = Some(now);
                changes.push(Change::Delete { path: format!("{pods}/{}", pod.name) });
                live -= 1;
            }
        } else {
            live = self.count;
        }
        for pod in self.pods.iter_mut().filter(|pod| pod.deleted.is_none()) {
            let ready = pod.is_ready(now);
            if pod.shown.is_none() {
                let body = json!({
                    "metadata": {"name": pod.name, "labels": {"app": self.app.name}},
                    "spec": {"containers": [container()]},
                });
                let status = pod_status(ready, Some(now - pod.created));
                changes.push(Change::Create { pods: pods.clone(), pod: body, status });
            } else if pod.shown != Some(ready) {
                let path = format!("{pods}/{}/status", pod.name);
                changes.push(Change::Patch { path, status: pod_status(ready, None) });
            }
            pod.shown = Some(ready);
        }
        if self.shown != live {
            self.shown = live;
            let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{}/status", self.app.name);
            changes.push(Change::Patch { path, status: json!({"status": {"replicas": live}}) });
        }
        changes
    }
}

/// The status of a pod that changes now, or of a new pod of an age in milliseconds.
fn pod_status(ready: bool, age: Option<i64>) -> Value {
    let since = metrics::before_now(age.unwrap_or_default() / 1000);
    let status = if ready { "True" } else { "False" };
    let condition = json!({"type": "Ready", "status": status, "lastTransitionTime": since});
    let mut status = json!({"phase": "Running", "conditions": [condition]});
    if age.is_some() {
        status["startTime"] = json!(since);
    }
    json!({"status": status})
}

/// Answers a request to one of the three metrics APIs.
fn answer(workloads: &Workloads, path: &str, query: &str) -> Option<Value> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, namespace, rest) = match parts.as_slice() {
        ["apis", group, version] => return metrics::discovery(group, version),
        ["apis", group, _, "namespaces", namespace, rest @ ..] => (*group, *namespace, rest),
        _ => return None,
    };
    let of = |metric: &str| {
        let found = |(key, workload): &(&(String, String), &Workload)| {
            key.0 == namespace && metric_name(&workload.app.name) == metric
        };
        workloads.all.iter().find(found).map(|(_, workload)| workload)
    };
    match (group, rest) {
        (RESOURCE, ["pods"]) => {
            let app = metrics::selector(query).remove("app");
            let chosen = workloads.all.iter().filter(|((in_namespace, name), _)| {
                in_namespace == namespace && app.as_ref().is_none_or(|app| app == name)
            });
            let items: Vec<_> =
                chosen.flat_map(|(_, workload)| usage(workloads, workload, namespace)).collect();
            Some(json!({
                "kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items,
            }))
        }
        (CUSTOM, ["pods", "*", metric]) => {
            let workload = of(metric)?;
            let (time, value) = share(workloads, workload);
            let ready = workload.pods.iter().filter(|pod| pod.deleted.is_none() && pod.is_ready(time));
            let items: Vec<_> = ready
                .map(|pod| {
                    let object =
                        json!({"kind": "Pod", "namespace": namespace, "name": pod.name, "apiVersion": "/v1"});
                    metrics::metric_value(&object, metric, &format!("{value}m"))
                })
                .collect();
            Some(metrics::metric_values(&items))
        }
        (CUSTOM, [resource, name, metric]) => {
            let (_, value) = share(workloads, of(metric)?);
            let object = json!({"kind": resource, "namespace": namespace, "name": name});
            Some(metrics::metric_values(&[metrics::metric_value(&object, metric, &format!("{value}m"))]))
        }
        (EXTERNAL, [metric]) => {
            let (_, load) = workloads.measured(&of(metric)?.app);
            Some(metrics::external_values(metric, std::iter::once(&format!("{load}m"))))
        }
        _ => None,
    }
}

/// The time of the metrics of a workload, and the load of each of its ready pods.
fn share(workloads: &Workloads, workload: &Workload) -> (i64, i64) {
    let (time, load) = workloads.measured(&workload.app);
    let ready = workload.pods.iter().filter(|pod| pod.is_ready(time)).count();
    (time, load / i64::try_from(ready.max(1)).unwrap_or(1))
}

/// The usage of the pods of a workload. A pod that starts uses a tenth of its request.
fn usage(workloads: &Workloads, workload: &Workload, namespace: &str) -> Vec<Value> {
    let (time, share) = share(workloads, workload);
    let age = (workloads.time() - time) / 1000;
    let measured = workload.pods.iter().filter(|pod| pod.deleted.is_none() && pod.created <= time);
    measured
        .map(|pod| {
            let milli = if pod.is_ready(time) { share * REQUEST / 2000 } else { REQUEST / 10 };
            json!({
                "metadata": {"name": pod.name, "namespace": namespace, "labels": {"app": workload.app.name}},
                "timestamp": metrics::before_now(age), "window": "1s",
                "containers": [{"name": "app", "usage": {"cpu": format!("{milli}m")}}],
            })
        })
        .collect()
}

impl Trajectory {
    /// The count at a time.
    pub(crate) fn at(&self, time: i64) -> i64 {
        let last = self.0.iter().rev().find(|(change, _)| *change <= time).or_else(|| self.0.first());
        last.map_or(0, |(_, count)| *count)
    }

    /// Whether the count is one that this trajectory has within `tolerance` of the time, or between two of them.
    pub(crate) fn allows(&self, count: i64, time: i64, tolerance: i64) -> bool {
        let within = self.0.iter().filter(|(change, _)| (change - time).abs() <= tolerance);
        let (mut low, mut high) = (self.at(time - tolerance), self.at(time - tolerance));
        for (_, count) in within {
            (low, high) = (low.min(*count), high.max(*count));
        }
        (low..=high).contains(&count)
    }

    /// The changes after the start of the loads.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (i64, i64)> {
        self.0.iter().copied().filter(|(time, _)| *time >= 0)
    }

    /// Each change as `count@seconds`.
    pub(crate) fn text(&self) -> String {
        let steps =
            self.steps().map(|(time, count)| format!(" {count}@{}.{}", time / 1000, time % 1000 / 100));
        format!("{}{}", self.at(0), steps.collect::<String>())
    }
}

/// Fails unless the HPAs of a recording have scaled often enough for a comparison.
pub(crate) fn ensure_moves(recording: &Recording, at_least: usize) -> Outcome {
    let moves: usize = recording.trajectories.values().map(|trajectory| trajectory.steps().count()).sum();
    ensure(moves >= at_least, || format!("only {moves} changes of counts"))
}
