//! The clients: one connection pool, one write gate, and a token bucket for each client that the built-in controller
//! has too.
//!
//! A request waits for its token, passes the gate, is authenticated and sent. Its time limit begins when it has its
//! token. Nothing is sent twice, but for a GET that the server asks to repeat (429 or 5xx with `Retry-After`), within
//! the request's time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, DATE, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use kube::client::Body;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceExt};

use super::body;
use super::call::Call;
use super::connect::{
    self, Account, CredentialError, HttpService, PluginError, PluginLimits, ProxyError, Source,
};
use super::decode::DecodeError;
use super::error::ApiError;
use super::gate::{Gate, GateLayer, Writes};
use super::items::{Envelope, ItemScanner};
use super::jitter::Jitter;
use super::limit::TokenBucket;
use super::user::User;

/// The largest error answer that is read, in bytes.
const MAX_ERROR_BODY: usize = 1 << 20;
/// How often a GET is repeated because the server asks so; client-go's number.
const MAX_REPEATS: u32 = 10;
/// Discovery is rare and comes in bursts; client-go gives it its own, larger bucket.
const DISCOVERY_BURST: u32 = 200;

/// Longer than any run.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// Why the clients cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Certificates of the configuration are unusable.
    #[error("the TLS settings are unusable: {0}")]
    Tls(#[source] kube::Error),
    /// Who to act for cannot be sent.
    #[error("the user or groups to impersonate cannot be sent: {0}")]
    Headers(#[source] kube::Error),
    /// Credentials of the configuration are unusable.
    #[error("the credentials are unusable: {0}")]
    Credentials(#[from] CredentialError),
    /// The proxy on the way cannot be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The user agent is no header value.
    #[error("the user agent {0:?} cannot be sent: use visible ASCII characters only")]
    UserAgent(String),
}

/// Told about every request that was sent.
pub trait RequestObserver: fmt::Debug + Send + Sync + 'static {
    /// A request was sent and answered, or failed. One that is repeated is told of every time.
    fn attempted(&self, attempt: &Attempt<'_>) {
        let _ = attempt;
    }

    /// A request, other than a watch, ended with all its repetitions. `elapsed` begins with the wait for a token and
    /// ends with the answer's body, as client-go counts it.
    fn ended(&self, call: &Call, host: &Arc<str>, elapsed: Duration) {
        let _ = (call, host, elapsed);
    }

    /// A request, other than a watch, ended without the answer that was asked for. After [`Self::attempted`].
    fn failed(&self, call: &Call, error: &ApiError) {
        let _ = (call, error);
    }
}

/// One request that was sent.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The request.
    pub call: &'a Call,
    /// The server, with its port.
    pub host: &'a Arc<str>,
    /// The HTTP code; absent if there was no answer.
    pub code: Option<u16>,
    /// The answer's `Date` header.
    pub date: Option<&'a str>,
    /// From sending it to the head of the answer.
    pub elapsed: Duration,
}

/// How requests are made.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// `--kube-api-qps`: requests per second of each client; 0 or less: unlimited.
    pub qps: f32,
    /// `--kube-api-burst`: requests that may go at once.
    pub burst: u32,
    /// `--status-qps`: statuses written per second, above 0; none: as any client's requests, until the number of HPAs is
    /// known.
    pub status_qps: Option<f32>,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// How long a request may take that has no limit of its own.
    pub request_timeout: Duration,
    /// The write gate.
    pub gate: Arc<Gate>,
    /// Told about every request.
    pub observer: Option<Arc<dyn RequestObserver>>,
    /// How long a credential plugin may take.
    pub plugin_limits: PluginLimits,
    /// The ServiceAccount to act as, with tokens that the credentials of the configuration may ask for; only Leases and
    /// reviews are then asked for with those credentials themselves.
    pub service_account: Option<ServiceAccount>,
}

/// A ServiceAccount to act as.
#[derive(Debug, Clone)]
pub struct ServiceAccount {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Spreads the renewal of its tokens.
    pub jitter: Jitter,
}

impl Default for ClientOptions {
    /// kube-controller-manager's limits, an open gate.
    fn default() -> Self {
        Self {
            qps: 20.0,
            burst: 30,
            status_qps: None,
            user_agent: concat!("concertina/", env!("CARGO_PKG_VERSION")).to_owned(),
            request_timeout: Duration::from_secs(30),
            gate: Gate::open(),
            observer: None,
            plugin_limits: PluginLimits::default(),
            service_account: None,
        }
    }
}

