//! An API client with its token bucket, time limits and retries.
//!
//! A request waits for a token, passes the gate, is authenticated, and is sent. The time limit of a request starts when
//! the request receives its token. Within that limit, the client retries requests like client-go. Any request is
//! retried after 429 or 5xx with `Retry-After`. A GET is also retried if its connection breaks (`reconnects`). Each
//! retry takes a token and passes the gate again. Watches and upgrades are not retried.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, DATE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use kube::client::Body;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};

use super::body;
use super::call::Call;
use super::decode::{DecodeError, Envelope, ItemScanner};
use super::error::{ApiError, is_broken};
use super::gate::WritePermit;
use super::limit::TokenBucket;
use super::turn::Turn;

/// Maximum size of an error response, in bytes. The rest is not read.
const MAX_ERROR_BODY: usize = 1 << 20;
/// Maximum length of path and query, in bytes. The limit is that of the `http` crate.
const MAX_URL: usize = (u16::MAX - 1) as usize;
/// Maximum number of retries of a request. The limit is client-go's.
const MAX_REPEATS: u32 = 10;
/// The wait before a GET is retried after its connection broke. The time is client-go's.
const RECONNECT: Duration = Duration::from_secs(1);

/// The header with the name of the impersonated user.
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// A service that sends requests. The URI of a request is a path, which the service prefixes with the server's URL.
pub(super) type HttpService = BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>;

/// Receives the attempts and results of all requests, for metrics.
pub trait RequestObserver: fmt::Debug + Send + Sync + 'static {
    /// Called after each attempt to send a request, with or without a response. A retry is another attempt. A request
    /// that the gate refuses is not an attempt.
    fn attempted(&self, attempt: &Attempt<'_>) {
        let _ = attempt;
    }

    /// Called at the end of a request other than a watch or an upgrade, after its last attempt, unless the gate refused
    /// it. As in client-go, `elapsed` is the time from the start of the wait for a token to the end of the body, or to
    /// the error.
    fn ended(&self, call: &Call, host: &Arc<str>, elapsed: Duration) {
        let _ = (call, host, elapsed);
    }

    /// Called with the final error of a request other than a watch or an upgrade. Timeouts and errors of a body are not
    /// reported.
    fn failed(&self, call: &Call, error: &ApiError) {
        let _ = (call, error);
    }
}

/// One attempt to send a request.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The request. All its attempts share this value.
    pub call: &'a Call,
    /// The host of the server, with the port if the URL contains a port.
    pub host: &'a Arc<str>,
    /// The HTTP code of the response. `None` without a response.
    pub code: Option<u16>,
    /// The `Date` header of the response. `None` without a response or header.
    pub date: Option<&'a str>,
    /// The time from sending the request to receiving the headers of the response, or the error.
    pub elapsed: Duration,
}

/// A client with its token bucket. Clones share the bucket and the connections.
#[derive(Clone)]
pub struct Client {
    pub(super) http: HttpService,
    pub(super) base: Uri,
    /// The host of the server, with the port if the URL contains a port.
    pub(super) host: Arc<str>,
    pub(super) bucket: Option<TokenBucket>,
    pub(super) user_agent: HeaderValue,
    /// The impersonated user. `None` without impersonation.
    pub(super) impersonated: Option<HeaderValue>,
    pub(super) timeout: Duration,
    /// Whether a GET is retried if its connection breaks. False for callers with a back-off of their own.
    pub(super) reconnects: bool,
    pub(super) observer: Option<Arc<dyn RequestObserver>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("base", &self.base)
            .field("bucket", &self.bucket)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Returns the same client with a separate token bucket.
    #[must_use]
    pub(super) fn with_own_bucket(&self) -> Self {
        Self { bucket: self.bucket.as_ref().map(TokenBucket::another), ..self.clone() }
    }

    /// Sends a request and decodes the response.
    pub async fn json<T: DeserializeOwned>(&self, call: &Call) -> Result<T, ApiError> {
        let body = self.bytes(call).await?;
        serde_json::from_slice(&body).map_err(|error| ApiError::Decode(error.into()))
    }

    /// Returns the same client without an observer.
    #[must_use]
    pub fn unobserved(&self) -> Self {
        Self { observer: None, ..self.clone() }
    }

