//! What happens in the measured time: probes in every workload, a step of load or churn in some.

use std::time::Duration;

use concertina::embedded::Cluster;
use tokio::time::{Instant, sleep_until};

use super::gateway::Gateway;
use crate::observed::now;
use crate::workload::Workload;
use crate::world::World;

/// Between two rounds of churn.
const ROUND: Duration = Duration::from_millis(100);

/// Something that happens once, some time after the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Happening {
    /// This app gets its HPA.
    Creation(usize),
    /// The HPA of this app gets another spec.
    SpecChange(usize),
    Step,
}

/// Lets a workload's happenings come to pass, and returns when the time is over.
pub(crate) async fn play(
    workload: &Workload,
    world: &World,
    cluster: &Cluster,
    gateway: &Gateway,
    time: Duration,
) {
    let begin = Instant::now();
    let churning = async {
        let mut replaced = 0;
        for round in 1.. {
            sleep_until(begin + ROUND * round).await;
            // A prime, so that all apps have their turn in no order that means anything.
            let due = f64::from(round) * ROUND.as_secs_f64() * workload.churn as f64;
            while f64::from(replaced) < due {
                replaced += 1;
                world.replace_pod(cluster, usize::try_from(replaced).unwrap_or(0) * 7_919);
            }
        }
    };
    let happening = async {
        for (after, happening) in plan(workload, time) {
            sleep_until(begin + after).await;
            happen(happening, world, cluster, gateway);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = sleep_until(begin + time) => {}
        () = happening => {}
        () = churning, if workload.churn > 0 => {}
    }
}

/// What happens when. Probes come evenly, in the first nine tenths of the time so that each can be answered in it.
pub(crate) fn plan(workload: &Workload, time: Duration) -> Vec<(Duration, Happening)> {
    let all = workload.all_hpas();
    let probes = u32::try_from(workload.probes).unwrap_or(0);
    let pause = time.mul_f64(0.9) / probes.max(1);
    let mut plan = Vec::new();
    for (place, probe) in (0..probes).zip(0_usize..) {
        plan.push((pause * place, Happening::Creation(all + probe)));
        // Every 31st HPA, so that they are spread over namespaces.
        plan.push((pause * place + pause / 2, Happening::SpecChange((probe * 31 + 1) % all.max(1))));
    }
    if workload.step {
        plan.push((time / 4, Happening::Step));
    }
    plan.sort();
    plan
}

fn happen(happening: Happening, world: &World, cluster: &Cluster, gateway: &Gateway) {
    let key = |number: usize| world.key(number);
    match happening {
        Happening::Creation(number) => {
            gateway.sightings(|it| it.await_first(key(number)));
            world.create(cluster, number);
        }
        Happening::SpecChange(number) => {
            let since = now();
            if let Some(generation) = world.change_spec(cluster, number) {
                gateway.sightings(|it| it.await_generation(&key(number), since, generation));
            }
        }
        Happening::Step => gateway.sightings(|it| it.await_scales(world.step())),
    }
}
