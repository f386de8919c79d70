//! The history of HPAs across changes of the process:
//!
//! - The leader is killed or shut down, and a standby takes over with the histories of the checkpoint. Stabilization
//!   windows and rate policies stay in effect.
//! - A rolling update replaces two replicas by the next version and back while HPAs scale. The versions write different
//!   statuses (1.36 and 1.37), which is the largest possible difference between adjacent versions.
//! - The only process restarts, with and without a checkpoint, under exactly the roles that `concertina rbac` prints. A
//!   rate policy stays in effect.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use crate::audit::AUTOSCALER;
use crate::election::{CRASH, Log, Replicas, grant, now};
use crate::identity::{self, BUILT_IN, RBAC, Requests, end, revoke};
use crate::outcome::{Context as _, Outcome, Process, ensure};
use crate::world::{APP, Autoscaler, Fixture, SOON, World, cpu_utilization};

/// The length of the stabilization window and of the period of the rate policy.
const REACH: Duration = Duration::from_mins(1);
/// The tolerance for clocks and polling.
const SLACK: Duration = Duration::from_secs(3);

pub(crate) async fn survives_a_failover(stage: &Fixture) -> Outcome {
    grant(stage).await?;
    let mut replicas = Replicas::default();
    for (round, [leader, next], signal) in [("killed", ["a", "b"], "KILL"), ("ended", ["b", "a"], "TERM")] {
        run_round(stage, &mut replicas, round, [leader, next], signal).await.context(replicas.tails())?;
    }
    Ok(())
}

/// Runs a workload that may grow by two pods a minute, and a workload that may shrink after a minute of low load. Then
/// signals the leader.
async fn run_round(
    stage: &Fixture,
    replicas: &mut Replicas,
    round: &str,
    [leader, next]: [&'static str; 2],
    signal: &str,
) -> Outcome {
    let world = World::make(stage, round, Autoscaler::Concertina).await?;
    for (name, count) in [("grows", 2), ("shrinks", 4)] {
        world.deployment(name, count, APP).await?;
        world.cpu(name, count * 50);
        let spec = json!({
            "minReplicas": 1, "maxReplicas": 10, "metrics": [cpu_utilization(50)],
            "behavior": {
                "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": REACH.as_secs()}]},
                "scaleDown": {"stabilizationWindowSeconds": REACH.as_secs()},
            },
        });
        world.hpa(name, ("apps/v1", "Deployment", name), spec).await?;
    }
    if replicas.get(leader).is_err() {
        replicas.start_with(stage, leader, &[]).await?;
    }
    for (name, count) in [("grows", 2), ("shrinks", 4)] {
        world.status(name, "/desiredReplicas", json!(count)).await?;
    }
    replicas.start_with(stage, next, &[]).await?;
    replicas.get(next)?.wait_for_log("standing by", SOON).await?;

    world.cpu("grows", 500);
    world.replicas_become(&world.deployments("grows"), 4).await?;
    let scaled = Instant::now();
    // The last high recommendation is at most a second later than `scaled`.
    world.cpu("shrinks", 50);
    // A crash loses the recommendations since the last checkpoint.
    sleep(Duration::from_secs(if signal == "KILL" { 17 } else { 2 })).await;
    let signalled = now();
    replicas.get(leader)?.signal(signal)?;
    // The next leader needs a change to write.
    world.cpu("shrinks", 44);
    let took = replicas.acts(stage, next, Some(signalled)).await?;
    eprintln!("{round}: {next} acts after {took:.1?}");

    let quiet = (scaled + REACH).checked_sub(SLACK).unwrap_or(scaled);
    let left = quiet.saturating_duration_since(Instant::now());
    ensure(left > Duration::from_secs(15), || format!("only {left:?} of the quiet period are left"))?;
    let (grows, shrinks) = (world.deployments("grows"), world.deployments("shrinks"));
    tokio::try_join!(world.replicas_stay(&grows, 4, left), world.replicas_stay(&shrinks, 4, left))?;
    sleep_until(quiet).await;
    world.replicas_become(&grows, 6).await?;
    world.replicas_become(&shrinks, 1).await?;
    let code = replicas.get(leader)?.wait_for_exit(CRASH).await?;
    ensure(code == if signal == "TERM" { Some(0) } else { None }, || {
        format!("{leader} exited with {code:?}")
    })?;
    world.close().await
}

const OLD: &[&str] = &["--emulated-version=1.36"];
const NEW: &[&str] = &["--emulated-version=1.37"];
const WITHIN: Duration = Duration::from_secs(30);

