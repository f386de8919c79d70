//! The states of ScaledObjects, with the built-in controller and with Concertina. KEDA takes the activity of a
//! ScaledObject and the failures of its triggers from the queries of the HPA controller, so the states of KEDA depend on
//! these queries as well.
//!
//! The test compares settled states, and excludes two races of KEDA that both controllers lose now and then:
//!
//! - The reconciler, the polling loop and each query of an HPA write all conditions of a ScaledObject from copies of
//!   their own. After the creation of a ScaledObject, they often overwrite `Fallback`, and nothing writes it again until
//!   the next failure. ScaledObjects therefore exist before the controller starts.
//! - KEDA scales to zero after the cooldown, and the HPA scales to one after its window. The HPA keeps `ScalingLimited`
//!   of its last sync before zero. The cooldown is therefore clearly longer than the window.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::Keda;
use super::push::{PushScaler, TARGET};
use crate::adapter::Adapter;
use crate::outcome::{Context as _, Failure, Outcome, ensure, eventually, throughout};
use crate::world::{APP, Autoscaler, DOWNSCALE_WINDOW, Fixture, World};

/// A step includes the longest polling interval and KEDA's reconnection of a scaler.
const STEP: Duration = Duration::from_mins(2);
/// The time for which settled states have not changed. It is longer than every polling interval.
const SETTLE: Duration = Duration::from_secs(7);
/// The ScaledObjects: the count of pods, the page of an API, and a push scaler.
const OBJECTS: [&str; 3] = ["billing", "mail", "orders"];
/// The value per replica of the API.
const TARGET_VALUE: i64 = 10;
/// The page of the API responds with an error.
const FAILS: i64 = -1;

pub(crate) async fn are_equal_beside_both_controllers(stage: &Fixture) -> Outcome {
    let mut keda = Keda::start(stage).await?;
    let withholding = ["--status-precision=10%"];
    let controllers: [(_, &[&str]); 3] = [
        (Autoscaler::BuiltIn, &[]),
        (Autoscaler::under_test(), &[]),
        // KEDA reads the statuses of HPAs, so those that are withheld must not matter to it.
        (Autoscaler::under_test(), &withholding),
    ];
    let mut traces = Vec::new();
    for (which, flags) in controllers {
        let name = format!("states-{}", traces.len());
        let shop = Shop::open(stage, &name, which).await?;
        shop.settled().await?;
        let controller = stage.autoscaler_with(which, flags).await?;
        let trace = shop.run(stage, &mut keda).await;
        let logs = || format!("{which:?} {flags:?}\n{}{}", controller.tail(20), keda.tails());
        traces.push(trace.map_err(|Failure(reason)| Failure(format!("{reason}\n{}", logs())))?);
        shop.close().await?;
    }
    let Some((reference, all_of_ours)) = traces.split_first() else { return Err("no trace".into()) };
    for ours in all_of_ours {
        ensure(reference.len() == ours.len(), || format!("{reference:#?}\n{ours:#?}"))?;
        let differences: Vec<_> = reference
            .iter()
            .zip(ours)
            .filter(|(theirs, ours)| theirs != ours)
            .map(|(theirs, ours)| format!("  built-in: {theirs}\n  ours:     {ours}"))
            .collect();
        ensure(differences.is_empty(), || differences.join("\n"))?;
    }
    Ok(())
}

struct Shop {
    world: World,
    page: Arc<AtomicI64>,
    _api: Adapter,
    push: PushScaler,
}

