//! `concertina why` beside the controller: what it says is what the controller then does.
//!
//! It runs with the rights of somebody who may look at a namespace and at its metrics, and the API server's log shows
//! that it does nothing but look.

use std::path::{Path, PathBuf};
use std::process::Command;

use http::Method;
use serde_json::{Value, json};

use crate::audit;
use crate::metric_specs::cpu_utilization;
use crate::outcome::{Context as _, Failure, Outcome, ensure, eventually};
use crate::stage::{Autoscaler, DECISION_FLAGS, Stage, binary};
use crate::why_situations::{SITUATIONS, Situation};
use crate::world::{APP, SOON, World};

/// The account that asks.
const ACCOUNT: &str = "onlooker";

/// What `why` said.
struct Told {
    document: Value,
    exit: i32,
}

/// Every situation is explained before any controller runs; then one runs, and its first status must be the one foretold.
pub(crate) async fn foretells(stage: &Stage) -> Outcome {
    let user = onlooker(stage).await?;
    let mut told = Vec::new();
    let making = SITUATIONS.iter().map(async |situation| {
        let world = World::make(stage, situation.name, Autoscaler::Concertina).await?;
        situation.make(&world).await.context(situation.name)?;
        Ok(world)
    });
    let worlds: Vec<World> = futures::future::join_all(making).await.into_iter().collect::<Outcome<_>>()?;
    // A sample must lie behind the moment in which its pod became ready, both in whole seconds.
    tokio::time::sleep(std::time::Duration::from_millis(2_200)).await;

    let mut wrong = Vec::new();
    for situation in SITUATIONS {
        let one = why(&user, situation.name, "web")?;
        let sentence = one.document["sentence"].as_str().unwrap_or_default();
        if !fits(situation.sentence, sentence) || one.exit != situation.exit {
            wrong.push(format!(
                "{}: said {sentence:?}, exit code {}; should be {:?}, exit code {}; findings: {}",
                situation.name,
                one.exit,
                situation.sentence,
                situation.exit,
                codes(&one.document),
            ));
        }
        told.push(one);
    }
    ensure(wrong.is_empty(), || wrong.join("\n"))?;

    let statuses = statuses_of_a_run(stage, &worlds).await?;
    for ((situation, one), seen) in SITUATIONS.iter().zip(&told).zip(&statuses) {
        if let Err(Failure(reason)) = compare(situation, &one.document, seen) {
            wrong.push(format!("{}: {reason}", situation.name));
        }
    }
    ensure(wrong.is_empty(), || wrong.join("\n"))?;
    eprintln!("{} situations foretold", SITUATIONS.len());
    looks_only(stage)
}

/// What depends on the past is explained while a controller runs, from what that one left in the cluster.
pub(crate) async fn explains_a_past(stage: &Stage) -> Outcome {
    let user = onlooker(stage).await?;
    let mut autoscaler = stage.autoscaler(Autoscaler::Concertina).await?;

    let held = World::make(stage, "past-window", Autoscaler::Concertina).await?;
    held.deployment("web", 2, APP).await?;
    held.cpu("web", 200);
    let spec = json!({
        "minReplicas": 1, "maxReplicas": 10, "metrics": [cpu_utilization(50)],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 120}},
    });
    held.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;

    let limited = World::make(stage, "past-policy", Autoscaler::Concertina).await?;
    limited.deployment("web", 2, APP).await?;
    limited.cpu("web", 600);
    let policies = json!([{"type": "Pods", "value": 1, "periodSeconds": 120}]);
    let spec = json!({
        "minReplicas": 1, "maxReplicas": 10, "metrics": [cpu_utilization(50)],
        "behavior": {"scaleUp": {"policies": policies}},
    });
    limited.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;

    held.replicas_become(&held.deployments("web"), 4).await?;
    held.cpu("web", 60);
    let stabilized = "AbleToScale=True ScaleDownStabilized: recent recommendations were higher than current one, \
                      applying the highest recent recommendation";
    held.condition("web", stabilized).await?;
    limited.replicas_become(&limited.deployments("web"), 3).await?;
    let rate = "ScalingLimited=True ScaleUpLimit: the desired replica count is increasing faster than the maximum scale rate";
    limited.condition("web", rate).await?;

    for (world, sentence) in [
        (
            &held,
            "stays at 4: cpu asks for 2, but the 2 min scale-down window still holds 4, for at least another *",
        ),
        (&limited, "stays at 3: cpu asks for *, but the scale-up policies allow 3, for another *"),
    ] {
        eventually(SOON, &format!("why says of {} {sentence:?}", world.namespace), async || {
            let one = why(&user, &world.namespace, "web")?;
            let said = one.document["sentence"].as_str().unwrap_or_default();
            ensure(fits(sentence, said), || format!("it says {said:?}"))?;
            let seen = world.api.get(&world.hpas("web")).await?;
            same_conditions(&one.document, &seen["status"])
        })
        .await?;
    }
    autoscaler.still_runs()?;
    looks_only(stage)
}

