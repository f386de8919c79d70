//! Reads the state of the cluster for the views: HPAs with their replicas in the last minute, and events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use engine::reconcile::ConcludedSync;
use fake_cluster::Cluster;
use terminal::values::{at, list, quantity, text};

/// The maximum number of points in a history.
const POINTS: usize = 60;
/// The interval between two points in a history.
const POINT: Duration = Duration::from_secs(1);

/// The state that a view shows.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Snapshot {
    /// The time since the demo started.
    pub(super) elapsed: Duration,
    /// The HPAs, by namespace and name.
    pub(super) hpas: Vec<HpaState>,
    /// Events about HPAs, oldest first.
    pub(super) events: Vec<EventState>,
    /// The number of syncs of all HPAs since the demo started.
    pub(super) syncs: usize,
}

/// The state of an HPA and its target.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct HpaState {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The scale target, such as `Deployment/web`.
    pub(super) target: String,
    pub(super) min: i64,
    pub(super) max: i64,
    /// The target's `spec.replicas`.
    pub(super) replicas: i64,
    pub(super) ready: i64,
    pub(super) metrics: Vec<MetricState>,
    pub(super) conditions: Vec<ConditionState>,
    /// The replicas, one point per second, newest last.
    pub(super) history: Vec<i64>,
    pub(super) lowest: i64,
    pub(super) highest: i64,
    pub(super) rescales: u32,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct MetricState {
    pub(super) name: String,
    /// The formatted value, or `None` if the HPA's status has no value.
    pub(super) current: Option<String>,
    pub(super) target: String,
    /// The current value divided by the target.
    pub(super) ratio: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ConditionState {
    pub(super) kind: String,
    pub(super) is_true: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct EventState {
    pub(super) uid: String,
    pub(super) count: i64,
    /// `lastTimestamp`.
    pub(super) time: String,
    /// The HPA, as `namespace/name`.
    pub(super) hpa: String,
    pub(super) is_warning: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl HpaState {
    /// Returns `namespace/name`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the most important condition: a failure, or else a limit, a scaling policy, or `AbleToScale`.
    pub(super) fn headline(&self) -> Option<&ConditionState> {
        let find = |kind: &str, is_true: bool| {
            self.conditions.iter().find(|condition| condition.kind == kind && condition.is_true == is_true)
        };
        find("AbleToScale", false)
            .or_else(|| find("ScalingActive", false))
            .or_else(|| find("ScalingLimited", true))
            .or_else(|| find("ScalingPolicyActive", true))
            .or_else(|| find("AbleToScale", true))
    }
}

impl Snapshot {
    /// Returns the newest event about an HPA.
    pub(super) fn last_event(&self, hpa: &HpaState) -> Option<&EventState> {
        let key = hpa.key();
        self.events.iter().rev().find(|event| event.hpa == key)
    }
}

/// The values of one HPA that are collected over all snapshots.
#[derive(Debug, Default)]
struct Track {
    history: VecDeque<i64>,
    replicas: i64,
    lowest: i64,
    highest: i64,
    rescales: u32,
}

/// A source of snapshots of one cluster.
#[derive(Debug)]
pub(super) struct Observer {
    cluster: Cluster,
    started: Instant,
    next_point: Duration,
    tracks: BTreeMap<String, Track>,
    syncs: Arc<Syncs>,
}

/// The number of the controller's syncs. The requests to the cluster do not show the number of syncs, because the
/// number of requests per sync varies.
#[derive(Debug, Default)]
pub(super) struct Syncs(AtomicUsize);

impl engine::reconcile::Observer for Syncs {
    fn concluded(&self, _: &ConcludedSync<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Observer {
    pub(super) fn new(cluster: Cluster, syncs: Arc<Syncs>) -> Self {
        Self { cluster, started: Instant::now(), next_point: Duration::ZERO, tracks: BTreeMap::new(), syncs }
    }

    pub(super) fn observe(&mut self) -> Snapshot {
        let elapsed = self.started.elapsed();
        let is_point = elapsed >= self.next_point;
        if is_point {
            self.next_point = elapsed + POINT;
        }
        let hpas: Vec<_> = self.cluster.list("autoscaling/horizontalpodautoscalers", None);
        let hpas: Vec<_> = hpas.iter().map(|hpa| self.hpa(hpa, is_point)).collect();
        self.tracks.retain(|key, _| hpas.iter().any(|hpa| hpa.key() == *key));
        Snapshot { elapsed, hpas, events: self.events(), syncs: self.syncs.0.load(Ordering::Relaxed) }
    }

    fn hpa(&mut self, hpa: &Value, is_point: bool) -> HpaState {
        let (namespace, name) = (text(hpa, "/metadata/namespace"), text(hpa, "/metadata/name"));
        let (kind, target_name) =
            (text(hpa, "/spec/scaleTargetRef/kind"), text(hpa, "/spec/scaleTargetRef/name"));
        let target =
            resource_of(kind).and_then(|resource| self.cluster.get(resource, namespace, target_name));
        let replicas = match &target {
            Some(target) => int(target, "/spec/replicas").unwrap_or(1),
            None => int(hpa, "/status/currentReplicas").unwrap_or(0),
        };
        let track = self.tracks.entry(format!("{namespace}/{name}")).or_insert_with(|| Track {
            replicas,
            lowest: replicas,
            highest: replicas,
            ..Track::default()
        });
        track.record(replicas, is_point);
        HpaState {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            target: format!("{kind}/{target_name}"),
            min: int(hpa, "/spec/minReplicas").unwrap_or(1),
            max: int(hpa, "/spec/maxReplicas").unwrap_or(0),
            replicas,
            ready: target.as_ref().and_then(|target| int(target, "/status/readyReplicas")).unwrap_or(0),
            metrics: metrics(hpa),
            conditions: list(hpa, "/status/conditions").iter().map(condition).collect(),
            history: track.history.iter().copied().collect(),
            lowest: track.lowest,
            highest: track.highest,
            rescales: track.rescales,
        }
    }

    fn events(&self) -> Vec<EventState> {
        let mut events = self.cluster.list("events", None);
        events.retain(|event| text(event, "/involvedObject/kind") == "HorizontalPodAutoscaler");
        // Timestamps are in whole seconds. Within a second, resource versions define the order.
        events.sort_by_cached_key(|event| {
            let version: u64 = text(event, "/metadata/resourceVersion").parse().unwrap_or(0);
            (text(event, "/lastTimestamp").to_owned(), version)
        });
        let state = |event: &Value| EventState {
            uid: text(event, "/metadata/uid").to_owned(),
            count: int(event, "/count").unwrap_or(1),
            time: text(event, "/lastTimestamp").to_owned(),
            hpa: format!(
                "{}/{}",
                text(event, "/involvedObject/namespace"),
                text(event, "/involvedObject/name")
            ),
            is_warning: text(event, "/type") == "Warning",
            reason: text(event, "/reason").to_owned(),
            message: text(event, "/message").to_owned(),
        };
        events.iter().map(state).collect()
    }
}

impl Track {
    fn record(&mut self, replicas: i64, is_point: bool) {
        if replicas != self.replicas {
            self.rescales = self.rescales.saturating_add(1);
            self.replicas = replicas;
        }
        self.lowest = self.lowest.min(replicas);
        self.highest = self.highest.max(replicas);
        if is_point {
            if self.history.len() == POINTS {
                self.history.pop_front();
            }
            self.history.push_back(replicas);
        }
    }
}

/// Returns the metrics of an HPA. Targets come from its spec, and values from its status, which has the same order.
fn metrics(hpa: &Value) -> Vec<MetricState> {
    let shown = list(hpa, "/status/currentMetrics");
    list(hpa, "/spec/metrics")
        .iter()
        .enumerate()
        .map(|(index, metric)| {
            let kind = text(metric, "/type");
            let field = match kind {
                "Resource" => "resource",
                "ContainerResource" => "containerResource",
                "Pods" => "pods",
                "Object" => "object",
                _ => "external",
            };
            let name = match text(metric, &format!("/{field}/metric/name")) {
                "" => text(metric, &format!("/{field}/name")),
                name => name,
            };
            let (value, is_percent) = match text(metric, &format!("/{field}/target/type")) {
                "Utilization" => ("averageUtilization", true),
                "AverageValue" => ("averageValue", false),
                _ => ("value", false),
            };
            let current = shown
                .get(index)
                .filter(|entry| text(entry, "/type") == kind)
                .and_then(|entry| quantity(at(entry, &format!("/{field}/current/{value}"))));
            let target = quantity(at(metric, &format!("/{field}/target/{value}")));
            let print = |amount: f64| print(amount, name, is_percent);
            MetricState {
                name: name.to_owned(),
                current: current.map(print),
                target: target.map(print).unwrap_or_default(),
                ratio: current.zip(target).map(|(current, target)| current / target),
            }
        })
        .collect()
}

/// Formats an amount in the unit of its metric.
fn print(amount: f64, metric: &str, is_percent: bool) -> String {
    match metric {
        _ if is_percent => format!("{amount:.0}%"),
        "cpu" => format!("{:.0}m", amount * 1_000.0),
        "memory" => format!("{:.0}Mi", amount / (1024.0 * 1024.0)),
        _ if amount.abs() < 10.0 && amount.fract() != 0.0 => format!("{amount:.1}"),
        _ => format!("{amount:.0}"),
    }
}

fn condition(condition: &Value) -> ConditionState {
    ConditionState {
        kind: text(condition, "/type").to_owned(),
        is_true: text(condition, "/status") == "True",
        reason: text(condition, "/reason").to_owned(),
        message: text(condition, "/message").to_owned(),
    }
}

/// Returns the resource of a scalable kind in the embedded cluster.
fn resource_of(kind: &str) -> Option<&'static str> {
    match kind {
        "Deployment" => Some("apps/deployments"),
        "ReplicaSet" => Some("apps/replicasets"),
        "StatefulSet" => Some("apps/statefulsets"),
        "ReplicationController" => Some("replicationcontrollers"),
        "Widget" => Some("example.com/widgets"),
        _ => None,
    }
}

fn int(object: &Value, pointer: &str) -> Option<i64> {
    at(object, pointer).as_i64()
}
