//! Instant and range queries to a server with Prometheus' query API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::fair::{FairPermit, FairSemaphore, Share};
use cluster::metrics::breaker::{AttemptResult, Breaker, Change, StoredText};
use cluster::metrics::flight::Flights;
use futures::FutureExt;
use jiff::Timestamp;
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use promql::{Answer, AnswerError, PodNames, Query, RangeAnswer, Tenant, Variables};
use ring::digest::{SHA256, digest};
use tokio::time::{Instant, timeout};

use crate::dial::Dial;
use crate::file::PrometheusServer;
use crate::http::{Http, RequestError, SourceError};
use crate::queries::ParsedQueries;
use crate::{Form, Numbers, Target, shared_for};

/// The interval between evictions of shared responses.
const SWEEP: Duration = Duration::from_secs(1);
/// Maximum number of idle connections to a server.
const IDLE_CONNECTIONS: usize = 8;
/// Minimum step of a chart in seconds, equal to the default sync period.
const SHORTEST_STEP: u64 = 15;
/// Maximum number of steps of a chart. Prometheus refuses more than 11,000.
const MAX_TIMES: u64 = 480;

/// A range of past times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// The start, inclusive.
    pub start: Timestamp,
    /// The end, inclusive.
    pub end: Timestamp,
}

impl TimeRange {
    /// Returns a step for a chart of this range, in whole seconds.
    pub fn step(self) -> Duration {
        let seconds = u64::try_from(self.end.duration_since(self.start).as_secs()).unwrap_or_default();
        Duration::from_secs(seconds.div_ceil(MAX_TIMES).max(SHORTEST_STEP))
    }
}

/// The scale target whose past values are read.
#[derive(Debug, Clone, Copy)]
pub struct PastTarget<'a> {
    /// The namespace of the HPA and its pods.
    pub namespace: &'a Arc<str>,
    /// The kind of the target. The kind determines the form of the names of its pods.
    pub kind: &'a str,
    /// The name of the target.
    pub name: &'a str,
}

/// Past values of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct PastReading {
    /// The name of the Prometheus server in the source file.
    pub server: String,
    /// The total of all pods at each time, oldest first. Never empty.
    pub totals: Vec<(Timestamp, f64)>,
}

/// A server, with the queries in flight and the responses that equal queries share.
#[derive(Debug)]
pub(crate) struct Server {
    requests: Requests,
    /// Keyed by the text of the query. Errors are also shared, so a failing query is sent once per interval.
    flights: Flights<Arc<str>, Arc<Response>, SourceError>,
    swept: Mutex<Option<Instant>>,
    parsed: ParsedQueries,
    /// The turn of [`Sources::turn`](crate::Sources::turn).
    turn: Arc<FairSemaphore>,
}

/// The requests to a server, with their limits. Clones share the limits and the connections.
#[derive(Debug, Clone)]
struct Requests {
    settings: Arc<PrometheusServer>,
    http: Http,
    permits: Arc<FairSemaphore>,
    /// While the server is down, queries that failed before return their stored errors, except one probe per second.
    breaker: Arc<Breaker<QueryDigest, SourceError>>,
}

/// A query with the endpoint that answers it.
#[derive(Debug, Clone, Copy)]
struct Endpoint<'a> {
    /// The path after the URL of the server.
    path: &'a str,
    /// The query, as it is sent.
    query: &'a str,
    /// Further fields of the form, each after a `&`.
    fields: &'a str,
}

/// The SHA-256 digest of a query. A query with the names of many pods would be too long to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct QueryDigest([u8; 32]);

impl QueryDigest {
    fn new(text: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self(bytes)
    }
}

impl StoredText for QueryDigest {
    fn text_bytes(&self) -> usize {
        self.0.len()
    }
}

impl StoredText for SourceError {
    fn text_bytes(&self) -> usize {
        self.to_string().len()
    }
}

/// Classifies the result of a query for the breaker.
fn attempt_result<T>(answer: &Result<T, SourceError>) -> AttemptResult<'_, SourceError> {
    let Err(error) = answer else { return AttemptResult::Answered };
    match error {
        SourceError::Request(RequestError::Timeout(_) | RequestError::Connection(_)) => {
            AttemptResult::Failed(error)
        }
        SourceError::Request(RequestError::Status(status))
            if status.is_server_error() || *status == http::StatusCode::TOO_MANY_REQUESTS =>
        {
            AttemptResult::Failed(error)
        }
        SourceError::Request(RequestError::Token(_) | RequestError::Invalid(_)) => AttemptResult::Unknown,
        _ => AttemptResult::Answered,
    }
}