/// Without the right to read metrics the story still comes, and says which right is missing.
pub(crate) async fn names_what_it_may_not_read(stage: &Stage) -> Outcome {
    let user = stage.plane.service_account("default", "stranger").await?;
    bind(stage, "stranger", "system:aggregate-to-view").await?;
    let world = World::make(stage, "no-rights", Autoscaler::Concertina).await?;
    world.deployment("web", 2, APP).await?;
    world.cpu("web", 100);
    let spec = json!({"minReplicas": 1, "maxReplicas": 10, "metrics": [cpu_utilization(50)]});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    let one = why(&user, "no-rights", "web")?;
    ensure(one.exit == 3, || format!("exit code {}: {}", one.exit, one.document))?;
    let text = one.document["findings"].to_string();
    ensure(text.contains("pods.metrics.k8s.io"), || format!("the findings do not name the right: {text}"))
}

/// Runs the controller until every HPA has a status, and gives the first of each; the last where the first cannot show it.
async fn statuses_of_a_run(stage: &Stage, worlds: &[World]) -> Outcome<Vec<Value>> {
    const HPAS: &str = "/apis/autoscaling/v2/horizontalpodautoscalers";
    let list = stage.plane.admin.get(HPAS).await?;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let path = format!("{HPAS}?watch=1&timeoutSeconds=15&resourceVersion={version}");
    let admin = stage.plane.admin.clone();
    let watching = tokio::spawn(async move { admin.send(Method::GET, &path, &[], None).await });
    let mut autoscaler = stage.autoscaler(Autoscaler::Concertina).await?;
    let answer = watching.await??;
    autoscaler.still_runs()?;
    let changes = answer.lines();
    worlds
        .iter()
        .zip(SITUATIONS)
        .map(|(world, situation)| {
            let mut statuses = changes.iter().map(|change| &change["object"]).filter(|object| {
                object["metadata"]["namespace"] == world.namespace.as_str()
                    && object["metadata"]["name"] == "web"
                    && object["status"]["conditions"].is_array()
            });
            let status = if situation.is_seen_at_once() { statuses.next() } else { statuses.last() };
            let status = status.map(|object| object["status"].clone());
            status.ok_or_else(|| Failure(format!("{}: no status\n{}", world.namespace, autoscaler.tail(20))))
        })
        .collect()
}

/// Count and conditions as foretold.
fn compare(situation: &Situation, document: &Value, seen: &Value) -> Outcome {
    let desired = &document["explanation"]["desired"];
    if !situation.is_seen_at_once() {
        // An earlier sync may have left a count, and conditions that this decision does not touch.
        let (foretold, seen) = (essence(&document["conditions"]), essence(&seen["conditions"]));
        return ensure(
            desired.is_null() && foretold.iter().all(|condition| seen.contains(condition)),
            || {
                format!(
                    "conditions\n  foretold {foretold:#?}\n  seen     {seen:#?}\n  with {desired} replicas"
                )
            },
        );
    }
    same_conditions(document, seen)?;
    // Without a count the status keeps the one of before: none.
    let expected = if desired.is_null() { json!(0) } else { desired.clone() };
    ensure(seen["desiredReplicas"] == expected, || {
        format!("{} foretold, {} seen after {:?}", expected, seen["desiredReplicas"], situation.sentence)
    })
}

