//! Many HPAs: the times of their syncs and the rate of requests.

use std::collections::BTreeMap;
use std::time::Duration;

use concertina::cli::Config;
use controller::options::{Options, ScaleSource};
use serde_json::json;

use crate::support::objects::{cpu, deployment, hpa, pod};
use crate::support::{Fixture, Harness};

const NAMESPACES: usize = 50;
const EACH: usize = 20;
const PERIOD: f64 = 15.0;

const LATENESS: &str = "concertina_sync_lateness_seconds";

fn namespace(index: usize) -> String {
    format!("team-{index:02}")
}

/// Adds an HPA on cpu with a Deployment of one pod.
fn add(stage: &Fixture, namespace: &str, name: &str) {
    let mut deployment = deployment(name, 1);
    deployment["status"] = json!({ "replicas": 1 });
    for mut object in [deployment, hpa(name, &[cpu(50)]), pod(name, 0)] {
        object["metadata"]["namespace"] = json!(namespace);
        stage.cluster.put_raw(object);
    }
}

fn names() -> impl Iterator<Item = (String, String)> {
    (0..NAMESPACES).flat_map(|index| (0..EACH).map(move |n| (namespace(index), format!("web-{n:02}"))))
}

fn many() -> Fixture {
    let stage = Fixture::new();
    for index in 0..=NAMESPACES {
        stage
            .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace(index)}}));
    }
    for (namespace, name) in names() {
        add(&stage, &namespace, &name);
    }
    usage(&stage, 50);
    stage
}

/// Sets the usage of every pod. Each pod requests 100 millicores.
fn usage(stage: &Fixture, millicores: usize) {
    let late = (namespace(NAMESPACES), "late".to_owned());
    let pods = names().chain([late]).map(|(namespace, name)| {
        json!({
            "metadata": {"namespace": namespace, "name": format!("{name}-0000"), "labels": {"app": name}},
            "timestamp": "2030-01-01T00:00:00Z", "window": "30s",
            "containers": [{"name": "app", "usage": {"cpu": format!("{millicores}m"), "memory": "1Mi"}}],
        })
    });
    stage.metrics.set_resource(Some(json!({ "items": pods.collect::<Vec<_>>() })));
}

fn watching() -> Config {
    Config::from(Options { scale_source: ScaleSource::Watch, ..Options::default() })
}

/// Number of started syncs, and number of syncs that started within a second of their due time.
fn started(rig: &Harness) -> (f64, f64) {
    (rig.series(&format!("{LATENESS}_count")), rig.series(&format!("{LATENESS}_bucket{{le=\"1\"}}")))
}

#[tokio::test(start_paused = true)]
async fn a_thousand_hpas_sync_on_time_and_evenly_at_the_default_limits() {
    let rig = Harness::spread(many(), &watching());
    rig.pass(2.0 * PERIOD).await;
    let (start, before) = (rig.now(), started(&rig));
    for period in 0..5 {
        // Every status changes in every period, and no count changes.
        usage(&rig, 51 + period % 2);
        rig.pass(PERIOD).await;
    }
    let (all, on_time) = started(&rig);
    let syncs = all - before.0;
    assert!((4_980.0..=5_020.0).contains(&syncs), "{syncs}");
    assert_eq!(on_time - before.1, syncs, "all syncs start within a second of their due time");

    let mut by_second = BTreeMap::<u64, u32>::new();
    let made = rig.times(|request| request.verb != "watch");
    for at in made.iter().filter(|at| **at >= start) {
        *by_second.entry(at.as_secs()).or_default() += 1;
    }
    let (requests, busiest) =
        (f64::from(by_second.values().sum::<u32>()), f64::from(*by_second.values().max().unwrap()));
    assert!(requests / syncs <= 1.06, "{} requests per sync", requests / syncs);
    let mean = requests / (5.0 * PERIOD);
    assert!(busiest <= 1.5 * mean, "{busiest} requests in one second, {mean} on average");
    assert_eq!(rig.count("update", "/scale"), 0);
}

#[tokio::test(start_paused = true)]
async fn new_hpa_is_decided_first_while_a_thousand_wait() {
    let rig = Harness::spread(many(), &watching());
    rig.pass(2.0).await;
    let backlog = rig.cluster.requests().count(|request| request.path.ends_with("/status"));
    assert!(backlog < 500, "{backlog} HPAs are already synced");
    let created = rig.now();
    add(&rig, &namespace(NAMESPACES), "late");
    let written = |request: &fake_cluster::LoggedRequest| {
        request.verb == "update" && request.path.ends_with("/late/status")
    };
    rig.pass(0.5).await;
    let first = rig.times(written).first().copied();
    assert!(
        first.is_some_and(|at| at.checked_sub(created).unwrap() <= Duration::from_millis(100)),
        "created at {created:?}, first status at {first:?}"
    );
}
