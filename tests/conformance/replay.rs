//! Replays one recording through the whole controller in virtual time.
//!
//! The recording contains the times of the syncs, so the test starts each sync itself, without the queue. Everything
//! else runs as in a cluster. Objects and metrics are changed shortly before a sync, so that the watches have delivered
//! them by the time of the sync.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::duration::GoDuration;
use autoscaling::selector::LabelSelector;
use autoscaling::settings::{Settings, Version};
use clock::{SharedClock, VirtualClock};
use cluster::client::{ClientOptions, Clients};
use cluster::mapper::Mapping;
use controller::assembly::{Assembly, Parts, Phase};
use controller::options::Options;
use engine::reconcile::WorkerPermit;
use engine::store::Key;
use engine::telemetry::metrics::Metrics;
use fake_cluster::metrics::StaticMetrics;
use fake_cluster::{BareScale, Cluster, FaultAction, FaultRule, LoggedRequest, ScalePath, Status};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::compare::{Outcome, difference, names_a_random_pod};

/// Time between the changes of objects and metrics for a sync and the sync.
const LEAD: Duration = Duration::from_millis(100);
const HPAS: &str = "autoscaling/horizontalpodautoscalers";

/// Representation of a recording's targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Targets {
    /// Bare Scales. Every sync reads the Scale of its target.
    Bare,
    /// Watched workloads. A Scale is read only before a write.
    Watched,
}

/// Whether workloads can represent all targets. A recorded failure to read a Scale, for example, cannot be represented.
pub(crate) fn has_workloads(recording: &Value) -> bool {
    let worlds = recording["syncs"].as_array().unwrap().iter().map(|sync| &sync["world"]);
    let mut targets = worlds.flat_map(|world| world["targets"].as_array().into_iter().flatten());
    targets.all(|target| !target["getFault"].is_object() && workload(target, "any").is_some())
}

/// Replays a recording up to its first difference. Returns the number of its syncs.
pub(crate) fn scenario(recording: &Value, targets: Targets, differences: &mut Vec<String>) -> usize {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(replay(recording, targets, differences));
    recording["syncs"].as_array().unwrap().len()
}

async fn replay(recording: &Value, targets: Targets, differences: &mut Vec<String>) {
    let syncs = recording["syncs"].as_array().unwrap();
    let any_count = names_a_random_pod(recording);
    let mut stage = Fixture::new(recording, targets);
    for (number, sync) in syncs.iter().enumerate() {
        let got = stage.sync(sync).await;
        if let Some(text) = difference(&sync["expect"], &got, any_count) {
            differences.push(format!(
                "{} ({}, {targets:?}), sync {number} of {} at {}{text}",
                recording["name"].as_str().unwrap(),
                recording["emulatedVersion"].as_str().unwrap(),
                sync["hpa"].as_str().unwrap(),
                sync["at"].as_str().unwrap(),
            ));
            break;
        }
    }
    stage.stop.cancel();
}

/// A cluster with a controller whose queue does not run.
struct Fixture {
    cluster: Cluster,
    metrics: Arc<StaticMetrics>,
    assembly: Assembly,
    stop: CancellationToken,
    origin: (Instant, Timestamp),
    kind: Targets,
    targets: BTreeSet<ScalePath>,
    pods: BTreeSet<(String, String)>,
}

impl Fixture {
    fn new(recording: &Value, kind: Targets) -> Self {
        let first: Timestamp = recording["syncs"][0]["at"].as_str().unwrap().parse().unwrap();
        let start = first.checked_sub(LEAD * 2).unwrap();
        let clock: SharedClock = Arc::new(VirtualClock::starting_at(start));
        let origin = (Instant::now(), start);
        let cluster = Cluster::new(Arc::clone(&clock));
        cluster.requests().keep_bodies();
        let metrics = Arc::new(StaticMetrics::new());
        cluster.set_metrics(Arc::clone(&metrics) as _);
        let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
        let options = Options { watch_targets: kind != Targets::Bare, ..options(recording) };
        let stop = CancellationToken::new();
        let parts = Parts {
            clients: &clients,
            options: &options,
            clock,
            telemetry: Metrics::new(),
            observers: Vec::new(),
            seed: 0,
            phase: Phase::FirstSync,
        };
        let assembly = Assembly::start(parts, &stop);
        let (targets, pods) = (BTreeSet::new(), BTreeSet::new());
        Self { cluster, metrics, assembly, stop, origin, kind, targets, pods }
    }

