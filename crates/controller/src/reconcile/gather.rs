//! Fetches the metrics of a plan without holding a worker: all queries at once, each query once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::Plan;
use autoscaling::query::{Answer, Query, QueryError};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

use cluster::metrics::Metrics;

/// The answers to a plan, and the duration of each.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Answers by the index of the metric in the spec. `None` without a query.
    pub(super) answers: Vec<Option<Result<Answer, QueryError>>>,
    /// Durations by the same index.
    pub(super) took: Vec<Duration>,
}

/// Fetches all queries of a plan for an HPA with `metrics` metrics. Equal queries share one answer, so that
/// all resources of all containers are from the same instant.
pub(super) async fn gather(plan: &Plan, metrics: usize, source: &Arc<dyn Metrics>) -> Gathered {
    let started = Instant::now();
    let mut gathered = Gathered { answers: vec![None; metrics], took: vec![Duration::ZERO; metrics] };
    let mut indices = BTreeMap::<&Query, Vec<usize>>::new();
    for (index, query) in plan.queries() {
        indices.entry(query).or_default().push(index);
    }
    let mut pending: FuturesUnordered<_> = indices
        .into_iter()
        .map(
            |(query, indices)| async move { (indices, source.fetch(query.clone()).await, started.elapsed()) },
        )
        .collect();
    while let Some((indices, answer, took)) = pending.next().await {
        for index in indices {
            if let (Some(slot), Some(time)) = (gathered.answers.get_mut(index), gathered.took.get_mut(index))
            {
                *slot = Some(answer.clone());
                *time = took;
            }
        }
    }
    drop(pending);
    gathered
}
