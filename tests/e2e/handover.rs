//! Handover of a labelled HPA, with the HPA controller of the real kube-controller-manager at work all the time.
//! The audit log shows which account wrote when, and which writes were refused.

use std::process::Command;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::audit::AUTOSCALER;
use crate::controlplane::free_port;
use crate::election::now;
use crate::fixture::{Autoscaler, DECISION_FLAGS, Fixture, binary};
use crate::metric_specs::cpu_utilization;
use crate::outcome::{Context as _, Failure, Outcome, ensure, eventually};
use crate::process::Process;
use crate::world::{APP, SOON, World};

const PERIOD: Duration = Duration::from_secs(2);
const PERIOD_FLAG: &str = "--horizontal-pod-autoscaler-sync-period=2s";
/// The namespace of Concertina. The audit log covers its accounts.
const HOME: &str = "replicas";
const ACCOUNT: &str = "system:serviceaccount:replicas:concertina";
const LABEL: &str = "concertina.dev/controller";
/// The delay of a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

pub(crate) async fn webhook(stage: &Fixture) -> Outcome {
    let port = free_port()?;
    let port_flag = format!("--handover-webhook-port={port}");
    let flags = ["--handover-guard=webhook", port_flag.as_str()];
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "concertina-handover"}});
    create_namespace(stage, HOME).await?;
    stage.plane.admin.create(&format!("/api/v1/namespaces/{HOME}/secrets"), &secret).await?;
    let mut configuration = shipped("webhook/webhook.yaml")?.remove(0);
    // The API server runs outside of the cluster network.
    let url = format!("https://127.0.0.1:{port}/handover");
    configuration["webhooks"][0]["clientConfig"] = json!({"url": url});
    stage.plane.admin.create(&path_of(&configuration), &configuration).await?;

    let (world, built_in, ours) = hand_over(stage, "handover-webhook", &flags).await?;

    // Without Concertina the API server allows the writes.
    ours.signal("KILL")?;
    let killed = now();
    world.cpu("a", 300);
    let back = first_write(stage, AUTOSCALER, "a", killed).await.context(built_in.tail(20))?;
    let took = back.duration_since(killed).unsigned_abs();
    eprintln!("the built-in controller wrote {took:.2?} after Concertina was killed");
    ensure(took <= PERIOD + Duration::from_secs(1) + SLACK, || format!("too late: {took:?}"))?;
    replicas(&world, "a", 6).await?;
    let patch = json!({"metadata": {"labels": {LABEL: null}}});
    world.api.merge(&world.hpas("a"), &patch).await?;
    world.close().await
}

pub(crate) async fn policy(stage: &Fixture) -> Outcome {
    create_namespace(stage, HOME).await?;
    for object in shipped("policy/policies.yaml")? {
        stage.plane.admin.create(&path_of(&object), &object).await?;
    }
    // The API server compiles policies in the background.
    sleep(Duration::from_secs(2)).await;
    let (world, built_in, ours) = hand_over(stage, "handover-policy", &["--handover-guard=policy"]).await?;

    // The policy holds without Concertina, until the label is removed.
    ours.signal("KILL")?;
    let killed = now();
    world.cpu("a", 300);
    sleep(PERIOD * 3).await;
    let writes = Log::read(stage, AUTOSCALER, "a")?.written_after(killed);
    ensure(writes.is_empty(), || format!("the built-in controller wrote {writes:?}"))?;
    let unlabelled = now();
    let patch = json!({"metadata": {"labels": {LABEL: null}}});
    world.api.merge(&world.hpas("a"), &patch).await?;
    let back = first_write(stage, AUTOSCALER, "a", unlabelled).await.context(built_in.tail(20))?;
    let took = back.duration_since(unlabelled).unsigned_abs();
    eprintln!("the built-in controller wrote {took:.2?} after the label was removed");
    ensure(took <= PERIOD + SLACK, || format!("too late: {took:?}"))?;
    replicas(&world, "a", 6).await?;
    world.close().await
}

