//! The client of the three metrics APIs, and of other API groups that serve the same types.
//!
//! Equal queries in flight share one request. With `--share-metrics`, later queries share recent responses, and HPAs of
//! one namespace can share one list of its pods. The number of requests in flight is bounded per API and in total. Each
//! request is bounded in time and size. A circuit breaker limits the requests to an API that is down. Error texts are
//! those of Go's clients.

mod apis;
pub mod breaker;
pub mod flight;
mod share;
mod usage;
mod values;

use std::sync::Arc;
use std::time::Duration;

use autoscaling::failure::MetricFailureClass;
use autoscaling::query::{Answer, Api, Query, QueryError};
use futures::FutureExt;
use futures::future::BoxFuture;

use self::apis::{FailedQuery, FetchError, Inner};
use self::flight::Flights;
use self::share::Shares;
pub use self::share::{NamespacePods, Sharing};
use self::usage::Reader;
pub use self::usage::Snapshot;
#[cfg(fuzzing)]
pub(super) use self::values::{CUSTOM_KIND, EXTERNAL_KIND, check_kind, custom_decoder, external_decoder};
use super::call::SentTime;
use super::client::Clients;
use super::mapper::Mapper;

/// Answers metric queries.
pub trait Metrics: std::fmt::Debug + Send + Sync {
    /// Answers one query. Equal queries may share a request.
    fn fetch(&self, query: Query) -> BoxFuture<'_, Result<Answer, QueryError>> {
        self.fetch_within(query, Duration::MAX)
    }

    /// Like [`Self::fetch`], but accepts only responses to requests sent at most `age` ago, even if responses are
    /// shared for longer.
    fn fetch_within(&self, query: Query, age: Duration) -> BoxFuture<'_, Result<Answer, QueryError>>;
}

/// Options of the metrics clients.
#[derive(Debug, Clone)]
pub struct MetricsOptions {
    /// `--metrics-timeout`: the time limit of one request.
    pub timeout: Duration,
    /// `--max-metrics-response`: the size limit of one response, in bytes.
    pub max_response: usize,
    /// Maximum number of requests in flight per API, reduced to less than half of `total`.
    pub per_api: usize,
    /// Maximum number of requests in flight in total.
    pub total: usize,
    /// The cache lifetime of the discovered version of the custom metrics API, usually one sync period.
    pub version_life: Duration,
    /// Receives the availability of the metrics APIs.
    pub observer: Option<Arc<dyn ApiObserver>>,
    /// `--share-metrics`: options of shared responses. `None` shares only requests in flight.
    pub sharing: Option<Sharing>,
}

/// Receives the availability of the metrics APIs.
pub trait ApiObserver: std::fmt::Debug + Send + Sync {
    /// Called when the availability of an API changes. `true` means that several consecutive queries failed, and that
    /// the API is now queried at a reduced rate. `false` means that the API has responded again.
    fn down(&self, api: Api, down: bool);

    /// Called when a query was answered with its last error because its API is down.
    fn circuit_open(&self, api: Api);
}

impl Default for MetricsOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_mins(1),
            max_response: 64 << 20,
            per_api: 256,
            total: 512,
            version_life: Duration::from_secs(15),
            observer: None,
            sharing: None,
        }
    }
}

/// The client of the metrics APIs of a cluster. Clones share their state.
#[derive(Debug, Clone)]
pub struct ApiMetrics {
    inner: Arc<Inner>,
    mode: FetchMode,
}

#[derive(Debug, Clone)]
enum FetchMode {
    /// Equal queries share a request only while the request is in flight.
    Alone(Flights<Query, Answer, QueryError>),
    Shared(Arc<Shares>),
}

impl ApiMetrics {
    /// Creates a client of the metrics APIs from `clients`.
    pub fn new(clients: &Clients, mapper: Arc<Mapper>, mut options: MetricsOptions) -> Self {
        let mode = FetchMode::new(&mut options);
        Self { inner: Arc::new(Inner::new(clients, mapper, options)), mode }
    }
}

