//! Metrics APIs that are slow, silent, broken, missing or down.

use std::time::Duration;

use controller::options::Options;
use fake_cluster::{FaultAction, FaultRule};
use flags::Config;
use serde_json::json;

use crate::support::objects::{cpu, external, hpa, pod};
use crate::support::{Fixture, Harness};

const PATH: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop";

/// Fifty HPAs on `queue`, and the HPA `slow` on a separate metric.
fn fifty_and_one() -> Fixture {
    let stage = Fixture::new();
    stage.external("queue", "40");
    stage.external("lagging", "80");
    for index in 0..50 {
        let name = format!("web-{index:02}");
        stage.target(&name, 4);
        stage.create(hpa(&name, &[external("queue", "10")]));
    }
    stage.target("slow", 4);
    stage.create(hpa("slow", &[external("lagging", "10")]));
    stage
}

/// Asserts that the fifty HPAs were synced every period.
fn on_time(rig: &Harness, periods: usize) {
    for index in 0..50 {
        let syncs = rig.syncs(&format!("web-{index:02}"));
        assert_eq!(syncs.len(), periods + 1, "{index}: {syncs:.2?}");
        for pair in syncs.windows(2) {
            let gap = pair[1].checked_sub(pair[0]).unwrap().as_secs_f64();
            assert!((14.5..16.5).contains(&gap), "{index}: {syncs:.2?}");
        }
    }
}

fn one_worker() -> Config {
    Config::from(Options { concurrent_syncs: 1, ..Options::default() })
}

#[tokio::test(start_paused = true)]
async fn silent_metric_fails_after_the_timeout_and_delays_only_its_hpa() {
    let stage = fifty_and_one();
    stage.fault("/lagging", FaultAction::Silence);
    let rig = Harness::with(stage, &one_worker());
    rig.pass(59.0).await;
    assert_eq!(rig.condition("slow", "ScalingActive"), "");
    rig.until("the request timed out", 5.0, |stage| !stage.condition("slow", "ScalingActive").is_empty())
        .await;
    let error = format!(
        "unable to get external metric shop/lagging/nil: unable to fetch metrics from external metrics API: \
         Get \"http://embedded{PATH}/lagging\": context deadline exceeded"
    );
    assert_eq!(
        rig.condition("slow", "ScalingActive"),
        format!("False FailedGetExternalMetric the HPA was unable to compute the replica count: {error}")
    );
    let events = rig.events("slow");
    assert!(events.contains(&format!("FailedGetExternalMetric {error}")), "{events:?}");
    rig.pass(93.0).await;
    on_time(&rig, 10);
    assert_eq!(rig.replicas("slow"), 4);
}

#[tokio::test(start_paused = true)]
async fn metric_is_used_if_it_arrives_within_the_limit_of_an_aggregated_api() {
    let stage = fifty_and_one();
    stage.fault("/lagging", FaultAction::DelayAnswer(Duration::from_secs(59)));
    let rig = Harness::with(stage, &one_worker());
    rig.pass(58.0).await;
    assert_eq!(rig.replicas("slow"), 4);
    rig.until("the late response is used", 3.0, |stage| stage.replicas("slow") == 8).await;
}

#[tokio::test(start_paused = true)]
async fn metric_with_a_delay_of_20_s_delays_only_its_hpa() {
    let stage = fifty_and_one();
    stage.fault("/lagging", FaultAction::DelayAnswer(Duration::from_secs(20)));
    let rig = Harness::with(stage, &one_worker());
    rig.pass(19.0).await;
    assert_eq!(rig.replicas("slow"), 4);
    rig.until("the late response is used", 3.0, |stage| stage.replicas("slow") == 8).await;
    rig.pass(133.0).await;
    on_time(&rig, 10);
    let slow: Vec<_> = rig.syncs("slow").iter().map(Duration::as_secs).collect();
    // As in upstream, a sync is due one period after the end of the previous one.
    assert_eq!(slow, [0, 35, 70, 105, 140]);
}

