//! Gathers what a plan asks for: every query at once, without holding a worker.

use std::sync::Arc;
use std::time::Duration;

use autoscaling::Plan;
use autoscaling::query::{Answer, QueryError};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

use crate::api::metrics::Metrics;

/// The answers to a plan, and how long each took.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// By the metric's place in the spec; `None` where nothing was asked.
    pub(super) answers: Vec<Option<Result<Answer, QueryError>>>,
    /// How long each took, likewise.
    pub(super) took: Vec<Duration>,
}

/// Asks for everything that the plan wants to know of an HPA with this many metrics.
pub(super) async fn gather(plan: &Plan, metrics: usize, source: &Arc<dyn Metrics>) -> Gathered {
    let started = Instant::now();
    let mut gathered = Gathered { answers: vec![None; metrics], took: vec![Duration::ZERO; metrics] };
    let mut pending: FuturesUnordered<_> = plan
        .queries()
        .map(|(place, query)| async move { (place, source.fetch(query.clone()).await, started.elapsed()) })
        .collect();
    while let Some((place, answer, took)) = pending.next().await {
        if let (Some(slot), Some(time)) = (gathered.answers.get_mut(place), gathered.took.get_mut(place)) {
            *slot = Some(answer);
            *time = took;
        }
    }
    drop(pending);
    gathered
}
