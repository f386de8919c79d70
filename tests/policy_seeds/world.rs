//! Runs a plan with processes of the controller and the embedded cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fake_cluster::{
    Answer, BareScale, Cluster, Exchange, FaultAction, FaultId, Link, ScalePath, Server, Status,
};
use flags::Config;
use flags::config::TakeOver;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::bugs::{Alteration, PlantedBug};
use crate::plan::{Event, Failure, LABEL, List, METRICS, Metric, NAMES, Plan, Policy, metric_name};
use crate::support::objects::{SHOP, external, hpa, pod};
use crate::support::{Fixture, Process};

/// The replicas of each target at the start.
pub(crate) const FIRST_COUNT: i64 = 4;
/// The time for which HPAs without a policy wait for a list that fails with 503.
const PATIENCE: Duration = Duration::from_mins(1);
const HPAS: &str = "autoscaling/horizontalpodautoscalers";
const ANNOTATION: &str = "concertina.dev/policy";
const NAMESPACED: (&str, &str, &str) = ("ScalingPolicy", "autoscaling.concertina.dev/scalingpolicies", SHOP);
const CLUSTER: (&str, &str, &str) =
    ("ClusterScalingPolicy", "autoscaling.concertina.dev/clusterscalingpolicies", "");

/// A successful write of a Scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) hpa: usize,
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// Whether a policy that the process cannot know yet may forbid the write.
    pub(crate) is_premature: bool,
}

type Writes = Arc<Mutex<Vec<(i64, Write)>>>;

/// The connection of a process to the cluster. It records writes of Scales and applies the planted bug.
#[derive(Debug)]
struct Recorded {
    cluster: Cluster,
    started: Instant,
    writes: Writes,
    alteration: Alteration,
    /// The time at which the process started.
    since: Instant,
    unlisted: Arc<Mutex<Option<Unlisted>>>,
    annotated: Annotated,
}

/// The times at which HPAs got their annotations.
type Annotated = Arc<Mutex<[Option<Instant>; NAMES.len()]>>;

/// A list of policies that fails.
#[derive(Debug, Clone, Copy)]
struct Unlisted {
    failure: Failure,
    since: Instant,
}

impl Recorded {
    /// Whether the process writes a Scale although policies that it cannot know may forbid the write.
    fn is_premature(&self, hpa: usize) -> bool {
        let Some(Unlisted { failure, since }) = *self.unlisted.lock() else { return false };
        // A process that is older knows the policies.
        if self.since < since || failure == Failure::NotFound {
            return false;
        }
        let waits = match failure {
            Failure::Forbidden | Failure::NotFound => false,
            Failure::Unavailable => self.since.elapsed() < PATIENCE,
            Failure::Slow(seconds) => self.since.elapsed() < Duration::from_secs(seconds),
        };
        let is_annotated = self.annotated.lock()[hpa].is_some_and(|at| at.elapsed() > Duration::from_secs(1));
        let object = self.cluster.get(HPAS, SHOP, NAMES[hpa]).unwrap();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_slow = matches!(failure, Failure::Slow(_));
        let had_policy =
            is_annotated || conditions.iter().any(|condition| condition["type"] == "ScalingPolicyActive");
        waits || (had_policy && !is_slow)
    }
}

impl Link for Recorded {
    fn carry(self: Arc<Self>, exchange: Exchange, server: Server) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let path = scale_of(&exchange);
            let from =
                path.as_ref().and_then(|(_, path)| self.cluster.scale(path)).map(|scale| scale.spec_replicas);
            let answer = server.answer(exchange.clone()).await;
            if let (Some((hpa, path)), Some(from), Some(200)) = (path, from, answer.code()) {
                let is_premature = self.is_premature(hpa);
                let scale = self.cluster.scale(&path).unwrap();
                let to = scale.spec_replicas;
                // The status of the target follows at once.
                self.cluster.put_scale(&path, BareScale { status_replicas: to, ..scale });
                self.writes
                    .lock()
                    .push((millis(self.started.elapsed()), Write { hpa, from, to, is_premature }));
            }
            self.alteration.answer(&exchange, answer)
        })
    }
}

/// The number of the HPA and the path of the Scale that a request writes. `None` for other requests.
fn scale_of(exchange: &Exchange) -> Option<(usize, ScalePath)> {
    let target = exchange.path.strip_suffix("/scale").filter(|_| exchange.verb == "update")?;
    let hpa = NAMES.iter().position(|name| target.ends_with(&format!("/{name}")))?;
    Some((
        hpa,
        ScalePath {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            resource: "deployments".to_owned(),
            namespace: SHOP.to_owned(),
            name: NAMES[hpa].to_owned(),
        },
    ))
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap()
}