    async fn sync(&mut self, sync: &Value) -> Outcome {
        let at: Timestamp = sync["at"].as_str().unwrap().parse().unwrap();
        let instant = self.origin.0 + Duration::try_from(at.duration_since(self.origin.1)).unwrap();
        tokio::time::sleep_until(instant - LEAD).await;
        let (namespace, name) = sync["hpa"].as_str().unwrap().split_once('/').unwrap();
        self.set_object(&sync["object"]);
        self.set_world(&sync["world"], namespace);
        self.refer(namespace, name);
        tokio::time::sleep_until(instant).await;

        let before = self.cluster.get(HPAS, namespace, name).unwrap();
        self.cluster.requests().clear();
        let controller = &self.assembly.controller;
        let mut permit = WorkerPermit::new(&controller.runtime.workers.any).await;
        controller.sync(&Key::new(namespace, name), &mut permit).await;
        controller.clients.events.flush().await;
        let after = self.cluster.get(HPAS, namespace, name).unwrap();
        let requests = self.cluster.requests().entries();
        Outcome {
            scale_writes: requests.iter().filter_map(scale_write).collect(),
            status_writes: requests.iter().filter(|request| is_accepted_status(request)).count(),
            status: after["status"].clone(),
            events: self.events(&requests),
            metadata: (kept_metadata(&before), kept_metadata(&after)),
        }
    }

    /// Stores an HPA with the status that it has in the cluster. A new HPA has an empty status.
    fn set_object(&self, object: &Value) {
        if !object.is_object() {
            return;
        }
        let mut object = object.clone();
        let meta = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        let current = self.cluster.get(HPAS, &meta("namespace"), &meta("name"));
        object["status"] = match current {
            Some(current) if current["metadata"]["uid"] == object["metadata"]["uid"] => {
                current["status"].clone()
            }
            _ => json!({ "desiredReplicas": 0, "currentMetrics": null }),
        };
        self.cluster.put_raw(object);
    }

    fn set_world(&mut self, world: &Value, namespace: &str) {
        let faults = self.cluster.faults();
        faults.clear();
        let add = |fault: &Value, verb: &str, suffix: &str| {
            faults.add(FaultRule::new(action(fault)).verb(verb).path_suffix(suffix));
        };
        let mut once = Vec::new();
        let mut present = BTreeSet::new();
        for target in world["targets"].as_array().into_iter().flatten() {
            let path = scale_path(target["path"].as_str().unwrap(), namespace);
            let suffix = format!("/{}/{}/scale", path.resource, path.name);
            if target["getFault"].is_object() {
                add(&target["getFault"], "get", &suffix);
            }
            for fault in target["putFaults"].as_array().into_iter().flatten() {
                once.push(FaultRule::new(action(fault)).verb("update").path_suffix(&suffix).times(1));
            }
            if self.kind == Targets::Watched {
                self.cluster.put_raw(workload(target, namespace).unwrap());
                present.insert(path);
                continue;
            }
            let scale = BareScale {
                spec_replicas: target["specReplicas"].as_i64().unwrap_or(0),
                status_replicas: target["statusReplicas"].as_i64().unwrap_or(0),
                selector: target["selector"].as_str().unwrap_or_default().to_owned(),
            };
            self.cluster.put_scale(&path, scale);
            present.insert(path);
        }
        let status_faults = world["statusPutFaults"].as_array().into_iter().flatten();
        once.extend(
            status_faults
                .map(|fault| FaultRule::new(action(fault)).verb("update").path_suffix("/status").times(1)),
        );
        for rule in once {
            faults.add(rule);
        }
        for removed in self.targets.difference(&present) {
            if self.kind == Targets::Watched {
                let resource = short(&removed.group, &removed.resource);
                self.cluster.delete_now(&resource, &removed.namespace, &removed.name).unwrap();
            } else {
                self.cluster.remove_scale(removed);
            }
        }
        self.targets = present;
        let field_of = |field: &str| world.as_object().and_then(|world| world.get(field));
        if let Some(pods) = field_of("pods") {
            self.set_pods(pods.as_array().map_or(&[], Vec::as_slice));
        }
        if let Some(metrics) = field_of("resourceMetrics") {
            self.metrics.set_resource(Some(metrics.clone()));
        }
        if let Some(metrics) = field_of("customMetrics") {
            self.metrics.set_custom(metrics.clone());
        }
        if let Some(metrics) = field_of("externalMetrics") {
            self.metrics.set_external(metrics.clone());
        }
        if let Some(absent) = field_of("customMetricsApiAbsent") {
            self.cluster.set_discovery("custom.metrics.k8s.io", absent != true);
        }
    }