/// The response to a query.
#[derive(Debug)]
struct Response {
    sent: Instant,
    answer: Result<Answer, SourceError>,
}

impl Server {
    pub(crate) fn new(settings: PrometheusServer, dial: Arc<dyn Dial>) -> Self {
        Self {
            flights: Flights::new(Some(shared_for(settings.interval)), || SourceError::Panicked),
            swept: Mutex::default(),
            parsed: ParsedQueries::default(),
            turn: Arc::new(FairSemaphore::new(1, Share::All)),
            requests: Requests {
                http: Http::new(dial, IDLE_CONNECTIONS),
                permits: Arc::new(FairSemaphore::new(settings.concurrency, Share::AsFree)),
                breaker: Arc::default(),
                settings: Arc::new(settings),
            },
        }
    }

    pub(crate) fn settings(&self) -> &PrometheusServer {
        &self.requests.settings
    }

    /// Waits until no other caller has the turn.
    pub(crate) async fn turn(&self, namespace: &Arc<str>) -> FairPermit {
        self.turn.acquire(namespace).await
    }

    /// Returns whether the server fails as a whole.
    pub(crate) fn is_down(&self) -> bool {
        self.requests.breaker.is_open()
    }

    /// Parses a query, and restricts it to the namespace if the server enforces a namespace label.
    pub(crate) fn restricted(
        &self,
        query: &Arc<str>,
        namespace: &Arc<str>,
    ) -> Result<Arc<Query>, SourceError> {
        let settings = self.settings();
        if settings.namespaces.as_ref().is_some_and(|namespaces| !namespaces.contains(&**namespace)) {
            return Err(SourceError::Namespace);
        }
        let label = settings.enforce_namespace_label.as_deref();
        let parse = || Query::parse(query, label.map(|label| Tenant { label, namespace }));
        Ok(self.parsed.get(query, namespace, parse)?)
    }

    /// Returns the text of a query as it is sent for a target.
    pub(crate) fn text(&self, query: &Arc<str>, target: &Target<'_>) -> Result<String, SourceError> {
        let namespace = target.namespace;
        let query = self.restricted(query, namespace)?;
        let pods: Vec<&str> =
            if query.uses_pods() { target.pods.iter().map(|pod| &*pod.name).collect() } else { Vec::new() };
        Ok(query.text(&Variables { namespace, name: target.name, pods: &pods })?)
    }

    /// Returns one number for each pod of the target. Pods without a series are omitted.
    pub(crate) async fn by_pod(&self, text: &str, target: &Target<'_>) -> Result<Numbers, SourceError> {
        let response = self.query(text, target.namespace).await?;
        let mut values = response.answer.clone()?.by_pod()?;
        let pods = target.pods.iter();
        let values: BTreeMap<Arc<str>, f64> =
            pods.filter_map(|pod| Some((Arc::clone(&pod.name), values.remove(&*pod.name)?))).collect();
        let oldest = response.sent;
        Ok(Numbers { values, oldest, page_age: Duration::ZERO, missing: None })
    }

    /// Returns one number and the time of its request. The number is `None` for an empty vector.
    pub(crate) async fn single(
        &self,
        text: &str,
        namespace: &Arc<str>,
    ) -> Result<(Option<f64>, Instant), SourceError> {
        let response = self.query(text, namespace).await?;
        let value = response.answer.as_ref().map_err(Clone::clone)?.single()?;
        Ok((value, response.sent))
    }

    /// Returns the total of a target at each step of a range, as pairs of milliseconds since the Unix epoch and the
    /// total. The total is the number of the query, or the sum over the past and current pods of the target.
    pub(crate) async fn totals(
        &self,
        text: &str,
        form: Form,
        target: &PastTarget<'_>,
        range: TimeRange,
        step: Duration,
    ) -> Result<Vec<(i64, f64)>, SourceError> {
        let answer = self.range(text, target.namespace, range, step).await?;
        Ok(match form {
            Form::Single => answer.single()?,
            Form::PerPod => {
                let names = PodNames::from_kind(target.kind);
                answer.sum_of_pods(|pod| names.is_pod(target.name, pod))?
            }
        })
    }

