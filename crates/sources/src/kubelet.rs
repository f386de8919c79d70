//! The scraper of kubelets, which all HPAs share. The page of a node is scraped once per interval while an HPA needs
//! the usage of a pod on this node. The numbers match metrics-server, which reads the same page.
//!
//! The scraper sends requests directly to the kubelets. The node proxy of the API server requires the permission
//! `nodes/proxy`, which also permits commands in containers. The token belongs to a separate account, because each node
//! receives the token.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::pod::ResourceList;
use autoscaling::quantity::{Format as QuantityFormat, Quantity};
use autoscaling::query::{ContainerUsage, PodUsage};
use cluster::metrics::flight::{Flights, SharedAnswer};
use exposition::kubelet::{self as page, Batch, KubeletPage, PodKey, Storage};
use exposition::{Limits, is_text_format};
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use crate::dial::Dial;
use crate::http::{Http, RequestError, SourceError};
use crate::settings::KubeletSettings;
use crate::{Target, pause_between_syncs, shared_for};

/// Maximum time that a sync waits for a page. If it is exceeded, the sync uses the previous page of the node.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of nodes for which one sync waits at the same time.
const AT_ONCE: usize = 256;
const ACCEPT: &str = "text/plain;version=0.0.4";
const NANOSECONDS: i64 = 1_000_000_000;
/// The time for which a node is scraped, and the pods of a namespace are kept, after the last request of an HPA. This
/// time is longer than the usual sync periods.
const WANTED: Duration = Duration::from_mins(3);
/// The time for which the counters of a node are kept without a new page. An average over a longer span would hide the
/// current usage.
const KEPT: Duration = Duration::from_mins(1);
/// The scrape interval in the manifest of metrics-server. The usage of a container younger than this is averaged since
/// its start.
const YOUNG: Duration = Duration::from_secs(15);
/// Maximum number of nodes to scrape, more than a cluster can have.
const MAX_NODES: usize = 20_000;

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

/// The scraper, with the nodes that HPAs need.
#[derive(Debug)]
pub(crate) struct Kubelets {
    settings: KubeletSettings,
    http: Http,
    permits: Semaphore,
    state: Mutex<State>,
    flights: Flights<IpAddr, (), SourceError>,
    /// Scrapes that syncs have started. [`Self::due`] returns them, so they complete after the sync stops waiting.
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

    /// Returns the usage of the pods of a target. First scrapes nodes without a recent page. `now` is the time of day.
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

    /// Returns the usage of the pods of a target, from the last pages.
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
        if !is_text_format(&response.content_type) {
            return Err(SourceError::ContentType(response.content_type.chars().take(100).collect()));
        }
        let limits = Limits { bytes: self.settings.max_bytes, ..Limits::default() };
        let mut page = KubeletPage::new(limits, time.as_millisecond());
        while let Some(piece) = response.piece().await? {
            page.push(&piece)?;
        }
        Ok(page.finish()?)
    }

    /// Returns scrapes of the nodes that are due. Drops nodes that no HPA has requested lately.
    pub(crate) fn due(self: &Arc<Self>) -> Vec<Scrape> {
        let due = self.state.lock().due(Instant::now(), pause_between_syncs(self.settings.interval));
        let mut scrapes = std::mem::take(&mut *self.started.lock());
        scrapes.extend(due.into_iter().map(|node| self.scrape(node)));
        scrapes
    }

    /// Returns the number of nodes that are scraped.
    pub(crate) fn nodes(&self) -> usize {
        self.state.lock().nodes.len()
    }
}

