//! Fetches the metrics of a plan without holding a worker. Each distinct query is sent once, and several queries are in
//! flight at the same time. The evaluation of the metrics yields to other tasks.

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

use super::policy_inputs::PolicyInputs;
use super::report::ForeignRescale;
use super::sources::{
    Arrival, Readings, SourceReading, SyncMetrics, is_of_source, pod_targets, without_sources,
};
use super::{Controller, WorkerPermit};
use crate::store::{HpaRecord, Key};
use cluster::metrics::Metrics;
use jiff::Timestamp;

/// Maximum number of queries in flight per sync, so that an HPA with many metrics cannot occupy the metrics APIs.
const AT_ONCE: usize = 8;

/// The answer to one query.
pub(super) struct GatheredAnswer {
    /// The indices of the metrics with this query.
    indices: Vec<usize>,
    answer: Result<Answer, QueryError>,
    took: Duration,
}

/// The answers to the queries of a plan.
#[derive(Debug)]
pub(super) struct Gathered {
    /// Answers by the index of the metric in the spec. `None` for a metric without a query.
    pub(super) answers: Vec<Option<Result<Answer, QueryError>>>,
    /// The time from the start of the fetch to the answer, by the index of the metric.
    pub(super) took: Vec<Duration>,
    /// The readings from metric sources.
    pub(super) readings: Vec<SourceReading>,
    /// The arrival of the newest value from a source.
    pub(super) arrival: Option<Arrival>,
    /// The indices of the metrics that sources answered instead of metrics APIs.
    pub(super) of_sources: BTreeSet<usize>,
}

impl Gathered {
    /// Creates a result without answers, for an HPA with `metrics` metrics.
    fn new(metrics: usize) -> Self {
        Self {
            answers: vec![None; metrics],
            took: vec![Duration::ZERO; metrics],
            readings: Vec::new(),
            arrival: None,
            of_sources: BTreeSet::new(),
        }
    }

    fn add(&mut self, gathered: GatheredAnswer) {
        let GatheredAnswer { indices, answer, took } = gathered;
        for index in indices {
            if let (Some(slot), Some(time)) = (self.answers.get_mut(index), self.took.get_mut(index)) {
                *slot = Some(answer.clone());
                *time = took;
            }
        }
    }
}

/// Fetches all queries of a plan. Returns the answers in the order of their arrival. Equal queries share one answer, so
/// that all resources of all containers have values of the same instant. `max_age` limits the age of shared responses.
fn gather<'a>(
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

/// Returns the resources that metrics of types Resource and ContainerResource name.
fn resources(metrics: &[MetricSource]) -> BTreeSet<Arc<str>> {
    let resource = |metric: &MetricSource| match metric {
        MetricSource::Resource { resource, .. } | MetricSource::ContainerResource { resource, .. } => {
            Some(Arc::clone(resource))
        }
        _ => None,
    };
    metrics.iter().filter_map(resource).collect()
}

impl Controller {
    /// Returns a client for the metrics of an HPA whose policy names their origins, and the readings that its queries
    /// record. `None` if the metrics APIs answer all queries.
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

    /// Returns the pods from before a foreign rescale if they are known, otherwise the pods of the target. Empty if the
    /// plan has no Scale or reads no metrics.
    pub(super) fn pods_of(&self, plan: &Plan, key: &Key, before: Option<&ForeignRescale>) -> Vec<Arc<Pod>> {
        match (plan.scale(), before) {
            (Some(_), Some(ForeignRescale { pods: Some(pods), .. })) => pods.clone(),
            (Some(scale), _) if plan.reads_metrics() => self.pods.select(&key.namespace, &scale.selector),
            _ => Vec::new(),
        }
    }