/// All clients. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Clients {
    /// Scale subresources.
    pub scale: Client,
    /// metrics.k8s.io
    pub resource_metrics: Client,
    /// custom.metrics.k8s.io
    pub custom_metrics: Client,
    /// external.metrics.k8s.io
    pub external_metrics: Client,
    /// Events, and objects that are read one by one.
    pub core: Client,
    /// Statuses; by default as fast as HPAs need it.
    pub status: Client,
    /// Groups, versions and resources.
    pub discovery: Client,
    /// Lists and watches; no bucket.
    pub watch: Client,
    /// The Lease; no bucket and connections of its own, so that nothing else can hold up a renewal.
    pub lease: Client,
    /// Reviews: who asks us, and what we may do; no bucket.
    pub reviews: Client,
    /// Events that tell people that this replica holds back because of another controller.
    pub notices: Client,
    /// What the leader remembers of HPAs; a bucket of its own, so that large writes hold up nothing else.
    pub checkpoint: Client,
    /// What all writes pass.
    pub gate: Arc<Gate>,
    source: Option<Arc<Source>>,
    /// As whom a controller is asked; none where requests show nobody.
    pub(crate) user: Option<Arc<User>>,
}

impl Clients {
    /// Clients to the server of a configuration, with its TLS settings and credentials.
    pub fn new(config: &kube::Config, options: &ClientOptions) -> Result<Self, ClientError> {
        let (http, source) = connect::over_network(config, options.plugin_limits)?;
        let (lease, _) = connect::over_network(config, options.plugin_limits)?;
        let acting = |tokens: Client| match &options.service_account {
            None => Ok(None),
            Some(ServiceAccount { namespace, name, jitter }) => {
                connect::as_account(config, || Account::new(tokens, namespace, name, jitter.clone()))
            }
        };
        let clients = Self::on(http, lease, acting, config.cluster_url.clone(), options)?;
        Ok(Self {
            user: Some(Arc::new(User::new(config.auth_info.clone(), Arc::clone(&source)))),
            source: Some(source),
            ..clients
        })
    }

    /// The same clients, which ask controllers as the user of a configuration.
    #[cfg(feature = "tools")]
    pub fn asking_as(self, config: &kube::Config) -> Result<Self, ClientError> {
        let source = Arc::new(connect::source(config, PluginLimits::default())?);
        Ok(Self { user: Some(Arc::new(User::new(config.auth_info.clone(), source))), ..self })
    }

    /// Asks the credential plugin, if there is one, for credentials. The first request does so too, but within its own
    /// time limit; here somebody has the time to log in.
    pub async fn log_in(&self) -> Result<(), PluginError> {
        match &self.source {
            Some(source) => source.log_in().await,
            None => Ok(()),
        }
    }

    /// Clients over any connector of byte streams. The server is called `http://embedded/`.
    pub fn over<C>(connector: C, options: &ClientOptions) -> Result<Self, ClientError>
    where
        C: Service<Uri> + Clone + Send + Sync + 'static,
        C::Response: Read + Write + Unpin + Send + 'static,
        C::Error: Into<BoxError>,
        C::Future: Send + 'static,
    {
        let base = Uri::from_static("http://embedded/");
        let lease = connect::over(connector.clone(), base.clone());
        Self::on(connect::over(connector, base.clone()), lease, |_| Ok(None), base, options)
    }

    /// `acting` makes, with a client that may ask for tokens, the stack of what is not done with the credentials of the
    /// configuration, if there is such.
    fn on(
        http: HttpService,
        lease: HttpService,
        acting: impl FnOnce(Client) -> Result<Option<HttpService>, ClientError>,
        base: Uri,
        options: &ClientOptions,
    ) -> Result<Self, ClientError> {
        let user_agent = HeaderValue::from_str(&options.user_agent)
            .map_err(|_| ClientError::UserAgent(options.user_agent.clone()))?;
        let gated =
            |http, writes| BoxCloneSyncService::new(GateLayer(Arc::clone(&options.gate), writes).layer(http));
        let own = Client {
            http: gated(http.clone(), Writes::Account),
            host: base.authority().map_or("", |authority| authority.as_str()).into(),
            base,
            bucket: None,
            user_agent,
            timeout: options.request_timeout,
            observer: options.observer.clone(),
        };
        let http = acting(own.clone())?.unwrap_or(http);
        let unlimited = Client { http: gated(http.clone(), Writes::Autoscaling), ..own.clone() };
        let limited = |qps, burst| Client { bucket: TokenBucket::new(qps, burst), ..unlimited.clone() };
        let client = || limited(options.qps, options.burst);
        Ok(Self {
            scale: client(),
            resource_metrics: client(),
            custom_metrics: client(),
            external_metrics: client(),
            core: client(),
            status: match options.status_qps {
                Some(qps) => limited(qps, options.burst.max(whole(qps))),
                None => client(),
            },
            discovery: limited(options.qps, options.burst.max(DISCOVERY_BURST)),
            watch: unlimited.clone(),
            lease: Client { http: gated(lease, Writes::Lease), ..unlimited.clone() },
            reviews: own,
            checkpoint: Client { http: gated(http.clone(), Writes::Checkpoint), ..client() },
            notices: Client { http: gated(http, Writes::Notices), ..unlimited },
            gate: Arc::clone(&options.gate),
            source: None,
            user: None,
        })
    }
}

