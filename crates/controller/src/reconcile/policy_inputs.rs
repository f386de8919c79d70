//! Applies scaling policies to a sync. Removes pods of other owners and ignored containers from the inputs, keeps the
//! windows of `burst`, and publishes the effect of the policy. Without a scaling policy, the inputs of a sync stay
//! unchanged.
//!
//! The module also contains the API groups of metrics adapters that a policy names with `source.apiGroup`. Each group
//! has its own discovery, limits, shared responses and circuit breaker, so that an adapter that hangs does not delay
//! the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::failure::MetricFailureClass;
use autoscaling::pod::Pod;
use autoscaling::query::{Answer, CustomValue, Query, QueryError};
use autoscaling::spec::{MetricSource, ResourceTarget, Spec};
use autoscaling::{Conclusion, Hpa};
use cluster::client::Clients;
use cluster::mapper::Mapper;
use cluster::metrics::{GroupMetrics, Metrics, MetricsOptions};
use jiff::Timestamp;
use parking_lot::Mutex;
use policies::burst::BurstState;
use policies::choice::{CorrectedInputs, ignore_containers};
use policies::guards::{OwnedPodsStep, Ownership, owned_pods};
use policies::spec::MetricRule;
use policies::steps::{PolicyEffect, Step};
use sources::{AdapterGroup, Failure, SourceError, SourceObserver, Sources, described, report_states};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Controller;
use super::schedule::OwnPeriod;
use super::sources::{Arrival, MAX_VALUES, SourceReading, SourceValue, SyncMetrics, number};
use crate::policy::{Applicable, PolicyDue, Resolved, publish};
use crate::store::{HpaRecord, Key};

/// The rules of a policy for pods and answers, and their effects in one sync.
#[derive(Debug, Default)]
pub(super) struct PolicyInputs<'a> {
    metrics: &'a [MetricSource],
    /// The origins of the metrics. `None` if the metrics APIs answer all queries.
    pub(super) origins: Option<&'a Arc<[MetricRule]>>,
    /// `syncPeriodSeconds`.
    sync_period: Option<Duration>,
    /// `corrections.ignoreContainersWithoutRequest`.
    containers: &'a [Arc<str>],
    /// The names of ignored pods.
    others: Arc<BTreeSet<String>>,
    owned: Option<OwnedPodsStep>,
    steps: Vec<Step>,
}

impl<'a> PolicyInputs<'a> {
    /// Selects the rules of a policy for an HPA. `others`: the names of the pods that the target does not control.
    pub(super) fn new(policy: Option<&'a Resolved>, hpa: &'a Spec, others: Arc<BTreeSet<String>>) -> Self {
        let corrections = policy.map(|policy| &policy.rules.policy.spec.corrections);
        let containers = corrections.and_then(|rules| rules.ignore_containers_without_request.as_deref());
        let origins = policy.and_then(|policy| policy.rules.policy.spec.metrics.as_ref());
        let containers = containers.unwrap_or_default();
        let sync_period = policy.and_then(Resolved::period);
        Self { metrics: &hpa.metrics, origins, sync_period, containers, others, ..Self::default() }
    }

    /// Returns the maximum time between the request for a shared response and its use: half of the policy's period.
    /// With older responses, an HPA with a short period would use the same response in several syncs.
    pub(super) fn max_age(&self) -> Duration {
        self.sync_period.map_or(Duration::MAX, |period| period / 2)
    }

    /// Removes the ignored pods.
    pub(super) fn pods(&mut self, pods: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
        if self.others.is_empty() {
            return pods;
        }
        let ownership = |pod: &Pod| {
            if self.others.contains(&*pod.name) { Ownership::Other } else { Ownership::Target }
        };
        let (counted, step) = owned_pods(&pods, ownership);
        self.owned = step.or(self.owned);
        counted
    }

    /// Returns the corrected answer and pods of a metric. `None` if the policy does not change them.
    pub(super) fn replace(
        &mut self,
        index: usize,
        answer: &Result<Answer, QueryError>,
        pods: &[Arc<Pod>],
    ) -> Option<(Answer, Vec<Arc<Pod>>)> {
        if self.others.is_empty() && self.containers.is_empty() {
            return None;
        }
        let (answer, metric) = (answer.as_ref().ok()?, self.metrics.get(index)?);
        let counted = self.counted(answer, metric);
        if let MetricSource::Resource { resource, target: ResourceTarget::Utilization(_) } = metric
            && let Some(corrected) =
                ignore_containers(self.containers, resource, counted.as_ref().unwrap_or(answer), pods)
        {
            let CorrectedInputs { pods, answer, step } = corrected;
            let step = Step::IgnoredContainers(step);
            if !self.steps.contains(&step) {
                self.steps.push(step);
            }
            return Some((answer, pods));
        }
        counted.map(|answer| (answer, pods.to_vec()))
    }

