//! The metrics APIs of a cluster, with the limits of their requests.

use std::sync::Arc;

use autoscaling::failure::MetricFailureClass;
use autoscaling::query::{Api, Query, QueryError};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::breaker::{Attempt, AttemptResult, Breaker, Change};
use super::{MetricsOptions, values};
use crate::call::Call;
use crate::client::{Client, Clients};
use crate::error::ApiError;
use crate::fair::{FairPermit, FairSemaphore, Share};
use crate::mapper::{MapError, Mapper};

/// The metrics APIs of a cluster. Each query is a separate request.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) resource: Source,
    pub(super) custom: Arc<Source>,
    pub(super) external: Arc<Source>,
    pub(super) groups: Groups,
    pub(super) versions: values::Versions,
    pub(super) mapper: Arc<Mapper>,
    total: Semaphore,
    options: MetricsOptions,
}

/// The API groups that serve custom and external metrics.
#[derive(Debug)]
pub(super) struct Groups {
    pub(super) custom: Arc<str>,
    pub(super) external: Arc<str>,
    /// The name, in `concertina_kube_api_requests_total`, of requests for metrics of objects.
    pub(super) custom_requests: Arc<str>,
    pub(super) external_requests: Arc<str>,
    /// The group that serves custom and external metrics in place of the default groups. `None` for the default groups.
    other: Option<Arc<str>>,
}

impl Groups {
    fn new(custom: Arc<str>, external: Arc<str>, other: Option<Arc<str>>) -> Self {
        let requests = |group: &str| format!("*.{group}").into();
        Self {
            custom_requests: requests(&custom),
            external_requests: requests(&external),
            custom,
            external,
            other,
        }
    }
}

/// An API, with its client, the limit of its requests in flight, and its circuit breaker.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) client: Client,
    permits: Arc<FairSemaphore>,
    pub(super) breaker: Breaker<Query, QueryError>,
}

/// The permits of one request in flight.
#[derive(Debug)]
pub(super) struct Permits<'a> {
    _api: FairPermit,
    _total: Option<SemaphorePermit<'a>>,
}

/// An error of the request for a query.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("unable to map kind {kind} to resource: {error}")]
    Map { kind: String, error: MapError },
    #[error("no custom metrics API ({0}) registered")]
    NoCustomMetricsApi(Arc<str>),
    #[error("no known available metric versions found")]
    NoCustomMetricsVersion,
}

impl FetchError {
    fn class(&self) -> MetricFailureClass {
        match self {
            Self::Api(error) => error.metric_class(),
            Self::Map { .. } => MetricFailureClass::Other,
            Self::NoCustomMetricsApi(_) | Self::NoCustomMetricsVersion => MetricFailureClass::ApiNotServed,
        }
    }

    /// Returns the meaning of the error for the metrics API as a whole. `error` is the error of the query.
    fn ending<'a>(&self, error: &'a QueryError) -> AttemptResult<'a, QueryError> {
        match self {
            Self::Api(trouble) if trouble.is_transient() => AttemptResult::Failed(error),
            // A request that was never sent reveals nothing about the API.
            Self::Map { .. } | Self::Api(ApiError::Request(_) | ApiError::Refused(_)) => {
                AttemptResult::Unknown
            }
            Self::Api(_) | Self::NoCustomMetricsApi(_) | Self::NoCustomMetricsVersion => {
                AttemptResult::Answered
            }
        }
    }

    /// Returns whether every query for pod metrics would have failed, because the API is down, is absent, or does not
    /// authenticate the client.
    fn is_of_api(&self) -> bool {
        match self {
            Self::Api(trouble) => trouble.is_transient() || matches!(trouble.code(), Some(401 | 404)),
            Self::Map { .. } | Self::NoCustomMetricsApi(_) | Self::NoCustomMetricsVersion => false,
        }
    }
}

/// The error of a query.
#[derive(Debug)]
pub(super) struct FailedQuery {
    pub(super) error: QueryError,
    /// Whether every query for pod metrics would have failed.
    pub(super) is_of_api: bool,
}

impl Source {
    fn new(client: &Client, permits: usize) -> Self {
        Self {
            client: client.clone(),
            permits: Arc::new(FairSemaphore::new(permits, Share::AsFree)),
            breaker: Breaker::default(),
        }
    }
}

