//! The events of the measured time: probes in every workload, and a load step, churn or policy changes in some.

use std::time::Duration;

use fake_cluster::Cluster;
use tokio::time::{Instant, sleep_until};

use super::gateway::Gateway;
use crate::observations::now;
use crate::workload::Workload;
use crate::world::{World, change_policy};

/// The interval between two rounds of churn.
const ROUND: Duration = Duration::from_millis(100);
/// Number of changes of the ClusterScalingPolicy in the measured time.
const POLICY_CHANGES: u32 = 10;

/// A single event at some time after the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimedEvent {
    /// The HPA of the given app is created.
    Creation(usize),
    /// The spec of the given app's HPA changes.
    SpecChange(usize),
    Step,
    /// The ClusterScalingPolicy changes. The number counts its changes.
    PolicyChange(usize),
}

/// Runs a workload's events and returns when the time is over.
pub(crate) async fn run(
    workload: &Workload,
    world: &World,
    cluster: &Cluster,
    gateway: &Gateway,
    time: Duration,
) {
    let start = Instant::now();
    let churning = async {
        let mut replaced = 0;
        for round in 1.. {
            sleep_until(start + ROUND * round).await;
            // The factor is a prime, which spreads successive replacements over the apps.
            let due = f64::from(round) * ROUND.as_secs_f64() * workload.churn as f64;
            while f64::from(replaced) < due {
                replaced += 1;
                world.replace_pod(cluster, usize::try_from(replaced).unwrap_or(0) * 7_919);
            }
        }
    };
    let happening = async {
        for (after, happening) in plan(workload, time) {
            sleep_until(start + after).await;
            happen(happening, world, cluster, gateway);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = sleep_until(start + time) => {}
        () = happening => {}
        () = churning, if workload.churn > 0 => {}
    }
}

/// The events with their times. Probes are spread evenly over the first nine tenths of the time, so that
/// the controller can react to each one.
pub(crate) fn plan(workload: &Workload, time: Duration) -> Vec<(Duration, TimedEvent)> {
    let all = workload.all_hpas();
    let probes = u32::try_from(workload.probes).unwrap_or(0);
    let pause = time.mul_f64(0.9) / probes.max(1);
    let mut plan = Vec::new();
    for (index, probe) in (0..probes).zip(0_usize..) {
        plan.push((pause * index, TimedEvent::Creation(all + probe)));
        // The events take every 31st HPA, so that they are spread over the namespaces.
        plan.push((pause * index + pause / 2, TimedEvent::SpecChange((probe * 31 + 1) % all.max(1))));
    }
    if workload.step {
        plan.push((time / 4, TimedEvent::Step));
    }
    if workload.policies > 0 {
        let tenths = (0_u32..POLICY_CHANGES).zip(0_usize..);
        plan.extend(
            tenths.map(|(tenth, number)| (time * tenth / POLICY_CHANGES, TimedEvent::PolicyChange(number))),
        );
    }
    plan.sort();
    plan
}

fn happen(happening: TimedEvent, world: &World, cluster: &Cluster, gateway: &Gateway) {
    let key = |number: usize| world.key(number);
    match happening {
        TimedEvent::Creation(number) => {
            gateway.sightings(|it| it.await_first(key(number)));
            world.create(cluster, number);
        }
        TimedEvent::SpecChange(number) => {
            let since = now();
            if let Some(generation) = world.change_spec(cluster, number) {
                gateway.sightings(|it| it.await_generation(&key(number), since, generation));
            }
        }
        TimedEvent::PolicyChange(number) => change_policy(cluster, number),
        TimedEvent::Step => gateway.sightings(|it| it.await_scales(world.step())),
    }
}