/// A rate as a number of requests, rounded up; more than there are numbers is the largest.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast from a float saturates")]
fn whole(rate: f32) -> u32 {
    rate.ceil() as u32
}

/// How to ask for a WebSocket.
#[cfg(feature = "tools")]
pub(super) struct WebSocket<'a> {
    /// `Sec-WebSocket-Key`.
    pub(super) key: &'a str,
    /// `Sec-WebSocket-Protocol`.
    pub(super) protocol: &'a str,
}

/// One client with its token bucket. Clones share the bucket and the connections.
#[derive(Clone)]
pub struct Client {
    http: HttpService,
    base: Uri,
    /// The server, with its port.
    host: Arc<str>,
    bucket: Option<TokenBucket>,
    user_agent: HeaderValue,
    timeout: Duration,
    observer: Option<Arc<dyn RequestObserver>>,
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
    /// Sends a request and decodes the answer.
    pub async fn json<T: DeserializeOwned>(&self, call: &Call) -> Result<T, ApiError> {
        let body = self.bytes(call).await?;
        serde_json::from_slice(&body).map_err(|error| ApiError::Decode(error.into()))
    }

    /// The same client, of whose requests nobody is told.
    #[cfg(feature = "tools")]
    pub(super) fn unobserved(&self) -> Self {
        Self { observer: None, ..self.clone() }
    }

    /// Sends a request and reads the answer, up to the limit of the request.
    pub async fn bytes(&self, call: &Call) -> Result<Bytes, ApiError> {
        self.bytes_in(self.turn().await, call).await
    }

    /// The same for a request whose turn it is already.
    pub(super) async fn bytes_in(&self, turn: Turn, call: &Call) -> Result<Bytes, ApiError> {
        let read = async |answer: Response<Incoming>| body::collect(answer.into_body(), call.limit).await;
        self.timed(turn, call, read).await
    }

    /// Waits for the turn of one request at the rate limit.
    pub(super) async fn turn(&self) -> Turn {
        let since = Instant::now();
        self.take_token().await;
        Turn { since }
    }

    /// Sends a request and hands out the items of the answer one by one while they arrive.
    pub(super) async fn items(
        &self,
        call: &Call,
        mut item: impl FnMut(&[u8]) -> Result<(), DecodeError>,
    ) -> Result<Envelope, ApiError> {
        self.timed(self.turn().await, call, async |answer: Response<Incoming>| {
            let mut body = answer.into_body();
            let (mut scanner, mut read) = (ItemScanner::default(), 0_usize);
            while let Some(piece) = body::chunk(&mut body).await? {
                read += piece.len();
                if read > call.limit {
                    return Err(ApiError::TooLarge { limit: call.limit });
                }
                scanner.push(&piece, &mut item).map_err(ApiError::Decode)?;
            }
            scanner.finish().map_err(ApiError::Decode)
        })
        .await
    }

    /// Sends a request and gives the answer as it begins; only the wait for that is limited. For watches.
    pub(super) async fn open(&self, call: &Call) -> Result<Response<Incoming>, ApiError> {
        self.take_token().await;
        let deadline = self.deadline(call);
        match timeout_at(deadline, self.attempt(call)).await {
            Ok(result) => result.map_err(|failure| failure.error),
            Err(_) => Err(ApiError::timed_out(call, &self.base)),
        }
    }

    /// Asks to speak WebSocket; the answer is a 101, or an error. Only the wait for the answer is limited.
    #[cfg(feature = "tools")]
    pub(super) async fn upgrade(
        &self,
        call: &Call,
        to: &WebSocket<'_>,
    ) -> Result<Response<Incoming>, ApiError> {
        use http::header::{
            CONNECTION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
        };
        self.take_token().await;
        let unsendable = |error: String| ApiError::Request(error);
        let mut request = self.request(call).map_err(|error| unsendable(error.to_string()))?;
        for (name, value) in [
            (CONNECTION, "Upgrade"),
            (UPGRADE, "websocket"),
            (SEC_WEBSOCKET_VERSION, "13"),
            (SEC_WEBSOCKET_KEY, to.key),
            (SEC_WEBSOCKET_PROTOCOL, to.protocol),
        ] {
            let value = HeaderValue::from_str(value).map_err(|error| unsendable(error.to_string()))?;
            request.headers_mut().insert(name, value);
        }
        let sent = self.send(call, request);
        match timeout_at(self.deadline(call), sent).await {
            Ok(result) => result.map_err(|failure| failure.error),
            Err(_) => Err(ApiError::timed_out(call, &self.base)),
        }
    }

