//! One scrape: loads spread over ready pods, written as the metrics APIs show them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::queue::Queue;
use super::{CpuLoad, Load, MemoryLoad, RequestLoad};
use crate::embedded::Cluster;
use crate::embedded::metrics::StaticMetrics;
use crate::embedded::object::{at, list, meta, text, time_text};
use crate::embedded::workload::seed::Seed;
use crate::embedded::workload::{is_active, is_ready};

/// What a pod without any load uses, and what a container beside the loaded one uses.
const IDLE_MILLICORES: f64 = 2.0;
const IDLE_BYTES: f64 = 12.0 * 1024.0 * 1024.0;

/// By how much the share of one pod differs from that of another, as a fraction.
const VARIATION: f64 = 0.04;

/// The pods of a cluster that do work.
#[derive(Debug)]
pub(super) struct ReadyPods(Vec<Value>);

/// The pods that one load is spread over.
#[derive(Debug)]
pub(super) struct Matching<'a>(Vec<&'a Value>);

impl ReadyPods {
    pub(super) fn of(cluster: &Cluster) -> Self {
        let mut pods = cluster.list("pods", None);
        pods.retain(|pod| is_active(pod) && is_ready(pod));
        Self(pods)
    }

    pub(super) fn matching(&self, load: &Load) -> Matching<'_> {
        let matches = |pod: &&Value| {
            meta(pod, "namespace") == load.namespace
                && load.labels.iter().all(|(key, value)| text(pod, &["metadata", "labels", key]) == value)
        };
        Matching(self.0.iter().filter(matches).collect())
    }
}

impl Matching<'_> {
    pub(super) fn count_as_f64(&self) -> f64 {
        self.0.len() as f64
    }

    /// What one of the pods gets of a total: an even share, give or take a little, and no more than it can take.
    fn share_of(&self, pod: &Value, total: f64, capacity: f64) -> f64 {
        let variation = 1.0 + VARIATION * (Seed::new(0).of(meta(pod, "name")).share() * 2.0 - 1.0);
        (total / self.count_as_f64().max(1.0) * variation).min(capacity)
    }
}

/// When a sample is taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scrape {
    /// Since the beginning of the curves.
    pub(super) elapsed: Duration,
    pub(super) time: Timestamp,
    /// Over what time the sample is an average.
    pub(super) window: Duration,
}

impl Scrape {
    /// Samples all loads and makes the sample what the backend answers.
    pub(super) fn publish(self, loads: &[(Load, Queue)], pods: &ReadyPods, into: &StaticMetrics) {
        let mut usages = Vec::new();
        let mut custom = BTreeMap::<&str, Vec<Value>>::new();
        let mut external = BTreeMap::<&str, Vec<Value>>::new();
        let mut seen = BTreeSet::new();
        for (load, queue) in loads {
            let matching = pods.matching(load);
            for pod in &matching.0 {
                if seen.insert(meta(pod, "uid")) {
                    let cpu = load.cpu.as_ref().map(|cpu| self.cpu_of(cpu, &matching, pod));
                    let memory = load.memory.map(|memory| self.memory_of(memory, pod));
                    usages.push(self.usage(pod, cpu, memory));
                }
            }
            if let Some(requests) = &load.requests {
                let items = custom.entry(&requests.metric).or_default();
                items.extend(self.requests(requests, &matching, &load.namespace));
            }
            if let Some(model) = &load.queue {
                external.entry(&model.metric).or_default().push(json!({
                    "metricName": model.metric,
                    "metricLabels": model.labels,
                    "timestamp": time_text(self.time),
                    "value": whole(queue.waiting()).to_string(),
                }));
            }
        }
        usages.extend(
            pods.0
                .iter()
                .filter(|pod| !seen.contains(meta(pod, "uid")))
                .map(|pod| self.usage(pod, None, None)),
        );
        into.set_resource(Some(json!({"items": usages})));
        into.set_custom(by_metric(custom));
        into.set_external(by_metric(external));
    }

    fn cpu_of(self, cpu: &CpuLoad, matching: &Matching<'_>, pod: &Value) -> f64 {
        matching.share_of(pod, cpu.demand.at(self.elapsed), cpu.capacity)
    }

    fn memory_of(self, memory: MemoryLoad, pod: &Value) -> f64 {
        let started = text(pod, &["status", "startTime"]).parse().unwrap_or(self.time);
        memory.base + memory.growth * self.time.duration_since(started).as_secs_f64().max(0.0)
    }

    /// A PodMetrics: the load is in the first container, the others idle.
    fn usage(self, pod: &Value, cpu: Option<f64>, memory: Option<f64>) -> Value {
        let mut loads = [(cpu, memory)].into_iter();
        let containers: Vec<_> = list(pod, &["spec", "containers"])
            .iter()
            .map(|container| {
                let (cpu, memory) = loads.next().unwrap_or_default();
                let nanocores = whole(cpu.unwrap_or(IDLE_MILLICORES) * 1e6);
                let kibibytes = whole(memory.unwrap_or(IDLE_BYTES) / 1024.0);
                json!({
                    "name": text(container, &["name"]),
                    "usage": {"cpu": format!("{nanocores}n"), "memory": format!("{kibibytes}Ki")},
                })
            })
            .collect();
        json!({
            "metadata": {
                "name": meta(pod, "name"),
                "namespace": meta(pod, "namespace"),
                "creationTimestamp": time_text(self.time),
                "labels": at(pod, &["metadata", "labels"]),
            },
            "timestamp": time_text(self.time),
            "window": format!("{}s", self.window.as_secs_f64()),
            "containers": containers,
        })
    }

    /// The MetricValues of a request load: one for each pod, and the sum on its object.
    fn requests(self, requests: &RequestLoad, matching: &Matching<'_>, namespace: &str) -> Vec<Value> {
        let total = requests.per_second.at(self.elapsed);
        let value = |(api_version, kind, name): (&str, &str, &str), value: f64| {
            json!({
                "describedObject": {"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name},
                "metric": {"name": requests.metric, "selector": null},
                "timestamp": time_text(self.time),
                "windowSeconds": self.window.as_secs(),
                "value": format!("{}m", whole(value * 1_000.0)),
            })
        };
        let of_pod = |pod: &&Value| {
            value(("v1", "Pod", meta(pod, "name")), matching.share_of(pod, total, requests.capacity))
        };
        let of_object =
            |(api_version, kind, name): &(String, String, String)| value((api_version, kind, name), total);
        matching.0.iter().map(of_pod).chain(requests.object.iter().map(of_object)).collect()
    }
}

/// `{"metric": {"items": [...]}}`.
fn by_metric(values: BTreeMap<&str, Vec<Value>>) -> Value {
    let metrics: Map<_, _> =
        values.into_iter().map(|(metric, items)| (metric.to_owned(), json!({"items": items}))).collect();
    metrics.into()
}

/// The whole part of an amount; negative and undefined ones are 0, one too large is the largest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturating, as the name's doc says"
)]
fn whole(amount: f64) -> u64 {
    amount as u64
}
