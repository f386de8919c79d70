//! Fetches the metrics of a plan without holding a worker. Each distinct query is sent once, and several queries are in
//! flight at the same time. The evaluation of the metrics yields to other tasks.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::pod::Pod;
use autoscaling::query::{Answer, Query, QueryError};
use autoscaling::{Evaluation, Plan, Scale};
use futures::stream::{self, Stream, StreamExt};
use jiff::Timestamp;
use tokio::time::Instant;

use super::guests::{MetricsSource, Standpoint, SyncRules};
use super::{Controller, WorkerPermit};
use crate::store::HpaRecord;

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
}

impl Gathered {
    /// Creates a result without answers, for an HPA with `metrics` metrics.
    fn new(metrics: usize) -> Self {
        Self { answers: vec![None; metrics], took: vec![Duration::ZERO; metrics] }
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
/// that all resources of all containers have values of the same instant.
fn gather<'a>(plan: &'a Plan, source: &'a MetricsSource) -> impl Stream<Item = GatheredAnswer> + 'a {
    let started = Instant::now();
    let mut indices = BTreeMap::<&Query, Vec<usize>>::new();
    for (index, query) in plan.queries() {
        indices.entry(query).or_default().push(index);
    }
    let fetches = indices.into_iter().map(move |(query, indices)| async move {
        let answer = source.metrics.fetch_within(query.clone(), source.max_age).await;
        GatheredAnswer { indices, answer, took: started.elapsed() }
    });
    stream::iter(fetches).buffer_unordered(AT_ONCE)
}

impl Controller {
    /// Fetches the metrics without holding a worker, so that an unresponsive adapter delays only the HPAs that query
    /// it.
    pub(super) async fn gather(
        &self,
        rules: &mut dyn SyncRules,
        plan: &Plan,
        record: &HpaRecord,
        standpoint: &Standpoint,
        worker: &mut WorkerPermit,
    ) -> Gathered {
        let pods = || {
            let select = |scale: &Scale| self.stores.pods.select(&record.key.namespace, &scale.selector);
            standpoint.pods(plan, select)
        };
        let source = rules.metrics(plan, &pods, &self.clients.metrics);
        if plan.queries().next().is_none() {
            return Gathered::new(0);
        }
        worker.release();
        let mut gathered = Gathered::new(record.spec.metrics.len());
        let mut incoming = pin!(gather(plan, &source));
        while let Some(answer) = incoming.next().await {
            gathered.add(answer);
        }
        worker.acquire(&record.key.namespace).await;
        gathered
    }
}

/// Number of evaluated pods, summed over the metrics, after which an evaluation yields to other tasks. The evaluation
/// of ten thousand pods takes about 2 ms.
const PODS_PER_TURN: usize = 10_000;

/// Evaluates the metrics that have an answer. `replace` returns the answer and the pods that count instead of those of
/// a metric, if any. Yields to other tasks in between, so that a sync with many metrics and pods does not delay other
/// syncs.
pub async fn evaluate_metrics(
    evaluation: &mut Evaluation<'_>,
    answers: &[Option<Result<Answer, QueryError>>],
    pods: &[Arc<Pod>],
    at: Timestamp,
    mut replace: impl FnMut(usize, &Result<Answer, QueryError>) -> Option<(Answer, Vec<Arc<Pod>>)>,
) {
    let mut cost = 0;
    for (index, answer) in answers.iter().enumerate() {
        let Some(answer) = answer else { continue };
        match replace(index, answer) {
            Some((answer, pods)) => evaluation.evaluate(index, Some(&Ok(answer)), &pods, at),
            None => evaluation.evaluate(index, Some(answer), pods, at),
        }
        cost += pods.len();
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
        let pod = Arc::new(pod);
        let pods: Vec<_> = std::iter::repeat_with(|| Arc::clone(&pod)).take(pods).collect();
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
        let answers = vec![Some(Err(error)); metrics];

        let turns = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let mut evaluation = Evaluation::new(&hpa, &plan, &settings);
        evaluate_metrics(&mut evaluation, &answers, &pods, Timestamp::UNIX_EPOCH, |_, _| None).await;
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
