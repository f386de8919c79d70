//! Objects and responses at the limits of the API server. Each gives its HPA a clear condition and delays no
//! other HPA.

use std::time::Duration;

use fake_cluster::{FaultAction, FaultRule, Status};
use serde_json::{Value, json};

use crate::support::objects::{cpu, external, hpa, pod};
use crate::support::{Fixture, Harness, logs};

/// An escape sequence that clears a terminal, a C1 control character, two bidirectional marks, markup, and a forged log
/// line.
const EVIL: &str = "\u{1b}[2J\u{9b}\u{202e}\u{2066}<script>alert(1)</script>\r\n2030 ERROR forged";

/// Approximate maximum size of an object in etcd, in bytes.
const LARGEST_OBJECT: usize = 1_500_000;

/// A cluster with the HPA `calm`, whose demand keeps its count of 4.
fn with_calm() -> Fixture {
    let stage = Fixture::new();
    stage.external("queue", "40");
    stage.target("calm", 4);
    stage.create(hpa("calm", &[external("queue", "10")]));
    stage
}

/// Asserts that `calm` was synced at the start and then once a period, is active, and still has 4 replicas. Each sync
/// takes up to half a second, so `periods` periods may contain one sync less.
fn assert_calm(rig: &Harness, periods: usize) {
    let syncs = rig.syncs("calm");
    assert!((periods..=periods + 1).contains(&syncs.len()), "{syncs:.2?}");
    for pair in syncs.windows(2) {
        let gap = pair[1].checked_sub(pair[0]).map(|gap| gap.as_secs_f64());
        assert!(gap.is_some_and(|gap| (14.5..16.5).contains(&gap)), "{syncs:.2?}");
    }
    assert!(rig.condition("calm", "ScalingActive").starts_with("True ValidMetricFound"));
    assert_eq!(rig.replicas("calm"), 4);
}

/// Asserts that no log line contains a raw control character or bidirectional mark, and that no log line is forged.
fn assert_no_raw_characters_in_logs() {
    let raw = |line: &&String| line.chars().any(|one| one.is_control() || "\u{202e}\u{2066}".contains(one));
    let lines = logs::with("");
    assert_eq!(lines.iter().find(raw), None);
    assert!(!lines.iter().any(|line| line.starts_with("2030 ERROR")), "{lines:#?}");
}

fn object_metric(kind: &str, name: &str, metric: &str) -> Value {
    json!({"type": "Object", "object": {
        "metric": {"name": metric}, "target": {"type": "Value", "value": "10"},
        "describedObject": {"apiVersion": "v1", "kind": kind, "name": name},
    }})
}

fn pods_metric(metric: &str) -> Value {
    json!({"type": "Pods", "pods": {
        "metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": "10"},
    }})
}

#[tokio::test(start_paused = true)]
async fn evil_names_give_a_condition_with_the_whole_name() {
    let stage = with_calm();
    // Names in paths contain neither a slash nor a percent sign.
    let evil = EVIL.replace('/', "");
    let long = format!("{evil}{}", "x".repeat(32 << 10));
    let metrics = [
        ("external", external(&long, "10"), "FailedGetExternalMetric"),
        ("pods", pods_metric(&long), "FailedGetPodsMetric"),
        ("object", object_metric("Service", &evil, &long), "FailedGetObjectMetric"),
        ("described", object_metric(&evil, "main", "hits"), "FailedGetObjectMetric"),
    ];
    for (name, metric, _) in &metrics {
        stage.target(name, 4);
        stage.create(hpa(name, std::slice::from_ref(metric)));
    }
    let targets = [("kind", json!({"kind": &evil})), ("name", json!({"name": &evil}))];
    for (name, change) in &targets {
        let mut object = hpa(name, &[external("queue", "10")]);
        let target = object["spec"]["scaleTargetRef"].as_object_mut().unwrap();
        target.extend(change.as_object().unwrap().clone());
        stage.create(object);
    }
    let rig = Harness::start(stage);
    rig.pass(61.0).await;
    for (name, _, reason) in &metrics {
        let condition = rig.condition(name, "ScalingActive");
        assert!(
            condition.starts_with(&format!("False {reason} the HPA was unable to compute")),
            "{condition:?}"
        );
        assert!(condition.contains("forged"), "{condition:?}");
        assert_eq!(rig.replicas(name), 4);
    }
    for (name, _) in &targets {
        let condition = rig.condition(name, "AbleToScale");
        assert!(
            condition.starts_with("False FailedGetScale ") && condition.contains("forged"),
            "{condition:?}"
        );
        assert!(!rig.events(name).is_empty());
    }
    assert_calm(&rig, 4);
    assert_no_raw_characters_in_logs();
}

