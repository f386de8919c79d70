//! Fetches the metrics of a plan without holding a worker: several queries at once, each query once. The
//! evaluation of the metrics takes turns with other tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::pod::Pod;
use autoscaling::query::{Answer, Query, QueryError};
use autoscaling::spec::MetricSource;
use autoscaling::{Answers, Evaluation, Plan};
use futures::stream::{self, Stream, StreamExt};
use policies::spec::MetricRule;
use tokio::time::Instant;

use super::Controller;
use super::observe::ForeignRescale;
use super::policy_inputs::PolicyInputs;
use super::sources::{
    Arrival, Readings, SourceReading, SyncMetrics, is_of_source, pod_targets, without_sources,
};
use super::worker_pool::WorkerPermit;
use crate::store::{HpaRecord, Key};
use cluster::metrics::Metrics;
use jiff::Timestamp;

/// Maximum number of queries in flight per sync, so that an HPA with many metrics cannot fill the metrics APIs.
const AT_ONCE: usize = 8;

/// Maximum approximate bytes of the answers that a sync keeps. Beyond this size, the sync evaluates the metrics that
/// have answers, and drops these answers.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// The answer to one query.
pub(super) struct GatheredAnswer {
    /// The indices of the metrics with this query.
    indices: Vec<usize>,
    answer: Result<Answer, QueryError>,
    took: Duration,
}

/// The answers to a plan, and the duration of each.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Answers by the index of the metric in the spec. `None` without a query, and for a metric that was
    /// evaluated already because the answers were large.
    pub(super) answers: Vec<Option<Result<Answer, QueryError>>>,
    /// Durations by the same index.
    pub(super) took: Vec<Duration>,
    /// Whether all answers were kept.
    pub(super) is_complete: bool,
    /// Approximate bytes of the kept answers.
    pub(super) kept_bytes: usize,
    /// The readings of sources.
    pub(super) readings: Vec<SourceReading>,
    /// The arrival of the newest number of a source.
    pub(super) arrival: Option<Arrival>,
    /// The indices of the metrics that sources answered instead of metrics APIs.
    pub(super) of_sources: BTreeSet<usize>,
}

impl Gathered {
    /// Creates the state without answers, for an HPA with `metrics` metrics.
    pub(super) fn new(metrics: usize) -> Self {
        Self {
            answers: vec![None; metrics],
            took: vec![Duration::ZERO; metrics],
            is_complete: true,
            kept_bytes: 0,
            readings: Vec::new(),
            arrival: None,
            of_sources: BTreeSet::new(),
        }
    }

    /// Adds an answer. Returns true if the kept answers exceed their limit.
    pub(super) fn add(&mut self, gathered: GatheredAnswer) -> bool {
        let GatheredAnswer { indices, answer, took } = gathered;
        self.kept_bytes = self.kept_bytes.saturating_add(bytes(&answer));
        for index in indices {
            if let (Some(slot), Some(time)) = (self.answers.get_mut(index), self.took.get_mut(index)) {
                *slot = Some(answer.clone());
                *time = took;
            }
        }
        self.kept_bytes > MAX_KEPT_BYTES
    }

    /// Takes the kept answers.
    pub(super) fn take_answers(&mut self) -> Vec<Option<Result<Answer, QueryError>>> {
        (self.is_complete, self.kept_bytes) = (false, 0);
        let empty = vec![None; self.answers.len()];
        std::mem::replace(&mut self.answers, empty)
    }
}

/// Fetches all queries of a plan. Returns the answers in the order of their arrival. Equal queries share one answer, so
/// that all resources of all containers are from the same instant. `max_age` limits the age of shared responses.
pub(super) fn gather<'a>(
    plan: &'a Plan,
    source: &'a Arc<dyn Metrics>,
    max_age: Duration,
) -> impl Stream<Item = GatheredAnswer> + 'a {
    let started = Instant::now();
    let mut indices = BTreeMap::<&Query, Vec<usize>>::new();
    for (index, query) in plan.queries() {
        indices.entry(query).or_default().push(index);
    }
    let fetches = indices.into_iter().map(move |(query, indices)| async move {
        let answer = source.fetch_within(query.clone(), max_age).await;
        GatheredAnswer { indices, answer, took: started.elapsed() }
    });
    stream::iter(fetches).buffer_unordered(AT_ONCE)
}

