//! The backend of the three metrics APIs. Its values follow from the loads of a run and from the current pods. A
//! [`LoadFactor`] raises the values of responses, to repeat a decision under more load.

use std::collections::BTreeMap;
use std::sync::Arc;

use autoscaling::pod::ResourceList;
use autoscaling::quantity::Quantity;
use autoscaling::query::{Answer, ContainerUsage, CustomValue, ExternalValue, PodUsage};
use autoscaling::{Answers, Decision, Verdict};
use fake_cluster::{Cluster, MetricsApi, MetricsBackend, MetricsReply, MetricsRequest};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::plan::{DIFFERENT, InitialState};
use crate::tenants::{self, NAMESPACE};

/// Loads by HPA and metric.
#[derive(Debug)]
pub(crate) struct MetricValues {
    hpas: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    loads: BTreeMap<(usize, usize), Load>,
    /// Running pods of each HPA, with the resource version of the cluster at which they were read.
    pods: BTreeMap<usize, (u64, Vec<Pod>)>,
}

/// A running pod.
#[derive(Debug, Clone)]
struct Pod {
    name: String,
    /// Only ready pods carry load.
    is_ready: bool,
}

#[derive(Debug, Clone)]
enum Load {
    /// Demand in tenths of replicas.
    Demand(u64),
    Raw(&'static str),
}

impl MetricValues {
    pub(crate) fn new(hpas: usize) -> Self {
        Self { hpas, state: Mutex::default() }
    }

    pub(crate) fn set_demand(&self, hpa: usize, metric: usize, tenths: u64) {
        self.state.lock().loads.insert((hpa, metric), Load::Demand(tenths));
    }

    pub(crate) fn set_raw_value(&self, hpa: usize, metric: usize, text: &'static str) {
        self.state.lock().loads.insert((hpa, metric), Load::Raw(text));
    }

    /// Drops the cached pods, because a restore of etcd reuses resourceVersions.
    pub(crate) fn restored(&self) {
        self.state.lock().pods.clear();
    }
}

impl State {
    /// The value of a metric with a target of `each` thousandths per replica, divided among `shared_by` pods.
    fn value(&self, hpa: usize, metric: usize, each: u64, shared_by: usize) -> Option<String> {
        // Half of the metrics of `InvalidSpec::DifferentMetrics` have a value.
        let metric = if metric >= DIFFERENT && metric.is_multiple_of(2) { 0 } else { metric };
        Some(match self.loads.get(&(hpa, metric))? {
            Load::Demand(tenths) => {
                // The value is rounded down, because the rules round up. Without a tolerance, a value that is slightly
                // too large would yield one pod more.
                let millis = tenths * each / 10 / u64::try_from(shared_by.max(1)).unwrap();
                format!("{millis}m")
            }
            Load::Raw(text) => (*text).to_owned(),
        })
    }

    fn pods(&mut self, cluster: &Cluster, hpa: usize) -> Vec<Pod> {
        let version = cluster.resource_version();
        let (cached_version, names) = self.pods.entry(hpa).or_default();
        if *cached_version != version {
            let selector = format!("app={}", InitialState::name(hpa));
            let pods = cluster.select("pods", Some(InitialState::namespace(hpa)), &selector).unwrap();
            let runs = |pod: &&Value| {
                pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
            };
            let pod = |pod: &Value| {
                let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
                let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
                Pod {
                    name: pod["metadata"]["name"].as_str().unwrap().to_owned(),
                    is_ready: ready.any(|condition| condition["status"] == "True"),
                }
            };
            *names = pods.iter().filter(runs).map(pod).collect();
            *cached_version = version;
        }
        names.clone()
    }

