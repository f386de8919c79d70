//! The pages that HPAs read, the addresses of their pods, the times of their scrapes, and their numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use exposition::{Rates, Reduce, Sample, Samples};
use jiff::Timestamp;
use limits::page::METRICS as MAX_METRICS;
use policies::spec::{PodPort, PodSeries, PodTransport, Reduction};
use tokio::time::Instant;

use crate::dial::{Dial, Io};
use crate::http::SourceError;
use crate::pause_between_syncs;
use crate::settings::PodSettings;

/// The time for which a page is scraped after the last request of an HPA. This time is longer than the usual sync
/// periods.
const WANTED: Duration = Duration::from_mins(3);
/// The time by which the timestamp of a sample may be ahead, in milliseconds, as in Prometheus.
const AHEAD: i64 = 10 * 60 * 1000;
/// The interval between two evictions of unused pages.
const SWEEP: Duration = Duration::from_secs(5);
/// Maximum size of the counter values that are kept for a namespace, in bytes.
const MAX_COUNTERS_OF_NAMESPACE: usize = 8 << 20;
/// Maximum size of the counter values that are kept for all namespaces, in bytes.
const MAX_COUNTERS: usize = 64 << 20;
/// The size of a series without its values, in bytes, as [`Rates`] states.
const SERIES: usize = 100;
/// The size of a value, in bytes. While the buffer of a series grows, a value takes twice as much.
const VALUE: usize = 8;
/// Maximum number of connections that stay open between scrapes. Other pages get a new connection for each scrape, so
/// that the pages do not use up the files that a process may open.
const MAX_IDLE: usize = 512;
/// Maximum number of scrapes that `Rates` keeps for a series.
const MAX_SCRAPES: usize = 128;

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
    /// The TCP ports, each with its optional name.
    pub ports: Box<[(Option<Box<str>>, u16)]>,
}

impl PodTarget {
    /// Returns the address of the pod's node.
    pub(crate) fn node(&self) -> Result<IpAddr, SourceError> {
        let node = self.address.as_ref().and_then(|address| address.node);
        node.filter(|node| !is_outside(*node)).ok_or(SourceError::NodeAddress)
    }
}

/// The services with the credentials of a machine on AWS and on Google Cloud. Their IPv4 address is link-local.
const METADATA: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

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
                || METADATA.contains(&ip)
        }
    }
}

impl PodAddress {
    /// Returns the address of a declared port.
    pub(super) fn port(&self, port: &PodPort) -> Result<SocketAddr, SourceError> {
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

/// A page of a pod. Different pods at the same address have different pages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PageKey {
    pub(super) namespace: Arc<str>,
    pub(super) pod: Arc<str>,
    pub(super) address: SocketAddr,
    pub(super) path: Arc<str>,
    pub(super) transport: Option<Arc<PodTransport>>,
}

/// A connection without a request in flight.
pub(super) struct IdleConnection {
    pub(super) io: Box<dyn Io>,
    /// The [`Dial`] that opened the connection. Only requests with the same [`Dial`] reuse it.
    pub(super) dial: Arc<dyn Dial>,
    pub(super) since: Instant,
}

impl fmt::Debug for IdleConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleConnection").field("since", &self.since).finish_non_exhaustive()
    }
}

/// A page, with the metrics that HPAs read from it.
#[derive(Debug, Default)]
struct WantedPage {
    metrics: BTreeMap<Arc<PodSeries>, Wanted>,
    /// The start of the next scrape between syncs. `None` until the first scrape.
    next: Option<Instant>,
    /// Has a strong reference while a scrape between syncs is queued or in flight.
    queued: Weak<()>,
    /// The connection of the last scrape. `None` during a scrape, and if the pod has closed it.
    idle: Option<IdleConnection>,
    /// The number of metrics that were added. A scrape that started before the last addition does not read all metrics.
    added: u64,
}

#[derive(Debug)]
pub(super) struct Wanted {
    asked: Instant,
    /// The counter values, if the metric is a rate.
    rates: Option<Rates>,
    /// The size of the kept counter values, in bytes.
    counters: usize,
    pub(super) reading: Option<Reading>,
}

