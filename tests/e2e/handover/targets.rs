//! HPAs whose target is unusual: a kind with an irregular plural, a target that changes, a target of two HPAs. Also
//! labels of namespaces, and of many HPAs at once.

use std::process::Command;
use std::time::Duration;

use futures::future::try_join_all;
use serde_json::json;
use tokio::time::sleep;

use super::log::{Log, first_write, judge};
use super::rig::{
    LABEL, PERIOD, Replica, SLACK, built_in, hpas, kubeconfig, label, replica, take, webhook, with_load,
};
use crate::audit::{AUTOSCALER, entries};
use crate::election::now;
use crate::extensions::define;
use crate::outcome::{Context as _, Outcome, Process, ensure, eventually};
use crate::rest::Rest;
use crate::world::{Autoscaler, Fixture, SOON, World, binary, cpu_utilization, external};

/// The flags of the default Lease, because many HPAs keep the API server busy.
const DEFAULT_LEASE: [&str; 3] = [
    "--leader-elect-lease-duration=15s",
    "--leader-elect-renew-deadline=10s",
    "--leader-elect-retry-period=2s",
];
/// The number of HPAs whose labels change at once.
const MANY: usize = 500;

pub(crate) async fn labels_and_targets(stage: &Fixture) -> Outcome {
    let service = webhook(stage).await?;
    define(&stage.plane.admin, "geese", "goose", "Goose").await?;
    let built_in = built_in(stage).await?;
    let replica = replica(stage, "a", &DEFAULT_LEASE).await?;
    service.set(&[replica.webhook]);
    replica.ready().await?;
    let all = async {
        irregular_plural(stage).await.context("irregular plural")?;
        changed_target(stage).await.context("changed target")?;
        two_hpas_on_one_target(stage).await.context("two HPAs on one target")?;
        namespace_with_an_exclusion(stage).await.context("label of a namespace")?;
        script(stage, &replica).await.context("examples/handover/handover.sh")?;
        many_labels(stage, &replica).await.context("many labels")
    };
    all.await.context(replica.process.tail(30)).context(tail(&built_in))
}

fn tail(process: &Process) -> String {
    process.tail(20)
}

/// Hands over an HPA of a kind whose plural, `geese`, only discovery shows.
async fn irregular_plural(stage: &Fixture) -> Outcome {
    let world = World::make(stage, "plural", Autoscaler::Concertina).await?;
    let geese = "/apis/example.com/v1/namespaces/plural/geese";
    let body = json!({"apiVersion": "example.com/v1", "kind": "Goose", "metadata": {"name": "gray"}, "spec": {"replicas": 2}});
    world.api.create(geese, &body).await?;
    let status = json!({"status": {"replicas": 2, "selector": "app=gray"}});
    world.api.merge(&format!("{geese}/gray/status"), &status).await?;
    world.external("queue", &["20"]);
    let spec =
        json!({"minReplicas": 1, "maxReplicas": 9, "metrics": [external("queue", "AverageValue", "10")]});
    world.hpa("flock", ("example.com/v1", "Goose", "gray"), spec).await?;
    first_write(stage, false, (&world.namespace, "flock"), now() - SLACK).await?;
    let from = label(&world, "flock", Some("concertina")).await? + Duration::from_secs(1);
    sleep(Duration::from_secs(2)).await;
    for queue in ["50", "70", "30", "60"] {
        world.external("queue", &[queue]);
        let expected = queue.parse::<i64>()? / 10;
        eventually(SOON, "the custom resource is scaled", async || {
            let count = world.replicas(&format!("{geese}/gray")).await?;
            ensure(count == expected, || format!("{count} instead of {expected}"))
        })
        .await?;
        sleep(PERIOD).await;
    }
    let log = Log::read(stage, "plural", "gray")?;
    let (theirs, ours) = (log.by(false, from), log.by(true, from));
    eprintln!(
        "    irregular plural: {} scales by Concertina, {} by the built-in controller",
        ours.len(),
        theirs.len()
    );
    ensure(theirs.is_empty() && ours.len() >= 4, || format!("ours {ours:?}, theirs {theirs:?}"))
}

