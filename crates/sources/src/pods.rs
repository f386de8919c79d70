//! The scraper of pods, which all HPAs share. Each page is scraped once per interval, for all metrics that HPAs read
//! from it. A rate needs scrapes between two syncs, so pages are scraped repeatedly as long as an HPA needs them.
//!
//! Without a request in flight, a connection consists of its socket alone. The buffers of hyper, 40 KiB for each
//! connection, exist only during a request. Their number therefore depends on the requests in flight, not on the pods.

mod pages;

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use cluster::fair::{FairSemaphore, Share};
use cluster::metrics::flight::Flights;
use exposition::{Limits, Scrape, SeriesSelector, is_text_format};
use futures::FutureExt;
use futures::future::poll_fn;
use futures::stream::{self, StreamExt};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use parking_lot::Mutex;
use policies::spec::PodSeries;
use tokio::time::{Instant, timeout, timeout_at};

use self::pages::{IdleConnection, PageKey, Reading, Scraped, State};
use crate::dial::{Dial, Io};
use crate::http::{IDLE, RequestError, SourceError, USER, chain};
use crate::settings::PodSettings;
use crate::transports::Transports;
use crate::{Numbers, Target, shared_for};

pub use self::pages::{PodAddress, PodTarget};

/// Maximum time that a sync waits for pages.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of bytes of a page to read before the task yields.
const TURN: usize = 64 << 10;
/// Maximum number of pages for which one sync waits at the same time.
const AT_ONCE: usize = 256;
/// Size of the read buffer in bytes. It is larger than most pages, and limits the size of the headers.
const BUFFER: usize = 32 << 10;
/// The format that the parser reads.
const FORMAT: HeaderValue = HeaderValue::from_static("text/plain;version=0.0.4");

/// The scraper, with the pages that HPAs need.
#[derive(Debug)]
pub(crate) struct Scraper {
    settings: PodSettings,
    dial: Arc<dyn Dial>,
    transports: Transports,
    permits: Arc<FairSemaphore>,
    epoch: Instant,
    state: Mutex<State>,
    flights: Flights<(PageKey, u64), (), SourceError>,
}

impl Scraper {
    pub(crate) fn new(settings: PodSettings, dial: Arc<dyn Dial>) -> Self {
        Self {
            transports: Transports::new(Arc::clone(&dial)),
            dial,
            permits: Arc::new(FairSemaphore::new(settings.concurrency, Share::AsFree)),
            settings,
            epoch: Instant::now(),
            state: Mutex::default(),
            flights: Flights::new(None, || SourceError::Panicked),
        }
    }

    pub(crate) fn settings(&self) -> &PodSettings {
        &self.settings
    }

    /// Returns the number of each running pod of the target. Pods without a number are omitted.
    pub(crate) async fn read(
        self: &Arc<Self>,
        series: &Arc<PodSeries>,
        target: &Target<'_>,
        time: Timestamp,
    ) -> Result<Numbers, SourceError> {
        if !self.settings.enabled {
            return Err(SourceError::Disabled);
        }
        let namespaces = self.settings.namespaces.as_ref();
        if namespaces.is_some_and(|namespaces| !namespaces.contains(&**target.namespace)) {
            return Err(SourceError::Namespace);
        }
        if let Some(transport) = &series.transport {
            let names_secrets = transport.secrets().next().is_some();
            if !self.settings.tls {
                return Err(SourceError::TlsDisabled);
            }
            if names_secrets && !self.settings.secret_namespaces.contains(&**target.namespace) {
                return Err(SourceError::SecretsDisabled);
            }
            self.transports.prepare(target.namespace, transport, target.secrets).await?;
        }
        let now = Instant::now();
        self.state.lock().set_clock(now, time);
        let deadline = now + PATIENCE;
        let running: Vec<&PodTarget> = target.pods.iter().filter(|pod| pod.running).collect();
        let count = running.len();
        // A closure instead of the loop would not compile: its future would not be general enough to be `Send`.
        let mut reads = Vec::with_capacity(count);
        for pod in running {
            reads.push(self.named(series, target.namespace, pod, deadline));
        }
        let readings: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
        let now = Instant::now();
        let (mut values, mut oldest, mut age, mut failed) = (BTreeMap::new(), now, Duration::ZERO, None);
        for (pod, reading) in readings {
            match reading.and_then(|reading| Ok((reading.value?, reading.at, reading.page_age))) {
                Ok((Some(value), at, page_age)) => {
                    values.insert(pod, value);
                    oldest = oldest.min(at);
                    age = age.max(now.saturating_duration_since(at).saturating_add(page_age));
                }
                Ok((None, ..)) => {}
                Err(error) => failed = failed.or(Some((pod, error))),
            }
        }
        match failed {
            Some((pod, error)) if values.is_empty() => Err(SourceError::AllPods(count, pod, Arc::new(error))),
            missing => {
                let page_age = age.saturating_sub(now.saturating_duration_since(oldest));
                Ok(Numbers { values, oldest, page_age, missing })
            }
        }
    }