impl Shop {
    /// Creates the workloads and their ScaledObjects.
    async fn open(stage: &Fixture, namespace: &str, which: Autoscaler) -> Outcome<Self> {
        let world = World::make(stage, namespace, which).await?;
        let page = Arc::new(AtomicI64::new(20));
        let value = Arc::clone(&page);
        let api = Adapter::start(move |_| match value.load(Ordering::Relaxed) {
            FAILS => (500, "text/plain", "no value".to_owned()),
            value => (200, "application/json", json!({"value": value}).to_string()),
        })
        .await?;
        let push = PushScaler::start().await?;
        let (orders, billing, mail, jobs) = tokio::join!(
            world.deployment("orders", 1, APP),
            world.deployment("billing", 1, APP),
            world.deployment("mail", 0, APP),
            world.deployment("jobs", 4, APP)
        );
        orders.and(billing).and(mail).and(jobs)?;
        let pods =
            json!({"type": "kubernetes-workload", "metadata": {"podSelector": "app=jobs", "value": "2"}});
        let url = format!("https://127.0.0.1:{}/", api.port);
        let metadata = json!({
            "url": url, "valueLocation": "value", "targetValue": TARGET_VALUE.to_string(), "unsafeSsl": "true",
        });
        let read = json!({"type": "metrics-api", "metadata": metadata});
        let address = format!("127.0.0.1:{}", push.port);
        let pushed = json!({"type": "external-push", "metadata": {"scalerAddress": address}});
        let fallback = json!({"failureThreshold": 3, "replicas": 6});
        let cooldown = (3 * DOWNSCALE_WINDOW).as_secs();
        let shop = Self { world, page, _api: api, push };
        shop.create(
            "orders",
            &pods,
            json!({"minReplicaCount": 0, "pollingInterval": 1, "cooldownPeriod": cooldown}),
        )
        .await?;
        // Without a way to zero replicas, only the queries of the HPA controller reach the trigger.
        shop.create(
            "billing",
            &read,
            json!({"minReplicaCount": 1, "pollingInterval": 1, "fallback": fallback}),
        )
        .await?;
        shop.create(
            "mail",
            &pushed,
            json!({"minReplicaCount": 0, "pollingInterval": 5, "cooldownPeriod": cooldown}),
        )
        .await?;
        Ok(shop)
    }

