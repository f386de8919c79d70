//! HPAs with many metrics and pods: the memory of a decision is bounded, and its numbers are exact.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Arc;

use autoscaling::explanation::{Explanation, MetricExplanation, PodGroup};
use autoscaling::failure::MetricFailureClass;
use autoscaling::history::History;
use autoscaling::pod::{
    ConditionStatus, ContainerRequests, LabelSet, Phase, Pod, PodRequests, ReadyCondition, ResourceList,
};
use autoscaling::query::{Answer, ContainerUsage, PodUsage, QueryError};
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::Spec;
use autoscaling::status::Status;
use autoscaling::{
    Answers, Decision, ErrorLabel, Evaluation, Hpa, Overlap, Plan, Scale, WriteOutcome, conclude, decide,
    plan,
};
use jiff::{SignedDuration, Timestamp};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// An HPA with its pods and their cpu usage. The first pods may lack a sample.
struct Target {
    spec: Spec,
    status: Status,
    settings: Settings,
    pods: Vec<Arc<Pod>>,
    usages: Arc<[PodUsage]>,
}

impl Target {
    fn new(metrics: &Value, pods: usize, missing: usize) -> Self {
        let spec = json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1, "maxReplicas": 100_000, "metrics": metrics,
        });
        let amount = |milli: i64| ResourceList::new([("cpu".into(), format!("{milli}m").parse().unwrap())]);
        let containers =
            [ContainerRequests { name: "app".into(), restartable: false, requests: amount(100) }];
        let requests = Arc::new(PodRequests { containers: containers.into(), ..PodRequests::default() });
        let started = NOW - SignedDuration::from_hours(1);
        let pods: Vec<_> = (0..pods)
            .map(|number| {
                Arc::new(Pod {
                    name: format!("web-{number:05}").into(),
                    labels: Arc::new(LabelSet::new([("app".into(), "web".into())])),
                    requests: Arc::clone(&requests),
                    phase: Phase::Running,
                    terminating: false,
                    ready: Some(ReadyCondition { status: ConditionStatus::True, since: Some(started) }),
                    start_time: Some(started),
                })
            })
            .collect();
        let usage = |pod: &Arc<Pod>| PodUsage {
            pod: Arc::clone(&pod.name),
            timestamp: Some(NOW),
            window_nanos: 15_000_000_000,
            containers: [ContainerUsage { name: "app".into(), usage: amount(90) }].into(),
        };
        let usages = pods.iter().skip(missing).map(usage).collect();
        Self {
            spec: serde_json::from_value(spec).unwrap(),
            status: Status::default(),
            settings: Settings::default(),
            pods,
            usages,
        }
    }

    fn hpa(&self) -> Hpa<'_> {
        Hpa { namespace: "shop", name: "web", generation: Some(1), spec: &self.spec, status: &self.status }
    }

    fn plan(&self) -> Plan {
        let replicas = i32::try_from(self.pods.len()).unwrap();
        let scale = Scale::new(replicas, replicas, "app=web", Version::default()).unwrap();
        plan(&self.hpa(), Ok(scale), |_| Overlap::None, &self.settings)
    }

    fn answers(&self, answer: impl Fn(usize) -> Result<Answer, QueryError>) -> Answers<'_> {
        let metrics = (0..self.spec.metrics.len()).map(|index| Some(answer(index))).collect();
        Answers { metrics, pods: &self.pods }
    }

    fn usages(&self) -> Answers<'_> {
        self.answers(|_| Ok(Answer::Resource(Arc::clone(&self.usages))))
    }

    fn decide(&self, answers: &Answers<'_>) -> Decision {
        decide(&self.hpa(), &self.plan(), answers, &History::default(), &self.settings, NOW)
    }
}

fn cpu(percent: usize) -> Value {
    json!({"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent},
    }})
}

fn external(name: &str) -> Value {
    json!({"type": "External", "external": {
        "metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "10"},
    }})
}

fn listed(explanation: &Explanation) -> usize {
    explanation.metrics.iter().filter_map(MetricExplanation::reading).map(|reading| reading.pods.len()).sum()
}

/// The checks measure one shared allocator, so a single test runs them in sequence.
#[test]
fn memory_of_a_decision_is_bounded() {
    every_pod_is_counted_and_20_000_are_listed();
    failures_beyond_100_have_no_event();
    heap_is_bounded();
}

