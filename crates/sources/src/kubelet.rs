//! The scraper of kubelets: one for all HPAs. The page of a node is scraped once per interval while an HPA needs the
//! usage of a pod on this node. The numbers match metrics-server, which reads the same page.
//!
//! The scraper sends requests directly to the kubelets. The node proxy of the API server requires the permission
//! `nodes/proxy`, which also permits commands in containers. The token belongs to a separate account, because each node
//! receives it.

mod nodes;
mod settings;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::pod::ResourceList;
use autoscaling::quantity::{Format as QuantityFormat, Quantity};
use autoscaling::query::{ContainerUsage, PodUsage};
use cluster::metrics::flight::{Flights, SharedAnswer};
use exposition::kubelet::{Batch, KubeletPage};
use exposition::{Format, Limits};
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use self::nodes::State;
pub(crate) use self::settings::KubeletFields;
pub use self::settings::KubeletSettings;
use crate::error::SourceError;
use crate::http::{Dial, Http, RequestError};
use crate::{Target, shared_for};

/// The longest time that a sync waits for a page. The last page of the node is used until the scrape ends.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum nodes for which one sync waits at the same time.
const AT_ONCE: usize = 256;
const ACCEPT: &str = "text/plain;version=0.0.4";
const NANOSECONDS: i64 = 1_000_000_000;

/// The usage of the pods of a target.
#[derive(Debug, Clone, PartialEq)]
pub struct Usage {
    /// The pods that have usage, by name.
    pub pods: Vec<PodUsage>,
    /// The time of the first request that returned the oldest counters. A kubelet may return the same counters
    /// repeatedly.
    pub oldest: Instant,
    /// The time at which the newest page was requested.
    pub scraped: Instant,
    /// The time between two scrapes.
    pub interval: Duration,
    /// A running pod without usage because of an error. Other pods have usage.
    pub missing: Option<(Arc<str>, SourceError)>,
}

type Scrape = SharedAnswer<(), SourceError>;

/// The scraper.
#[derive(Debug)]
pub(crate) struct Kubelets {
    settings: KubeletSettings,
    http: Http,
    permits: Semaphore,
    state: Mutex<State>,
    flights: Flights<IpAddr, (), SourceError>,
    /// Scrapes that a sync has started. They continue if the sync does not wait for their end.
    started: Mutex<Vec<Scrape>>,
}

impl Kubelets {
    pub(crate) fn new(settings: KubeletSettings, dial: Arc<dyn Dial>) -> Self {
        Self {
            http: Http::new(dial, 1),
            permits: Semaphore::new(settings.concurrency),
            settings,
            state: Mutex::new(State::new()),
            flights: Flights::new(None, || SourceError::Panicked),
            started: Mutex::default(),
        }
    }

    pub(crate) fn settings(&self) -> &KubeletSettings {
        &self.settings
    }

    /// The usage of the pods of a target on the nodes of its running pods. `now` is the time of day.
    pub(crate) async fn read(
        self: &Arc<Self>,
        target: &Target<'_>,
        now: Timestamp,
    ) -> Result<Usage, SourceError> {
        if !self.settings.enabled {
            return Err(SourceError::KubeletDisabled);
        }
        let namespaces = self.settings.namespaces.as_ref();
        if namespaces.is_some_and(|namespaces| !namespaces.contains(&**target.namespace)) {
            return Err(SourceError::Namespace);
        }
        let running = target.pods.iter().filter(|pod| pod.running);
        let nodes: BTreeSet<IpAddr> = running.filter_map(|pod| pod.node().ok()).collect();
        let due = self.state.lock().want(target.namespace, &nodes, now, shared_for(self.settings.interval));
        let deadline = Instant::now() + PATIENCE;
        let mut scrapes = Vec::with_capacity(due.len());
        for node in due {
            let scrape = self.scrape(node);
            self.started.lock().push(scrape.clone());
            scrapes.push(timeout_at(deadline, scrape));
        }
        // The state receives all results, including those of scrapes that finish later.
        stream::iter(scrapes).buffer_unordered(AT_ONCE).for_each(|_| std::future::ready(())).await;
        self.usage(target)
    }

