//! Reads the metrics for which the HPA's policy names origins. All other metrics come from the metrics APIs.
//!
//! A query for resource metrics covers cpu and memory of all containers, so one rule of the policy that names kubelets
//! applies to all resources.

mod adapters;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::Plan;
use autoscaling::failure::MetricFailureClass;
use autoscaling::pod::{Phase, Pod};
use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::{Answer, CustomValue, ExternalValue, PodUsage, Query, QueryError};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use policies::spec::{MetricOrigin, MetricRule};
use policies::steps::NO_SOURCES;
pub(super) use policies::steps::{SourceReading, SourceValue};
use sources::{Failure, Form, PodTarget, Reading, SourceError, Sources, Target, Values, described, name_of};
use tokio::time::Instant;

pub use self::adapters::Adapters;
use clock::SharedClock;
use cluster::client::Client;
use cluster::metrics::Metrics;
use engine::store::{Addresses, Key};
use engine::telemetry::metrics::Metrics as Telemetry;

/// Maximum number of readings that a sync keeps. An HPA can have thousands of metrics.
const MAX_READINGS: usize = 100;
/// Maximum number of pods in a reading. The first pods by name are kept.
pub(super) const MAX_VALUES: usize = 10;

/// The origins of metrics that policies may name, in addition to the metrics APIs.
#[derive(Debug, Clone)]
pub struct SourceReader {
    /// The sources of `--metric-sources`.
    pub sources: Arc<Sources>,
    /// The addresses of pods, for metrics that come from pods.
    pub addresses: Arc<Addresses>,
    /// The API groups of metrics adapters.
    pub adapters: Arc<Adapters>,
    /// Reads Secrets that a policy names.
    pub secrets: Client,
}

/// Returns the readings of a process without `--metric-sources`: a failed reading for each query that the policy
/// directs to a source.
pub(super) fn without_sources(plan: &Plan, rules: &[MetricRule]) -> Vec<SourceReading> {
    let rules = plan.queries().filter_map(|(_, query)| source_rule(rules, query));
    let problem = "--metric-sources is not set, so the metrics API answers";
    let reading = |rule: &MetricRule| {
        failed_reading(rule, described(&rule.origin), NO_SOURCES.to_owned(), problem.to_owned())
    };
    rules.take(MAX_READINGS).map(reading).collect()
}

/// Returns the reading of a metric without a value.
fn failed_reading(rule: &MetricRule, source: String, reason: String, problem: String) -> SourceReading {
    SourceReading {
        metric: rule.metric.to_string(),
        source,
        age_seconds: None,
        numbers: 0,
        values: Vec::new(),
        reason: Some(reason),
        problem: Some(problem),
    }
}

/// Finds the rule for a query of a metric that is not a resource, and the form of its value.
fn rule_of<'a>(rules: &'a [MetricRule], query: &Query) -> Option<(&'a MetricRule, Form)> {
    let (name, form) = match query {
        Query::Resource { .. } => return None,
        Query::Pods { metric, .. } => (metric, Form::PerPod),
        Query::Object { metric, .. } | Query::External { metric, .. } => (metric, Form::Single),
    };
    MetricRule::find(rules, name).map(|rule| (rule, form))
}

fn source_rule<'a>(rules: &'a [MetricRule], query: &Query) -> Option<&'a MetricRule> {
    match query {
        Query::Resource { .. } => kubelet_rule(rules),
        query => rule_of(rules, query).map(|(rule, _)| rule),
    }
}

/// Returns whether a source answers a query instead of a metrics API.
pub(super) fn is_of_source(rules: &[MetricRule], query: &Query) -> bool {
    source_rule(rules, query).is_some()
}

/// The readings of one sync, shared with its queries.
pub(super) type Readings = Arc<Mutex<SyncReadings>>;

/// The readings of one sync from sources.
#[derive(Debug, Default)]
pub(super) struct SyncReadings {
    pub(super) readings: Vec<SourceReading>,
    /// The arrival of the newest value.
    pub(super) arrival: Option<Arrival>,
}

/// The time of the request that returned a value, and the interval at which the source updates its values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    at: Instant,
    interval: Duration,
}

impl Arrival {
    /// Returns the time of the request if the source has a new value about once in a period.
    pub(super) fn once_in(self, period: Duration) -> Option<Instant> {
        (self.interval <= period && period < self.interval * 2).then_some(self.at)
    }
}