    /// Returns the same client with another default time limit for requests.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// Returns a client that impersonates `user`. The client needs the permission to impersonate `user`. The API server
    /// derives the groups of a ServiceAccount from its name.
    pub fn impersonating(&self, user: &str) -> Result<Self, ApiError> {
        let value = HeaderValue::from_str(user).map_err(|_| {
            ApiError::Request(format!("the user {user:?} cannot be sent as a header of an impersonation"))
        })?;
        Ok(Self { impersonated: Some(value), ..self.clone() })
    }

    /// Sends a request and reads the whole response. Fails if the response exceeds the size limit of the request.
    pub async fn bytes(&self, call: &Call) -> Result<Bytes, ApiError> {
        self.bytes_in(self.turn(call.namespace()).await, call).await
    }

    /// Like [`Self::bytes`], but for a request that already holds a token.
    pub async fn bytes_in(&self, turn: RatePermit, call: &Call) -> Result<Bytes, ApiError> {
        let read = async |answer: Response<Incoming>| body::collect(answer.into_body(), call.limit).await;
        self.timed(turn, call, read).await
    }

    /// Waits for a token of the rate limit on behalf of a namespace. Namespaces take turns.
    pub async fn turn(&self, namespace: &str) -> RatePermit {
        let since = Instant::now();
        self.take_token(namespace).await;
        RatePermit { since, write: None }
    }