/// The number of one metric on one page.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    pub(super) at: Instant,
    /// The age of the oldest sample at this time, by its timestamp on the page.
    pub(super) page_age: Duration,
    pub(super) value: Result<Option<f64>, SourceError>,
}

/// A page that was scraped.
#[derive(Debug)]
pub(super) struct Scraped {
    /// The samples of each metric, in the order of the metrics.
    pub(super) samples: Vec<Samples>,
    /// The connection. `None` if the pod has closed it.
    pub(super) idle: Option<IdleConnection>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pages: BTreeMap<PageKey, WantedPage>,
    /// Pages and the size of kept counter values, by namespace.
    namespaces: BTreeMap<Arc<str>, Usage>,
    counters: usize,
    /// The number of pages with an idle connection.
    idle: usize,
    /// The time of the last eviction of unused pages.
    swept: Option<Instant>,
    /// A recent instant and its time of day, in milliseconds since the Unix epoch.
    clock: Option<(Instant, i64)>,
}

#[derive(Debug, Default)]
struct Usage {
    pages: usize,
    counters: usize,
}

impl WantedPage {
    /// Returns the shortest interval of the metrics.
    fn interval(&self) -> Option<Duration> {
        let seconds = self.metrics.keys().map(|series| series.interval_seconds).min()?;
        Some(Duration::from_secs(seconds.into()))
    }
}

impl State {
    /// Returns the last reading of a metric of a page.
    pub(super) fn reading(&self, key: &PageKey, series: &PodSeries) -> Option<Reading> {
        self.pages.get(key)?.metrics.get(series)?.reading.clone()
    }

    /// Sets the time of day of an instant.
    pub(super) fn set_clock(&mut self, at: Instant, time: Timestamp) {
        self.clock = Some((at, time.as_millisecond()));
    }

