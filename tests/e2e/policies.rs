//! Scaling policies on the real API server: the shipped definitions, the permissions that `concertina rbac` prints, and
//! a scenario per group of fields. All scenarios run at the same time, each in its own namespace.

#[path = "policies/adapters.rs"]
pub(crate) mod adapters;
#[path = "policies/fields.rs"]
mod fields;
#[path = "policies/forecasts.rs"]
pub(crate) mod forecasts;
#[path = "policies/guards.rs"]
mod guards;

use std::fs;
use std::path::Path;
use std::pin::Pin;
use std::process::Command;
use std::time::Duration;

use http::Method;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::election::now;
use crate::identity::RBAC;
use crate::outcome::{Context as _, Failure, Outcome, Process, ensure, eventually};
use crate::rest::media;
use crate::world::{APP, Autoscaler, DECISION_FLAGS, Fixture, SOON, World, binary, external};

const HOME: &str = "replicas";
const GROUP: &str = "/apis/autoscaling.concertina.dev/v1alpha1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const ANNOTATION: &str = "concertina.dev/policy";
/// The time for which a count must stay to show that a change is withheld: several sync periods and the scale-down
/// window.
const WITHHELD: Duration = Duration::from_secs(6);

type Scenario = for<'w> fn(&'w World) -> Pin<Box<dyn Future<Output = Outcome> + 'w>>;

const SCENARIOS: &[(&str, Scenario)] = &[
    ("modes", |world| Box::pin(fields::modes(world))),
    ("until", |world| Box::pin(fields::until(world))),
    ("schedules", |world| Box::pin(fields::schedules(world))),
    ("settings", |world| Box::pin(fields::settings(world))),
    ("starting-pods", |world| Box::pin(fields::starting_pods(world))),
    ("fallback", |world| Box::pin(fields::fallback(world))),
    ("combine", |world| Box::pin(fields::combine(world))),
    ("corrections", |world| Box::pin(fields::corrections(world))),
    ("second-adapter", |world| Box::pin(adapters::second_adapter(world))),
    ("pending-pods", |world| Box::pin(guards::pending_pods(world))),
    ("owned-pods", |world| Box::pin(guards::owned_pods(world))),
    ("rollouts", |world| Box::pin(guards::rollouts(world))),
    ("zero-metrics", |world| Box::pin(guards::zero_metrics(world))),
    ("steps", |world| Box::pin(guards::steps(world))),
    ("deleted-in-a-pause", |world| Box::pin(fields::deleted_in_a_pause(world))),
    ("limits", |world| Box::pin(fields::limits(world))),
    ("status", |world| Box::pin(fields::status(world))),
    ("annotation", |world| Box::pin(fields::annotation(world))),
];

/// Runs all scenarios with one controller.
pub(crate) async fn fields(stage: &Fixture) -> Outcome {
    define(stage).await?;
    guards::define_rollouts(&stage.plane.admin).await?;
    let mut process = start(stage).await?;
    let all = SCENARIOS.iter().map(async |(name, scenario)| {
        let run = async {
            let world = World::make(stage, name, Autoscaler::Concertina).await?;
            scenario(&world).await
        };
        (*name, run.await)
    });
    let results = futures::future::join_all(all).await;
    let failures: Vec<String> = results
        .into_iter()
        .filter_map(|(name, outcome)| outcome.err().map(|Failure(reason)| format!("{name}: {reason}")))
        .collect();
    process.still_runs()?;
    ensure(failures.is_empty(), || format!("{}\n{}", failures.join("\n\n"), process.tail(40)))?;
    let log = process.tail(usize::MAX);
    ensure(!log.contains("Forbidden") && !log.contains("forbidden"), || process.tail(100))
}

/// Starts the controller without the kinds: a policy in an annotation applies. The controller finds the kinds within
/// about a minute after their creation.
pub(crate) async fn absent_kinds(stage: &Fixture) -> Outcome {
    let process = start(stage).await?;
    let world = World::make(stage, "absent", Autoscaler::Concertina).await?;
    fields::annotation(&world).await.context(process.tail(30))?;
    process.wait_for_log("reading policies from annotations only", SOON).await?;
    define(stage).await?;
    policy(&world, "pause", &json!({"mode": "Paused"})).await?;
    hpa(&world, "web", 40).await?;
    let paused = eventually(2 * SOON, "the kinds are found", async || active(&world, "web", "Paused").await);
    paused.await.context(process.tail(30))
}