#[tokio::test(start_paused = true)]
async fn hpa_as_large_as_the_api_server_allows_gets_a_condition() {
    let stage = with_calm();
    stage.target("large", 4);
    let values: Vec<_> = (0..60).map(|index| format!("{index:02}-{}", "v".repeat(60))).collect();
    let metric = |index: usize| {
        let mut metric = external(&format!("absent-{index}-{}", "m".repeat(200)), "10");
        metric["external"]["metric"]["selector"] =
            json!({"matchExpressions": [{"key": "k".repeat(63), "operator": "In", "values": values}]});
        metric
    };
    let metrics: Vec<_> = (0..275).map(metric).collect();
    let mut object = hpa("large", &metrics);
    object["metadata"]["annotations"] = json!({ "note": "\u{202e}<b>".repeat(40_000) });
    let size = object.to_string().len();
    assert!((LARGEST_OBJECT - 100_000..LARGEST_OBJECT).contains(&size), "{size} bytes");
    stage.create(object);
    let rig = Harness::start(stage);
    rig.pass(61.0).await;
    let condition = rig.condition("large", "ScalingActive");
    assert_eq!(condition, "False TooManyMetrics the spec has more than 1000 metrics or 262144 bytes");
    assert_eq!(rig.hpa("large")["spec"]["metrics"].as_array().map(Vec::len), Some(275));
    assert_eq!(rig.hpa("large")["metadata"]["annotations"]["note"].as_str().map(str::len), Some(240_000));
    assert_calm(&rig, 4);
}

#[tokio::test(start_paused = true)]
async fn hundred_hpas_on_one_target_all_report_the_ambiguity() {
    let stage = with_calm();
    stage.target("web", 4);
    for index in 0..4 {
        stage.cluster.put_raw(pod("web", index));
    }
    stage.cpu("web", &[90; 4]);
    let names: Vec<_> = (0..100).map(|index| format!("web-{index:02}")).collect();
    for name in &names {
        let mut object = hpa(name, &[cpu(50)]);
        object["spec"]["scaleTargetRef"]["name"] = json!("web");
        stage.create(object);
    }
    let rig = Harness::start(stage);
    rig.pass(61.0).await;
    for name in &names {
        assert_eq!(
            rig.condition(name, "ScalingActive"),
            "False AmbiguousSelector pods by selector app=web are controlled by more than one HPA \
             (e.g. [shop/web-00 shop/web-01])"
        );
    }
    // The first HPA can scale before the others have registered their selectors.
    assert!([4, 8].contains(&rig.replicas("web")), "{}", rig.replicas("web"));
    assert_calm(&rig, 4);
}

/// Stores a target whose Scale has the given selector.
fn target_with_selector(stage: &Fixture, name: &str, selector: &str) {
    stage.target(name, 4);
    let body = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": "1"},
        "spec": {"replicas": 4}, "status": {"replicas": 4, "selector": selector},
    });
    let read = FaultRule::new(FaultAction::Body(body.to_string())).verb("get");
    stage.cluster.faults().add(read.path_suffix(&format!("/{name}/scale")));
}