/// The client of one API group that serves custom and external metrics in place of the default groups. Clones share
/// their state.
#[derive(Debug, Clone)]
pub struct GroupMetrics(ApiMetrics);

impl GroupMetrics {
    /// Creates a client of `group` from `clients`, with a separate token bucket. The option `per_api` limits its
    /// requests in flight. The options `total` and `observer` have no effect.
    pub fn new(
        clients: &Clients,
        mapper: Arc<Mapper>,
        group: &Arc<str>,
        mut options: MetricsOptions,
    ) -> Self {
        let mode = FetchMode::new(&mut options);
        Self(ApiMetrics { inner: Arc::new(Inner::of_group(clients, mapper, group, options)), mode })
    }

    /// Returns whether the group fails as a whole, and is queried at a reduced rate.
    pub fn is_down(&self) -> bool {
        self.0.inner.is_custom_down()
    }
}

impl Metrics for GroupMetrics {
    fn fetch_within(&self, query: Query, age: Duration) -> BoxFuture<'_, Result<Answer, QueryError>> {
        self.0.fetch_within(query, age)
    }
}

impl FetchMode {
    fn new(options: &mut MetricsOptions) -> Self {
        match options.sharing.take() {
            Some(sharing) => Self::Shared(Arc::new(Shares::new(sharing))),
            None => Self::Alone(Flights::new(None, panicked)),
        }
    }
}

impl Metrics for ApiMetrics {
    fn fetch_within(&self, query: Query, age: Duration) -> BoxFuture<'_, Result<Answer, QueryError>> {
        match &self.mode {
            FetchMode::Alone(flights) => {
                let (inner, asked) = (Arc::clone(&self.inner), query.clone());
                flights
                    .join_within(query, age, move |sent| {
                        async move { inner.fetch(&asked, &sent).await }.boxed()
                    })
                    .boxed()
            }
            FetchMode::Shared(shares) => shares.fetch(&self.inner, query, age).boxed(),
        }
    }
}

impl Inner {
    /// Sends the request of a query.
    async fn fetch(&self, query: &Query, sent: &SentTime) -> Result<Answer, QueryError> {
        self.limited(query, self.request(query, sent)).await.map_err(|unanswered| unanswered.error)
    }

    /// Fetches the usage of the pods that a selector matches. The empty selector matches all pods of the
    /// namespace.
    async fn usage(
        &self,
        namespace: &Arc<str>,
        selector: &Arc<str>,
        reader: Reader,
        sent: &SentTime,
    ) -> Result<Snapshot, FailedQuery> {
        let query = Query::Resource { namespace: Arc::clone(namespace), selector: Arc::clone(selector) };
        self.limited(&query, usage::fetch(self, namespace, selector, reader, sent)).await
    }

    async fn request(&self, query: &Query, sent: &SentTime) -> Result<Answer, FetchError> {
        match query {
            Query::Resource { namespace, selector } => {
                let usage = usage::fetch(self, namespace, selector, Reader::without_labels(), sent).await?;
                Ok(Answer::Resource(usage.all()))
            }
            Query::Pods { namespace, metric, selector, metric_selector } => {
                values::ask_pods(self, namespace, metric, selector, metric_selector, sent).await
            }
            Query::Object { namespace, group, kind, name, metric, metric_selector } => {
                let described = values::DescribedObject { namespace, group, kind, name };
                values::ask_object(self, described, metric, metric_selector, sent).await
            }
            Query::External { namespace, metric, selector } => {
                values::ask_external(self, namespace, metric, selector, sent).await
            }
        }
    }
}

/// Returns the error for the callers of a request that panicked.
fn panicked() -> QueryError {
    QueryError::new(MetricFailureClass::Other, "the metrics request panicked: see the log")
}
