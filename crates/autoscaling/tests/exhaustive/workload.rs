//! An HPA with its Scale and its pods, and the core's decisions about it.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use autoscaling::history::History;
use autoscaling::pod::{
    ConditionStatus, ContainerRequests, Phase, Pod, PodRequests, ReadyCondition, ResourceList,
};
use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::{Answer, ContainerUsage, CustomValue, ExternalValue, PodUsage, QueryError};
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::{Behavior, MetricSource, ResourceTarget, Spec, ValueTarget};
use autoscaling::status::{Condition, MetricIdentifier, Status};
use autoscaling::{Answers, Decision, Hpa, Overlap, Scale, Verdict, decide, plan};
use jiff::{SignedDuration, Timestamp};

/// The inputs of a decision, except for the history and the answers.
pub(crate) struct Workload {
    pub(crate) spec: Spec,
    pub(crate) status: Status,
    pub(crate) settings: Settings,
    pub(crate) pods: Vec<Arc<Pod>>,
    /// `spec.replicas` of the Scale.
    pub(crate) current: i32,
    /// `status.replicas` of the Scale.
    pub(crate) status_replicas: i32,
}

impl Workload {
    pub(crate) fn new(metric: MetricSource, min: i32, max: i32, current: i32) -> Self {
        let spec = Spec {
            target: serde_json::from_str(r#"{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}"#)
                .unwrap(),
            min_replicas: Some(min),
            max_replicas: max,
            metrics: Box::new([metric]),
            behavior: None,
            is_too_large: false,
        };
        Self {
            spec,
            status: Status::default(),
            settings: Settings::default(),
            pods: Vec::new(),
            current,
            status_replicas: 0,
        }
    }

    /// A workload with an external metric that proposes exactly the number in its answer ([`asking_for`]).
    /// `status.replicas` of the Scale is 0, so tolerance does not apply.
    pub(crate) fn asked_directly(min: i32, max: i32, current: i32) -> Self {
        let target = ValueTarget::AverageValue(Quantity::from_units(1, Format::DecimalSi));
        Self::new(MetricSource::External { metric: identifier(), target }, min, max, current)
    }

    pub(crate) fn with_behavior(mut self, behavior: Behavior) -> Self {
        self.spec.behavior = Some(behavior);
        self
    }

    pub(crate) fn with_pods(mut self, pods: Vec<Pod>) -> Self {
        self.pods = pods.into_iter().map(Arc::new).collect();
        self
    }

    /// Sets the condition `ScaledToZero`, so metrics may scale the target up from zero replicas.
    pub(crate) fn scaled_to_zero(mut self) -> Self {
        let condition = Condition {
            kind: autoscaling::status::SCALED_TO_ZERO.into(),
            status: "True".into(),
            ..Condition::default()
        };
        self.status.conditions = vec![condition];
        self
    }

    pub(crate) fn hpa(&self) -> Hpa<'_> {
        Hpa { namespace: "shop", name: "web", generation: None, spec: &self.spec, status: &self.status }
    }

    pub(crate) fn decide(&self, answer: Answer, history: &History, now: Timestamp) -> Decision {
        self.decide_all(vec![Some(Ok(answer))], history, now)
    }

    pub(crate) fn decide_all(
        &self,
        answers: Vec<Option<Result<Answer, QueryError>>>,
        history: &History,
        now: Timestamp,
    ) -> Decision {
        let scale =
            Scale { replicas: self.current, status_replicas: self.status_replicas, ..SELECTED.clone() };
        let plan = plan(&self.hpa(), Ok(scale), |_| Overlap::None, &self.settings);
        let answers = Answers { metrics: answers, pods: &self.pods };
        decide(&self.hpa(), &plan, &answers, history, &self.settings, now)
    }

    /// The proposal of the metric.
    pub(crate) fn proposal(&self, answer: Answer) -> Option<i32> {
        self.decide(answer, &History::default(), NOW).explanation().proposal
    }
}

static SELECTED: LazyLock<Scale> = LazyLock::new(|| Scale::new(0, 0, "app=web", Version::default()).unwrap());

/// The time of most decisions.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_000_000, 0);

/// The time `nanos` nanoseconds before [`NOW`], or after it if `nanos` is negative.
pub(crate) fn aged(nanos: i64) -> Timestamp {
    NOW.checked_sub(SignedDuration::from_nanos(nanos)).unwrap()
}

/// One second in nanoseconds.
pub(crate) const SECOND: i64 = 1_000_000_000;

/// The count after a decision.
pub(crate) fn count_after(decision: &Decision) -> i32 {
    match decision.verdict() {
        Verdict::Rescale { to, .. } => *to,
        Verdict::NoScale | Verdict::NoCount(_) | Verdict::Disabled | Verdict::Keep => decision.current(),
    }
}