    /// Sends a request and passes the items of the response to `item` as they arrive.
    pub(super) async fn items(
        &self,
        call: &Call,
        mut item: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<Envelope, ApiError> {
        self.timed(self.turn(call.namespace()).await, call, async |answer: Response<Incoming>| {
            let mut body = answer.into_body();
            let (mut scanner, mut read, mut turn) = (ItemScanner::default(), 0_usize, Turn::default());
            while let Some(piece) = body::chunk(&mut body).await? {
                read += piece.len();
                if read > call.limit {
                    return Err(ApiError::TooLarge { limit: call.limit });
                }
                scanner.push(&piece, &mut item)?;
                turn.add(piece.len()).await;
            }
            Ok(scanner.finish()?)
        })
        .await
    }

    /// Sends a request and returns the response before its body arrives. The time limit covers only the wait
    /// for the headers. Watches use this method.
    pub async fn open(&self, call: &Call) -> Result<Response<Incoming>, ApiError> {
        self.take_token(call.namespace()).await;
        let deadline = self.deadline(call);
        let answered = timeout_at(deadline, self.attempt(call, None)).await;
        answered.map_err(|_| ApiError::timed_out(call, &self.base))?.map_err(|failure| failure.error)
    }

    /// Sends a request with the headers of an upgrade. Returns a response with 101 or 2xx, or an error. The time limit
    /// covers only the wait for the response.
    pub(super) async fn upgrade(
        &self,
        call: &Call,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, ApiError> {
        self.take_token(call.namespace()).await;
        let mut request = self.request(call)?;
        request.headers_mut().extend(headers);
        let answered = timeout_at(self.deadline(call), self.send(call, request)).await;
        answered.map_err(|_| ApiError::timed_out(call, &self.base))?.map_err(|failure| failure.error)
    }

    /// Sends a request and reads its response, within its time limit.
    async fn timed<T>(
        &self,
        turn: RatePermit,
        call: &Call,
        read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        call.sent.now();
        let deadline = self.deadline(call);
        let answered = async {
            let answer = self.repeat(call, turn.write.as_ref(), deadline).await?;
            read(answer).await
        };
        let result = timeout_at(deadline, answered)
            .await
            .unwrap_or_else(|_| Err(ApiError::timed_out(call, &self.base)));
        if let Some(observer) = &self.observer
            && !matches!(result, Err(ApiError::Refused(_)))
        {
            observer.ended(call, &self.host, turn.since.elapsed());
        }
        result
    }

    fn deadline(&self, call: &Call) -> Instant {
        clock::after(Instant::now(), call.timeout.unwrap_or(self.timeout))
    }

    /// Changes the rate of the token bucket. Has no effect without a token bucket.
    pub fn set_rate(&self, per_second: f64) {
        if let Some(bucket) = &self.bucket {
            bucket.set_rate(per_second);
        }
    }

    async fn take_token(&self, namespace: &str) {
        if let Some(bucket) = &self.bucket {
            bucket.take(namespace).await;
        }
    }

    /// Sends a request, with the retries of client-go.
    async fn repeat(
        &self,
        call: &Call,
        write: Option<&WritePermit>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, ApiError> {
        let is_read = call.method == Method::GET;
        let mut earlier = None;
        let mut repeats = 0;
        loop {
            let failure = match self.attempt(call, write).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            match failure.repeat_after {
                Some(wait) if repeats < MAX_REPEATS && wait < left => {
                    tokio::time::sleep(wait).await;
                    self.take_token(call.namespace()).await;
                    repeats += 1;
                    let error = failure.error;
                    if if is_read { error.code().is_none() } else { error.outcome_unknown() } {
                        earlier = Some(error);
                    }
                }
                _ => {
                    let error = match earlier {
                        Some(earlier) if is_read => failure.error.after(&earlier),
                        // The earlier attempt may have been applied, and the last attempt was not sent.
                        Some(earlier) if failure.error.is_unsent() => earlier,
                        _ => failure.error,
                    };
                    if let Some(observer) = &self.observer {
                        observer.failed(call, &error);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Builds the request and sends it once.
    async fn attempt(&self, call: &Call, write: Option<&WritePermit>) -> Result<Response<Incoming>, Failure> {
        let mut request = self.request(call)?;
        if let Some(write) = write {
            request.extensions_mut().insert(write.clone());
        }
        self.send(call, request).await
    }

    async fn send(&self, call: &Call, request: Request<Body>) -> Result<Response<Incoming>, Failure> {
        let started = Instant::now();
        let result = self.http.clone().oneshot(request).await;
        let code = result.as_ref().ok().map(|answer| answer.status().as_u16());
        tracing::trace!(
            method = %call.method, path = call.path, code, elapsed = ?started.elapsed(),
            "finished a request"
        );
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                let repeats = self.reconnects && call.method == Method::GET && is_broken(error.as_ref());
                let error = ApiError::from_stack(call, &self.base, error.as_ref());
                if !error.is_refused() {
                    self.observe(call, None, None, started);
                }
                return Err(Failure { error, repeat_after: repeats.then_some(RECONNECT) });
            }
        };
        self.observe(call, code, answer.headers().get(DATE), started);
        if answer.status().is_success() || answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(answer);
        }
        let (head, rest) = answer.into_parts();
        let header = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let asked_to_wait = header(RETRY_AFTER).and_then(|value| value.parse().ok()).map(Duration::from_secs);
        let text = body::prefix(rest, MAX_ERROR_BODY).await;
        let content_type = header(CONTENT_TYPE).unwrap_or_default();
        let error = ApiError::from_answer(call, head.status, content_type, asked_to_wait, &text);
        let repeats = head.status == StatusCode::TOO_MANY_REQUESTS || head.status.as_u16() >= 500;
        Err(Failure { error, repeat_after: asked_to_wait.filter(|_| repeats) })
    }

    fn request(&self, call: &Call) -> Result<Request<Body>, ApiError> {
        if let Some(dots) = call.dots {
            return Err(ApiError::Request(format!("invalid resource name {dots:?}: [may not be '{dots}']")));
        }
        if call.path.len() > MAX_URL {
            let length = call.path.len();
            return Err(ApiError::Request(format!(
                "the URL has {length} bytes, but at most {MAX_URL} can be sent: a name or selector is too long"
            )));
        }
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(call.path.as_str())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, self.user_agent.clone());
        if !call.content_type.is_empty() {
            request = request.header(CONTENT_TYPE, call.content_type);
        }
        if let Some(user) = &self.impersonated {
            request = request.header(IMPERSONATE_USER, user.clone());
        }
        let body = if call.body.is_empty() { Body::empty() } else { Body::from(call.body.clone()) };
        request.body(body).map_err(|error| ApiError::Request(error.to_string()))
    }

    fn observe(&self, call: &Call, code: Option<u16>, date: Option<&HeaderValue>, started: Instant) {
        if let Some(observer) = &self.observer {
            let date = date.and_then(|date| date.to_str().ok());
            let elapsed = started.elapsed();
            observer.attempted(&Attempt { call, host: &self.host, code, date, elapsed });
        }
    }
}

/// A token of the rate limit for one request.
#[derive(Debug)]
#[must_use]
pub struct RatePermit {
    /// The start of the wait for the token.
    since: Instant,
    /// The permission that the gate checks. `None` for a request that needs no permission.
    write: Option<WritePermit>,
}

impl RatePermit {
    /// Attaches the permission of a write, which the gate checks for each attempt.
    pub fn for_write(self, write: Option<WritePermit>) -> Self {
        Self { write, ..self }
    }
}

/// A failed attempt. `repeat_after` is the wait before a retry, or `None` if the attempt is not retried.
struct Failure {
    error: ApiError,
    repeat_after: Option<Duration>,
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self { error, repeat_after: None }
    }
}