/// Answers the queries of one sync from the origins that the policy names.
#[derive(Debug)]
pub(super) struct SyncMetrics {
    pub(super) apis: Arc<dyn Metrics>,
    pub(super) reader: SourceReader,
    pub(super) rules: Arc<[MetricRule]>,
    pub(super) key: Key,
    pub(super) target: Arc<str>,
    pub(super) pods: Vec<PodTarget>,
    /// The resources that the metrics of types Resource and ContainerResource name.
    pub(super) resources: BTreeSet<Arc<str>>,
    pub(super) clock: SharedClock,
    pub(super) telemetry: Telemetry,
    pub(super) readings: Readings,
}

/// Returns the pods of a target with their addresses.
pub(super) fn pod_targets(addresses: &Addresses, namespace: &str, pods: &[Arc<Pod>]) -> Vec<PodTarget> {
    pods.iter()
        .map(|pod| PodTarget {
            name: Arc::clone(&pod.name),
            running: pod.phase == Phase::Running && !pod.terminating,
            address: addresses.get(namespace, &pod.name),
        })
        .collect()
}

impl Metrics for SyncMetrics {
    fn fetch_within(&self, query: Query, age: Duration) -> BoxFuture<'_, Result<Answer, QueryError>> {
        if matches!(query, Query::Resource { .. }) && kubelet_rule(&self.rules).is_some() {
            return self.node_usage().boxed();
        }
        match rule_of(&self.rules, &query) {
            Some((rule, form)) => match &rule.origin {
                MetricOrigin::ApiGroup(group) => self.read_group(rule, group, query, age).boxed(),
                _ => self.read(rule, form, query).boxed(),
            },
            None => self.apis.fetch_within(query, age),
        }
    }
}

impl SyncMetrics {
    async fn read(&self, rule: &MetricRule, form: Form, query: Query) -> Result<Answer, QueryError> {
        let target = Target {
            namespace: &self.key.namespace,
            name: &self.target,
            pods: &self.pods,
            secrets: Some(&self.reader.secrets),
        };
        let metric = rule.metric.to_string();
        match self.reader.sources.read(rule, form, &target, self.clock.now()).await {
            Err(failure) => Err(self.failed(rule, failure)),
            Ok(reading) => {
                let age = reading.age();
                let Reading { values, at, interval, source, missing, .. } = reading;
                self.telemetry.source_age(name_of(&rule.origin), age);
                if let Some((_, error)) = &missing {
                    self.telemetry.source_failed(name_of(&rule.origin), error.reason());
                }
                let (numbers, shown) = match &values {
                    Values::PerPod(values) => (values.len(), shown(values)),
                    Values::Single(value) => {
                        (value.iter().len(), value.iter().map(|value| number(None, *value)).collect())
                    }
                };
                self.note(
                    Some(Arrival { at, interval }),
                    SourceReading {
                        metric,
                        source,
                        age_seconds: Some(age.as_secs_f64()),
                        numbers,
                        values: shown,
                        reason: missing.as_ref().map(|(_, error)| error.reason().to_owned()),
                        problem: missing.map(|(pod, error)| format!("pod {pod}: {error}")),
                    },
                );
                Ok(answer(values, &query, self.time(age)))
            }
        }
    }

    /// Records a failed read, and returns the error for the query.
    pub(super) fn failed(&self, rule: &MetricRule, failure: Failure) -> QueryError {
        self.telemetry.source_failed(failure.label(&rule.origin), failure.error.reason());
        let message = failure.to_string();
        self.note_failure(rule, failure.error.reason(), failure.source, failure.error.to_string());
        QueryError::new(MetricFailureClass::Other, message)
    }

    pub(super) fn note_failure(&self, rule: &MetricRule, reason: &str, source: String, problem: String) {
        self.note(None, failed_reading(rule, source, reason.to_owned(), problem));
    }

    pub(super) fn note(&self, arrival: Option<Arrival>, reading: SourceReading) {
        let mut noted = self.readings.lock();
        if let Some(arrival) = arrival
            && noted.arrival.is_none_or(|newest| newest.at < arrival.at)
        {
            noted.arrival = Some(arrival);
        }
        if noted.readings.len() < MAX_READINGS {
            noted.readings.push(reading);
        }
    }

    /// Returns the time of day of a value with the given age.
    fn time(&self, age: Duration) -> Timestamp {
        let now = self.clock.now();
        now.checked_sub(age).unwrap_or(now)
    }
}

/// Returns the values that a reading keeps.
fn shown(values: &BTreeMap<Arc<str>, f64>) -> Vec<SourceValue> {
    values.iter().take(MAX_VALUES).map(|(pod, value)| number(Some(pod), *value)).collect()
}

pub(super) fn number(pod: Option<&str>, value: f64) -> SourceValue {
    SourceValue { pod: pod.map(str::to_owned), value }
}