/// Converts the usage of a pod to the form of metrics.k8s.io, whose timestamps have whole seconds.
fn pod_usage(pod: &Arc<str>, usage: &page::PodUsage) -> PodUsage {
    let (cpu, memory): (Arc<str>, Arc<str>) = ("cpu".into(), "memory".into());
    let container = |name: &str, usage: &page::Usage| {
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

/// The nodes that HPAs need, and their last pages.
#[derive(Debug)]
struct State {
    epoch: Instant,
    nodes: BTreeMap<IpAddr, Node>,
    /// The time of the last request by an HPA, by namespace. Pods of other namespaces are not kept.
    namespaces: BTreeMap<Arc<str>, Instant>,
    /// A recent instant and its time of day.
    clock: Option<(Instant, Timestamp)>,
}

#[derive(Debug)]
struct Node {
    asked: Instant,
    /// The start of the last scrape.
    started: Option<Instant>,
    /// The start of the last scrape that has ended, and its error.
    ended: Option<(Instant, Option<SourceError>)>,
    /// The start of the last scrape with a page.
    answered: Instant,
    storage: Storage,
}

impl State {
    fn new() -> Self {
        let (nodes, namespaces) = (BTreeMap::new(), BTreeMap::new());
        Self { epoch: Instant::now(), nodes, namespaces, clock: None }
    }

    /// Records that an HPA of a namespace needs nodes. Returns the nodes without a completed scrape younger than `age`.
    fn want(
        &mut self,
        namespace: &Arc<str>,
        nodes: &BTreeSet<IpAddr>,
        time: Timestamp,
        age: Duration,
    ) -> Vec<IpAddr> {
        let now = Instant::now();
        self.clock = Some((now, time));
        match self.namespaces.get_mut(namespace) {
            Some(asked) => *asked = now,
            None => drop(self.namespaces.insert(Arc::clone(namespace), now)),
        }
        let mut due = Vec::new();
        for address in nodes {
            if !self.nodes.contains_key(address) && self.nodes.len() >= MAX_NODES {
                continue;
            }
            let node = self.nodes.entry(*address).or_insert_with(|| Node {
                asked: now,
                started: None,
                ended: None,
                answered: now,
                storage: Storage::new(YOUNG),
            });
            node.asked = now;
            let is_recent = |(at, _): &(Instant, _)| now.saturating_duration_since(*at) < age;
            if !node.ended.as_ref().is_some_and(is_recent) {
                due.push(*address);
            }
        }
        due
    }

    /// Records the start of a scrape. Returns the time of day, or `None` if no HPA needs the node any more.
    fn begin(&mut self, address: IpAddr, now: Instant) -> Option<Timestamp> {
        let (at, time) = self.clock?;
        self.nodes.get_mut(&address)?.started = Some(now);
        time.checked_add(now.saturating_duration_since(at)).ok()
    }

    /// Stores the result of a scrape.
    fn record(&mut self, address: IpAddr, started: Instant, page: Result<Batch, SourceError>) {
        let Some(node) = self.nodes.get_mut(&address) else { return };
        match page {
            Ok(mut batch) => {
                batch.retain(|pod| self.namespaces.contains_key(&*pod.namespace));
                node.storage.store(batch, started.saturating_duration_since(self.epoch));
                node.answered = started;
                node.ended = Some((started, None));
            }
            Err(error) => {
                if started.saturating_duration_since(node.answered) > KEPT {
                    node.storage = Storage::new(YOUNG);
                }
                node.ended = Some((started, Some(error)));
            }
        }
    }

    /// Returns the start of the last scrape of a node, and the usage of a pod with the start of the scrape that
    /// measured it.
    fn usage(
        &self,
        address: IpAddr,
        namespace: &str,
        pod: &str,
    ) -> Result<(Instant, Option<(Instant, page::PodUsage)>), SourceError> {
        let failed = |error: &SourceError| SourceError::Node(address, Arc::new(error.clone()));
        let Some(node) = self.nodes.get(&address) else {
            return Err(failed(&SourceError::TooManyNodes(MAX_NODES)));
        };
        match &node.ended {
            None => Err(failed(&RequestError::Timeout(PATIENCE).into())),
            Some((_, Some(error))) => Err(failed(error)),
            Some((started, None)) => {
                let pod = PodKey { namespace: namespace.into(), name: pod.into() };
                let usage = node.storage.measured(&pod);
                Ok((*started, usage.map(|usage| (self.epoch + usage.scraped, usage))))
            }
        }
    }

    /// Returns the nodes whose last scrape started at least `pause` ago. Drops nodes and namespaces that no HPA has
    /// requested lately.
    fn due(&mut self, now: Instant, pause: Duration) -> Vec<IpAddr> {
        let is_wanted = |asked: Instant| now.saturating_duration_since(asked) < WANTED;
        self.namespaces.retain(|_, asked| is_wanted(*asked));
        let mut due = Vec::new();
        self.nodes.retain(|address, node| {
            if !is_wanted(node.asked) {
                return false;
            }
            if node.started.is_some_and(|started| now.saturating_duration_since(started) >= pause) {
                node.started = Some(now);
                due.push(*address);
            }
            true
        });
        due
    }
}
