//! Instant queries to a server with Prometheus' query API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::fair::{FairSemaphore, Share};
use cluster::metrics::breaker::{AttemptResult, Breaker, Change, StoredText};
use cluster::metrics::flight::Flights;
use futures::FutureExt;
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use promql::{Answer, Query, Tenant, Variables};
use ring::digest::{SHA256, digest};
use tokio::time::{Instant, timeout};

use crate::error::SourceError;
use crate::file::PrometheusServer;
use crate::http::{Http, RequestError};
use crate::{Numbers, Target, shared_for};

/// The interval between evictions of answers.
const SWEEP: Duration = Duration::from_secs(1);
/// Idle connections to a server.
const IDLE_CONNECTIONS: usize = 8;

/// One server, with the queries in flight and the answers of its interval.
#[derive(Debug)]
pub(crate) struct Server {
    settings: Arc<PrometheusServer>,
    http: Http,
    permits: Arc<FairSemaphore>,
    /// By the text of the query. Errors are answers, too: a query that fails is sent once per interval.
    flights: Flights<Arc<str>, Arc<Response>, SourceError>,
    swept: Mutex<Option<Instant>>,
    /// A server that is down gets one query per second, and no query waits for its time limit.
    breaker: Arc<Breaker<QueryDigest, SourceError>>,
}

/// The SHA-256 of a query. A query with the names of many pods would be too long to keep.
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

/// What the result of a query says about its server.
fn ending(answer: &Result<Answer, SourceError>) -> AttemptResult<'_, SourceError> {
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
    pub(crate) fn new(settings: PrometheusServer, dial: Arc<dyn crate::http::Dial>) -> Self {
        Self {
            http: Http::new(dial, IDLE_CONNECTIONS),
            permits: Arc::new(FairSemaphore::new(settings.concurrency, Share::AsFree)),
            flights: Flights::new(Some(shared_for(settings.interval)), || SourceError::Panicked),
            swept: Mutex::default(),
            breaker: Arc::default(),
            settings: Arc::new(settings),
        }
    }

    pub(crate) fn settings(&self) -> &PrometheusServer {
        &self.settings
    }

    /// Whether the server fails as a whole.
    pub(crate) fn is_down(&self) -> bool {
        self.breaker.is_open()
    }

    /// The text of a query that is sent for a target.
    pub(crate) fn text(&self, query: &str, target: &Target<'_>) -> Result<String, SourceError> {
        let namespace = target.namespace;
        if self.settings.namespaces.as_ref().is_some_and(|namespaces| !namespaces.contains(&**namespace)) {
            return Err(SourceError::Namespace);
        }
        let label = self.settings.enforce_namespace_label.as_deref();
        let query = Query::parse(query, label.map(|label| Tenant { label, namespace }))?;
        let pods: Vec<&str> =
            if query.uses_pods() { target.pods.iter().map(|pod| &*pod.name).collect() } else { Vec::new() };
        Ok(query.text(&Variables { namespace, name: target.name, pods: &pods })?)
    }

    /// One number for each pod of the target. Pods without a series are left out.
    pub(crate) async fn by_pod(&self, text: &str, target: &Target<'_>) -> Result<Numbers, SourceError> {
        let response = self.ask(text, target.namespace).await?;
        let mut values = response.answer.clone()?.by_pod()?;
        let pods = target.pods.iter();
        let values: BTreeMap<Arc<str>, f64> =
            pods.filter_map(|pod| Some((Arc::clone(&pod.name), values.remove(&*pod.name)?))).collect();
        let oldest = response.sent;
        Ok(Numbers { values, oldest, missing: None })
    }

    /// One number. `None` for an empty vector, which is neither 0 nor an error.
    pub(crate) async fn single(
        &self,
        text: &str,
        namespace: &Arc<str>,
    ) -> Result<(Option<f64>, Instant), SourceError> {
        let response = self.ask(text, namespace).await?;
        let value = response.answer.as_ref().map_err(Clone::clone)?.single()?;
        Ok((value, response.sent))
    }

    async fn ask(&self, text: &str, namespace: &Arc<str>) -> Result<Arc<Response>, SourceError> {
        self.sweep();
        let text: Arc<str> = text.into();
        let (settings, http, permits) =
            (Arc::clone(&self.settings), self.http.clone(), Arc::clone(&self.permits));
        let (query, namespace) = (Arc::clone(&text), Arc::clone(namespace));
        let breaker = Arc::clone(&self.breaker);
        self.flights
            .join(text, move |sent| {
                async move {
                    let key = QueryDigest::new(&query);
                    let failed = |error| Arc::new(Response { sent: Instant::now(), answer: Err(error) });
                    let mut attempt = match breaker.enter(&key).await {
                        Ok(attempt) => attempt,
                        Err(error) => {
                            sent.now();
                            return Ok(failed(error));
                        }
                    };
                    let _permit = permits.acquire(&namespace).await;
                    sent.now();
                    if let Err(error) = attempt.start() {
                        return Ok(failed(error));
                    }
                    let started = Instant::now();
                    let answer = timeout(settings.timeout, send(&settings, &http, &query)).await;
                    let answer =
                        answer.unwrap_or_else(|_| Err(RequestError::Timeout(settings.timeout).into()));
                    let server = &*settings.name;
                    match attempt.end(&ending(&answer)) {
                        Some(Change::Opened) => {
                            tracing::warn!(server, "metric source is down, probing it once a second");
                        }
                        Some(Change::Closed) => tracing::info!(server, "metric source recovered"),
                        None => {}
                    }
                    Ok(Arc::new(Response { sent: started, answer }))
                }
                .boxed()
            })
            .await
    }

    /// Drops answers that no later query can use.
    fn sweep(&self) {
        let now = Instant::now();
        let mut swept = self.swept.lock();
        if swept.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP) {
            *swept = Some(now);
            drop(swept);
            self.flights.sweep(now);
        }
    }
}

async fn send(settings: &PrometheusServer, http: &Http, query: &str) -> Result<Answer, SourceError> {
    let url = format!("{}/api/v1/query", settings.url.to_string().trim_end_matches('/'));
    let form = format!(
        "query={}&timeout={}ms",
        utf8_percent_encode(query, NON_ALPHANUMERIC),
        settings.timeout.as_millis()
    );
    let response = http.post_form(&url, form, settings.bearer_token_file.as_deref()).await?;
    let status = response.status;
    let body = response.whole(settings.max_bytes).await?;
    match Answer::parse(&body, settings.max_series, settings.allow_partial) {
        // A proxy or a server that is down answers with a text of its own.
        Err(promql::AnswerError::Malformed(_)) if !status.is_success() => {
            Err(RequestError::Status(status).into())
        }
        answer => Ok(answer?),
    }
}
