//! A metrics API that is down: how often it is asked, what is told meanwhile, and how soon it is used again.

use concertina::cli::Config;
use concertina::embedded::{FaultAction, FaultRule};

use crate::support::objects::{external, hpa};
use crate::support::{Rig, Stage};

const API: &str = "/apis/external.metrics.k8s.io";
const DOWN: &str = "concertina_metrics_api_down{api=\"external.metrics.k8s.io\"}";
const SPARED: &str = "concertina_spared_metric_queries_total{api=\"external.metrics.k8s.io\"}";

fn name(index: usize) -> String {
    format!("web-{index:02}")
}

/// So many HPAs with 4 replicas that want 8, each by a metric of its own, which has the HPA's name.
fn stage(hpas: usize) -> Stage {
    let stage = Stage::new();
    for name in (0..hpas).map(name) {
        stage.external(&name, "80");
        stage.target(&name, 4);
        stage.create(hpa(&name, &[external(&name, "10")]));
    }
    stage
}

/// Requests to the API so far.
fn asked(rig: &Rig) -> usize {
    rig.cluster.requests().count(|request| request.path.starts_with(API))
}

fn unavailable() -> FaultRule {
    FaultRule::new(FaultAction::Text { code: 503, body: String::new() }).path_prefix(API)
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_for_each_metric_once_a_minute_and_everybody_is_told_what_happened_to_his_own() {
    let stage = stage(40);
    stage.cluster.faults().add(unavailable());
    // Without the token buckets, which would spread what comes at once.
    let rig = Rig::with(stage, &Config { qps: None, ..Config::default() });
    rig.pass(61.0).await;
    assert_eq!(rig.series(DOWN), 1.0);
    let before = (asked(&rig), rig.syncs(&name(0)).len());
    rig.pass(600.0).await;
    let requests = asked(&rig) - before.0;
    // Of 1600 without it. One for each metric a minute, and the attempts of each period.
    assert!((400..=480).contains(&requests), "{requests}");
    assert_eq!(rig.syncs(&name(0)).len() - before.1, 40, "nothing is late");
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
    rig.until("everybody is back within one period", 15.1, |stage| {
        (0..40).all(|index| stage.replicas(&name(index)) == 8)
    })
    .await;
    assert_eq!(rig.series(DOWN), 0.0);
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_holds_up_only_those_who_are_asked() {
    let stage = stage(20);
    stage.cluster.faults().add(FaultRule::new(FaultAction::Silence).path_prefix(API));
    let rig = Rig::start(stage);
    rig.pass(120.0).await;
    let before = asked(&rig);
    rig.pass(600.0).await;
    // Each waits 30 s for its own answer, then has its error for a minute. Of 267 without it.
    let requests = asked(&rig) - before;
    assert!((100..=220).contains(&requests), "{requests}");
    let syncs: Vec<_> = (0..20).map(|index| rig.syncs(&name(index)).len()).collect();
    // If each sync took its 30 s, there would be 16 in these 720 s.
    assert!(syncs.iter().all(|syncs| *syncs >= 16), "{syncs:?}");
    assert!(syncs.iter().sum::<usize>() > 20 * 22, "{syncs:?}");
    rig.cluster.faults().clear();
    // What is under way when it comes back has its 30 s still.
    rig.until("everybody is back", 52.0, |stage| (0..20).all(|index| stage.replicas(&name(index)) == 8))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_single_hpa_is_served_as_if_there_were_no_breaker() {
    let stage = stage(1);
    stage.cluster.faults().add(unavailable());
    let rig = Rig::start(stage);
    rig.pass(301.0).await;
    assert_eq!((asked(&rig), rig.syncs(&name(0)).len()), (21, 21));
    assert_eq!(rig.series(SPARED), 0.0);
    let other = FaultAction::Text { code: 429, body: String::new() };
    rig.cluster.faults().clear();
    rig.cluster.faults().add(FaultRule::new(other).path_prefix(API));
    rig.until("the error of now is told", 15.1, |stage| {
        stage.condition(&name(0), "ScalingActive").contains("too many requests")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn metrics_that_fail_for_themselves_never_open_it_while_others_are_answered() {
    let stage = stage(12);
    for broken in 0..4 {
        stage.fault(&format!("/{}", name(broken)), FaultAction::Text { code: 500, body: "no".to_owned() });
    }
    // The server answers for these: nothing is known that is wrong with the API.
    for absent in 4..11 {
        stage.fault(&format!("/{}", name(absent)), FaultAction::Text { code: 404, body: String::new() });
    }
    let rig = Rig::start(stage);
    for _ in 0..40 {
        rig.pass(15.0).await;
        assert_eq!(rig.series(DOWN), 0.0);
    }
    assert_eq!(rig.series(SPARED), 0.0);
    assert_eq!(rig.replicas(&name(11)), 8);
}

#[tokio::test(start_paused = true)]
async fn those_in_step_behind_metrics_that_stay_broken_are_back_within_a_minute() {
    let stage = stage(8);
    let down = stage.cluster.faults().add(unavailable());
    for broken in 0..7 {
        stage.fault(&format!("/{}", name(broken)), FaultAction::Text { code: 500, body: "no".to_owned() });
    }
    let rig = Rig::start(stage);
    rig.pass(200.0).await;
    assert_eq!(rig.series(DOWN), 1.0);
    rig.cluster.faults().remove(down);
    rig.until("the good one is asked", 75.1, |stage| stage.replicas(&name(7)) == 8).await;
}
