//! The nodes that HPAs need, and their last pages.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use exposition::kubelet::{Batch, PodKey, PodUsage, Storage};
use jiff::Timestamp;
use tokio::time::Instant;

use super::PATIENCE;
use crate::error::SourceError;
use crate::http::RequestError;

/// The time for which a node is scraped, and the pods of a namespace are kept, after the last request of an HPA. Longer
/// than the usual sync periods.
const WANTED: Duration = Duration::from_mins(3);
/// The time for which the counters of a node are kept without a new page. An average over a longer span would hide the
/// current usage.
const KEPT: Duration = Duration::from_mins(1);
/// The interval of metrics-server in its manifest. The usage of a container younger than this is averaged since its
/// start.
const YOUNG: Duration = Duration::from_secs(15);
/// Maximum number of nodes to scrape, above the size of any cluster.
const MAX_NODES: usize = 20_000;

#[derive(Debug)]
pub(super) struct State {
    epoch: Instant,
    nodes: BTreeMap<IpAddr, Node>,
    /// The time of the last request by an HPA, by namespace. Pods of other namespaces are not kept.
    namespaces: BTreeMap<Arc<str>, Instant>,
    /// The time of day at an instant.
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
    pub(super) fn new() -> Self {
        let (nodes, namespaces) = (BTreeMap::new(), BTreeMap::new());
        Self { epoch: Instant::now(), nodes, namespaces, clock: None }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Notes that an HPA of a namespace needs nodes. Returns the nodes without a finished scrape younger than `age`.
    pub(super) fn want(
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

    /// Starts a scrape. Returns the time of day. `None` if no HPA needs the node any more.
    pub(super) fn begin(&mut self, address: IpAddr, now: Instant) -> Option<Timestamp> {
        let (at, time) = self.clock?;
        self.nodes.get_mut(&address)?.started = Some(now);
        time.checked_add(now.saturating_duration_since(at)).ok()
    }

    /// Stores a page or an error.
    pub(super) fn record(&mut self, address: IpAddr, started: Instant, page: Result<Batch, SourceError>) {
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

    /// The start of the last scrape of a node, and the usage of a pod with the start of the scrape that measured it.
    pub(super) fn usage(
        &self,
        address: IpAddr,
        namespace: &str,
        pod: &str,
    ) -> Result<(Instant, Option<(Instant, PodUsage)>), SourceError> {
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

    /// The nodes to scrape now. Drops nodes and namespaces that no HPA has requested lately.
    pub(super) fn due(&mut self, now: Instant, interval: Duration) -> Vec<IpAddr> {
        let is_wanted = |asked: Instant| now.saturating_duration_since(asked) < WANTED;
        self.namespaces.retain(|_, asked| is_wanted(*asked));
        let mut due = Vec::new();
        self.nodes.retain(|address, node| {
            if !is_wanted(node.asked) {
                return false;
            }
            if node.started.is_some_and(|started| now.saturating_duration_since(started) >= interval) {
                node.started = Some(now);
                due.push(*address);
            }
            true
        });
        due
    }
}