    /// Sends a range query.
    pub(crate) async fn range(
        &self,
        text: &str,
        namespace: &Arc<str>,
        range: TimeRange,
        step: Duration,
    ) -> Result<RangeAnswer, SourceError> {
        let (start, end, step) = (range.start.as_second(), range.end.as_second(), step.as_secs());
        let fields = format!("&start={start}&end={end}&step={step}");
        let endpoint = Endpoint { path: "/api/v1/query_range", query: text, fields: &fields };
        self.requests.post(endpoint, namespace, || {}, RangeAnswer::parse).await
    }

    async fn query(&self, text: &str, namespace: &Arc<str>) -> Result<Arc<Response>, SourceError> {
        self.sweep();
        let text: Arc<str> = text.into();
        let (requests, query, namespace) = (self.requests.clone(), Arc::clone(&text), Arc::clone(namespace));
        self.flights
            .join(text, move |sent| {
                async move {
                    let endpoint = Endpoint { path: "/api/v1/query", query: &query, fields: "" };
                    let mut started = None;
                    let on_sent = || {
                        sent.now();
                        started = Some(Instant::now());
                    };
                    let answer = requests.post(endpoint, &namespace, on_sent, Answer::parse).await;
                    let sent = started.unwrap_or_else(Instant::now);
                    Ok(Arc::new(Response { sent, answer }))
                }
                .boxed()
            })
            .await
    }

    /// Drops responses that no later query can share.
    fn sweep(&self) {
        let now = Instant::now();
        let mut swept = self.swept.lock();
        if swept.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP) {
            *swept = Some(now);
            drop(swept);
            self.flights.sweep(now);
            self.parsed.sweep();
        }
    }
}

impl Requests {
    /// Sends a query within the limits of its server, and reads the answer. `on_sent` is called once: when the query
    /// has its permit, or when the breaker rejects the query.
    async fn post<T>(
        &self,
        endpoint: Endpoint<'_>,
        namespace: &Arc<str>,
        on_sent: impl FnOnce(),
        parse: fn(&[u8], usize, bool) -> Result<T, AnswerError>,
    ) -> Result<T, SourceError> {
        let key = QueryDigest::new(endpoint.query);
        let mut attempt = match self.breaker.enter(&key).await {
            Ok(attempt) => attempt,
            Err(error) => {
                on_sent();
                return Err(error);
            }
        };
        let _permit = self.permits.acquire(namespace).await;
        on_sent();
        attempt.start()?;
        let settings = &*self.settings;
        let answer = timeout(settings.timeout, self.send(endpoint, parse)).await;
        let answer = answer.unwrap_or_else(|_| Err(RequestError::Timeout(settings.timeout).into()));
        let server = &*settings.name;
        match attempt.end(&attempt_result(&answer)) {
            Some(Change::Opened) => tracing::warn!(server, "metric source is down, probing it once a second"),
            Some(Change::Closed) => tracing::info!(server, "metric source recovered"),
            None => {}
        }
        answer
    }

    async fn send<T>(
        &self,
        Endpoint { path, query, fields }: Endpoint<'_>,
        parse: fn(&[u8], usize, bool) -> Result<T, AnswerError>,
    ) -> Result<T, SourceError> {
        let settings = &*self.settings;
        let url = format!("{}{path}", settings.url.to_string().trim_end_matches('/'));
        let form = format!(
            "query={}&timeout={}ms{fields}",
            utf8_percent_encode(query, NON_ALPHANUMERIC),
            settings.timeout.as_millis()
        );
        let response = self.http.post_form(&url, form, settings.bearer_token_file.as_deref()).await?;
        let status = response.status;
        let body = response.whole(settings.max_bytes).await?;
        match parse(&body, settings.max_series, settings.allow_partial) {
            // A proxy, or a server that is down, answers with a text in another format.
            Err(AnswerError::Malformed(_)) if !status.is_success() => {
                Err(RequestError::Status(status).into())
            }
            answer => Ok(answer?),
        }
    }
}

/// A server that no source file names, for commands that read the past. Its limits are those of its settings.
#[derive(Debug)]
pub struct PastServer(Server);

impl PastServer {
    /// Creates a server whose connections `dial` opens.
    pub fn new(settings: PrometheusServer, dial: Arc<dyn Dial>) -> Self {
        Self(Server::new(settings, dial))
    }

    /// Sends a range query, as it is, for an HPA of a namespace. Prometheus refuses more than 11,000 steps.
    ///
    /// # Errors
    /// Returns the error of the request or of its answer.
    pub async fn range(
        &self,
        query: &str,
        namespace: &Arc<str>,
        range: TimeRange,
        step: Duration,
    ) -> Result<RangeAnswer, SourceError> {
        self.0.range(query, namespace, range, step).await
    }
}
