//! An HPA that KEDA's operator creates from a ScaledObject. KEDA's metrics adapter serves its metric.
//!
//! `CONCERTINA_KEDA` names the folder that `tests/keda/build.sh` prints.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::log::{Log, first_write, judge};
use super::rig::{LABEL, PERIOD, Replica, built_in, create_namespace, kubeconfig, label, replica, webhook};
use crate::controlplane::{Keys, free_port};
use crate::election::now;
use crate::extensions;
use crate::metrics::EXTERNAL;
use crate::outcome::{Context as _, Failure, Outcome, Process, ensure, eventually};
use crate::world::{APP, Autoscaler, Fixture, SOON, World};

const VARIABLE: &str = "CONCERTINA_KEDA";
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

/// The operator and the metrics adapter of KEDA.
struct Keda {
    operator: Process,
    adapter: Process,
}

impl Keda {
    /// Installs KEDA, and replaces the registration of the external metrics API.
    async fn start(stage: &Fixture) -> Outcome<Self> {
        let programs = programs()?;
        let api = &stage.plane.admin;
        create_namespace(stage, "keda").await?;
        for file in std::fs::read_dir(programs.join("crds"))? {
            let text = std::fs::read_to_string(file?.path())?;
            let definition: Value = serde_saphyr::from_str(text.trim_start_matches("---\n"))?;
            api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
        }
        eventually(SOON, "ScaledObjects are served", async || {
            api.get("/apis/keda.sh/v1alpha1/scaledobjects").await.map(drop)
        })
        .await?;

        let certificates = certificates(stage)?;
        let (service, port) = (free_port()?, free_port()?);
        let mut operator = command(stage, &programs, "operator")?;
        operator.args(["--enable-prometheus-metrics=false", "--health-probe-bind-address=0"]);
        operator.arg(format!("--metrics-service-bind-address=127.0.0.1:{service}"));
        operator.arg("--cert-dir").arg(&certificates);
        let operator = Process::start("keda-operator", operator, stage.plane.folder())?;

        let mut adapter = command(stage, &programs, "adapter")?;
        for flag in ["--authentication-kubeconfig", "--authorization-kubeconfig", "--lister-kubeconfig"] {
            adapter.arg(flag).arg(kubeconfig(stage)?);
        }
        adapter.arg("--cert-dir").arg(&certificates);
        adapter.args(["--bind-address=127.0.0.1", &format!("--secure-port={port}")]);
        adapter.arg(format!("--metrics-service-address=localhost:{service}"));
        adapter.arg(format!("--port={}", free_port()?));
        let adapter = Process::start("keda-adapter", adapter, stage.plane.folder())?;

        let keda = Self { operator, adapter };
        extensions::unregister(api, EXTERNAL, "v1beta1").await?;
        extensions::name_as(api, "keda-metrics-apiserver", port).await?;
        extensions::register_at(api, ("keda-metrics-apiserver", port), EXTERNAL, "v1beta1").await?;
        extensions::available(api, EXTERNAL, "v1beta1").await.context(keda.tails())?;
        Ok(keda)
    }

    fn tails(&self) -> String {
        self.operator.tail(20) + &self.adapter.tail(20)
    }
}

fn programs() -> Outcome<PathBuf> {
    let folder = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    folder.map(PathBuf::from).ok_or_else(|| {
        Failure(format!(
            "{VARIABLE} is not set; build KEDA with: export {VARIABLE}=\"$(tests/keda/build.sh)\""
        ))
    })
}

fn command(stage: &Fixture, programs: &Path, name: &str) -> Outcome<Command> {
    let mut command = Command::new(programs.join(name));
    command.env("KUBECONFIG", kubeconfig(stage)?).env("WATCH_NAMESPACE", "");
    command.env("POD_NAMESPACE", "keda").env("KEDA_CLUSTER_OBJECT_NAMESPACE", "keda");
    Ok(command)
}

/// The folder with the certificates of both programs.
fn certificates(stage: &Fixture) -> Outcome<PathBuf> {
    let folder = stage.plane.folder().join("keda-certificates");
    std::fs::create_dir_all(&folder)?;
    let keys = Keys::generate()?;
    for (file, text) in
        [("ca.crt", &keys.authority_pem), ("tls.crt", &keys.certificate_pem), ("tls.key", &keys.key_pem)]
    {
        std::fs::write(folder.join(file), text)?;
    }
    Ok(folder)
}