    /// Returns the name of a pod and the reading of its page, at the latest at the deadline.
    async fn named(
        self: &Arc<Self>,
        series: &Arc<PodSeries>,
        namespace: &Arc<str>,
        pod: &PodTarget,
        deadline: Instant,
    ) -> (Arc<str>, Result<Reading, SourceError>) {
        let reading = timeout_at(deadline, self.page(series, namespace, pod)).await;
        (Arc::clone(&pod.name), reading.unwrap_or_else(|_| Err(RequestError::Timeout(PATIENCE).into())))
    }

    /// Returns the reading of a metric of a pod. Scrapes the page if the last reading is older than 90 % of the
    /// metric's interval.
    async fn page(
        self: &Arc<Self>,
        series: &Arc<PodSeries>,
        namespace: &Arc<str>,
        pod: &PodTarget,
    ) -> Result<Reading, SourceError> {
        let address = pod.address.as_ref().ok_or(SourceError::NoAddress)?.port(&series.port)?;
        let (namespace, path) = (Arc::clone(namespace), Arc::clone(&series.path));
        let transport = series.transport.clone();
        let key = PageKey { namespace, pod: Arc::clone(&pod.name), address, path, transport };
        let added = {
            let now = Instant::now();
            let mut state = self.state.lock();
            let (wanted, added) = state.want(&key, series, now, &self.settings)?;
            let interval = Duration::from_secs(series.interval_seconds.into());
            if let Some(reading) = &wanted.reading
                && now.saturating_duration_since(reading.at) < shared_for(interval)
            {
                return Ok(reading.clone());
            }
            added
        };
        self.scrape(key.clone(), added).await?;
        self.state.lock().reading(&key, series).ok_or(SourceError::Panicked)
    }

    /// Scrapes a page, or joins the scrape in flight.
    fn scrape(
        self: &Arc<Self>,
        key: PageKey,
        added: u64,
    ) -> impl Future<Output = Result<(), SourceError>> + Send + use<> {
        let (scraper, page) = (Arc::clone(self), key.clone());
        self.flights.join((key, added), move |sent| {
            async move {
                let _permit = scraper.permits.acquire(&page.namespace).await;
                sent.now();
                let started = Instant::now();
                let (metrics, idle) = scraper.state.lock().begin(&page, started);
                let request = scraper.request(&page, &metrics, idle);
                let result = timeout(scraper.settings.timeout, request).await;
                let result =
                    result.unwrap_or_else(|_| Err(RequestError::Timeout(scraper.settings.timeout).into()));
                scraper.state.lock().record(&page, &metrics, started, scraper.epoch, result);
                Ok(())
            }
            .boxed()
        })
    }

    /// Requests a page. Returns the samples of each metric, and the connection for the next scrape.
    async fn request(
        &self,
        page: &PageKey,
        metrics: &[Arc<PodSeries>],
        idle: Option<IdleConnection>,
    ) -> Result<Scraped, SourceError> {
        let (dial, token) = match &page.transport {
            None => (Arc::clone(&self.dial), None),
            Some(transport) => self.transports.client(&page.namespace, transport)?,
        };
        let mut response = get(dial, idle, page, token.as_ref()).await?;
        if response.status != StatusCode::OK {
            return Err(RequestError::Status(response.status).into());
        }
        if !is_text_format(&response.content_type) {
            return Err(SourceError::ContentType(response.content_type.chars().take(100).collect()));
        }
        let limits =
            Limits { bytes: self.settings.max_bytes, series: self.settings.max_series, ..Limits::default() };
        let selector = |series: &Arc<PodSeries>| SeriesSelector {
            series: Arc::clone(&series.series),
            labels: Arc::clone(&series.labels),
        };
        let mut scrape = Scrape::new(limits, metrics.iter().map(selector));
        let mut turn = 0;
        while let Some(piece) = response.piece().await? {
            scrape.push(&piece)?;
            turn += piece.len();
            // The task yields to other tasks during large pages.
            if turn >= TURN {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
        Ok(Scraped { samples: scrape.finish()?, idle: response.into_idle().await })
    }

    /// Returns scrapes of the pages that are due. Drops pages that no HPA has requested lately.
    pub(crate) fn due(self: &Arc<Self>) -> Vec<impl Future<Output = Result<(), SourceError>> + Send + use<>> {
        let now = Instant::now();
        self.transports.sweep(now);
        let due = self.state.lock().due(now);
        let scrape = |(key, added, queued): (PageKey, u64, Arc<()>)| {
            let scrape = self.scrape(key, added);
            async move {
                let result = scrape.await;
                drop(queued);
                result
            }
        };
        due.into_iter().map(scrape).collect()
    }

    /// Returns the number of pages that are scraped.
    pub(crate) fn pages(&self) -> usize {
        self.state.lock().len()
    }
}

/// A response whose body is read in pieces.
struct Response {
    status: StatusCode,
    /// `Content-Type`, or empty.
    content_type: String,
    body: Incoming,
    exchange: Exchange,
    dial: Arc<dyn Dial>,
}

/// A connection with one request.
struct Exchange {
    connection: Connection<TokioIo<Box<dyn Io>>, Empty<Bytes>>,
    /// The sender must outlive the response. Otherwise, the connection closes after the response.
    sender: SendRequest<Empty<Bytes>>,
    has_ended: bool,
}

/// Sends a GET request over the idle connection, if that connection is usable, otherwise over a new connection. Returns
/// once the response headers have arrived. A redirect is an error.
async fn get(
    dial: Arc<dyn Dial>,
    idle: Option<IdleConnection>,
    page: &PageKey,
    token: Option<&HeaderValue>,
) -> Result<Response, RequestError> {
    let known = idle.filter(|idle| Arc::ptr_eq(&idle.dial, &dial) && idle.since.elapsed() < IDLE);
    if let Some(idle) = known {
        // The pod may have closed the connection. A GET request can be retried.
        if let Ok(response) = send(idle.io, &dial, request(page, token)?).await {
            return Ok(response);
        }
    }
    // The scheme is `http` even for a page over TLS, because the `Dial` of a transport adds TLS.
    let to = Uri::builder().scheme("http").authority(page.address.to_string()).path_and_query("/").build();
    let to = to.map_err(|error| RequestError::Invalid(error.to_string()))?;
    let io = dial.dial(to).await.map_err(|error| RequestError::Connection(chain(&error)))?;
    send(io, &dial, request(page, token)?).await
}

fn request(page: &PageKey, token: Option<&HeaderValue>) -> Result<Request<Empty<Bytes>>, RequestError> {
    let mut request = Request::get(&*page.path)
        .header(HOST, page.address.to_string())
        .header(ACCEPT, FORMAT)
        .header(USER_AGENT, USER);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, token);
    }
    request.body(Empty::new()).map_err(|error| RequestError::Invalid(error.to_string()))
}

