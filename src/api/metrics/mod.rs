//! The three metrics APIs behind one question and answer.
//!
//! Equal questions that are under way at the same time share one request. How many are under way is bounded per API
//! and in all; each is bounded in time and size. An API that is down is hardly asked. Errors are the texts that Go's
//! clients print.

mod breaker;
mod custom;
mod external;
mod flight;
#[cfg(fuzzing)]
pub(super) mod fuzzing;
mod resource;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use autoscaling::query::{Answer, Api, Query, QueryError};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;

use self::breaker::{Breaker, Change, Ending};
use self::flight::Flights;
use super::call::Call;
use super::client::{Client, Clients};
use super::error::ApiError;
use super::mapper::{MapError, Mapper};

/// Answers metric queries.
pub trait Metrics: std::fmt::Debug + Send + Sync {
    /// Answers one query. Equal queries may be answered together.
    fn fetch(&self, query: Query) -> BoxFuture<'_, Result<Answer, QueryError>>;
}

/// Limits of the metrics clients.
#[derive(Debug, Clone)]
pub struct MetricsOptions {
    /// `--metrics-timeout`: how long one answer may take.
    pub timeout: Duration,
    /// `--max-metrics-response`: the largest answer, in bytes.
    pub max_response: usize,
    /// Requests under way per API, but less than half of those in all.
    pub per_api: usize,
    /// Requests under way in all.
    pub total: usize,
    /// How long the version of the custom metrics API holds: one sync period.
    pub version_life: Duration,
    /// Who is told which of the APIs are down.
    pub observer: Option<Arc<dyn ApiObserver>>,
}

/// Told which metrics APIs are down.
pub trait ApiObserver: std::fmt::Debug + Send + Sync {
    /// An API has failed several times in a row and is hardly asked from now on (`true`), or it has answered again.
    fn down(&self, api: Api, down: bool);

    /// A query was answered with the error that it got last, because its API is down.
    fn spared(&self, api: Api);
}

impl Default for MetricsOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            max_response: 64 << 20,
            per_api: 256,
            total: 512,
            version_life: Duration::from_secs(15),
            observer: None,
        }
    }
}

/// The metrics APIs of a cluster. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ApiMetrics {
    inner: Arc<Inner>,
    flights: Flights,
}

#[derive(Debug)]
struct Inner {
    resource: Source,
    custom: Source,
    external: Source,
    versions: custom::Versions,
    mapper: Arc<Mapper>,
    total: Semaphore,
    options: MetricsOptions,
}

/// One API: its client, and how many requests may be under way.
#[derive(Debug)]
struct Source {
    client: Client,
    permits: Semaphore,
    breaker: Breaker,
}

impl ApiMetrics {
    /// The metrics APIs, asked through these clients.
    pub fn new(clients: &Clients, mapper: Arc<Mapper>, options: MetricsOptions) -> Self {
        let total = options.total.clamp(1, Semaphore::MAX_PERMITS);
        // Two APIs that hang together must leave a place to the third.
        let per_api = options.per_api.min((total - 1) / 2).max(1);
        let source = |client: &Client| Source {
            client: client.clone(),
            permits: Semaphore::new(per_api),
            breaker: Breaker::new(),
        };
        let inner = Inner {
            resource: source(&clients.resource_metrics),
            custom: source(&clients.custom_metrics),
            external: source(&clients.external_metrics),
            versions: custom::Versions::new(clients.discovery.clone(), options.version_life),
            mapper,
            total: Semaphore::new(total),
            options,
        };
        Self { inner: Arc::new(inner), flights: Flights::default() }
    }
}

impl Metrics for ApiMetrics {
    fn fetch(&self, query: Query) -> BoxFuture<'_, Result<Answer, QueryError>> {
        let inner = Arc::clone(&self.inner);
        let asked = query.clone();
        self.flights.join(query, move || async move { inner.ask(&asked).await }.boxed()).boxed()
    }
}

/// Why a metrics API gave no answer.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("unable to map kind {kind} to resource: {error}")]
    Map { kind: String, error: MapError },
    #[error("no custom metrics API (custom.metrics.k8s.io) registered")]
    NoCustomMetricsApi,
}

impl FetchError {
    /// What it says of the metrics API as a whole.
    fn ending<'a>(&self, error: &'a QueryError) -> Ending<'a> {
        match self {
            Self::Api(trouble) if trouble.is_transient() => Ending::Failed(error),
            Self::Map { .. } => Ending::Unknown,
            Self::Api(_) | Self::NoCustomMetricsApi => Ending::Answered,
        }
    }
}

impl Inner {
    async fn ask(&self, query: &Query) -> Result<Answer, QueryError> {
        let api = query.api();
        let source = match api {
            Api::Resource => &self.resource,
            Api::Custom => &self.custom,
            Api::External => &self.external,
        };
        let spared = |error| {
            if let Some(observer) = &self.options.observer {
                observer.spared(api);
            }
            error
        };
        let mut attempt = source.breaker.enter(query).await.map_err(spared)?;
        // Never closed, so these cannot fail. The API's own permit comes first: a slow API must not hold those of all.
        let _permit = source.permits.acquire().await;
        let _total = self.total.acquire().await;
        attempt.begin().map_err(spared)?;
        let (answer, change) = match self.request(query).await {
            Ok(answer) => (Ok(answer), attempt.end(Ending::Answered)),
            Err(trouble) => {
                let error = QueryError { message: trouble.to_string().into() };
                let change = attempt.end(trouble.ending(&error));
                (Err(error), change)
            }
        };
        if let Some(change) = change {
            self.tell(api, change);
        }
        answer
    }

    async fn request(&self, query: &Query) -> Result<Answer, FetchError> {
        match query {
            Query::Resource { namespace, selector } => resource::ask(self, namespace, selector).await,
            Query::Pods { namespace, metric, selector, metric_selector } => {
                custom::ask_pods(self, namespace, metric, selector, metric_selector).await
            }
            Query::Object { namespace, group, kind, name, metric, metric_selector } => {
                let described = custom::Described { namespace, group, kind, name };
                custom::ask_object(self, described, metric, metric_selector).await
            }
            Query::External { namespace, metric, selector } => {
                external::ask(self, namespace, metric, selector).await
            }
        }
    }

    fn tell(&self, api: Api, change: Change) {
        match change {
            Change::Opened => {
                tracing::warn!(?api, "a metrics API is down: it is asked once a second from now on");
            }
            Change::Closed => tracing::info!(?api, "a metrics API answers again"),
        }
        if let Some(observer) = &self.options.observer {
            observer.down(api, change == Change::Opened);
        }
    }

    fn bounded(&self, call: Call) -> Call {
        call.within(self.options.timeout).at_most(self.options.max_response)
    }
}