/// One HPA stays at its target. The load of a second HPA rises in the middle of the update.
pub(crate) async fn rolls(stage: &Fixture) -> Outcome {
    let world = World::make(stage, "rolling", Autoscaler::Concertina).await?;
    for name in ["steady", "rising"] {
        world.deployment(name, 3, APP).await?;
        // Three pods request a tenth of a core each and use half of it.
        world.cpu(name, 150);
        let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
        world.hpa(name, ("apps/v1", "Deployment", name), spec).await?;
    }
    grant(stage).await?;
    let mut replicas = Replicas::default();
    for name in ["old-1", "old-2"] {
        replicas.start_with(stage, name, OLD).await?;
    }
    world.any_condition("steady", "the HPA is synced", |text| text.starts_with("ScalingActive=True")).await?;
    let started = now();

    replace(stage, &mut replicas, "old-1", "new-1", NEW).await?;
    world.cpu("rising", 300);
    replace(stage, &mut replicas, "old-2", "new-2", NEW).await?;
    world.replicas_become(&world.deployments("rising"), 6).await?;
    world.status("rising", "/observedGeneration", json!(1)).await?;
    replace(stage, &mut replicas, "new-1", "back-1", OLD).await?;
    replace(stage, &mut replicas, "new-2", "back-2", OLD).await?;
    sleep(Duration::from_secs(3)).await;

    let log = Log::read(stage)?;
    let scales: Vec<_> =
        log.writes.iter().filter(|write| write.at > started && write.request.ends_with("/scale")).collect();
    let lines: Vec<_> =
        scales.iter().map(|write| format!("{} {} {}", write.at, write.by, write.request)).collect();
    // The only rescale is from 3 to 6.
    ensure(lines.len() == 1, || {
        format!("expected one scale update, got {}:\n{}", lines.len(), lines.join("\n"))
    })?;
    let steady = world.replicas(&world.deployments("steady")).await?;
    ensure(steady == 3, || format!("the steady workload scaled to {steady}"))?;
    log.no_two_write_at_once()?;
    world.close().await
}

/// Replaces a replica as a Deployment does: the new replica is ready before the old replica receives SIGTERM.
async fn replace(
    stage: &Fixture,
    replicas: &mut Replicas,
    old: &'static str,
    new: &'static str,
    flags: &[&str],
) -> Outcome {
    replicas.start_with(stage, new, flags).await?;
    replicas.get(new)?.wait_for_log("standing by", WITHIN).await?;
    replicas.get(old)?.signal("TERM")?;
    let code = replicas.get(old)?.wait_for_exit(WITHIN).await.context(replicas.tails())?;
    ensure(code == Some(0), || format!("{old} exited with {code:?}"))
}

const NO_CHECKPOINT: &str = "--history-checkpoint=false";
/// The maximum time until the process acquires a Lease that was not released and must expire.
const EXPIRED: Duration = Duration::from_secs(25);

/// Restarts the process while a policy allows one additional pod per half hour, and the load requires two.
pub(crate) async fn rates_hold(stage: &Fixture) -> Outcome {
    // Only the printed roles may apply.
    stage.plane.admin.delete(&format!("{RBAC}/clusterrolebindings/{BUILT_IN}")).await?;
    let from = stage.plane.audit_log()?.len();
    let world = World::make(stage, "restart", Autoscaler::Concertina).await?;
    let rules = identity::grant(stage, &[]).await?;
    let kubeconfig = stage.plane.service_account("kube-system", "horizontal-pod-autoscaler").await?;
    let process = |name: &str, more: &[&str]| {
        let flags: Vec<_> = ["--secure-port=0"].iter().chain(more).map(ToString::to_string).collect();
        identity::start(stage, name, &kubeconfig, &flags)
    };
    let web = world.deployments("web");
    world.deployment("web", 2, APP).await?;
    world.cpu("web", 200);
    let policy = json!({"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1800}]});
    let spec = json!({
        "minReplicas": 1, "maxReplicas": 5, "metrics": [cpu_utilization(50)], "behavior": {"scaleUp": policy},
    });
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;

    let first = process("first", &[])?;
    world.replicas_become(&web, 3).await.context(first.tail(30))?;
    // A rescale in the second of the shutdown could be mistaken for a write of another client, so the process stops
    // later.
    world.replicas_stay(&web, 3, Duration::from_secs(3)).await?;
    end(first).await?;

    let second = process("second", &[])?;
    holds(&world, &web, &second, "checkpoint=1 crash=0 status=0", SOON).await?;
    second.signal("KILL")?;
    drop(second);

    let third = process("third", &[])?;
    holds(&world, &web, &third, "checkpoint=0 crash=1 status=0", EXPIRED).await?;
    end(third).await?;

    let fourth = process("fourth", &[NO_CHECKPOINT])?;
    holds(&world, &web, &fourth, "checkpoint=0 crash=0 status=1", SOON).await?;
    end(fourth).await?;

    let requests = Requests::read(stage, from)?;
    requests.none_is_refused()?;
    for verb in ["get", "update"] {
        ensure(requests.find(AUTOSCALER, verb, "", "configmaps", ""), || {
            format!("no {verb} of a ConfigMap")
        })?;
    }
    ensure(requests.find(AUTOSCALER, "list", "", "events", ""), || "events were not read".to_owned())?;
    revoke(stage, &rules).await?;
    world.close().await
}

/// Checks that the process restored its history from `source` and then adds no pod.
async fn holds(world: &World, web: &str, process: &Process, source: &str, within: Duration) -> Outcome {
    process.wait_for_log(source, within).await?;
    world.replicas_stay(web, 3, Duration::from_secs(4)).await.context(process.tail(30))
}
