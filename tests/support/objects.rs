//! A cluster in virtual time for a test with or without a controller, and its objects as plain JSON.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clock::{SharedClock, VirtualClock};
use fake_cluster::metrics::StaticMetrics;
use fake_cluster::{BareScale, Cluster, FaultAction, FaultId, FaultRule, LoggedRequest, ScalePath};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::logs;

pub(crate) const HPAS: &str = "autoscaling/horizontalpodautoscalers";

/// The default namespace of test objects.
pub(crate) const SHOP: &str = "shop";

/// An HPA with 1 to 10 replicas for the Deployment of the same name.
pub(crate) fn hpa(name: &str, metrics: &[Value]) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": SHOP, "name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1, "maxReplicas": 10, "metrics": metrics,
        },
    })
}

/// An external metric with a target of `average` per replica.
pub(crate) fn external(metric: &str, average: &str) -> Value {
    json!({"type": "External", "external": {
        "metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": average},
    }})
}

/// A metric of cpu usage with a target in percent of the request.
pub(crate) fn cpu(percent: u32) -> Value {
    json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent},
    }})
}

/// A Deployment with pods that request a tenth of a core.
pub(crate) fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": SHOP, "name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [
                    {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}},
                ]},
            },
        },
    })
}

/// A pod of `app` that has been ready for a day.
pub(crate) fn pod(app: &str, index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": SHOP, "name": format!("{app}-{index:04}"), "labels": {"app": app}},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {
            "phase": "Running", "startTime": "2029-12-31T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2029-12-31T00:01:00Z"}],
        },
    })
}

/// Start time of a test, unless it calls [`Fixture::starting_at`], and the timestamp of its metric values.
const EPOCH: &str = "2030-01-01T00:00:00Z";

