//! Fetches the metrics of a plan without holding a worker: several queries at once, each query once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::Plan;
use autoscaling::query::{Answer, Query, QueryError};
use futures::stream::{self, Stream, StreamExt};
use tokio::time::Instant;

use super::sources::{Arrival, SourceReading};
use cluster::metrics::Metrics;

/// Maximum number of queries in flight per sync, so that an HPA with many metrics cannot fill the metrics APIs.
const AT_ONCE: usize = 8;

/// Approximate bytes of the answers that a sync keeps. At this size, the sync evaluates the metrics that have
/// answers, and drops these answers.
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
    /// What was read from sources.
    pub(super) readings: Vec<SourceReading>,
    /// The newest number of a source.
    pub(super) arrival: Option<Arrival>,
}

impl Gathered {
    /// Creates the state without answers of an HPA with `metrics` metrics.
    pub(super) fn new(metrics: usize) -> Self {
        Self {
            answers: vec![None; metrics],
            took: vec![Duration::ZERO; metrics],
            is_complete: true,
            kept_bytes: 0,
            readings: Vec::new(),
            arrival: None,
        }
    }

    /// Adds an answer. Returns true if the kept answers have reached their limit.
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

/// Fetches all queries of a plan, in the order of their answers. Equal queries share one answer, so that all
/// resources of all containers are from the same instant.
pub(super) fn gather<'a>(
    plan: &'a Plan,
    source: &'a Arc<dyn Metrics>,
) -> impl Stream<Item = GatheredAnswer> + 'a {
    let started = Instant::now();
    let mut indices = BTreeMap::<&Query, Vec<usize>>::new();
    for (index, query) in plan.queries() {
        indices.entry(query).or_default().push(index);
    }
    let fetches = indices.into_iter().map(move |(query, indices)| async move {
        let answer = source.fetch(query.clone()).await;
        GatheredAnswer { indices, answer, took: started.elapsed() }
    });
    stream::iter(fetches).buffer_unordered(AT_ONCE)
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