fn identifier() -> MetricIdentifier {
    MetricIdentifier { name: "load".to_owned(), selector: None }
}

/// A metric with one value per pod, and a target per pod in milli-units.
pub(crate) fn pods_metric(target_milli: i64) -> MetricSource {
    MetricSource::Pods {
        metric: identifier(),
        average: Quantity::from_milli(target_milli, Format::DecimalSi),
    }
}

pub(crate) fn external_metric(target: ValueTarget) -> MetricSource {
    MetricSource::External { metric: identifier(), target }
}

pub(crate) fn resource_metric(resource: &str, target: ResourceTarget) -> MetricSource {
    MetricSource::Resource { resource: resource.into(), target }
}

/// The answer with one external value, which is in milli-units.
pub(crate) fn external_value(milli: i64) -> Answer {
    let value = Quantity::from_milli(milli, Format::DecimalSi);
    Answer::External([ExternalValue { timestamp: Some(NOW), value }].into())
}

/// The answer for which [`Workload::asked_directly`] proposes `replicas`.
pub(crate) fn asking_for(replicas: i64) -> Answer {
    let value = Quantity::from_units(replicas, Format::DecimalSi);
    Answer::External([ExternalValue { timestamp: Some(NOW), value }].into())
}

/// The answer with one custom value per pod, which is in milli-units.
pub(crate) fn pod_values(values: impl IntoIterator<Item = (Arc<str>, i64)>) -> Answer {
    let custom = |(object, milli)| CustomValue {
        object,
        timestamp: Some(NOW),
        window_seconds: None,
        value: Quantity::from_milli(milli, Format::DecimalSi),
    };
    Answer::Custom(values.into_iter().map(custom).collect())
}

/// The answer with the usage of each pod's only container in milli-units.
pub(crate) fn usages(resource: &str, values: impl IntoIterator<Item = (Arc<str>, i64)>) -> Answer {
    let usage = |(pod, milli)| PodUsage {
        pod,
        timestamp: Some(NOW),
        window_nanos: 30 * SECOND,
        containers: Box::new([ContainerUsage { name: "app".into(), usage: amount(resource, milli) }]),
    };
    Answer::Resource(values.into_iter().map(usage).collect())
}

fn amount(resource: &str, milli: i64) -> ResourceList {
    ResourceList::new([(resource.into(), Quantity::from_milli(milli, Format::DecimalSi))])
}

/// A running pod that has been ready for longer than any period, with one container.
pub(crate) fn running(name: &str, resource: &str, request_milli: i64) -> Pod {
    let containers = Box::new([ContainerRequests {
        name: "app".into(),
        restartable: false,
        requests: amount(resource, request_milli),
    }]);
    Pod {
        name: name.into(),
        labels: Arc::default(),
        requests: Arc::new(PodRequests { containers, ..PodRequests::default() }),
        phase: Phase::Running,
        terminating: false,
        ready: Some(ReadyCondition { status: ConditionStatus::True, since: Some(aged(3000 * SECOND)) }),
        start_time: Some(aged(3600 * SECOND)),
    }
}

pub(crate) fn pending(name: &str, resource: &str, request_milli: i64) -> Pod {
    Pod { phase: Phase::Pending, ready: None, start_time: None, ..running(name, resource, request_milli) }
}

/// Whether the proofs cover the whole domains. In a build with debug assertions, they cover smaller domains.
pub(crate) const WHOLE: bool = !cfg!(debug_assertions);

/// Runs `work` for every item on all processors. Returns the sum of the results.
pub(crate) fn for_each_in_parallel<T: Sync>(items: &[T], work: impl Fn(&T) -> u64 + Sync) -> u64 {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let worker = || {
            let mut cases = 0;
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                cases += work(item);
            }
            cases
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    })
}

/// Every sequence of up to `most` indices below `choices`.
pub(crate) fn sequences(choices: usize, most: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    let mut longest = 0..1;
    for _ in 0..most {
        let start = all.len();
        for at in longest {
            for choice in 0..choices {
                let mut next: Vec<usize> = all[at].clone();
                next.push(choice);
                all.push(next);
            }
        }
        longest = start..all.len();
    }
    all
}

/// Every ascending sequence of up to `most` indices below `choices`, with repetitions.
pub(crate) fn multisets(choices: usize, most: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    let mut longest = 0..1;
    for _ in 0..most {
        let start = all.len();
        for at in longest {
            for choice in all[at].last().copied().unwrap_or(0)..choices {
                let mut next: Vec<usize> = all[at].clone();
                next.push(choice);
                all.push(next);
            }
        }
        longest = start..all.len();
    }
    all
}
