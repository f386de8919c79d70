//! Two replicas, where the standby copies the leader's history: stabilization windows and rate policies
//! hold after the leader is killed or shut down.

use std::time::Duration;

use controller::page::HISTORY_AUDIENCE;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use crate::controlplane::free_port;
use crate::election::{ACCOUNTS, CRASH, Replicas, grant, now};
use crate::fixture::{Autoscaler, Fixture};
use crate::metric_specs::cpu_utilization;
use crate::outcome::{Context as _, Outcome, ensure};
use crate::world::{APP, SOON, World};

/// The length of the window and of the rate period.
const REACH: Duration = Duration::from_mins(1);
/// The tolerance for clocks and polling.
const SLACK: Duration = Duration::from_secs(3);

pub(crate) async fn survives_a_failover(stage: &Fixture) -> Outcome {
    grant(stage).await?;
    let subjects = json!([{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io",
        "name": format!("system:serviceaccounts:{ACCOUNTS}")}]);
    let delegator = json!({
        "metadata": {"name": "replicas-delegator"}, "subjects": subjects,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "system:auth-delegator"},
    });
    stage.plane.admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &delegator).await?;
    let mut replicas = Replicas::default();
    for (round, [leader, next], signal) in [("killed", ["a", "b"], "KILL"), ("ended", ["b", "a"], "TERM")] {
        run_round(stage, &mut replicas, round, [leader, next], signal).await.context(replicas.tails())?;
    }
    Ok(())
}

async fn start(stage: &Fixture, replicas: &mut Replicas, name: &'static str) -> Outcome {
    stage.plane.service_account(ACCOUNTS, name).await?;
    let token = stage.plane.token_file(ACCOUNTS, name, HISTORY_AUDIENCE).await?;
    let token = format!("--history-token-file={}", token.display());
    let port = format!("--secure-port={}", free_port()?);
    let flags = [port.as_str(), token.as_str(), "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"];
    replicas.start_with(stage, name, &flags).await
}

/// Runs one workload that may grow by two pods a minute and one that may shrink after a minute of low load.
/// Then signals the leader.
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
        start(stage, replicas, leader).await?;
    }
    for (name, count) in [("grows", 2), ("shrinks", 4)] {
        world.status(name, "/desiredReplicas", json!(count)).await?;
    }
    start(stage, replicas, next).await?;
    replicas.get(next)?.wait_for_log("copied the leader's histories", SOON).await?;

    world.cpu("grows", 500);
    world.replicas_become(&world.deployments("grows"), 4).await?;
    let scaled = Instant::now();
    // The last high recommendation is at most a second newer than `scaled`.
    world.cpu("shrinks", 50);
    sleep(Duration::from_secs(2)).await;
    let signalled = now();
    replicas.get(leader)?.signal(signal)?;
    // The next leader needs a change to write.
    world.cpu("shrinks", 44);
    let took = replicas.acts(stage, next, Some(signalled)).await?;
    eprintln!("{round}: {next} acts after {took:.1?}");

    let quiet = (scaled + REACH).checked_sub(SLACK).unwrap_or(scaled);
    let left = quiet.saturating_duration_since(Instant::now());
    ensure(left > Duration::from_secs(20), || format!("only {left:?} of the quiet period are left"))?;
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