#[tokio::test(start_paused = true)]
async fn hung_metrics_above_the_limit_per_api_delay_no_other_api() {
    let stage = Fixture::new();
    for index in 0..8 {
        let name = format!("dead-{index}");
        stage.target(&name, 4);
        stage.create(hpa(&name, &[external(&name, "10")]));
        stage.fault(&format!("/{name}"), FaultAction::Silence);
    }
    stage.target("web", 4);
    for index in 0..4 {
        stage.cluster.put_raw(pod("web", index));
    }
    stage.cpu("web", &[75; 4]);
    stage.create(hpa("web", &[cpu(50)]));
    let mut config = one_worker();
    config.controller.max_concurrent_metric_requests_per_api = 4;
    let rig = Harness::with(stage, &config);
    rig.until("the HPA of the other API scales", 2.0, |stage| stage.replicas("web") == 6).await;
    rig.pass(60.0).await;
    assert_eq!(rig.syncs("web").len(), 5);
}

#[tokio::test(start_paused = true)]
async fn custom_metric_is_read_while_the_discovery_of_its_adapter_is_stale() {
    let stage = Fixture::new();
    stage.target("web", 4);
    let described = json!({"apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "front"});
    let item = json!({
        "describedObject": described, "metric": {"name": "hits", "selector": null},
        "timestamp": "2030-01-01T00:00:00Z", "value": "80",
    });
    stage.metrics.set_custom(json!({"hits": {"items": [item]}}));
    let metric = json!({"type": "Object", "object": {
        "describedObject": described, "metric": {"name": "hits"},
        "target": {"type": "AverageValue", "averageValue": "10"},
    }});
    stage.create(hpa("web", &[metric]));
    // The API server lists the group, but cannot read the resources of its versions.
    for version in ["v1beta1", "v1beta2"] {
        let path = format!("/apis/custom.metrics.k8s.io/{version}");
        stage.fault(&path, FaultAction::Text { code: 503, body: "no healthy upstream".to_owned() });
    }
    let rig = Harness::start(stage);
    rig.until("the HPA scales", 2.0, |stage| stage.replicas("web") == 8).await;
    assert_eq!(rig.count("get", "/apis/custom.metrics.k8s.io/v1beta2"), 0);
}

#[tokio::test(start_paused = true)]
async fn broken_response_fails_only_its_metric_and_scales_nothing() {
    let body = |text: &str| FaultAction::Body(text.to_owned());
    let text = |code, body: &str| FaultAction::Text { code, body: body.to_owned() };
    let large = format!(
        r#"{{"kind":"ExternalMetricValueList","apiVersion":"external.metrics.k8s.io/v1beta1","items":[{}]}}"#,
        vec![r#"{"metricName":"m","value":"1"}"#; 200].join(",")
    );
    // Each case has a metric, its broken response, and a part of the error.
    let cases = [
        (
            "absent",
            text(404, "404 page not found"),
            "the server could not find the requested resource (get absent.external.metrics.k8s.io)",
        ),
        (
            "unavailable",
            text(503, "no endpoints available"),
            "the server is currently unable to handle the request (get unavailable.external.metrics.k8s.io)",
        ),
        (
            "failing",
            text(500, "adapter panicked"),
            "an error on the server (\"adapter panicked\") has prevented the request from succeeding \
             (get failing.external.metrics.k8s.io)",
        ),
        ("truncated", FaultAction::Truncate(60), "unexpected EOF"),
        ("half", body(r#"{"kind":"ExternalMetricValueList","items":[{"value":"80"}"#), "unexpected"),
        ("mistaken", body(r#"{"kind":"PodList","apiVersion":"v1","items":[]}"#), "PodList"),
        ("number", body("17"), ""),
        ("html", body("<html>log in</html>"), ""),
        ("nonsense", body(r#"{"items":[{"value":"many"}]}"#), "quantities must match the regular expression"),
        ("large", body(&large), "larger than 4096 bytes"),
        ("closed", FaultAction::Close, "EOF"),
    ];
    let stage = Fixture::growing();
    for (name, action, _) in &cases {
        stage.external(name, "80");
        stage.target(name, 4);
        stage.create(hpa(name, &[external(name, "10")]));
        stage.fault(&format!("/{name}"), action.clone());
    }
    let rig =
        Harness::with(stage, &Config::from(Options { max_metrics_response: 4096, ..Options::default() }));
    rig.until("the HPA with a working metric scales", 2.0, |stage| stage.replicas("web") == 8).await;
    rig.pass(44.0).await;
    for (name, _, part) in &cases {
        let condition = rig.condition(name, "ScalingActive");
        let prefix = format!(
            "False FailedGetExternalMetric the HPA was unable to compute the replica count: unable to get external \
             metric shop/{name}/nil: unable to fetch metrics from external metrics API: "
        );
        let error = condition.strip_prefix(&prefix).unwrap_or_else(|| panic!("{name}: {condition}"));
        assert!(error.contains(part) && !error.is_empty(), "{name}: {error}");
        assert_eq!(rig.replicas(name), 4, "{name}");
        let events = rig.events(name);
        let metric = format!("FailedGetExternalMetric unable to get external metric shop/{name}/nil: ");
        assert!(events.iter().any(|event| event.starts_with(&metric)), "{events:?}");
        let computed = format!(
            "FailedComputeMetricsReplicas invalid metrics (1 invalid out of 1), first error is: failed to get {name} \
             external metric value: "
        );
        assert!(events.iter().any(|event| event.starts_with(&computed)), "{events:?}");
    }
    assert_eq!(rig.syncs("web").len(), 3);
    // A sync with retries takes several seconds, so an HPA may have two syncs in this time.
    assert!(rig.reconciliations("none", "internal") >= 2.0 * 11.0);
}

#[tokio::test(start_paused = true)]
async fn response_of_any_size_within_the_limit_is_used() {
    let stage = Fixture::new();
    let items = vec![r#"{"metricName":"queue","value":"1"}"#; 60_000].join(",");
    let list = format!(r#"{{"kind":"ExternalMetricValueList","items":[{items}]}}"#);
    stage.fault("/queue", FaultAction::Body(list));
    stage.target("web", 4);
    stage.create(hpa("web", &[external("queue", "10k")]));
    let rig = Harness::start(stage);
    rig.until("the sum of all series counts", 2.0, |stage| stage.replicas("web") == 6).await;
}

#[tokio::test(start_paused = true)]
async fn recovered_metrics_api_is_used_in_the_next_period() {
    let stage = Fixture::growing();
    stage.cluster.set_discovery("external.metrics.k8s.io", false);
    let rig = Harness::start(stage);
    rig.pass(40.0).await;
    assert!(rig.condition("web", "ScalingActive").starts_with("False FailedGetExternalMetric"));
    rig.cluster.set_discovery("external.metrics.k8s.io", true);
    rig.until("the metric is read again", 15.1, |stage| stage.replicas("web") == 8).await;
    assert_eq!(
        rig.condition("web", "ScalingActive"),
        "True ValidMetricFound the HPA was able to successfully calculate a replica count from external metric \
         queue(nil)"
    );
}

#[tokio::test(start_paused = true)]
async fn one_failing_metric_of_two_prevents_scale_down_but_not_scale_up() {
    let stage = Fixture::new();
    stage.target("web", 5);
    stage.external("queue", "20");
    stage.fault("/broken", FaultAction::Text { code: 503, body: String::new() });
    stage.create(hpa("web", &[external("broken", "10"), external("queue", "10")]));
    let rig = Harness::start(stage);
    rig.pass(400.0).await;
    assert_eq!(rig.replicas("web"), 5);
    rig.external("queue", "90");
    rig.until("the count rises", 15.1, |stage| stage.replicas("web") == 9).await;
}

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
    // The controller sends one request per metric and minute. The breaker adds one or two attempts per period. Without
    // the breaker, the controller would send 1600 requests.
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
    // If every sync took 30 s, each HPA would be synced every 45 s, which is 16 times in 720 s.
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
