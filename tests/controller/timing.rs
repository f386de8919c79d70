//! The sync times of one HPA and of many HPAs, and the request rate of many HPAs. Equal runs have equal times.

use std::time::Duration;

use controller::options::Options;
use fake_cluster::{FaultAction, FaultRule};
use flags::Config;
use serde_json::json;

use crate::support::objects::{cpu, deployment, external, hpa, pod};
use crate::support::{Fixture, HPAS, Harness};

/// Asserts that the syncs of `target` start at the `expected` seconds after `origin`.
fn at(rig: &Harness, target: &str, origin: Duration, expected: &[f64]) {
    let syncs: Vec<f64> =
        rig.syncs(target).iter().map(|at| at.as_secs_f64() - origin.as_secs_f64()).collect();
    let close = |(got, expected): (&f64, &f64)| (got - expected).abs() < 0.1;
    let equal = syncs.len() == expected.len() && syncs.iter().zip(expected).all(close);
    assert!(equal, "synced at {syncs:.2?}, expected {expected:?}");
}

/// A controller with one HPA, and the time of the creation of the HPA. The controller started 3.2 s earlier.
async fn one_hpa() -> (Harness, Duration) {
    let stage = Fixture::new();
    stage.target("web", 2);
    stage.external("queue", "20");
    let rig = Harness::start(stage);
    rig.pass(3.2).await;
    let created = rig.now();
    rig.create(hpa("web", &[external("queue", "10")]));
    (rig, created)
}

#[tokio::test(start_paused = true)]
async fn new_hpa_is_synced_at_once_and_then_every_period() {
    let (rig, created) = one_hpa().await;
    rig.pass(61.0).await;
    at(&rig, "web", created, &[0.0, 15.0, 30.0, 45.0, 60.0]);
}

#[tokio::test(start_paused = true)]
async fn changed_spec_is_synced_at_once_and_the_period_is_kept() {
    let (rig, created) = one_hpa().await;
    rig.pass(7.0).await;
    rig.edit("web", |hpa| hpa["spec"]["maxReplicas"] = json!(20));
    rig.pass(25.0).await;
    at(&rig, "web", created, &[0.0, 7.0, 15.0, 30.0]);
}

#[tokio::test(start_paused = true)]
async fn status_and_metadata_changes_trigger_no_sync() {
    let (rig, created) = one_hpa().await;
    rig.pass(4.0).await;
    rig.edit("web", |hpa| hpa["metadata"]["labels"] = json!({"team": "a"}));
    rig.pass(4.0).await;
    let mut changed = rig.hpa("web");
    changed["status"]["desiredReplicas"] = json!(7);
    rig.cluster.update_status(changed).unwrap();
    rig.pass(23.0).await;
    at(&rig, "web", created, &[0.0, 15.0, 30.0]);
}

#[tokio::test(start_paused = true)]
async fn repeated_spec_changes_are_each_synced_at_once() {
    let (rig, created) = one_hpa().await;
    for max in 11..=13 {
        rig.pass(2.0).await;
        rig.edit("web", |hpa| hpa["spec"]["maxReplicas"] = json!(max));
    }
    rig.pass(10.0).await;
    at(&rig, "web", created, &[0.0, 2.0, 4.0, 6.0, 15.0]);
}

#[tokio::test(start_paused = true)]
async fn existing_hpas_are_synced_at_startup_and_then_every_period() {
    let stage = Fixture::new();
    stage.external("queue", "20");
    let names: Vec<String> = (0..40).map(|index| format!("web-{index:02}")).collect();
    for name in &names {
        stage.target(name, 2);
        stage.create(hpa(name, &[external("queue", "10")]));
    }
    let rig = Harness::start(stage);
    rig.pass(152.0).await;
    for name in &names {
        let syncs = rig.syncs(name);
        assert!(syncs[0] < Duration::from_secs(2), "{name}: {syncs:.2?}");
        assert_eq!(syncs.len(), 11, "{name}: {syncs:.2?}");
        let gaps: Vec<_> = syncs.windows(2).map(|pair| pair[1].checked_sub(pair[0]).unwrap()).collect();
        let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
        assert!(
            *least >= Duration::from_millis(14_900) && *most < Duration::from_secs(16),
            "{name}: {gaps:.2?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn sync_period_follows_the_flag() {
    let stage = Fixture::new();
    stage.target("web", 2);
    stage.external("queue", "20");
    stage.create(hpa("web", &[external("queue", "10")]));
    let rig = Harness::with(
        stage,
        &Config::from(Options { sync_period: Duration::from_secs(40), ..Options::default() }),
    );
    rig.pass(81.0).await;
    at(&rig, "web", Duration::ZERO, &[0.0, 40.0, 80.0]);
}

#[tokio::test(start_paused = true)]
async fn no_sync_starts_after_shutdown() {
    let (rig, created) = one_hpa().await;
    rig.pass(10.0).await;
    let stage = rig.end().await;
    let before = stage.cluster.requests().len();
    stage.pass(60.0).await;
    assert_eq!(stage.cluster.requests().len(), before);
    assert_eq!(stage.syncs("web").len(), 1, "{created:?}");
}

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

/// Number of started syncs, and number of syncs that started within a second of their due time.
fn started(rig: &Harness) -> (f64, f64) {
    (rig.series(&format!("{LATENESS}_count")), rig.series(&format!("{LATENESS}_bucket{{le=\"1\"}}")))
}

#[tokio::test(start_paused = true)]
async fn a_thousand_hpas_sync_on_time_at_the_default_limits() {
    let rig = Harness::spread(many(), &Config::default());
    rig.pass(2.0 * PERIOD).await;
    let (start, before) = (rig.now(), started(&rig));
    for period in 0..5 {
        // Every status changes in every period, and no count changes.
        usage(&rig, 51 + period % 2);
        rig.pass(PERIOD).await;
    }
    let (all, on_time) = started(&rig);
    let syncs = all - before.0;
    // A lap is half a percent longer than a period, and the HPAs still move to their slots by up to one percent.
    assert!((4_950.0..=5_000.0).contains(&syncs), "{syncs}");
    assert_eq!(on_time - before.1, syncs, "all syncs start within a second of their due time");

    let requests = rig.times(|request| request.verb != "watch").iter().filter(|at| **at >= start).count();
    let requests = f64::from(u32::try_from(requests).unwrap());
    assert!(requests / syncs <= 1.07, "{} requests per sync", requests / syncs);
    assert_eq!(rig.count("update", "/scale"), 0);
}

#[tokio::test(start_paused = true)]
async fn syncs_are_spread_from_the_first_period_after_a_start_on() {
    let rig = Harness::spread(many(), &Config::default());
    rig.pass(PERIOD + 2.0).await;
    let start = rig.now();
    usage(&rig, 51);
    rig.pass(PERIOD).await;
    let mut seconds = [0_usize; 16];
    let statuses = rig.times(|request| request.verb == "update" && request.path.ends_with("/status"));
    for since in statuses.into_iter().filter_map(|at| at.checked_sub(start)) {
        seconds[usize::try_from(since.as_secs()).unwrap()] += 1;
    }
    assert!((980..=NAMESPACES * EACH).contains(&seconds.iter().sum()), "{seconds:?}");
    // The first syncs take seven seconds, so some HPAs are not in their slots yet.
    assert!(seconds.iter().take(14).all(|syncs| (10..=160).contains(syncs)), "{seconds:?}");
}

#[tokio::test(start_paused = true)]
async fn new_hpa_is_decided_first_while_a_thousand_wait() {
    let rig = Harness::spread(many(), &Config::default());
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
