//! Handover of labelled HPAs, while the HPA controller of the real kube-controller-manager runs. The audit log shows
//! which account wrote when, and which writes were refused.

#[path = "handover/failures.rs"]
mod failures;
#[path = "handover/keda.rs"]
mod keda;
#[path = "handover/log.rs"]
mod log;
#[path = "handover/rig.rs"]
pub(crate) mod rig;
#[path = "handover/targets.rs"]
mod targets;
#[path = "handover/unreachable.rs"]
pub(crate) mod unreachable;

use std::time::Duration;

use http::Method;
use tokio::time::sleep;

pub(crate) use self::failures::{api_server_is_away, replicas_end_die_and_return};
pub(crate) use self::failures::{broken_webhook, deleted_binding};
pub(crate) use self::keda::scaled_object;
pub(crate) use self::log::refused_loop;
use self::log::{Log, first_write};
use self::rig::{PERIOD, Replica, SLACK, built_in, hpas, label, policies, replica};
pub(crate) use self::targets::labels_and_targets;
use crate::election::now;
use crate::outcome::{Context as _, Outcome, Process, ensure, eventually};
use crate::rest::Rest;
use crate::world::{Autoscaler, Fixture, SOON, World};

pub(crate) async fn webhook(stage: &Fixture) -> Outcome {
    let service = rig::webhook(stage).await?;
    // The Lease is long enough for a replica that is stopped for a while.
    let lease = ["--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=40s"];
    let ours = replica(stage, "concertina", &lease).await?;
    service.set(&[ours.webhook]);
    let (world, built_in) = hand_over(stage, "handover-webhook", &ours).await?;
    stopped_replica(stage, &world, &ours).await?;

    // Without Concertina the API server allows the writes.
    ours.process.signal("KILL")?;
    let killed = now();
    world.cpu("a", 300);
    let back = first_write(stage, false, (&world.namespace, "a"), killed).await.context(built_in.tail(20))?;
    let took = back.duration_since(killed).unsigned_abs();
    eprintln!("    the built-in controller wrote {took:.2?} after Concertina was killed");
    ensure(took <= PERIOD + Duration::from_secs(1) + SLACK, || format!("too late: {took:?}"))?;
    replicas(&world, "a", 6).await?;
    label(&world, "a", None).await?;
    world.close().await
}

/// Stops a replica with SIGSTOP, so that its webhook does not answer in time. The API server allows the writes, and
/// both the API server and the replica count these calls.
async fn stopped_replica(stage: &Fixture, world: &World, ours: &Replica) -> Outcome {
    let (theirs, pages) = (&stage.plane.admin, Rest::new(&format!("http://127.0.0.1:{}", ours.pages), "")?);
    let failed_open = "apiserver_admission_webhook_fail_open_count{name=";
    let unanswered = "concertina_handover_unanswered_total{";
    let (before, ours_before) = (total(theirs, failed_open).await?, total(&pages, unanswered).await?);
    let stopped = now();
    ours.process.signal("STOP")?;
    let mut step = 0;
    let counted =
        eventually(SOON, "the built-in controller writes, and the API server counts a call", async || {
            step += 1;
            world.cpu("a", 190 + 5 * (step % 4));
            let count = total(theirs, failed_open).await?;
            // The first unanswered call may concern an event, or a write that conflicts.
            let written = Log::read(stage, &world.namespace, "a")?.by(false, stopped).len();
            ensure(count > before && written > 0, || {
                format!("{count} calls after {before}, {written} writes")
            })?;
            Ok((count, written))
        })
        .await;
    ours.process.signal("CONT")?;
    let (counted, written) = counted?;
    let ours_counted = eventually(SOON, "the replica counts a request without an answer", async || {
        let count = total(&pages, unanswered).await?;
        ensure(count > ours_before, || format!("{count} after {ours_before}"))?;
        Ok(count)
    })
    .await?;
    eprintln!(
        "    stopped replica: {} calls without an answer by the API server's count, {} by ours, {written} writes of the \
         built-in controller",
        counted - before,
        ours_counted - ours_before
    );
    Ok(())
}