    /// Returns the answer without the samples of ignored pods. `None` if it contains no such samples.
    fn counted(&self, answer: &Answer, metric: &MetricSource) -> Option<Answer> {
        let counts = |pod: &str| !self.others.contains(pod);
        match (answer, metric) {
            (Answer::Resource(usage), _) if !usage.iter().all(|usage| counts(&usage.pod)) => {
                Some(Answer::Resource(usage.iter().filter(|usage| counts(&usage.pod)).cloned().collect()))
            }
            (Answer::Custom(values), MetricSource::Pods { .. })
                if !values.iter().all(|value| counts(&value.object)) =>
            {
                Some(Answer::Custom(values.iter().filter(|value| counts(&value.object)).cloned().collect()))
            }
            _ => None,
        }
    }

    pub(super) fn take_steps(&mut self) -> impl Iterator<Item = Step> {
        std::mem::take(&mut self.steps).into_iter().chain(self.owned.take().map(Step::OwnedPods))
    }
}

/// The policy of a sync, and its effect.
pub(super) struct ConcludedPolicy<'a> {
    pub(super) resolved: &'a Resolved,
    pub(super) effect: &'a PolicyEffect,
    /// The next time at which the rules may change the decision.
    pub(super) next_edge: Option<Timestamp>,
    /// The arrival of the newest value from a source.
    pub(super) arrival: Option<Arrival>,
}

impl Controller {
    /// Returns the policies that a sync of an HPA applies. A compared sync applies none, because the other controller
    /// applies none.
    pub(super) fn applicable_policy(&self, hpa: &HpaRecord) -> Option<Applicable> {
        if self.comparator_of(&hpa.key).is_some() { None } else { self.policies.applicable(hpa) }
    }

    /// Adds the condition and the events of the policy to the conclusion, and updates the policy's metrics. Schedules
    /// the sync at the next change of the rules. `policy`: `None` after the end of the last policy of the HPA.
    pub(super) fn conclude_policy(
        &self,
        hpa: &Hpa<'_>,
        conclusion: &mut Conclusion,
        policy: Option<&ConcludedPolicy<'_>>,
        now: Timestamp,
    ) {
        let key = Key::new(hpa.namespace, hpa.name);
        let effect = policy.map(|policy| policy.effect);
        let problems = effect.map_or("", |effect| effect.problems.as_str());
        let reports_problems = self.policies.reports(&key, problems);
        publish(conclusion, hpa, effect, reports_problems, now);
        self.telemetry.policy(hpa.namespace, hpa.name, effect);
        let due = policy.map_or_else(PolicyDue::default, |policy| PolicyDue {
            period: policy.resolved.period().map(|period| OwnPeriod {
                period,
                requested: policy.arrival.and_then(|arrival| arrival.once_in(period)),
            }),
            edge: policy.next_edge.map(|edge| {
                let wait = Duration::try_from(edge.duration_since(now)).unwrap_or_default();
                clock::after(Instant::now(), wait)
            }),
        });
        self.policies.set_due(&key, due);
        if policy.is_none() {
            self.policies.condition_removed(&key);
        }
    }
}

/// The windows of HPAs whose policy sets `burst`, by UID. Another process does not take them over. After a failover,
/// each of these HPAs starts in panic mode, so its count does not fall until samples cover a whole stable window.
#[derive(Debug, Default)]
pub struct Bursts(Mutex<BTreeMap<Arc<str>, Arc<BurstState>>>);

impl Bursts {
    /// Returns the windows after the previous sync of an HPA.
    pub(super) fn get(&self, uid: &str) -> Option<Arc<BurstState>> {
        self.0.lock().get(uid).cloned()
    }

    /// Keeps the windows after a sync. `None` drops them.
    pub(super) fn set(&self, uid: &Arc<str>, state: Option<BurstState>) {
        let mut states = self.0.lock();
        match state {
            Some(state) => drop(states.insert(Arc::clone(uid), Arc::new(state))),
            None => drop(states.remove(uid)),
        }
    }

    /// Drops the windows of a deleted HPA.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

/// Interval between two reports of the states of the groups.
const REPORT: Duration = Duration::from_secs(1);

/// The API groups in use.
#[derive(Debug)]
pub(crate) struct Adapters {
    clients: Clients,
    mapper: Arc<Mapper>,
    options: MetricsOptions,
    open: Mutex<BTreeMap<Arc<str>, OpenGroup>>,
}

#[derive(Debug)]
struct OpenGroup {
    concurrency: usize,
    metrics: GroupMetrics,
}

impl Adapters {
    /// Creates an instance without clients. `options`: the options of the default groups. Each group has its own limit
    /// of concurrent requests.
    pub(crate) fn new(clients: &Clients, mapper: Arc<Mapper>, options: MetricsOptions) -> Self {
        Self { clients: clients.clone(), mapper, options, open: Mutex::default() }
    }