    async fn create(&self, name: &str, trigger: &Value, mut spec: Value) -> Outcome {
        spec["scaleTargetRef"] = json!({"name": name});
        spec["maxReplicaCount"] = json!(8);
        spec["triggers"] = json!([trigger]);
        let object = json!({
            "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": name}, "spec": spec,
        });
        self.world.api.create(&self.objects(""), &object).await.map(drop)
    }

    /// Returns the state of each ScaledObject after each step.
    async fn run(&self, stage: &Fixture, keda: &mut Keda) -> Outcome<Vec<String>> {
        let mut trace = Vec::new();
        let out = &mut trace;
        self.state(out, "start", [2, 0, 2]).await?;
        self.page.store(50, Ordering::Relaxed);
        self.push.set(3 * TARGET);
        self.jobs(10).await?;
        self.state(out, "up", [5, 3, 5]).await?;
        self.page.store(FAILS, Ordering::Relaxed);
        self.state(out, "fallback", [6, 3, 5]).await?;
        self.page.store(20, Ordering::Relaxed);
        self.state(out, "no fallback", [2, 3, 5]).await?;
        self.annotate("orders", json!({"autoscaling.keda.sh/paused-replicas": "3"})).await?;
        self.state(out, "paused", [2, 3, 3]).await?;
        self.annotate("orders", json!({"autoscaling.keda.sh/paused-replicas": null})).await?;
        self.state(out, "resumed", [2, 3, 5]).await?;
        self.jobs(0).await?;
        self.push.set(0);
        self.state(out, "zero", [2, 0, 0]).await?;
        self.jobs(6).await?;
        self.push.set(2 * TARGET);
        self.state(out, "from zero", [2, 2, 3]).await?;
        keda.stop_adapter();
        for name in OBJECTS {
            self.scaling_stops(name).await?;
        }
        self.jobs(10).await?;
        self.page.store(40, Ordering::Relaxed);
        self.state(out, "adapter away", [2, 2, 3]).await?;
        keda.start_adapter(stage)?;
        self.state(out, "adapter back", [4, 2, 5]).await?;
        Ok(trace)
    }

    /// Waits for the counts of all workloads, in the order of [`OBJECTS`], and adds the settled states of their
    /// ScaledObjects.
    async fn state(&self, trace: &mut Vec<String>, step: &str, counts: [i64; 3]) -> Outcome {
        let began = Instant::now();
        for (name, expected) in OBJECTS.iter().zip(counts) {
            eventually(STEP, &format!("{step}: {name} has {expected} replicas"), async || {
                let count = self.world.replicas(&self.world.deployments(name)).await?;
                ensure(count == expected, || format!("{count}"))
            })
            .await?;
        }
        let counted = began.elapsed().as_secs_f32();
        let states = self.settled().await?;
        let settled = began.elapsed().as_secs_f32();
        eprintln!(
            "    {:?}, {step}: counts after {counted:.1} s, settled after {settled:.1} s",
            self.world.autoscaler
        );
        trace.extend(states.iter().map(|state| format!("{step}, {state}")));
        Ok(())
    }

    /// Waits until the states have not changed for [`SETTLE`].
    async fn settled(&self) -> Outcome<Vec<String>> {
        eventually(STEP, "the states settle", async || {
            let states = self.states().await?;
            throughout(SETTLE, "the states are settled", async || {
                let later = self.states().await?;
                ensure(later == states, || format!("{states:#?}\nbecame {later:#?}"))
            })
            .await?;
            Ok(states)
        })
        .await
    }

    /// Returns the state of each ScaledObject.
    async fn states(&self) -> Outcome<Vec<String>> {
        let mut states = Vec::new();
        for name in OBJECTS {
            let count = self.world.replicas(&self.world.deployments(name)).await?;
            let object = self.world.api.get(&self.objects(name)).await?;
            let hpa = self.world.api.get(&self.world.hpas(&format!("keda-hpa-{name}"))).await;
            let hpa = hpa.as_ref().map_or_else(|_| vec!["no HPA".to_owned()], conditions);
            let health = object["status"]["health"].as_object().into_iter().flatten();
            let health: Vec<_> =
                health.map(|(metric, health)| format!("{metric} {}", health["status"])).collect();
            states.push(format!("{name}: {count}, {:?}, {hpa:?}, {health:?}", conditions(&object)));
        }
        Ok(states)
    }

    /// Waits until the HPA of a ScaledObject has no metric.
    async fn scaling_stops(&self, name: &str) -> Outcome {
        eventually(STEP, &format!("the HPA of {name} has no metric"), async || {
            let hpa = self.world.api.get(&self.world.hpas(&format!("keda-hpa-{name}"))).await?;
            let found = conditions(&hpa);
            let stopped = found.iter().any(|condition| condition.starts_with("ScalingActive=False "));
            ensure(stopped, || format!("{found:?}"))
        })
        .await
    }

    async fn jobs(&self, count: i64) -> Outcome {
        let jobs = self.world.deployments("jobs");
        self.world.api.merge(&jobs, &json!({"spec": {"replicas": count}})).await.map(drop)
    }

    async fn annotate(&self, name: &str, annotations: Value) -> Outcome {
        self.world
            .api
            .merge(&self.objects(name), &json!({"metadata": {"annotations": annotations}}))
            .await
            .map(drop)
    }

    fn objects(&self, name: &str) -> String {
        let path = format!("/apis/keda.sh/v1alpha1/namespaces/{}/scaledobjects/{name}", self.world.namespace);
        path.trim_end_matches('/').to_owned()
    }

    /// Deletes the ScaledObjects and their HPAs, so that the next controller finds none. No garbage collector runs here.
    async fn close(&self) -> Outcome {
        for name in OBJECTS {
            self.world.api.delete(&self.objects(name)).await?;
        }
        eventually(STEP, "the HPAs are deleted", async || {
            let hpas = self.world.api.list(self.world.hpas("").trim_end_matches('/')).await?;
            for hpa in &hpas {
                let name = hpa["metadata"]["name"].as_str().unwrap_or_default();
                self.world.api.delete_now(&self.world.hpas(name)).await?;
            }
            ensure(hpas.is_empty(), || format!("{} remain", hpas.len()))
        })
        .await
        .context(&self.world.namespace)
    }
}

/// The type, status and reason of each condition, in the order of their types.
fn conditions(object: &Value) -> Vec<String> {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let mut all: Vec<_> = all
        .map(|condition| {
            format!("{}={} {}", text(condition, "type"), text(condition, "status"), text(condition, "reason"))
        })
        .collect();
    all.sort();
    all
}
