//! An HPA that KEDA's operator creates from a ScaledObject. KEDA's metrics adapter serves its metric.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::log::{Log, first_write, judge};
use super::rig::{LABEL, PERIOD, Replica, built_in, label, replica, webhook};
use crate::election::now;
use crate::keda::Keda;
use crate::outcome::{Context as _, Outcome, ensure, eventually};
use crate::world::{APP, Autoscaler, Fixture, SOON, World};

const NAMESPACE: &str = "keda-shop";
/// The name that KEDA gives to the HPA of the ScaledObject `orders`.
const HPA: &str = "keda-hpa-orders";
const OBJECT: &str = "/apis/keda.sh/v1alpha1/namespaces/keda-shop/scaledobjects/orders";
/// The number of jobs per pod of `orders`.
const JOBS: i64 = 2;

pub(crate) async fn scaled_object(stage: &Fixture) -> Outcome {
    let service = webhook(stage).await?;
    let keda = Keda::start(stage).await?;
    let world = World::make(stage, NAMESPACE, Autoscaler::Concertina).await?;
    world.deployment("orders", 1, APP).await?;
    world.deployment("jobs", 4, APP).await?;
    let built_in = built_in(stage).await?;
    let replica = replica(stage, "concertina", &[]).await?;
    service.set(&[replica.webhook]);
    replica.ready().await?;
    let shop = Shop { stage, world, replica, keda };
    shop.run().await.context(built_in.tail(20)).context(shop.keda.tails())
}

struct Shop<'a> {
    stage: &'a Fixture,
    world: World,
    replica: Replica,
    keda: Keda,
}

