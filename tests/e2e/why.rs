//! `concertina why` next to the controller: its prediction must equal the next decision of the controller.
//!
//! `why` runs with read access to namespaces and their metrics only. The audit log shows that it only reads.

use std::path::{Path, PathBuf};
use std::process::Command;

use http::Method;
use serde_json::{Value, json};

use crate::audit;
use crate::outcome::{Context as _, Failure, Outcome, ensure, eventually};
use crate::why_situations::{SITUATIONS, Situation};
use crate::world::{APP, Autoscaler, DECISION_FLAGS, Fixture, SOON, World, binary, cpu_utilization};

/// The account that runs `why`.
const ACCOUNT: &str = "viewer";

/// The output of `why`.
struct Answer {
    document: Value,
    exit: i32,
}

/// Explains every situation before a controller runs. The first status of the controller must match the prediction.
pub(crate) async fn predicts(stage: &Fixture) -> Outcome {
    let user = viewer(stage).await?;
    let mut answers = Vec::new();
    let created = SITUATIONS.iter().map(async |situation| {
        let world = World::make(stage, situation.name, Autoscaler::Concertina).await?;
        situation.make(&world).await.context(situation.name)?;
        Ok(world)
    });
    let worlds: Vec<World> = futures::future::join_all(created).await.into_iter().collect::<Outcome<_>>()?;
    // The timestamps have whole seconds, and a sample must be newer than the time at which its pod became ready.
    tokio::time::sleep(std::time::Duration::from_millis(2_200)).await;

    let mut mismatches = Vec::new();
    for situation in SITUATIONS {
        let answer = why(&user, situation.name, "web")?;
        let sentence = answer.document["sentence"].as_str().unwrap_or_default();
        if !matches_pattern(situation.sentence, sentence) || answer.exit != situation.exit {
            mismatches.push(format!(
                "{}: why prints {sentence:?}, exit code {}; expected {:?}, exit code {}; findings: {}",
                situation.name,
                answer.exit,
                situation.sentence,
                situation.exit,
                codes(&answer.document),
            ));
        }
        answers.push(answer);
    }
    ensure(mismatches.is_empty(), || mismatches.join("\n"))?;

    let statuses = statuses_of_a_run(stage, &worlds).await?;
    for ((situation, answer), actual) in SITUATIONS.iter().zip(&answers).zip(&statuses) {
        if let Err(Failure(reason)) = compare(situation, &answer.document, actual) {
            mismatches.push(format!("{}: {reason}", situation.name));
        }
    }
    ensure(mismatches.is_empty(), || mismatches.join("\n"))?;
    eprintln!("{} situations predicted", SITUATIONS.len());
    check_reads_only(stage)
}

/// Explains decisions that depend on history while a controller runs, from the state that the controller wrote to the
/// cluster.
pub(crate) async fn explains_history(stage: &Fixture) -> Outcome {
    let user = viewer(stage).await?;
    let mut autoscaler = stage.autoscaler(Autoscaler::Concertina).await?;

    let windowed = World::make(stage, "past-window", Autoscaler::Concertina).await?;
    windowed.deployment("web", 2, APP).await?;
    windowed.cpu("web", 200);
    let spec = json!({
        "minReplicas": 1, "maxReplicas": 10, "metrics": [cpu_utilization(50)],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 120}},
    });
    windowed.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;

    let limited = World::make(stage, "past-policy", Autoscaler::Concertina).await?;
    limited.deployment("web", 2, APP).await?;
    limited.cpu("web", 600);
    let policies = json!([{"type": "Pods", "value": 1, "periodSeconds": 120}]);
    let spec = json!({
        "minReplicas": 1, "maxReplicas": 10, "metrics": [cpu_utilization(50)],
        "behavior": {"scaleUp": {"policies": policies}},
    });
    limited.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;

    windowed.replicas_become(&windowed.deployments("web"), 4).await?;
    windowed.cpu("web", 60);
    let stabilized = "AbleToScale=True ScaleDownStabilized: recent recommendations were higher than current one, \
                      applying the highest recent recommendation";
    windowed.condition("web", stabilized).await?;
    limited.replicas_become(&limited.deployments("web"), 3).await?;
    let rate = "ScalingLimited=True ScaleUpLimit: the desired replica count is increasing faster than the maximum scale rate";
    limited.condition("web", rate).await?;

    for (world, sentence) in [
        (
            &windowed,
            "stays at 4: cpu asks for 2, but the 2 min scale-down window still holds 4, for at least another *",
        ),
        (&limited, "stays at 3: cpu asks for *, but the scale-up policies allow 3, for another *"),
    ] {
        eventually(SOON, &format!("why explains {} with {sentence:?}", world.namespace), async || {
            let answer = why(&user, &world.namespace, "web")?;
            let printed = answer.document["sentence"].as_str().unwrap_or_default();
            ensure(matches_pattern(sentence, printed), || format!("why prints {printed:?}"))?;
            let actual = world.api.get(&world.hpas("web")).await?;
            same_conditions(&answer.document, &actual["status"])
        })
        .await?;
    }
    autoscaler.still_runs()?;
    check_reads_only(stage)
}