    /// Starts the watch of the target before the sync, as an earlier sync would.
    fn refer(&self, namespace: &str, name: &str) {
        let hpa = self.cluster.get(HPAS, namespace, name).unwrap();
        let target = hpa["spec"]["scaleTargetRef"]["name"].as_str().unwrap_or_default();
        let is_target = |path: &&ScalePath| path.namespace == namespace && path.name == target;
        if let (Some(targets), Some(path)) =
            (&self.assembly.controller.stores.targets, self.targets.iter().find(is_target))
        {
            let ScalePath { group, version, resource, .. } = path.clone();
            let scale_version = Some("autoscaling/v1".to_owned());
            let mapping =
                Mapping { group, version, resource, kind: String::new(), namespaced: true, scale_version };
            targets.cached_scale(&Key::new(namespace, name), &mapping, target);
        }
    }

    fn set_pods(&mut self, pods: &[Value]) {
        let name_of = |pod: &Value| {
            let meta = |field: &str| pod["metadata"][field].as_str().unwrap().to_owned();
            (meta("namespace"), meta("name"))
        };
        let present: BTreeSet<_> = pods.iter().map(name_of).collect();
        for (namespace, name) in self.pods.difference(&present) {
            self.cluster.delete_now("pods", namespace, name).unwrap();
        }
        for pod in pods {
            let mut pod = pod.clone();
            pod["apiVersion"] = json!("v1");
            pod["kind"] = json!("Pod");
            self.cluster.put_raw(pod);
        }
        self.pods = present;
    }

    /// Returns the sent events. A POST carries the whole event, a PATCH the changed fields.
    fn events(&self, requests: &[LoggedRequest]) -> Vec<Value> {
        let mut stored: BTreeMap<String, Value> = BTreeMap::new();
        for event in self.cluster.list("events", None) {
            stored.insert(event["metadata"]["name"].as_str().unwrap().to_owned(), event);
        }
        let sent = requests.iter().filter(|request| request.path.contains("/events"));
        sent.map(|request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let (verb, event) = match request.verb {
                "create" => ("POST", body.clone()),
                _ => ("PATCH", stored[request.path.rsplit('/').next().unwrap()].clone()),
            };
            let message = if body["message"].is_string() { &body["message"] } else { &event["message"] };
            let about = &event["involvedObject"];
            json!({
                "type": event["type"],
                "reason": event["reason"],
                "message": message,
                "object": format!("{}/{}", about["namespace"].as_str().unwrap(), about["name"].as_str().unwrap()),
                "verb": verb,
                "count": if body["count"].is_number() { &body["count"] } else { &event["count"] },
            })
        })
        .collect()
    }
}

/// The options with the flags of a recording. A feature gate that the recording does not set has the default of the
/// emulated version.
fn options(recording: &Value) -> Options {
    let version = Version::named(recording["emulatedVersion"].as_str().unwrap()).unwrap();
    let mut settings = Settings::new(version);
    let flags = &recording["config"];
    let duration =
        |name: &str| flags[name].as_str().unwrap().parse::<GoDuration>().unwrap().unsigned().unwrap();
    let gate = |name: &str, default: bool| flags["featureGates"][name].as_bool().unwrap_or(default);
    settings.tolerance = flags["tolerance"].as_f64().unwrap();
    settings.downscale_stabilization = duration("downscaleStabilization");
    settings.cpu_initialization_period = duration("cpuInitializationPeriod");
    settings.initial_readiness_delay = duration("initialReadinessDelay");
    settings.scale_to_zero = gate("HPAScaleToZero", settings.scale_to_zero);
    settings.generation = gate("HPAGeneration", settings.generation);
    settings.configurable_tolerance = gate("HPAConfigurableTolerance", settings.configurable_tolerance);
    settings.pod_level_resources = gate("PodLevelResources", settings.pod_level_resources);
    Options {
        settings,
        stale_consistency: gate("StaleControllerConsistencyHPA", version > Version::V1_36),
        sync_period: duration("syncPeriod"),
        // Each sync must use its recorded metrics, even if it follows another sync closely.
        metric_sharing: Some(Duration::ZERO),
        ..Options::default()
    }
}