#[tokio::test(start_paused = true)]
async fn selector_of_60_kib_selects_or_gives_a_condition() {
    let stage = with_calm();
    let selector = |app: &str, count: usize| {
        let values: Vec<_> = (0..count).map(|index| format!("{index:04}-{}", "v".repeat(58))).collect();
        format!("app in ({app},{})", values.join(","))
    };
    target_with_selector(&stage, "valid", &selector("web", 980));
    target_with_selector(&stage, "longest", &selector("api", 1_000));
    target_with_selector(&stage, "invalid", &format!("app in ({EVIL}{}", "(".repeat(60 << 10)));
    for index in 0..4 {
        stage.cluster.put_raw(pod("web", index));
    }
    stage.cpu("web", &[50; 4]);
    for name in ["valid", "longest", "invalid"] {
        stage.create(hpa(name, &[cpu(50)]));
    }
    let rig = Harness::start(stage);
    rig.pass(61.0).await;
    let condition = rig.condition("valid", "ScalingActive");
    assert!(condition.starts_with("True ValidMetricFound"), "{condition:.300}");
    // A comma takes three bytes in a URL.
    let condition = rig.condition("longest", "ScalingActive");
    assert!(
        condition.starts_with("False FailedGetResourceMetric")
            && condition.contains("the URL has 66")
            && condition.ends_with("at most 65534 can be sent: a name or selector is too long"),
        "{condition:.600}"
    );
    let condition = rig.condition("invalid", "AbleToScale");
    assert!(
        condition.starts_with("False FailedGetScale ")
            && condition.contains("failed to parse target selector"),
        "{condition:.600}"
    );
    assert_calm(&rig, 4);
    assert_no_raw_characters_in_logs();
}

#[tokio::test(start_paused = true)]
async fn scale_of_100_mib_fails_to_be_read() {
    let stage = with_calm();
    stage.target("huge", 4);
    stage.create(hpa("huge", &[external("queue", "10")]));
    stage.fault("/huge/scale", FaultAction::Body(format!("{{\"kind\":\"{}", "x".repeat(100 << 20))));
    let rig = Harness::start(stage);
    rig.pass(61.0).await;
    assert_eq!(
        rig.condition("huge", "AbleToScale"),
        "False FailedGetScale the HPA controller was unable to get the target's current scale: the response is \
         larger than 4194304 bytes"
    );
    assert!(!rig.events("huge").is_empty());
    assert_calm(&rig, 4);
}

#[tokio::test(start_paused = true)]
async fn errors_of_16_kib_for_a_thousand_metrics_delay_no_other_hpa() {
    let stage = with_calm();
    stage.target("broken", 4);
    let error = Status::new(500, "InternalError", EVIL.repeat((16 << 10) / EVIL.len()));
    let broken = FaultRule::new(FaultAction::Status(error)).path_contains("/broken-");
    stage.cluster.faults().add(broken);
    let metrics: Vec<_> = (0..1_000).map(|index| external(&format!("broken-{index}"), "10")).collect();
    stage.create(hpa("broken", &metrics));
    let rig = Harness::start(stage);
    // The controller sends at most 20 queries per second to a metrics API.
    rig.pass(301.0).await;
    let condition = rig.condition("broken", "ScalingActive");
    let start = "False FailedGetExternalMetric the HPA was unable to compute the replica count: invalid metrics \
                 (1000 invalid out of 1000)";
    assert!(
        condition.starts_with(start) || condition.contains("unable to get external metric shop/broken-0/"),
        "{condition:.500}"
    );
    assert!(condition.len() < 64 << 10, "{} bytes", condition.len());
    let first = rig.times(|request| request.path.ends_with("/broken-0"));
    assert!(first.first().is_some_and(|at| *at < Duration::from_secs(15)), "{first:?}");
    assert_eq!(rig.replicas("broken"), 4);
    assert_calm(&rig, 20);
    assert_no_raw_characters_in_logs();
}