/// The resources that metrics of types Resource and ContainerResource name.
fn resources(metrics: &[MetricSource]) -> BTreeSet<Arc<str>> {
    let resource = |metric: &MetricSource| match metric {
        MetricSource::Resource { resource, .. } | MetricSource::ContainerResource { resource, .. } => {
            Some(Arc::clone(resource))
        }
        _ => None,
    };
    metrics.iter().filter_map(resource).collect()
}

/// The approximate size of an answer.
fn bytes(answer: &Result<Answer, QueryError>) -> usize {
    match answer {
        Ok(Answer::Resource(pods)) => pods.len().saturating_mul(256),
        Ok(Answer::Custom(values)) => values.len().saturating_mul(64),
        Ok(Answer::External(values)) => values.len().saturating_mul(48),
        Err(error) => error.message.len(),
    }
}

impl Controller {
    /// The metrics of an HPA whose policy names their origins, and the readings that they record. `None` if the
    /// metrics APIs answer all queries.
    fn sync_metrics(
        &self,
        plan: &Plan,
        record: &HpaRecord,
        origins: Option<&Arc<[MetricRule]>>,
        before: Option<&ForeignRescale>,
    ) -> Option<(Arc<dyn Metrics>, Readings)> {
        let rules = Arc::clone(origins?);
        let reader = self.sources.clone()?;
        plan.queries().next()?;
        let pods = self.pods_of(plan, &record.key, before);
        let pods = pod_targets(&reader.addresses, &record.key.namespace, &pods);
        let readings = Readings::default();
        let metrics = SyncMetrics {
            apis: Arc::clone(&self.metrics),
            reader,
            rules,
            key: record.key.clone(),
            target: record.spec.target.name.as_str().into(),
            pods,
            resources: resources(&record.spec.metrics),
            clock: Arc::clone(&self.clock),
            telemetry: self.telemetry.clone(),
            readings: Arc::clone(&readings),
        };
        Some((Arc::new(metrics), readings))
    }

    /// The pods that the metrics of a plan concern.
    pub(super) fn pods_of(&self, plan: &Plan, key: &Key, before: Option<&ForeignRescale>) -> Vec<Arc<Pod>> {
        match (plan.scale(), before) {
            (Some(_), Some(ForeignRescale { pods: Some(pods), .. })) => pods.clone(),
            (Some(scale), _) if plan.reads_metrics() => self.pods.select(&key.namespace, &scale.selector),
            _ => Vec::new(),
        }
    }

    /// Fetches the metrics without holding a worker, so that a dead adapter delays only the HPAs that query
    /// it. If the answers are large, evaluates the metrics that have answers and drops these answers.
    pub(super) async fn gather(
        &self,
        evaluation: &mut Evaluation<'_>,
        inputs: &mut PolicyInputs<'_>,
        plan: &Plan,
        record: &HpaRecord,
        before: Option<&ForeignRescale>,
        permit: &mut WorkerPermit,
    ) -> Gathered {
        if plan.queries().next().is_none() {
            return Gathered { is_complete: true, ..Gathered::default() };
        }
        permit.release();
        let mut gathered = Gathered::new(record.spec.metrics.len());
        let sources = self.sync_metrics(plan, record, inputs.origins(), before);
        let metrics = sources.as_ref().map_or(&self.metrics, |(metrics, _)| metrics);
        if let (Some(_), Some(rules)) = (&sources, inputs.origins()) {
            let of_sources = plan.queries().filter(|(_, query)| is_of_source(rules, query));
            gathered.of_sources = of_sources.map(|(index, _)| index).collect();
        }
        let mut incoming = pin!(gather(plan, metrics, inputs.max_age()));
        while let Some(answer) = incoming.next().await {
            if gathered.add(answer) {
                let pods = inputs.pods(self.pods_of(plan, &record.key, before));
                let answers = Answers { metrics: gathered.take_answers(), pods: &pods };
                let at = self.clock_reading().at;
                self.count_ages(&answers, &gathered.of_sources, at);
                evaluate_metrics(evaluation, &answers, inputs, at).await;
            }
        }
        if let Some((_, readings)) = &sources {
            let noted = std::mem::take(&mut *readings.lock());
            (gathered.readings, gathered.arrival) = (noted.readings, noted.arrival);
        } else if let Some(rules) = inputs.origins() {
            gathered.readings = without_sources(plan, rules);
        }
        permit.acquire(&record.key.namespace).await;
        gathered
    }
}