/// Returns the answer as a metrics API would return it.
fn answer(values: Values, query: &Query, at: Timestamp) -> Answer {
    let timestamp = Some(at);
    let custom =
        |object, value| CustomValue { object, timestamp, window_seconds: None, value: quantity(value) };
    match (values, query) {
        (Values::PerPod(values), _) => {
            Answer::Custom(values.into_iter().map(|(pod, value)| custom(pod, value)).collect())
        }
        (Values::Single(value), Query::Object { name, .. }) => {
            Answer::Custom(value.into_iter().map(|value| custom(Arc::clone(name), value)).collect())
        }
        (Values::Single(value), _) => {
            let value = value.map(|value| ExternalValue { timestamp, value: quantity(value) });
            Answer::External(value.into_iter().collect())
        }
    }
}

/// Returns the nearest quantity in nano-units. The quantities of metrics APIs have the same resolution.
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates, and sources return finite numbers")]
fn quantity(value: f64) -> Quantity {
    Quantity::from_nanos((value * 1e9).round() as i128, Format::DecimalSi)
}

/// Returns the first rule that names kubelets.
fn kubelet_rule(rules: &[MetricRule]) -> Option<&MetricRule> {
    rules.iter().find(|rule| rule.origin == MetricOrigin::Kubelet)
}

/// Returns the lowest `maxAgeSeconds` of the rules that name kubelets.
fn max_age_seconds(rules: &[MetricRule]) -> Option<u32> {
    let rules = rules.iter().filter(|rule| rule.origin == MetricOrigin::Kubelet);
    rules.filter_map(|rule| rule.max_age_seconds).min()
}

impl SyncMetrics {
    /// Returns the usage of the pods of the target, as metrics.k8s.io would return it.
    async fn node_usage(&self) -> Result<Answer, QueryError> {
        let target =
            Target { namespace: &self.key.namespace, name: &self.target, pods: &self.pods, secrets: None };
        let limit = max_age_seconds(&self.rules);
        let source = name_of(&MetricOrigin::Kubelet);
        match self.reader.sources.usage(limit, &target, self.clock.now()).await {
            Err(error) => {
                self.telemetry.source_failed(source, error.reason());
                for resource in &self.resources {
                    self.note(None, reading(resource, None, &[], Some((None, &error))));
                }
                let message = format!("{}: {error}", described(&MetricOrigin::Kubelet));
                Err(QueryError::new(MetricFailureClass::Other, message))
            }
            Ok(usage) => {
                let age = usage.oldest.elapsed();
                self.telemetry.source_age(source, age);
                if let Some((_, error)) = &usage.missing {
                    self.telemetry.source_failed(source, error.reason());
                }
                let arrival = Arrival { at: usage.scraped, interval: usage.interval };
                let missing = usage.missing.as_ref().map(|(pod, error)| (Some(&**pod), error));
                for resource in &self.resources {
                    let reading = reading(resource, Some(age.as_secs_f64()), &usage.pods, missing);
                    self.note(Some(arrival), reading);
                }
                Ok(Answer::Resource(usage.pods.into()))
            }
        }
    }
}

/// Returns the reading of one resource: cores or bytes by pod.
fn reading(
    resource: &Arc<str>,
    age_seconds: Option<f64>,
    pods: &[PodUsage],
    problem: Option<(Option<&str>, &SourceError)>,
) -> SourceReading {
    let value = |pod: &PodUsage| {
        let containers = pod.containers.iter();
        let amounts: Vec<f64> =
            containers.filter_map(|container| Some(container.usage.get(resource)?.as_f64())).collect();
        (!amounts.is_empty()).then(|| (Arc::clone(&pod.pod), amounts.iter().sum()))
    };
    let values: BTreeMap<Arc<str>, f64> = pods.iter().filter_map(value).collect();
    SourceReading {
        metric: resource.to_string(),
        source: described(&MetricOrigin::Kubelet),
        age_seconds: age_seconds.filter(|_| !values.is_empty()),
        numbers: values.len(),
        values: shown(&values),
        reason: problem.map(|(_, error)| error.reason().to_owned()),
        problem: problem.map(|(pod, error)| match pod {
            Some(pod) => format!("pod {pod}: {error}"),
            None => error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_is_the_nearest_number_of_nano_units() {
        for (value, milli) in [(0.1 + 0.2, 300), (2.5, 2_500), (0.0, 0), (1e12, 1_000_000_000_000_000)] {
            assert_eq!(quantity(value).milli_value(), milli, "{value}");
        }
        assert_eq!(quantity(f64::MAX).milli_value(), i64::MAX);
    }
}