impl Inner {
    pub(super) fn new(clients: &Clients, mapper: Arc<Mapper>, options: MetricsOptions) -> Self {
        let total = options.total.clamp(1, Semaphore::MAX_PERMITS);
        // The third API must get permits even if the other two APIs hang.
        let per_api = options.per_api.min((total - 1) / 2).max(1);
        let groups = Groups::new(Api::Custom.group().into(), Api::External.group().into(), None);
        Self {
            resource: Source::new(&clients.resource_metrics, per_api),
            custom: Arc::new(Source::new(&clients.custom_metrics, per_api)),
            external: Arc::new(Source::new(&clients.external_metrics, per_api)),
            versions: values::Versions::new(
                clients.discovery.clone(),
                Arc::clone(&groups.custom),
                options.version_life,
            ),
            groups,
            mapper,
            total: Semaphore::new(total),
            options,
        }
    }

    /// Creates the API of one group that serves custom and external metrics in place of the default groups. Its queries
    /// share no limits with the queries of the default groups.
    pub(super) fn of_group(
        clients: &Clients,
        mapper: Arc<Mapper>,
        group: &Arc<str>,
        options: MetricsOptions,
    ) -> Self {
        let groups = Groups::new(Arc::clone(group), Arc::clone(group), Some(Arc::clone(group)));
        let source = Arc::new(Source::new(&clients.custom_metrics.with_own_bucket(), options.per_api.max(1)));
        Self {
            resource: Source::new(&clients.resource_metrics, 1),
            custom: Arc::clone(&source),
            external: source,
            versions: values::Versions::new(
                clients.discovery.clone(),
                Arc::clone(group),
                options.version_life,
            ),
            groups,
            mapper,
            total: Semaphore::new(Semaphore::MAX_PERMITS),
            // The observer's series describe the default groups.
            options: MetricsOptions { observer: None, ..options },
        }
    }

    /// Returns whether the custom metrics API fails as a whole.
    pub(super) fn is_custom_down(&self) -> bool {
        self.custom.breaker.is_open()
    }

    /// Returns the API that answers a query.
    pub(super) fn source(&self, api: Api) -> &Source {
        match api {
            Api::Resource => &self.resource,
            Api::Custom => &self.custom,
            Api::External => &self.external,
        }
    }

    /// Returns the stored error of a query that is not sent, because its API is down.
    pub(super) fn spared(&self, api: Api, error: QueryError) -> FailedQuery {
        if let Some(observer) = &self.options.observer {
            observer.circuit_open(api);
        }
        FailedQuery { error, is_of_api: true }
    }

    /// Waits for the permits of a request.
    pub(super) async fn permits(&self, source: &Source, namespace: &Arc<str>) -> Permits<'_> {
        // The permit of the API is acquired before the permit of the total, because a slow API must not hold permits of
        // the total. The semaphore of the total is never closed, so `acquire` cannot fail.
        let api = source.permits.acquire(namespace).await;
        Permits { _api: api, _total: self.total.acquire().await.ok() }
    }

    /// Records the end of a request.
    pub(super) fn ended<T>(
        &self,
        api: Api,
        attempt: Attempt<'_, Query, QueryError>,
        answer: Result<T, FetchError>,
    ) -> Result<T, FailedQuery> {
        let (answer, change) = match answer {
            Ok(answer) => (Ok(answer), attempt.end(&AttemptResult::Answered)),
            Err(trouble) => {
                let error = QueryError::new(trouble.class(), trouble.to_string());
                let change = attempt.end(&trouble.ending(&error));
                (Err(FailedQuery { error, is_of_api: trouble.is_of_api() }), change)
            }
        };
        if let Some(change) = change {
            self.report(api, change);
        }
        answer
    }

    fn report(&self, api: Api, change: Change) {
        match (change, &self.groups.other) {
            (Change::Opened, None) => {
                tracing::warn!(?api, "metrics API is down, probing it once a second");
            }
            (Change::Closed, None) => tracing::info!(?api, "metrics API recovered"),
            (Change::Opened, Some(group)) => {
                tracing::warn!(group = &**group, "metrics API is down, probing it once a second");
            }
            (Change::Closed, Some(group)) => tracing::info!(group = &**group, "metrics API recovered"),
        }
        if let Some(observer) = &self.options.observer {
            observer.down(api, change == Change::Opened);
        }
    }

    /// Returns the size limit of a response, in bytes.
    pub(super) fn max_response(&self) -> usize {
        self.options.max_response
    }

    pub(super) fn bounded(&self, call: Call) -> Call {
        call.within(self.options.timeout).at_most(self.options.max_response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_that_was_not_sent_says_nothing_about_the_api() {
        let error = QueryError::new(MetricFailureClass::Other, "text");
        let ending = |trouble| FetchError::Api(trouble).ending(&error);
        assert_eq!(ending(ApiError::Request("the URL is too long".to_owned())), AttemptResult::Unknown);
        assert_eq!(ending(ApiError::TooLarge { limit: 1 }), AttemptResult::Answered);
    }
}