    /// Returns the client of a group that the source file lists. Creates it for the first query, and after a change of
    /// the group's concurrency.
    fn group(&self, settings: &AdapterGroup) -> GroupMetrics {
        let AdapterGroup { api_group, concurrency, .. } = settings;
        let mut open = self.open.lock();
        if let Some(group) = open.get(api_group).filter(|group| group.concurrency == *concurrency) {
            return group.metrics.clone();
        }
        let options = MetricsOptions { per_api: *concurrency, ..self.options.clone() };
        let metrics = GroupMetrics::new(&self.clients, Arc::clone(&self.mapper), api_group, options);
        let group = OpenGroup { concurrency: *concurrency, metrics: metrics.clone() };
        open.insert(Arc::clone(api_group), group);
        metrics
    }

    /// Returns whether each listed group is down. Drops the clients of groups that are no longer listed.
    fn states(&self, listed: &BTreeMap<Arc<str>, Arc<AdapterGroup>>) -> BTreeMap<Arc<str>, bool> {
        let mut open = self.open.lock();
        open.retain(|group, _| listed.contains_key(group));
        let is_down = |group: &Arc<str>| open.get(group).is_some_and(|group| group.metrics.is_down());
        listed.keys().map(|group| (Arc::clone(group), is_down(group))).collect()
    }

    /// Reports the states of the listed groups once a second. Does not return.
    pub(crate) async fn report(self: Arc<Self>, sources: Arc<Sources>, observer: impl SourceObserver) {
        let mut states = BTreeMap::new();
        let mut tick = interval(REPORT);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            states = report_states(&states, self.states(&sources.adapters()), &observer);
        }
    }
}

impl SyncMetrics {
    /// Sends a query to the API group of a rule. Instead reuses a response whose request was sent within the last
    /// `shared`, if available. Returns the adapter's answer unchanged.
    pub(super) async fn read_group(
        &self,
        rule: &MetricRule,
        group: &Arc<str>,
        query: Query,
        shared: Duration,
    ) -> Result<Answer, QueryError> {
        let source = described(&rule.origin);
        let failure = |error| Failure { source: source.clone(), error };
        let settings = self.reader.sources.adapter(group, &self.key.namespace);
        let settings = settings.map_err(|error| self.failed(rule, failure(error)))?;
        let is_per_pod = matches!(query, Query::Pods { .. });
        let answer = match self.reader.adapters.group(&settings).fetch_within(query, shared).await {
            Ok(answer) => answer,
            Err(QueryError { class, message }) => {
                let reason = reason(class);
                self.telemetry.source_failed(group, reason);
                let text = format!("{source}: {message}");
                self.note_failure(rule, reason, source, message.to_string());
                return Err(QueryError::new(class, text));
            }
        };
        let (oldest, count, values) = summary(&answer, is_per_pod);
        let age = oldest.map(|oldest| self.clock.now().duration_since(oldest));
        // A sample without a time, or with a time in the future, has age 0.
        let age = age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default();
        if let Some(limit) = rule.max_age_seconds.filter(|limit| age.as_secs() > u64::from(*limit)) {
            return Err(self.failed(rule, failure(SourceError::TooOld(age.as_secs(), limit))));
        }
        self.telemetry.source_age(group, age);
        self.note(
            None,
            SourceReading {
                metric: rule.metric.to_string(),
                source,
                age_seconds: Some(age.as_secs_f64()),
                numbers: count,
                values,
                reason: None,
                problem: None,
            },
        );
        Ok(answer)
    }
}

/// Returns the oldest timestamp of the samples of an answer, their number, and the values that a reading shows.
fn summary(answer: &Answer, is_per_pod: bool) -> (Option<Timestamp>, usize, Vec<SourceValue>) {
    match answer {
        Answer::Custom(samples) => {
            let value =
                |sample: &CustomValue| number(is_per_pod.then_some(&*sample.object), sample.value.as_f64());
            let oldest = samples.iter().filter_map(|sample| sample.timestamp).min();
            (oldest, samples.len(), samples.iter().take(MAX_VALUES).map(value).collect())
        }
        Answer::External(samples) => {
            let values = samples.iter().take(MAX_VALUES).map(|sample| number(None, sample.value.as_f64()));
            let oldest = samples.iter().filter_map(|sample| sample.timestamp).min();
            (oldest, samples.len(), values.collect())
        }
        Answer::Resource(pods) => (None, pods.len(), Vec::new()),
    }
}

/// Returns the label `reason` of a failed request.
fn reason(class: MetricFailureClass) -> &'static str {
    match class {
        MetricFailureClass::ApiNotServed => "NotServed",
        MetricFailureClass::Forbidden => "Forbidden",
        MetricFailureClass::NoValues => "InvalidAnswer",
        _ => "Request",
    }
}