fn action(fault: &Value) -> FaultAction {
    let code = u16::try_from(fault["code"].as_u64().unwrap()).unwrap();
    if let Some(text) = fault["text"].as_str() {
        return FaultAction::Text { code, body: text.to_owned() };
    }
    let text = |field: &str| fault[field].as_str().unwrap();
    FaultAction::Status(Status::new(code, text("reason"), text("message")))
}

fn short(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{group}/{resource}") }
}

/// The workload with the values of a recorded Scale, if a workload can represent the Scale.
fn workload(target: &Value, namespace: &str) -> Option<Value> {
    let path = scale_path(target["path"].as_str()?, namespace);
    let kind = match (path.group.as_str(), path.resource.as_str()) {
        ("apps", "deployments") => "Deployment",
        ("apps", "statefulsets") => "StatefulSet",
        ("apps", "replicasets") => "ReplicaSet",
        _ => return None,
    };
    let count = |field: &str| i32::try_from(target[field].as_i64().unwrap_or(0)).ok();
    // A Scale may have no selector, but a workload needs one.
    let selector = target["selector"].as_str().filter(|selector| !selector.is_empty())?;
    let selector = LabelSelector::parse(selector, Version::default()).ok()?;
    let labels = selector.match_labels.clone().filter(|_| selector.match_expressions.is_none())?;
    let (replicas, status) = (count("specReplicas")?, count("statusReplicas")?);
    Some(json!({
        "apiVersion": format!("{}/{}", path.group, path.version), "kind": kind,
        "metadata": {"namespace": path.namespace, "name": path.name},
        "spec": {
            "replicas": replicas, "selector": selector,
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "app", "image": "app:1"}]},
            },
        },
        "status": {"replicas": status},
    }))
}

/// Parses `apps/v1/deployments/web`, or `v1/...` and `core/v1/...` for the core group.
fn scale_path(path: &str, namespace: &str) -> ScalePath {
    let parts: Vec<&str> = path.split('/').collect();
    let (group, rest) = if parts.len() == 4 { (parts[0], &parts[1..]) } else { ("", &parts[..]) };
    ScalePath {
        group: if group == "core" { String::new() } else { group.to_owned() },
        version: rest[0].to_owned(),
        resource: rest[1].to_owned(),
        namespace: namespace.to_owned(),
        name: rest[2].to_owned(),
    }
}

fn scale_write(request: &LoggedRequest) -> Option<Value> {
    if request.verb != "update" || !request.path.ends_with("/scale") {
        return None;
    }
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let parts: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
    let path = match parts.as_slice() {
        ["api", version, "namespaces", _, resource, name, _] => format!("{version}/{resource}/{name}"),
        ["apis", group, version, "namespaces", _, resource, name, _] => {
            format!("{group}/{version}/{resource}/{name}")
        }
        other => panic!("unknown scale path {other:?}"),
    };
    let replicas = body["spec"]["replicas"].as_i64().unwrap_or(0);
    Some(json!({ "path": path, "replicas": replicas, "code": request.code }))
}

fn is_accepted_status(request: &LoggedRequest) -> bool {
    request.verb == "update"
        && request.path.contains("/horizontalpodautoscalers/")
        && request.path.ends_with("/status")
        && request.code == Some(200)
}

fn kept_metadata(object: &Value) -> Value {
    let meta = &object["metadata"];
    json!([meta["labels"], meta["annotations"], meta["ownerReferences"], meta["finalizers"]])
}
