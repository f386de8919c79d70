//! The scraper of pods: one for all HPAs. Each page is scraped once per interval, for all metrics that HPAs read
//! from it. A rate needs scrapes between two syncs, so pages are scraped again as long as an HPA asks for them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::fair::{FairSemaphore, Share};
use cluster::metrics::flight::Flights;
use exposition::{Format, Limits, Rates, Reduce, Samples, Scrape, SeriesSelector};
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use policies::spec::{PodPort, PodSeries, PodTransport, Reduction};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::SourceError;
use crate::file::PodSettings;
use crate::http::{Dial, Http, RequestError};
use crate::transports::Transports;
use crate::{Numbers, Target, shared_for};

/// How long a page is scraped after an HPA has asked for it. Longer than the usual sync periods.
const WANTED: Duration = Duration::from_mins(3);
/// The longest time that a sync waits for pages.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pages that one sync waits for at once.
const AT_ONCE: usize = 256;
/// Metrics of one page.
const MAX_METRICS: usize = 16;
/// Scrapes of counters that are kept for a namespace, and in total. Each takes 32 bytes.
const MAX_POINTS_OF_NAMESPACE: usize = 1 << 20;
const MAX_POINTS: usize = 8 << 20;
/// Scrapes that `Rates` keeps for a series.
const MAX_SCRAPES: usize = 128;
/// The formats that the parser reads, the simpler one preferred: it needs no `# EOF`.
const ACCEPT: &str = "text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.5";

/// A pod of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTarget {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// Whether the pod runs and is not terminating.
    pub running: bool,
    /// Its address and ports. `None` until it has one.
    pub address: Option<Arc<PodAddress>>,
}

/// The address of a pod, and the ports that its containers declare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAddress {
    /// `status.podIP`.
    pub ip: IpAddr,
    /// Whether this is the address of the node, too.
    pub is_of_node: bool,
    /// `status.hostIP`: the address of the node.
    pub node: Option<IpAddr>,
    /// The TCP ports, each with its name or nothing.
    pub ports: Box<[(Option<Box<str>>, u16)]>,
}

impl PodTarget {
    /// The address of the pod's node.
    pub(crate) fn node(&self) -> Result<IpAddr, SourceError> {
        let node = self.address.as_ref().and_then(|address| address.node);
        node.filter(|node| !is_outside(*node)).ok_or(SourceError::NodeAddress)
    }
}

/// Whether an address is none of a network of pods or nodes.
fn is_outside(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            ip.is_loopback()
                || ip.is_link_local()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip.is_broadcast()
        }
        IpAddr::V6(ip) => {
            ip.is_loopback()
                || ip.is_unicast_link_local()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip.to_ipv4_mapped().is_some()
        }
    }
}

impl PodAddress {
    /// The address of a declared port.
    fn port(&self, port: &PodPort) -> Result<SocketAddr, SourceError> {
        if self.is_of_node || is_outside(self.ip) {
            return Err(SourceError::Address);
        }
        let is_port = |(name, number): &&(Option<Box<str>>, u16)| match port {
            PodPort::Number(wanted) => number == wanted,
            PodPort::Name(wanted) => name.as_deref() == Some(&**wanted),
        };
        let found = self.ports.iter().find(is_port).ok_or(SourceError::NoPort)?;
        Ok(SocketAddr::new(self.ip, found.1))
    }
}

/// A page of a pod. Another pod at the same address has another page.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PageKey {
    namespace: Arc<str>,
    pod: Arc<str>,
    address: SocketAddr,
    path: Arc<str>,
    transport: Option<Arc<PodTransport>>,
}

/// What HPAs read from a page.
#[derive(Debug, Default)]
struct WantedPage {
    metrics: BTreeMap<Arc<PodSeries>, Wanted>,
    /// When the next scrape starts that no sync asks for. `None` until the first scrape.
    next: Option<Instant>,
    /// Alive while such a scrape waits or is in flight.
    queued: Weak<()>,
    /// The number of metrics that were added. A scrape of fewer metrics does not answer for all.
    added: u64,
}

#[derive(Debug)]
struct Wanted {
    asked: Instant,
    /// The counters of a rate.
    rates: Option<Rates>,
    /// Scrapes of counters that are kept.
    points: usize,
    reading: Option<Reading>,
}

/// The number of one page.
#[derive(Debug, Clone)]
struct Reading {
    at: Instant,
    value: Result<Option<f64>, SourceError>,
}

/// The scraper.
#[derive(Debug)]
pub(crate) struct Scraper {
    settings: PodSettings,
    http: Http,
    transports: Transports,
    permits: Arc<FairSemaphore>,
    epoch: Instant,
    state: Mutex<State>,
    flights: Flights<(PageKey, u64), (), SourceError>,
}

