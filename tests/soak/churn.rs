//! A cluster with constant churn: targets, HPAs, pods, labels and metric names are created and deleted. Their
//! numbers and the lengths of their names stay constant, and no name is reused. A controller that drops the
//! state of deleted objects thus uses constant memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use clock::SharedClock;
use fake_cluster::metrics::StaticMetrics;
use fake_cluster::{BareScale, Cluster, ScalePath};
use serde_json::{Value, json};

pub(crate) const HPAS: &str = "autoscaling/horizontalpodautoscalers";
/// Number of HPAs at any time.
pub(crate) const SLOTS: usize = 24;
pub(crate) const NAMESPACES: usize = 4;
/// Number of HPAs that each round replaces, with all their objects.
pub(crate) const REPLACED: usize = 4;
/// Number of rounds after which every object has been replaced and the load repeats.
pub(crate) const CYCLE: usize = 2 * SLOTS / REPLACED;
/// Number of rounds after which events are deleted, as the API server does after an hour.
const EVENTS_KEPT: usize = 10;

/// A cluster whose objects change in rounds.
#[derive(Debug)]
pub(crate) struct Churn {
    pub(crate) cluster: Cluster,
    clock: SharedClock,
    metrics: Arc<StaticMetrics>,
    round: usize,
    /// Generations of the application and of its pods, by slot.
    slots: Vec<(usize, usize)>,
    /// Namespaces and names of new events, by round.
    events: Vec<Vec<(String, String)>>,
}

impl Churn {
    pub(crate) fn new(clock: SharedClock) -> Self {
        let cluster = Cluster::new(Arc::clone(&clock));
        let metrics = Arc::new(StaticMetrics::new());
        cluster.set_metrics(Arc::clone(&metrics) as _);
        cluster.requests().keep(0);
        cluster.keep_history(200);
        let mut churn =
            Self { cluster, clock, metrics, round: 0, slots: vec![(0, 0); SLOTS], events: Vec::new() };
        for slot in 0..SLOTS {
            churn.create(slot);
        }
        churn.measure();
        churn
    }

    /// Replaces some HPAs, rolls out new pods for others, and updates pods, metrics and events.
    pub(crate) fn run_round(&mut self) {
        self.round += 1;
        let first = self.round * REPLACED;
        for slot in (first..first + REPLACED).map(|slot| slot % SLOTS) {
            self.delete(slot);
            self.slots[slot].0 += 1;
            self.create(slot);
        }
        // Other HPAs get new pods with new labels, as in a rollout.
        let half = first + SLOTS / 2;
        for slot in (half..half + REPLACED).map(|slot| slot % SLOTS) {
            let (count, app) = (self.count(slot), self.app(slot));
            self.remove_pods(slot, &app);
            self.slots[slot].1 += 1;
            self.put_pods(slot, count);
        }
        for slot in 0..SLOTS {
            self.follow(slot);
        }
        self.measure();
        self.drop_events();
    }

    /// Deletes all HPAs with their objects.
    pub(crate) fn delete_all(&mut self) {
        for slot in 0..SLOTS {
            self.delete(slot);
        }
        self.slots.clear();
        self.measure();
    }

    pub(crate) fn pods(&self) -> usize {
        self.cluster.count("pods")
    }