/// The state of a run.
struct World<'a> {
    plan: &'a Plan,
    stage: Fixture,
    started: Instant,
    writes: Writes,
    metrics: BTreeMap<String, Value>,
    /// The injected faults by the names of the failing metrics.
    failing: BTreeMap<String, FaultId>,
    processes: Vec<(String, Process)>,
    starts: usize,
    bug: Option<PlantedBug>,
    unlisted: Arc<Mutex<Option<Unlisted>>>,
    /// The fault of the list that fails.
    fault: Option<FaultId>,
    annotated: Annotated,
}

/// Runs a plan. Returns the writes of Scales, with their times in milliseconds.
pub(crate) async fn play(plan: &Plan, bug: Option<PlantedBug>) -> Vec<(i64, Write)> {
    let mut world = World {
        plan,
        stage: Fixture::starting_at(plan.epoch),
        started: Instant::now(),
        writes: Writes::default(),
        metrics: BTreeMap::new(),
        failing: BTreeMap::new(),
        processes: Vec::new(),
        starts: 0,
        bug,
        unlisted: Arc::default(),
        fault: None,
        annotated: Arc::default(),
    };
    for (index, name) in NAMES.iter().enumerate() {
        world.stage.target(name, FIRST_COUNT);
        world.stage.create(object(plan, index));
    }
    let mut events = plan.events.iter().peekable();
    while let Some((_, event)) = events.next_if(|(at, _)| *at == 0) {
        world.apply(event);
    }
    world.start();
    world.start();
    for (at, event) in events {
        sleep_until(world.started + Duration::from_millis(u64::try_from(*at).unwrap())).await;
        world.apply(event);
    }
    sleep_until(world.started + Duration::from_millis(u64::try_from(plan.end).unwrap())).await;
    for (_, process) in &world.processes {
        process.cut_off();
    }
    world.writes.lock().clone()
}

/// An HPA that follows its metrics without a delay.
fn object(plan: &Plan, index: usize) -> Value {
    let metrics = [0, 1].map(|metric| external(&metric_name(index, metric), "10"));
    let mut object = hpa(NAMES[index], &metrics);
    let (minimum, maximum) = plan.bounds[index];
    object["spec"]["minReplicas"] = json!(minimum);
    object["spec"]["maxReplicas"] = json!(maximum);
    let at_once = json!({
        "stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1000, "periodSeconds": 1}],
    });
    object["spec"]["behavior"] = json!({"scaleUp": at_once, "scaleDown": at_once});
    object
}

