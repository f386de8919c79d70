//! What the built-in controller costs the API server when its writes are refused: requests and CPU time per HPA and
//! sync, compared with the built-in controller alone.

use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::rig::{LABEL, PERIOD, built_in, replica, webhook};
use crate::audit::AUTOSCALER;
use crate::election::now;
use crate::fixture::{Autoscaler, Fixture};
use crate::metric_specs::external;
use crate::outcome::{Context as _, Failure, Outcome, ensure};
use crate::world::World;

const HPAS: u32 = 100;
const NAMESPACE: &str = "cost";
const PHASE: Duration = Duration::from_secs(40);

/// Requests of the built-in controller in one phase.
#[derive(Debug, Default)]
struct Requests {
    reads: u32,
    writes: u32,
    refused: u32,
    /// Writes with a stale version, because Concertina wrote first, and patches of events that were refused before.
    failed: u32,
}

/// Measures three phases: the built-in controller alone, next to Concertina, and Concertina alone. Every sync has a
/// status to write.
pub(crate) async fn refused_loop(stage: &Fixture) -> Outcome {
    let service = webhook(stage).await?;
    let world = World::make(stage, NAMESPACE, Autoscaler::Concertina).await?;
    for index in 0..HPAS {
        let name = format!("hpa-{index}");
        let body = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"replicas": 2},
        });
        world.api.create(world.widgets("").trim_end_matches('/'), &body).await?;
        let status = json!({"status": {"replicas": 2, "selector": format!("app={name}")}});
        world.api.merge(&format!("{}/status", world.widgets(&name)), &status).await?;
        let spec = json!({
            "minReplicas": 1, "maxReplicas": 9, "metrics": [external("queue", "AverageValue", "100")],
        });
        world.hpa(&name, ("example.com/v1", "Widget", &name), spec).await?;
    }
    let load = async {
        // Within the tolerance of two replicas.
        for step in 0_i64.. {
            world.external("queue", &[&(190 + step % 20).to_string()]);
            sleep(Duration::from_millis(700)).await;
        }
        Failure("the load ended".to_owned())
    };
    tokio::select! {
        biased;
        outcome = phases(stage, &world, &service) => outcome,
        failure = load => Err(failure),
    }
}

async fn phases(stage: &Fixture, world: &World, service: &super::service::Service) -> Outcome {
    let built_in = built_in(stage).await?;
    sleep(PERIOD * 5).await;
    let (before, cpu_before) = phase(stage, "built-in controller alone").await?;

    let replica = replica(stage, "a", &[]).await?;
    service.set(&[replica.webhook]);
    replica.ready().await?;
    let patch = json!({"metadata": {"labels": {LABEL: "concertina"}}});
    world.api.merge(&format!("/api/v1/namespaces/{NAMESPACE}"), &patch).await?;
    replica.all_are(stage, NAMESPACE, "in_charge", usize::try_from(HPAS)?).await?;
    sleep(PERIOD * 5).await;
    let (refused, cpu_both) = phase(stage, "built-in controller refused, next to Concertina").await?;
    drop(built_in);
    sleep(PERIOD * 3).await;
    let (_, cpu_ours) = phase(stage, "Concertina alone").await?;

    let syncs = f64::from(HPAS) * PHASE.as_secs_f64() / PERIOD.as_secs_f64();
    let per_sync = |count: u32| f64::from(count) / syncs;
    let cpu = |seconds: f64| seconds / syncs * 1e3;
    eprintln!(
        "    per HPA and sync of the built-in controller: {:.2} reads, {:.2} writes and {:.2} ms of API server CPU \
         before; {:.2} reads, {:.2} refused and {:.2} failed writes and {:.2} ms refused",
        per_sync(before.reads),
        per_sync(before.writes),
        cpu(cpu_before),
        per_sync(refused.reads),
        per_sync(refused.refused),
        per_sync(refused.failed),
        cpu(cpu_both - cpu_ours),
    );
    ensure(refused.writes == 0, || format!("{} writes were not refused", refused.writes))
        .context(replica.process.tail(20))
}

/// Counts the requests of the built-in controller, and the CPU seconds of the API server.
async fn phase(stage: &Fixture, title: &str) -> Outcome<(Requests, f64)> {
    let (from, cpu) = (now(), cpu_seconds(stage)?);
    sleep(PHASE).await;
    let (to, cpu) = (now(), cpu_seconds(stage)? - cpu);
    let requests = Requests::read(stage, from, to)?;
    eprintln!("    {title}: {requests:?} in {PHASE:?}, {cpu:.2} s of the API server's CPU");
    Ok((requests, cpu))
}

/// User and system time of the API server so far.
fn cpu_seconds(stage: &Fixture) -> Outcome<f64> {
    /// Clock ticks per second on Linux.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{}/stat", stage.plane.process_id("kube-apiserver")?))?;
    // The name of the program, in parentheses, may contain spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks = fields.skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / TICKS)
}

impl Requests {
    fn read(stage: &Fixture, from: Timestamp, to: Timestamp) -> Outcome<Self> {
        let mut requests = Self::default();
        for entry in stage.plane.audit_log()?.lines() {
            // The last line may be incomplete while the API server writes it.
            let Ok(entry) = serde_json::from_str::<Value>(entry) else { continue };
            let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let at: Timestamp = text("/requestReceivedTimestamp").parse()?;
            if text("/user/username") != AUTOSCALER || at < from || at > to {
                continue;
            }
            let code = entry.pointer("/responseStatus/code").and_then(Value::as_i64).unwrap_or_default();
            match text("/verb") {
                "get" | "list" => requests.reads += 1,
                "create" | "update" | "patch" => match code {
                    403 => requests.refused += 1,
                    200..=299 => requests.writes += 1,
                    _ => requests.failed += 1,
                },
                _ => {}
            }
        }
        Ok(requests)
    }
}