impl Shop<'_> {
    async fn run(&self) -> Outcome {
        let created = now();
        self.create_scaled_object().await?;
        first_write(self.stage, false, (NAMESPACE, HPA), created).await?;
        self.replicas(2).await?;

        let labelled = self.label(Some("concertina")).await?;
        // A sync without a change writes nothing.
        self.jobs(10).await?;
        let first = first_write(self.stage, true, (NAMESPACE, HPA), labelled).await;
        let first = first.context(self.replica.process.tail(20))?;
        let took = first.duration_since(labelled).unsigned_abs();
        eprintln!("    label of the HPA: first own write after {:.1} s", took.as_secs_f32());
        self.replicas(5).await?;
        self.stays_in_charge("scaled up", labelled + Duration::from_secs(3)).await?;

        // KEDA replaces the labels and the spec of the HPA.
        let changed = now();
        self.change(&json!({"spec": {"maxReplicaCount": 4}})).await?;
        self.hpa_is("maxReplicas is 4", |hpa| hpa["spec"]["maxReplicas"] == 4).await?;
        self.replicas(4).await?;
        self.stays_in_charge("updated by KEDA", changed).await?;

        self.pauses().await?;
        self.scales_to_zero_and_back().await?;

        let unlabelled = self.label(None).await?;
        self.jobs(8).await?;
        let back = first_write(self.stage, false, (NAMESPACE, HPA), unlabelled).await?;
        let took = back.duration_since(unlabelled).unsigned_abs();
        eprintln!("    label removed: the built-in controller wrote after {:.1} s", took.as_secs_f32());
        self.replicas(4).await?;
        self.hpa_is("the HPA has no label", |hpa| hpa["metadata"]["labels"][LABEL].is_null()).await?;
        let late = Log::read(self.stage, NAMESPACE, HPA)?.by(true, back);
        ensure(late.is_empty(), || format!("Concertina wrote an HPA out of scope: {late:?}"))
    }

    /// Creates a ScaledObject whose trigger counts the pods of `jobs`.
    async fn create_scaled_object(&self) -> Outcome {
        let object = json!({
            "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
            "metadata": {"name": "orders", "labels": {"team": "shop"}},
            "spec": {
                "scaleTargetRef": {"name": "orders"},
                "minReplicaCount": 0, "maxReplicaCount": 8, "pollingInterval": 1, "cooldownPeriod": 1,
                "triggers": [{
                    "type": "kubernetes-workload",
                    "metadata": {"podSelector": "app=jobs", "value": JOBS.to_string()},
                }],
            },
        });
        self.world.api.create(OBJECT.trim_end_matches("/orders"), &object).await.map(drop)
    }

    /// Pauses the ScaledObject: KEDA keeps the count and deletes the HPA. After the pause, the new HPA has the label.
    async fn pauses(&self) -> Outcome {
        let annotation = "autoscaling.keda.sh/paused-replicas";
        self.change(&json!({"metadata": {"annotations": {annotation: "3"}}})).await?;
        self.replicas(3).await?;
        self.world.replicas_stay(&self.world.deployments("orders"), 3, PERIOD * 2).await?;
        let resumed = now();
        self.change(&json!({"metadata": {"annotations": {annotation: null}}})).await?;
        let first = first_write(self.stage, true, (NAMESPACE, HPA), resumed).await?;
        let took = first.duration_since(resumed).unsigned_abs();
        eprintln!("    resumed: first own write after {:.1} s", took.as_secs_f32());
        self.replicas(4).await?;
        self.stays_in_charge("resumed", first).await
    }

    /// KEDA scales from 1 to 0 and back, and Concertina scales between 1 and the maximum.
    async fn scales_to_zero_and_back(&self) -> Outcome {
        self.jobs(0).await?;
        self.replicas(0).await?;
        let woken = now();
        self.jobs(6).await?;
        self.replicas(3).await?;
        let built_in = Log::read(self.stage, NAMESPACE, HPA)?.by(false, woken);
        ensure(built_in.is_empty(), || format!("the built-in controller wrote {built_in:?}"))?;
        self.stays_in_charge("from zero", now()).await
    }

    /// Checks that the HPA has the label and Concertina is in charge for three periods, and that only Concertina has
    /// written since `from`.
    async fn stays_in_charge(&self, title: &str, from: jiff::Timestamp) -> Outcome {
        self.replica.all_are(self.stage, NAMESPACE, "in_charge", 1).await?;
        sleep(PERIOD * 3).await;
        self.hpa_is("the HPA has the label", |hpa| hpa["metadata"]["labels"][LABEL] == "concertina").await?;
        self.replica.all_are(self.stage, NAMESPACE, "in_charge", 1).await?;
        let figures = Log::read(self.stage, NAMESPACE, HPA)?.figures(title, true, from, now());
        // Without a change of the metric a sync has nothing to write, so the gap is not judged.
        judge(&figures, Duration::MAX)
    }

    async fn hpa_is(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Outcome {
        eventually(SOON, what, async || {
            let hpa = self.world.api.get(&self.world.hpas(HPA)).await?;
            ensure(is_so(&hpa), || hpa.to_string())
        })
        .await
    }

    async fn jobs(&self, count: i64) -> Outcome {
        let jobs = self.world.deployments("jobs");
        self.world.api.merge(&jobs, &json!({"spec": {"replicas": count}})).await.map(drop)
    }

    async fn replicas(&self, expected: i64) -> Outcome {
        eventually(SOON, &format!("{expected} replicas"), async || {
            let count = self.world.replicas(&self.world.deployments("orders")).await?;
            ensure(count == expected, || format!("{count}"))
        })
        .await
        .context(self.replica.process.tail(20))
    }

    /// Sets or removes the label of the ScaledObject, and then the label of the HPA. KEDA copies labels when it writes
    /// the HPA, but a change of a label alone causes no write.
    async fn label(&self, value: Option<&str>) -> Outcome<jiff::Timestamp> {
        self.change(&json!({"metadata": {"labels": {LABEL: value}}})).await?;
        label(&self.world, HPA, value).await
    }

    async fn change(&self, patch: &Value) -> Outcome {
        self.world.api.merge(OBJECT, patch).await.map(drop)
    }
}