impl World<'_> {
    fn start(&mut self) {
        let number = self.starts;
        self.starts += 1;
        let identity = format!("replica-{number}");
        let mut config = Config { takeover: TakeOver::Off, ..Config::default() };
        config.controller.watch_scaling_policies = true;
        config.controller.metric_sharing = None;
        config.controller.watch_targets = false;
        let link = Recorded {
            cluster: self.stage.cluster.clone(),
            started: self.started,
            writes: Arc::clone(&self.writes),
            alteration: Alteration::new(self.bug, number),
            since: Instant::now(),
            unlisted: Arc::clone(&self.unlisted),
            annotated: Arc::clone(&self.annotated),
        };
        let process = Process::start_behind(&self.stage, &identity, config, Some(Arc::new(link)));
        self.processes.push((identity, process));
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Metric { hpa, metric, state } => self.metric(*hpa, *metric, *state),
            Event::Annotation { hpa, policy } => {
                self.annotated.lock()[*hpa] = policy.as_ref().map(|_| Instant::now());
                let text = policy.as_ref().map(|policy| policy.spec(self.plan, &[*hpa]).to_string());
                self.stage.edit(NAMES[*hpa], |hpa| {
                    hpa["metadata"]["annotations"] = match text {
                        Some(text) => json!({ ANNOTATION: text }),
                        None => json!({}),
                    }
                });
            }
            Event::Namespaced(policy) => self.policy(NAMESPACED, policy.as_ref()),
            Event::Cluster(policy) => self.policy(CLUSTER, policy.as_ref()),
            Event::Label { hpa, is_set } => {
                let labels = if *is_set { json!({ LABEL: "shop" }) } else { json!({}) };
                self.stage.edit(NAMES[*hpa], |hpa| hpa["metadata"]["labels"] = labels);
            }
            Event::Zero { hpa } => {
                for metric in 0..METRICS.len() {
                    self.metric(*hpa, metric, Metric::Value(0));
                }
            }
            Event::PendingPods { hpa, pods } => self.pending(NAMES[*hpa], *pods),
            Event::Death => self.death(),
            Event::Unlisted { list, failure, is_start } => self.unlist(*list, *failure, *is_start),
            Event::Listed => {
                *self.unlisted.lock() = None;
                self.fault.take().map(|fault| self.stage.cluster.faults().remove(fault));
            }
            Event::Known => {}
        }
    }

    fn metric(&mut self, hpa: usize, metric: usize, state: Metric) {
        let name = metric_name(hpa, metric);
        let item = |value: i64| {
            json!({
                "metricName": name, "metricLabels": {}, "timestamp": self.plan.epoch.to_string(), "value": value.to_string(),
            })
        };
        if let Some(fault) = self.failing.remove(&name) {
            self.stage.cluster.faults().remove(fault);
        }
        let items = match state {
            Metric::Value(value) => vec![item(value)],
            Metric::Empty => Vec::new(),
            Metric::Error => {
                let error = Status::new(503, "ServiceUnavailable", "the adapter is down");
                let fault = self.stage.fault(&format!("/{name}"), FaultAction::Status(error));
                self.failing.insert(name, fault);
                return;
            }
        };
        self.metrics.insert(name, json!({ "items": items }));
        self.stage.metrics.set_external(self.metrics.clone().into_iter().collect());
    }

    /// Creates or deletes pods so that `pods` pods are pending.
    fn pending(&self, app: &str, pods: i64) {
        for index in 0..4 {
            let mut pod = pod(app, index);
            let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
            let exists = self.stage.cluster.get("pods", SHOP, &name).is_some();
            if i64::try_from(index).unwrap() >= pods {
                if exists {
                    self.stage.cluster.delete("pods", SHOP, &name).unwrap();
                }
            } else if !exists {
                pod["status"] = json!({ "phase": "Pending" });
                self.stage.cluster.put_raw(pod);
            }
        }
    }

    fn policy(&self, (kind, resource, namespace): (&str, &str, &str), policy: Option<&Policy>) {
        let known = self.stage.cluster.get(resource, namespace, "drawn");
        let Some(policy) = policy else {
            if known.is_some() {
                self.stage.cluster.delete(resource, namespace, "drawn").unwrap();
            }
            return;
        };
        let all: Vec<usize> = (0..NAMES.len()).collect();
        let mut spec = policy.spec(self.plan, &all);
        if kind == NAMESPACED.0 {
            spec["selector"] = json!({"matchLabels": {LABEL: "shop"}});
        }
        if let Some(mut object) = known {
            object["spec"] = spec;
            self.stage.cluster.update(object).unwrap();
            return;
        }
        let mut metadata = json!({"name": "drawn"});
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        self.stage.create(json!({
            "apiVersion": "autoscaling.concertina.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec,
        }));
    }

    /// Lets a list of policies fail. Replaces all processes, or the leader.
    fn unlist(&mut self, list: List, failure: Failure, is_start: bool) {
        let action = match failure {
            Failure::Forbidden => FaultAction::Status(Status::new(403, "Forbidden", "planned")),
            Failure::Unavailable => FaultAction::Status(Status::new(503, "ServiceUnavailable", "planned")),
            Failure::NotFound => FaultAction::Status(Status::new(404, "NotFound", "planned")),
            Failure::Slow(seconds) => FaultAction::Delay(Duration::from_secs(seconds)),
        };
        let suffix = match list {
            List::Resources => "/autoscaling.concertina.dev/v1alpha1",
            List::Namespaced => "/scalingpolicies",
            List::Cluster => "/clusterscalingpolicies",
            List::Namespaces => "/v1/namespaces",
        };
        self.fault = Some(self.stage.fault(suffix, action));
        *self.unlisted.lock() = Some(Unlisted { failure, since: Instant::now() });
        if !is_start {
            return self.death();
        }
        for (_, process) in self.processes.drain(..) {
            process.cut_off();
        }
        self.start();
        self.start();
    }

    /// Disconnects the leader permanently and starts another process.
    fn death(&mut self) {
        let leases = self.stage.cluster.list("coordination.k8s.io/leases", None);
        let holder = leases.first().map(|lease| lease["spec"]["holderIdentity"].clone()).unwrap_or_default();
        if let Some(index) = self.processes.iter().position(|(identity, _)| holder == *identity) {
            let (_, process) = self.processes.remove(index);
            process.cut_off();
            self.start();
        }
    }
}

const _: () = assert!(METRICS.len() == 2, "the model has two metrics for each HPA");