    fn create(&mut self, slot: usize) {
        let (namespace, app) = (namespace(slot), self.app(slot));
        let scale = BareScale { spec_replicas: 4, status_replicas: 4, selector: format!("app={app}") };
        self.cluster.put_scale(&path(&namespace, &app), scale);
        self.put_pods(slot, 4);
        let hpa = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"namespace": namespace, "name": app, "labels": {"generation": self.generation(slot)}},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": app},
                "minReplicas": 1, "maxReplicas": 10,
                "metrics": [
                    {"type": "Resource", "resource": {
                        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
                    }},
                    {"type": "External", "external": {
                        "metric": {"name": format!("queue-{app}")},
                        "target": {"type": "AverageValue", "averageValue": "10"},
                    }},
                ],
                "behavior": {
                    "scaleUp": {"policies": [{"type": "Pods", "value": 3, "periodSeconds": 60}]},
                    "scaleDown": {"stabilizationWindowSeconds": 120},
                },
            },
        });
        self.cluster.create(hpa).unwrap_or_else(|status| panic!("{status:?}"));
    }

    fn delete(&mut self, slot: usize) {
        let (namespace, app) = (namespace(slot), self.app(slot));
        self.cluster.delete(HPAS, &namespace, &app).unwrap();
        self.cluster.remove_scale(&path(&namespace, &app));
        self.remove_pods(slot, &app);
    }

    fn generation(&self, slot: usize) -> String {
        format!("{:06}", self.slots[slot].0)
    }

    fn app(&self, slot: usize) -> String {
        format!("app-{slot:02}-{}", self.generation(slot))
    }

    fn count(&self, slot: usize) -> usize {
        let scale = self.cluster.scale(&path(&namespace(slot), &self.app(slot))).unwrap();
        usize::try_from(scale.spec_replicas).unwrap()
    }

    /// Creates or deletes pods to match `spec.replicas` of the target.
    fn follow(&self, slot: usize) {
        let (namespace, app) = (namespace(slot), self.app(slot));
        let count = self.count(slot);
        let has = self.cluster.select("pods", Some(&namespace), &format!("app={app}")).unwrap();
        for pod in has.iter().skip(count) {
            self.cluster.delete_now("pods", &namespace, pod["metadata"]["name"].as_str().unwrap()).unwrap();
        }
        if has.len() < count {
            self.put_pods(slot, count);
        }
        let target = path(&namespace, &app);
        let scale = self.cluster.scale(&target).unwrap();
        self.cluster.put_scale(&target, BareScale { status_replicas: scale.spec_replicas, ..scale });
    }

    fn put_pods(&self, slot: usize, count: usize) {
        let app = self.app(slot);
        let template = format!("{:06}", self.slots[slot].1);
        for index in 0..count {
            self.cluster.put_raw(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "namespace": namespace(slot), "name": format!("{app}-{template}-{index:02}"),
                    "labels": {"app": app, "pod-template-hash": template},
                },
                "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]},
                "status": {
                    "phase": "Running", "startTime": "2019-12-31T00:00:00Z",
                    "conditions": [
                        {"type": "Ready", "status": "True", "lastTransitionTime": "2019-12-31T00:01:00Z"},
                    ],
                },
            }));
        }
    }

    fn remove_pods(&self, slot: usize, app: &str) {
        let namespace = namespace(slot);
        for pod in self.cluster.select("pods", Some(&namespace), &format!("app={app}")).unwrap() {
            self.cluster.delete_now("pods", &namespace, pod["metadata"]["name"].as_str().unwrap()).unwrap();
        }
    }

    /// Sets the load, which rises and falls so that every HPA rescales from time to time. One metric of each
    /// slot fails once per cycle.
    fn measure(&self) {
        let now = self.clock.now();
        let mut usage = Vec::new();
        let mut external: BTreeMap<String, Value> = BTreeMap::new();
        for slot in 0..self.slots.len() {
            let (namespace, app) = (namespace(slot), self.app(slot));
            let phase = (self.round + slot) % CYCLE;
            let load = [40, 60, 90, 60, 40, 20][phase * 6 / CYCLE];
            let selector = format!("app={app}");
            let pods = self.cluster.select("pods", Some(&namespace), &selector).unwrap();
            for pod in &pods {
                let cpu = load * 5 / pods.len();
                usage.push(json!({
                    "metadata": pod["metadata"], "timestamp": now, "window": "30s",
                    "containers": [{"name": "app", "usage": {"cpu": format!("{cpu}m"), "memory": "1Mi"}}],
                }));
            }
            let item = json!({
                "metricName": format!("queue-{app}"), "metricLabels": {}, "timestamp": now,
                "value": load.to_string(),
            });
            let fails = json!({"fault": {"code": 503, "reason": "ServiceUnavailable", "message": "later"}});
            let answer = if phase == CYCLE / 2 { fails } else { json!({ "items": [item] }) };
            external.insert(format!("queue-{app}"), answer);
        }
        self.metrics.set_resource(Some(json!({ "items": usage })));
        self.metrics.set_external(json!(external));
    }

    fn drop_events(&mut self) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let now = self.cluster.list("events", None);
        let previous: Vec<&(String, String)> = self.events.iter().flatten().collect();
        let name = |event: &Value| (text(&event["metadata"]["namespace"]), text(&event["metadata"]["name"]));
        let new = now.iter().map(name).filter(|name| !previous.contains(&name)).collect();
        self.events.push(new);
        if self.events.len() > EVENTS_KEPT {
            for (namespace, name) in self.events.remove(0) {
                self.cluster.delete_now("events", &namespace, &name).unwrap();
            }
        }
    }
}

fn namespace(slot: usize) -> String {
    format!("team-{}", slot % NAMESPACES)
}

fn path(namespace: &str, app: &str) -> ScalePath {
    ScalePath {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        namespace: namespace.to_owned(),
        name: app.to_owned(),
    }
}
