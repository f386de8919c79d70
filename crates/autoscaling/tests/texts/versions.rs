//! The rules in which the versions differ, and the limits of their arithmetic.

use std::sync::Arc;

use autoscaling::history::History;
use autoscaling::pod::{ContainerRequests, Pod, PodRequests, ResourceList};
use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::{Answer, CustomValue};
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::{MetricSource, ResourceTarget, ValueTarget};
use autoscaling::status::MetricIdentifier;
use autoscaling::{Decision, Verdict};

use super::workload::{NOW, Workload, external_metric, external_value, resource_metric, running, usages};

fn milli(value: i64) -> Quantity {
    Quantity::from_milli(value, Format::DecimalSi)
}

fn object_metric(target: ValueTarget) -> MetricSource {
    MetricSource::Object {
        described: serde_json::from_str(r#"{"kind":"Ingress","name":"main"}"#).unwrap(),
        metric: MetricIdentifier { name: "hits".to_owned(), selector: None },
        target,
    }
}

fn object_value(value: i64) -> Answer {
    let object = "main".into();
    Answer::Custom(
        [CustomValue { object, timestamp: Some(NOW), window_seconds: None, value: milli(value) }].into(),
    )
}

fn decided(metric: MetricSource, answer: Answer, version: Version, status_replicas: i32) -> Decision {
    let workload = Workload { status_replicas, ..Workload::new(metric, 1, 100, 3) };
    Workload { settings: Settings::new(version), ..workload }.decide(answer, &History::default(), NOW)
}

#[test]
fn object_metric_with_a_target_per_pod_has_the_name_of_its_kind_since_1_38() {
    let reason = |version, target| {
        let decision = decided(object_metric(target), object_value(9000), version, 3);
        let Verdict::Rescale { reason, .. } = decision.verdict() else { panic!("{:?}", decision.verdict()) };
        reason.clone()
    };
    for version in [Version::V1_36, Version::V1_37] {
        assert_eq!(
            reason(version, ValueTarget::AverageValue(milli(1000))),
            "external metric hits(nil) above target"
        );
    }
    assert_eq!(
        reason(Version::V1_38, ValueTarget::AverageValue(milli(1000))),
        "Ingress metric hits above target"
    );
}

/// The average per pod in the status, for an Object and an External metric.
fn shown_averages(value: i64, version: Version, replicas: i32) -> (i64, i64) {
    let target = ValueTarget::AverageValue(milli(1000));
    let object = decided(object_metric(target), object_value(value), version, replicas);
    let external = decided(external_metric(target), external_value(value), version, replicas);
    let object = &object.metrics()[0].object.as_ref().unwrap().current;
    let external = &external.metrics()[0].external.as_ref().unwrap().current;
    (object.average_value.unwrap().milli_value(), external.average_value.unwrap().milli_value())
}

#[test]
fn average_at_0_replicas_is_0_in_every_version() {
    for version in Version::ALL {
        for value in [1, 1000, i64::MAX - 512, 0, -1, -1000, i64::MIN] {
            assert_eq!(shown_averages(value, version, 0), (0, 0), "{value} in {}", version.name());
        }
        assert_eq!(shown_averages(1001, version, 2), (501, 501));
        assert_eq!(shown_averages(-1001, version, 2), (-500, -500));
        assert_eq!(shown_averages(i64::MIN, version, 2), (i64::MIN / 2, i64::MIN / 2));
    }
}

#[test]
fn saturated_value_is_not_divided_for_external_metrics_and_since_1_38_for_object_metrics() {
    // The float64 of these values is 2^63.
    for value in [i64::MAX, i64::MAX - 511] {
        for (version, replicas, object) in [
            (Version::V1_36, 0, 0),
            (Version::V1_37, 2, 1 << 62),
            (Version::V1_37, 1, i64::MAX),
            (Version::V1_38, 0, i64::MAX),
            (Version::V1_38, 2, i64::MAX),
        ] {
            assert_eq!(shown_averages(value, version, replicas), (object, i64::MAX), "{}", version.name());
        }
    }
    let below = shown_averages(i64::MAX - 512, Version::V1_38, 2);
    assert_eq!(below, ((1 << 62) - 512, (1 << 62) - 512));
}

/// The shown utilization and average, the ratio, and the proposal of a metric with a target of 50 percent.
fn utilization(pods: &[(i64, i64)], version: Version) -> (i32, i64, f64, i32) {
    let name = |at: usize| format!("web-{at}");
    let requests = pods.iter().enumerate().map(|(at, &(_, request))| running(&name(at), "cpu", request));
    let metric = resource_metric("cpu", ResourceTarget::Utilization(50));
    let workload = Workload::new(metric, 1, 100, 3).with_pods(requests.collect());
    let workload = Workload { settings: Settings::new(version), ..workload };
    let usage = pods.iter().enumerate().map(|(at, &(usage, _))| (Arc::from(name(at)), usage));
    let decision = workload.decide(usages("cpu", usage), &History::default(), NOW);
    let current = &decision.metrics()[0].resource.as_ref().unwrap().current;
    let explanation = decision.explanation();
    let ratio = serde_json::to_value(explanation).unwrap()["metrics"][0]["valid"]["ratio"].as_f64().unwrap();
    let average = current.average_value.unwrap().milli_value();
    (current.average_utilization.unwrap(), average, ratio, explanation.proposal.unwrap())
}

#[test]
fn utilization_of_any_size_is_exact_and_clamped() {
    const MAX: i64 = i64::MAX;
    for version in Version::ALL {
        let of = |pods: &[_]| utilization(pods, version);
        assert_eq!(of(&[(MAX, MAX), (MAX, MAX), (MAX, MAX)]), (100, MAX, 2.0, 6));
        assert_eq!(of(&[(MAX, MAX), (MAX, MAX), (0, MAX)]), (66, MAX / 3 * 2, 1.32, 4));
        // The mean of 2^63-1 and -2^63 is -1/2.
        assert_eq!(of(&[(MAX, MAX), (i64::MIN, MAX), (0, MAX)]).1, 0);
        let clamped = f64::from(i32::MAX) / 50.0;
        assert_eq!(of(&[(MAX, 1), (MAX, 1)]), (i32::MAX, MAX, clamped, 85_899_346));
        assert_eq!(of(&[(i64::MIN, 1)]).0, i32::MIN);
        // Percentages and averages are rounded towards 0.
        assert_eq!(of(&[(-1, 2), (-1, 1)]), (-66, -1, -1.32, -2));
        assert_eq!(of(&[(-1, 2), (0, 1)]).1, 0);
    }
}

#[test]
fn missing_request_is_looked_for_in_sidecars_first_since_1_38() {
    let container = |name: &str, restartable, requests: &[(&str, i64)]| ContainerRequests {
        name: name.into(),
        restartable,
        requests: ResourceList::new(requests.iter().map(|&(name, value)| (name.into(), milli(value)))),
    };
    let error = |cpu: &[(&str, i64)], version| {
        let requests = PodRequests {
            containers: Box::new([container("app", false, &[])]),
            init_containers: Box::new([
                container("setup", false, &[]),
                container("proxy", true, cpu),
                container("log", true, &[]),
            ]),
            ..PodRequests::default()
        };
        let pod = Pod { requests: Arc::new(requests), ..running("web-0", "cpu", 1) };
        let metric = resource_metric("cpu", ResourceTarget::Utilization(50));
        let workload = Workload::new(metric, 1, 9, 3).with_pods(vec![pod]);
        let workload = Workload { settings: Settings::new(version), ..workload };
        let answer = usages("cpu", [("web-0".into(), 1)]);
        let decision = workload.decide(answer, &History::default(), NOW);
        let Verdict::NoCount(message) = decision.verdict() else { panic!("{:?}", decision.verdict()) };
        message.rsplit_once(": ").unwrap().1.to_owned()
    };
    let missing = |container: &str| format!("missing request for cpu in container {container} of Pod web-0");
    for version in [Version::V1_36, Version::V1_37] {
        assert_eq!(error(&[], version), missing("app"));
    }
    assert_eq!(error(&[], Version::V1_38), missing("proxy"));
    assert_eq!(error(&[("cpu", 100)], Version::V1_38), missing("log"));
}
