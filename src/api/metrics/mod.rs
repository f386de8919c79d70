//! The three metrics APIs behind one question and answer.
//!
//! Equal questions that are under way at the same time share one request, and so do those that may share what was
//! answered a moment ago; HPAs of one namespace can share one list of its pods (`share`). How many requests are under
//! way is bounded per API and in all; each is bounded in time and size. An API that is down is hardly asked. Errors are
//! the texts that Go's clients print.

mod ask;
mod breaker;
mod custom;
mod external;
mod flight;
#[cfg(fuzzing)]
pub(super) mod fuzzing;
mod resource;
mod share;
mod usage;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use autoscaling::query::{Answer, Api, Query, QueryError};
use futures::FutureExt;
use futures::future::BoxFuture;

use self::ask::Inner;
use self::flight::Flights;
use self::share::Shares;
pub use self::share::{NamespacePods, Sharing};
pub use self::usage::Snapshot;
use super::client::Clients;
use super::mapper::Mapper;

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
    /// `--share-metrics`: how answers are shared; none: only by those who ask while it is under way.
    pub sharing: Option<Sharing>,
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
            sharing: None,
        }
    }
}

/// The metrics APIs of a cluster. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ApiMetrics {
    inner: Arc<Inner>,
    way: Way,
}

#[derive(Debug, Clone)]
enum Way {
    /// Each query is a request of its own, which equal ones join while it is under way.
    Alone(Flights<Query, Answer, QueryError>),
    Shared(Arc<Shares>),
}

impl ApiMetrics {
    /// The metrics APIs, asked through these clients.
    pub fn new(clients: &Clients, mapper: Arc<Mapper>, mut options: MetricsOptions) -> Self {
        let way = match options.sharing.take() {
            Some(sharing) => Way::Shared(Arc::new(Shares::new(sharing))),
            None => Way::Alone(Flights::new(None, panicked)),
        };
        Self { inner: Arc::new(Inner::new(clients, mapper, options)), way }
    }
}

impl Metrics for ApiMetrics {
    fn fetch(&self, query: Query) -> BoxFuture<'_, Result<Answer, QueryError>> {
        match &self.way {
            Way::Alone(flights) => {
                let (inner, asked) = (Arc::clone(&self.inner), query.clone());
                flights.join(query, move |sent| async move { inner.ask(&asked, &sent).await }.boxed()).boxed()
            }
            Way::Shared(shares) => shares.fetch(&self.inner, query).boxed(),
        }
    }
}

/// What those are told whose request panicked.
fn panicked() -> QueryError {
    QueryError { message: "the request panicked".into() }
}