fn same_conditions(document: &Value, seen: &Value) -> Outcome {
    let foretold = essence(&document["conditions"]);
    let seen = essence(&seen["conditions"]);
    ensure(foretold == seen, || format!("conditions\n  foretold {foretold:#?}\n  seen     {seen:#?}"))
}

/// Type, status, reason and message of each condition.
fn essence(conditions: &Value) -> Vec<String> {
    let conditions = conditions.as_array().into_iter().flatten();
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let mut all: Vec<String> = conditions
        .map(|condition| {
            ["type", "status", "reason", "message"].map(|field| text(condition, field)).join(" ")
        })
        .collect();
    all.sort();
    // The server names a pod at random where several are to blame.
    all.iter().map(|line| line.split(" of Pod ").next().unwrap_or_default().to_owned()).collect()
}

fn codes(document: &Value) -> String {
    let findings = document["findings"].as_array().into_iter().flatten();
    let codes: Vec<&str> = findings.map(|finding| finding["code"].as_str().unwrap_or("?")).collect();
    codes.join(", ")
}

/// Whether a text fits a pattern in which `*` stands for anything.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut open = false;
    for part in parts {
        open = true;
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.is_empty() || (open && pattern.ends_with('*'))
}

/// Asks, as somebody at a terminal would.
fn why(kubeconfig: &Path, namespace: &str, name: &str) -> Outcome<Told> {
    let mut command = Command::new(binary());
    // What is known from outside alone is what is put to the test here.
    command.args(["why", "-n", namespace, name, "--record=off", "--output", "json"]).args(DECISION_FLAGS);
    command.env("KUBECONFIG", kubeconfig).env_remove("HTTPS_PROXY");
    let output = command.output().context("cannot run concertina why")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let document = serde_json::from_str(&text).map_err(|error| {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        Failure(format!("why -n {namespace} {name}: {error}\n{text}\n{words}"))
    })?;
    Ok(Told { document, exit: output.status.code().unwrap_or(-1) })
}

/// Somebody who may look at namespaces and their metrics, and nothing else.
async fn onlooker(stage: &Stage) -> Outcome<PathBuf> {
    let role = json!({
        "metadata": {"name": "metrics-reader"},
        "rules": [
            {"apiGroups": ["metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"],
             "resources": ["*"], "verbs": ["get", "list"]},
            {"apiGroups": ["example.com"], "resources": ["widgets", "widgets/scale"], "verbs": ["get"]},
        ],
    });
    let admin = &stage.plane.admin;
    admin.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await?;
    let kubeconfig = stage.plane.service_account("default", ACCOUNT).await?;
    // What the role `view` is made of; the controller that makes it does not run here.
    bind(stage, ACCOUNT, "system:aggregate-to-view").await?;
    bind(stage, ACCOUNT, "metrics-reader").await?;
    Ok(kubeconfig)
}

async fn bind(stage: &Stage, account: &str, role: &str) -> Outcome {
    let binding = json!({
        "metadata": {"name": format!("{account}-{}", role.replace(':', "-"))},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": account}],
    });
    stage
        .plane
        .admin
        .create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding)
        .await
        .map(drop)
}

/// The server's log shows reads alone, none of them refused.
fn looks_only(stage: &Stage) -> Outcome {
    let reads =
        audit::only_reads(&stage.plane.audit_log()?, &format!("system:serviceaccount:default:{ACCOUNT}"))?;
    eprintln!("{reads} reads, nothing else");
    Ok(())
}
