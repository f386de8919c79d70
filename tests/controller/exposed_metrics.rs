//! The series of `/metrics` after requests, syncs and failures.

use std::collections::BTreeMap;
use std::time::Duration;

use controller::options::Options;
use fake_cluster::{FaultAction, FaultRule, Status};
use flags::Config;
use serde_json::json;

use crate::checkpoint::plain;
use crate::support::objects::{cpu, external, hpa, pod};
use crate::support::{Fixture, Harness, Process};

const LATENESS: &str = "concertina_sync_lateness_seconds";

/// Two HPAs: `queue` on an external metric, and `web` on the cpu of four pods.
fn two() -> Fixture {
    let stage = Fixture::new();
    stage.external("queue", "80");
    stage.target("queue", 8);
    stage.create(hpa("queue", &[external("queue", "10")]));
    stage.target("web", 4);
    for index in 0..4 {
        stage.cluster.put_raw(pod("web", index));
    }
    stage.cpu("web", &[50; 4]);
    stage.create(hpa("web", &[cpu(50)]));
    stage
}

fn failures(rig: &Harness, reason: &str) -> f64 {
    rig.series(&format!("concertina_sync_failures_total{{reason=\"{reason}\"}}"))
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_rbac_resource_without_metric_names() {
    let rig = Harness::start(two());
    rig.pass(31.0).await;
    let text = rig.telemetry.render();
    let counters = text.lines().filter_map(|line| line.strip_prefix("concertina_requests_total"));
    let counters: BTreeMap<_, _> = counters.map(|line| line.rsplit_once(' ').unwrap()).collect();
    let expected = [
        ("get", "deployments/scale", "6"),
        ("list", "*.external.metrics.k8s.io", "3"),
        ("list", "pods.metrics.k8s.io", "3"),
        ("update", "horizontalpodautoscalers.autoscaling/status", "2"),
        ("watch", "deployments.apps", "1"),
        ("watch", "pods", "1"),
        ("watch", "horizontalpodautoscalers.autoscaling", "1"),
    ];
    for (verb, resource, count) in expected {
        let labels = format!("{{code=\"200\",resource=\"{resource}\",verb=\"{verb}\"}}");
        assert_eq!(counters.get(&*labels), Some(&count), "{labels} in {counters:#?}");
    }
    assert!(!counters.keys().any(|labels| labels.contains("queue")), "{counters:#?}");
    // The durations of watches are not observed.
    let durations = "rest_client_request_duration_seconds_count{host=\"embedded\",verb=\"GET\"}";
    let gets = "rest_client_requests_total{code=\"200\",host=\"embedded\",method=\"GET\"}";
    assert_eq!(rig.series(gets), rig.series(durations) + 3.0, "{text}");
}

#[tokio::test(start_paused = true)]
async fn retried_request_counts_every_attempt_and_one_duration() {
    let stage = two();
    let throttled = FaultAction::RetryAfter { code: 429, seconds: 1 };
    stage.cluster.faults().add(FaultRule::new(throttled).verb("get").path_suffix("/queue/scale").times(2));
    let rig = Harness::start(stage);
    rig.pass(10.0).await;
    let count = |code| {
        rig.series(&format!(
            "concertina_requests_total{{code=\"{code}\",resource=\"deployments/scale\",verb=\"get\"}}"
        ))
    };
    assert_eq!((count("429"), count("200")), (2.0, 2.0));
    let long = "rest_client_request_duration_seconds_bucket{host=\"embedded\",verb=\"GET\",le=\"1\"}";
    let all = "rest_client_request_duration_seconds_count{host=\"embedded\",verb=\"GET\"}";
    assert_eq!(rig.series(all) - rig.series(long), 1.0, "the request that was throttled twice");
}

#[tokio::test(start_paused = true)]
async fn cache_and_watch_gauges_show_current_values() {
    let rig = Harness::start(two());
    rig.pass(5.0).await;
    assert_eq!(rig.series("concertina_cache_objects{resource=\"pods\"}"), 4.0);
    assert_eq!(
        rig.series("concertina_cache_objects{resource=\"horizontalpodautoscalers.autoscaling\"}"),
        2.0
    );
    assert_eq!(rig.series("concertina_watch_age_seconds{resource=\"pods\"}"), 5.0);

    rig.cluster.faults().add(FaultRule::new(FaultAction::Close).path_suffix("/pods"));
    rig.cluster.faults().add(FaultRule::new(FaultAction::WatchClose).path_suffix("/pods"));
    rig.pass(100.0).await;
    let restarts = |reason| {
        rig.series(&format!("concertina_watch_restarts_total{{reason=\"{reason}\",resource=\"pods\"}}"))
    };
    assert_eq!(restarts("ended"), 1.0);
    assert!((10.0..60.0).contains(&restarts("unreachable")), "{}", restarts("unreachable"));
    assert_eq!(rig.series("concertina_watch_age_seconds{resource=\"pods\"}"), 105.0);
    let hpas = rig.series("concertina_watch_age_seconds{resource=\"horizontalpodautoscalers.autoscaling\"}");
    assert!(hpas < 75.0, "{hpas}");
}

#[tokio::test(start_paused = true)]
async fn hpa_at_its_maximum_and_hpa_without_metrics_have_series() {
    let rig = Harness::start(two());
    let states = || {
        let text = rig.telemetry.render();
        let lines = text.lines().filter_map(|line| line.strip_prefix("concertina_hpa_"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    rig.pass(16.0).await;
    assert_eq!(states(), Vec::<String>::new());
    // The metric of `queue` requests 8. Later, the metrics API of `web` fails.
    rig.edit("queue", |hpa| hpa["spec"]["maxReplicas"] = json!(5));
    rig.pass(31.0).await;
    assert_eq!(states(), ["at_maximum{hpa_name=\"queue\",namespace=\"shop\"} 1"]);
    let fault = FaultAction::Text { code: 503, body: String::new() };
    rig.cluster.faults().add(FaultRule::new(fault).path_prefix("/apis/metrics.k8s.io"));
    rig.pass(31.0).await;
    assert_eq!(
        states(),
        [
            "at_maximum{hpa_name=\"queue\",namespace=\"shop\"} 1",
            "not_active{hpa_name=\"web\",namespace=\"shop\"} 1"
        ]
    );
    rig.edit("queue", |hpa| hpa["spec"]["maxReplicas"] = json!(10));
    rig.cluster.delete("autoscaling/horizontalpodautoscalers", "shop", "web").unwrap();
    rig.pass(31.0).await;
    assert_eq!(states(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn age_of_the_oldest_sample_is_observed_per_response() {
    let rig = Harness::start(two());
    rig.pass(31.0).await;
    for api in ["metrics.k8s.io", "external.metrics.k8s.io"] {
        assert_eq!(
            rig.series(&format!("concertina_metrics_age_seconds_count{{api=\"{api}\"}}")),
            3.0,
            "{api}"
        );
    }
    assert_eq!(rig.series("concertina_metrics_age_seconds_count{api=\"custom.metrics.k8s.io\"}"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn sync_failures_are_counted_by_the_reason_of_the_condition() {
    let stage = two();
    stage.create(hpa("lost", &[cpu(50)]));
    stage.create(hpa("blind", &[external("missing", "1"), external("absent", "1")]));
    stage.target("blind", 2);
    let rig = Harness::start(stage);
    rig.pass(5.0).await;
    assert!(rig.condition("lost", "AbleToScale").starts_with("False FailedGetScale "));
    assert_eq!((failures(&rig, "FailedGetScale"), failures(&rig, "FailedGetExternalMetric")), (1.0, 2.0));
    assert_eq!(failures(&rig, "FailedComputeMetricsReplicas"), 0.0);

    rig.edit("queue", |hpa| hpa["spec"]["minReplicas"] = json!(9));
    rig.cluster.faults().add(
        FaultRule::new(FaultAction::Status(Status::bad_request("no")))
            .verb("update")
            .path_suffix("/queue/scale"),
    );
    rig.pass(1.0).await;
    assert_eq!(failures(&rig, "FailedUpdateScale"), 1.0);
    // The write of 9 failed, so the series shows the last count that was decided and written.
    let desired = |name| {
        rig.series(&format!(
            "horizontal_pod_autoscaler_controller_desired_replicas{{hpa_name=\"{name}\",namespace=\"shop\"}}"
        ))
    };
    assert_eq!((desired("queue"), desired("web")), (8.0, 4.0));
    assert!(!rig.telemetry.render().contains("desired_replicas{hpa_name=\"blind\""));
}

#[tokio::test(start_paused = true)]
async fn failed_status_write_is_the_result_of_a_sync_with_a_count() {
    let stage = two();
    stage.cluster.faults().add(
        FaultRule::new(FaultAction::Status(Status::bad_request("no")))
            .verb("update")
            .path_suffix("/queue/status"),
    );
    let rig = Harness::start(stage);
    rig.pass(5.0).await;
    assert_eq!((rig.reconciliations("none", "none"), rig.reconciliations("none", "internal")), (1.0, 1.0));
}

#[tokio::test(start_paused = true)]
async fn metric_without_a_query_counts_as_computed() {
    let stage = two();
    let source = json!({"type": "Object", "object": {"metric": {"name": "hits"},
        "describedObject": {"kind": "Service", "name": "web"}, "target": {"type": "Value", "averageValue": "5"}}});
    stage.create(hpa("odd", &[source]));
    stage.target("odd", 2);
    let rig = Harness::start(stage);
    rig.pass(5.0).await;
    let labels = "{action=\"none\",error=\"internal\",metric_type=\"Object\"}";
    let name = "horizontal_pod_autoscaler_controller_metric_computation_total";
    assert_eq!(rig.series(&format!("{name}{labels}")), 1.0);
}

#[tokio::test(start_paused = true)]
async fn sync_that_waits_for_a_worker_counts_as_late() {
    let stage = two();
    stage.fault("/queue/scale", FaultAction::DelayAnswer(Duration::from_secs(4)));
    stage.fault("/web/scale", FaultAction::DelayAnswer(Duration::from_secs(4)));
    let rig = Harness::with(stage, &Config::from(Options { concurrent_syncs: 1, ..Options::default() }));
    rig.pass(10.0).await;
    let up_to = |bound| rig.series(&format!("{LATENESS}_bucket{{le=\"{bound}\"}}"));
    assert_eq!((up_to("0.05"), up_to("2.5"), up_to("5")), (1.0, 1.0, 2.0));
}

#[tokio::test(start_paused = true)]
async fn time_as_a_standby_makes_no_sync_late() {
    let stage = two();
    let leader = Process::start(&stage, "a", plain());
    stage.pass(5.0).await;
    let standby = Process::start(&stage, "b", plain());
    stage.pass(600.0).await;
    assert!(!standby.telemetry.render().contains("desired_replicas"));
    leader.end().await;
    stage.pass(5.0).await;
    let text = standby.telemetry.render();
    assert!(text.contains("desired_replicas{hpa_name=\"queue\",namespace=\"shop\"} 8\n"), "{text}");
    assert!(text.contains(&format!("{LATENESS}_count 2\n")), "{text}");
    assert!(text.contains(&format!("{LATENESS}_bucket{{le=\"0.05\"}} 2\n")), "{text}");
    standby.end().await;
}
