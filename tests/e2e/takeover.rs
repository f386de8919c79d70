//! Beside the loop of the real kube-controller-manager, which is switched on
//! and off. The API server's audit log tells who wrote when: both programs
//! have the same account, and each its user agent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::audit::AUTOSCALER;
use crate::election::now;
use crate::metric_specs::cpu_utilization;
use crate::outcome::{Context as _, Failure, Outcome, ensure, eventually};
use crate::stage::{Autoscaler, Stage};
use crate::world::{APP, SOON, World};

const PERIOD: Duration = Duration::from_secs(2);
const FLAGS: &[&str] = &["--horizontal-pod-autoscaler-sync-period=2s"];
const OURS: &[&str] =
    &["--horizontal-pod-autoscaler-sync-period=2s", "--leader-elect=false", "--takeover=wait"];
const HPAS: [&str; 3] = ["a", "b", "c"];
/// What a busy machine adds.
const SLACK: Duration = Duration::from_millis(1500);

pub(crate) async fn waits_and_takes_over(stage: &Stage) -> Outcome {
    let world = World::make(stage, "takeover", Autoscaler::Concertina).await?;
    for name in HPAS {
        world.deployment(name, 2, APP).await?;
        world.cpu(name, 100);
        let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
        world.hpa(name, ("apps/v1", "Deployment", name), spec).await?;
    }
    let moves = AtomicBool::new(true);
    let load = async {
        for step in 0_i64.. {
            if moves.load(Ordering::Relaxed) {
                for (offset, name) in (0..).zip(HPAS) {
                    world.cpu(name, 80 + (step * 7 + offset * 13) % 60);
                }
            }
            sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::select! {
        biased;
        played = play(stage, &moves) => played?,
        () = load => return Err(Failure("the load ended".to_owned())),
    }
    world.close().await
}

async fn play(stage: &Stage, moves: &AtomicBool) -> Outcome {
    let built_in = stage.autoscaler_with(Autoscaler::BuiltIn, FLAGS).await?;
    eventually(SOON, "the built-in loop writes", async || {
        let writes = Log::read(stage)?.built_in.len();
        ensure(writes > 3, || format!("{writes} writes"))
    })
    .await?;
    let ours = stage.autoscaler_with(Autoscaler::Concertina, OURS).await?;
    ours.says("another controller writes statuses of HPAs", SOON).await?;
    sleep(PERIOD * 6).await;
    Log::read(stage)?.none_of_ours("while the loop is on")?;

    // A scale-down that is held back comes late.
    moves.store(false, Ordering::Relaxed);
    let rest = async || {
        let last = Log::read(stage)?.built_in.last().copied().unwrap_or_default();
        let rest = now().duration_since(last).unsigned_abs();
        ensure(rest > PERIOD * 5, || format!("the loop wrote {rest:?} ago")).map(|()| rest)
    };
    let rest = eventually(SOON, "the loop rests", rest).await?;
    ours.says("no other controller has written for a while", SOON).await?;
    eprintln!("the loop has been silent for {rest:.1?}");
    moves.store(true, Ordering::Relaxed);
    sleep(PERIOD * 4).await;
    Log::read(stage)?.none_of_ours("after a rest").context(ours.tail(20))?;

    let mut built_in = Some(built_in);
    for round in 1..=2 {
        drop(built_in.take());
        let off = now();
        let first = eventually(SOON, "we act", async || {
            let log = Log::read(stage)?;
            let first = log.ours.iter().find(|at| **at > off).copied();
            first.ok_or_else(|| Failure("we have written nothing".to_owned()))
        });
        let first = first.await.context(ours.tail(20))?;
        let log = Log::read(stage)?;
        let last = log.built_in.iter().rev().find(|at| **at < first).copied().unwrap_or(off);
        let [since_last, since_off] = [last, off].map(|from| first.duration_since(from).unsigned_abs());
        eprintln!(
            "round {round}: we act {since_last:.2?} after the last foreign write, {since_off:.2?} after the loop's end"
        );
        ensure(since_last + SLACK >= PERIOD * 2, || format!("too early: {since_last:?}"))?;
        // Times of writes that others made are known to the second.
        ensure(since_off <= PERIOD * 2 + SLACK, || format!("too late: {since_off:?}"))?;
        if round == 2 {
            return Ok(());
        }
        // Acting for longer than what would count as a false start.
        sleep(PERIOD * 11).await;

        let on = now();
        built_in = Some(stage.autoscaler_with(Autoscaler::BuiltIn, FLAGS).await?);
        let back = eventually(SOON, "the loop writes again", async || {
            let log = Log::read(stage)?;
            let first = log.built_in.iter().find(|at| **at > on).copied();
            first.ok_or_else(|| Failure("it has written nothing".to_owned()))
        });
        let back = back.await?;
        sleep(PERIOD * 5).await;
        let log = Log::read(stage)?;
        let count = |writes: &[Timestamp], from| writes.iter().filter(|at| **at > from).count();
        let late = back + Duration::from_secs(1);
        let (within, after) = (count(&log.ours, back) - count(&log.ours, late), count(&log.ours, late));
        let theirs = count(&log.built_in, back);
        eprintln!(
            "the loop is on again: {theirs} writes of it; {within} of ours within a second, {after} after that"
        );
        ensure(after == 0 && theirs > 4, || format!("{after} writes of ours\n{}", ours.tail(20)))?;
    }
    Ok(())
}

/// When statuses and scales were written, successfully, and by whom.
struct Log {
    ours: Vec<Timestamp>,
    built_in: Vec<Timestamp>,
}

impl Log {
    fn read(stage: &Stage) -> Outcome<Self> {
        let mut log = Self { ours: Vec::new(), built_in: Vec::new() };
        for entry in stage.plane.audit_log()?.lines() {
            // The last line may still be being written.
            let Ok(entry) = serde_json::from_str::<Value>(entry) else { continue };
            let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let is_autoscaling = matches!(text("/objectRef/subresource"), "status" | "scale");
            if text("/user/username") != AUTOSCALER || text("/verb") != "update" || !is_autoscaling {
                continue;
            }
            let by =
                if text("/userAgent").starts_with("concertina/") { &mut log.ours } else { &mut log.built_in };
            by.push(text("/requestReceivedTimestamp").parse()?);
        }
        log.ours.sort();
        log.built_in.sort();
        Ok(log)
    }

    fn none_of_ours(&self, when: &str) -> Outcome {
        let (ours, theirs) = (self.ours.len(), self.built_in.len());
        eprintln!("{when}: {theirs} writes of the built-in loop, {ours} of ours");
        ensure(ours == 0, || format!("{ours} writes of ours {when}"))
    }
}