    /// Resource usage of the pods of an HPA.
    fn usage(&mut self, cluster: &Cluster, hpa: usize, now: &str) -> Vec<Value> {
        let pods = self.pods(cluster, hpa);
        let ready = pods.iter().filter(|pod| pod.is_ready).count();
        let busy = self.value(hpa, 0, 50, ready).unwrap_or_else(|| "0".to_owned());
        let item = |Pod { name, is_ready }: &Pod| {
            let cpu = if *is_ready { busy.as_str() } else { "1m" };
            let labels = json!({"app": InitialState::name(hpa)});
            json!({"metadata": {"namespace": InitialState::namespace(hpa), "name": name, "labels": labels}, "timestamp": now, "window": "15s",
                "containers": [{"name": "app", "usage": {"cpu": cpu, "memory": "1Mi"}}]})
        };
        pods.iter().map(item).collect()
    }
}

/// Parses a name such as `m3-0` into the numbers of the HPA and the metric.
fn parse_metric(name: &str) -> Option<(usize, usize)> {
    let (hpa, metric) = name.strip_prefix('m')?.split_once('-')?;
    Some((hpa.parse().ok()?, metric.parse().ok()?))
}

/// The number of the HPA whose pods a selector such as `app=h3` selects.
pub(crate) fn hpa_of_selector(selector: &str) -> Option<usize> {
    selector.strip_prefix("app=h")?.parse().ok()
}

impl MetricsBackend for MetricValues {
    fn answer(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        let mut state = self.state.lock();
        let now = request.cluster.now().to_string();
        let (kind, items) = match (request.api, request.path) {
            (MetricsApi::External, [metric]) => {
                let other = tenants::response(metric).map(|_| "1".to_owned());
                let value = parse_metric(metric)
                    .and_then(|(hpa, number)| state.value(hpa, number, 10_000, 1))
                    .or(other);
                let item = value.map(
                    |value| json!({"metricName": metric, "metricLabels": {}, "timestamp": now, "value": value}),
                );
                ("ExternalMetricValueList", item.into_iter().collect::<Vec<_>>())
            }
            (MetricsApi::Custom, [resource, object, metric]) => {
                let Some((hpa, number)) = parse_metric(metric) else { return MetricsReply::Absent };
                let (kind, described) = if resource == "pods" {
                    ("Pod", state.pods(request.cluster, hpa))
                } else {
                    ("Service", vec![Pod { name: object.clone(), is_ready: true }])
                };
                let shared = described.iter().filter(|pod| pod.is_ready).count();
                let items = described.iter().filter_map(|Pod { name, is_ready }| {
                    let value = state.value(hpa, number, 10_000, shared)?;
                    let value = if *is_ready { value } else { "0".to_owned() };
                    let object =
                        json!({"kind": kind, "namespace": InitialState::namespace(hpa), "name": name, "apiVersion": "v1"});
                    Some(if request.version == "v1beta1" {
                        json!({"describedObject": object, "metricName": metric, "timestamp": now, "value": value})
                    } else {
                        json!({"describedObject": object, "metric": {"name": metric}, "timestamp": now,
                            "value": value})
                    })
                });
                ("MetricValueList", items.collect())
            }
            (MetricsApi::Resource, [_]) => {
                let hpas = match hpa_of_selector(request.label_selector) {
                    _ if request.namespace == NAMESPACE => Vec::new(),
                    Some(hpa) => vec![hpa],
                    None if request.label_selector.is_empty() => {
                        let is_here = |hpa: &usize| InitialState::namespace(*hpa) == request.namespace;
                        (0..self.hpas).filter(is_here).collect()
                    }
                    None => return MetricsReply::Absent,
                };
                let items = hpas.into_iter().flat_map(|hpa| state.usage(request.cluster, hpa, &now));
                ("PodMetricsList", items.collect())
            }
            _ => return MetricsReply::Absent,
        };
        let group = match request.api {
            MetricsApi::Resource => "metrics.k8s.io",
            MetricsApi::Custom => "custom.metrics.k8s.io",
            MetricsApi::External => "external.metrics.k8s.io",
        };
        let version = format!("{group}/{}", request.version);
        MetricsReply::Json(json!({"kind": kind, "apiVersion": version, "metadata": {}, "items": items}))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadFactor {
    Tenfold,
    /// Replaces each value by the largest possible quantity.
    Boundless,
}

impl LoadFactor {
    pub(crate) const ALL: [Self; 2] = [Self::Tenfold, Self::Boundless];

    fn grow(self, quantity: Quantity) -> Quantity {
        let nanos = match self {
            Self::Tenfold => quantity.nanos().saturating_mul(10).max(quantity.nanos()),
            Self::Boundless => i128::MAX,
        };
        Quantity::from_nanos(nanos, quantity.format())
    }

    /// Returns the responses, with the load factor applied to every value.
    pub(crate) fn grow_answers<'a>(self, answers: &Answers<'a>) -> Answers<'a> {
        let metrics = answers.metrics.iter().map(|answer| {
            answer
                .as_ref()
                .map(|answer| answer.as_ref().map(|answer| self.grow_answer(answer)).map_err(Clone::clone))
        });
        Answers { metrics: metrics.collect(), pods: answers.pods }
    }

    fn grow_answer(self, answer: &Answer) -> Answer {
        match answer {
            Answer::Resource(pods) => Answer::Resource(pods.iter().map(|pod| self.grow_pod(pod)).collect()),
            Answer::Custom(values) => {
                let grown =
                    |value: &CustomValue| CustomValue { value: self.grow(value.value), ..value.clone() };
                Answer::Custom(values.iter().map(grown).collect())
            }
            Answer::External(values) => {
                let grown =
                    |value: &ExternalValue| ExternalValue { value: self.grow(value.value), ..value.clone() };
                Answer::External(values.iter().map(grown).collect())
            }
        }
    }

    fn grow_pod(self, pod: &PodUsage) -> PodUsage {
        let grown = |container: &ContainerUsage| {
            let usage = container.usage.iter().map(|(name, quantity)| (Arc::from(name), self.grow(quantity)));
            ContainerUsage { name: Arc::clone(&container.name), usage: ResourceList::new(usage) }
        };
        PodUsage { containers: pod.containers.iter().map(grown).collect(), ..pod.clone() }
    }
}

/// The replica count of a decision, or `None` if the decision has no count.
pub(crate) fn count(decision: &Decision) -> Option<i32> {
    match decision.verdict() {
        Verdict::Keep => Some(decision.current()),
        Verdict::Rescale { to, .. } => Some(*to),
        Verdict::NoScale | Verdict::NoCount(_) | Verdict::Disabled => None,
    }
}
