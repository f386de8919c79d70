//! Determinism: equal inputs yield equal runs.

use fake_cluster::{FaultAction, FaultRule};

use crate::support::objects::{cpu, external, hpa, pod};
use crate::support::{Fixture, HPAS, Harness};

/// Runs ten minutes with changing load, faults, and created and deleted HPAs. Returns every request with its
/// body.
async fn run_scenario() -> Vec<String> {
    let stage = Fixture::new();
    stage.cluster.requests().keep_bodies();
    stage.external("queue", "40");
    for index in 0..4 {
        stage.cluster.put_raw(pod("web", index));
    }
    for index in 0..12 {
        let name = format!("worker-{index:02}");
        stage.target(&name, 4);
        stage.create(hpa(&name, &[external("queue", "10"), external("absent", "10")]));
    }
    stage.target("web", 4);
    stage.create(hpa("web", &[cpu(50), external("queue", "20")]));
    let faults = stage.cluster.faults().clone();
    faults.add(FaultRule::new(FaultAction::Close).path_contains("/scale").after(30).times(5));
    faults.add(FaultRule::new(FaultAction::WatchClose).after(4).times(6));
    let rig = Harness::start(stage);
    for step in 0..20_u32 {
        rig.external("queue", &(20 + step * 37 % 90).to_string());
        rig.cpu("web", &[20 + step * 13 % 100; 4]);
        if step == 7 {
            rig.cluster.delete(HPAS, "shop", "worker-03").unwrap();
        }
        if step == 9 {
            rig.create(hpa("worker-03", &[external("queue", "5")]));
        }
        rig.pass(30.0).await;
    }
    let stage = rig.end().await;
    let entries = stage.cluster.requests().entries();
    assert!(entries.len() > 1000, "{}", entries.len());
    entries.iter().map(|request| format!("{request:?}")).collect()
}

#[test]
fn equal_inputs_yield_equal_requests_at_equal_times() {
    let run = || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run_scenario())
    };
    let (first, second) = (run(), run());
    for (number, (one, other)) in first.iter().zip(&second).enumerate() {
        assert_eq!(one, other, "request {number}");
    }
    assert_eq!(first.len(), second.len());
}
