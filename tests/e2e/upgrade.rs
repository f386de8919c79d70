//! A rolling update of two replicas to the next version and back while HPAs scale. The versions differ
//! in the status that they write (1.36 and 1.37), the largest possible difference between adjacent
//! versions.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::election::{Log, Replicas, grant, now};
use crate::fixture::{Autoscaler, Fixture};
use crate::metric_specs::cpu_utilization;
use crate::outcome::{Context as _, Outcome, ensure};
use crate::world::{APP, World};

const OLD: &[&str] = &["--emulated-version=1.36"];
const NEW: &[&str] = &["--emulated-version=1.37"];
const WITHIN: Duration = Duration::from_secs(30);

/// One HPA stays at its target throughout. The load of the other one rises in the middle of the update.
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

/// Replaces a replica as a Deployment does: the new one is ready before the old one receives SIGTERM.
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
