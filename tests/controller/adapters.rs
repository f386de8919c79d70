//! HPAs whose policy names the API group of a metrics adapter.

use std::sync::Arc;
use std::time::Duration;

use engine::reconcile::SourceValue;
use fake_cluster::metrics::StaticMetrics;
use fake_cluster::pages::PageServers;
use fake_cluster::{FaultAction, Status};
use serde_json::json;

use crate::policies::annotated;
use crate::sources::{SourceFile, ages_of_apis, config, pods_metric, readings, stage};
use crate::support::objects::{external, hpa};
use crate::support::{Fixture, Harness};

const GROUP: &str = "external.metrics.example.com";
const FILE: &str = "adapters: [{apiGroup: external.metrics.example.com}]";
const POLICY: &str = "metrics: [{metric: queue, source: {apiGroup: external.metrics.example.com}}]";

/// An adapter with the external metric `queue`, the metric `waiting` of pods, and `depth` of a Service.
fn adapter(queue: &str) -> Arc<StaticMetrics> {
    let adapter = StaticMetrics::new();
    adapter.set_external(json!({"queue": {"items": [{"metricLabels": {}, "value": queue}]}}));
    let pod = |name: &str, value: &str| {
        let described = json!({"kind": "Pod", "name": name, "namespace": "shop", "apiVersion": "v1"});
        json!({"describedObject": described, "metric": {"name": "waiting"}, "value": value})
    };
    let front = json!({"kind": "Service", "name": "front", "namespace": "shop", "apiVersion": "v1"});
    adapter.set_custom(json!({
        "waiting": {"items": [pod("web-0000", "15"), pod("web-0001", "20")]},
        "depth": {"items": [{"describedObject": front, "metric": {"name": "depth"}, "value": "50"}]},
    }));
    Arc::new(adapter)
}

fn with_group(stage: Fixture, queue: &str) -> Fixture {
    // The default API group serves `queue` as well.
    stage.external("queue", "80");
    stage.cluster.set_metrics_group(GROUP, &["v1beta1"], adapter(queue));
    stage
}

fn requests(rig: &Harness, group: &str) -> usize {
    rig.cluster.requests().count(|request| request.path.starts_with(&format!("/apis/{group}/v")))
}

fn sources(file: &str) -> (flags::Config, SourceFile) {
    config(&PageServers::default(), file)
}

#[tokio::test(start_paused = true)]
async fn external_metric_comes_from_the_group_of_the_policy() {
    let (config, _file) = sources(FILE);
    let rig = Harness::with(with_group(stage(external("queue", "10"), POLICY), "30"), &config);
    rig.until("the demand", 2.0, |stage| stage.replicas("web") == 3).await;
    rig.pass(1.0).await;
    let current = &rig.hpa("web")["status"]["currentMetrics"][0]["external"];
    assert_eq!(
        (&current["metric"]["name"], &current["current"]["averageValue"]),
        (&json!("queue"), &json!("15"))
    );
    assert_eq!(requests(&rig, "external.metrics.k8s.io"), 0);
    let reading = &readings(&rig)[0];
    assert_eq!(reading.source, "API group \"external.metrics.example.com\"");
    assert_eq!((reading.numbers, &reading.problem), (1, &None));
    assert_eq!(reading.values, [SourceValue { pod: None, value: 30.0 }]);
    let age = "concertina_metric_age_seconds_count{source=\"external.metrics.example.com\"}";
    assert!(rig.series(age) >= 1.0, "{}", rig.telemetry.render());
    assert_eq!(ages_of_apis(&rig), 0.0);
    let requests =
        "concertina_requests_total{code=\"200\",resource=\"*.external.metrics.example.com\",verb=\"list\"}";
    assert!(rig.series(requests) >= 1.0, "{}", rig.telemetry.render());
}

