//! Labels, names, sentences, and the error texts of an invalid HPA.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "texts/invalid_input.rs"]
mod invalid_input;
#[path = "texts/sentences.rs"]
mod sentences;
#[path = "texts/versions.rs"]
mod versions;
#[allow(dead_code, reason = "shared with the proofs")]
#[path = "exhaustive/workload.rs"]
mod workload;

use autoscaling::event::EventKind;
use autoscaling::explanation::{Assumed, PodGroup};
use autoscaling::pod::{LabelSet, Phase, ResourceList};
use autoscaling::query::{Api, Query};
use autoscaling::spec::{MetricSource, Spec};
use autoscaling::status::Status;
use autoscaling::{Action, ErrorLabel};

#[test]
fn labels_equal_those_of_upstream() {
    assert_eq!(
        [Action::ScaleUp, Action::ScaleDown, Action::None].map(Action::as_str),
        ["scale_up", "scale_down", "none"]
    );
    assert_eq!(
        [ErrorLabel::Spec, ErrorLabel::Internal, ErrorLabel::None].map(ErrorLabel::as_str),
        ["spec", "internal", "none"]
    );
    assert_eq!([EventKind::Normal, EventKind::Warning].map(EventKind::as_str), ["Normal", "Warning"]);
}

#[test]
fn query_goes_to_the_api_of_its_kind() {
    let text = || "a".into();
    let resource = Query::Resource { namespace: text(), selector: text() };
    let pods = Query::Pods { namespace: text(), metric: text(), selector: text(), metric_selector: text() };
    let external = Query::External { namespace: text(), metric: text(), selector: text() };
    let object = Query::Object {
        namespace: text(),
        group: text(),
        kind: text(),
        name: text(),
        metric: text(),
        metric_selector: text(),
    };
    assert_eq!(
        [resource, pods, object, external].map(|query| query.api()),
        [Api::Resource, Api::Custom, Api::Custom, Api::External]
    );
}

#[test]
fn unknown_phase_text_parses_as_unknown() {
    assert_eq!(
        ["Pending", "Running", "Succeeded", "Failed", "Unknown", "", "running"].map(Phase::parse),
        [
            Phase::Pending,
            Phase::Running,
            Phase::Succeeded,
            Phase::Failed,
            Phase::Unknown,
            Phase::Unknown,
            Phase::Unknown
        ]
    );
}

#[test]
fn labels_are_sorted_by_key_and_the_last_duplicate_wins() {
    let labels =
        LabelSet::new([("b", "1"), ("a", "2"), ("b", "3")].map(|(key, value)| (key.into(), value.into())));
    assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "3")]);
}

#[test]
fn last_of_two_amounts_for_one_resource_wins() {
    let amount = |text: &str| text.parse().unwrap();
    let list = ResourceList::new([
        ("memory".into(), amount("1Gi")),
        ("cpu".into(), amount("1")),
        ("cpu".into(), amount("2")),
    ]);
    assert!(!list.is_empty());
    assert!(ResourceList::new([]).is_empty());
    assert_eq!(list.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["cpu", "memory"]);
    assert_eq!((list.get("cpu"), list.get("disk")), (Some(amount("2")), None));
}

#[test]
fn pod_group_is_ready_missing_unready_or_ignored() {
    use PodGroup::{
        IgnoredFailed, IgnoredSucceeded, IgnoredTerminating, Missing, Ready, UnreadyInitializing,
        UnreadyNeverReady, UnreadyNoCondition, UnreadyNotStarted, UnreadyPending, UnreadySampleTooOld,
    };
    for ignored in [IgnoredFailed, IgnoredSucceeded, IgnoredTerminating] {
        assert!(ignored.is_ignored() && !ignored.is_unready(), "{ignored:?}");
    }
    for unready in [
        UnreadyInitializing,
        UnreadyNeverReady,
        UnreadyNoCondition,
        UnreadyNotStarted,
        UnreadyPending,
        UnreadySampleTooOld,
    ] {
        assert!(unready.is_unready() && !unready.is_ignored(), "{unready:?}");
    }
    for neither in [Missing, Ready] {
        assert!(!neither.is_unready() && !neither.is_ignored(), "{neither:?}");
    }
    assert_eq!(
        serde_json::to_value([Assumed::Target, Assumed::Zero]).unwrap().to_string(),
        r#"["target","zero"]"#
    );
}

