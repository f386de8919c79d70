//! Gathers what a plan asks for: every query at once and each once, without holding a worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::Plan;
use autoscaling::query::{Answer, Query, QueryError};
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

/// Asks for everything that the plan wants to know of an HPA with this many metrics. Metrics that ask the same get the
/// same answer: all resources of all containers are of one moment.
pub(super) async fn gather(plan: &Plan, metrics: usize, source: &Arc<dyn Metrics>) -> Gathered {
    let started = Instant::now();
    let mut gathered = Gathered { answers: vec![None; metrics], took: vec![Duration::ZERO; metrics] };
    let mut places = BTreeMap::<&Query, Vec<usize>>::new();
    for (place, query) in plan.queries() {
        places.entry(query).or_default().push(place);
    }
    let mut pending: FuturesUnordered<_> = places
        .into_iter()
        .map(|(query, places)| async move { (places, source.fetch(query.clone()).await, started.elapsed()) })
        .collect();
    while let Some((places, answer, took)) = pending.next().await {
        for place in places {
            if let (Some(slot), Some(time)) = (gathered.answers.get_mut(place), gathered.took.get_mut(place))
            {
                *slot = Some(answer.clone());
                *time = took;
            }
        }
    }
    drop(pending);
    gathered
}
