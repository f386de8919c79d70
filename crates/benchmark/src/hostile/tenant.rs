//! The hostile tenant, which runs in the server process.

#![expect(
    clippy::indexing_slicing,
    reason = "an index into a JSON object never panics, and the objects are our own"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fake_cluster::Cluster;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::workload::Workload;
use crate::workload::{ABSENT_METRIC, HOSTILE, Shape, Way};
use crate::world::World;

/// The annotation with the policy of an HPA.
const POLICY: &str = "concertina.dev/policy";
const HPAS: &str = "autoscaling/horizontalpodautoscalers";
/// The minimum interval between two rounds of actions.
const ROUND: Duration = Duration::from_millis(10);
/// The maximum share of the server's time for actions of the tenant. The server has one thread, so a larger share would
/// delay the responses to the controller.
const SHARE: f64 = 0.4;
/// The kinds between which the target of an HPA alternates.
const KINDS: [&str; 3] = ["ReplicaSet", "StatefulSet", "Deployment"];

/// A hostile tenant, which attacks through the HPAs of its apps.
#[derive(Debug)]
pub(crate) struct Tenant<'a> {
    way: Way,
    cluster: &'a Cluster,
    world: &'a World,
    /// The index of the tenant's first app in the world.
    first: usize,
    /// The number of the tenant's apps.
    apps: usize,
    /// The metrics of an HPA of extreme size, as JSON.
    metrics: String,
}

impl<'a> Tenant<'a> {
    /// Creates the tenant of a workload. Returns `None` if the workload has no tenant.
    pub(crate) fn from_workload(workload: &Workload, cluster: &'a Cluster, world: &'a World) -> Option<Self> {
        let way = workload.hostile?;
        let first = workload.all_hpas() + workload.probes;
        let metrics = serde_json::to_string(&metrics(way, 0)).unwrap_or_default();
        Some(Self { way, cluster, world, first, apps: way.apps().0, metrics })
    }

    /// Creates the targets of further kinds that [`Way::Kinds`] needs.
    pub(crate) fn prepare(&self, workload: &Workload) {
        if self.way != Way::Kinds {
            return;
        }
        // Every app gets objects of the other kinds, because the cost of a watch depends on the number of objects in
        // the whole cluster.
        for number in (0..workload.all_hpas()).chain(self.first..self.first + self.apps) {
            let key = self.world.key(number);
            let Some((namespace, name)) = key.split_once('/') else { continue };
            let Some(deployment) = self.cluster.get("apps/deployments", namespace, name) else { continue };
            for kind in ["ReplicaSet", "StatefulSet"] {
                let (spec, metadata) = (&deployment["spec"], &deployment["metadata"]);
                self.cluster.put_raw(json!({
                    "apiVersion": "apps/v1", "kind": kind,
                    "metadata": {"namespace": namespace, "name": name, "labels": metadata["labels"]},
                    "spec": {"replicas": spec["replicas"], "selector": spec["selector"],
                             "serviceName": name, "template": spec["template"]},
                    "status": {"replicas": spec["replicas"], "readyReplicas": spec["replicas"]},
                }));
            }
        }
    }

    /// Creates the HPAs, and then acts until the future is dropped. Counts each action in `actions`.
    pub(crate) async fn attack(&self, actions: &AtomicU64) {
        for number in 0..self.apps {
            let start = Instant::now();
            self.create(number);
            sleep(rest_after(start.elapsed())).await;
        }
        let rate = self.way.rate();
        if rate == 0.0 || self.apps == 0 {
            return std::future::pending().await;
        }
        let (start, mut made) = (Instant::now(), 0_u64);
        loop {
            let round = Instant::now();
            let due = start.elapsed().as_secs_f64() * rate;
            while (made as f64) < due && round.elapsed() < ROUND.mul_f64(SHARE) {
                self.act(made);
                made += 1;
                actions.fetch_add(1, Ordering::Relaxed);
            }
            sleep(ROUND.saturating_sub(round.elapsed()).max(rest_after(round.elapsed()))).await;
        }
    }

    fn name(&self, number: usize) -> String {
        let key = self.world.key(self.first + number % self.apps.max(1));
        key.split('/').next_back().unwrap_or_default().to_owned()
    }

