//! The API groups of metrics adapters that a policy names with `source.apiGroup`. Each group has its own discovery,
//! limits, shared responses and circuit breaker, so that an adapter that hangs does not delay the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::failure::MetricFailureClass;
use autoscaling::query::{Answer, CustomValue, Query, QueryError};
use cluster::client::Clients;
use cluster::mapper::Mapper;
use cluster::metrics::{GroupMetrics, Metrics, MetricsOptions};
use jiff::Timestamp;
use parking_lot::Mutex;
use policies::spec::MetricRule;
use sources::{AdapterGroup, Failure, SourceError, SourceObserver, Sources, described, report_states};
use tokio::time::{MissedTickBehavior, interval};

use super::{MAX_VALUES, SourceReading, SourceValue, SyncMetrics, number};

/// Interval between two reports of the states of the groups.
const REPORT: Duration = Duration::from_secs(1);

/// The API groups in use.
#[derive(Debug)]
pub struct Adapters {
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
    pub fn new(clients: &Clients, mapper: Arc<Mapper>, options: MetricsOptions) -> Self {
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
    pub async fn report(self: Arc<Self>, sources: Arc<Sources>, observer: impl SourceObserver) {
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