#[tokio::test(start_paused = true)]
async fn metrics_of_pods_and_objects_come_from_the_group() {
    let (config, _file) = sources(FILE);
    let of_pods = "metrics: [{metric: waiting, source: {apiGroup: external.metrics.example.com}}]";
    let rig = Harness::with(with_group(stage(pods_metric("waiting", "10"), of_pods), "1"), &config);
    rig.until("the demand", 2.0, |stage| stage.replicas("web") == 4).await;
    rig.pass(1.0).await;
    let value = |pod: &str, value| SourceValue { pod: Some(pod.to_owned()), value };
    assert_eq!(readings(&rig)[0].values, [value("web-0000", 15.0), value("web-0001", 20.0)]);

    let object = json!({"type": "Object", "object": {
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "front"},
        "metric": {"name": "depth"}, "target": {"type": "Value", "value": "25"},
    }});
    let policy = "metrics: [{metric: depth, source: {apiGroup: external.metrics.example.com}}]";
    let rig = Harness::with(with_group(stage(object, policy), "1"), &config);
    rig.until("the demand", 2.0, |stage| stage.replicas("web") == 4).await;
    assert_eq!(requests(&rig, "custom.metrics.k8s.io"), 0);
}

async fn condition(stage: Fixture, file: &str) -> (Harness, String) {
    let (config, _file) = sources(file);
    let rig = Harness::with(stage, &config);
    rig.pass(20.0).await;
    assert_eq!(rig.replicas("web"), 2);
    let active = rig.condition("web", "ScalingActive");
    (rig, active)
}

#[tokio::test(start_paused = true)]
async fn group_that_is_not_allowed_is_not_requested() {
    let staged = || with_group(stage(external("queue", "10"), POLICY), "30");
    for (file, label, expected) in [
        (
            "adapters: [{apiGroup: other.example.com}]",
            "unknown",
            "the source file does not list this API group under adapters",
        ),
        (
            "adapters: [{apiGroup: external.metrics.example.com, namespaces: [bank]}]",
            GROUP,
            "the source file does not allow this namespace to use it",
        ),
    ] {
        let (rig, active) = condition(staged(), file).await;
        assert!(active.starts_with("False FailedGetExternalMetric"), "{active}");
        let text =
            format!("unable to fetch metrics from external metrics API: API group \"{GROUP}\": {expected}");
        assert!(active.ends_with(&text), "{active}");
        assert_eq!(requests(&rig, GROUP), 0);
        assert_eq!(readings(&rig)[0].reason.as_deref(), Some("NotAllowed"));
        let failed =
            format!("concertina_metric_source_errors_total{{reason=\"NotAllowed\",source=\"{label}\"}}");
        assert!(rig.series(&failed) >= 1.0, "{}", rig.telemetry.render());
    }
}

#[tokio::test(start_paused = true)]
async fn group_without_an_adapter_fails_its_metric_only() {
    let staged = stage(external("queue", "10"), POLICY);
    staged.external("queue", "80");
    let (rig, active) = condition(staged, FILE).await;
    assert!(
        active.ends_with(
            "API group \"external.metrics.example.com\": the server could not find the requested resource \
             (get queue.external.metrics.example.com)"
        ),
        "{active}"
    );
    assert_eq!(readings(&rig)[0].reason.as_deref(), Some("NotServed"));

    let policy = "metrics: [{metric: waiting, source: {apiGroup: external.metrics.example.com}}]";
    let (_, active) = condition(stage(pods_metric("waiting", "10"), policy), FILE).await;
    assert!(
        active.ends_with(
            "unable to fetch metrics from custom metrics API: API group \"external.metrics.example.com\": \
             no custom metrics API (external.metrics.example.com) registered"
        ),
        "{active}"
    );
}

#[tokio::test(start_paused = true)]
async fn forbidden_group_is_named_in_the_condition() {
    let staged = with_group(stage(external("queue", "10"), POLICY), "30");
    let message = "queue.external.metrics.example.com is forbidden: no role";
    let forbidden = Status::new(403, "Forbidden", message.to_owned());
    staged.fault("/namespaces/shop/queue", FaultAction::Status(forbidden));
    let (rig, active) = condition(staged, FILE).await;
    assert!(active.contains("API group \"external.metrics.example.com\": "), "{active}");
    assert_eq!(readings(&rig)[0].reason.as_deref(), Some("Forbidden"), "{active}");
}

