//! The client of the three metrics APIs, and of other API groups that serve the same types.
//!
//! Each query passes the stages of one pipeline, from `ApiMetrics::answer` to `Inner::send`:
//!
//! | stage | module | function |
//! |---|---|---|
//! | share | `share` | with `--share-metrics`, one list of a namespace answers the queries of several HPAs |
//! | in flight | [`flight`] | equal queries share one request, and with `--share-metrics` its response for some time |
//! | breaker | [`breaker`] | while the API is down, the last error answers a query, and only probes are sent |
//! | permit | `apis` | requests in flight are bounded per API and in total, and namespaces take turns |
//! | request | `usage`, `values` | the request, with bounds of time and size. Error texts are those of Go's clients |

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
    shares: Arc<Shares>,
}

impl ApiMetrics {
    /// Creates a client of the metrics APIs from `clients`.
    pub fn new(clients: &Clients, mapper: Arc<Mapper>, mut options: MetricsOptions) -> Self {
        let shares = Arc::new(Shares::new(options.sharing.take()));
        Self { inner: Arc::new(Inner::new(clients, mapper, options)), shares }
    }

    /// Answers a query with a response to a request that was sent at most `age` ago: from the share, or from a request
    /// in flight.
    async fn answer(&self, query: Query, age: Duration) -> Result<Answer, QueryError> {
        if let Some(answer) = self.shares.select(&self.inner, &query, age).await {
            return answer;
        }
        let (inner, shares, asked) = (Arc::clone(&self.inner), Arc::clone(&self.shares), query.clone());
        let request = move |sent: SentTime| async move { inner.fetch(&shares, &asked, &sent).await }.boxed();
        self.shares.in_flight(query, age, request).await
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
        let shares = Arc::new(Shares::new(options.sharing.take()));
        Self(ApiMetrics { inner: Arc::new(Inner::of_group(clients, mapper, group, options)), shares })
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

impl Metrics for ApiMetrics {
    fn fetch_within(&self, query: Query, age: Duration) -> BoxFuture<'_, Result<Answer, QueryError>> {
        self.answer(query, age).boxed()
    }
}

impl Inner {
    /// Sends a request within the limits of its API. While the circuit of the API is open, a stored error may answer
    /// the query instead.
    async fn send<T>(
        &self,
        query: &Query,
        request: impl Future<Output = Result<T, FetchError>>,
    ) -> Result<T, FailedQuery> {
        let source = self.source(query.api());
        let spared = |error| self.spared(query.api(), error);
        let mut attempt = source.breaker.enter(query).await.map_err(spared)?;
        let _permits = self.permits(source, query.namespace()).await;
        attempt.start().map_err(spared)?;
        let answer = request.await;
        self.ended(query.api(), attempt, answer)
    }

    /// Fetches the answer to a query.
    async fn fetch(&self, shares: &Shares, query: &Query, sent: &SentTime) -> Result<Answer, QueryError> {
        let answer = match query {
            Query::Resource { namespace, selector } => {
                let usage = self.usage(namespace, selector, Reader::without_labels(), sent).await;
                usage.map(|usage| {
                    shares.answered(namespace, usage.bytes());
                    Answer::Resource(usage.all())
                })
            }
            Query::Pods { namespace, metric, selector, metric_selector } => {
                let request = values::ask_pods(self, namespace, metric, selector, metric_selector, sent);
                self.send(query, request).await
            }
            Query::Object { namespace, group, kind, name, metric, metric_selector } => {
                let described = values::DescribedObject { namespace, group, kind, name };
                self.send(query, values::ask_object(self, described, metric, metric_selector, sent)).await
            }
            Query::External { namespace, metric, selector } => {
                self.send(query, values::ask_external(self, namespace, metric, selector, sent)).await
            }
        };
        answer.map_err(|failed| failed.error)
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
        self.send(&query, usage::fetch(self, namespace, selector, reader, sent)).await
    }
}

/// Returns the error for the callers of a request that panicked.
fn panicked() -> QueryError {
    QueryError::new(MetricFailureClass::Other, "the metrics request panicked: see the log")
}