    /// One request with its answer, within its time.
    async fn timed<T>(
        &self,
        turn: Turn,
        call: &Call,
        read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        call.sent.now();
        let deadline = self.deadline(call);
        let answered = async {
            let answer = self.repeat(call, deadline).await?;
            read(answer).await
        };
        let result = match timeout_at(deadline, answered).await {
            Ok(result) => result,
            Err(_) => Err(ApiError::timed_out(call, &self.base)),
        };
        if let Some(observer) = &self.observer
            && !matches!(result, Err(ApiError::Refused(_)))
        {
            observer.ended(call, &self.host, turn.since.elapsed());
        }
        result
    }

    fn deadline(&self, call: &Call) -> Instant {
        let now = Instant::now();
        // A flag may hold more than a clock can.
        now.checked_add(call.timeout.unwrap_or(self.timeout)).unwrap_or(now + FOREVER)
    }

    /// Changes how many requests per second may go, if they are limited.
    pub(super) fn set_rate(&self, per_second: f64) {
        if let Some(bucket) = &self.bucket {
            bucket.set_rate(per_second);
        }
    }

    async fn take_token(&self) {
        if let Some(bucket) = &self.bucket {
            bucket.take().await;
        }
    }

    async fn repeat(&self, call: &Call, deadline: Instant) -> Result<Response<Incoming>, ApiError> {
        let mut repeats = 0;
        loop {
            let failure = match self.attempt(call).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let again = call.method == Method::GET && repeats < MAX_REPEATS && failure.error.is_transient();
            match failure.asked_to_wait {
                Some(wait) if again && wait < deadline.saturating_duration_since(Instant::now()) => {
                    tokio::time::sleep(wait).await;
                    self.take_token().await;
                    repeats += 1;
                }
                _ => {
                    if let Some(observer) = &self.observer {
                        observer.failed(call, &failure.error);
                    }
                    return Err(failure.error);
                }
            }
        }
    }

    /// Makes the request and sends it once.
    async fn attempt(&self, call: &Call) -> Result<Response<Incoming>, Failure> {
        match self.request(call) {
            Ok(request) => self.send(call, request).await,
            Err(error) => Err(ApiError::Request(error.to_string()).into()),
        }
    }

    async fn send(&self, call: &Call, request: Request<Body>) -> Result<Response<Incoming>, Failure> {
        let started = Instant::now();
        let result = self.http.clone().oneshot(request).await;
        let code = result.as_ref().ok().map(|answer| answer.status().as_u16());
        tracing::trace!(method = %call.method, path = call.path, code, elapsed = ?started.elapsed(), "request");
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                let error = ApiError::from_stack(call, &self.base, error.as_ref());
                if !error.is_refused() {
                    self.observe(call, None, None, started);
                }
                return Err(error.into());
            }
        };
        self.observe(call, code, answer.headers().get(DATE), started);
        if answer.status().is_success() || answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(answer);
        }
        let (head, rest) = answer.into_parts();
        let header = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let asked_to_wait = header(RETRY_AFTER).and_then(|value| value.parse().ok()).map(Duration::from_secs);
        let text = body::beginning(rest, MAX_ERROR_BODY).await;
        let content_type = header(CONTENT_TYPE).unwrap_or_default();
        let error = ApiError::from_answer(call, head.status, content_type, asked_to_wait, &text);
        Err(Failure { error, asked_to_wait })
    }

    fn request(&self, call: &Call) -> Result<Request<Body>, http::Error> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(call.path.as_str())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, self.user_agent.clone());
        if !call.content_type.is_empty() {
            request = request.header(CONTENT_TYPE, call.content_type);
        }
        request.body(if call.body.is_empty() { Body::empty() } else { Body::from(call.body.clone()) })
    }

    fn observe(&self, call: &Call, code: Option<u16>, date: Option<&HeaderValue>, started: Instant) {
        if let Some(observer) = &self.observer {
            let date = date.and_then(|date| date.to_str().ok());
            let elapsed = started.elapsed();
            observer.attempted(&Attempt { call, host: &self.host, code, date, elapsed });
        }
    }
}

/// The turn of one request: the rate limit lets it go.
#[derive(Debug)]
#[must_use]
pub struct Turn {
    /// When it began to wait.
    since: Instant,
}

/// An error, and how long the `Retry-After` header asks to wait.
struct Failure {
    error: ApiError,
    asked_to_wait: Option<Duration>,
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self { error, asked_to_wait: None }
    }
}