#[derive(Debug, Default)]
struct State {
    pages: BTreeMap<PageKey, WantedPage>,
    /// Pages and kept scrapes of counters, by namespace.
    namespaces: BTreeMap<Arc<str>, Usage>,
    points: usize,
}

#[derive(Debug, Default)]
struct Usage {
    pages: usize,
    points: usize,
}

impl Scraper {
    pub(crate) fn new(settings: PodSettings, dial: Arc<dyn Dial>) -> Self {
        Self {
            http: Http::for_pods(Arc::clone(&dial)),
            transports: Transports::new(dial),
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

    /// The number of each running pod of the target. Pods without one are left out, as in the reference.
    pub(crate) async fn read(
        self: &Arc<Self>,
        series: &Arc<PodSeries>,
        target: &Target<'_>,
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
        let deadline = Instant::now() + PATIENCE;
        let running: Vec<&PodTarget> = target.pods.iter().filter(|pod| pod.running).collect();
        let count = running.len();
        // A closure would not be general enough for a future that is sent between threads.
        let mut reads = Vec::with_capacity(count);
        for pod in running {
            reads.push(self.named(series, target.namespace, pod, deadline));
        }
        let readings: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
        let (mut values, mut oldest, mut failed) = (BTreeMap::new(), Instant::now(), None);
        for (pod, reading) in readings {
            match reading.and_then(|reading| Ok((reading.value?, reading.at))) {
                Ok((Some(value), at)) => {
                    values.insert(pod, value);
                    oldest = oldest.min(at);
                }
                Ok((None, _)) => {}
                Err(error) => failed = failed.or(Some((pod, error))),
            }
        }
        match failed {
            Some((pod, error)) if values.is_empty() => Err(SourceError::AllPods(count, pod, Arc::new(error))),
            missing => Ok(Numbers { values, oldest, missing }),
        }
    }

    /// The reading of a pod's page, with the name of the pod.
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

    /// The reading of a pod's page, at most an interval old.
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
        let state = self.state.lock();
        let wanted = state.pages.get(&key).and_then(|page| page.metrics.get(series));
        wanted.and_then(|wanted| wanted.reading.clone()).ok_or(SourceError::Panicked)
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
                let metrics = scraper.state.lock().begin(&page, started);
                let samples = timeout(scraper.settings.timeout, scraper.request(&page, &metrics)).await;
                let samples =
                    samples.unwrap_or_else(|_| Err(RequestError::Timeout(scraper.settings.timeout).into()));
                scraper.state.lock().record(&page, &metrics, started, scraper.epoch, samples);
                Ok(())
            }
            .boxed()
        })
    }

    /// Requests a page. Returns the samples of each metric.
    async fn request(&self, page: &PageKey, metrics: &[Arc<PodSeries>]) -> Result<Vec<Samples>, SourceError> {
        let (http, token) = match &page.transport {
            None => (self.http.clone(), None),
            Some(transport) => self.transports.client(&page.namespace, transport)?,
        };
        // The client of the transport adds TLS.
        let url = format!("http://{}{}", page.address, page.path);
        let mut response = http.get(&url, ACCEPT, token.as_ref()).await?;
        if response.status != http::StatusCode::OK {
            return Err(RequestError::Status(response.status).into());
        }
        let Some(format) = Format::from_content_type(&response.content_type) else {
            return Err(SourceError::ContentType(response.content_type.chars().take(100).collect()));
        };
        let limits =
            Limits { bytes: self.settings.max_bytes, series: self.settings.max_series, ..Limits::default() };
        let selector = |series: &Arc<PodSeries>| SeriesSelector {
            series: Arc::clone(&series.series),
            labels: Arc::clone(&series.labels),
        };
        let mut scrape = Scrape::new(format, limits, metrics.iter().map(selector));
        while let Some(piece) = response.piece().await? {
            scrape.push(&piece)?;
        }
        Ok(scrape.finish()?)
    }

    /// Scrapes the pages that are due, and drops those that no HPA asks for any more. Returns the scrapes.
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

    /// The number of pages that are scraped.
    pub(crate) fn pages(&self) -> usize {
        self.state.lock().pages.len()
    }
}

impl WantedPage {
    /// The shortest interval of its metrics.
    fn interval(&self) -> Option<Duration> {
        let seconds = self.metrics.keys().map(|series| series.interval_seconds).min()?;
        Some(Duration::from_secs(seconds.into()))
    }
}