    fn create(&self, number: usize) {
        let name = self.name(number);
        if matches!(self.way, Way::Large(..)) {
            return self.put_large(&name, 0);
        }
        let mut hpa = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"namespace": HOSTILE, "name": name},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 1, "maxReplicas": 2_000, "metrics": metrics(self.way, number),
            },
        });
        match self.way {
            Way::Policies(_) | Way::Restart => {
                hpa["metadata"]["annotations"][POLICY] = annotation(number).into();
            }
            Way::List => hpa["metadata"]["annotations"][POLICY] = usual(number).into(),
            _ => {}
        }
        if let Err(status) = self.cluster.create(hpa) {
            eprintln!("{HOSTILE}/{name}: {status}");
        }
    }

    /// Creates or changes an HPA of extreme size. The spec is stored as text, because parsing and validation of the
    /// metrics would take most of the server's time.
    fn put_large(&self, name: &str, round: usize) {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
        let (max, metrics) = (2_000 + round, &self.metrics);
        let spec = format!(
            r#"{{"maxReplicas":{max},"metrics":{metrics},"minReplicas":1,"scaleTargetRef":{target}}}"#
        );
        self.cluster.put_spec(HPAS, HOSTILE, name, &spec);
    }

    fn act(&self, number: u64) {
        let (turn, apps) = (usize::try_from(number).unwrap_or(0), self.apps.max(1));
        let round = turn / apps;
        match self.way {
            Way::Edits => self.change(turn, |spec| {
                let replicas = if round.is_multiple_of(2) { 5 } else { 3 };
                (spec["minReplicas"], spec["maxReplicas"]) = (replicas.into(), replicas.into());
            }),
            Way::Kinds => self.change(turn, |spec| {
                spec["scaleTargetRef"]["kind"] = KINDS.get(round % KINDS.len()).copied().into();
            }),
            Way::Large(..) => self.put_large(&self.name(turn), round + 1),
            Way::Events if turn.is_multiple_of(5) => {
                self.annotate(HPAS, &self.name(turn / 5), turn);
            }
            Way::Events => {
                if let Some(pod) = self.world.pod(self.first + turn % apps) {
                    self.annotate("pods", &pod, turn);
                }
            }
            Way::Policies(_) => {
                if let Some(mut hpa) = self.cluster.get(HPAS, HOSTILE, &self.name(turn)) {
                    hpa["metadata"]["annotations"][POLICY] = annotation(turn).into();
                    let _ = self.cluster.update(hpa);
                }
            }
            Way::ClusterPolicy => drop(self.cluster.put_raw(cluster_policy(turn))),
            Way::Pods => self.world.replace_pod(self.cluster, self.first + turn % apps),
            Way::Queries | Way::Hanging | Way::Restart | Way::List | Way::Handshakes | Way::Tokens => {}
        }
    }

    fn change(&self, turn: usize, change: impl FnOnce(&mut Value)) {
        let Some(mut hpa) = self.cluster.get(HPAS, HOSTILE, &self.name(turn)) else { return };
        change(&mut hpa["spec"]);
        // A conflict with a write of the controller is ignored.
        let _ = self.cluster.update(hpa);
    }

    fn annotate(&self, resource: &str, name: &str, turn: usize) {
        let Some(mut object) = self.cluster.get(resource, HOSTILE, name) else { return };
        object["metadata"]["annotations"]["example.com/turn"] = turn.to_string().into();
        let _ = self.cluster.update(object);
    }
}

/// Returns a valid policy that takes long to read, for its size and for the nodes that a policy may have. Each turn has
/// another text.
fn annotation(turn: usize) -> String {
    let schedule = |index: usize| {
        format!(
            "- {{name: a{index}, timeZone: America/New_York, start: '0 0 29 2 *', end: '* * * * *', minReplicas: 1}}\n"
        )
    };
    let schedules: String = (0..100).map(schedule).collect();
    let unknown = "{a: 0}, ".repeat(1_200);
    format!("schedules:\n{schedules}unknown: [{unknown}]\n# {turn}")
}

/// Returns a ClusterScalingPolicy for all HPAs that takes long to read and changes no count. Each turn has another text.
fn cluster_policy(turn: usize) -> Value {
    let schedule = |index: usize| {
        json!({"name": format!("a{index}"), "timeZone": "America/New_York", "start": "0 0 29 2 *",
               "end": "* * * * *", "minReplicas": 1})
    };
    json!({
        "apiVersion": "autoscaling.concertina.dev/v1alpha1", "kind": "ClusterScalingPolicy",
        "metadata": {"name": "platform", "uid": "platform", "generation": turn + 1},
        "spec": {"schedules": (0..100).map(schedule).collect::<Vec<_>>(), "unknown": [turn]},
    })
}

/// Returns a policy of usual size, another text for each number.
fn usual(number: usize) -> String {
    format!(
        "tolerance: 0.2\nschedules:\n- {{name: day, start: '0 8 * * 1-5', end: '0 20 * * 1-5', minReplicas: 1}}\n# {number}"
    )
}

/// Returns `spec.metrics` of the tenant's HPA with the given number.
fn metrics(way: Way, number: usize) -> Vec<Value> {
    let external = |metric: String| {
        json!({"type": "External", "external": {
            "metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": "10"},
        }})
    };
    let cpu = json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
    }});
    match way {
        Way::Queries => (0..10_000).map(|metric| external(format!("queue_{metric}"))).collect(),
        Way::Hanging => vec![external(format!("queue_{number}"))],
        Way::Large(Shape::Metrics, _) => vec![cpu; 30_000],
        Way::Large(Shape::Failures, _) => vec![external(ABSENT_METRIC.to_owned()); 20_000],
        Way::Large(Shape::Product, _) => vec![cpu; 10_000],
        _ => vec![cpu],
    }
}

/// Returns the pause after `busy` time of actions. The pauses limit the tenant to [`SHARE`] of the server's time.
fn rest_after(busy: Duration) -> Duration {
    busy.mul_f64(1.0 / SHARE - 1.0)
}