/// The number of pods after which an evaluation lets other tasks run, summed over its metrics. Ten thousand
/// take about 2 ms.
const PODS_PER_TURN: usize = 10_000;

/// The cost of a metric in addition to its pods, in pods.
const METRIC_COST: usize = 20;

/// Evaluates the metrics that have an answer. Other tasks run in between, so that a sync with many metrics and
/// pods delays no other.
pub(super) async fn evaluate_metrics(
    evaluation: &mut Evaluation<'_>,
    answers: &Answers<'_>,
    policy: &mut PolicyInputs<'_>,
    at: Timestamp,
) {
    let mut cost = 0;
    for (index, answer) in answers.metrics.iter().enumerate() {
        let Some(answer) = answer else { continue };
        if evaluation.is_evaluated(index) {
            continue;
        }
        match policy.replace(index, answer, answers.pods) {
            Some((answer, pods)) => evaluation.evaluate(index, Some(&Ok(answer)), &pods, at),
            None => evaluation.evaluate(index, Some(answer), answers.pods, at),
        }
        cost += METRIC_COST + answers.pods.len();
        if cost >= PODS_PER_TURN {
            cost = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use autoscaling::failure::MetricFailureClass;
    use autoscaling::history::History;
    use autoscaling::query::QueryError;
    use autoscaling::settings::Settings;
    use autoscaling::spec::Spec;
    use autoscaling::status::Status;
    use autoscaling::{Hpa, Overlap, Scale, plan};
    use serde_json::json;

    use super::*;

    /// Evaluates failing metrics. Returns the number of turns of another task in the meantime.
    async fn turns_of_another_task(metrics: usize) -> usize {
        let metric = json!({"type": "External", "external": {
            "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"},
        }});
        let spec: Spec = serde_json::from_value(json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 10, "metrics": vec![metric; metrics],
        }))
        .unwrap();
        let (status, settings) = (Status::default(), Settings::default());
        let hpa = Hpa { namespace: "shop", name: "web", generation: None, spec: &spec, status: &status };
        let scale = Scale::new(2, 2, "app=web").unwrap();
        let plan = plan(&hpa, Ok(scale), |_| Overlap::None, &settings);
        let error = QueryError::new(MetricFailureClass::Other, "no");
        let answers = Answers { metrics: vec![Some(Err(error)); metrics], pods: &[] };

        let turns = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let mut evaluation = Evaluation::new(&hpa, &plan, &settings);
        evaluate_metrics(&mut evaluation, &answers, &mut PolicyInputs::default(), Timestamp::UNIX_EPOCH)
            .await;
        let turns = turns.load(Ordering::Relaxed);
        other.abort();
        let decision = evaluation.decide(&History::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(decision.explanation().failed_count(), metrics);
        turns
    }

    #[tokio::test(start_paused = true)]
    async fn other_tasks_run_between_many_metrics() {
        assert_eq!(turns_of_another_task(400).await, 0);
        assert!(turns_of_another_task(10_000).await >= 19);
    }
}