async fn send(
    io: Box<dyn Io>,
    dial: &Arc<dyn Dial>,
    request: Request<Empty<Bytes>>,
) -> Result<Response, RequestError> {
    let failed = |error: hyper::Error| RequestError::Connection(chain(&error));
    let (sender, connection) =
        Builder::new().read_buf_exact_size(Some(BUFFER)).handshake(TokioIo::new(io)).await.map_err(failed)?;
    let mut exchange = Exchange { connection, sender, has_ended: false };
    let mut sending = pin!(exchange.sender.send_request(request));
    let (connection, has_ended) = (&mut exchange.connection, &mut exchange.has_ended);
    let response = poll_fn(|cx| {
        // A read before the request is sent detects that the pod has closed an idle connection.
        drive(connection, has_ended, cx);
        sending.as_mut().poll(cx)
    });
    let (parts, body) = response.await.map_err(failed)?.into_parts();
    if parts.status.is_redirection() {
        return Err(RequestError::Redirect(parts.status));
    }
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    Ok(Response {
        status: parts.status,
        content_type: content_type.unwrap_or_default().to_owned(),
        body,
        exchange,
        dial: Arc::clone(dial),
    })
}

/// Reads and writes without waiting. If the connection fails, the request or the body returns the error.
fn drive(
    connection: &mut Connection<TokioIo<Box<dyn Io>>, Empty<Bytes>>,
    has_ended: &mut bool,
    cx: &mut Context<'_>,
) {
    *has_ended = *has_ended || connection.poll_without_shutdown(cx).is_ready();
}

impl Response {
    /// Returns the next piece of the body. `None` at its end.
    async fn piece(&mut self) -> Result<Option<Bytes>, RequestError> {
        loop {
            match poll_fn(|cx| self.poll_frame(cx)).await {
                None => return Ok(None),
                Some(Err(error)) => return Err(RequestError::Connection(chain(&error))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut body = Pin::new(&mut self.body);
        // The connection reads only what the body has requested.
        if let Poll::Ready(frame) = body.as_mut().poll_frame(cx) {
            return Poll::Ready(frame);
        }
        drive(&mut self.exchange.connection, &mut self.exchange.has_ended, cx);
        body.poll_frame(cx)
    }

    /// Returns the connection for the next request, unless the pod has closed it or has sent further bytes. The whole
    /// body must have been read.
    async fn into_idle(self) -> Option<IdleConnection> {
        let Self { mut exchange, dial, .. } = self;
        poll_fn(|cx| {
            drive(&mut exchange.connection, &mut exchange.has_ended, cx);
            Poll::Ready(())
        })
        .await;
        if exchange.has_ended {
            return None;
        }
        let parts = exchange.connection.into_parts();
        let io = parts.io.into_inner();
        parts.read_buf.is_empty().then(|| IdleConnection { io, dial, since: Instant::now() })
    }
}