/// The sum of the series that start with `series`.
async fn total(server: &Rest, series: &str) -> Outcome<f64> {
    let text = server.send(Method::GET, "/metrics", &[], None).await?.text;
    let values = text.lines().filter(|line| line.starts_with(series));
    Ok(values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

pub(crate) async fn policy(stage: &Fixture) -> Outcome {
    policies(stage).await?;
    let ours = replica(stage, "concertina", &["--handover-guard=policy"]).await?;
    let (world, built_in) = hand_over(stage, "handover-policy", &ours).await?;

    // The policy applies without Concertina, until the label is removed.
    ours.process.signal("KILL")?;
    let killed = now();
    world.cpu("a", 300);
    sleep(PERIOD * 3).await;
    let writes = Log::read(stage, &world.namespace, "a")?.by(false, killed);
    ensure(writes.is_empty(), || format!("the built-in controller wrote {writes:?}"))?;
    let unlabelled = label(&world, "a", None).await?;
    let back = first_write(stage, false, (&world.namespace, "a"), unlabelled).await;
    let took = back.context(built_in.tail(20))?.duration_since(unlabelled).unsigned_abs();
    eprintln!("    the built-in controller wrote {took:.2?} after the label was removed");
    ensure(took <= PERIOD + SLACK, || format!("too late: {took:?}"))?;
    replicas(&world, "a", 6).await?;
    world.close().await
}

/// Starts the built-in controller, and hands HPA `a` over to a replica. HPA `b` stays with the built-in controller.
async fn hand_over(stage: &Fixture, namespace: &str, ours: &Replica) -> Outcome<(World, Process)> {
    let world = World::make(stage, namespace, Autoscaler::Concertina).await?;
    hpas(&world, &["a", "b"]).await?;
    let built_in = built_in(stage).await?;
    let start = now();
    for name in ["a", "b"] {
        first_write(stage, false, (namespace, name), start - Duration::from_secs(1)).await?;
    }
    ours.ready().await?;

    let labelled = label(&world, "a", Some("concertina")).await?;
    world.cpu("a", 200);
    world.cpu("b", 200);
    let first = first_write(stage, true, (namespace, "a"), labelled).await.context(ours.process.tail(20))?;
    let took = first.duration_since(labelled).unsigned_abs();
    eprintln!("    Concertina wrote {took:.2?} after the label was set");
    // The limit includes the silence before the first write, and the offset of the HPA within the period.
    ensure(took <= PERIOD + Duration::from_secs(1) + SLACK, || format!("too late: {took:?}"))?;
    replicas(&world, "a", 4).await.context(ours.process.tail(20))?;
    replicas(&world, "b", 4).await.context(built_in.tail(20))?;
    // The loads stay within the tolerance of four replicas. If two controllers sync under the same load, the second
    // controller has no status to write. The interval of the load changes therefore differs from the sync period.
    for step in 0..100 {
        for name in ["a", "b"] {
            world.cpu(name, 190 + 5 * (step % 4));
        }
        sleep(PERIOD * 3 / 13).await;
        let a = Log::read(stage, namespace, "a")?;
        if step >= 16 && a.refused.len() + a.refused_events > 0 {
            break;
        }
    }

    // The label reaches the replicas and the policies in the background.
    let settled = labelled + Duration::from_secs(1);
    let a = Log::read(stage, namespace, "a")?;
    let written = a.by(false, settled);
    eprintln!(
        "    after the label: {} refused writes of the built-in controller, {} others",
        a.refused.len(),
        written.len()
    );
    ensure(written.is_empty(), || format!("the built-in controller wrote {written:?}"))?;
    // After Concertina has written the status, the built-in controller finds an equal status and writes nothing, or its
    // write conflicts. It still sends events.
    let refused = a.refused.len() + a.refused_events;
    ensure(refused > 0, || format!("no write was refused\n{}", built_in.tail(20)))?;
    let b = Log::read(stage, namespace, "b")?;
    ensure(b.refused.is_empty(), || format!("writes of b were refused: {:?}", b.refused))?;
    ensure(!b.by(false, settled).is_empty(), || "the built-in controller left b".to_owned())?;
    let ours_of_b = b.by(true, start);
    ensure(ours_of_b.is_empty(), || format!("Concertina wrote b: {ours_of_b:?}"))?;
    Ok((world, built_in))
}

async fn replicas(world: &World, name: &str, expected: i64) -> Outcome {
    eventually(SOON, &format!("{name} has {expected} replicas"), async || {
        let count = world.replicas(&world.deployments(name)).await?;
        ensure(count == expected, || format!("{count}"))
    })
    .await
}
