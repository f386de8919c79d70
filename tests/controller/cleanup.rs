//! No state remains of deleted HPAs and pods.

use concertina::cli::Config;
use fake_cluster::{FaultAction, FaultRule};

use crate::support::objects::{SHOP, cpu, deployment, external, hpa, pod};
use crate::support::{Fixture, HPAS, Harness};

const APPS: usize = 24;

fn app(index: usize) -> String {
    format!("leftover-{index:02}")
}

/// Creates Deployments with pods and an HPA for each: on cpu, on a metric that works, on a metric that fails,
/// without a target, two HPAs on the same pods, and with a `behavior` that needs a history.
fn fill(stage: &Fixture) {
    let mut all = Vec::new();
    for (index, app) in (0..APPS).map(|index| (index, app(index))) {
        if index % 6 != 5 {
            stage.create(deployment(&app, 3));
            let mut created = stage.cluster.get("apps/deployments", SHOP, &app).unwrap();
            created["status"]["replicas"] = 3.into();
            stage.cluster.update_status(created).unwrap();
        }
        for pod_index in 0..3 {
            stage.cluster.put_raw(pod(&app, pod_index));
        }
        let metric = match index % 6 {
            0 | 5 => cpu(50),
            1 | 4 => {
                stage.external(&app, "50");
                external(&app, "10")
            }
            _ => external(&format!("broken-{app}"), "10"),
        };
        let mut hpa = hpa(&app, &[metric]);
        if index % 6 == 4 {
            let twin = hpa.clone();
            all.push((twin, format!("{app}-twin")));
        }
        hpa["spec"]["behavior"] = serde_json::json!({"scaleUp": {"stabilizationWindowSeconds": 60}});
        all.push((hpa, app));
    }
    for (mut hpa, name) in all {
        hpa["metadata"]["name"] = name.into();
        stage.create(hpa);
    }
    let broken = FaultAction::Text { code: 503, body: "down".to_owned() };
    stage.cluster.faults().add(FaultRule::new(broken).path_contains("/broken-"));
}

fn empty(stage: &Fixture) {
    for kind in [HPAS, "apps/deployments", "pods"] {
        for object in stage.cluster.list(kind, Some(SHOP)) {
            let name = object["metadata"]["name"].as_str().unwrap();
            stage.cluster.delete_now(kind, SHOP, name).unwrap();
        }
    }
}

/// Number of entries in each store and cache.
fn entry_counts(rig: &Harness) -> Vec<(&'static str, usize)> {
    let controller = &rig.assembly.controller;
    let pods = controller.pods.stats();
    let record = rig.assembly.decisions.as_ref().map_or(0, |decisions| decisions.record().len());
    let shown = rig.telemetry.render().lines().filter(|line| line.contains("leftover-")).count();
    vec![
        ("HPAs", controller.hpas.len()),
        ("pods", pods.pods),
        ("label sets", pods.label_sets),
        ("requests of pods", pods.request_sets),
        ("strings", pods.strings),
        ("selectors", pods.selectors),
        ("namespaces", pods.namespaces),
        ("claims", controller.overlap.len()),
        ("due", controller.queue.len()),
        ("histories", controller.histories.len()),
        ("decisions", record),
        ("waiting", controller.queue.waiting()),
        ("series", shown),
        ("events", controller.events.remembered()),
    ]
}

#[tokio::test(start_paused = true)]
async fn controller_keeps_no_state_when_its_cluster_is_emptied() {
    let stage = Fixture::new();
    fill(&stage);
    let rig = Harness::with(stage, &Config::default());
    for round in 0..2 {
        rig.pass(100.0).await;
        for (store, count) in entry_counts(&rig) {
            assert!(count > 0 || store == "due", "{store} in round {round}");
        }
        empty(&rig);
        // Let syncs in flight finish.
        rig.pass(40.0).await;
        for (store, count) in entry_counts(&rig) {
            assert_eq!(count, 0, "{store} in round {round}");
        }
        if round == 0 {
            rig.cluster.faults().clear();
            fill(&rig);
        }
    }
    let before = rig.cluster.requests().entries().len();
    rig.pass(120.0).await;
    let requests = rig.cluster.requests().entries();
    let since: Vec<_> = requests[before..].iter().filter(|request| request.verb != "watch").collect();
    assert!(since.is_empty(), "{since:?}");
}