/// Starts the built-in controller and Concertina, and hands HPA `a` over. HPA `b` stays with the built-in
/// controller.
async fn hand_over(stage: &Fixture, namespace: &str, flags: &[&str]) -> Outcome<(World, Process, Process)> {
    let world = World::make(stage, namespace, Autoscaler::Concertina).await?;
    for name in ["a", "b"] {
        world.cpu(name, 100);
        world.deployment(name, 2, APP).await?;
        let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
        world.hpa(name, ("apps/v1", "Deployment", name), spec).await?;
    }
    let built_in = stage.autoscaler_with(Autoscaler::BuiltIn, &[PERIOD_FLAG]).await?;
    let start = now();
    for name in ["a", "b"] {
        first_write(stage, AUTOSCALER, name, start - Duration::from_secs(1)).await?;
    }
    let ours = concertina(stage, flags).await?;
    ours.wait_for_log("the guard is in place", SOON).await.context(ours.tail(20))?;

    let labelled = now();
    world.api.merge(&world.hpas("a"), &json!({"metadata": {"labels": {LABEL: "concertina"}}})).await?;
    world.cpu("a", 200);
    world.cpu("b", 200);
    let first = first_write(stage, ACCOUNT, "a", labelled).await.context(ours.tail(20))?;
    let took = first.duration_since(labelled).unsigned_abs();
    eprintln!("Concertina wrote {took:.2?} after the label was set");
    // The silence before the first write, and the place of the HPA in the period.
    ensure(took <= PERIOD + Duration::from_secs(1) + SLACK, || format!("too late: {took:?}"))?;
    replicas(&world, "a", 4).await.context(ours.tail(20))?;
    replicas(&world, "b", 4).await.context(built_in.tail(20))?;
    sleep(PERIOD * 3).await;

    // The label reaches the replicas and the policies in the background.
    let settled = labelled + Duration::from_secs(1);
    let log = Log::read(stage, AUTOSCALER, "a")?;
    let (written, refused) = (log.written_after(settled), log.refused.len());
    eprintln!(
        "after the label: {refused} refused writes of the built-in controller, {} others",
        written.len()
    );
    ensure(written.is_empty(), || format!("the built-in controller wrote {written:?}"))?;
    // Once Concertina has written the status, the built-in controller decides the same and has nothing to write.
    ensure(refused >= 1, || format!("no write was refused\n{}", built_in.tail(20)))?;
    let others = Log::read(stage, AUTOSCALER, "b")?;
    ensure(others.refused.is_empty(), || format!("writes of b were refused: {:?}", others.refused))?;
    ensure(!others.written_after(settled).is_empty(), || "the built-in controller left b".to_owned())?;
    let ours_of_b = Log::read(stage, ACCOUNT, "b")?;
    ensure(ours_of_b.written.is_empty(), || format!("Concertina wrote b: {:?}", ours_of_b.written))?;
    Ok((world, built_in, ours))
}

/// Starts Concertina with an account that has exactly the permissions that `concertina rbac` prints.
async fn concertina(stage: &Fixture, more: &[&str]) -> Outcome<Process> {
    let mut flags = vec![PERIOD_FLAG, "--scope=labelled", "--secure-port=0", "--bind-address=127.0.0.1"];
    flags.extend(["--leader-elect-resource-namespace=replicas", "--handover-namespace=replicas"]);
    flags.extend(DECISION_FLAGS.iter().chain(more));
    let mut rbac = Command::new(binary());
    rbac.args(["rbac", "--service-account=replicas/concertina"]).args(&flags);
    let printed = rbac.output()?;
    ensure(printed.status.success(), || String::from_utf8_lossy(&printed.stderr).into_owned())?;
    let kubeconfig = stage.plane.service_account(HOME, "concertina").await?;
    stage.plane.admin.create_all(&String::from_utf8(printed.stdout)?).await?;
    let mut command = Command::new(binary());
    command.arg("--kubeconfig").arg(kubeconfig).args(&flags);
    Process::start("concertina", command, stage.plane.folder())
}

async fn create_namespace(stage: &Fixture, name: &str) -> Outcome {
    let body = json!({"metadata": {"name": name}});
    stage.plane.admin.create("/api/v1/namespaces", &body).await.map(drop)
}

/// The objects of a file below `deploy/kustomize/guards`.
fn shipped(file: &str) -> Outcome<Vec<Value>> {
    let path = format!("{}/deploy/kustomize/guards/{file}", env!("CARGO_MANIFEST_DIR"));
    Ok(serde_saphyr::from_multiple(&std::fs::read_to_string(path)?)?)
}

fn path_of(object: &Value) -> String {
    let resource = match object["kind"].as_str().unwrap_or_default() {
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
        _ => "validatingwebhookconfigurations",
    };
    format!("/apis/admissionregistration.k8s.io/v1/{resource}")
}

async fn replicas(world: &World, name: &str, expected: i64) -> Outcome {
    eventually(SOON, &format!("{name} has {expected} replicas"), async || {
        let count = world.replicas(&world.deployments(name)).await?;
        ensure(count == expected, || format!("{count}"))
    })
    .await
}

async fn first_write(stage: &Fixture, user: &str, name: &str, after: Timestamp) -> Outcome<Timestamp> {
    eventually(SOON, &format!("{user} writes {name}"), async || {
        let writes = Log::read(stage, user, name)?.written_after(after);
        writes.first().copied().ok_or_else(|| Failure("no write".to_owned()))
    })
    .await
}

/// The times of a user's writes of the status or the scale of one name.
struct Log {
    written: Vec<Timestamp>,
    refused: Vec<Timestamp>,
}

impl Log {
    fn read(stage: &Fixture, user: &str, name: &str) -> Outcome<Self> {
        let mut log = Self { written: Vec::new(), refused: Vec::new() };
        for entry in stage.plane.audit_log()?.lines() {
            // The last line may be incomplete while the API server writes it.
            let Ok(entry) = serde_json::from_str::<Value>(entry) else { continue };
            let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let is_autoscaling = matches!(text("/objectRef/subresource"), "status" | "scale");
            let is_ours = text("/user/username") == user && text("/objectRef/name") == name;
            if !is_ours || text("/verb") != "update" || !is_autoscaling {
                continue;
            }
            let code = entry.pointer("/responseStatus/code").and_then(Value::as_i64);
            let list = match code {
                Some(200..=299) => &mut log.written,
                Some(403) => &mut log.refused,
                _ => continue,
            };
            list.push(text("/requestReceivedTimestamp").parse()?);
        }
        log.written.sort();
        log.refused.sort();
        Ok(log)
    }

    fn written_after(&self, time: Timestamp) -> Vec<Timestamp> {
        self.written.iter().copied().filter(|at| *at > time).collect()
    }
}
