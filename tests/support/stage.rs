//! A cluster in virtual time, before and while a controller works on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use concertina::clock::{SharedClock, VirtualClock};
use concertina::embedded::metrics::StaticMetrics;
use concertina::embedded::{BareScale, Cluster, FaultAction, FaultId, FaultRule, LoggedRequest, ScalePath};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::logs;
use super::network::Network;
use super::objects::SHOP;

pub(crate) const HPAS: &str = "autoscaling/horizontalpodautoscalers";

/// When every test begins.
const EPOCH: &str = "2030-01-01T00:00:00Z";

/// How long a wait for a condition lets pass between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// A cluster with the namespace `shop`, its metrics set by hand.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) clock: SharedClock,
    pub(crate) metrics: Arc<StaticMetrics>,
    /// Between processes.
    pub(crate) network: Network,
    began: (Instant, Timestamp),
    external: Mutex<BTreeMap<String, Value>>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        logs::begin();
        let epoch: Timestamp = EPOCH.parse().unwrap();
        let clock: SharedClock = Arc::new(VirtualClock::starting_at(epoch));
        let cluster = Cluster::new(Arc::clone(&clock));
        let metrics = Arc::new(StaticMetrics::new());
        cluster.set_metrics(Arc::clone(&metrics) as _);
        cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}})).unwrap();
        let network = Network::default();
        Self { cluster, clock, metrics, network, began: (Instant::now(), epoch), external: Mutex::default() }
    }

    // --- the world

    /// Stores an object by the rules of a POST; it must be valid.
    pub(crate) fn create(&self, object: Value) -> Value {
        self.cluster.create(object).unwrap_or_else(|status| panic!("{status:?}"))
    }

    /// Changes an autoscaler by the rules of a PUT.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut hpa = self.hpa(name);
        change(&mut hpa);
        self.cluster.update(hpa).unwrap_or_else(|status| panic!("{status:?}"));
    }

    /// A Deployment of which there is only the scale, with the selector `app={name}`.
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
        let mut all = self.external.lock().unwrap();
        let item = json!({
            "metricName": metric, "metricLabels": {}, "timestamp": EPOCH, "value": value,
        });
        all.insert(metric.to_owned(), json!({ "items": [item] }));
        self.metrics.set_external(all.clone().into_iter().collect());
    }

    /// Sets what each of these pods of `app` uses, in millicores.
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

    /// Lets every request whose path ends so fail in this way.
    pub(crate) fn fault(&self, suffix: &str, action: FaultAction) -> FaultId {
        self.cluster.faults().add(FaultRule::new(action).path_suffix(suffix))
    }

    // --- looks

    pub(crate) fn hpa(&self, name: &str) -> Value {
        self.hpa_in(SHOP, name)
    }

    pub(crate) fn hpa_in(&self, namespace: &str, name: &str) -> Value {
        self.cluster.get(HPAS, namespace, name).unwrap_or_else(|| panic!("no HPA {namespace}/{name}"))
    }

    /// `spec.replicas` of a target made by [`Self::target`].
    pub(crate) fn replicas(&self, name: &str) -> i64 {
        self.cluster.scale(&deployment_path(name)).unwrap().spec_replicas
    }

    /// Status, reason and message of a condition, by blanks; empty if there is none.
    pub(crate) fn condition(&self, hpa: &str, kind: &str) -> String {
        let hpa = self.hpa(hpa);
        let conditions = hpa["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == kind);
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        found.map_or_else(String::new, |condition| {
            ["status", "reason", "message"].map(|field| text(condition, field)).join(" ")
        })
    }

    /// Reason and message of every event about an autoscaler.
    pub(crate) fn events(&self, hpa: &str) -> Vec<String> {
        let about = |event: &&Value| event["involvedObject"]["name"] == hpa;
        let text = |event: &Value| {
            format!("{} {}", event["reason"].as_str().unwrap(), event["message"].as_str().unwrap())
        };
        self.cluster.list("events", None).iter().filter(about).map(text).collect()
    }

    /// How many requests were made so far with this verb on paths that end so.
    pub(crate) fn count(&self, verb: &str, suffix: &str) -> usize {
        self.cluster.requests().count(|request| request.verb == verb && request.path.ends_with(suffix))
    }

    /// When each sync of the autoscaler of a target began, since the test began: every sync reads the scale once.
    pub(crate) fn syncs(&self, target: &str) -> Vec<Duration> {
        let suffix = format!("/{target}/scale");
        self.times(|request| request.verb == "get" && request.path.ends_with(&suffix))
    }

    /// When requests that satisfy a predicate arrived, since the test began.
    pub(crate) fn times(&self, wanted: impl Fn(&LoggedRequest) -> bool) -> Vec<Duration> {
        let entries = self.cluster.requests().entries();
        let since = |request: &LoggedRequest| request.at.duration_since(self.began.1).try_into().unwrap();
        entries.iter().filter(|request| wanted(request)).map(since).collect()
    }

    // --- time

    /// Virtual time since the test began.
    pub(crate) fn now(&self) -> Duration {
        self.began.0.elapsed()
    }

    /// Lets virtual time pass.
    pub(crate) async fn pass(&self, seconds: f64) {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }

    /// Lets virtual time pass until a condition holds; how much that was. Fails when the bound is over.
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
                "after {seconds} s still not: {what}"
            );
            tokio::time::sleep(LOOK).await;
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