/// Interval at which [`Fixture::until`] evaluates its condition.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A cluster with the namespace `shop` and metrics that the test sets.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) cluster: Cluster,
    pub(crate) clock: SharedClock,
    pub(crate) metrics: Arc<StaticMetrics>,
    started: (Instant, Timestamp),
    external: Mutex<BTreeMap<String, Value>>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::starting_at(EPOCH.parse().unwrap())
    }

    /// A cluster whose clock starts at `epoch`.
    pub(crate) fn starting_at(epoch: Timestamp) -> Self {
        logs::start();
        let clock: SharedClock = Arc::new(VirtualClock::starting_at(epoch));
        let cluster = Cluster::new(Arc::clone(&clock));
        let metrics = Arc::new(StaticMetrics::new());
        cluster.set_metrics(Arc::clone(&metrics) as _);
        cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}})).unwrap();
        Self { cluster, clock, metrics, started: (Instant::now(), epoch), external: Mutex::default() }
    }

    /// A cluster with the HPA `web`, whose target has 4 replicas. Its metric requests 8.
    pub(crate) fn growing() -> Self {
        let fixture = Self::new();
        fixture.target("web", 4);
        fixture.external("queue", "80");
        fixture.create(hpa("web", &[external("queue", "10")]));
        fixture
    }

    // --- changes

    /// Stores an object as a POST does. Panics if the object is invalid.
    pub(crate) fn create(&self, object: Value) -> Value {
        self.cluster.create(object).unwrap_or_else(|status| panic!("{status:?}"))
    }

    /// Changes an HPA as a PUT does.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut hpa = self.hpa(name);
        change(&mut hpa);
        self.cluster.update(hpa).unwrap_or_else(|status| panic!("{status:?}"));
    }

    /// Creates only the Scale of a Deployment, without the Deployment, with the selector `app={name}`.
    pub(crate) fn target(&self, name: &str, replicas: i64) {
        let scale =
            BareScale { spec_replicas: replicas, status_replicas: replicas, selector: format!("app={name}") };
        self.cluster.put_scale(&deployment_path(name), scale);
    }

    pub(crate) fn remove_target(&self, name: &str) {
        self.cluster.remove_scale(&deployment_path(name));
    }

    /// Sets the only series of an external metric.
    pub(crate) fn external(&self, metric: &str, value: &str) {
        let mut all = self.external.lock();
        let item = json!({
            "metricName": metric, "metricLabels": {}, "timestamp": EPOCH, "value": value,
        });
        all.insert(metric.to_owned(), json!({ "items": [item] }));
        self.metrics.set_external(all.clone().into_iter().collect());
    }

    /// Sets the cpu usage of each pod of `app`, in millicores. All other pods lose their metrics.
    pub(crate) fn cpu(&self, app: &str, millicores: &[u32]) {
        let pods = millicores.iter().enumerate().map(|(index, millicores)| {
            json!({
                "metadata": {"namespace": SHOP, "name": format!("{app}-{index:04}"), "labels": {"app": app}},
                "timestamp": EPOCH, "window": "30s",
                "containers": [{"name": "app", "usage": {"cpu": format!("{millicores}m"), "memory": "1Mi"}}],
            })
        });
        self.metrics.set_resource(Some(json!({ "items": pods.collect::<Vec<_>>() })));
    }

    /// Applies a fault to every request with a path that ends with `suffix`.
    pub(crate) fn fault(&self, suffix: &str, action: FaultAction) -> FaultId {
        self.cluster.faults().add(FaultRule::new(action).path_suffix(suffix))
    }

    // --- observations

    pub(crate) fn hpa(&self, name: &str) -> Value {
        self.hpa_in(SHOP, name)
    }

    pub(crate) fn hpa_in(&self, namespace: &str, name: &str) -> Value {
        self.cluster.get(HPAS, namespace, name).unwrap_or_else(|| panic!("no HPA {namespace}/{name}"))
    }

    /// `spec.replicas` of a target that [`Self::target`] created.
    pub(crate) fn replicas(&self, name: &str) -> i64 {
        self.cluster.scale(&deployment_path(name)).unwrap().spec_replicas
    }

    /// Status, reason and message of a condition, separated by spaces. Empty if the condition is missing.
    pub(crate) fn condition(&self, hpa: &str, kind: &str) -> String {
        let hpa = self.hpa(hpa);
        let conditions = hpa["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == kind);
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        found.map_or_else(String::new, |condition| {
            ["status", "reason", "message"].map(|field| text(condition, field)).join(" ")
        })
    }

    /// Reason and message of every event of an HPA.
    pub(crate) fn events(&self, hpa: &str) -> Vec<String> {
        let about = |event: &&Value| event["involvedObject"]["name"] == hpa;
        let text = |event: &Value| {
            format!("{} {}", event["reason"].as_str().unwrap(), event["message"].as_str().unwrap())
        };
        self.cluster.list("events", None).iter().filter(about).map(text).collect()
    }

    /// Number of requests so far with `verb` and a path that ends with `suffix`.
    pub(crate) fn count(&self, verb: &str, suffix: &str) -> usize {
        self.cluster.requests().count(|request| request.verb == verb && request.path.ends_with(suffix))
    }

    /// Start time of each sync of the HPA of `target`, since the start of the test. Every sync reads the Scale of a
    /// target without a workload once.
    pub(crate) fn syncs(&self, target: &str) -> Vec<Duration> {
        let suffix = format!("/{target}/scale");
        self.times(|request| request.verb == "get" && request.path.ends_with(&suffix))
    }

    /// Arrival times of the requests that satisfy a predicate, since the start of the test.
    pub(crate) fn times(&self, predicate: impl Fn(&LoggedRequest) -> bool) -> Vec<Duration> {
        let entries = self.cluster.requests().entries();
        let since = |request: &LoggedRequest| request.at.duration_since(self.started.1).try_into().unwrap();
        entries.iter().filter(|request| predicate(request)).map(since).collect()
    }

    // --- time

    /// Virtual time since the start of the test.
    pub(crate) fn now(&self) -> Duration {
        self.started.0.elapsed()
    }

    /// Waits in virtual time.
    pub(crate) async fn pass(&self, seconds: f64) {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }

    /// Waits in virtual time until `condition` returns true. Returns the elapsed time. Panics after `seconds`.
    pub(crate) async fn until(
        &self,
        what: &str,
        seconds: f64,
        condition: impl Fn(&Self) -> bool,
    ) -> Duration {
        let start = Instant::now();
        while !condition(self) {
            assert!(
                start.elapsed() < Duration::from_secs_f64(seconds),
                "timed out after {seconds} s before: {what}"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        start.elapsed()
    }
}

fn deployment_path(name: &str) -> ScalePath {
    ScalePath {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        namespace: SHOP.to_owned(),
        name: name.to_owned(),
    }
}