    /// Fetches the metrics without holding a worker, so that an unresponsive adapter delays only the HPAs that query
    /// it.
    pub(super) async fn gather(
        &self,
        inputs: &PolicyInputs<'_>,
        plan: &Plan,
        record: &HpaRecord,
        before: Option<&ForeignRescale>,
        permit: &mut WorkerPermit,
    ) -> Gathered {
        if plan.queries().next().is_none() {
            return Gathered::new(0);
        }
        permit.release();
        let mut gathered = Gathered::new(record.spec.metrics.len());
        let sources = self.sync_metrics(plan, record, inputs.origins, before);
        let metrics = sources.as_ref().map_or(&self.metrics, |(metrics, _)| metrics);
        if let (Some(_), Some(rules)) = (&sources, inputs.origins) {
            let of_sources = plan.queries().filter(|(_, query)| is_of_source(rules, query));
            gathered.of_sources = of_sources.map(|(index, _)| index).collect();
        }
        let mut incoming = pin!(gather(plan, metrics, inputs.max_age()));
        while let Some(answer) = incoming.next().await {
            gathered.add(answer);
        }
        if let Some((_, readings)) = &sources {
            let noted = std::mem::take(&mut *readings.lock());
            (gathered.readings, gathered.arrival) = (noted.readings, noted.arrival);
        } else if let Some(rules) = inputs.origins {
            gathered.readings = without_sources(plan, rules);
        }
        permit.acquire(&record.key.namespace).await;
        gathered
    }
}

/// Number of evaluated pods, summed over the metrics, after which an evaluation yields to other tasks. The evaluation
/// of ten thousand pods takes about 2 ms.
const PODS_PER_TURN: usize = 10_000;

/// Evaluates the metrics that have an answer. Yields to other tasks in between, so that a sync with many metrics and
/// pods does not delay other syncs.
pub(super) async fn evaluate_metrics(
    evaluation: &mut Evaluation<'_>,
    answers: &Answers<'_>,
    policy: &mut PolicyInputs<'_>,
    at: Timestamp,
) {
    let mut cost = 0;
    for (index, answer) in answers.metrics.iter().enumerate() {
        let Some(answer) = answer else { continue };
        match policy.replace(index, answer, answers.pods) {
            Some((answer, pods)) => evaluation.evaluate(index, Some(&Ok(answer)), &pods, at),
            None => evaluation.evaluate(index, Some(answer), answers.pods, at),
        }
        cost += answers.pods.len();
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
    use autoscaling::settings::{Settings, Version};
    use autoscaling::spec::Spec;
    use autoscaling::status::Status;
    use autoscaling::{Hpa, Overlap, Scale, plan};
    use serde_json::json;

    use super::*;

    /// Evaluates failing metrics. Returns the number of times that another task ran during the evaluation.
    async fn turns_of_another_task(metrics: usize, pods: usize) -> usize {
        let metric = json!({"type": "External", "external": {
            "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"},
        }});
        let pod = Pod {
            name: "web".into(),
            labels: Arc::default(),
            requests: Arc::default(),
            phase: autoscaling::pod::Phase::Running,
            terminating: false,
            ready: None,
            start_time: None,
        };
        let pods = vec![Arc::new(pod); pods];
        let spec: Spec = serde_json::from_value(json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 10, "metrics": vec![metric; metrics],
        }))
        .unwrap();
        let (status, settings) = (Status::default(), Settings::default());
        let hpa = Hpa { namespace: "shop", name: "web", generation: None, spec: &spec, status: &status };
        let scale = Scale::new(2, 2, "app=web", Version::default()).unwrap();
        let plan = plan(&hpa, Ok(scale), |_| Overlap::None, &settings);
        let error = QueryError::new(MetricFailureClass::Other, "no");
        let answers = Answers { metrics: vec![Some(Err(error)); metrics], pods: &pods };

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
    async fn other_tasks_run_between_metrics_of_many_pods() {
        assert_eq!(turns_of_another_task(1_000, 9).await, 0);
        assert!(turns_of_another_task(50, 10_000).await >= 49);
    }
}
