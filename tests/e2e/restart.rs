//! Restarts of the only process: a rate policy holds across them, with and without
//! `--history-checkpoint`, under exactly the roles that `concertina rbac` prints.

use std::time::Duration;

use serde_json::{Value, json};

use crate::audit::AUTOSCALER;
use crate::fixture::{Autoscaler, Fixture};
use crate::identity::{BUILT_IN, RBAC, Requests, end, grant, revoke, start};
use crate::metric_specs::cpu_utilization;
use crate::outcome::{Context as _, Outcome, ensure};
use crate::process::Process;
use crate::world::{APP, SOON, World};

const CHECKPOINT: &str = "--history-checkpoint";
/// A Lease that was not released has to expire first.
const EXPIRED: Duration = Duration::from_secs(25);

/// The policy allows one additional pod per half hour, and the load requires two.
pub(crate) async fn rates_hold(stage: &Fixture) -> Outcome {
    // Only the printed roles may apply.
    stage.plane.admin.delete(&format!("{RBAC}/clusterrolebindings/{BUILT_IN}")).await?;
    let from = stage.plane.audit_log()?.len();
    let world = World::make(stage, "restart", Autoscaler::Concertina).await?;
    let rules = grant(stage, &[CHECKPOINT]).await?;
    let kubeconfig = stage.plane.service_account("kube-system", "horizontal-pod-autoscaler").await?;
    let process = |name: &str, more: &[&str]| {
        let flags: Vec<_> = ["--secure-port=0"].iter().chain(more).map(ToString::to_string).collect();
        start(stage, name, &kubeconfig, &flags)
    };
    let web = world.deployments("web");
    world.deployment("web", 2, APP).await?;
    world.cpu("web", 200);
    let policy = json!({"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1800}]});
    let spec = json!({
        "minReplicas": 1, "maxReplicas": 5, "metrics": [cpu_utilization(50)], "behavior": {"scaleUp": policy},
    });
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;

    let first = process("first", &[CHECKPOINT])?;
    world.replicas_become(&web, 3).await.context(first.tail(30))?;
    // A rescale in the same second as the shutdown could be a foreign write, so the process must stop
    // later.
    world.replicas_stay(&web, 3, Duration::from_secs(3)).await?;
    end(first).await?;

    let second = process("second", &[CHECKPOINT])?;
    holds(&world, &web, &second, "checkpoint=1 crash=0 status=0", SOON).await?;
    second.signal("KILL")?;
    drop(second);

    let third = process("third", &[CHECKPOINT])?;
    holds(&world, &web, &third, "checkpoint=0 crash=1 status=0", EXPIRED).await?;
    end(third).await?;

    let fourth = process("fourth", &[])?;
    holds(&world, &web, &fourth, "checkpoint=0 crash=0 status=1", SOON).await?;
    end(fourth).await?;

    let requests = Requests::read(stage, from)?;
    requests.none_is_refused()?;
    let checkpoint_objects: Vec<Value> =
        rules.iter().filter(|object| object["metadata"]["name"] == "concertina-history").cloned().collect();
    ensure(checkpoint_objects.len() == 2, || {
        format!("expected a Role and a RoleBinding for the checkpoint: {checkpoint_objects:?}")
    })?;
    requests.every_rule_is_used(&checkpoint_objects)?;
    ensure(requests.find(AUTOSCALER, "list", "", "events", ""), || "events were not read".to_owned())?;
    revoke(stage, &rules).await?;
    world.close().await
}

/// Checks that the process restored its history from `source` and then adds no pod.
async fn holds(world: &World, web: &str, process: &Process, source: &str, within: Duration) -> Outcome {
    process.wait_for_log(source, within).await?;
    world.replicas_stay(web, 3, Duration::from_secs(4)).await.context(process.tail(30))
}