/// Installs definitions of an older release, without `burst` and without `matched` in the status. Their fields take
/// effect, and the definitions of this release add the missing fields.
pub(crate) async fn older_kinds(stage: &Fixture) -> Outcome {
    define_as(stage, |schema| {
        for (part, field) in [("spec", "burst"), ("status", "matched")] {
            let fields = schema["properties"][part]["properties"].as_object_mut();
            fields.ok_or("a schema without fields")?.remove(field).ok_or("the field is absent")?;
        }
        Ok(())
    })
    .await?;
    let process = start(stage).await?;
    let world = World::make(stage, "older", Autoscaler::Concertina).await?;
    let web = world.deployments("web");
    let base = format!("{GROUP}/namespaces/{}/scalingpolicies", world.namespace);
    let version = GROUP.trim_start_matches("/apis/");
    let body = |name: &str| {
        json!({
            "apiVersion": version, "kind": "ScalingPolicy", "metadata": {"name": name},
            "spec": {"mode": "Paused", "burst": {"windowSeconds": 6}},
        })
    };
    // kubectl requests strict validation, and other clients request warnings.
    let path = format!("{base}?fieldValidation=Strict");
    let strict = world.api.send(Method::POST, &path, &[], Some(&body("strict"))).await?;
    ensure(strict.code == 400 && strict.text.contains(r#"unknown field \"spec.burst\""#), || {
        strict.text.clone()
    })?;
    world.api.create(&base, &body("pause")).await?;
    hpa(&world, "web", 60).await?;
    active(&world, "web", "Paused").await?;
    world.replicas_stay(&web, 2, WITHHELD).await?;
    process.wait_for_log("the API server does not keep the status of a policy", SOON).await?;
    let object = world.api.get(&format!("{base}/pause")).await?;
    let status = &object["status"];
    ensure(status["matched"].is_null() && status["conditions"][0]["status"] == "True", || {
        status.to_string()
    })?;

    redefine(stage).await?;
    eventually(SOON, "the field is known", async || {
        policy(&world, "pause", &json!({"mode": "Auto", "burst": {"windowSeconds": 6}})).await?;
        let object = world.api.get(&format!("{base}/pause")).await?;
        ensure(object["spec"]["burst"]["windowSeconds"] == 6, || object.to_string())
    })
    .await?;
    world.replicas_become(&web, 6).await?;
    eventually(2 * SOON, "the status is complete", async || {
        let object = world.api.get(&format!("{base}/pause")).await?;
        ensure(object["status"]["matched"] == 1, || object["status"].to_string())
    })
    .await
    .context(process.tail(30))
}

/// Creates the shipped definitions and waits until the kinds are served.
async fn define(stage: &Fixture) -> Outcome {
    define_as(stage, |_| Ok(())).await
}

/// Replaces the definitions with the shipped definitions.
async fn redefine(stage: &Fixture) -> Outcome {
    for definition in shipped()?.iter().filter(|object| is_definition(object)) {
        let name = definition["metadata"]["name"].as_str().ok_or("a definition without a name")?;
        let change = json!({"spec": definition["spec"]});
        stage.plane.admin.merge(&format!("{DEFINITIONS}/{name}"), &change).await?;
    }
    Ok(())
}

fn shipped() -> Outcome<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/kustomize/components/scaling-policies/definitions.yaml");
    let text = fs::read_to_string(path)?;
    text.split("\n---\n").map(|document| Ok(serde_saphyr::from_str(document)?)).collect()
}

fn is_definition(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
}

/// Creates the shipped definitions with a change of their schemas, and waits until the kinds are served.
async fn define_as(stage: &Fixture, change: impl Fn(&mut Value) -> Outcome) -> Outcome {
    let admin = &stage.plane.admin;
    for mut object in shipped()? {
        if is_definition(&object) {
            change(&mut object["spec"]["versions"][0]["schema"]["openAPIV3Schema"])?;
            admin.create(DEFINITIONS, &object).await?;
        } else {
            admin.create(&format!("{RBAC}/clusterroles"), &object).await?;
        }
    }
    for kind in ["scalingpolicies", "clusterscalingpolicies"] {
        eventually(SOON, &format!("{kind} are served"), async || {
            admin.get(&format!("{GROUP}/{kind}")).await.map(drop)
        })
        .await?;
    }
    Ok(())
}