/// Changes the target of an HPA. The guard covers the new target at once.
async fn changed_target(stage: &Fixture) -> Outcome {
    let world = World::make(stage, "changed", Autoscaler::Concertina).await?;
    hpas(&world, &["web"]).await?;
    world.cpu("next", 100);
    world.deployment("next", 2, crate::world::APP).await?;
    let run = async {
        first_write(stage, false, (&world.namespace, "web"), now() - SLACK).await?;
        take(stage, &world, "web").await?;
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "next"});
        world.change_hpa("web", json!({"scaleTargetRef": target})).await?;
        let from = now();
        world.cpu("next", 300);
        world.replicas_become(&world.deployments("next"), 6).await?;
        sleep(PERIOD * 2).await;
        let next = Log::read(stage, "changed", "next")?;
        let (theirs, ours) = (next.by(false, from), next.by(true, from));
        ensure(theirs.is_empty() && !ours.is_empty(), || format!("ours {ours:?}, theirs {theirs:?}"))?;
        let status = Log::read(stage, "changed", "web")?;
        judge(&status.figures("changed target", true, from, now()), PERIOD * 2 + SLACK)
    };
    with_load(&world, &["web"], run).await
}

/// Hands over one of two HPAs with the same target. Neither HPA scales, and each status has its own writer.
async fn two_hpas_on_one_target(stage: &Fixture) -> Outcome {
    let world = World::make(stage, "twins", Autoscaler::Concertina).await?;
    hpas(&world, &["web"]).await?;
    let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
    world.hpa("twin", ("apps/v1", "Deployment", "web"), spec).await?;
    for name in ["web", "twin"] {
        first_write(stage, false, (&world.namespace, name), now() - SLACK * 4).await?;
    }
    let labelled = label(&world, "web", Some("concertina")).await?;
    sleep(PERIOD * 2).await;
    world.cpu("web", 400);
    world.replicas_stay(&world.deployments("web"), 2, PERIOD * 4).await?;
    for name in ["web", "twin"] {
        let hpa = world.api.get(&world.hpas(name)).await?;
        let conditions = hpa["status"]["conditions"].to_string();
        ensure(conditions.contains("AmbiguousSelector"), || format!("{name}: {conditions}"))?;
    }
    let settled = labelled + Duration::from_secs(1);
    let web = Log::read(stage, "twins", "web")?.by(false, settled);
    let twin = Log::read(stage, "twins", "twin")?.by(true, settled);
    ensure(web.is_empty() && twin.is_empty(), || format!("the built-in controller {web:?}, ours {twin:?}"))?;
    eprintln!("    two HPAs on one target: no scale, and no write of the other side");
    Ok(())
}

/// Labels a namespace, which puts its HPAs in scope, except for an HPA with the label `built-in`.
async fn namespace_with_an_exclusion(stage: &Fixture) -> Outcome {
    const NAMES: [&str; 2] = ["web", "kept"];
    let world = World::make(stage, "namespace", Autoscaler::Concertina).await?;
    hpas(&world, &NAMES).await?;
    let run = async {
        for name in NAMES {
            first_write(stage, false, (&world.namespace, name), now() - SLACK * 4).await?;
        }
        label(&world, "kept", Some("built-in")).await?;
        let labelled = now();
        let patch = |value: Option<&str>| json!({"metadata": {"labels": {LABEL: value}}});
        world.api.merge("/api/v1/namespaces/namespace", &patch(Some("concertina"))).await?;
        let first = first_write(stage, true, (&world.namespace, "web"), labelled).await?;
        let took = first.duration_since(labelled).unsigned_abs();
        ensure(took <= PERIOD + Duration::from_secs(1) + SLACK, || {
            format!("first own write after {took:?}")
        })?;
        sleep(PERIOD * 3).await;
        let web = Log::read(stage, "namespace", "web")?;
        judge(&web.figures("label of the namespace", true, first, now()), PERIOD * 2 + SLACK)?;
        let kept = Log::read(stage, "namespace", "kept")?;
        judge(&kept.figures("excluded HPA", false, labelled, now()), PERIOD * 2 + SLACK)?;
        let unlabelled = now();
        world.api.merge("/api/v1/namespaces/namespace", &patch(None)).await?;
        let back = first_write(stage, false, (&world.namespace, "web"), unlabelled).await?;
        let took = back.duration_since(unlabelled).unsigned_abs();
        eprintln!("    label of the namespace removed: built-in write after {:.1} s", took.as_secs_f32());
        ensure(took <= PERIOD + SLACK, || format!("built-in write after {took:?}"))?;
        sleep(PERIOD * 2).await;
        let web = Log::read(stage, "namespace", "web")?;
        judge(&web.figures("label removed", false, unlabelled + SLACK, now()), PERIOD * 2 + SLACK)
    };
    with_load(&world, &NAMES, run).await
}