    /// The usage of the pods of a target, from the last pages.
    fn usage(&self, target: &Target<'_>) -> Result<Usage, SourceError> {
        let state = self.state.lock();
        let now = Instant::now();
        let mut usage = Usage {
            pods: Vec::new(),
            oldest: now,
            scraped: now,
            interval: self.settings.interval,
            missing: None,
        };
        let (mut running, mut newest) = (0, None);
        for pod in target.pods {
            running += usize::from(pod.running);
            match pod.node().and_then(|node| state.usage(node, target.namespace, &pod.name)) {
                Ok((scraped, found)) => {
                    newest = newest.max(Some(scraped));
                    if let Some((oldest, found)) = found {
                        usage.oldest = usage.oldest.min(oldest);
                        usage.pods.push(pod_usage(&pod.name, &found));
                    }
                }
                Err(error) if pod.running => {
                    usage.missing.get_or_insert_with(|| (Arc::clone(&pod.name), error));
                }
                Err(_) => {}
            }
        }
        usage.scraped = newest.unwrap_or(now);
        match usage.missing {
            Some((pod, error)) if usage.pods.is_empty() => {
                Err(SourceError::AllPods(running, pod, Arc::new(error)))
            }
            _ => Ok(usage),
        }
    }

    /// Scrapes a node, or joins the scrape in flight.
    fn scrape(self: &Arc<Self>, node: IpAddr) -> Scrape {
        let kubelets = Arc::clone(self);
        self.flights.join(node, move |sent| {
            async move {
                // The semaphore is never closed.
                let _permit = kubelets.permits.acquire().await;
                sent.now();
                let started = Instant::now();
                let Some(time) = kubelets.state.lock().begin(node, started) else { return Ok(()) };
                let limit = kubelets.settings.timeout;
                let page = timeout(limit, kubelets.request(node, time)).await;
                let page = page.unwrap_or_else(|_| Err(RequestError::Timeout(limit).into()));
                kubelets.state.lock().record(node, started, page);
                Ok(())
            }
            .boxed()
        })
    }

    /// Requests the page of a node. `time` is the time of day.
    async fn request(&self, node: IpAddr, time: Timestamp) -> Result<Batch, SourceError> {
        let url = format!("https://{}/metrics/resource", SocketAddr::new(node, self.settings.port));
        let token = Some(self.settings.bearer_token_file.as_path());
        let mut response = self.http.get_authorized(&url, ACCEPT, token).await?;
        if response.status != http::StatusCode::OK {
            return Err(RequestError::Status(response.status).into());
        }
        if Format::from_content_type(&response.content_type) != Some(Format::Prometheus) {
            return Err(SourceError::ContentType(response.content_type.chars().take(100).collect()));
        }
        let limits = Limits { bytes: self.settings.max_bytes, ..Limits::default() };
        let mut page = KubeletPage::new(limits, time.as_millisecond());
        while let Some(piece) = response.piece().await? {
            page.push(&piece)?;
        }
        Ok(page.finish()?)
    }

    /// Scrapes the nodes that are due, and drops nodes that no HPA needs any more. Returns the scrapes.
    pub(crate) fn due(self: &Arc<Self>) -> Vec<Scrape> {
        let due = self.state.lock().due(Instant::now(), self.settings.interval);
        let mut scrapes = std::mem::take(&mut *self.started.lock());
        scrapes.extend(due.into_iter().map(|node| self.scrape(node)));
        scrapes
    }

    /// The number of nodes that are scraped.
    pub(crate) fn nodes(&self) -> usize {
        self.state.lock().len()
    }
}

/// The usage of a pod as metrics.k8s.io returns it: times in whole seconds.
fn pod_usage(pod: &Arc<str>, usage: &exposition::kubelet::PodUsage) -> PodUsage {
    let (cpu, memory): (Arc<str>, Arc<str>) = ("cpu".into(), "memory".into());
    let container = |name: &str, usage: &exposition::kubelet::Usage| {
        let cores = Quantity::from_nanos(usage.cpu_nanocores.into(), QuantityFormat::DecimalSi);
        let bytes = i128::from(usage.memory_bytes).saturating_mul(NANOSECONDS.into());
        let bytes = Quantity::from_nanos(bytes, QuantityFormat::BinarySi);
        let usage = ResourceList::new([(Arc::clone(&cpu), cores), (Arc::clone(&memory), bytes)]);
        ContainerUsage { name: name.into(), usage }
    };
    PodUsage {
        pod: Arc::clone(pod),
        timestamp: Timestamp::from_second(usage.time.div_euclid(NANOSECONDS)).ok(),
        window_nanos: i64::try_from(usage.window.as_nanos()).unwrap_or(i64::MAX),
        containers: usage.containers.iter().map(|(name, usage)| container(name, usage)).collect(),
    }
}
