//! The scraper of pods, which all HPAs share. Each page is scraped once per interval, for all metrics that HPAs read
//! from it. A rate needs scrapes between two syncs, so pages are scraped repeatedly as long as an HPA needs them.

mod pages;
mod request;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cluster::fair::{FairSemaphore, Share};
use cluster::metrics::flight::Flights;
use exposition::{Format, Limits, Scrape, SeriesSelector};
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use policies::spec::{PodPort, PodSeries};
use tokio::time::{Instant, timeout, timeout_at};

use self::pages::{PageKey, Reading, Scraped, State};
use self::request::IdleConnection;
use crate::dial::Dial;
use crate::error::SourceError;
use crate::http::RequestError;
use crate::settings::PodSettings;
use crate::transports::Transports;
use crate::{Numbers, Target, shared_for};

/// Maximum time that a sync waits for pages.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of bytes of a page to read before the task yields.
const TURN: usize = 64 << 10;
/// Maximum number of pages for which one sync waits at the same time.
const AT_ONCE: usize = 256;

/// A pod of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTarget {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// Whether the pod runs and is not terminating.
    pub running: bool,
    /// The address and ports. `None` until the pod has an address.
    pub address: Option<Arc<PodAddress>>,
}

/// The address of a pod, and the ports that its containers declare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAddress {
    /// `status.podIP`.
    pub ip: IpAddr,
    /// Whether the node has the same address.
    pub is_of_node: bool,
    /// `status.hostIP`: the address of the node.
    pub node: Option<IpAddr>,
    /// The TCP ports, each with its name, if it has one.
    pub ports: Box<[(Option<Box<str>>, u16)]>,
}

impl PodTarget {
    /// Returns the address of the pod's node.
    pub(crate) fn node(&self) -> Result<IpAddr, SourceError> {
        let node = self.address.as_ref().and_then(|address| address.node);
        node.filter(|node| !is_outside(*node)).ok_or(SourceError::NodeAddress)
    }
}

/// Returns whether an address cannot be in a network of pods or nodes.
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
    /// Returns the address of a declared port.
    fn port(&self, port: &PodPort) -> Result<SocketAddr, SourceError> {
        if self.is_of_node || is_outside(self.ip) {
            return Err(SourceError::Address);
        }
        let is_port = |(name, number): &&(Option<Box<str>>, u16)| match port {
            PodPort::Number(port) => number == port,
            PodPort::Name(port) => name.as_deref() == Some(&**port),
        };
        let found = self.ports.iter().find(is_port).ok_or(SourceError::NoPort)?;
        Ok(SocketAddr::new(self.ip, found.1))
    }
}

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
        // A closure instead of the loop would not compile: its future would not be general enough to be `Send`.
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

    /// Returns the reading of a pod's page, which is younger than its interval.
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
        let mut response = request::get(dial, idle, page, token.as_ref()).await?;
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
        let mut turn = 0;
        while let Some(piece) = response.piece().await? {
            scrape.push(&piece)?;
            turn += piece.len();
            // Yields to other tasks during large pages.
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