#[test]
fn status_is_serialized_as_in_upstream() {
    let empty = serde_json::to_string(&Status::default()).unwrap();
    assert_eq!(empty, r#"{"desiredReplicas":0,"currentMetrics":null}"#);
    let some = r#"{"currentReplicas":2,"desiredReplicas":3,"currentMetrics":[{"type":""}]}"#;
    let status: Status = serde_json::from_str(some).unwrap();
    assert_eq!(serde_json::to_string(&status).unwrap(), some);
    let nulls: Status = serde_json::from_str(r#"{"currentMetrics":null,"conditions":null}"#).unwrap();
    assert_eq!(nulls, Status::default());
}

/// The metric sources of a spec with the metrics in `json`.
fn metrics(json: &str) -> Vec<MetricSource> {
    let spec: Spec = serde_json::from_str(&format!(r#"{{"maxReplicas":3,"metrics":{json}}}"#)).unwrap();
    spec.metrics.to_vec()
}

#[test]
fn metric_has_a_type_and_a_short_name() {
    let sources = metrics(
        r#"[
        {"type":"Resource","resource":{"name":"cpu","target":{"averageUtilization":80}}},
        {"type":"ContainerResource","containerResource":{"name":"cpu","container":"app","target":{"averageUtilization":80}}},
        {"type":"Pods","pods":{"metric":{"name":"requests"},"target":{"averageValue":"10"}}},
        {"type":"Object","object":{"metric":{"name":"hits"},"describedObject":{"kind":"Ingress","name":"main"},"target":{"type":"Value","value":"10"}}},
        {"type":"Object","object":{"metric":{"name":"hits"},"describedObject":{"kind":"Namespace","name":"default"},"target":{"type":"Value","value":"10"}}},
        {"type":"Object","object":{"metric":{"name":"hits"},"describedObject":{"apiVersion":"example.com/v1","kind":"Namespace","name":"default"},"target":{"type":"Value","value":"10"}}},
        {"type":"External","external":{"metric":{"name":"queue"},"target":{"value":"10"}}},
        {"type":"Resourse"}
    ]"#,
    );
    let kinds: Vec<&str> = sources.iter().map(MetricSource::kind).collect();
    assert_eq!(
        kinds,
        ["Resource", "ContainerResource", "Pods", "Object", "Object", "Object", "External", "Resourse"]
    );
    let subjects: Vec<String> = sources.iter().map(|source| source.subject("shop").to_string()).collect();
    assert_eq!(
        subjects,
        [
            "cpu",
            "cpu of container app",
            "requests",
            "hits of Ingress/main",
            // The API returns the value of the HPA's own namespace.
            "hits of Namespace/shop",
            "hits of Namespace/default",
            "queue",
            "a metric of type \"Resourse\""
        ]
    );
}

#[test]
fn invalid_metric_names_the_missing_field() {
    let errors: Vec<(&str, String, String)> = metrics(
        r#"[
        {"type":"Resource"},
        {"type":"ContainerResource"},
        {"type":"Pods"},
        {"type":"Object"},
        {"type":"External"},
        {"type":"Resource","resource":{"name":"cpu"}},
        {"type":"ContainerResource","containerResource":{"name":"cpu","container":"app"}},
        {"type":"Pods","pods":{"metric":{"name":"requests"}}},
        {"type":"Object","object":{"metric":{"name":"hits"},"target":{"type":"Value","averageValue":"1"}}},
        {"type":"External","external":{"metric":{"name":"queue"}}},
        {"type":"Resourse"}
    ]"#,
    )
    .into_iter()
    .map(|source| match source {
        MetricSource::Invalid(invalid) => (invalid.reason, invalid.prefix, invalid.message),
        valid => panic!("{valid:?} is considered valid"),
    })
    .collect();
    let expected = [
        (
            "FailedGetResourceMetric",
            "failed to get Resource resource metric value: ",
            "invalid Resource metric source: the field resource is missing",
        ),
        (
            "FailedGetContainerResourceMetric",
            "failed to get ContainerResource container metric value: ",
            "invalid ContainerResource metric source: the field containerResource is missing",
        ),
        (
            "FailedGetPodsMetric",
            "failed to get pods metric value: ",
            "invalid Pods metric source: the field pods is missing",
        ),
        (
            "FailedGetObjectMetric",
            "failed to get object metric value: ",
            "invalid Object metric source: the field object is missing",
        ),
        (
            "FailedGetExternalMetric",
            "failed to get External external metric value: ",
            "invalid External metric source: the field external is missing",
        ),
        (
            "FailedGetResourceMetric",
            "failed to get cpu resource metric value: ",
            "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set",
        ),
        (
            "FailedGetContainerResourceMetric",
            "failed to get app container metric value: ",
            "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set",
        ),
        (
            "FailedGetPodsMetric",
            "failed to get pods metric value: ",
            "invalid pods metric source: no average value target was set",
        ),
        (
            "FailedGetObjectMetric",
            "failed to get object metric value: ",
            "invalid object metric source: neither a value target nor an average value target was set",
        ),
        (
            "FailedGetExternalMetric",
            "failed to get queue external metric value: ",
            "invalid external metric source: neither a value target nor an average value target was set",
        ),
        ("InvalidMetricSourceType", "", "unknown metric source type \"Resourse\""),
    ];
    for (errors, expected) in errors.iter().zip(&expected) {
        assert_eq!((errors.0, &*errors.1, &*errors.2), *expected);
    }
    assert_eq!(errors.len(), expected.len());
}