/// Starts the controller with the permissions that `concertina rbac` prints, plus permission to list Rollouts.
async fn start(stage: &Fixture) -> Outcome<Process> {
    let admin = &stage.plane.admin;
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": HOME}})).await?;
    let kubeconfig = stage.plane.service_account(HOME, "concertina").await?;
    let sources = stage.plane.folder().join("sources.yaml");
    fs::write(&sources, format!("adapters: [{{apiGroup: {}}}]\n", adapters::GROUP))?;
    let sources = format!("--metric-sources={}", sources.display());
    let flags = ["--watch-scaling-policies", "--leader-elect=false", "--secure-port=0", &sources];
    let mut rbac = Command::new(binary());
    rbac.arg("rbac").arg(format!("--service-account={HOME}/concertina")).args(flags);
    let printed = rbac.output()?;
    ensure(printed.status.success(), || String::from_utf8_lossy(&printed.stderr).into_owned())?;
    admin.create_all(&String::from_utf8(printed.stdout)?).await?;
    let rules = json!([{"apiGroups": ["argoproj.io"], "resources": ["rollouts"], "verbs": ["list"]}]);
    let role = json!({"metadata": {"name": "rollouts"}, "rules": rules});
    admin.create(&format!("{RBAC}/clusterroles"), &role).await?;
    let binding = json!({
        "metadata": {"name": "rollouts"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "rollouts"},
        "subjects": [{"kind": "ServiceAccount", "namespace": HOME, "name": "concertina"}],
    });
    admin.create(&format!("{RBAC}/clusterrolebindings"), &binding).await?;
    let mut command = Command::new(binary());
    command.args(flags).arg("--kubeconfig").arg(kubeconfig).args(DECISION_FLAGS);
    command.args(["--horizontal-pod-autoscaler-sync-period=1s", "--takeover=off"]);
    command.args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
    Process::start("concertina", command, stage.plane.folder())
}

/// Creates a Deployment with two ready pods, and its HPA with the bounds 1 and 10. An external metric of the same name
/// proposes `demand / 10` pods.
async fn hpa(world: &World, name: &str, demand: u32) -> Outcome {
    world.deployment(name, 2, APP).await?;
    world.external(name, &[&demand.to_string()]);
    let spec =
        json!({"minReplicas": 1, "maxReplicas": 10, "metrics": [external(name, "AverageValue", "10")]});
    world.hpa(name, ("apps/v1", "Deployment", name), spec).await
}

/// Creates or replaces the spec of a ScalingPolicy for all HPAs of the namespace.
async fn policy(world: &World, name: &str, spec: &Value) -> Outcome {
    let path = format!("{GROUP}/namespaces/{}/scalingpolicies", world.namespace);
    put(world, "ScalingPolicy", &path, name, spec).await
}

/// Like [`policy`], but for a ClusterScalingPolicy that applies to the namespace only.
async fn cluster_policy(world: &World, name: &str, spec: &Value) -> Outcome {
    let mut spec = spec.clone();
    spec["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": world.namespace}});
    put(world, "ClusterScalingPolicy", &format!("{GROUP}/clusterscalingpolicies"), name, &spec).await
}

async fn put(world: &World, kind: &str, path: &str, name: &str, spec: &Value) -> Outcome {
    let version = GROUP.trim_start_matches("/apis/");
    let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let object = format!("{path}/{name}");
    if world.api.get(&object).await.is_err() {
        return world.api.create(path, &body).await.map(drop);
    }
    let change = json!([{"op": "replace", "path": "/spec", "value": spec}]);
    let headers = [("content-type", media::JSON_PATCH)];
    let answer = world.api.send(Method::PATCH, &object, &headers, Some(&change)).await?;
    ensure(answer.code == 200, || format!("PATCH {object}: {} {}", answer.code, answer.text))
}

/// Waits until the condition ScalingPolicyActive of an HPA is True with a reason.
async fn active(world: &World, hpa: &str, reason: &str) -> Outcome {
    let start = format!("ScalingPolicyActive=True {reason}: ");
    world.any_condition(hpa, &start, |condition| condition.starts_with(&start)).await
}

/// A time relative to now, in RFC 3339.
fn at(seconds: i64) -> String {
    (now() + SignedDuration::from_secs(seconds)).strftime("%FT%TZ").to_string()
}