    /// Returns the time of day at an instant, in milliseconds since the Unix epoch. `None` before the first request.
    fn time_of(&self, at: Instant) -> Option<i64> {
        let (known, time) = self.clock?;
        let milliseconds = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        let later = milliseconds(at.saturating_duration_since(known));
        Some(time.saturating_add(later).saturating_sub(milliseconds(known.saturating_duration_since(at))))
    }

    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Records that an HPA reads a metric of a page. Returns the metric, and the number of metrics added to the page.
    pub(super) fn want(
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
            Wanted { asked: now, rates: window.map(Rates::new), counters: 0, reading: None }
        });
        wanted.asked = now;
        Ok((wanted, page.added))
    }

    /// Starts a scrape. Returns the metrics that it reads, and the connection of the last scrape.
    pub(super) fn begin(
        &mut self,
        key: &PageKey,
        now: Instant,
    ) -> (Vec<Arc<PodSeries>>, Option<IdleConnection>) {
        let Some(page) = self.pages.get_mut(key) else { return (Vec::new(), None) };
        if page.queued.strong_count() == 0 {
            page.next = page.interval().map(|interval| now + pause_between_syncs(interval));
        }
        let idle = page.idle.take();
        self.idle -= usize::from(idle.is_some());
        (page.metrics.keys().cloned().collect(), idle)
    }

    /// Stores the numbers and the connection of a scrape.
    pub(super) fn record(
        &mut self,
        key: &PageKey,
        metrics: &[Arc<PodSeries>],
        at: Instant,
        epoch: Instant,
        scraped: Result<Scraped, SourceError>,
    ) {
        let time = self.time_of(at);
        let Some(page) = self.pages.get_mut(key) else { return };
        let usage = self.namespaces.entry(Arc::clone(&key.namespace)).or_default();
        let (mut samples, failed) = match scraped {
            Ok(Scraped { samples, idle }) => {
                self.idle -= usize::from(page.idle.is_some());
                page.idle = idle.filter(|_| self.idle < MAX_IDLE);
                self.idle += usize::from(page.idle.is_some());
                (samples.into_iter(), None)
            }
            Err(error) => (Vec::new().into_iter(), Some(error)),
        };
        for series in metrics {
            let samples = samples.next().map(|samples| samples.map(|samples| dated(samples, time)));
            let page_age = match &samples {
                Some(Ok((_, age))) => *age,
                _ => Duration::ZERO,
            };
            let samples = samples.map(|samples| samples.map(|(samples, _)| samples));
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
                        let size = samples.len().saturating_mul(SERIES + VALUE * scrapes_of(series));
                        let others = usage.counters - wanted.counters;
                        let total = self.counters - wanted.counters;
                        let limit = if others + size > MAX_COUNTERS_OF_NAMESPACE {
                            Some("this namespace")
                        } else if total + size > MAX_COUNTERS {
                            Some("all namespaces")
                        } else {
                            None
                        };
                        let size = if limit.is_some() { 0 } else { size };
                        (usage.counters, self.counters, wanted.counters) =
                            (others + size, total + size, size);
                        if let Some(limit) = limit {
                            let window = series.rate_seconds.unwrap_or(1).into();
                            *rates = Rates::new(Duration::from_secs(window));
                            Err(SourceError::TooManyCounters(limit))
                        } else {
                            let since = at.saturating_duration_since(epoch);
                            rates
                                .record(since, &samples)
                                .and_then(|()| rates.rate(reduce))
                                .map_err(Into::into)
                        }
                    }
                },
            };
            wanted.reading = Some(Reading { at, page_age, value });
        }
    }

    /// Returns the pages to scrape now. Drops pages that no HPA has requested lately.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(PageKey, u64, Arc<()>)> {
        if self.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP) {
            self.swept = Some(now);
            self.sweep(now);
        }
        let mut due = Vec::new();
        for (key, page) in &mut self.pages {
            let Some(next) = page.next.filter(|next| *next <= now) else { continue };
            // A page whose last scrape is still queued or in flight is not queued again.
            if page.queued.strong_count() == 0
                && let Some(pause) = page.interval().map(pause_between_syncs)
            {
                let queued = Arc::new(());
                page.queued = Arc::downgrade(&queued);
                // The pause starts at the due time, so ticks do not lengthen it.
                page.next = Some(next + pause).filter(|next| *next > now).or(Some(now + pause));
                due.push((key.clone(), page.added, queued));
            }
        }
        due
    }

    /// Drops pages and metrics that no HPA has requested lately.
    fn sweep(&mut self, now: Instant) {
        let (namespaces, total, idle) = (&mut self.namespaces, &mut self.counters, &mut self.idle);
        self.pages.retain(|key, page| {
            let Some(usage) = namespaces.get_mut(&key.namespace) else { return false };
            page.metrics.retain(|_, wanted| {
                let is_wanted = now.saturating_duration_since(wanted.asked) < WANTED;
                if !is_wanted {
                    usage.counters -= wanted.counters;
                    *total -= wanted.counters;
                }
                is_wanted
            });
            if page.metrics.is_empty() {
                usage.pages -= 1;
                *idle -= usize::from(page.idle.is_some());
                return false;
            }
            true
        });
        namespaces.retain(|_, usage| usage.pages > 0);
    }
}

/// Drops the samples whose timestamps are more than [`AHEAD`] later than the time of day `time`, as Prometheus does.
/// Returns the others, and the age of the oldest timestamp.
fn dated(mut samples: Vec<Sample>, time: Option<i64>) -> (Vec<Sample>, Duration) {
    let Some(time) = time else { return (samples, Duration::ZERO) };
    let age = |sample: &Sample| sample.timestamp.map_or(0, |timestamp| time.saturating_sub(timestamp));
    samples.retain(|sample| age(sample) >= -AHEAD);
    let oldest = samples.iter().map(age).max().and_then(|age| u64::try_from(age).ok());
    (samples, Duration::from_millis(oldest.unwrap_or(0)))
}

/// Returns the number of scrapes to keep for the window of a rate.
fn scrapes_of(series: &PodSeries) -> usize {
    let scrapes = series.rate_seconds.unwrap_or(0) / series.interval_seconds.max(1);
    usize::from(scrapes).saturating_add(1).min(MAX_SCRAPES)
}
