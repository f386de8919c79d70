//! Texts of a sync with an invalid or missing input.

use std::sync::Arc;

use autoscaling::explanation::DecisionPath;
use autoscaling::failure::ScaleFailureClass;
use autoscaling::history::History;
use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::{Answer, ExternalValue, QueryError};
use autoscaling::selector::{LabelSelector, LabelSelectorRequirement, Selector};
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::{Behavior, MetricSource, Spec};
use autoscaling::{
    Answers, Conclusion, Decision, ErrorLabel, Overlap, Scale, ScaleFailure, Verdict, WriteOutcome, conclude,
    decide, plan, target_group,
};

use crate::workload::{NOW, Workload, asking_for, external_value, pod_values, running};

fn with_metric(json: &str) -> Workload {
    let spec: Spec = serde_json::from_str(&format!(r#"{{"maxReplicas":9,"metrics":[{json}]}}"#)).unwrap();
    let mut workload = Workload::asked_directly(1, 9, 3);
    workload.spec.metrics = spec.metrics;
    workload.with_pods(vec![running("web-1", "cpu", 500)])
}

/// The reason and the message of the only event, and the text of the verdict, for a sync with one metric.
fn event_and_verdict(workload: &Workload, reply: Option<Result<Answer, QueryError>>) -> (String, String) {
    let decision = workload.decide_all(vec![reply], &History::default(), NOW);
    let verdict = decision.verdict().clone();
    let settings = &workload.settings;
    let outcome = WriteOutcome::NotNeeded;
    let conclusion = conclude(&workload.hpa(), decision, &outcome, settings, NOW);
    let [event] = &conclusion.events[..] else { panic!("{:?}", conclusion.events) };
    let Verdict::NoCount(last) = verdict else { panic!("{verdict:?}") };
    (format!("{}: {}", event.reason, event.message), last)
}

/// Metric sources, each with the start of its event, and the text before the event's message in the verdict.
const SOURCES: [(&str, &str, &str); 6] = [
    (
        r#"{"type":"Resource","resource":{"name":"cpu","target":{"averageUtilization":80}}}"#,
        "FailedGetResourceMetric: failed to get cpu utilization: unable to get metrics for resource cpu: ",
        "failed to get cpu resource metric value: ",
    ),
    (
        r#"{"type":"ContainerResource","containerResource":{"name":"cpu","container":"app","target":{"averageValue":"1"}}}"#,
        "FailedGetContainerResourceMetric: failed to get cpu usage: unable to get metrics for resource cpu: ",
        "failed to get app container metric value: ",
    ),
    (
        r#"{"type":"Pods","pods":{"metric":{"name":"hits"},"target":{"averageValue":"1"}}}"#,
        "FailedGetPodsMetric: unable to get metric hits: ",
        "failed to get pods metric value: ",
    ),
    (
        r#"{"type":"Object","object":{"metric":{"name":"hits"},"describedObject":{"kind":"Ingress","name":"main"},"target":{"type":"Value","value":"1"}}}"#,
        "FailedGetObjectMetric: unable to get metric hits on Ingress shop/main: unable to fetch metrics from custom \
         metrics API: ",
        "failed to get object metric value: ",
    ),
    (
        r#"{"type":"External","external":{"metric":{"name":"queue"},"target":{"value":"1"}}}"#,
        "FailedGetExternalMetric: unable to get external metric shop/queue/nil: ",
        "failed to get queue external metric value: failed to get external metric queue: ",
    ),
    (
        r#"{"type":"External","external":{"metric":{"name":"queue"},"target":{"averageValue":"1"}}}"#,
        "FailedGetExternalMetric: unable to get external metric shop/queue/nil: ",
        "failed to get queue external metric value: failed to get queue external metric: ",
    ),
];

#[test]
fn answer_of_another_kind_fails_only_its_metric() {
    for (source, event, prefix) in SOURCES {
        let workload = with_metric(source);
        let other = match workload.spec.metrics[0] {
            MetricSource::Resource { .. } | MetricSource::ContainerResource { .. } => asking_for(1),
            _ => Answer::Resource([].into()),
        };
        let (event_text, last) = event_and_verdict(&workload, Some(Ok(other)));
        assert_eq!(
            event_text,
            format!("{event}the metrics API returned another kind of answer than requested")
        );
        let message = event_text.split_once(": ").unwrap().1;
        assert_eq!(last, format!("invalid metrics (1 invalid out of 1), first error is: {prefix}{message}"));
    }
}

#[test]
fn unread_metric_fails() {
    for (source, event, _) in SOURCES {
        let (event_text, _) = event_and_verdict(&with_metric(source), None);
        assert!(event_text.starts_with(event), "{event_text}");
        assert!(event_text.ends_with("the metric was not read"), "{event_text}");
    }
}

#[test]
fn invalid_metric_selector_is_the_whole_error() {
    let selector = r#""selector":{"matchExpressions":[{"key":"queue","operator":"Near"}]}"#;
    for (kind, field, target, reason) in [
        ("Pods", "pods", r#"{"averageValue":"1"}"#, "FailedGetPodsMetric"),
        ("Object", "object", r#"{"type":"Value","value":"1"}"#, "FailedGetObjectMetric"),
        ("External", "external", r#"{"value":"1"}"#, "FailedGetExternalMetric"),
    ] {
        let source = format!(
            r#"{{"type":"{kind}","{field}":{{"metric":{{"name":"hits",{selector}}},"target":{target}}}}}"#
        );
        let (event_text, _) = event_and_verdict(&with_metric(&source), None);
        assert_eq!(event_text, format!("{reason}: \"Near\" is not a valid label selector operator"));
    }
}

#[test]
fn empty_answer_fails_the_metric() {
    for (source, event, _) in SOURCES {
        let workload = with_metric(source);
        let (empty, says) = match workload.spec.metrics[0] {
            MetricSource::Resource { .. } | MetricSource::ContainerResource { .. } => {
                (Answer::Resource([].into()), "no metrics returned from resource metrics API")
            }
            MetricSource::Pods { .. } => (pod_values([]), "no metrics returned from custom metrics API"),
            MetricSource::Object { .. } => (
                pod_values([]),
                "the custom metrics API server returned 0 results when we asked for exactly one",
            ),
            _ => (Answer::External([].into()), "no metrics returned from external metrics API"),
        };
        assert_eq!(event_and_verdict(&workload, Some(Ok(empty))).0, format!("{event}{says}"));
    }
}

#[test]
fn hpa_without_metrics_has_no_count() {
    let mut workload = Workload::asked_directly(1, 9, 3);
    workload.spec.metrics = Box::default();
    let decision = workload.decide_all(Vec::new(), &History::default(), NOW);
    let message = "invalid metrics (0 invalid out of 0), first error is: <nil>";
    assert_eq!(decision.verdict(), &Verdict::NoCount(message.to_owned()));
    assert_eq!(decision.explanation().sentence(NOW), "stays at 3: it has no metrics");
}

#[test]
fn unknown_metric_type_is_a_spec_error_since_1_37() {
    for (version, label) in [
        (Version::V1_36, ErrorLabel::Internal),
        (Version::V1_37, ErrorLabel::Spec),
        (Version::V1_38, ErrorLabel::Spec),
    ] {
        let mut workload = with_metric(r#"{"type":"Wishes"}"#);
        workload.settings = Settings::new(version);
        let decision = workload.decide_all(vec![None], &History::default(), NOW);
        let outcome = WriteOutcome::NotNeeded;
        let concluded = conclude(&workload.hpa(), decision, &outcome, &workload.settings, NOW);
        assert_eq!(concluded.error, label);
    }
}

fn decided(scale: Result<Scale, ScaleFailure>, overlap: Overlap, settings: &Settings) -> Decision {
    let workload = Workload::asked_directly(1, 9, 3);
    let plan = plan(&workload.hpa(), scale, |_| overlap, settings);
    assert_eq!(plan.queries().count(), usize::from(plan.reads_metrics()));
    decide(&workload.hpa(), &plan, &Answers::default(), &History::default(), settings, NOW)
}

#[test]
fn sync_that_cannot_use_metrics_reports_its_reason() {
    let settings = Settings::default();
    let scale = |selector: &str| Ok(Scale::new(3, 3, selector, Version::default()).unwrap());
    let deleted = decided(scale("app=web"), Overlap::Deleted, &settings);
    let message = "HPA shop/web was deleted during reconciliation";
    assert_eq!(deleted.verdict(), &Verdict::NoCount(message.to_owned()));
    assert_eq!(deleted.explanation().path, DecisionPath::Deleted);
    assert_eq!(deleted.explanation().limiting_step(), None);

    let several = vec!["shop/api".to_owned(), "shop/web".to_owned(), "shop/z".to_owned()];
    let ambiguous = |settings: Settings| {
        let decision = decided(scale("app=web"), Overlap::Shared(several.clone()), &settings);
        let Verdict::NoCount(message) = decision.verdict() else { panic!("{:?}", decision.verdict()) };
        assert_eq!(decision.explanation().path, DecisionPath::Ambiguous);
        message.clone()
    };
    assert_eq!(
        ambiguous(Settings::new(Version::V1_36)),
        "pods by selector app=web are controlled by multiple HPAs: [shop/api shop/web shop/z]"
    );
    assert_eq!(
        ambiguous(Settings::new(Version::V1_37)),
        "pods by selector app=web are controlled by more than one HPA (e.g. [shop/api shop/web])"
    );
    let all = Settings { optimized_selector_store: false, ..Settings::default() };
    assert_eq!(
        ambiguous(all),
        "pods by selector app=web are controlled by more than one HPA (e.g. [shop/api shop/web shop/z])"
    );

    let unselected = decided(scale(""), Overlap::None, &settings);
    assert_eq!(unselected.verdict(), &Verdict::NoCount("selector is required".to_owned()));
    assert_eq!(unselected.explanation().path, DecisionPath::NoSelector);

    for (class, label) in [
        (ScaleFailureClass::InvalidReference, ErrorLabel::Spec),
        (ScaleFailureClass::NotFound, ErrorLabel::Internal),
    ] {
        let failure = ScaleFailure { class, message: "no such thing".to_owned() };
        let decision = decided(Err(failure), Overlap::None, &settings);
        assert_eq!(decision.verdict(), &Verdict::NoScale);
        let explained = decision.explanation();
        assert_eq!(explained.scale_failure(), class);
        assert_eq!((explained.path, explained.min, explained.max), (DecisionPath::NoScale, 1, 9));
        assert!(decision.metrics().is_empty());
        let workload = Workload::asked_directly(1, 9, 3);
        let hpa = workload.hpa();
        let concluded = conclude(&hpa, decision, &WriteOutcome::NotNeeded, &settings, NOW);
        assert!(concluded.computations.is_empty());
        assert_eq!((concluded.error, concluded.desired), (label, None));
    }
}

#[test]
fn invalid_scale_selector_is_reported_with_its_origin() {
    let error = Scale::new(3, 3, "a!=b", Version::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "received an object from a /scale endpoint which was not convertible to autoscaling Scale: failed to parse \
         target selector: \"!=\" is not a valid label selector operator"
    );
}

#[test]
fn group_of_a_target_precedes_the_only_slash() {
    let group = |version: &str| {
        let json = format!(r#"{{"apiVersion":"{version}","kind":"K","name":"n"}}"#);
        let target = serde_json::from_str(&json).unwrap();
        target_group(&target).map(str::to_owned).map_err(|error| error.to_string())
    };
    assert_eq!(group("v1"), Ok(String::new()));
    assert_eq!(group("apps/v1"), Ok("apps".to_owned()));
    assert_eq!(group("a/b/c"), Err("unexpected GroupVersion string: a/b/c".to_owned()));
}

#[test]
fn pod_level_request_without_the_resource_fails_the_metric() {
    let cpu = r#"{"type":"Resource","resource":{"name":"cpu","target":{"averageUtilization":80}}}"#;
    let mut workload = with_metric(cpu);
    let mut pod = running("web-1", "disk", 500);
    let mut requests = (*pod.requests).clone();
    requests.pod_level = autoscaling::pod::ResourceList::new([("memory".into(), "1Gi".parse().unwrap())]);
    pod.requests = Arc::new(requests);
    workload.pods = vec![Arc::new(pod)];
    let answer = crate::workload::usages("cpu", [("web-1".into(), 100)]);
    assert_eq!(
        event_and_verdict(&workload, Some(Ok(answer.clone()))).0,
        "FailedGetResourceMetric: failed to get cpu utilization: missing pod-level request for cpu in Pod web-1"
    );
    workload.settings.pod_level_resources = false;
    assert_eq!(
        event_and_verdict(&workload, Some(Ok(answer))).0,
        "FailedGetResourceMetric: failed to get cpu utilization: missing request for cpu in container app of Pod web-1"
    );
}

#[test]
fn label_value_has_at_most_63_bytes() {
    let long = "x".repeat(64);
    let error = Selector::parse(&format!("app={long}")).unwrap_err().to_string();
    assert!(error.contains("must be no more than 63 bytes"), "{error}");
    assert!(Selector::parse(&format!("app={}", &long[1..])).is_ok());
}

#[test]
fn forbidden_values_are_listed_as_json() {
    let requirement = LabelSelectorRequirement {
        key: "app".to_owned(),
        operator: "Exists".to_owned(),
        values: Some(vec!["\"\\\u{8}\u{c}\n\r\t<é".to_owned(), "web".to_owned()]),
    };
    let selector = LabelSelector { match_expressions: Some(vec![requirement]), ..LabelSelector::default() };
    let error = Selector::from_label_selector(Some(&selector)).unwrap_err().to_string();
    assert!(error.contains(r#"["\"\\\b\f\n\r\t\u003cé","web"]"#), "{error}");
}

/// The conclusion of a sync with one metric and without a write.
fn concluded(workload: &Workload, reply: Option<Result<Answer, QueryError>>) -> Conclusion {
    let decision = workload.decide_all(vec![reply], &History::default(), NOW);
    conclude(&workload.hpa(), decision, &WriteOutcome::NotNeeded, &workload.settings, NOW)
}

#[test]
fn only_unknown_metric_type_counts_as_invalid_spec() {
    let object = |target: &str| {
        format!(r#"{{"type":"Object","object":{{"metric":{{"name":"hits"}},"target":{target}}}}}"#)
    };
    for (source, version, metric, sync) in [
        (
            object(r#"{"type":"Value","averageValue":"5"}"#),
            Version::V1_37,
            ErrorLabel::Internal,
            ErrorLabel::Internal,
        ),
        (
            object(r#"{"type":"Utilization","value":"5"}"#),
            Version::V1_36,
            ErrorLabel::Internal,
            ErrorLabel::Internal,
        ),
        (r#"{"type":"Guess"}"#.to_owned(), Version::V1_37, ErrorLabel::Spec, ErrorLabel::Spec),
        (r#"{"type":"Guess"}"#.to_owned(), Version::V1_36, ErrorLabel::Spec, ErrorLabel::Internal),
    ] {
        let mut workload = with_metric(&source);
        workload.settings = Settings { version, ..workload.settings };
        let conclusion = concluded(&workload, None);
        let labels = conclusion.computations.iter().map(|computation| computation.error).collect::<Vec<_>>();
        assert_eq!((labels, conclusion.error), (vec![metric], sync), "{source} {version:?}");
    }
}

#[test]
fn object_metric_reports_its_selector_before_its_target() {
    let source = r#"{"type":"Object","object":{"metric":{"name":"hits",
        "selector":{"matchExpressions":[{"key":"queue","operator":"Near"}]}},
        "target":{"type":"Value","averageValue":"5"}}}"#;
    let (event, _) = event_and_verdict(&with_metric(source), None);
    assert_eq!(event, "FailedGetObjectMetric: \"Near\" is not a valid label selector operator");
}

#[test]
fn absent_generation_is_observed_as_zero() {
    let mut workload = with_metric(SOURCES[4].0);
    assert_eq!(workload.hpa().generation, None);
    let observed = |workload: &Workload| {
        let status = concluded(workload, Some(Ok(external_value(3000)))).status;
        status.expect("a status").observed_generation
    };
    assert_eq!(observed(&workload), Some(0));
    workload.settings.generation = false;
    assert_eq!(observed(&workload), None);
}

#[test]
fn lift_to_min_replicas_from_zero_has_a_reason() {
    let mut workload = Workload::asked_directly(2, 9, 0).with_behavior(Behavior::default()).scaled_to_zero();
    let decide = |workload: &Workload, asked: i64| {
        workload.decide(asking_for(asked), &History::default(), NOW).verdict().clone()
    };
    let below = "Current number of replicas below Spec.MinReplicas";
    assert_eq!(decide(&workload, 0), Verdict::Rescale { to: 2, reason: below.to_owned() });
    let Verdict::Rescale { to: 2, reason } = decide(&workload, 1) else { panic!() };
    assert!(reason.ends_with(" above target"), "{reason}");
    // As in upstream, the reason is empty without `behavior`, because the limit step already applies `minReplicas`.
    workload.spec.behavior = None;
    assert_eq!(decide(&workload, 0), Verdict::Rescale { to: 2, reason: String::new() });
}

#[test]
fn external_total_at_the_end_of_the_range_stays_there() {
    let series = |values: &[i64]| {
        let value =
            |milli| ExternalValue { timestamp: None, value: Quantity::from_milli(milli, Format::DecimalSi) };
        Answer::External(values.iter().map(|milli| value(*milli)).collect())
    };
    let shown = |target: &str, answer: Answer| {
        let source =
            format!(r#"{{"type":"External","external":{{"metric":{{"name":"queue"}},"target":{target}}}}}"#);
        let workload = Workload { status_replicas: 3, ..with_metric(&source) };
        let conclusion = concluded(&workload, Some(Ok(answer)));
        let current = conclusion.status.expect("a status").current_metrics[0]
            .external
            .clone()
            .expect("external")
            .current;
        current.value.or(current.average_value).expect("a value").milli_value()
    };
    let overflowing = [i64::MAX, 1, -i64::MAX];
    assert_eq!(shown(r#"{"value":"1"}"#, series(&overflowing)), i64::MAX);
    assert_eq!(shown(r#"{"averageValue":"1"}"#, series(&overflowing)), i64::MAX);
    assert_eq!(shown(r#"{"averageValue":"1"}"#, series(&[3000])), 1000);
}
