//! A metrics API that is down: the number of requests, the reported errors, and the time until recovery.

use std::time::Duration;

use concertina::cli::Config;
use controller::options::Options;
use fake_cluster::{FaultAction, FaultRule};

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

const API: &str = "/apis/external.metrics.k8s.io";
const DOWN: &str = "concertina_metrics_api_down{api=\"external.metrics.k8s.io\"}";
const SPARED: &str = "concertina_spared_metric_queries_total{api=\"external.metrics.k8s.io\"}";

fn name(index: usize) -> String {
    format!("web-{index:02}")
}

/// HPAs with 4 replicas and a demand of 8, each on a separate metric with the name of the HPA.
fn stage(hpas: usize) -> Fixture {
    let stage = Fixture::new();
    for name in (0..hpas).map(name) {
        stage.external(&name, "80");
        stage.target(&name, 4);
        stage.create(hpa(&name, &[external(&name, "10")]));
    }
    stage
}

/// Number of requests to the metrics API so far.
fn requests_to_api(rig: &Harness) -> usize {
    rig.cluster.requests().count(|request| request.path.starts_with(API))
}

fn unavailable() -> FaultRule {
    FaultRule::new(FaultAction::Text { code: 503, body: String::new() }).path_prefix(API)
}

#[tokio::test(start_paused = true)]
async fn breaker_tries_each_metric_once_a_minute_while_the_api_is_down() {
    let stage = stage(40);
    stage.cluster.faults().add(unavailable());
    // Token buckets are off, because they would spread simultaneous requests.
    let rig = Harness::with(stage, &Config::from(Options { qps: None, ..Options::default() }));
    rig.pass(61.0).await;
    assert_eq!(rig.series(DOWN), 1.0);
    let before = (requests_to_api(&rig), rig.syncs(&name(0)).len());
    rig.pass(600.0).await;
    let requests = requests_to_api(&rig) - before.0;
    // The controller sends one request per metric and minute, and the attempts of the breaker in each period. Without
    // the breaker, the controller would send 1600.
    assert!((400..=480).contains(&requests), "{requests}");
    assert_eq!(rig.syncs(&name(0)).len() - before.1, 40, "no sync is late");
    for name in (0..40).map(name) {
        assert_eq!(
            rig.condition(&name, "ScalingActive"),
            format!(
                "False FailedGetExternalMetric the HPA was unable to compute the replica count: unable to get \
                 external metric shop/{name}/nil: unable to fetch metrics from external metrics API: the server is \
                 currently unable to handle the request (get {name}.external.metrics.k8s.io)"
            )
        );
        assert_eq!(rig.replicas(&name), 4);
    }
    assert!(rig.series(SPARED) > 1000.0);

    rig.cluster.faults().clear();
    rig.until("all HPAs scale within one period", 15.1, |stage| {
        (0..40).all(|index| stage.replicas(&name(index)) == 8)
    })
    .await;
    assert_eq!(rig.series(DOWN), 0.0);
}

#[tokio::test(start_paused = true)]
async fn hanging_api_delays_only_the_hpas_with_a_request_in_flight() {
    let stage = stage(20);
    stage.cluster.faults().add(FaultRule::new(FaultAction::Silence).path_prefix(API));
    let timeout = Options { metrics_timeout: Duration::from_secs(30), ..Options::default() };
    let rig = Harness::with(stage, &Config::from(timeout));
    rig.pass(120.0).await;
    let before = requests_to_api(&rig);
    rig.pass(600.0).await;
    // Each request times out after 30 s, and its error is then reused for a minute. Without the breaker,
    // the controller would send 267 requests.
    let requests = requests_to_api(&rig) - before;
    assert!((100..=220).contains(&requests), "{requests}");
    let syncs: Vec<_> = (0..20).map(|index| rig.syncs(&name(index)).len()).collect();
    // If every sync took 30 s, each HPA would have 16 syncs in 720 s.
    assert!(syncs.iter().all(|syncs| *syncs >= 16), "{syncs:?}");
    assert!(syncs.iter().sum::<usize>() > 20 * 22, "{syncs:?}");
    rig.cluster.faults().clear();
    // Requests in flight at the recovery still wait for their timeout of 30 s.
    rig.until("all HPAs scale", 52.0, |stage| (0..20).all(|index| stage.replicas(&name(index)) == 8)).await;
}

#[tokio::test(start_paused = true)]
async fn breaker_does_not_affect_a_single_hpa() {
    let stage = stage(1);
    stage.cluster.faults().add(unavailable());
    let rig = Harness::start(stage);
    rig.pass(301.0).await;
    assert_eq!((requests_to_api(&rig), rig.syncs(&name(0)).len()), (21, 21));
    assert_eq!(rig.series(SPARED), 0.0);
    let other = FaultAction::Text { code: 429, body: String::new() };
    rig.cluster.faults().clear();
    rig.cluster.faults().add(FaultRule::new(other).path_prefix(API));
    rig.until("the condition shows the current error", 15.1, |stage| {
        stage.condition(&name(0), "ScalingActive").contains("too many requests")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn failing_metrics_do_not_open_the_breaker_while_others_succeed() {
    let stage = stage(12);
    for broken in 0..4 {
        stage.fault(&format!("/{}", name(broken)), FaultAction::Text { code: 500, body: "no".to_owned() });
    }
    // The server responds with 404 for absent metrics, which does not indicate a failure of the API.
    for absent in 4..11 {
        stage.fault(&format!("/{}", name(absent)), FaultAction::Text { code: 404, body: String::new() });
    }
    let rig = Harness::start(stage);
    for _ in 0..40 {
        rig.pass(15.0).await;
        assert_eq!(rig.series(DOWN), 0.0);
    }
    assert_eq!(rig.series(SPARED), 0.0);
    assert_eq!(rig.replicas(&name(11)), 8);
}

#[tokio::test(start_paused = true)]
async fn working_metric_recovers_within_a_minute_among_broken_ones() {
    let stage = stage(8);
    let down = stage.cluster.faults().add(unavailable());
    for broken in 0..7 {
        stage.fault(&format!("/{}", name(broken)), FaultAction::Text { code: 500, body: "no".to_owned() });
    }
    let rig = Harness::start(stage);
    rig.pass(200.0).await;
    assert_eq!(rig.series(DOWN), 1.0);
    rig.cluster.faults().remove(down);
    rig.until("the working metric is fetched", 75.1, |stage| stage.replicas(&name(7)) == 8).await;
}
