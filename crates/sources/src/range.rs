//! The past of a metric, from range queries to its Prometheus server.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use policies::spec::{MetricOrigin, MetricRule};
use promql::PodNames;

use crate::error::SourceError;
use crate::reload::Sources;
use crate::{Failure, Form, described, described_query};

/// The shortest time between two values: the default period of syncs.
const SHORTEST_STEP: u64 = 15;
/// Maximum number of times of a range. Prometheus refuses more than 11,000.
const MAX_TIMES: u64 = 480;

/// A range of time in the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// The first time.
    pub start: Timestamp,
    /// The end.
    pub end: Timestamp,
}

impl TimeRange {
    /// The time between two values, in whole seconds.
    pub fn step(self) -> Duration {
        let seconds = u64::try_from(self.end.duration_since(self.start).as_secs()).unwrap_or_default();
        Duration::from_secs(seconds.div_ceil(MAX_TIMES).max(SHORTEST_STEP))
    }
}

/// The target of an HPA, for the past of a metric.
#[derive(Debug, Clone, Copy)]
pub struct PastTarget<'a> {
    /// The namespace of the HPA and its pods.
    pub namespace: &'a Arc<str>,
    /// The kind of the target. The kind determines the form of the names of its pods.
    pub kind: &'a str,
    /// The name of the target.
    pub name: &'a str,
}

impl PastTarget<'_> {
    pub(crate) fn pod_names(&self) -> PodNames {
        PodNames::from_kind(self.kind)
    }
}

/// The past of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct PastReading {
    /// The name of the server.
    pub server: String,
    /// The total of all pods at each time, oldest first. Never empty.
    pub totals: Vec<(Timestamp, f64)>,
}

impl Sources {
    /// The total of a metric in a time range, from the query of its rule, with the same restriction as in a sync.
    /// `None` for a rule with an origin other than Prometheus, because other origins have no past.
    pub async fn past(
        &self,
        rule: &MetricRule,
        form: Form,
        target: &PastTarget<'_>,
        range: TimeRange,
    ) -> Option<Result<PastReading, Failure>> {
        let MetricOrigin::Prometheus { server: name, query } = &rule.origin else { return None };
        let current = self.current();
        let read = async {
            let failed = |error| Failure { source: described(&rule.origin), error };
            let server = current.servers.get(name).ok_or_else(|| failed(SourceError::UnknownServer))?;
            let query = server.restricted(query, target.namespace).map_err(failed)?;
            let text = query.text_of_past(target.namespace, target.name, target.pod_names());
            let text = text.map_err(|error| failed(error.into()))?;
            let failed = |error| Failure { source: described_query(name, &text), error };
            let totals = server.totals(&text, form, target, range).await.map_err(failed)?;
            let totals = totals
                .into_iter()
                .filter_map(|(time, total)| Timestamp::from_millisecond(time).ok().map(|at| (at, total)));
            let totals: Vec<_> = totals.collect();
            if totals.is_empty() {
                return Err(failed(SourceError::NoPast));
            }
            Ok(PastReading { server: name.to_string(), totals })
        };
        Some(read.await)
    }
}