/// Without the right to read metrics, `why` still explains the HPA and names the missing right.
pub(crate) async fn names_forbidden_reads(stage: &Fixture) -> Outcome {
    let user = stage.plane.service_account("default", "unprivileged").await?;
    bind(stage, "unprivileged", "system:aggregate-to-view").await?;
    let world = World::make(stage, "no-rights", Autoscaler::Concertina).await?;
    world.deployment("web", 2, APP).await?;
    world.cpu("web", 100);
    let spec = json!({"minReplicas": 1, "maxReplicas": 10, "metrics": [cpu_utilization(50)]});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    let answer = why(&user, "no-rights", "web")?;
    ensure(answer.exit == 3, || format!("exit code {}: {}", answer.exit, answer.document))?;
    let text = answer.document["findings"].to_string();
    ensure(text.contains("pods.metrics.k8s.io"), || format!("the findings do not name the right: {text}"))
}

/// Runs the controller for 15 s. Returns the first status of each HPA, or the last status if the first status cannot
/// show the situation.
async fn statuses_of_a_run(stage: &Fixture, worlds: &[World]) -> Outcome<Vec<Value>> {
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
            let status = if situation.shows_at_once() { statuses.next() } else { statuses.last() };
            let status = status.map(|object| object["status"].clone());
            status.ok_or_else(|| Failure(format!("{}: no status\n{}", world.namespace, autoscaler.tail(20))))
        })
        .collect()
}

/// Compares count and conditions with the prediction.
fn compare(situation: &Situation, document: &Value, actual: &Value) -> Outcome {
    let desired = &document["explanation"]["desired"];
    if !situation.shows_at_once() {
        // An earlier sync may have set a count, and conditions that this decision does not change.
        let (predicted, actual) =
            (condition_texts(&document["conditions"]), condition_texts(&actual["conditions"]));
        return ensure(
            desired.is_null() && predicted.iter().all(|condition| actual.contains(condition)),
            || {
                format!(
                    "conditions\n  predicted {predicted:#?}\n  actual    {actual:#?}\n  with {desired} replicas"
                )
            },
        );
    }
    same_conditions(document, actual)?;
    // Without a proposal the status keeps its previous count, which is zero here.
    let expected = if desired.is_null() { json!(0) } else { desired.clone() };
    ensure(actual["desiredReplicas"] == expected, || {
        format!(
            "predicted {}, but the status is {} after {:?}",
            expected, actual["desiredReplicas"], situation.sentence
        )
    })
}

fn same_conditions(document: &Value, actual: &Value) -> Outcome {
    let predicted = condition_texts(&document["conditions"]);
    let actual = condition_texts(&actual["conditions"]);
    ensure(predicted == actual, || format!("conditions\n  predicted {predicted:#?}\n  actual    {actual:#?}"))
}

/// Type, status, reason and message of each condition.
fn condition_texts(conditions: &Value) -> Vec<String> {
    let conditions = conditions.as_array().into_iter().flatten();
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let mut all: Vec<String> = conditions
        .map(|condition| {
            ["type", "status", "reason", "message"].map(|field| text(condition, field)).join(" ")
        })
        .collect();
    all.sort();
    // If several pods are the cause, the controller names any of them.
    all.iter().map(|line| line.split(" of Pod ").next().unwrap_or_default().to_owned()).collect()
}

fn codes(document: &Value) -> String {
    let findings = document["findings"].as_array().into_iter().flatten();
    let codes: Vec<&str> = findings.map(|finding| finding["code"].as_str().unwrap_or("?")).collect();
    codes.join(", ")
}

/// Whether a text matches a pattern in which `*` matches any text.
fn matches_pattern(pattern: &str, text: &str) -> bool {
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

/// Runs `why` as a user at a terminal does.
fn why(kubeconfig: &Path, namespace: &str, name: &str) -> Outcome<Answer> {
    let mut command = Command::new(binary());
    // This test covers the inputs that `why` can read without the record of the controller.
    command.args(["why", "-n", namespace, name, "--record=off", "--output", "json"]).args(DECISION_FLAGS);
    command.env("KUBECONFIG", kubeconfig).env_remove("HTTPS_PROXY");
    let output = command.output().context("failed to run concertina why")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let document = serde_json::from_str(&text).map_err(|error| {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Failure(format!("why -n {namespace} {name}: {error}\n{text}\n{stderr}"))
    })?;
    Ok(Answer { document, exit: output.status.code().unwrap_or(-1) })
}

/// A user with read access to namespaces and their metrics, and no other rights.
async fn viewer(stage: &Fixture) -> Outcome<PathBuf> {
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
    // The account has a part of the role `view`. The controller that aggregates the role does not run here.
    bind(stage, ACCOUNT, "system:aggregate-to-view").await?;
    bind(stage, ACCOUNT, "metrics-reader").await?;
    Ok(kubeconfig)
}

pub(crate) async fn bind(stage: &Fixture, account: &str, role: &str) -> Outcome {
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

/// Checks that the audit log has only reads of the account, none of them refused.
fn check_reads_only(stage: &Fixture) -> Outcome {
    let reads =
        audit::only_reads(&stage.plane.audit_log()?, &format!("system:serviceaccount:default:{ACCOUNT}"))?;
    eprintln!("{reads} reads, no other requests");
    Ok(())
}
