//! Takeover from the real kube-controller-manager, which is started and stopped. The API server's audit
//! log shows which program wrote when: both use the same account, but different user agents.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::audit::AUTOSCALER;
use crate::election::now;
use crate::outcome::{Context as _, Failure, Outcome, ensure, eventually};
use crate::world::{APP, Autoscaler, Fixture, SOON, World, cpu_utilization};

const PERIOD: Duration = Duration::from_secs(2);
const FLAGS: &[&str] = &["--horizontal-pod-autoscaler-sync-period=2s"];
const OURS: &[&str] =
    &["--horizontal-pod-autoscaler-sync-period=2s", "--leader-elect=false", "--takeover=wait"];
const HPAS: [&str; 3] = ["a", "b", "c"];
/// The delay of a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

pub(crate) async fn waits_and_takes_over(stage: &Fixture) -> Outcome {
    let world = World::make(stage, "takeover", Autoscaler::Concertina).await?;
    for name in HPAS {
        world.deployment(name, 2, APP).await?;
        world.cpu(name, 100);
        let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
        world.hpa(name, ("apps/v1", "Deployment", name), spec).await?;
    }
    let is_moving = AtomicBool::new(true);
    let load = async {
        for step in 0_i64.. {
            if is_moving.load(Ordering::Relaxed) {
                for (offset, name) in (0..).zip(HPAS) {
                    world.cpu(name, 80 + (step * 7 + offset * 13) % 60);
                }
            }
            sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::select! {
        biased;
        result = run_takeovers(stage, &is_moving) => result?,
        () = load => return Err(Failure("the load stopped".to_owned())),
    }
    world.close().await
}

async fn run_takeovers(stage: &Fixture, is_moving: &AtomicBool) -> Outcome {
    let built_in = stage.autoscaler_with(Autoscaler::BuiltIn, FLAGS).await?;
    eventually(SOON, "the built-in controller writes", async || {
        let writes = Log::read(stage)?.built_in.len();
        ensure(writes > 3, || format!("{writes} writes"))
    })
    .await?;
    let ours = stage.autoscaler_with(Autoscaler::Concertina, OURS).await?;
    ours.wait_for_log("another controller writes statuses of HPAs", SOON).await?;
    sleep(PERIOD * 6).await;
    Log::read(stage)?.no_own_writes("while the built-in controller runs")?;

    // Poll for the pause, because a stabilized scale-down may still cause a write.
    is_moving.store(false, Ordering::Relaxed);
    let pause = async || {
        let last = Log::read(stage)?.built_in.last().copied().unwrap_or_default();
        let pause = now().duration_since(last).unsigned_abs();
        ensure(pause > PERIOD * 5, || format!("the built-in controller wrote {pause:?} ago")).map(|()| pause)
    };
    let pause = eventually(SOON, "the built-in controller stops writing", pause).await?;
    ours.wait_for_log("no foreign writes for the quiet time", SOON).await?;
    eprintln!("the built-in controller has not written for {pause:.1?}");
    is_moving.store(true, Ordering::Relaxed);
    sleep(PERIOD * 4).await;
    Log::read(stage)?.no_own_writes("after a pause of the built-in controller").context(ours.tail(20))?;

    let mut built_in = Some(built_in);
    for round in 1..=2 {
        drop(built_in.take());
        let off = now();
        let first = eventually(SOON, "Concertina acts", async || {
            let log = Log::read(stage)?;
            let first = log.ours.iter().find(|at| **at > off).copied();
            first.ok_or_else(|| Failure("Concertina has not written".to_owned()))
        });
        let first = first.await.context(ours.tail(20))?;
        let log = Log::read(stage)?;
        let last = log.built_in.iter().rev().find(|at| **at < first).copied().unwrap_or(off);
        let [since_last, since_off] = [last, off].map(|from| first.duration_since(from).unsigned_abs());
        eprintln!(
            "round {round}: Concertina acts {since_last:.2?} after the last foreign write, {since_off:.2?} after the built-in controller stopped"
        );
        ensure(since_last + SLACK >= PERIOD * 2, || format!("too early: {since_last:?}"))?;
        // Timestamps of foreign writes have a resolution of one second.
        ensure(since_off <= PERIOD * 2 + SLACK, || format!("too late: {since_off:?}"))?;
        if round == 2 {
            return Ok(());
        }
        // The pause is longer than the period in which a takeover counts as a false start.
        sleep(PERIOD * 11).await;

        let on = now();
        built_in = Some(stage.autoscaler_with(Autoscaler::BuiltIn, FLAGS).await?);
        let back = eventually(SOON, "the built-in controller writes again", async || {
            let log = Log::read(stage)?;
            let first = log.built_in.iter().find(|at| **at > on).copied();
            first.ok_or_else(|| Failure("the built-in controller has not written".to_owned()))
        });
        let back = back.await?;
        sleep(PERIOD * 5).await;
        let log = Log::read(stage)?;
        let count = |writes: &[Timestamp], from| writes.iter().filter(|at| **at > from).count();
        let late = back + Duration::from_secs(1);
        let (within, after) = (count(&log.ours, back) - count(&log.ours, late), count(&log.ours, late));
        let theirs = count(&log.built_in, back);
        eprintln!(
            "the built-in controller is back with {theirs} writes; Concertina wrote {within} times within a second and {after} times later"
        );
        ensure(after == 0 && theirs > 4, || format!("Concertina wrote {after} times\n{}", ours.tail(20)))?;
    }
    Ok(())
}

/// The times of successful writes of statuses and scales, by program.
struct Log {
    ours: Vec<Timestamp>,
    built_in: Vec<Timestamp>,
}

impl Log {
    fn read(stage: &Fixture) -> Outcome<Self> {
        let mut log = Self { ours: Vec::new(), built_in: Vec::new() };
        for entry in stage.plane.audit_log()?.lines() {
            // The last line may be incomplete while the API server writes it.
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

    fn no_own_writes(&self, when: &str) -> Outcome {
        let (ours, theirs) = (self.ours.len(), self.built_in.len());
        eprintln!("{when}: {theirs} writes of the built-in controller, {ours} of Concertina");
        ensure(ours == 0, || format!("Concertina wrote {ours} times {when}"))
    }
}
