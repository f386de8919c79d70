//! Neither a namespace that uses more than its share nor an HPA with very many metrics delays other HPAs.

use std::time::Duration;

use engine::store::Key;
use fake_cluster::{FaultAction, FaultRule, LoggedRequest};
use flags::Config;
use http::StatusCode;
use journal::record::{Answer, DecisionsRequest};
use serde_json::{Value, json};

use crate::support::objects::{deployment, external, hpa};
use crate::support::{Fixture, Harness};

const HOSTILE: &str = "hostile";
const PERIOD: f64 = 15.0;

/// Adds an HPA with its Deployment of one replica.
fn add(stage: &Fixture, namespace: &str, name: &str, metrics: &[Value]) {
    let mut deployment = deployment(name, 1);
    deployment["status"] = json!({ "replicas": 1 });
    for mut object in [deployment, hpa(name, metrics)] {
        object["metadata"]["namespace"] = json!(namespace);
        stage.cluster.put_raw(object);
    }
}

/// A cluster with an empty hostile namespace, and with `count` HPAs in other namespaces, ten per namespace. Each HPA
/// has one external metric.
fn peaceful(count: usize) -> (Fixture, Vec<(String, String)>) {
    let stage = Fixture::new();
    let names: Vec<_> =
        (0..count).map(|index| (format!("team-{:02}", index / 10), format!("web-{index:03}"))).collect();
    for namespace in names.iter().map(|(namespace, _)| namespace.as_str()).step_by(10).chain([HOSTILE]) {
        stage.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
    }
    stage.external("queue", "10");
    for (namespace, name) in &names {
        add(&stage, namespace, name, &[external("queue", "10")]);
    }
    (stage, names)
}

/// Waits while the metric of all peaceful HPAs changes within the tolerance, so that each sync writes a status.
async fn pass(rig: &Harness, seconds: u32) {
    for second in 0..seconds {
        rig.external("queue", &format!("{}m", 10_000 + second % 900));
        rig.pass(1.0).await;
    }
}

/// The longest time in which an HPA had no status write, from `start` until now.
fn longest_gap(rig: &Harness, names: &[(String, String)], start: Duration) -> Duration {
    let gaps = names.iter().map(|(namespace, name)| {
        let suffix = format!("/namespaces/{namespace}/horizontalpodautoscalers/{name}/status");
        let written = |request: &LoggedRequest| request.verb == "update" && request.path.contains(&suffix);
        let times = rig.times(written).into_iter().filter(|at| *at >= start);
        let times: Vec<_> = [start].into_iter().chain(times).chain([rig.now()]).collect();
        times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap()
    });
    gaps.max().unwrap()
}

/// Waits for a minute. Asserts that all HPAs were synced every period in this minute, at most a second late.
async fn assert_on_time_for_a_minute(rig: &Harness, names: &[(String, String)]) {
    let start = rig.now();
    pass(rig, 60).await;
    let longest = longest_gap(rig, names, start).as_secs_f64();
    assert!(longest <= PERIOD + 1.0, "{longest} s without a sync");
}

#[tokio::test(start_paused = true)]
async fn hpa_with_a_thousand_metrics_delays_no_other_namespace() {
    let (stage, names) = peaceful(10);
    let metrics: Vec<_> = (0..1_000).map(|index| external(&format!("m-{index}"), "10")).collect();
    add(&stage, HOSTILE, "greedy", &metrics);
    let rig = Harness::spread(stage, &Config::default());
    pass(&rig, 20).await;
    assert_on_time_for_a_minute(&rig, &names).await;
    let asked = rig.times(|request| request.path.contains("/namespaces/hostile/m-")).len();
    assert!(asked >= 1_000, "{asked} queries of the hostile HPA were sent");
}

#[tokio::test(start_paused = true)]
async fn hpa_has_at_most_eight_queries_in_flight() {
    let (stage, _) = peaceful(0);
    let metrics: Vec<_> = (0..100).map(|index| external(&format!("m-{index}"), "10")).collect();
    add(&stage, HOSTILE, "greedy", &metrics);
    let hangs = FaultRule::new(FaultAction::Silence).path_contains("/namespaces/hostile/m-");
    stage.cluster.faults().add(hangs);
    let rig = Harness::spread(stage, &Config::default());
    rig.pass(20.0).await;
    assert_eq!(rig.times(|request| request.path.contains("/namespaces/hostile/m-")).len(), 8);
}

#[tokio::test(start_paused = true)]
async fn hanging_queries_of_a_namespace_delay_no_other_namespace() {
    let (stage, names) = peaceful(10);
    for index in 0..600 {
        add(&stage, HOSTILE, &format!("slow-{index}"), &[external(&format!("m-{index}"), "10")]);
    }
    let hangs = FaultRule::new(FaultAction::Silence)
        .path_contains("/external.metrics.k8s.io/v1beta1/namespaces/hostile/");
    stage.cluster.faults().add(hangs);
    let rig = Harness::spread(stage, &Config::default());
    pass(&rig, 40).await;
    assert_on_time_for_a_minute(&rig, &names).await;
}