impl State {
    /// Notes that an HPA reads a metric of a page.
    fn want(
        &mut self,
        key: &PageKey,
        series: &Arc<PodSeries>,
        now: Instant,
        settings: &PodSettings,
    ) -> Result<(&Wanted, u64), SourceError> {
        if !self.pages.contains_key(key) {
            let usage = self.namespaces.entry(Arc::clone(&key.namespace)).or_default();
            if usage.pages >= settings.max_pages_per_namespace {
                return Err(SourceError::TooManyPages(settings.max_pages_per_namespace));
            }
            usage.pages += 1;
        }
        let page = self.pages.entry(key.clone()).or_default();
        if !page.metrics.contains_key(series) {
            if page.metrics.len() >= MAX_METRICS {
                return Err(SourceError::TooManyMetrics(MAX_METRICS));
            }
            page.added += 1;
        }
        let wanted = page.metrics.entry(Arc::clone(series)).or_insert_with(|| {
            let window = series.rate_seconds.map(|seconds| Duration::from_secs(seconds.into()));
            Wanted { asked: now, rates: window.map(Rates::new), points: 0, reading: None }
        });
        wanted.asked = now;
        Ok((wanted, page.added))
    }

    /// Starts a scrape. Returns the metrics that it reads.
    fn begin(&mut self, key: &PageKey, now: Instant) -> Vec<Arc<PodSeries>> {
        let Some(page) = self.pages.get_mut(key) else { return Vec::new() };
        if page.queued.strong_count() == 0 {
            page.next = page.interval().map(|interval| now + interval);
        }
        page.metrics.keys().cloned().collect()
    }

    /// Stores the numbers of a scrape.
    fn record(
        &mut self,
        key: &PageKey,
        metrics: &[Arc<PodSeries>],
        at: Instant,
        epoch: Instant,
        samples: Result<Vec<Samples>, SourceError>,
    ) {
        let Some(page) = self.pages.get_mut(key) else { return };
        let usage = self.namespaces.entry(Arc::clone(&key.namespace)).or_default();
        let (mut samples, failed) = match samples {
            Ok(samples) => (samples.into_iter(), None),
            Err(error) => (Vec::new().into_iter(), Some(error)),
        };
        for series in metrics {
            let samples = samples.next();
            let Some(wanted) = page.metrics.get_mut(series) else { continue };
            let reduce = match series.reduce {
                Reduction::Sum => Reduce::Sum,
                Reduction::Average => Reduce::Average,
                Reduction::Max => Reduce::Max,
            };
            let value = match (samples, &failed) {
                (_, Some(error)) => Err(error.clone()),
                (None, None) => Ok(None),
                (Some(Err(error)), None) => Err(error.into()),
                (Some(Ok(samples)), None) => match &mut wanted.rates {
                    None => reduce.samples(&samples).map_err(Into::into),
                    Some(rates) => {
                        let points = samples.len().saturating_mul(points_of(series));
                        let others = usage.points - wanted.points;
                        let total = self.points - wanted.points;
                        let limit = if others + points > MAX_POINTS_OF_NAMESPACE {
                            Some("this namespace")
                        } else if total + points > MAX_POINTS {
                            Some("all namespaces")
                        } else {
                            None
                        };
                        let points = if limit.is_some() { 0 } else { points };
                        (usage.points, self.points, wanted.points) =
                            (others + points, total + points, points);
                        if let Some(limit) = limit {
                            let window = series.rate_seconds.unwrap_or(1).into();
                            *rates = Rates::new(Duration::from_secs(window));
                            Err(SourceError::TooManyCounters(limit))
                        } else {
                            let since = at.saturating_duration_since(epoch);
                            rates.record(since, samples).and_then(|()| rates.rate(reduce)).map_err(Into::into)
                        }
                    }
                },
            };
            wanted.reading = Some(Reading { at, value });
        }
    }

    /// The pages to scrape now. Drops what no HPA has asked for lately.
    fn due(&mut self, now: Instant) -> Vec<(PageKey, u64, Arc<()>)> {
        let mut due = Vec::new();
        let (namespaces, total) = (&mut self.namespaces, &mut self.points);
        self.pages.retain(|key, page| {
            let Some(usage) = namespaces.get_mut(&key.namespace) else { return false };
            page.metrics.retain(|_, wanted| {
                let is_wanted = now.saturating_duration_since(wanted.asked) < WANTED;
                if !is_wanted {
                    usage.points -= wanted.points;
                    *total -= wanted.points;
                }
                is_wanted
            });
            let Some(interval) = page.interval() else {
                usage.pages -= 1;
                return false;
            };
            // A page that waits for its turn is not queued again.
            if let Some(next) = page.next.filter(|next| *next <= now)
                && page.queued.strong_count() == 0
            {
                let queued = Arc::new(());
                page.queued = Arc::downgrade(&queued);
                // From the time at which it was due, so that ticks do not lengthen the interval.
                page.next = Some(next + interval).filter(|next| *next > now).or(Some(now + interval));
                due.push((key.clone(), page.added, queued));
            }
            true
        });
        namespaces.retain(|_, usage| usage.pages > 0);
        due
    }
}

/// Scrapes within the window of a rate.
fn points_of(series: &PodSeries) -> usize {
    let scrapes = series.rate_seconds.unwrap_or(0) / series.interval_seconds.max(1);
    usize::from(scrapes).saturating_add(1).min(MAX_SCRAPES)
}
