//! Load: what the pods of a cluster have to do, and the metrics that come of it.
//!
//! A [`Load`] says of a set of pods how much work there is, as a [`Curve`] over time: cpu, memory, requests, or a queue that
//! fills and is drained. [`LoadMetrics`] spreads the work over the pods that are ready, samples it on a scrape interval as
//! metrics-server does, and answers for the three metrics APIs from the last sample. So a pod that has just become ready
//! has no sample yet, and a value can be as old as one interval.
//!
//! The work does not depend on the autoscaler, only on time; what depends on it is how much each pod gets, and how
//! fast a queue is drained.

mod curve;
pub mod model;
pub mod pipeline;
mod points;
mod queue;
mod sample;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::metrics::StaticMetrics;
const TICK: Duration = Duration::from_millis(200);
use super::{Cluster, MetricsBackend, MetricsReply, MetricsRequest};
use crate::clock::SharedClock;

pub use curve::{Curve, Shape};
pub use points::{Between, LineProblem, Points, PointsError};
pub use queue::Queue;

/// How often metrics-server asks the kubelets, unless told otherwise.
pub const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);

/// The work of one set of pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The namespace of the pods.
    pub namespace: String,
    /// The labels that the pods have.
    pub labels: BTreeMap<String, String>,
    /// Cpu, for metrics.k8s.io.
    pub cpu: Option<CpuLoad>,
    /// Memory, for metrics.k8s.io.
    pub memory: Option<MemoryLoad>,
    /// Requests, for custom.metrics.k8s.io.
    pub requests: Option<RequestLoad>,
    /// A queue that the pods drain, for external.metrics.k8s.io.
    pub queue: Option<QueueLoad>,
}

impl Load {
    /// A load without any work, of the pods with one label.
    pub fn of(namespace: &str, label: &str, value: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            labels: BTreeMap::from([(label.to_owned(), value.to_owned())]),
            cpu: None,
            memory: None,
            requests: None,
            queue: None,
        }
    }
}

/// Cpu that all pods together need.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuLoad {
    /// Millicores in all.
    pub demand: Curve,
    /// Millicores that one pod can use at most: its limit.
    pub capacity: f64,
}

/// Memory that each pod uses: the same for all, and growing with the pod's age.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryLoad {
    /// Bytes of a new pod.
    pub base: f64,
    /// Bytes that each second of its life adds.
    pub growth: f64,
}

/// Requests that come in, shown for each pod and, if wanted, in all on an object before the pods.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestLoad {
    /// The name of the metric.
    pub metric: String,
    /// Requests per second in all.
    pub per_second: Curve,
    /// Requests per second that one pod can answer at most.
    pub capacity: f64,
    /// The object that shows the sum: apiVersion, kind and name.
    pub object: Option<(String, String, String)>,
}

/// A queue: work comes in by a curve, and each ready pod takes some of it out.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueLoad {
    /// The name of the metric that shows the length of the queue.
    pub metric: String,
    /// The labels of its series.
    pub labels: BTreeMap<String, String>,
    /// Items per second that come in.
    pub arrivals: Curve,
    /// Items per second that one pod takes out.
    pub drain_per_pod: f64,
}

/// A metrics backend that follows loads.
#[derive(Debug)]
pub struct LoadMetrics {
    clock: SharedClock,
    scrape_interval: Duration,
    origin: Instant,
    state: Mutex<State>,
    /// The last sample.
    published: StaticMetrics,
}

#[derive(Debug, Default)]
struct State {
    /// Each with its queue; one that is never filled where the load has none.
    loads: Vec<(Load, Queue)>,
    /// Up to which time since the origin the queues are computed.
    computed_to: Duration,
    /// When the next sample is due, since the origin.
    next_scrape: Duration,
}

impl LoadMetrics {
    /// A backend without loads, whose curves begin now. Nothing is answered before the first [`step`](Self::step).
    pub fn new(clock: SharedClock, scrape_interval: Duration) -> Self {
        Self {
            clock,
            scrape_interval,
            origin: Instant::now(),
            state: Mutex::default(),
            published: StaticMetrics::new(),
        }
    }

    /// Adds a load. A pod that several loads match has the first one's cpu and memory.
    pub fn add(&self, load: Load) {
        self.lock().loads.push((load, Queue::default()));
    }

    /// The queue of the first load that shows its length under this metric.
    pub fn queue(&self, metric: &str) -> Option<Queue> {
        let state = self.lock();
        let has_metric = |load: &Load| load.queue.as_ref().is_some_and(|queue| queue.metric == metric);
        state.loads.iter().find(|(load, _)| has_metric(load)).map(|(_, queue)| *queue)
    }

    /// Computes and samples in the background until `stop` is cancelled.
    pub async fn run(&self, cluster: Cluster, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = ticks.tick() => self.step(&cluster),
            }
        }
    }

    /// Computes the queues up to now, and takes a sample if one is due.
    pub fn step(&self, cluster: &Cluster) {
        let elapsed = self.origin.elapsed();
        let mut state = self.lock();
        let is_due = elapsed >= state.next_scrape;
        if !is_due && state.loads.iter().all(|(load, _)| load.queue.is_none()) {
            return;
        }
        let passed = elapsed.saturating_sub(state.computed_to);
        let pods = sample::ReadyPods::of(cluster);
        for (load, queue) in &mut state.loads {
            if let Some(model) = &load.queue {
                let middle = elapsed.saturating_sub(passed / 2);
                let arrived = model.arrivals.at(middle) * passed.as_secs_f64();
                let capacity =
                    model.drain_per_pod * pods.matching(load).count_as_f64() * passed.as_secs_f64();
                queue.advance(arrived, capacity);
            }
        }
        state.computed_to = elapsed;
        if is_due {
            state.next_scrape = elapsed + self.scrape_interval;
            let scrape = sample::Scrape { elapsed, time: self.clock.now(), window: self.scrape_interval };
            scrape.publish(&state.loads, &pods, &self.published);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetricsBackend for LoadMetrics {
    fn answer(&self, request: &MetricsRequest<'_>) -> MetricsReply {
        self.published.answer(request)
    }
}

#[cfg(test)]
mod tests;