#[tokio::test(start_paused = true)]
async fn thousands_of_hanging_syncs_start_slowly_and_delay_no_other_namespace() {
    let (stage, names) = peaceful(10);
    for index in 0..4_500 {
        add(&stage, HOSTILE, &format!("slow-{index}"), &[external(&format!("m-{index}"), "10")]);
    }
    let hangs = FaultRule::new(FaultAction::Silence)
        .path_contains("/external.metrics.k8s.io/v1beta1/namespaces/hostile/");
    stage.cluster.faults().add(hangs);
    let rig = Harness::spread(stage, &Config::default());
    rig.pass(0.5).await;
    let waiting = rig.assembly.controller.runtime.queue.len();
    assert!((100..450).contains(&waiting), "{waiting} HPAs wait for the start of their first sync");
    pass(&rig, 40).await;
    assert_on_time_for_a_minute(&rig, &names).await;
}

#[tokio::test(start_paused = true)]
async fn hpas_that_are_edited_every_second_delay_no_other_namespace() {
    let (stage, names) = peaceful(300);
    let edited: Vec<_> = (0..30).map(|index| format!("edited-{index:02}")).collect();
    for name in &edited {
        add(&stage, HOSTILE, name, &[external("queue", "10")]);
    }
    let rig = Harness::spread(stage, &Config::default());
    pass(&rig, 30).await;
    let start = rig.now();
    for second in 0..60_u32 {
        rig.external("queue", &format!("{}m", 10_000 + second));
        for name in &edited {
            // Each edit moves both limits to another count, which requires a rescale.
            let mut hpa = rig.hpa_in(HOSTILE, name);
            let limit = 1 + second % 3;
            (hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"]) = (json!(limit), json!(limit));
            rig.cluster.update(hpa).unwrap();
        }
        rig.pass(1.0).await;
    }
    let longest = longest_gap(&rig, &names, start).as_secs_f64();
    assert!(longest <= PERIOD + 1.0, "{longest} s without a sync");
    let written = |request: &LoggedRequest| request.verb == "update" && request.path.contains("/edited-");
    let rescales = rig.times(|request| written(request) && request.path.contains("/scale")).len();
    assert!(rescales >= 200, "{rescales} rescales of the edited HPAs");
}

#[tokio::test(start_paused = true)]
async fn large_responses_are_built_one_at_a_time() {
    let stage = Fixture::new();
    stage.target("web", 3);
    stage.target("api", 3);
    stage.external("queue", "30");
    stage.create(hpa("web", &vec![external(&"absent".repeat(10), "10"); 1000]));
    stage.create(hpa("api", &[external("queue", "10")]));
    let rig = Harness::start(stage);
    for min in [1, 2] {
        rig.edit("web", |hpa| hpa["spec"]["minReplicas"] = min.into());
        rig.pass(16.0).await;
    }
    let decisions = rig.assembly.decisions.clone().unwrap();
    let answer = |name: &str| -> Answer {
        decisions.answer(
            &DecisionsRequest::parse(&format!("/shop/{name}"), None).unwrap_or_else(|_| panic!("{name}")),
        )
    };
    let large = answer("web");
    assert_eq!(large.status, StatusCode::OK);
    assert!((64 << 10..4 << 20).contains(&large.json.len()), "{} bytes", large.json.len());
    assert_eq!(answer("web").status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer("api").status, StatusCode::OK);
    drop(large);
    assert_eq!(answer("web").status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn hpa_beyond_a_thousand_metrics_or_256_kib_is_not_evaluated() {
    let stage = Fixture::new();
    stage.external("queue", "90");
    let many = vec![external("queue", "10"); 1_001];
    let long = vec![external(&"absent".repeat(60), "10"); 999];
    for (name, metrics) in [("many", &many), ("long", &long)] {
        stage.target(name, 3);
        stage.create(hpa(name, metrics));
    }
    let rig = Harness::start(stage);
    rig.pass(40.0).await;
    for (name, metrics) in [("many", 1_001), ("long", 999)] {
        assert_eq!(
            rig.condition(name, "ScalingActive"),
            "False TooManyMetrics the spec has more than 1000 metrics or 262144 bytes"
        );
        let events: Vec<String> = rig.events(name);
        assert_eq!(events.len(), 1, "{events:?}");
        let kept = rig.assembly.controller.stores.hpas.get(&Key::new("shop", name)).unwrap();
        assert!(kept.spec.is_too_large && kept.spec.metrics.is_empty());
        // Status writes leave the spec as it is.
        assert_eq!(rig.hpa(name)["spec"]["metrics"].as_array().unwrap().len(), metrics);
    }
    let kept = rig.assembly.controller.stores.hpas.get(&Key::new("shop", "long")).unwrap();
    assert_eq!(kept.spec_raw.get(), "null");
    let read =
        |request: &LoggedRequest| request.path.contains("/scale") || request.path.contains("metrics.k8s.io");
    assert_eq!(rig.times(|request| read(request) && request.path.contains("/namespaces/")).len(), 0);

    rig.edit("long", |hpa| hpa["spec"]["metrics"] = json!([external("queue", "10")]));
    rig.pass(20.0).await;
    assert_eq!(rig.replicas("long"), 9);
}