/// Runs the script of the example on an existing cluster.
async fn script(stage: &Fixture, replica: &Replica) -> Outcome {
    const NAMES: [&str; 2] = ["web", "api"];
    let world = World::make(stage, "shop", Autoscaler::Concertina).await?;
    hpas(&world, &NAMES).await?;
    let mut script = Command::new("bash");
    script.arg("examples/handover/handover.sh").current_dir(env!("CARGO_MANIFEST_DIR"));
    script.env("KUBECONFIG", kubeconfig(stage)?).env("CONCERTINA", binary());
    script.env("HANDOVER_CLUSTER", "existing").env("HANDOVER_HPA", "shop/web");
    script.env("HANDOVER_FLAGS", replica.address_flag());
    let run = async {
        for name in NAMES {
            first_write(stage, false, (&world.namespace, name), now() - SLACK * 4).await?;
        }
        let output = tokio::task::spawn_blocking(move || script.output()).await??;
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure(output.status.success(), || format!("{}\n{text}", output.status))?;
        for expected in ["== Hand over the namespace", "in_charge shop", "built_in shop"] {
            ensure(text.contains(expected), || format!("{expected:?} is missing in\n{text}"))?;
        }
        eprintln!("    examples/handover/handover.sh: {} lines", text.lines().count());
        Ok(())
    };
    with_load(&world, &NAMES, run).await
}

/// Changes the labels of many HPAs at once, twice. Their targets do not exist, so each sync sends an event.
async fn many_labels(stage: &Fixture, replica: &Replica) -> Outcome {
    let world = World::make(stage, "many", Autoscaler::Concertina).await?;
    let names: Vec<_> = (0..MANY).map(|index| format!("hpa-{index:03}")).collect();
    let spec = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 1, "maxReplicas": 3, "metrics": [cpu_utilization(50)],
            },
        })
    };
    let path = world.hpas("");
    let path = path.trim_end_matches('/');
    try_join_all(names.iter().map(async |name| world.api.create(path, &spec(name)).await.map(drop))).await?;
    sleep(PERIOD * 2).await;

    let from = now();
    flip(&world.api, &world, &names, Some("concertina")).await?;
    replica.all_are(stage, "many", "in_charge", MANY).await?;
    let charged = now();
    let took = charged.duration_since(from).unsigned_abs();
    sleep(PERIOD * 3).await;
    let (events, refused) = event_writes(stage, AUTOSCALER, charged)?;
    eprintln!(
        "    {MANY} labels at once: all in charge {:.1} s after the first one, then {events} events of the built-in \
         controller, {refused} refused",
        took.as_secs_f32()
    );
    ensure(events == 0 && refused > 0, || {
        format!("{events} events of the built-in controller, {refused} refused")
    })?;

    flip(&world.api, &world, &names, None).await?;
    replica.all_are(stage, "many", "in_charge", 0).await?;
    let released = now();
    sleep(PERIOD * 3).await;
    let account = "system:serviceaccount:replicas:a";
    let (ours, _) = event_writes(stage, account, released)?;
    let (theirs, _) = event_writes(stage, AUTOSCALER, released)?;
    eprintln!("    and back: {ours} events of Concertina, {theirs} of the built-in controller");
    ensure(ours == 0 && theirs > 0, || {
        format!("{ours} events of Concertina, {theirs} of the built-in controller")
    })
}

async fn flip(api: &Rest, world: &World, names: &[String], value: Option<&str>) -> Outcome {
    let patch = json!({"metadata": {"labels": {LABEL: value}}});
    try_join_all(names.iter().map(async |name| api.merge(&world.hpas(name), &patch).await.map(drop))).await?;
    Ok(())
}

/// Counts the successful and the refused writes of events in the namespace `many` by a user, after a time.
fn event_writes(stage: &Fixture, user: &str, after: jiff::Timestamp) -> Outcome<(usize, usize)> {
    let (mut written, mut refused) = (0, 0);
    for entry in entries(&stage.plane.audit_log()?) {
        let text = |pointer| entry.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default();
        let is_event = text("/objectRef/resource") == "events" && text("/objectRef/namespace") == "many";
        let is_write = matches!(text("/verb"), "create" | "update" | "patch");
        if !is_event || !is_write || text("/user/username") != user {
            continue;
        }
        let at: jiff::Timestamp = text("/requestReceivedTimestamp").parse()?;
        match entry.pointer("/responseStatus/code").and_then(serde_json::Value::as_i64) {
            Some(200..=299) if at > after => written += 1,
            Some(403) if at > after => refused += 1,
            _ => {}
        }
    }
    Ok((written, refused))
}