#[tokio::test(start_paused = true)]
async fn adapter_that_hangs_delays_no_hpa_of_another_group() {
    let (mut config, _file) =
        sources("adapters: [{apiGroup: external.metrics.example.com}, {apiGroup: other.example.com}]");
    config.controller.metrics_timeout = Duration::from_secs(12);
    let staged = Fixture::new();
    let other = "metrics: [{metric: queue, source: {apiGroup: other.example.com}}]";
    let policies =
        (0..20).map(|_| Some(POLICY)).chain((0..5).map(|_| Some(other))).chain((0..5).map(|_| None));
    for (index, policy) in policies.enumerate() {
        let name = format!("web-{index}");
        staged.target(&name, 2);
        let object = hpa(&name, &[external("queue", "10")]);
        staged.create(match policy {
            Some(policy) => annotated(object, policy),
            None => object,
        });
    }
    staged.cluster.set_metrics_group("other.example.com", &["v1beta1"], adapter("40"));
    let staged = with_group(staged, "30");
    staged.external("queue", "30");
    let hung =
        staged.fault("/external.metrics.example.com/v1beta1/namespaces/shop/queue", FaultAction::Silence);
    let rig = Harness::with(staged, &config);
    let answered = |stage: &Fixture, from: usize, to: usize, count: i64| {
        (from..to).all(|index| stage.replicas(&format!("web-{index}")) == count)
    };
    rig.pass(8.0).await;
    let counts: Vec<i64> = (0..30).map(|index| rig.replicas(&format!("web-{index}"))).collect();
    assert_eq!(counts, [&[2; 20][..], &[4; 5], &[3; 5]].concat());
    rig.pass(150.0).await;
    let down = |group: &str| format!("concertina_metric_source_down{{source=\"{group}\"}}");
    assert_eq!((rig.series(&down(GROUP)), rig.series(&down("other.example.com"))), (1.0, 0.0));
    assert_eq!(rig.series("concertina_metrics_api_down{api=\"external.metrics.k8s.io\"}"), 0.0);
    assert!(answered(&rig, 0, 20, 2));
    rig.cluster.faults().remove(hung);
    rig.until("the recovery", 31.0, |stage| answered(stage, 0, 20, 3)).await;
    rig.pass(2.0).await;
    assert_eq!(rig.series(&down(GROUP)), 0.0);
}

#[tokio::test(start_paused = true)]
async fn group_is_added_and_removed_while_the_controller_runs() {
    let (config, file) = sources("pods: {enabled: true}");
    let rig = Harness::with(with_group(stage(external("queue", "10"), POLICY), "30"), &config);
    rig.pass(20.0).await;
    assert_eq!(rig.replicas("web"), 2);
    std::fs::write(file.path(), FILE).unwrap();
    rig.until("the demand", 21.0, |stage| stage.replicas("web") == 3).await;
    let down = format!("concertina_metric_source_down{{source=\"{GROUP}\"}}");
    assert!(rig.telemetry.render().contains(&down));
    std::fs::write(file.path(), "").unwrap();
    rig.pass(21.0).await;
    assert!(!rig.telemetry.render().contains(&down));
    assert!(rig.condition("web", "ScalingActive").ends_with("does not list this API group under adapters"));
}

#[tokio::test(start_paused = true)]
async fn short_sync_period_gets_a_new_answer_of_a_group_each_time() {
    let (config, _file) = sources(FILE);
    let policy = format!("syncPeriodSeconds: 1\n{POLICY}");
    let rig = Harness::with(with_group(stage(external("queue", "10"), &policy), "30"), &config);
    rig.pass(10.0).await;
    let (syncs_before, requests_before) = (rig.syncs("web").len(), requests(&rig, GROUP));
    rig.pass(12.0).await;
    let (syncs, requests) = (rig.syncs("web").len() - syncs_before, requests(&rig, GROUP) - requests_before);
    assert!(syncs >= 11, "{syncs}");
    assert!(requests.abs_diff(syncs) <= 1, "{requests} requests for {syncs} syncs");
}

#[tokio::test(start_paused = true)]
async fn number_of_a_group_that_is_too_old_is_an_error() {
    let policy =
        "metrics: [{metric: queue, maxAgeSeconds: 60, source: {apiGroup: external.metrics.example.com}}]";
    let staged = with_group(stage(external("queue", "10"), policy), "30");
    let old = StaticMetrics::new();
    let item = json!({"metricLabels": {}, "timestamp": "2020-01-01T00:00:00Z", "value": "30"});
    old.set_external(json!({"queue": {"items": [item]}}));
    staged.cluster.set_metrics_group(GROUP, &["v1beta1"], Arc::new(old));
    let (rig, active) = condition(staged, FILE).await;
    assert!(active.ends_with("s old, at most 60 s are allowed"), "{active}");
    assert_eq!(readings(&rig)[0].reason.as_deref(), Some("TooOld"));
}