fn every_pod_is_counted_and_20_000_are_listed() {
    let target = Target::new(&(0..50).map(|_| cpu(60)).collect(), 1000, 10);
    let decision = target.decide(&target.usages());
    let explanation = decision.explanation();
    assert_eq!(listed(explanation), 20_000);
    let readings: Vec<_> = explanation.metrics.iter().filter_map(MetricExplanation::reading).collect();
    assert_eq!(readings[0].pods.len(), 1000);
    assert_eq!(readings[30].pods.len(), 0);
    for reading in &readings {
        let mut same = readings[0].clone();
        (same.pods, same.unlisted) = (reading.pods.clone(), reading.unlisted.clone());
        assert_eq!(*reading, &same, "all numbers are equal");
        assert_eq!(reading.count(|group| group == PodGroup::Missing), 10);
        assert_eq!(reading.count(|group| group == PodGroup::Ready), 990);
    }

    // The explanation of the second metric lists only three missing pods.
    let target = Target::new(&json!([cpu(60), cpu(60)]), 12_000, 10);
    let decision = target.decide(&target.usages());
    let readings: Vec<_> =
        decision.explanation().metrics.iter().filter_map(MetricExplanation::reading).collect();
    let names: Vec<_> = readings[1].pods.iter().map(|pod| &*pod.name).collect();
    assert_eq!(names, ["web-00000", "web-00001", "web-00002"]);
    assert_eq!((readings[0].pods.len(), readings[0].proposal), (12_000, readings[1].proposal));
}

fn failures_beyond_100_have_no_event() {
    let target = Target::new(&(0..1_000).map(|_| external("queue")).collect(), 1, 0);
    let answers = target.answers(|_| Err(QueryError::new(MetricFailureClass::Other, "no")));
    let decision = target.decide(&answers);
    assert_eq!(decision.explanation().failed_count(), 1_000);
    let conclusion = conclude(&target.hpa(), decision, &WriteOutcome::NotNeeded, &target.settings, NOW);
    assert_eq!(conclusion.events.len(), 100);
    assert_eq!(conclusion.unsent_events.get("FailedGetExternalMetric"), Some(&900));
    assert!(conclusion.last_event.unwrap().message.contains("1000 invalid out of 1000"));
}

fn heap_is_bounded() {
    let target = Target::new(&(0..1_000).map(|index| cpu(60 + index % 30)).collect(), 1_000, 100);
    let (answers, plan) = (target.usages(), target.plan());
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let decision = decide(&target.hpa(), &plan, &answers, &History::default(), &target.settings, NOW);
    let used = HEAP.peak_usage() - before;
    assert!(used < 48 << 20, "{used} bytes for 1,000 metrics of 1,000 pods");
    assert_eq!(decision.explanation().metric_count(), 1_000);
    // Of 1,000 pods, 900 use 90 % of their requests. The other 100 have an assumed usage of 0.
    assert_eq!(decision.explanation().proposal, Some(1350));
}

#[test]
fn spec_of_more_than_a_thousand_metrics_is_not_evaluated() {
    let metrics = |count: usize| (0..count).map(|_| external("queue")).collect();
    assert!(Target::new(&metrics(1_000), 2, 0).plan().reads_metrics());
    let target = Target::new(&metrics(1_001), 2, 0);
    assert_eq!((target.spec.metrics.len(), &*target.spec.target.name), (0, "web"));
    let decision = target.decide(&target.answers(|_| unreachable!()));
    assert_eq!(
        decision.explanation().sentence(NOW),
        "does nothing: the spec has more than 1000 metrics or 262144 bytes"
    );
    let conclusion = conclude(&target.hpa(), decision, &WriteOutcome::NotNeeded, &target.settings, NOW);
    let status = conclusion.status.unwrap();
    let conditions: Vec<_> =
        status.conditions.iter().map(|condition| (&*condition.kind, &*condition.reason)).collect();
    assert_eq!(conditions, [("ScalingActive", "TooManyMetrics")]);
    let events: Vec<_> = conclusion.events.iter().map(|event| event.reason).collect();
    assert_eq!((events.as_slice(), conclusion.last_event), (["TooManyMetrics"].as_slice(), None));
    assert_eq!((conclusion.error, conclusion.desired), (ErrorLabel::Spec, None));
}

#[test]
fn order_of_evaluation_does_not_matter() {
    let metrics = json!([cpu(60), external("a"), cpu(30), external("b"), cpu(90)]);
    let target = Target::new(&metrics, 20, 3);
    let answers = target.answers(|index| match index {
        1 | 3 => Err(QueryError::new(MetricFailureClass::Other, format!("no {index}"))),
        _ => Ok(Answer::Resource(Arc::clone(&target.usages))),
    });
    let (hpa, plan) = (target.hpa(), target.plan());
    let expected = target.decide(&answers);
    for order in [[4, 3, 2, 1, 0], [2, 0, 4, 1, 3]] {
        let mut evaluation = Evaluation::new(&hpa, &plan, &target.settings);
        for index in order {
            evaluation.evaluate(index, answers.metrics[index].as_ref(), &target.pods, NOW);
            assert!(evaluation.is_evaluated(index));
        }
        assert_eq!(evaluation.decide(&History::default(), NOW), expected);
    }
}

#[test]
fn metric_that_was_not_evaluated_fails() {
    let target = Target::new(&json!([cpu(60), cpu(70)]), 2, 0);
    let (hpa, plan) = (target.hpa(), target.plan());
    let evaluation = Evaluation::new(&hpa, &plan, &target.settings);
    let decision = evaluation.decide(&History::default(), NOW);
    assert_eq!((decision.explanation().failed_count(), decision.explanation().desired), (2, None));
}
